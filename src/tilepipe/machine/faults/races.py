"""The messages of races on shared memory and tensor memory: which accesses take part, and what is
missing between them.
"""

from __future__ import annotations

from typing import NoReturn

from tilepipe.errors import RaceError
from tilepipe.ir.facts import Group, Unit
from tilepipe.machine import rules
from tilepipe.machine.actors import Actor
from tilepipe.machine.faults import (
    counts,
    flags,
    groups,
    handed_on,
    root_causes as causes,
    tensor_memory as tensor_faults,
    waits,
)
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.happens_before.events import Event
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.sites import Site


def line(slot: Slot, a: Access) -> str:
    """One of two conflicting accesses."""
    verb = "writes" if a.is_write else "reads"
    proxy = (
        "asynchronous"
        if isinstance(slot, TensorMemory)
        else "async proxy"
        if a.by_proxy
        else "generic proxy"
    )
    return (
        f"{a.agent} {verb} {slot.extent(a)} ({proxy}): {resolved(slot, a)}\n          at"
        f" {a.site.loc}"
    )


def resolved(slot: Slot, a: Access) -> str:
    """The op of an access, with its tile's place in numbers."""
    rect = a.rect if a.points is None else None
    return a.site.located(slot.buffer.name, slot.index, rect)


def _late_expect(m: Machine, access: Access, reader: Actor) -> str | None:
    """The advice for a copy whose bytes were announced after the arrive that completed the phase
    they were meant for, or not at all.
    """
    for bar in (bar for cta in m.ctas for bar in cta.bars):
        if (
            any(u.write is access for u in bar.copies)
            and not bar.arrivals
            and bar.last_arrivals
            and not bar.last_copies
        ):
            agent, site, *_ = bar.last_arrivals[-1]
            only = bar.cta.words["mbarrier.expect_tx"]
            if not bar.expected:
                return (
                    f"The arrive by {agent} at {site.loc.short} completed phase {bar.phase - 1} of"
                    f" {bar.where}, for which no bytes had been announced: the copy counts for"
                    f" phase {bar.phase}, which {reader} has not waited for. In the place of that"
                    f" arrive, call {bar.cta.words['mbarrier.arrive.expect_tx']}: it announces the"
                    " bytes and arrives."
                )
            return (
                f"The arrive by {agent} at {site.loc.short} completed phase {bar.phase - 1} of"
                f" {bar.where} before"
                f" {only}: the bytes count for phase {bar.phase}, which {reader} has"
                " not waited for."
                f" Call {bar.cta.words['mbarrier.arrive.expect_tx']} (it announces and arrives),"
                f" or {only} before the arrive."
            )
    return None


def _remedy(m: Machine, slot: Slot, old: Access, new: Access) -> str:
    """The advice to order `new` after `old`."""
    words = slot.cta.words
    for copy, reader in ((old, new.agent), (new, old.agent)):
        late = _late_expect(m, copy, reader) if copy.site.fills else None
        if late is not None:
            return late
    story = (
        waits.unordered(m, old, new)
        or causes.out_of_turn(m.ctas)
        or causes.completed_by_bytes(m, m.ctas[slot.cta.rank].bars)
        or counts.unordered(m, old.agent, new.agent)
        or causes.ran_ahead(m.ctas, m.world.program.sites)
    )
    if story:
        return story
    if new.site.fills and new.agent.cta is not slot.cta:
        commit = words.get("tcgen05.commit.multicast::cluster")
        how = (
            "the barrier of every CTA that copies into them:"
            f" {commit} with the CTAs of the multicast."
            if commit is not None
            else f"a barrier of CTA {new.agent.cta.block_id} ({words['mbarrier.arrive on a peer']},"
            f" or tcgen05.commit with a mask of CTAs), and {new.agent} must wait for it."
        )
        return (
            f"The second copy is multicast into CTA {slot.cta.block_id}: {new.agent} must know"
            f" that this CTA has freed the tile as well. Its consumers must arrive on {how}"
        )
    if m.poison_at is old:
        return (
            f"When the first access ran, nothing had been written there yet: {old.agent} must"
            " wait, before reading, on a barrier that signals the data is there."
            f" {causes.only_arrives(m, old.agent) or causes.met_without(m, old.agent, new.agent)}"
        ).rstrip()
    facts = old.site.facts
    if facts.unit is Unit.LAUNCH_CONTROL:
        cta = (
            f"a {words['warp']} of CTA {slot.cta.block_id}"
            if old.agent.cta is not slot.cta
            else str(new.agent)
        )
        return (
            "The response may arrive until the phase of the barrier it signals is complete:"
            f" {cta} must wait for that phase, and hand the"
            f" response back to {old.agent} before it asks again."
        )
    if old.site.fills:
        freed = causes.refilled(m.ctas, old) if new.site.fills else ""
        return freed or (
            "The copy is in flight until the phase of the barrier it signals is complete:"
            f" {new.agent} must wait for that phase first."
        )
    if facts.issues is Group.WGMMA:
        loose = any(u.site is old.site for u in m.agents[old.agent.uid].wgmma_open)
        commit = (
            f" It is in no committed group: commit it first ({words['wgmma.commit_group']})."
            if loose
            else ""
        )
        return groups.pending_wgmma(m.agents[old.agent.uid], old) + (
            f"A wgmma reads its tiles until its group has been waited for"
            f" ({words['wgmma.wait_group']}): {new.agent} may touch the tile only after that, by"
            " way of a barrier it"
            f" waits on.{commit}"
        )
    if facts.issues is Group.BULK:
        return _store_reads(m, old, new)
    if facts.issues is not None:
        return tensor_faults.remedy(m, old, new)
    if old.asynchronous and not old.by_proxy:
        return groups.pending_copy(m.agents[old.agent.uid], old) + (
            "The copy is in flight until the thread that issued it has waited for its group"
            f" (cp.async.wait_group), and it has not: a wait that leaves fewer groups pending, and"
            f" then a barrier that {new.agent} waits on, must come before the second access."
        )
    verb = "write" if old.is_write else "read"
    lanes = (
        " An arrive or a copy by one elected lane speaks only for that lane until its warp has"
        f" converged ({words['bar.warp.sync']}), and never for other warps (a named barrier)."
    )
    several = old.mask.bit_count() > 1
    if old.agent is new.agent:
        if _by_all(old, new):
            return handed_on.one_of_all(old.agent)
        elected = lanes if not several or new.mask.bit_count() == 1 else ""
        return (
            f"Between the {verb} and the second access, the threads that make them must"
            f" meet: put {handed_on.meeting(old.agent)} between the two.{elected}"
        )
    arrive = (
        f"After the {verb}, {old.agent} must arrive on a barrier that {new.agent} waits on"
        " before its access."
    )
    cause = causes.only_arrives(m, new.agent) or causes.met_elsewhere(m, old.agent, new.agent)
    return f"{arrive + lanes if several else arrive} {cause}".rstrip()


def _by_all(old: Access, new: Access) -> bool:
    """True if two accesses are one store, by which all lanes of a warp write one element."""
    if old.site is not new.site or not new.is_write or not isinstance(new.points, dict):
        return False
    there = old.points if isinstance(old.points, dict) else {}
    return any(by.bit_count() > 1 for at, by in new.points.items() if at in there)


def _store_reads(m: Machine, store: Access, new: Access) -> str:
    """The advice to order `new` after a TMA store has read its tile."""
    words, queues = store.agent.cta.words, m.agents[store.agent.uid].stores.values()
    begin = groups.pending_read(m.agents[store.agent.uid], store) + (
        "The store reads the tile until the thread that issued it has waited for its group"
        f" ({words['cp.async.bulk.wait_group.read']})."
    )
    if any(unit.read is store for queue in queues for unit in queue.open):
        begin += (
            f" It is in no committed group: commit it ({words['cp.async.bulk.commit_group']})"
            " before that wait."
        )
    if store.agent is new.agent:
        return (
            f"{begin} Between that wait and the second access put {handed_on.meeting(store.agent)}."
        )
    return (
        f"{begin} After that wait, {store.agent} must arrive on a barrier that {new.agent} waits on"
        " before its access."
    )


def race(m: Machine, slot: Slot, old: Access, new: Access, first: Slot | None = None) -> NoReturn:
    """Two accesses to common bytes that nothing orders; `first`: the slot of the earlier, where
    that was through another view.
    """
    other = f" and {first.name}, which share their bytes," if first is not None else ""
    cta = f" of CTA {slot.cta.block_id}" if slot.cta.grid > 1 else ""
    what = slot.object_of(new) if first is not None else slot.object_of(old, new)
    flag = flags.unordered(m, old) or flags.withheld(m, old, new.agent)
    if not flag and old.site.facts.issues is None:  # else the arrive may have come too early
        flag = flags.released_to_none(m, old, new)
    raise of_accesses(
        old,
        new.agent,
        new.site,
        f"race on {what}{other}{cta}: nothing orders the second access after the first.\n"
        f"  first:  {line(first or slot, old)}\n"
        f"  second: {line(slot, new)}\n"
        f"  {flag or _remedy(m, slot, old, new)}",
    )


def of_accesses(old: Access | Event, agent: Actor, site: Site, message: str) -> RaceError:
    """What to raise of an access and a later one, by `agent` at `site`."""
    error = RaceError(message, site.loc)
    error.accesses = tuple(
        (by.cta.block_id, by.uid, at.id) for by, at in ((old.agent, old.site), (agent, site))
    )
    return error


def proxy_race(
    place: str,
    old: Access | Event,
    lines: tuple[str, str],
    agent: Actor,
    site: Site,
    fence: str,
    reach: str,
) -> NoReturn:
    """An ordinary access, `old`, and an asynchronous one by `agent` at `site`, with no proxy fence
    between them.

    Args:
        place: what both touch. lines: both accesses. fence: the instruction that orders them.
        reach: why another form of it does not, or "".
    """
    verb, doing = ("write", "writing") if old.is_write else ("read", "reading")
    raise of_accesses(
        old,
        agent,
        site,
        f"race between proxies on {place}: the accesses are ordered, but no"
        " fence.proxy.async of that memory stands between.\n"
        f"  first:  {lines[0]}\n"
        f"  second: {lines[1]}\n"
        f"  Every {doing} thread must execute {fence} after the {verb}: before it arrives, or, if"
        f" it issues the async access itself, before that access.{reach}",
    )


def fenced_by_reader(
    m: Machine, place: str, old: Access | Event, who: str, site: Site, fence: str
) -> None:
    """The proxy fence between `old`, by `who`, and the access at `site` is on the reader's side."""
    verb = "write" if old.is_write else "read"
    m.world.finding(
        rules.READER_FENCE,
        f"between the {verb} of {place} at {old.site.loc.short} ({who}) and {site.what} at"
        f" {site.loc.short} the proxy fence stands on the reader's side",
        site.loc,
        f"Put {fence} in every {'writing' if old.is_write else 'reading'} thread, before its"
        " arrive.",
        first=old.site.loc,
    )


def ordered_by_commit_alone(
    m: Machine, place: str, old: Access | Event, first: str, second: str, site: Site
) -> None:
    """An ordinary access that others know of by way of a tcgen05.commit alone."""
    if m.world.advised(rules.COMMIT_RELEASE, old.site, site):
        return
    verb, kind = ("write", "stores") if old.is_write else ("read", "loads")
    m.world.finding(rules.COMMIT_RELEASE,
        f"only a tcgen05.commit orders {site.what} at {site.loc.short} ({second}) after the"
        f" ordinary {verb} of {place} by {first} at"
        f" {old.site.loc.short}; a commit waits for MMAs and copies, not for {kind}", site.loc,
        f"Let {first} also arrive on a barrier after that access, and {second} wait for it.",
        first=old.site.loc,
    )  # fmt: skip
