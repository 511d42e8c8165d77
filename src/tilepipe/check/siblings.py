"""Faults between the warps of one warpgroup, which the machine performs together.

A warp can be ahead of its siblings by as much as no barrier, and no MMA that all of them have to issue, holds it back. So what one
warp does may come before a wait of another. No execution of the machine shows that; the causal order does.
"""

from __future__ import annotations

from tilepipe.check.execution import Execution
from tilepipe.check.nodes import Race
from tilepipe.errors import BarrierError
from tilepipe.sim.mbarriers import Mbarrier

_TOLD = ("lapped", "phase", "ahead")


def fault(execution: Execution) -> BarrierError | None:
    """The first such fault of an execution, or None."""
    for race in execution.causality.races:
        if race.within and race.why in _TOLD and isinstance(race.barrier, Mbarrier):
            return _error(race, race.barrier)
    return None


def _error(race: Race, bar: Mbarrier) -> BarrierError:
    first, second = race.first, race.second
    line = second.site.loc.short if second.site is not None else "a unit"
    where = first.site.loc.short if first.site is not None else "a unit"
    if race.why == "lapped":
        return BarrierError(
            f"{bar.where}: phase {race.phase + 1} can complete before every warp has passed its wait for phase {race.phase} (at {where}):"
            f" a warp can be lapped by its siblings.\n"
            f"  The arrival at {line} comes after the wait of its own warp only; the other warps of the role may still stand before theirs,"
            " and on hardware would then wait for a parity that has flipped back.\n"
            "  Let the warps meet between the wait and the arrive (ctx.named_barrier, or an MMA of the warpgroup that has been waited"
            " for), or let every warp arrive: raise the count accordingly.",
            first.site.loc if first.site is not None else None,
        )
    what = "waits for" if race.why == "ahead" else "counts in"
    return BarrierError(
        f"{bar.where}: a warp {what} phase {race.phase + 1} at {line} although nothing tells it that phase {race.phase} is complete: only"
        f" sibling warps have waited for that; its arrivals were made at {where}.\n"
        "  Let every warp wait, or let the warps meet (a named barrier) between the wait and this.",
        second.site.loc if second.site is not None else None,
    )
