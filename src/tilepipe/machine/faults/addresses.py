"""The words of faults about addresses in shared memory."""

from __future__ import annotations

from typing import NoReturn

from tilepipe.errors import BarrierError
from tilepipe.machine.actors import Actor
from tilepipe.machine.barriers.state import LIVE, Mbarrier
from tilepipe.machine.cta import Cta
from tilepipe.machine.sites import Site


def barrier_word(bar: Mbarrier, ag: Actor, site: Site, touched: str, is_write: bool) -> NoReturn:
    """Something other than an mbarrier operation accesses the bytes of a live mbarrier."""
    verb = "writes" if is_write else "reads"
    first = f" (initialised at {bar.init_site.loc.short})" if bar.init_site is not None else ""
    raise BarrierError(
        f"{site.what}: {ag} {verb} {touched}, which has bytes of {bar.where}{first}. Only"
        " mbarrier operations may access an mbarrier's 8 bytes (PTX ISA, mbarrier). Invalidate it"
        " first, or place it where nothing else lies.",
        site.loc,
    )


def misplaced(cta: Cta, bar: Mbarrier, ag: Actor, site: Site) -> None:
    """Raises BarrierError where an mbarrier cannot be initialised at its address."""
    if bar.address % 8:
        raise BarrierError(
            f"{site.what}: {ag} initialises {bar.where}: an mbarrier takes 8 bytes, and its"
            " address is a multiple of 8 (PTX ISA, mbarrier).",
            site.loc,
        )
    for other in cta.bars:
        if other is not bar and other.state == LIVE and abs(other.address - bar.address) < 8:
            raise BarrierError(
                f"{site.what}: {ag} initialises {bar.where}, which overlaps {other.where}.",
                site.loc,
            )


def none_there(cta: Cta, bar: Mbarrier) -> str:
    """Where a barrier that is used by its address was never initialised: what is there instead."""
    if isinstance(cta.bars, list):
        return ""
    if bar.address % 8:
        return f" No mbarrier can be at {bar.address:#x}: its address is a multiple of 8."
    live = [other.address for other in cta.bars if other.state == LIVE]
    there = ", ".join(f"{address:#x}" for address in live) or "nowhere"
    return f" Initialised mbarriers are at: {there}."
