"""When two accesses to shared or tensor memory conflict, and whether what orders them is there.

The rules are those of the PTX ISA's memory consistency model, on the bit sets of `accesses`: a
conflicting access must be known to the threads that make the next one, and between an ordinary
access and an asynchronous one a proxy fence must stand as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilepipe.machine.faults import messages as faults
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.memory.tiles import EMPTY, WHOLE, Slot

if TYPE_CHECKING:
    from tilepipe.machine.machine import Machine

# of one thread, executed in the order of issue
PIPELINED = frozenset({"tcgen05_mma", "tmem_copy"})


def _points_meet(a: Access, b: Access) -> bool:
    """Whether two accesses touch a common element; at least one is of single elements."""
    if a.points is not None and b.points is not None:
        return not a.points.keys().isdisjoint(b.points)
    points, rect = (a.points, b.rect) if a.points is not None else (b.points, a.rect)
    assert points is not None
    r0, r1, c0, c1 = rect
    return any(r0 <= p >> 32 < r1 and c0 <= p & 0xFFFFFFFF < c1 for p in points)


def _check_order(
    m: Machine, slot: Slot, old: Access, new: Access, known: int, view: Slot | None = None
) -> None:
    """Whether all is there that a conflicting access is ordered by. `view`: the slot of the earlier
    one, where that was through another view of the same bytes.

    Raises:
        RaceError: the threads that make `new` do not know of `old`; they know of it by a
            tcgen05.commit alone, and the rules are strict; or no proxy fence stands between.
    """
    place = slot if view is None else view
    if not old.bit & known:
        if not _same_lanes(old, new, view is not None):
            faults.race(m, slot, old, new, view)
    elif old.sure and not (old.sure & known or _same_lanes(old, new, view is not None)):
        faults.told_by_a_commit(m, place.name, old, str(old.agent), str(new.agent), new.site)
    if old.fenced and new.asynchronous:
        place.check_fences(m, old, new, known)


def _same_lanes(a: Access, b: Access, across: bool) -> bool:
    """Whether program order settles it: one agent, and each common element is touched by one and
    the same lane. `across`: through different views, where it is not known which elements have
    common bytes.
    """
    if a.agent is not b.agent:
        return False
    if a.mask == b.mask and a.mask.bit_count() == 1 and not a.asynchronous:
        return True
    if across or a.points is None or b.points is None:
        return False
    common = a.points.keys() & b.points.keys()
    return all(a.points[p] == b.points[p] and a.points[p].bit_count() == 1 for p in common)


def _covers(new: Access, old: Access) -> bool:
    if new.points is not None:
        return old.points is not None and old.points.keys() <= new.points.keys()
    r0, r1, c0, c1 = new.rect
    o0, o1, p0, p1 = old.rect
    return r0 <= o0 and o1 <= r1 and c0 <= p0 and p1 <= c1


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
    keep: list[Access] = []
    is_write = new.is_write
    r0, r1, c0, c1 = new.rect
    for old in slot.accesses:
        o0, o1, p0, p1 = old.rect
        if r0 < o1 and o0 < r1 and c0 < p1 and p0 < c1:
            single = new.points is not None or old.points is not None
            if (is_write or old.is_write) and not (single and not _points_meet(new, old)):
                if old.sure or old.fenced or not old.bit & known:
                    _check_order(m, slot, old, new, known)
                need |= old.bit
                if is_write and _covers(new, old):
                    m.order.retire(old)
                    continue
            elif (
                not is_write
                and not old.is_write
                and _succeeds(new, old, known)
                and _covers(new, old)
            ):
                m.order.retire(old)
                continue
        keep.append(old)
    keep.append(new)
    slot.accesses = keep
    return need


def _across_views(m: Machine, slot: Slot, new: Access, known: int) -> int:
    """`access` against the live accesses to the same bytes through other views. Where the tiles of
    two views overlap is not asked: any two accesses are taken to touch a common byte. A write
    leaves nothing that another view could read.
    """
    need = 0
    for view in slot.views:
        keep = []
        for old in view.accesses:
            if not (new.is_write or old.is_write):
                keep.append(old)
                continue
            if old.sure or old.fenced or not old.bit & known:
                _check_order(m, slot, old, new, known, view)
            need |= old.bit
            if new.is_write and new.rect == slot.whole and new.points is None:
                m.order.retire(old)
            else:
                keep.append(old)
        view.accesses = keep
        if new.is_write:
            view.state = EMPTY
            view.filled = None
    return need


def _overwrite(m: Machine, slot: Slot, new: Access, known: int) -> int:
    """`access` for a write of a whole tile, which conflicts with every live access and covers them
    all.
    """
    need = 0
    for old in slot.accesses:
        if old.sure or old.fenced or not old.bit & known:
            _check_order(m, slot, old, new, known)
        need |= old.bit
        m.order.retire(old)
    slot.accesses = [new]
    return need


def _succeeds(new: Access, old: Access, known: int) -> bool:
    """Whether whoever knows of the read `new` knows of the read `old`: same agent and proxy, and
    one after the other.
    """
    if new.agent is not old.agent or new.asynchronous != old.asynchronous:
        return False
    if old.bit & known:
        return True
    kind = new.site.kind
    if kind == "wgmma":
        return old.site.kind == "wgmma"
    return kind in PIPELINED and old.site.kind in PIPELINED and old.mask == new.mask


def read(m: Machine, slot: Slot, new: Access, known: int) -> int:
    """`access` for a read, which must not see poison."""
    need = access(m, slot, new, known)
    if slot.state != WHOLE and new.points is None and slot.poisoned(new.rect):
        faults.poison(m, slot, new, slot.poisoned(new.rect))
    return need
