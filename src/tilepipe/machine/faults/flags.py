"""The part of a race's message about a flag in memory that was meant to order the two accesses."""

from __future__ import annotations

from tilepipe.machine.actors import Actor
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.happens_before.events import Event
from tilepipe.machine.happens_before.memory_order import Place, Scope, Seen
from tilepipe.machine.machine import Machine
from tilepipe.machine.sites import Site

_WIDTHS = ("cta", "cluster", "gpu")


def unordered(m: Machine, old: Access | Event) -> str:
    """Why a flag that was written after an access, and seen, orders nothing after that access; ""
    where no such flag has been seen.
    """
    for seen in reversed(m.world.seen.seen):
        if seen.value.all & old.bit:
            return _why(m, seen, old.bit)
    return ""


def released_to_none(m: Machine, old: Access, new: Access) -> str:
    """The arrive of the first agent on an mbarrier of the second's CTA that releases nothing to
    that CTA: it is relaxed, or its scope is that of another CTA. "" where there is none.
    """
    for bar in m.ctas[new.agent.cta.rank].bars:
        for agent, site, *_ in reversed(bar.last_arrivals):
            other = bar.cta.rank != old.agent.cta.rank
            if agent is not old.agent or not (site.relaxed or (site.near and other)):
                continue
            if site.relaxed:
                said, why = "written relaxed", ""
            else:
                said = "written with a scope that leaves out the other CTA"
                why = "" if ".cta" in site.kind else "; without a scope it is .cta"
            op = written_as(m, site, "release", "cluster" if other else "cta")
            return (
                f"the flag {bar.where} is {said} ({site.what} by {agent}, at"
                f" {site.loc.short}{why}): write {op}, after the first access."
            )
    return ""


def withheld(m: Machine, old: Access | Event, new: Actor) -> str:
    """The relaxed arrive at the cluster barrier that did not release an access to an agent of
    another CTA; "" where there is none.
    """
    meeting = m.cluster
    arrivals = sorted(
        meeting.relaxed.values(), key=lambda a: (a.agent is not old.agent, a.generation)
    )
    for agent, site, generation, bits in arrivals:
        if bits & old.bit and generation < meeting.generation and new.cta is not agent.cta:
            return (
                f"the {site.kind} of {agent} at {site.loc.short} is relaxed: it orders no access"
                " before it. Drop .relaxed, or put fence.acq_rel.cluster before it."
            )
    return ""


def _why(m: Machine, seen: Seen, bit: int) -> str:
    value = seen.value
    released = [part for part, bits in value.parts.items() if bits & bit]
    narrow = [part for part in released if not part[0].reaches(part[1], seen.place)]
    by, who = value.site, value.who
    if released and len(narrow) == len(released):  # a later write may have handed it on
        by, who = value.releasing.get(narrow[-1], (by, who))
    places = [place for _, place in released] or [value.place]
    scope = max((scope_of(seen.place, place) for place in places), key=_WIDTHS.index)
    own = not released and value.place == seen.place and value.thread[0] == seen.uid
    if own:  # its own read-modify-write came last; what it found there had to be released
        scope = "gpu" if m.num_clusters > 1 else "cluster" if len(m.ctas) > 1 else "cta"
    write = f"{by.what} by {who}, at {by.loc.short}"
    read = f"{seen.site.what}, at {seen.site.loc.short}"
    release, acquire = (
        written_as(m, site, order, scope)
        for order, site in (("release", by), ("acquire", seen.site))
    )
    words = m.world.program.words
    fence = words.get("a fence at a scope", "fence.acq_rel.{}").format(scope)
    found = []
    if own:
        found.append(
            f"no write of the flag {value.name} that follows the first access releases it: write"
            f" {release}, or {fence} before it, in the thread that hands it on"
        )
    elif not released:
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
    if len(narrow) == len(released):
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


def written_as(m: Machine, site: Site, order: str, scope: str) -> str:
    """An instruction with another order: `ld.acquire.gpu`, `mbarrier.try_wait.acquire.cta`."""
    if said := m.world.program.words.get("an order at a scope", ""):
        return said.format(order, scope)
    stem, *words = site.kind.split(".")
    if stem == "mbarrier":
        stem = ".".join((stem, words[0], *(w for w in words if w in ("expect_tx", "noComplete"))))
    return f"{stem}.{order}.{scope}"


def scope_of(here: Place, there: Place) -> str:
    """The narrowest scope that has threads of both CTAs."""
    if here == there:
        return "cta"
    return "cluster" if here[0] == there[0] else "gpu"
