"""A function compiled to Python, segment by segment, each when it is first run: most launches run a
small part of a kernel's blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tilepipe.ptx.compiler.calls import with_calls_inlined
from tilepipe.ptx.compiler.carries import with_condition_code
from tilepipe.ptx.compiler.constants import with_constants
from tilepipe.ptx.compiler.control_flow import ControlFlow, with_return
from tilepipe.ptx.compiler.liveness import Liveness
from tilepipe.ptx.compiler.segment_writer import Writer
from tilepipe.ptx.compiler.segments import SegmentedFunction
from tilepipe.ptx.compiler.tracking_writer import TrackingWriter
from tilepipe.ptx.compiler.undefined_operands import operations_of
from tilepipe.ptx.compiler.uniformity import all_varying, uniformity
from tilepipe.ptx.syntax.nodes import Function, Instruction

Segment = Callable[[Any, list[Any], Any], Any]


@dataclass(eq=False)
class CompiledFunction(SegmentedFunction):
    """A function, ready to be run.

    Attributes:
        whole, part: the segments, for all lanes that are left and for some.
        tracks: they keep which registers hold poison (`warp.poison`).
    """

    whole: list[Segment] = field(init=False)
    part: list[Segment] = field(init=False)
    tracks: bool = False
    _lines: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.whole = [self._when_run(n, partial=False) for n in range(len(self.spans))]
        self.part = [self._when_run(n, partial=True) for n in range(len(self.spans))]

    def _when_run(self, number: int, *, partial: bool) -> Segment:
        """A stand-in that compiles the segment and takes its own place."""

        def first_run(warp: Any, registers: list[Any], answer: Any) -> Any:
            table = self.part if partial else self.whole
            table[number] = self._compile(number, partial=partial)
            return table[number](warp, registers, answer)

        return first_run

    def _compile(self, number: int, *, partial: bool) -> Segment:
        which = f"{number}{' of a part' if partial else ''}, {len(self._lines)}"
        name = f"<ptx {self.function.name} segment {which}>"
        kind = TrackingWriter if self.tracks else Writer
        writer = kind(self, number, partial=partial)
        source = writer.segment()
        self._lines[name] = writer.origins
        exec(compile(source, name, "exec"), writer.names)
        segment: Segment = writer.names["segment"]
        return segment

    @cached_property
    def all_varying(self) -> CompiledFunction:
        """The same segments, with every register kept for each lane."""
        uniform = all_varying(self.flow, self.operations)
        return self if uniform == self.uniform else replace(self, uniform=uniform)

    @cached_property
    def tracking(self) -> CompiledFunction:
        """The same segments, which keep track of poison."""
        return replace(self, tracks=True)

    def instruction_at(self, file: str, line: int) -> Instruction | None:
        """The instruction that a line of generated code comes from; None for other files."""
        origins = self._lines.get(file)
        if origins is None:
            return None
        return self.function.instructions[origins[line - 1]]


def prepared(function: Function, functions: Mapping[str, Function] | None = None) -> Function:
    """A function as its instructions are defined for: calls are inlined, it ends in a `ret`, the
    condition code is a register, and operands that are constants are numbers. `functions`: of the
    module, which it may call.

    Raises:
        PtxError: a call cannot be inlined.
    """
    function = with_condition_code(with_return(with_calls_inlined(function, functions or {})))
    return replace(function, instructions=with_constants(function))


def compiled(
    function: Function, functions: Mapping[str, Function] | None = None
) -> CompiledFunction:
    """Compiles a function. `functions`: of the module, which it may call.

    Raises:
        PtxError: an instruction is not modelled, or uses what nothing defines.
    """
    function = prepared(function, functions)
    operations = operations_of(function, functions or {})
    flow = ControlFlow(function)
    read_first = Liveness(flow, operations).before(0)
    return CompiledFunction(function, flow, operations, uniformity(flow, operations, read_first))
