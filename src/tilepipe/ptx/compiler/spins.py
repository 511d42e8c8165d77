"""Which tests of a barrier are waits: those after which, where they fail, comes nothing but the
same test again.

`mbarrier.try_wait` may fail at any time, and programs put it in a loop. Where a walk from a failed
test leads back to it, and on the way there are only registers that get the same values each time,
the loop is a wait. Compilers put what stands after the wait, and what its address comes from, into
that loop: instructions of the test's own block are executed whatever the answer is, so these may
compute values of all kinds. Elsewhere on the way, registers are computed from the failure alone,
and nothing may read them afterwards: they would tell that the test has failed.

A test is a wait, too, where its failure leads to another instruction that tests the same phase and
is a wait: CuTe DSL's FMHA for Hopper tests three times before its loop. Then nothing may tell
afterwards which of them has succeeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilepipe.ptx.compiler.control_flow import ControlFlow
from tilepipe.ptx.compiler.liveness import Liveness
from tilepipe.ptx.compiler.same_values import Terms
from tilepipe.ptx.compiler.uniformity import reads, written
from tilepipe.ptx.definition import Compute, Jump, Nothing, Operation, Perform
from tilepipe.ptx.numerics.scalars import SCALAR_FUNCTIONS
from tilepipe.ptx.syntax.nodes import (
    Instruction,
    Integer,
    Not,
    Operand,
    Register,
    SpecialRegister,
    leaves,
)

_LONGEST = 64  # instructions on the way back to the test


class Spins:
    """The tests of a function that are waits. `liveness`: of its registers, asked for when it is
    needed.
    """

    def __init__(
        self,
        flow: ControlFlow,
        operations: Sequence[Operation],
        liveness: Callable[[], Liveness],
    ) -> None:
        self._flow = flow
        self._operations = operations
        self._liveness = liveness
        self._terms = Terms(flow, operations)

    def retries(self, test: int, before: frozenset[int] = frozenset()) -> frozenset[int] | None:
        """The other instructions that test again where instruction `test` has failed, if its phase
        is tested until it is complete: often none. None where the test is no wait. `before`: tests
        whose failure has led to this one.
        """
        way = _Way(self._flow, self._operations, test, False)
        for at in way.follow():
            if at == test:
                same = way.decided and self._same_again(way.path, test)
                return frozenset() if same else None
            if at not in before and self._asks_the_same(test, at, way.path):
                others = self.retries(at, before | {test})
                if others is None or not self._alike(test, at, way.tells):
                    return None
                return others | {at}
        return None

    def _asks_the_same(self, test: int, other: int, path: Sequence[int]) -> bool:
        """True if another instruction is the same test, of the same phase. `path`: from the one to
        the other.
        """
        if other >= len(self._operations):
            return False
        one, two = self._operations[test], self._operations[other]
        assert isinstance(one, Perform)
        if not isinstance(two, Perform) or two.waits is None:
            return False
        if self._flow.instructions[test].name != self._flow.instructions[other].name:
            return False
        way = self._terms.before(test)
        asked = [way.of(operand) for operand, _ in one.sources]
        for at in (test, *path):
            way.execute(self._operations[at])
        return asked == [way.of(operand) for operand, _ in two.sources]

    def _alike(self, test: int, other: int, tells: set[Operand]) -> bool:
        """True if the ways from two tests that have succeeded meet, and no register tells there
        which of them it was. `tells`: those that tell that the first one had failed.
        """
        one, two = (_Way(self._flow, self._operations, n, True) for n in (test, other))
        after: dict[int, set[Operand]] = {}
        for at in one.follow():
            after.setdefault(at, set(one.tells))
        return any(
            at in after and not self._live(at, tells | after[at] | two.written)
            for at in two.follow()
        )

    def _live(self, at: int, registers: set[Operand]) -> bool:
        """True if one of these registers may be read from an instruction on."""
        live = self._liveness().before(at)
        return any(isinstance(r, Register) and live >> r.number & 1 for r in registers)

    def _same_again(self, path: Sequence[int], test: int) -> bool:
        """True if what stands in the block of the test gives the same values each time, and nothing
        else shows afterwards that the test has failed.

        An instruction gives the same values where it reads nothing that the way changes, but for
        what was written before it in the block. What stands after the test may read its answer as
        well: it is executed again after the test that succeeds, and nothing before the test reads
        it.
        """
        flow, operations = self._flow, self._operations
        block = flow.blocks[flow.of_instruction[test]]
        always = [at for at in path if flow.of_instruction[at] == block.number]
        always = [at for at in sorted(always) if flow.instructions[at].guard is None]
        sometimes = {
            leaf for at in set(path) - set(always) for leaf in _destinations(operations[at])
        }
        changed = {leaf for at in (test, *path) for leaf in _destinations(operations[at])}
        written_again: set[Operand] = set()
        for at in always:
            if at > test:
                written_again |= _destinations(operations[test])
            op = operations[at]
            if isinstance(op, Compute):
                if op.active or op.members is not None:
                    return False
                for leaf in reads(op):
                    if isinstance(leaf, SpecialRegister) or (leaf in changed - written_again):
                        return False
            written_again |= _destinations(op)
        return not sometimes or not self._live(block.begin, sometimes)


class _Way:
    """The instructions that are executed after a test, as far as its answer alone decides.

    Attributes:
        path: those so far, but for what has no effect. decided: each is executed whatever the
            answer is, or computes from the answer alone.
        written: the registers that they write.
        tells: of these, and of the test's own, those whose values the answer may have decided.
    """

    def __init__(
        self, flow: ControlFlow, operations: Sequence[Operation], test: int, answer: bool
    ) -> None:
        self._flow = flow
        self._operations = operations
        self._test = test
        self._known: dict[Operand, Any] = dict.fromkeys(_destinations(operations[test]), answer)
        self.path: list[int] = []
        self.decided = True
        self.written = set(self._known)
        self.tells = set(self._known)

    def follow(self) -> Iterator[int]:
        """The places on the way, each before its instruction is executed; the last one is where the
        answer does not decide what comes next, or a request to the machine.
        """
        own = self._flow.of_instruction[self._test]
        at = self._test + 1
        for _ in range(_LONGEST):
            yield at
            if at >= len(self._operations):
                return
            instruction, op = self._flow.instructions[at], self._operations[at]
            taken = _executes(instruction, self._known)
            if taken is None:
                return
            at += 1
            if not taken or isinstance(op, Nothing):
                continue
            self.path.append(at - 1)
            if isinstance(op, Jump) and op.index is None:
                at = instruction.targets[0]
            elif isinstance(op, Compute):
                always = self._flow.of_instruction[at - 1] == own and instruction.guard is None
                self._computes(op, always)
            else:
                return

    def _computes(self, op: Compute, always: bool) -> None:
        """An instruction that computes; `always`: it is executed whatever the answer is."""
        found, targets = _computed(op, self._known), _destinations(op)
        self.decided = self.decided and (always or bool(found))
        self.written |= targets
        if always and self.tells.isdisjoint(reads(op)):
            self.tells -= targets
        else:
            self.tells |= targets
        for leaf in targets:
            self._known.pop(leaf, None)
        self._known |= found


def _computed(op: Compute, known: dict[Operand, Any]) -> dict[Operand, Any]:
    """The result of an instruction, where the failure alone decides it; else nothing."""
    values = [_value(operand, known) for operand, _ in op.sources]
    register = op.results[0][0]
    if (
        not isinstance(op.scalar, str)
        or len(op.results) != 1
        or not isinstance(register, Register)
        or any(v is None for v in values)
    ):
        return {}
    return {register: eval(op.scalar.format(*values), dict(SCALAR_FUNCTIONS))}


def _destinations(op: Operation) -> set[Operand]:
    return {leaf for operand, _ in written(op) for leaf in leaves(operand)}


def _executes(instruction: Instruction, known: dict[Operand, Any]) -> bool | None:
    """True if the guard lets it run; None where that depends on more than the failed test."""
    if instruction.guard is None:
        return True
    value = known.get(instruction.guard.register)
    return None if value is None else bool(value) is not instruction.guard.negated


def _value(operand: Operand, known: dict[Operand, Any]) -> Any:
    match operand:
        case Register():
            return known.get(operand)
        case Integer(value):
            return value
        case Not(inner):
            value = _value(inner, known)
            return None if value is None else not value
    return None
