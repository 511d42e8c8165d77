"""Which registers hold one value for all lanes of a warp, and which blocks all lanes run together.

A kernel's addresses, counters and barrier phases are mostly equal in all lanes; they are kept as
Python integers, which is ten times as fast as arrays of 32. What is called a divergence analysis
elsewhere (Coutinho, Sampaio, Pereira, Meira 2011) starts from the hope that everything is uniform
and takes back what cannot be:

- a register is uniform where all that it is computed from is, and where, if several instructions
  write it, none of them is in a block that only some lanes may run. An instruction that alone
  writes a register gives each lane that runs it the same value, whichever run;
- a load may find something else each time: in a block that only some lanes may run, its result, and
  what is computed from it, is uniform only if nothing reads it but what follows in the block (a
  lane that has left a loop keeps the value of its last iteration);
- a branch on a predicate that is not uniform makes those blocks divergent that it decides about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilepipe.ptx.compiler.control_flow import ControlFlow
from tilepipe.ptx.definition import Compute, Jump, Operation, Perform, Typed
from tilepipe.ptx.special_registers import LANE_REGISTERS
from tilepipe.ptx.syntax.nodes import Operand, Register, SpecialRegister, leaves

_MOST_ROUNDS = 200
_MOST_BLOCKS = 10_000_000  # that branches decide about, summed over all branches


@dataclass(frozen=True)
class Uniformity:
    """What the analysis has found.

    Attributes:
        varying: numbers of the registers that are kept for each lane. divergent: numbers of the
            blocks that only some lanes may run.
    """

    varying: frozenset[int]
    divergent: frozenset[int]

    def of(self, operand: Operand) -> bool:
        """Whether an operand has one value for all lanes."""
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
    """What an operation reads: registers, constants, variables."""
    match operation:
        case Compute(sources=sources):
            return [leaf for operand, _ in sources for leaf in leaves(operand)]
        case Perform(sources=sources, in_place=in_place):
            return [leaf for operand, _ in (*sources, *in_place) for leaf in leaves(operand)]
        case Jump(index=Register() as index):
            return [index]
    return []


def _varies(leaf: Operand, varying: set[int] | frozenset[int]) -> bool:
    if isinstance(leaf, Register):
        return leaf.number in varying
    return isinstance(leaf, SpecialRegister) and leaf.name in LANE_REGISTERS


def uniformity(flow: ControlFlow, operations: Sequence[Operation]) -> Uniformity:
    """Analyses a function. `operations`: of its instructions."""
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
    changing: set[int] = set()  # what another execution of the same instruction may change
    split: set[int] = set()  # blocks whose branch has been looked at
    before = (-1, -1, -1)
    rounds = walked = 0
    while before != (len(varying), len(divergent), len(changing)):
        before = len(varying), len(divergent), len(changing)
        rounds += 1
        if rounds > _MOST_ROUNDS or walked > _MOST_BLOCKS:
            # A text that no compiler writes: that everything varies is always right.
            return Uniformity(frozenset(writers), frozenset(range(len(flow.blocks))))
        for number, op in enumerate(operations):
            if not isinstance(op, Compute | Perform):
                continue
            block = flow.of_instruction[number]
            guarded = flow.instructions[number].guard
            for register in results(op):
                if register.number in varying:
                    continue
                alone = writers[register.number] == 1
                if block in divergent and (op.spread == "memory" or _of(changing, op)):
                    changing.add(register.number)
                if (
                    not _gives_one_value(op, register, varying)
                    or (not alone and block in divergent)
                    or (not alone and guarded and guarded.register.number in varying)
                    or (
                        register.number in changing
                        and any(
                            at <= number or flow.of_instruction[at] != block
                            for at in read_at.get(register.number, ())
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


def _of(registers: set[int], operation: Compute | Perform) -> bool:
    """Whether an operation reads one of these registers."""
    return any(isinstance(r, Register) and r.number in registers for r in reads(operation))


def _gives_one_value(operation: Compute | Perform, register: Register, varying: set[int]) -> bool:
    if isinstance(operation, Perform) and any(o is register for o, _ in operation.in_place):
        return False
    if operation.spread == "one":
        return True
    if operation.spread == "lanes" or (isinstance(operation, Compute) and not operation.scalar):
        return False
    return not any(_varies(leaf, varying) for leaf in reads(operation))
