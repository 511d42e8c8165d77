"""Deadlocks that a GPU may not have: a loop that polls in vain reads a clock, and may give up.

A warp that polls is parked until something changes what it looks at, and its virtual time stands
still. What it does after some time has passed is not explored, so where nothing else can act the
model cannot say whether the kernel hangs.
"""

from __future__ import annotations

from collections.abc import Callable

from tilepipe.errors import NotModelledError
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.state import Mbarrier
from tilepipe.machine.machine import Machine
from tilepipe.machine.sites import Site
from tilepipe.ptx.compiler.compiled_function import CompiledFunction
from tilepipe.ptx.special_registers import CLOCKS
from tilepipe.ptx.syntax.nodes import Instruction

Undecided = Callable[[Machine, list[Agent], dict[Mbarrier, list[Site]]], NotModelledError | None]


def undecided(code: CompiledFunction) -> Undecided:
    """The message instead of a deadlock in which an agent polls in a loop that reads a clock."""
    clocks = _clocks_of_loops(code)

    def explained(
        m: Machine, stuck: list[Agent], sources: dict[Mbarrier, list[Site]]
    ) -> NotModelledError | None:
        for agent in stuck:
            site = agent.spins.site if agent.spins is not None else None
            clock = clocks.get(site.id) if site is not None else None
            if site is not None and clock is not None:
                return NotModelledError(
                    f"not modelled: {agent} polls at {site.loc.short} in a loop that reads a clock"
                    f" (line {clock.line}: {clock.name}), and nothing else can act. While a warp"
                    " polls in vain its time stands still, so what it does when it gives up is not"
                    " explored. Without the limit of time the loop would never end: see what it"
                    " waits for, and check a copy of the kernel without the limit",
                    site.loc,
                )
        return None

    return explained


def _clocks_of_loops(code: CompiledFunction) -> dict[int, Instruction]:
    """Number of a site -> an instruction of a loop around it that reads a clock."""
    flow = code.flow
    found: dict[int, Instruction] = {}
    for at, instruction in enumerate(flow.instructions):
        if not any(str(operand) in CLOCKS for operand in instruction.operands):
            continue
        together = flow.around(flow.of_instruction[at])
        for index, site in code.sites.items():
            if flow.of_instruction[index] in together:
                found.setdefault(site.number, instruction)
    return found
