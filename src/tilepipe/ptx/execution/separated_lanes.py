"""Lanes of a warp that a branch has separated, in an execution that is explored.

The groups of a diverged warp run one at a time, in one order, which an exploration does not vary.
The order is irrelevant as long as only one group performs a visible step before they reconverge.
Lanes that have met again count as one group, whatever parts of it did before: of a lock that lanes
try in rounds, and meet after each, every round is the step of one group. Lanes that go on while
others of their warp poll (`LaneGroups.part_ways`) do not meet these again.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from tilepipe.machine.sites import Site
from tilepipe.ptx.execution.lane_groups import Region
from tilepipe.ptx.execution.warp import Warp
from tilepipe.ptx.lanes import lanes_from_mask

_LOCK = ", or, of a lock, put what it guards and its release into the loop, where a lane has got it"


class WatchedWarp(Warp):
    """A warp that reports when two of its groups perform visible steps, because a fault that needs
    the other order would be missed (`World.incomplete`).
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # for each region that lanes are in, the groups that have done something, and where
        self._done: dict[int, tuple[Region, list[tuple[int, Site]]]] = {}
        self._whole = Region(-1, 0, 0, None)  # around all lanes

    def send(self, answer: Any, /) -> Any:
        """The next request, as `Warp.send`."""
        together = self.mask == self.live
        request = super().send(answer)
        if together and self.mask != self.live and self.agent.looks is not None:
            self.agent.looks.forget()  # what a group finds does not depend on what was before
        if self.region is not None or self.mask != self.live:
            site = request[1][0]
            if site.facts.noticed:
                self._note(site, self.mask, self.region)
        elif self._done:
            self._done.clear()
        return request

    def part_ways(self) -> bool:
        """Lets lanes go on, as `LaneGroups.part_ways`; the others have acted, if they poll."""
        parts = super().part_ways()
        if parts and self.agent.spins is not None:
            self._note(self.agent.spins.site, self.mask, self.groups[-1].region)
        return parts

    def past(self, regions: Iterable[Region]) -> Hashable:
        """The state, besides the positions of the groups, that decides which group continues and
        what is reported: whether the running group gives way, what it last found, which groups have
        acted in a region.
        """
        if self.mask == self.live:
            return ()
        last = {} if self.agent.looks is None else self.agent.looks.last
        looks = tuple(
            (site, look.mask, *(p[lanes_from_mask(look.mask)].tobytes() for p in look.of_lanes))
            for site, look in sorted(last.items(), key=lambda one: one[0])
            if look.mask
        )
        around = (*regions, self._whole)
        acted = (self._done.get(id(region), (region, []))[1] for region in around)
        done = tuple(tuple((mask, site.id) for mask, site in group) for group in acted)
        return self.gives_way, looks, done

    def _note(self, site: Site, mask: int, region: Region | None) -> None:
        """Lanes act in a region: for the regions around it, the lanes that are to meet in it do."""
        while region is not None:
            self._acted(site, mask, region)
            mask, region = region.expected, region.outer
        self._acted(site, mask, self._whole)

    def _acted(self, site: Site, group: int, region: Region) -> None:
        _, done = self._done.setdefault(id(region), (region, []))
        other = next((s for mask, s in done if not mask & group), None)
        if other is not None:
            self._say(other, site)
        if not any(mask == group for mask, _ in done):
            done.append((group, site))

    def _say(self, first: Site, second: Site) -> None:
        world = self.time_limit.world
        if world is not None and not world.incomplete:
            lock = _LOCK if any(".cas" in s.kind for s in (first, second)) else ""
            world.incomplete = (
                f"not modelled: lanes of {self.agent} that a branch has separated both act before"
                f" they meet again, at {first.loc.short} ({first.kind}) and {second.loc.short}"
                f" ({second.kind}): only one order of the two is looked at. Let one lane of the"
                f" warp do both{lock}"
            )
