"""The messages of faults at a named barrier."""

from __future__ import annotations

from typing import NoReturn

from tilepipe.errors import BarrierError
from tilepipe.machine.actors import Actor
from tilepipe.machine.barriers.state import NamedState
from tilepipe.machine.sites import Site


def arrives_again(b: NamedState, site: Site, ag: Actor, earlier: tuple[Actor, Site]) -> NoReturn:
    """A warp arrives twice at a named barrier in one generation."""
    raise BarrierError(
        f"{site.what}: {ag} arrives at named barrier '{b.name}' again before it was reset: it has"
        " arrived at"
        f" {earlier[1].loc.short}, and {b.missing} of {b.threads} threads are still missing. Sync"
        " instead of"
        " arriving, or use a second barrier.",
        site.loc,
    )


def too_many_threads(b: NamedState, site: Site) -> NoReturn:
    """More threads arrive at a named barrier than it is for."""
    who = "; ".join(sorted({f"{a} at {s.loc.short}" for a, s in b.arrived.values()}))
    raise BarrierError(
        f"named barrier '{b.name}' is for {b.threads} threads, but {b.threads - b.missing}"
        f" arrived: {who}. Make the"
        " thread count the number of threads that really meet here.",
        site.loc,
    )
