"""The part of a race's message about a flag in memory that was meant to order the two accesses."""

from __future__ import annotations

from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.happens_before.events import Event
from tilepipe.machine.happens_before.memory_order import Place, Scope, Seen
from tilepipe.machine.machine import Machine


def unordered(m: Machine, old: Access | Event) -> str:
    """Why a flag that was written after an access, and seen, orders nothing after that access; ""
    where no such flag has been seen.
    """
    for seen in reversed(m.world.seen.seen):
        if seen.value.all & old.bit:
            return _why(m, seen, old.bit)
    return ""


def _why(m: Machine, seen: Seen, bit: int) -> str:
    value = seen.value
    scope = _needed(seen.place, value.place)
    write = f"{value.site.what} by {value.who}, at {value.site.loc.short}"
    read = f"{seen.site.what}, at {seen.site.loc.short}"
    words = m.world.program.words
    said = words.get("an order at a scope", "")
    release, acquire = (
        said.format(order, scope) if said else _written(site.kind, order, scope)
        for order, site in (("release", value.site), ("acquire", seen.site))
    )
    fence = words.get("a fence at a scope", "fence.acq_rel.{}").format(scope)
    released = [place for place in value.parts if value.parts[place] & bit]
    found = []
    if not released:
        found.append(
            f"the flag {value.name} is written relaxed ({write}): write {release},"
            f" or {fence} before it"
        )
    if not seen.strong.acquires and seen.fence is None:
        found.append(
            f"the flag {value.name} is read relaxed ({read}): write {acquire}, or {fence} after it"
        )
    if found:
        return "; and ".join(found) + "."
    widest = Scope.SYS if seen.strong.acquires or seen.fence is None else seen.fence
    if not any(by.reaches(place, seen.place) for by, place in released):
        side, access, op = "written", write, release
    elif not any(
        min(seen.strong.scope, widest).reaches(seen.place, place) for _, place in released
    ):
        side, access, op = "read", read, acquire
    else:
        return (
            f"the flag {value.name} releases it ({write}) and is acquired ({read}), but no barrier"
            " orders the thread that acquires it before the one that comes second."
        )
    return (
        f"the flag {value.name} is {side} with a scope that leaves out the other CTA ({access}):"
        f" write {op}, and fences of the same scope."
    )


def _written(kind: str, order: str, scope: str) -> str:
    """An instruction with another order: `ld.acquire.gpu`, `mbarrier.try_wait.acquire.cta`."""
    stem = kind.split(".parity")[0] if kind.startswith("mbarrier") else kind.split(".")[0]
    return f"{stem}.{order}.{scope}"


def _needed(here: Place, there: Place) -> str:
    """The narrowest scope that has threads of both CTAs."""
    if here == there:
        return "cta"
    return "cluster" if here[0] == there[0] else "gpu"
