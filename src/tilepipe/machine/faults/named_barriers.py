"""The messages of faults at a named barrier."""

from __future__ import annotations

from typing import NoReturn

from tilepipe.errors import BarrierError
from tilepipe.machine.actors import Actor
from tilepipe.machine.barriers.state import Again, NamedState
from tilepipe.machine.sites import Site


def arrives_again(b: NamedState, again: Again, late: Actor, site: Site) -> NoReturn:
    """A warp has arrived twice at a named barrier in one generation, and `late` arrives in the next
    without knowing that that one is complete: which of them is counted depends on timing.
    """
    (who, _, at), first, missing = again
    raise BarrierError(
        f"{at.what}: {who} arrives at named barrier '{b.name}' again before it was reset: it has"
        f" arrived at {first.site.loc.short}, and {missing} of {b.threads} threads are still"
        f" missing. So it is counted twice, and the barrier is reset before {late} arrives at"
        f" {site.loc.short}, which nothing orders after that: which arrivals count together"
        " depends on timing. Sync instead of arriving, or use a second barrier.",
        at.loc,
    )


def too_many_threads(b: NamedState, site: Site) -> NoReturn:
    """More threads arrive at a named barrier than it is for."""
    who = "; ".join(sorted({f"{a} at {s.loc.short}" for a, _, s in b.arrived}))
    raise BarrierError(
        f"named barrier '{b.name}' is for {b.threads} threads, but {b.threads - b.missing}"
        f" arrived: {who}. Make the"
        " thread count the number of threads that really meet here.",
        site.loc,
    )
