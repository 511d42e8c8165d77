"""The source of a segment that keeps track of poison."""

from __future__ import annotations

from tilepipe.ptx.compiler.poison_flow import Flow
from tilepipe.ptx.compiler.segment_writer import Writer
from tilepipe.ptx.definition import Compute, Jump, Leave, Operation, Perform
from tilepipe.ptx.syntax.nodes import Instruction, Integer, Operand


class TrackingWriter(Writer):
    """The source of a segment that keeps track of poison: before each instruction stands a call
    that says which bits of its results are poison, or that poison decides something there.
    """

    def gather(self, instruction: Instruction, op: Compute | Perform, named_lanes: Operand) -> None:
        if not isinstance(named_lanes, Integer):
            self.check(instruction, op)
        super().gather(instruction, op, named_lanes)

    def compute(self, instruction: Instruction, op: Compute) -> None:
        flow = Flow.of(instruction, op, self.made.uniform.varying)
        needed = flow.way in ("bits", "shuffle")
        given = ", ".join(self.read_array(o, kind) for o, kind in op.sources) if needed else ""
        values = f"lambda: [{given}]" if needed else "None"
        self.line(f"w.poison.compute({self.constant(flow)}, {self.lanes(instruction)}, {values})")
        super().compute(instruction, op)

    def perform(self, instruction: Instruction, op: Perform) -> None:
        self.check(instruction, op)
        super().perform(instruction, op)

    def sent(self, op: Perform, made: str, sources: list[str]) -> str:
        request = super().sent(op, made, sources)
        if op.carries is None:
            return request
        again = ", ".join((made, *sources[: op.carries], "*values"))
        return f"w.poison.sent({self.flow(op)}, {request}, lambda *values: {again}))"

    def jump(self, instruction: Instruction, op: Jump) -> None:
        self.check(instruction, op)
        super().jump(instruction, op)

    def leave(self, instruction: Instruction, op: Leave) -> None:
        self.check(instruction, op)
        super().leave(instruction, op)

    def take_answer(self) -> None:
        super().take_answer()
        instruction = self.made.function.instructions[self.at]
        indent, lanes = 1, "w.active"
        if instruction.guard is not None:
            self.line("if answer is not None:")
            indent = 2
            if instruction.guard.register.number in self.made.uniform.varying:
                lanes = "w.chosen"
        flow = self.flow(self.made.operations[self.at])
        self.line(f"w.poison.answered({flow}, {lanes})", indent)

    def check(self, instruction: Instruction, op: Operation) -> None:
        """A line that looks for poison which decides what an instruction does."""
        self.line(f"w.poison.check({self.flow(op)}, {self.lanes(instruction)})")

    def flow(self, op: Operation) -> str:
        instruction = self.made.function.instructions[self.at]
        return self.constant(Flow.of(instruction, op, self.made.uniform.varying))

    def lanes(self, instruction: Instruction) -> str:
        """The lanes that execute an instruction; None where none does."""
        condition, lanes = self.guard(instruction)
        lanes = lanes or "w.active"
        return f"({lanes} if {condition} else None)" if condition else lanes
