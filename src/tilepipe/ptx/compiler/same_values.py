"""Which operands hold the same value at two places, because the same instructions compute it from
the same registers: value numbering (Cocke and Schwartz 1970), along one way through a function.

Compilers compute an address anew at each place that uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from functools import cached_property

from tilepipe.ptx.compiler.control_flow import ControlFlow
from tilepipe.ptx.compiler.uniformity import reads, results
from tilepipe.ptx.definition import Compute, Operation
from tilepipe.ptx.special_registers import CLOCKS
from tilepipe.ptx.syntax.nodes import (
    Float,
    Integer,
    Not,
    Operand,
    Register,
    SpecialRegister,
    Sum,
)

# what a register holds: equal terms stand for equal values
Term = object


class Terms:
    """The terms of the registers of a function."""

    def __init__(self, flow: ControlFlow, operations: Sequence[Operation]) -> None:
        self._flow = flow
        self._operations = operations
        self._found: dict[Register, Term] = {}

    def before(self, instruction: int) -> Way:
        """The terms before an instruction, with what its block has computed so far."""
        way = Way(self)
        block = self._flow.blocks[self._flow.of_instruction[instruction]]
        for at in range(block.begin, instruction):
            way.execute(self._operations[at], guarded=self._flow.instructions[at].guard is not None)
        return way

    def of(self, register: Register) -> Term:
        """The term of a register that nothing on the way has written."""
        found = self._found.get(register)
        if found is None:
            op = self._constant.get(register)
            found = computed(op, Way(self)) if isinstance(op, Compute) else None
            self._found[register] = found = register if found is None else found
        return found

    @cached_property
    def _constant(self) -> dict[Register, Operation]:
        """The registers that have one value, once they are written, each with its only writer: it
        stands in no loop, or computes them from such registers alone.
        """
        writers = Counter(r for op in self._operations for r in results(op))
        once = {
            n: [r for r in results(op) if writers[r] == 1] for n, op in enumerate(self._operations)
        }
        looped = self._flow.in_loops()
        found = {
            r: self._operations[n]
            for n, registers in once.items()
            if self._flow.of_instruction[n] not in looped
            for r in registers
        }
        before = -1
        while len(found) > before:
            before = len(found)
            for n, registers in once.items():
                op = self._operations[n]
                if (
                    isinstance(op, Compute)
                    and op.spread == "same"
                    and not any(r in found for r in registers)
                    and all(_stays(leaf, found) for leaf in reads(op))
                ):
                    found |= dict.fromkeys(registers, op)
        return found


def _stays(leaf: Operand, constant: Container[Register]) -> bool:
    if isinstance(leaf, Register):
        return leaf in constant
    return not (isinstance(leaf, SpecialRegister) and leaf.name in CLOCKS)


class Way:
    """The terms of registers after the instructions that have been executed on one way."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._written: dict[Register, Term] = {}

    def execute(self, op: Operation, *, guarded: bool = False) -> None:
        """An instruction is executed; `guarded`: unless its guard is false."""
        found = computed(op, self) if isinstance(op, Compute) and not guarded else None
        for register in results(op):
            self._written[register] = object() if found is None else found

    def of(self, operand: Operand) -> Term:
        """The term of an operand; one that equals no other for what is not followed."""
        match operand:
            case Register():
                found = self._written.get(operand)
                return self._terms.of(operand) if found is None else found
            case Integer() | Float():
                return operand
            case Sum(base, offset):
                return "+", self.of(base), offset
            case Not(inner):
                return "not", self.of(inner)
        return object()


def computed(op: Compute, way: Way) -> Term | None:
    """The term of what an instruction computes; None where it is not followed."""
    if not isinstance(op.scalar, str) or len(op.results) != 1 or op.active:
        return None
    kinds = tuple(kind for _, kind in (*op.results, *op.sources))
    return op.scalar, kinds, tuple(way.of(operand) for operand, _ in op.sources)
