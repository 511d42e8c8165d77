"""When two accesses to shared or tensor memory conflict, and whether they are ordered.

The rules are those of the PTX ISA's memory consistency model, on the bit sets of `accesses`: a
conflicting access must be known to the threads that make the next one, and between an ordinary
access and an asynchronous one a proxy fence must stand as well.
"""

from __future__ import annotations

from tilepipe.ir.facts import Group
from tilepipe.machine.agents import Agent
from tilepipe.machine.faults import poison, races
from tilepipe.machine.happens_before import by_lanes, one_value
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.memory_order import Strong, morally_strong
from tilepipe.machine.happens_before.proxies import check_proxy, check_tensor_fences
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_sets import Bytes, ByteSet, lanes_at_common, one_lane_each
from tilepipe.machine.memory.poison import Origin
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tiles import WHOLE, Slot
from tilepipe.machine.rules import LOCKSTEP, READ_REFILL
from tilepipe.machine.sites import Site

_WGMMA, _TCGEN05 = Group.WGMMA, Group.TCGEN05  # looked up once: this is an inner loop


def _check_order(
    m: Machine, slot: Slot, old: Access, new: Access, known: int, view: Slot | None = None
) -> None:
    """Checks that `new` is ordered after a conflicting access. `view`: the slot of the earlier
    access, where that is another view of the same bytes.

    Raises:
        RaceError: the threads that make `new` do not know of `old`; they know of it by a
            tcgen05.commit alone, and the rules are strict; or no proxy fence stands between.
    """
    place = slot if view is None else view
    if not old.bit & known:
        if not (
            _same_lanes(slot, place, old, new)
            or _after_lanes(m, slot, place, old, new)
            or _both_strong(m, old, new)
            or one_value.excused(m, old, new)
        ):
            races.race(m, slot, old, new, view)
    elif old.release_bit and not (old.release_bit & known or _same_lanes(slot, place, old, new)):
        races.ordered_by_commit_alone(m, place.name, old, str(old.agent), str(new.agent), new.site)
    if old.fenced and new.by_proxy:
        if isinstance(place, TensorMemory):
            check_tensor_fences(m, place, old, new, known)
        else:
            check_proxy(m, place, old, new, known)


def _both_strong(m: Machine, old: Access, new: Access) -> bool:
    here, there = ((m.cluster_id, access.agent.cta.rank) for access in (old, new))
    if not morally_strong(old.strong, here, new.strong, there):
        return False
    if old.agent is new.agent:
        _check_lockstep(m, old, new)
    return True


def _check_lockstep(m: Machine, old: Access, new: Access) -> None:
    """Advises against volatile accesses by which lanes of a warp exchange data as if they executed
    all instructions together.
    """
    if not (old.strong and old.strong.volatile and new.strong and new.strong.volatile):
        return
    if m.world.advised(LOCKSTEP, old.site, new.site):
        return
    m.world.finding(
        LOCKSTEP,
        f"{new.site.what}: lanes of {new.agent} {'write' if new.is_write else 'read'} what other"
        f" lanes {'wrote' if old.is_write else 'read'} at {old.site.loc}, and nothing orders them:"
        " volatile makes this no race, but which of them is first is not promised",
        new.site.loc,
        "Put bar.warp.sync (__syncwarp()) between the two.",
        first=old.site.loc,
    )


def _same_lanes(slot: Slot, place: Slot, old: Access, new: Access) -> bool:
    """True if program order suffices: one agent, and the same single lane touches each common
    element. `slot`, `place`: the slots of `new` and `old`.
    """
    if old.agent is not new.agent or old.asynchronous:
        return False
    if old.mask == new.mask and old.mask.bit_count() == 1:
        return True
    if slot is not place:
        return one_lane_each(slot.bytes_of(new), place.bytes_of(old))
    return slot.one_lane_each(old, new)


def _after_lanes(m: Machine, slot: Slot, place: Slot, old: Access, new: Access) -> bool:
    """True if each lane of `new` comes after those lanes of `old` that touched the same bytes."""
    if old.asynchronous or new.asynchronous or not m.order.shares:
        return False
    if slot is place:
        meetings = slot.lanes_at_common(old, new)
    else:
        meetings = lanes_at_common(place.bytes_of(old), slot.bytes_of(new))
    return meetings is not None and by_lanes.ordered(m, old, new.agent, meetings)


def access(m: Machine, slot: Slot, new: Access, known: int) -> int:
    """Orders a new access to a tile against the live ones, retires those it covers, and adds it.

    `known`: what the threads that make it know. Returns the bits of the accesses it is ordered
    after.

    Raises:
        RaceError: a conflicting access is not in `known`, or no proxy fence stands between.
    """
    need = _across_views(m, slot, new, known) if slot.views else 0
    if new.is_write and new.rect == slot.whole and new.points is None:
        return need | _overwrite(m, slot, new, known)
    retired = set()
    is_write, agent, points = new.is_write, new.agent, new.points
    for old in slot.near(new.rect):
        if is_write or old.is_write:
            single = points is not None or old.points is not None
            if single and not slot.points_meet(new, old):
                continue
            if old.release_bit or old.fenced or not old.bit & known:
                _check_order(m, slot, old, new, known)
            need |= old.bit
            if is_write and slot.covers(new, old):
                if not _remains(m, old, new, known):
                    m.order.retire(old)
                    retired.add(old)
            elif old.stored is not None:  # it stays, but memory may not hold what it stored
                one_value.keeps(m, old, new)
        elif (
            old.agent is agent
            and _succeeds(new, old, known)
            and ((old.rect == new.rect and points is old.points) or slot.covers(new, old))
        ):
            m.order.retire(old)
            retired.add(old)
    if retired:
        slot.drop(retired)
    slot.add(new)
    return need


def _remains(m: Machine, old: Access, new: Access, known: int) -> bool:
    """True if an access stays live although `new` covers it: a store of the same value that is not
    ordered before `new`, or one of another value (`one_value.keeps`).
    """
    if old.stored is None or old.site is not new.site or new.stored is None:
        return False
    return (old.agent is not new.agent and not old.bit & known) or one_value.keeps(m, old, new)


def _across_views(m: Machine, slot: Slot, new: Access, known: int) -> int:
    """`access` against the live accesses to the same bytes through other views. A write leaves
    nothing that another view of the buffer could read, as long as each keeps contents of its own.
    """
    need = 0
    touched = slot.bytes_of(new)
    for view in slot.views:
        retired = set()
        for old in view.accesses:
            before = view.bytes_of(old) if new.is_write or old.is_write else None
            if before is None or not touched.meets(before):
                continue
            if old.release_bit or old.fenced or not old.bit & known:
                _check_order(m, slot, old, new, known, view)
            need |= old.bit
            if new.is_write and before.within(touched):
                m.order.retire(old)
                retired.add(old)
        if retired:
            view.drop(retired)
        if new.is_write:
            view.overwritten()
    return need


def _overwrite(m: Machine, slot: Slot, new: Access, known: int) -> int:
    """`access` for a write of a whole tile, which conflicts with every live access and covers them
    all.
    """
    need = 0
    for old in slot.accesses:
        if old.release_bit or old.fenced or not old.bit & known:
            _check_order(m, slot, old, new, known)
        need |= old.bit
        m.order.retire(old)
    slot.clear()
    slot.add(new)
    return need


def _succeeds(new: Access, old: Access, known: int) -> bool:
    """True if the read `new` is known only together with the read `old` of the same agent: same
    proxy, and ordered one after the other.
    """
    if new.asynchronous != old.asynchronous:
        return False
    if old.bit & known:
        return True
    group = new.site.facts.issues  # whose ops are over in the order of issue
    if group is not old.site.facts.issues:
        return False
    return group is _WGMMA or (group is _TCGEN05 and old.mask == new.mask)


def read(
    m: Machine, slot: Slot, new: Access, known: int, reader: Agent | None = None
) -> int:  # fmt: skip
    """`access` for a read. It must not see poison; but a `reader` takes it along (`Agent.found`),
    where the program's agents do so.
    """
    need = access(m, slot, new, known)
    if slot.state != WHOLE and (missing := slot.missing(new)):
        origin = poison.never_written(m, slot, new, missing)
        if reader is not None and m.world.program.carries_poison:
            reader.found = origin
        else:
            _used_at_once(m, origin, new)
    return need


def _used_at_once(m: Machine, origin: Origin, new: Access) -> None:
    if origin.site is new.site:
        poison.used(m, origin)
    else:
        poison.used(m, origin, new.site.loc, f"{new.site.what} reads what was made of it")


def ordinary(
    m: Machine, ag: Agent, site: Site, lanes: int, slot: Slot, rect: Rect, is_write: bool,
    points: dict[int, int] | ByteSet | None = None, *, converged: bool = False,
    strong: Strong | None = None, reads: bool = False, response: bool = False,
    stored: Bytes | None = None,
) -> None:  # fmt: skip
    """An access through the generic proxy by lanes of one warp; `converged`: by an aligned op, so
    that the whole warp knows of it. `strong`, `stored`: as in `Access`. `reads`: a write that reads
    as well. `response`: it reads one: unlike other reads, this one needs a proxy fence after it.
    """
    new = Access(ag, site, lanes, rect, is_write, False, m.order.new_bit(), points)
    new.strong, new.stored = strong, stored
    if is_write or response or m.world.asks(READ_REFILL):
        m.order.add_fences(new, slot.cta.rank)
    if m.world.program.commits:
        m.order.add_release_bit(new)
    if is_write and not reads:
        need = access(m, slot, new, ag.known(lanes))
    else:
        need = read(m, slot, new, ag.known(lanes), None if is_write else ag)
    if response:
        new.after = need
    ag.made(lanes, new.bit | new.release_bit, converged)
