"""The loops in which a warp was when a limit cut it off, for messages."""

from __future__ import annotations

from collections.abc import Callable

from tilepipe.ir.location import Loc
from tilepipe.machine.agents import Agent
from tilepipe.ptx.compiler.compiled_function import CompiledFunction
from tilepipe.ptx.compiler.control_flow import Block, ControlFlow
from tilepipe.ptx.syntax.nodes import Instruction

Locate = Callable[[Instruction], Loc]


def standing(code: CompiledFunction, next_segment: int, agent: Agent, locate: Locate) -> str:
    """`in the loop at spin.cu:7 (PTX lines 21-24), at spin.cu:8 (PTX line 22: ld.volatile...)`; ""
    where the warp of an agent is in no loop. The innermost loop comes first.

    Args:
        next_segment: where the warp stands if it waits for the answer to no request.
        locate: gives the line of source of an instruction.
    """
    at = min(code.spans[next_segment].begin, len(code.function.instructions) - 1)
    if agent.request is not None:
        number = agent.request[1][0].id
        at = next((i for i, site in code.sites.items() if site.number == number), at)
    loops = [_named(code.flow, loop, locate) for loop in code.flow.nest(at)]
    if not loops:
        return ""
    here = code.function.instructions[at]
    return f"in the loop {', inside the one '.join(loops)}, at {_line(here, locate)}: {here}"


def _named(flow: ControlFlow, loop: list[Block], locate: Locate) -> str:
    """The last instruction of a loop that leads back, and the lines that the loop takes."""
    inside = {block.number for block in loop}
    last = next(b for b in reversed(loop) if inside.intersection(b.successors))
    back = flow.instructions[last.end - 1]
    lines = [i.line for block in loop for i in flow.of(block)]
    span = f"PTX lines {min(lines)}-{max(lines)}"
    return f"at {locate(back).short} ({span})" if back.position is not None else f"of {span}"


def _line(instruction: Instruction, locate: Locate) -> str:
    line = f"PTX line {instruction.line}"
    return line if instruction.position is None else f"{locate(instruction).short} ({line})"
