"""Happens-before on a tensor in global memory that the program writes.

Within a cluster the bits of `accesses` decide, element by element. Clusters are ordered by strong
accesses to memory alone (`memory_order`). In a program without them two clusters at one element,
one writing, is always a race: for that, maps hold for each element its last write and, where the
program also reads, its last read. In a program with them all clusters share their bits
(`World.order`), and the maps say where to look for another cluster's accesses.
"""

from __future__ import annotations

import numpy as np

from tilepipe.errors import RaceError, SimFault
from tilepipe.machine.agents import Agent
from tilepipe.machine.faults import global_races, races
from tilepipe.machine.grid_state import REPEATED
from tilepipe.machine.happens_before import by_lanes
from tilepipe.machine.happens_before.byte_events import ByteEvent, ByteOrder, Offsets, Runs
from tilepipe.machine.happens_before.events import (
    MANY,
    Event,
    GlobalOrder,
    Index,
    Layout,
)
from tilepipe.machine.happens_before.global_history import mark, overwrite_flags, record, retire
from tilepipe.machine.happens_before.memory_order import Strong, morally_strong
from tilepipe.machine.happens_before.proxies import check_global_proxy
from tilepipe.machine.machine import Machine
from tilepipe.machine.rules import READ_ONLY
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import WARP_MASK


def box(
    m: Machine,
    order: GlobalOrder,
    ag: Agent,
    site: Site,
    mask: int,
    where: Index,
    is_write: bool,
    layout: Layout | None = None,
    asynchronous: bool = False,
    strong: Strong | None = None,
) -> Event:
    """An access to a box within bounds, by TMA (`asynchronous`) or by a warp's part of a
    fragment. `strong`: of a reduction.
    """
    if is_write and m.world.program.waits_itself:
        _check_waited(m, ag, site, mask, order.name)
    event = Event(ag, site, mask, is_write, m.cluster_id)
    event.layout = layout
    event.asynchronous = asynchronous
    event.strong = strong
    spans = tuple([(s.start, s.stop) for s in where])
    some = all(b > a for a, b in spans)
    event.box = spans if some else ((0, 0),) * len(spans)  # meets no other, wherever it lies
    known = ag.known(mask)
    if some:
        _after_clusters(m, order, event, where, known)
        _within_cluster(m, order, ag, event, known)
    record(m, order, event, where)
    if is_write and strong is None and order.values:
        overwrite_flags(order, event)
    return event


def points(
    m: Machine,
    order: GlobalOrder,
    ag: Agent,
    site: Site,
    mask: int,
    where: tuple[list[int], ...],
    is_write: bool,
    strong: Strong | None = None,
) -> None:
    """An ordinary access, or a strong one, by each thread of `mask`; `where`: their indices in
    each dimension.
    """
    if is_write and m.world.program.waits_itself:
        _check_waited(m, ag, site, mask, order.name)
    flat = np.ravel_multi_index(where, order.shape).tolist()
    lanes = [i for i in range(mask.bit_length()) if mask >> i & 1]
    for w in range(ag.warps):
        part = mask & (WARP_MASK << (32 * w))
        mine = [i for i, lane in enumerate(lanes) if lane // 32 == w]
        if not mine:
            continue
        event = Event(ag, site, part, is_write, m.cluster_id)
        event.strong = strong
        for i in mine:
            event.points[flat[i]] = event.points.get(flat[i], 0) | 1 << lanes[i]
        here = tuple([at[i] for i in mine] for at in where)
        _after_clusters(m, order, event, here, ag.known(part))
        _within_cluster(m, order, ag, event, ag.known(part))
        if is_write and strong is None and order.values:
            overwrite_flags(order, event)
        before = order.present.latest.get((ag.uid, part, site.id))
        same = before is not None and before.bit and before.epoch == ag.released
        if before is not None and same and (not order.mixed or before.fences == ag.fences):
            for point, by in event.points.items():
                before.points[point] = before.points.get(point, 0) | by
            mark(order, before, here)
            continue
        record(m, order, event, here)
        order.present.latest[ag.uid, part, site.id] = event
        ag.made(part, event.bit | event.release_bit)


def runs(
    m: Machine,
    order: ByteOrder,
    ag: Agent,
    site: Site,
    mask: int,
    touched: Runs,
    is_write: bool,
    *,
    strong: Strong | None = None,
    asynchronous: bool = False,
    later: bool = False,
) -> ByteEvent:
    """An access to bytes of an allocation, by TMA (`asynchronous`) or by threads of one warp.
    `later`: these do not know of it yet, as it happens after the instruction.
    """
    if is_write and m.world.program.waits_itself:
        _check_waited(m, ag, site, mask, order.name)
    where = (order.where(touched),)
    if is_write and order.constant is not None:
        assert order.constant_at is not None
        if order.constant[_bytes_of(touched)].any():
            _not_constant(m, order, order.constant_at, site)
    event = ByteEvent(ag, site, mask, is_write, m.cluster_id, touched)
    event.strong = strong
    event.asynchronous = asynchronous
    _after_clusters(m, order, event, where, ag.known(mask))
    if is_write or order.present.written:
        _within_cluster(m, order, ag, event, ag.known(mask))
    if asynchronous or later:
        record(m, order, event, where)
        return event
    latest = order.present.latest
    before = latest.get((ag.uid, mask, site.id))
    same = before is not None and before.bit and before.epoch == ag.released
    if same and isinstance(before, ByteEvent) and before.fences == ag.fences:
        before.add(touched)
        order.present.widen(before)
        mark(order, before, where)
        return before
    record(m, order, event, where)
    latest[ag.uid, mask, site.id] = event
    ag.made(mask, event.bit | event.release_bit)
    return event


def taken_for_constant(m: Machine, order: ByteOrder, site: Site, touched: Runs) -> None:
    """A load that a cache may answer which sees no write of this launch (ld.global.nc)."""
    if order.constant is None:
        order.constant = np.zeros(order.nbytes, np.bool_)
    order.constant[_bytes_of(touched)] = True
    order.constant_at = site
    if order.writers[order.where(touched)].any():
        _not_constant(m, order, site, site)


def _bytes_of(touched: Runs) -> Offsets:
    return touched.starts[:, None] + np.arange(touched.size)


def _not_constant(m: Machine, order: ByteOrder, load: Site, site: Site) -> None:
    """The launch writes what a load takes for read-only; one of the two is at `site`."""
    if m.world.advised(READ_ONLY, load, site):
        return
    written = f", and {site.what} writes them at {site.loc.short}" if site is not load else ""
    m.world.finding(
        READ_ONLY,
        f"{load.what}, at {load.loc.short}: it loads bytes of '{order.name}' that the launch"
        f" writes{written}: it may return what was there before",
        load.loc,
        "Load them without .nc (in CUDA: without __ldg(), and without const __restrict__).",
        SimFault,
        first=site.loc,
    )


# -- checks ------------------------------------------------------------------------


def _after_clusters(m: Machine, order: GlobalOrder, new: Event, where: Index, known: int) -> None:
    """Orders an event after those of other clusters.

    Raises:
        RaceError: one that conflicts is not ordered before it.
    """
    if order.presents is None:
        _apart_from_clusters(m, order, new, where)
    else:
        _known_of_clusters(m, order, new, where, known)


def _apart_from_clusters(m: Machine, order: GlobalOrder, new: Event, where: Index) -> None:
    """Where nothing orders clusters: raises RaceError if another cluster wrote an element, or read
    one that is now written.
    """
    maps = [(order.writers, "written")]
    if new.is_write and order.readers is not None:
        maps.append((order.readers, "read"))
    for kept, verb in maps:
        seen = kept[where]
        if not np.count_nonzero(seen):
            continue
        for number in np.unique(seen).tolist():
            event = order.history[number - 1] if number > 0 else None
            if new.is_strong and kept is order.writers and (event is None or event.is_strong):
                continue
            if number == MANY or (event is not None and event.cluster != m.cluster_id):
                event = event or _latest_of_others(m, order, new, verb == "written")
                global_races.race(m, order, event, verb, new)


def _latest_of_others(m: Machine, order: GlobalOrder, new: Event, written: bool) -> Event | None:
    """The latest write, or read, of an element of `new` by another cluster, for a message; None
    where no record is left of it.
    """
    for old in reversed(order.history):
        conflicts = old.is_write is written and not (old.is_strong and new.is_strong)
        if conflicts and old.cluster != m.cluster_id and new.elements_in_common(old, order.shape):
            return old
    return None


def _known_of_clusters(
    m: Machine, order: GlobalOrder, new: Event, where: Index, known: int
) -> None:
    """Orders an event against those of other clusters, which strong accesses may have ordered
    before it.

    Raises:
        RaceError: one that conflicts is not known to the threads that make it.
    """
    maps = (order.writers, order.readers) if new.is_write else (order.writers,)
    for kept in maps:
        for number in np.unique(kept[where]).tolist() if kept is not None else ():
            if number == MANY or (number and order.history[number - 1].cluster != m.cluster_id):
                break
        else:
            continue
        break
    else:
        return
    for present in order.others(new):
        for events in (present.live, present.settled):
            covered = [old for old in events.near(new) if _follows(m, order, new, old, known)]
            events.drop(covered)
            for old in covered:
                retire(m, old)


def _follows(m: Machine, order: GlobalOrder, new: Event, old: Event, known: int) -> bool:
    """Checks the order of an event after one of another cluster; returns whether it covers that."""
    if not (new.is_write or old.is_write) or not new.elements_in_common(old, order.shape):
        return False
    both_strong = _both_strong(m, old, new)
    if not (old.bit & known or both_strong or _after_lanes(m, old, new)):
        verb = "written" if old.is_write else "read"
        global_races.race(m, order, old, verb, new)
    if new.asynchronous and old.fenced:
        check_global_proxy(m, order.name, old, new.agent, new.site, known)
    return new.is_write and not both_strong and new.covers(old)


def _within_cluster(m: Machine, order: GlobalOrder, ag: Agent, new: Event, known: int) -> None:
    """Orders an event against the live ones and retires those it covers.

    Raises:
        RaceError: one that conflicts is not known to the threads that make it.
    """
    gone = []
    for old in order.present.live.near(new):
        atomics = new.strong is not None and old.strong is not None and _both_strong(m, old, new)
        common: set[int] | bool = (
            (new.is_write or old.is_write)
            and not atomics
            and new.elements_in_common(old, order.shape)
        )
        if common and not (
            old.bit & known or _same_lanes(old, new, common) or _after_lanes(m, old, new)
        ):
            global_races.race(m, order, old, "written" if old.is_write else "read", new)
        elif (
            common
            and old.release_bit
            and not (old.release_bit & known or _same_lanes(old, new, common))
        ):
            races.ordered_by_commit_alone(
                m, f"tensor '{order.name}'", old, old.who, str(ag), new.site
            )
        if common and new.asynchronous and old.fenced:
            check_global_proxy(m, order.name, old, ag, new.site, known)
        alike = new.is_write == old.is_write and new.asynchronous == old.asynchronous
        over = (new.is_write and not atomics) or (alike and bool(old.bit & known))
        if over and isinstance(common, set) and not new.covers(old):
            for point in common:
                del old.points[point]
        if over and new.covers(old):
            retire(m, old)
            gone.append(old)
    order.present.live.drop(gone)


def _both_strong(m: Machine, old: Event, new: Event) -> bool:
    here, there = ((event.cluster, event.agent.cta.rank) for event in (old, new))
    return morally_strong(old.strong, here, new.strong, there)


def _same_lanes(old: Event, new: Event, common: set[int] | bool) -> bool:
    """True if program order settles it: one agent, and each common element is touched by one and
    the same lane.
    """
    if old.agent_uid != new.agent_uid:
        return False
    if old.layout is not None and old.layout == new.layout and old.mask == new.mask:
        return True
    return new.by_same_lanes(old, common)


def _after_lanes(m: Machine, old: Event, new: Event) -> bool:
    """True if each lane of an event comes after those lanes of `old` that touched the same."""
    if old.asynchronous or new.asynchronous or not m.order.shares:
        return False
    meetings = new.lanes_at_common(old)
    return meetings is not None and by_lanes.ordered(m, old, new.agent, meetings)


def _check_waited(m: Machine, ag: Agent, site: Site, mask: int, tensor: str) -> None:
    """Raises RaceError for a write to global memory by threads that do not know of a
    grid_dependency_wait, in a kernel that has one.
    """
    if m.requests.waited != REPEATED and not m.requests.waited & ag.known(mask):
        wait = ag.cta.words["griddepcontrol.wait"]
        cure = (
            f"Execute {wait} before the first write, or let a barrier order the write after it."
            if m.world.program.addressed
            else "A kernel that calls it somewhere does not wait at the end of set-up. Call it in"
            f" the {ag.cta.words['warp']} that writes, before its first write, or let that"
            f" {ag.cta.words['warp']} learn of the call through a barrier."
        )
        raise RaceError(
            f"{site.what}: {ag} writes tensor '{tensor}' while the kernel before this one may still"
            f" use it: no {wait} is ordered before this write.\n  {cure}",
            site.loc,
        )
