"""States of an execution as plain values, so that equal ones are followed once.

What decides the further course of a warp are the segments at which its groups of lanes stand, the
request that it is about to make, and the registers that it may still read.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from tilepipe.machine.agents import Agent
from tilepipe.machine.memory.fragments import Frag
from tilepipe.ptx.compiler.compiled_function import CompiledFunction
from tilepipe.ptx.compiler.liveness import Liveness
from tilepipe.ptx.execution.lane_groups import Region
from tilepipe.ptx.execution.separated_lanes import WatchedWarp
from tilepipe.ptx.execution.warp import Warp
from tilepipe.ptx.warp_protocol import IN_FLIGHT


class Places:
    """The places of the warps of a kernel."""

    def __init__(self, code: CompiledFunction) -> None:
        self._code = code
        self._of_site = {site.number: at for at, site in code.sites.items()}

    @property
    def _liveness(self) -> Liveness:
        return self._code.liveness

    def of(self, agent: Agent) -> Hashable:
        """A key that is equal for warps that go on alike."""
        warp = agent.body
        if agent.done or not isinstance(warp, Warp):
            return ()
        spans = self._code.spans
        regions: dict[int, int] = {}
        waiting = [*warp.groups, *warp.waiting]
        at = -1
        if agent.request is not None:
            at = self._of_site[agent.request[1][0].id]
        live = self._liveness.before(at if at >= 0 else spans[warp.at].begin)
        for segment in {g.at for g in waiting}:
            live |= self._liveness.before(spans[segment].begin)
        current = _region(warp.region, regions)
        groups = tuple((g.at, g.mask, _region(g.region, regions)) for g in warp.groups)
        parked = tuple((g.at, g.mask, _region(g.region, regions)) for g in warp.waiting)
        all_regions = _regions(warp, waiting)
        for region in all_regions:
            if region.join >= 0:
                live |= self._liveness.before(spans[region.join].begin)
        return (
            warp.at, at, warp.mask, warp.live, current, groups, parked,
            tuple(_value(warp.registers[n]) for n in _numbers(live)),
            tuple(
                (n, f.key, f.data.tobytes(), None if f.poison is None else f.poison.marks.tobytes())
                for n, f in sorted(warp.fragments.items())
            ),
            tuple((n, v.tobytes()) for n, v in warp.loads),
            tuple((k.site.id, k.fragment.readers) for k in warp.wgmma.operands),
            warp.local.tobytes(), tuple(sorted(warp.wgmma.unfenced.items())),
            np.packbits(warp.written).tobytes(), warp.poison.key(live),
            len(warp.wgmma.operands), len(warp.halfway),
            warp.past(all_regions) if isinstance(warp, WatchedWarp) else (),
        )  # fmt: skip


def _numbers(bits: int) -> list[int]:
    found = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found


def _value(held: Any) -> Hashable:
    """The contents of a register. A register that nothing has written differs from all others."""
    if isinstance(held, np.ndarray):
        return held.tobytes()
    if held is IN_FLIGHT:
        return "in flight"
    if isinstance(held, Frag):
        return held.key
    return None if held is None else int(held)


def _regions(warp: Warp, waiting: list[Any]) -> list[Region]:
    found: dict[int, Region] = {}
    for region in (warp.region, *(g.region for g in waiting)):
        while region is not None and id(region) not in found:
            found[id(region)] = region
            region = region.outer
    return list(found.values())


def _region(region: Region | None, seen: dict[int, int]) -> Hashable:
    """A region as its place, and the regions around it; one that was named before by its number."""
    if region is None:
        return ()
    if id(region) in seen:
        return seen[id(region)]
    seen[id(region)] = len(seen)
    return region.join, region.expected, region.arrived, _region(region.outer, seen)
