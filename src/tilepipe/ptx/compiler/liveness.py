"""Which registers a warp may still read, for every place at which it may stand.

The analysis considers each lane separately: a register is live where some path reads it before the
lane writes it again. A write under a guard ends nothing, as the guard may be false.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilepipe.ir.facts import Group
from tilepipe.ptx.compiler.control_flow import EXIT, ControlFlow
from tilepipe.ptx.compiler.uniformity import reads, results
from tilepipe.ptx.definition import Operation, Perform
from tilepipe.ptx.syntax.nodes import Register


class Liveness:
    """The live registers of a function; sets of registers are bits by number."""

    def __init__(self, flow: ControlFlow, operations: Sequence[Operation]) -> None:
        self._flow = flow
        self._reads: list[int] = []
        self._writes: list[int] = []
        for instruction, op in zip(flow.instructions, operations, strict=True):
            read = _bits(r.number for r in reads(op) if isinstance(r, Register))
            written = _bits(r.number for r in results(op))
            if isinstance(op, Perform) and op.in_place:
                in_place = _bits(r.number for r, _ in op.in_place if isinstance(r, Register))
                if op.facts.issues is Group.TMEM_LOADS:
                    read &= ~in_place
                else:  # what it uses in place is also read
                    written &= ~in_place
            if instruction.guard is not None:
                read |= 1 << instruction.guard.register.number
                written = 0
            self._reads.append(read)
            self._writes.append(written)
        self._into = self._blocks()
        self._found: dict[int, int] = {}

    def before(self, instruction: int) -> int:
        """The registers that are live before an instruction; none after the last one."""
        if instruction >= len(self._reads):
            return 0
        found = self._found.get(instruction)
        if found is None:
            block = self._flow.blocks[self._flow.of_instruction[instruction]]
            found = self._found[instruction] = self._back(
                self._out(block.number), instruction, block.end
            )
        return found

    def _back(self, live: int, begin: int, end: int) -> int:
        for number in range(end - 1, begin - 1, -1):
            live = self._reads[number] | (live & ~self._writes[number])
        return live

    def _out(self, block: int) -> int:
        live = 0
        for successor in self._flow.blocks[block].successors:
            if successor != EXIT:
                live |= self._into[successor]
        return live

    def _blocks(self) -> list[int]:
        """Finds the live registers at the beginning of each block."""
        self._into = [0] * len(self._flow.blocks)
        work = [b.number for b in self._flow.blocks]
        waiting = set(work)
        while work:
            number = work.pop()
            waiting.discard(number)
            block = self._flow.blocks[number]
            now = self._back(self._out(number), block.begin, block.end)
            if now != self._into[number]:
                self._into[number] = now
                more = [p for p in block.predecessors if p not in waiting]
                waiting.update(more)
                work.extend(more)
        return self._into


def _bits(numbers: Iterable[int]) -> int:
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits
