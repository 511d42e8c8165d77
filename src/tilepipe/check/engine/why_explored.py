"""Why one execution does not decide a launch, and which line of the kernel is the cause."""

from __future__ import annotations

from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.front_end import FrontEnd
from tilepipe.check.engine.traced_front_end import TracedFrontEnd
from tilepipe.ir import ops
from tilepipe.machine.sites import Site
from tilepipe.sim.front_end import OpSite

_EXPLAINED = 2  # loops that are named


def by_text(front_end: FrontEnd) -> str:
    """The loops that only wait for a value and yet do not count as waits; "" where there are none,
    and where none counts at all.
    """
    if not isinstance(front_end, TracedFrontEnd) or not front_end.waits_for_flags:
        return ""
    found = [_of_loop(*one) for one in front_end.unawaited()[:_EXPLAINED]]
    return "; ".join(dict.fromkeys(found))


def by_order(first: Execution) -> str:
    """The first two steps of an execution whose order is open; "" where there are none."""
    for race in first.causal_order.races:
        one, other = race.first.site, race.second.site
        if one is None or other is None:
            continue
        if one is other:
            return f"it matters which agent comes first to {_at(one)}"
        return f"{_at(one)} may come before or after {_at(other)}, and it matters which"
    return ""


def _at(site: Site) -> str:
    return f"{site.what} ({site.loc.short})"


def _of_loop(look: Site, tensor: str, writers: list[OpSite]) -> str:
    waits = f"the loop at {look.loc.short} waits for '{tensor}'"
    if not writers:
        return (
            f"{waits}, which shares its memory with another argument, so that the loop does not"
            " count as a wait: bind two arrays"
        )
    first = writers[0]
    plain = isinstance(first.op, ops.Store)
    cure = (
        'give it order="relaxed", or order="release" where it hands something on'
        if plain
        else "let ctx.store with order=, and atomic operations, alone write it"
    )
    more = f" (and {len(writers) - 1} more)" if len(writers) > 1 else ""
    return (
        f"{waits}, which {'an ordinary store' if plain else first.what} at"
        f" {first.loc.short}{more} writes, too, so that the loop does not count as a wait: {cure}"
    )
