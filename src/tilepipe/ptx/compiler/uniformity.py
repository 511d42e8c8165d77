"""Which registers hold one value for all lanes of a warp, and which blocks all lanes run together.

A kernel's addresses, counters and barrier phases are mostly equal in all lanes; they are kept as
Python integers, which is ten times as fast as arrays of 32. This is a divergence analysis
(Coutinho, Sampaio, Pereira, Meira 2011). It starts by assuming every register uniform and removes
those that are not:

- a register is uniform where all that it is computed from is, and where no two lanes can have a
  value of different executions of the instructions that write it;
- in a block that only some lanes may run, or under a guard that is not uniform, that is so for a
  register with one writer whose sources never change, which writes the same each time; and for a
  register that is written and then read in one block, before another group of lanes can run;
- a branch on a predicate that is not uniform makes those blocks divergent that it decides about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilepipe.ptx.compiler.control_flow import ControlFlow
from tilepipe.ptx.definition import Compute, Jump, Operation, Perform, Typed
from tilepipe.ptx.special_registers import CLOCKS, LANE_REGISTERS
from tilepipe.ptx.syntax.nodes import Operand, Register, SpecialRegister, leaves

_MOST_ROUNDS = 200
_MOST_BLOCKS = 10_000_000  # that branches decide about, summed over all branches


@dataclass(frozen=True)
class Uniformity:
    """The result of the analysis.

    Attributes:
        varying: numbers of the registers that are kept for each lane. divergent: numbers of the
            blocks that only some lanes may run.
    """

    varying: frozenset[int]
    divergent: frozenset[int]

    def of(self, operand: Operand) -> bool:
        """True if an operand has one value for all lanes."""
        return not any(_varies(leaf, self.varying) for leaf in leaves(operand))


def results(operation: Operation) -> list[Register]:
    """The registers that an operation writes."""
    return [r for d, _ in written(operation) for r in leaves(d) if isinstance(r, Register)]


def written(operation: Operation) -> tuple[Typed, ...]:
    """The destinations of an operation, and the registers that it uses in place."""
    match operation:
        case Compute(results=found):
            return found
        case Perform(results=found, in_place=in_place):
            return (*found, *in_place)
    return ()


def reads(operation: Operation) -> list[Operand]:
    """The operands that an operation reads, with the mask of its members, and what it uses in
    place.
    """
    found = operands_read(operation)
    if isinstance(operation, Perform):
        found += [leaf for operand, _ in operation.in_place for leaf in leaves(operand)]
    return found


def operands_read(operation: Operation) -> list[Operand]:
    """The operands that an operation reads, without the registers that it uses in place."""
    match operation:
        case Compute(sources=sources, members=members) | Perform(sources=sources, members=members):
            named = [] if members is None else [members]
            return [leaf for o in (*(o for o, _ in sources), *named) for leaf in leaves(o)]
        case Jump(index=Register() as index):
            return [index]
    return []


def _varies(leaf: Operand, varying: set[int] | frozenset[int]) -> bool:
    if isinstance(leaf, Register):
        return leaf.number in varying
    return isinstance(leaf, SpecialRegister) and leaf.name in LANE_REGISTERS


def all_varying(flow: ControlFlow, operations: Sequence[Operation]) -> Uniformity:
    """The result that holds however lanes run: no register is uniform, and any lanes may run a
    block.
    """
    registers = frozenset(r.number for op in operations for r in results(op))
    return Uniformity(registers, frozenset(range(len(flow.blocks))))


def uniformity(
    flow: ControlFlow, operations: Sequence[Operation], read_first: int = 0
) -> Uniformity:
    """Analyses a function.

    Args:
        operations: of its instructions.
        read_first: bit n set where some path reads register n before it writes it. What only some
            lanes have written such a register with is not what the others hold.
    """
    writers: dict[int, int] = {}
    read_at: dict[int, list[int]] = {}
    for number, (instruction, op) in enumerate(zip(flow.instructions, operations, strict=True)):
        for register in results(op):
            writers[register.number] = writers.get(register.number, 0) + 1
        guards = [instruction.guard.register] if instruction.guard else []
        for leaf in (*reads(op), *guards):
            if isinstance(leaf, Register):
                read_at.setdefault(leaf.number, []).append(number)
    varying: set[int] = set()
    divergent: set[int] = set()
    fixed = {n for n in _fixed(operations, writers) if not read_first >> n & 1}
    turns = _turns(flow, operations)
    ends = {register: (min(at), max(at)) for register, at in read_at.items()}
    split: set[int] = set()  # blocks whose branch has been looked at
    before = (-1, -1)
    rounds = walked = 0
    while before != (len(varying), len(divergent)):
        before = len(varying), len(divergent)
        rounds += 1
        if rounds > _MOST_ROUNDS or walked > _MOST_BLOCKS:
            # A text that no compiler writes: that everything varies is always right.
            return all_varying(flow, operations)
        for number, op in enumerate(operations):
            if not isinstance(op, Compute | Perform):
                continue
            block = flow.of_instruction[number]
            guard = flow.instructions[number].guard
            apart = guard is not None and guard.register.number in varying
            for register in results(op):
                if register.number in varying:
                    continue
                if not _gives_one_value(op, register, varying) or (
                    register.number not in fixed
                    and (apart or block in divergent)
                    and (
                        guard is not None
                        or writers[register.number] > 1
                        or not all(
                            number < at
                            and flow.of_instruction[at] == block
                            and turns[at] == turns[number]
                            for at in ends.get(register.number, ())
                        )
                    )
                ):
                    varying.add(register.number)
        for flow_block in flow.blocks:
            if flow_block.number in split:
                continue
            last = flow_block.end - 1
            instruction, op = flow.instructions[last], operations[last]
            if not isinstance(op, Jump):
                continue
            splits = instruction.guard and instruction.guard.register.number in varying
            if splits or any(_varies(leaf, varying) for leaf in reads(op)):
                split.add(flow_block.number)
                for block in flow.decided_by(flow_block):
                    divergent.add(block)
                    walked += 1
    return Uniformity(frozenset(varying), frozenset(divergent))


def _fixed(operations: Sequence[Operation], writers: Mapping[int, int]) -> set[int]:
    """The registers that hold the same whenever their only writer has been executed: it is made of
    constants, registers of this kind and special registers that do not change.
    """
    fixed: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        before = len(fixed)
        for op in operations:
            same = isinstance(op, Compute | Perform) and op.spread == "same"
            if same and all(_stays(leaf, fixed) for leaf in reads(op)):
                fixed.update(r.number for r in results(op) if writers[r.number] == 1)
        if len(fixed) == before:
            break
    return fixed


def _stays(leaf: Operand, fixed: set[int]) -> bool:
    if isinstance(leaf, Register):
        return leaf.number in fixed
    return not (isinstance(leaf, SpecialRegister) and leaf.name in CLOCKS)


def _turns(flow: ControlFlow, operations: Sequence[Operation]) -> list[int]:
    """A number for each instruction; another group of lanes can run between two of a block only if
    these differ. That is before an instruction at which lanes gather, and after a request which is
    skipped where no lane of the group makes it.
    """
    found: list[int] = []
    turn = 0
    for instruction, op in zip(flow.instructions, operations, strict=True):
        turn += isinstance(op, Compute | Perform) and op.members is not None
        found.append(turn)
        turn += isinstance(op, Perform) and instruction.guard is not None
    return found


def _gives_one_value(operation: Compute | Perform, register: Register, varying: set[int]) -> bool:
    if isinstance(operation, Perform) and any(o is register for o, _ in operation.in_place):
        return False
    if operation.spread == "one":
        return True
    if operation.spread == "lanes" or (isinstance(operation, Compute) and not operation.scalar):
        return False
    return not any(_varies(leaf, varying) for leaf in reads(operation))
