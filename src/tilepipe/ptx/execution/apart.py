"""Lanes of a warp that a branch has separated, in an execution that is explored.

The groups of a diverged warp run one at a time, in one order, which an exploration does not vary.
The order is irrelevant as long as only one group performs a visible step before they reconverge.
"""

from __future__ import annotations

from typing import Any

from tilepipe.machine.sites import Site
from tilepipe.ptx.execution.warp import Region, Warp


class WatchedWarp(Warp):
    """A warp that reports when two of its groups perform visible steps, because a fault that needs
    the other order would be missed (`World.incomplete`).
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        # for each region that lanes are in, the groups that have done something, and where
        self._done: dict[int, tuple[Region, list[tuple[int, Site]]]] = {}

    def send(self, answer: Any, /) -> Any:
        """The next request, as `Warp.send`."""
        request = super().send(answer)
        if self.region is not None:
            site = request[1][0]
            if site.facts.noticed:
                self._note(site)
        elif self._done:
            self._done.clear()
        return request

    def _note(self, site: Site) -> None:
        region = self.region
        while region is not None:
            _, done = self._done.setdefault(id(region), (region, []))
            other = next((s for mask, s in done if not mask & self.mask), None)
            if other is not None:
                self._say(other, site)
            if not any(mask == self.mask for mask, _ in done):
                done.append((self.mask, site))
            region = region.outer

    def _say(self, first: Site, second: Site) -> None:
        world = self.clock.world
        if world is not None and not world.incomplete:
            world.incomplete = (
                f"not modelled: lanes of {self.agent} that a branch has separated both act before"
                f" they meet again, at {first.loc.short} ({first.kind}) and {second.loc.short}"
                f" ({second.kind}): only one order of the two is looked at"
            )
