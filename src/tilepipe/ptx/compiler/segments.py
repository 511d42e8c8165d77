"""A function as segments of Python: what a warp does between two requests to the machine.

A segment is a plain function `segment(warp, registers, answer)`. It returns the number of the next
segment, or a request, after which the segment `warp.at` is called with the machine's answer. A
warp's state therefore consists of a segment number, its registers and its groups of lanes: it can
be copied and compared.

Each segment has two forms: one for a warp of which all lanes that are left run together, and one
for a part of them, which keeps the registers of the others.
`compiled_function` compiles them.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tilepipe.ptx.compiler.control_flow import EXIT, Block, ControlFlow
from tilepipe.ptx.compiler.early_uses import EarlyUses, early_uses
from tilepipe.ptx.compiler.liveness import Liveness
from tilepipe.ptx.compiler.spins import Spins
from tilepipe.ptx.compiler.unfenced import Unfenced, unfenced_registers
from tilepipe.ptx.compiler.uniformity import Uniformity, written
from tilepipe.ptx.compiler.unwritten import unwritten
from tilepipe.ptx.definition import Compute, Operation, Perform
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.syntax.nodes import Function, Instruction, Integer, Operand, Register, Variable


@dataclass(eq=False)
class RequestSite:
    """Where a request comes from.

    Attributes:
        number: among those of the function.
        retries: of a test of a barrier that is made again until it succeeds, and so is a wait: the
            other instructions that make it again. None of all else.
    """

    number: int
    instruction: Instruction
    perform: Perform
    retries: frozenset[int] | None

    @property
    def spins(self) -> bool:
        """True if it is a test that is a wait."""
        return self.retries is not None


@dataclass(frozen=True)
class Span:
    """Instructions `begin` .. `end - 1`, which one segment runs; `answered`: the instruction before
    is a request that has results, and the segment begins by taking them.
    """

    block: Block
    begin: int
    end: int
    answered: bool


@dataclass(eq=False)
class SegmentedFunction:
    """A function divided into segments.

    Attributes:
        operations: of its instructions. sites: of those that make requests, by instruction.
        content: number of a register that varies between lanes -> dtype of its array.
        variables: those whose addresses the code reads: `warp.addresses[i]`. numbers: their i.
        spans: the segments. first: number of a block -> its first segment.
    """

    function: Function
    flow: ControlFlow
    operations: list[Operation]
    uniform: Uniformity
    sites: dict[int, RequestSite] = field(init=False)
    content: dict[int, np.dtype[Any]] = field(init=False)
    variables: list[Variable] = field(default_factory=list)
    numbers: dict[Variable, int] = field(default_factory=dict)
    spans: list[Span] = field(init=False)
    first: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        performs = [(i, op) for i, op in enumerate(self.operations) if isinstance(op, Perform)]
        spins = Spins(self.flow, self.operations, lambda: self.liveness)
        self.sites = {
            i: RequestSite(
                number, self.function.instructions[i], op,
                None if op.waits is None else spins.retries(i),
            )
            for number, (i, op) in enumerate(performs)
        }  # fmt: skip
        self.content = _contents(self.operations, self.uniform)
        self.spans = _spans(self.flow, self.operations, self.unwritten)
        self.first = {}
        for number, span in enumerate(self.spans):
            self.first.setdefault(span.block.number, number)
        self.first[EXIT] = EXIT

    @cached_property
    def liveness(self) -> Liveness:
        """Which registers may still be read."""
        return Liveness(self.flow, self.operations)

    @cached_property
    def unwritten(self) -> dict[int, list[int]]:
        """Instructions that use registers which may hold nothing yet."""
        instructions = self.function.instructions
        return unwritten(self.flow, instructions, self.operations, self.liveness)

    @cached_property
    def early_uses(self) -> EarlyUses:
        """Uses of what tcgen05.ld loads before a tcgen05.wait::ld."""
        return early_uses(self.flow, self.function.instructions, self.operations)

    @cached_property
    def unfenced(self) -> Unfenced:
        """Accesses to registers of wgmma that are to be noted until the next wgmma.fence."""
        return unfenced_registers(self.flow, self.function.instructions, self.operations)


def _contents(operations: list[Operation], uniform: Uniformity) -> dict[int, np.dtype[Any]]:
    """In which dtype each array of lanes is kept: that of all its writers if they agree, so that a
    chain of float32 arithmetic needs no views; else unsigned.
    """
    found: dict[int, set[np.dtype[Any]]] = {}
    registers: dict[int, Register] = {}
    for op in operations:
        for destination, kind in written(op):
            for register in _registers(destination):
                if register.number in uniform.varying:
                    registers[register.number] = register
                    found.setdefault(register.number, set()).add(TYPES[kind].dtype)
    content = {}
    for number, dtypes in found.items():
        own = TYPES[registers[number].type].dtype
        dtype = next(iter(dtypes))
        alike = len(dtypes) == 1 and dtype.itemsize == own.itemsize
        if alike or own.kind in "bV":
            content[number] = dtype if alike else own
        else:
            content[number] = np.dtype(f"u{own.itemsize}")
    return content


def _registers(operand: Operand) -> list[Register]:
    return [operand] if isinstance(operand, Register) else []


def _spans(flow: ControlFlow, operations: list[Operation], alone: Container[int]) -> list[Span]:
    """The segments. `alone`: instructions with which one begins."""
    found = []
    for block in flow.blocks:
        begin = block.begin
        answered = False
        for number in range(block.begin, block.end):
            op = operations[number]
            gathers = isinstance(op, Compute | Perform) and op.members is not None
            if (gathers or number in alone) and (begin < number or answered):
                found.append(Span(block, begin, number, answered))
                begin, answered = number, False
            if isinstance(op, Perform):
                found.append(Span(block, begin, number + 1, answered))
                begin, answered = number + 1, op.finish is not None
            elif isinstance(op, Compute) and gathers and not isinstance(op.members, Integer):
                found.append(Span(block, begin, number + 1, answered))
                begin, answered = number + 1, False  # where groups of other lanes meet again
        if begin < block.end or answered:
            found.append(Span(block, begin, block.end, answered))
    return found
