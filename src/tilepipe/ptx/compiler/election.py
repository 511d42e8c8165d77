"""Decides for which elected lanes a kernel has to be checked.

elect.sync elects one of the lanes that execute it, the same one every time for the same lanes, and
it is not specified which (PTX ISA, elect.sync). Most kernels cannot tell: the elected lane does
what no lane's number decides, so whichever it is, the same is done. That is shown here by following
two kinds of dependence through the registers: on who is elected, and on the number of a lane. Where
they meet in an access to memory, a request to the machine or a branch, or where the number of the
elected lane itself is used, each of the 32 lanes is tried.

Where lanes that are named by their number also do something for themselves, two are tried: a lane
that the kernel probably does not name, because work done by one lane for two roles needs no barrier
and would hide a missing one; and lane 0, which kernels usually name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntFlag

from tilepipe.ptx.compiler.control_flow import Block, ControlFlow
from tilepipe.ptx.compiler.thread_values import ThreadValues
from tilepipe.ptx.compiler.uniformity import reads, results
from tilepipe.ptx.definition import Compute, Jump, Leave, Operation, Perform
from tilepipe.ptx.lanes import WARP
from tilepipe.ptx.special_registers import LANE_REGISTERS
from tilepipe.ptx.syntax.nodes import Instruction, Register, SpecialRegister

Extents = tuple[int, int, int]
UNNAMED = 21  # a lane that kernels do not name


class Depends(IntFlag):
    """The dependences of a value. `ELECTED`: on whether this lane is the elected one. `LANE`: on
    the number of this lane. `NUMBER`: on the number of the elected lane.
    """

    NOTHING = 0
    ELECTED = 1
    LANE = 2
    NUMBER = 4


_SYMMETRIC = {"all", "any", "uni"}  # votes that do not say which lanes voted


def lanes_to_elect(
    flow: ControlFlow, operations: Sequence[Operation], block: Extents
) -> Sequence[int]:
    """The lanes of which each has to be elected in turn. `block`: extents of the CTA."""
    if not any(i.opcode == "elect" for i in flow.instructions):
        return (0,)
    return _Election(flow, operations, block).lanes()


class _Election:
    """Dependences of the registers, and of the blocks: what decides whether a lane runs them."""

    def __init__(self, flow: ControlFlow, operations: Sequence[Operation], block: Extents) -> None:
        self.flow = flow
        self.operations = operations
        self.threads = ThreadValues(flow, operations, block)
        self.registers: dict[int, Depends] = {}
        self.blocks = [Depends.NOTHING] * len(flow.blocks)
        # branch -> the blocks that it decides about, and the registers that depend on the way
        self.regions: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
        self.apart = False
        self.named = False
        while self._round():
            pass

    def lanes(self) -> Sequence[int]:
        if self.apart:
            return range(WARP)
        return (UNNAMED, 0) if self.named else (0,)

    def _round(self) -> bool:
        """Follows dependences once; returns whether there is a new one."""
        changed = False
        for number, (instruction, op) in enumerate(
            zip(self.flow.instructions, self.operations, strict=True)
        ):
            block = self.flow.of_instruction[number]
            control = self.blocks[block] | self._of_guard(instruction)
            if isinstance(op, Perform | Jump | Leave):
                self._acts(op, control)
            if isinstance(op, Jump):
                changed |= self._decides(number, control | self._of(op))
                continue
            for register, depends in self._written(instruction, op, control):
                changed |= self._add((register,), depends)
        return changed

    def _acts(self, op: Perform | Jump | Leave, control: Depends) -> None:
        depends = control | self._of(op)
        both = Depends.ELECTED in depends and Depends.LANE in depends
        if both or Depends.NUMBER in depends:
            self.apart = True
        if isinstance(op, Perform) and Depends.LANE in control:
            self.named = True

    def _decides(self, number: int, depends: Depends) -> bool:
        """The dependences that a branch hands on: to the blocks that it controls, and to the
        registers whose values depend on the path taken.
        """
        if not depends:
            return False
        changed = False
        branch = self.flow.blocks[self.flow.of_instruction[number]]
        if branch.number not in self.regions:
            inside = frozenset(self.flow.decided_by(branch))
            self.regions[branch.number] = inside, self._unsettled(branch, inside)
        inside, registers = self.regions[branch.number]
        for block in inside:
            if depends & ~self.blocks[block]:
                self.blocks[block] |= depends
                changed = True
        return changed | self._add(registers, depends)

    def _add(self, registers: Iterable[int], depends: Depends) -> bool:
        changed = False
        for register in registers:
            before = self.registers.get(register, Depends.NOTHING)
            if depends & ~before:
                self.registers[register] = before | depends
                changed = True
        return changed

    def _unsettled(self, branch: Block, inside: frozenset[int]) -> frozenset[int]:
        """The registers whose values, where the ways from a branch meet, depend on the way. The
        others are written last by the same computation, from the same values, on every way.
        """
        last: dict[int, dict[int, int]] = {}  # block -> register -> the instruction
        written: set[int] = set()
        for block in (*inside, branch.number):
            last[block] = {}
            for at in range(self.flow.blocks[block].begin, self.flow.blocks[block].end):
                for register in results(self.operations[at]):
                    last[block][register.number] = at
                    if block in inside:
                        written.add(register.number)
        return frozenset(r for r in written if not self._settled(branch, inside, last, written, r))

    def _settled(
        self,
        branch: Block,
        inside: frozenset[int],
        last: dict[int, dict[int, int]],
        written: set[int],
        register: int,
    ) -> bool:
        found: set[int] = set()
        seen: set[int] = set()
        # backwards from where the ways meet, to the last write on each
        work = [
            b for b in (*inside, branch.number) if branch.meets in self.flow.blocks[b].successors
        ]
        while work:
            block = work.pop()
            if block in seen:
                continue
            seen.add(block)
            at = last.get(block, {}).get(register)
            if at is None and block not in inside:
                return False  # a way on which nothing writes it, or that does not come from here
            if at is None:
                work.extend(self.flow.blocks[block].predecessors)
            else:
                found.add(at)
        instructions = [self.flow.instructions[at] for at in found]
        texts = {(i.name, i.operands[1:]) for i in instructions}
        sources = {
            r.number for at in found for r in reads(self.operations[at]) if isinstance(r, Register)
        }
        before = last[branch.number]
        changed = written | {r for r, at in before.items() if at > before.get(register, at)}
        computed = all(isinstance(self.operations[at], Compute) for at in found)
        plain = all(i.guard is None for i in instructions) and not sources & changed
        return len(texts) == 1 and computed and plain

    def _of_guard(self, instruction: Instruction) -> Depends:
        guard = instruction.guard
        if guard is None:
            return Depends.NOTHING
        return self.registers.get(guard.register.number, Depends.NOTHING)

    def _of(self, op: Operation) -> Depends:
        found = Depends.NOTHING
        for leaf in reads(op):
            if isinstance(leaf, Register):
                found |= self.registers.get(leaf.number, Depends.NOTHING)
            elif isinstance(leaf, SpecialRegister) and leaf.name in LANE_REGISTERS:
                found |= Depends.LANE
        return found

    def _written(
        self, instruction: Instruction, op: Operation, control: Depends
    ) -> list[tuple[int, Depends]]:
        targets = [r.number for r in results(op)]
        if not targets:
            return []
        if instruction.opcode == "elect":
            chosen = Depends.ELECTED | (control & (Depends.LANE | Depends.NUMBER))
            written = op.results if isinstance(op, Compute) else ()
            return [
                (r.number, Depends.NUMBER if kind == "b32" else chosen)
                for r, kind in written
                if isinstance(r, Register)
            ]
        depends, guard = self._value(instruction, op, control), self._of_guard(instruction)
        return [
            (t, (depends if self.threads.differ(t) is not False else Depends.NOTHING) | guard)
            for t in targets
        ]

    def _value(self, instruction: Instruction, op: Operation, control: Depends) -> Depends:
        depends = self._of(op)
        if isinstance(op, Compute) and op.active:
            elected = Depends.ELECTED in depends | control
            if instruction.opcode == "redux" or _SYMMETRIC & set(instruction.modifiers):
                # equal in all lanes; of which is elected it says something only if numbers matter
                both = elected and Depends.LANE in depends | control
                return Depends.NUMBER if both else depends & Depends.NUMBER
            if elected:
                return Depends.NUMBER | depends
        if isinstance(op, Compute | Perform):
            if op.spread == "one":
                return depends & ~Depends.LANE
            if op.spread == "lanes":
                return depends | Depends.LANE
        return depends
