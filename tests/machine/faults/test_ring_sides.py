"""Which mbarriers are the two sides of a ring, the program says; their names do not matter."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from tilepipe.errors import DeadlockError
from tilepipe.ir.chip import H200
from tilepipe.ir.location import Loc
from tilepipe.machine.actors import Request, Role
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers import mbarrier
from tilepipe.machine.clusters import one_after_another
from tilepipe.machine.machine import Machine, World
from tilepipe.machine.program import AgentPlan, BarrierPlan, Program, RingSide
from tilepipe.machine.sites import Site

INIT, ARRIVE, WAIT = (
    Site(i, Loc("ring.ptx", 1 + i), text, text, "r")
    for i, text in enumerate(("init", "arrive", "wait"))
)
LANE, READY, FREE = 1, 0, 1


def released_twice(m: Machine, agent: Agent) -> Generator[Request, Any, None]:
    """Releases a stage that nothing has filled, and then waits for its first fill."""
    for bar in (READY, FREE):
        yield mbarrier.mbar_init, (INIT, LANE, bar, 1, 1)
    yield mbarrier.mbar_arrive, (ARRIVE, LANE, FREE, 1)
    yield mbarrier.mbar_wait, (WAIT, LANE, READY, 0)


@pytest.mark.parametrize("ring", ["tiles", None])
def test_a_release_out_of_turn(ring: str | None) -> None:
    sides = [None, None] if ring is None else [RingSide(ring, True), RingSide(ring, False)]
    program = Program(
        1,
        [AgentPlan(Role("r", warpgroups=False, alone=True), 0, 0, 1)],
        (INIT, ARRIVE, WAIT),
        barriers=[
            BarrierPlan(name, 1, 8 * i, False, side)
            for i, (name, side) in enumerate(zip(("ready", "free"), sides, strict=True))
        ],
        smem_bytes=128,
    )
    with pytest.raises(DeadlockError) as caught:
        one_after_another(World(program, released_twice, H200, 1, []), [0], None, lambda m: None)
    told = "Released out of turn: the arrival in phase 0 of free (role 'r' at ring.ptx:2)"
    assert (told in str(caught.value)) is (ring is not None)
