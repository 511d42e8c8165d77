"""Tests of a barrier that only decide whether a wait is made.

Kernels look at a barrier one round early, and wait where it was not ready:

    peek = mbarrier.try_wait(...)
    ...
    if (!peek) while (!mbarrier.try_wait(...));

The warp may vote first, so that it goes on as one (`vote.sync.all`): all lanes wait unless the
test of each said "yes". As far as the program text can show, such a test is equivalent to the wait
that it guards: its result, including copies of it, only controls branches around a single wait.
What an execution has to show in addition is in `check.proofs.guards`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilepipe.ptx.compiler.compiled_function import CompiledFunction
from tilepipe.ptx.compiler.control_flow import EXIT, Block, ControlFlow
from tilepipe.ptx.compiler.liveness import Liveness
from tilepipe.ptx.compiler.segments import RequestSite
from tilepipe.ptx.compiler.uniformity import reads, results
from tilepipe.ptx.definition import Compute, Jump, Nothing, Operation, Perform
from tilepipe.ptx.numerics.scalars import SCALAR_FUNCTIONS
from tilepipe.ptx.syntax.nodes import Float, Integer, Not, Operand, Register, leaves

# what only hands an answer on, where all else that it reads is constant
_COPIES = {"mov", "selp", "setp", "set", "not", "cvt", "and", "or", "xor"}


@dataclass(frozen=True)
class Peeks:
    """Tests and the waits that they guard: the number of an instruction -> its group. The answers
    of the tests of a group can reach one register.

    Attributes:
        unread: groups in which an answer that has been read, and was "no", is followed by its wait
            before the next test and before the end, whatever else the kernel does. So one that no
            wait has followed was read by nothing.
    """

    tests: Mapping[int, int] = field(default_factory=dict)
    waits: Mapping[int, int] = field(default_factory=dict)
    unread: frozenset[int] = frozenset()


def peeks(code: CompiledFunction) -> Peeks:
    """The tests of a function that guard waits and decide nothing else."""
    return _Flow(code.flow, code.operations, code.sites).peeks()


class _Flow:
    """Where the answers of tests go."""

    def __init__(
        self, flow: ControlFlow, operations: list[Operation], sites: Mapping[int, RequestSite]
    ) -> None:
        self.flow = flow
        self.operations = operations
        self.sites = sites
        self.above: dict[int, int] = {}  # register -> another with the same answers, or itself
        self.readers: dict[int, set[int]] = {}
        for number, op in enumerate(operations):
            for register in self._read(number, op):
                self.readers.setdefault(register, set()).add(number)
        self.tests = [i for i, s in sites.items() if s.perform.waits is not None and not s.spins]
        for test in self.tests:
            for result in results(operations[test]):
                self.above.setdefault(result.number, result.number)
        self._follow()
        # register -> its values where the tests say no, and where they say yes
        self.values: dict[int, tuple[Any, Any]] = {}
        self.mixed: set[int] = set()  # registers that stand for an answer in more than one way
        self.avoided: set[int] = set()  # waits that a "no" leads past in some case
        self._evaluate()

    def _read(self, number: int, op: Operation) -> set[int]:
        guard = self.flow.instructions[number].guard
        found = {r.number for r in reads(op) if isinstance(r, Register)}
        return found if guard is None else found | {guard.register.number}

    def _group(self, register: int) -> int:
        while self.above[register] != register:
            register = self.above[register]
        return register

    def _follow(self) -> None:
        """Joins the registers that hold the same answers, until there is no new one."""
        changed = True
        while changed:
            changed = False
            for number, op in enumerate(self.operations):
                known = [r for r in self._sources(op) if r in self.above]
                if not known or not self._copies(number, op):
                    continue
                for register in (*known, *(r.number for r in results(op))):
                    new = register not in self.above
                    self.above.setdefault(register, register)
                    one, other = self._group(known[0]), self._group(register)
                    changed |= new or one != other
                    self.above[other] = one

    def _sources(self, op: Operation) -> list[int]:
        return [leaf.number for leaf in _read_as_values(op) if isinstance(leaf, Register)]

    def _copies(self, number: int, op: Operation) -> bool:
        """True if an instruction hands an answer on, and adds nothing to it."""
        return (
            isinstance(op, Compute)
            and (self._votes(number) or self.flow.instructions[number].opcode in _COPIES)
            and all(r in self.above for r in self._sources(op))
            and all(isinstance(leaf, Register | Integer | Float) for leaf in _read_as_values(op))
        )

    def _votes(self, number: int) -> bool:
        instruction = self.flow.instructions[number]
        return instruction.opcode == "vote" and "pred" in instruction.modifiers

    def _evaluate(self) -> None:
        """Finds what the copies of an answer are, for both answers."""
        for test in self.tests:
            for result in results(self.operations[test]):
                self._set(result.number, (False, True))
        changed = True
        while changed:
            changed = False
            for number, op in enumerate(self.operations):
                sources = self._sources(op)
                if not sources or not self._copies(number, op):
                    continue
                if any(r not in self.values for r in sources):
                    continue
                assert isinstance(op, Compute)
                no, yes = ({r: self.values[r][i] for r in sources} for i in (0, 1))
                both = _computed(op, no), _computed(op, yes)
                if self._votes(number):
                    both = self._outcome(number, self.values[sources[0]])
                for result in results(op):
                    changed |= self._set(result.number, both)

    def _outcome(self, number: int, votes: tuple[Any, Any]) -> tuple[Any, Any]:
        """The outcomes of a vote on an answer: "no" if the test of one lane said so.
        Lanes that hold a constant instead of an answer do not make it a "yes".
        """
        negated = isinstance(self.flow.instructions[number].operands[1], Not)
        for_no, for_yes = (bool(v) is not negated for v in votes)
        mode = {(False, True): "all", (True, False): "any"}.get((for_no, for_yes))
        known = mode is not None and mode in self.flow.instructions[number].modifiers
        return (for_no, for_yes) if known else (None, None)

    def _set(self, register: int, both: tuple[Any, Any]) -> bool:
        new = register not in self.values
        before = self.values.setdefault(register, both)
        if None in both or before != both:
            self.mixed.add(register)
        return new

    def peeks(self) -> Peeks:
        leaking = {self._group(r) for r in self.mixed if r in self.above}
        waits: dict[int, int] = {}
        for register in self.above:
            for number in self.readers.get(register, ()):
                group = self._group(register)
                wait = self._guarded_wait(number, register)
                if wait is not None:
                    waits[wait] = group
                elif not self._copies(number, self.operations[number]) or self._is_guard(
                    number, register
                ):
                    leaking.add(group)
        guarding = {group for group in waits.values() if group not in leaking}
        tests = {}
        for test in self.tests:
            groups = {self._group(r.number) for r in results(self.operations[test])}
            if len(groups) == 1 and groups <= guarding:
                tests[test] = groups.pop()
        waits = {wait: group for wait, group in waits.items() if group in guarding}
        return Peeks(tests, waits, self._unread(tests, waits))

    def _unread(self, tests: Mapping[int, int], waits: Mapping[int, int]) -> frozenset[int]:
        """The groups in which no register holds an answer any more where a test is made, and no
        "no" leads past its wait.
        """
        if not tests:
            return frozenset()
        liveness = Liveness(self.flow, self.operations)
        read = {group for wait, group in waits.items() if wait in self.avoided}
        for test, group in tests.items():
            live = liveness.before(test)
            if any(live >> r & 1 and self._group(r) == group for r in self.above):
                read.add(group)
        return frozenset(tests.values()) - read

    def _is_guard(self, number: int, register: int) -> bool:
        guard = self.flow.instructions[number].guard
        return guard is not None and guard.register.number == register

    def _guarded_wait(self, number: int, register: int) -> int | None:
        """The wait that a branch on an answer goes around, with nothing else."""
        if not isinstance(self.operations[number], Jump) or not self._is_guard(number, register):
            return None
        block = self.flow.blocks[self.flow.of_instruction[number]]
        if register not in self.values:
            return None
        inside = [
            at
            for other in self.flow.decided_by(block)
            for at in range(self.flow.blocks[other].begin, self.flow.blocks[other].end)
        ]
        performs = [at for at in inside if isinstance(self.operations[at], Perform)]
        again = {at for wait in performs for at in self.sites[wait].retries or ()}
        waits = [at for at in performs if at not in again]
        if len(waits) != 1 or not self.sites[waits[0]].spins:
            return None
        own = set(inside)
        for at in inside:
            op = self.operations[at]
            if isinstance(op, Compute):
                outside = any(self.readers.get(r.number, set()) - own for r in results(op))
                if outside or op.members is not None:
                    return None
            elif not isinstance(op, Jump | Nothing | Perform):
                return None
        guard = self.flow.instructions[number].guard
        assert guard is not None
        wait = waits[0]
        no, yes = (
            self._passes(block, bool(value) is not guard.negated) for value in self.values[register]
        )
        at = self.flow.of_instruction[wait]
        if at not in no or at in yes:
            return None
        without = self._passes(block, bool(self.values[register][0]) is not guard.negated, at)
        if block.meets in without or EXIT in without:
            self.avoided.add(wait)
        return wait

    def _passes(self, block: Block, taken: bool, closed: int | None = None) -> set[int]:
        """The blocks through which a branch can lead until its ways meet, with the one where they
        do. closed: a block through which none of the ways that count leads.
        """
        first = self.flow.of_instruction
        targets = self.flow.instructions[block.end - 1].targets
        start = first[targets[0]] if targets[0] < len(first) else EXIT
        if not taken:
            start = block.number + 1 if block.number + 1 < len(self.flow.blocks) else EXIT
        seen: set[int] = set()
        work = [start]
        while work:
            number = work.pop()
            if number in seen or number == closed:
                continue
            seen.add(number)
            if number not in (EXIT, block.meets):
                work.extend(self.flow.blocks[number].successors)
        return seen


def _read_as_values(op: Operation) -> list[Operand]:
    """The operands that an instruction reads, without its mask of lanes."""
    return [leaf for o, _ in op.sources for leaf in leaves(o)] if isinstance(op, Compute) else []


def _computed(op: Compute, known: Mapping[int, Any]) -> Any:
    """The result of an instruction that hands an answer on; None where it cannot be computed."""
    if not isinstance(op.scalar, str):
        return None
    values = [
        known[o.number] if isinstance(o, Register) else getattr(o, "value", None)
        for o, _ in op.sources
    ]
    if any(v is None for v in values):
        return None
    return eval(op.scalar.format(*values), dict(SCALAR_FUNCTIONS))
