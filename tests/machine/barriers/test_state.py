"""mbarriers that a program names by their addresses in shared memory."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from tilepipe.ir.chip import H200
from tilepipe.ir.location import Loc
from tilepipe.machine.actors import Request, Role
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers import mbarrier
from tilepipe.machine.clusters import one_after_another
from tilepipe.machine.machine import Machine, World
from tilepipe.machine.program import AgentPlan, Program
from tilepipe.machine.sites import Site

FIRST, LANE = 64, 1


def test_several_barriers_lie_eight_bytes_apart() -> None:
    site = Site(0, Loc("barriers.ptx", 1), "mbarrier.init", "mbar_init", "r")
    plans = [AgentPlan(Role("r", warpgroups=False, alone=True), 0, 0, 1)]
    program = Program(1, plans, (site,), smem_bytes=128, addressed=True)
    found: list[tuple[int, int]] = []

    def body(m: Machine, agent: Agent) -> Generator[Request, Any, None]:
        yield mbarrier.mbar_init, (site, LANE, FIRST, 3, 5)
        found.extend((bar.address, bar.pending) for bar in m.ctas[0].bars)

    world = World(program, body, H200, 1, [])
    one_after_another(world, [0], None, lambda m: None)
    assert found == [(FIRST, 5), (FIRST + 8, 5), (FIRST + 16, 5)]
