"""Where the lanes of a warp stand that wait for others of it, and what they can come to: for the
report of a deadlock.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilepipe.machine.agents import Agent
from tilepipe.machine.machine import Machine
from tilepipe.machine.separated_lanes import SeparatedLanes
from tilepipe.ptx.compiler.control_flow import EXIT
from tilepipe.ptx.execution.lane_groups import LaneGroups


def separated(m: Machine, agent: Agent) -> list[SeparatedLanes]:
    """The lanes of an agent that stand at a join of a branch, or at an instruction for several
    lanes, while others wait.
    """
    warp = agent.body
    if not isinstance(warp, LaneGroups) or agent.request is None:
        return []
    code, flow = warp.code, warp.code.flow
    number = agent.request[1][0].id
    wait = next(at for at, site in code.sites.items() if site.number == number)
    found = []
    for segment, lanes, meets in _standing(warp):
        begin = code.spans[segment].begin
        start = flow.of_instruction[begin]
        blocks = flow.reached(start, without=flow.of_instruction[wait])
        instruction = code.function.instructions[begin]
        what = ", where the lanes of a branch meet," if meets else f" ({instruction})"
        found.append(
            SeparatedLanes(
                lanes,
                f"{warp.launch.location(instruction).short}{what}",
                frozenset(
                    site.number
                    for at, site in code.sites.items()
                    if flow.of_instruction[at] in blocks - {start}
                    or (start in blocks and begin <= at < flow.blocks[start].end)
                ),
            )
        )
    return found


def _standing(warp: LaneGroups) -> Iterator[tuple[int, int, bool]]:
    """(segment, lanes, whether it is the join of a branch) of lanes that wait for others."""
    for group in warp.waiting:
        yield group.at, group.mask, False
    seen = set()
    for region in (warp.region, *(group.region for group in (*warp.groups, *warp.waiting))):
        while region is not None and id(region) not in seen:
            seen.add(id(region))
            arrived = region.arrived & warp.live
            if arrived and region.join != EXIT:
                yield region.join, arrived, True
            region = region.outer
