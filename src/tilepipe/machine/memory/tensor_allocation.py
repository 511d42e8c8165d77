"""The allocation of tensor memory: tcgen05.alloc, relinquish_alloc_permit and dealloc.

Columns are allocated first fit. With cta_group 2 one warp of each CTA of a pair calls (PTX ISA,
"tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit"). There is no barrier between the
two: the even CTA, the leader, allocates the same columns of both and goes on; the odd CTA's alloc
waits until the leader has; a dealloc is local, and waits for no other CTA. So the kernel must see
to it that the leader frees nothing before the alloc of its peer has returned: otherwise, on a B300,
the launch fails (NVIDIA/cutlass issue 3435).
"""

from __future__ import annotations

import numpy as np

from tilepipe.errors import SimFault
from tilepipe.ir.hardware.tensor_memory import COLUMNS, LANES
from tilepipe.machine.actors import BLOCKED, Blocked
from tilepipe.machine.agents import Agent
from tilepipe.machine.cta import memory_of
from tilepipe.machine.faults import tensor_memory as tensor_faults
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.conflicts import access, ordinary
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_access import store_bytes
from tilepipe.machine.memory.tensor_memory import Allocation, Call, TensorMemory, Users, warp_of
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import WARP_MASK


def _one_warp(ag: Agent, site: Site, mask: int) -> None:
    """The warp converges; raises SimFault where it is not one whole warp."""
    ag.converge(mask)
    if mask != WARP_MASK << (32 * warp_of(mask)):
        raise SimFault(
            f"{site.what}: {mask.bit_count()} threads of {ag} execute it; one whole warp must,"
            f" together. Put it in {ag.cta.words['a branch that one whole warp takes']}.",
            site.loc,
        )


def tmem_alloc(
    m: Machine, ag: Agent, site: Site, mask: int, slot: int, rect: Rect
) -> Blocked | None:
    """tcgen05.alloc: blocks until there are `columns` consecutive free ones; writes their address
    to a tile of shared memory. The ISA does not say which thread writes it: it counts as one
    thread's write, so that the others read it after a bar.warp.sync.
    """
    column = _allocate(m, ag, site, mask)
    if isinstance(column, Blocked):
        return column
    tile = ag.cta.slots[slot]
    ordinary(m, ag, site, mask & -mask, tile, rect, True)
    tile.write(rect, column)
    return None


def tmem_alloc_at(m: Machine, ag: Agent, site: Site, mask: int, offset: int) -> Blocked | None:
    """tcgen05.alloc that writes the address to an offset in the CTA's shared memory."""
    column = _allocate(m, ag, site, mask, ag.cta.names.place(offset))
    if isinstance(column, Blocked):
        return column
    word = np.array([[column]], np.uint32).view(np.uint8)
    store_bytes(m, ag, site, mask & -mask, [offset] * 32, np.repeat(word, 32, axis=0))
    return None


def _allocate(m: Machine, ag: Agent, site: Site, mask: int, variable: str = "") -> int | Blocked:
    """The first of the columns that an alloc gets. `variable`: where it writes their address."""
    tm = memory_of(ag.cta)
    if not ag.blocked:
        _one_warp(ag, site, mask)
        _may_allocate(tm, ag, site, site.columns)
        tm.calls.append(Call(ag, site, site.columns, site.cta_group, variable))
        _notify(m, tm.users, mask)
        if not _is_given(tm, tm.calls[-1]):
            for place in _places(m, tm, tm.calls[-1]):
                _notify(m, place, mask)
        _settle(m, tm)
    call = next(c for c in tm.calls if c.agent is ag)
    if not call.done:
        ag.waits = tm, None
        return BLOCKED
    if m.journal is not None and ag.blocked:
        for one in _places(m, tm, call):
            m.journal.woken(one, mask)
    tm.calls.remove(call)
    if _is_given(tm, call):
        # what comes after the alloc of a pair's odd CTA knows that it is over
        bit = tm.allocations[call.column].through = m.order.new_bit()
        ag.acquire(mask, bit)
    return call.column


def _may_allocate(tm: TensorMemory, ag: Agent, site: Site, columns: int) -> None:
    if tm.relinquished is not None:
        who, where = tm.relinquished
        raise SimFault(
            f"{site.what}: {ag} allocates {columns} columns of tensor memory after {who} gave up"
            f" the right to at {where.loc.short} (tcgen05.relinquish_alloc_permit holds for the"
            " whole CTA). Relinquish after the last allocation.",
            site.loc,
        )
    if columns > tm.smallest:
        raise SimFault(
            f"{site.what}: {ag} allocates {columns} columns of tensor memory after an allocation of"
            f" {tm.smallest}; the number of columns must not grow from one allocation of a CTA to"
            " the next. Allocate the larger part first.",
            site.loc,
        )
    tm.smallest = columns


def tmem_relinquish(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """tcgen05.relinquish_alloc_permit."""
    _one_warp(ag, site, mask)
    tm = memory_of(ag.cta)
    _notify(m, tm.users, mask)
    tm.relinquished = (ag, site)


def tmem_dealloc(m: Machine, ag: Agent, site: Site, mask: int, address: int) -> None:
    """tcgen05.dealloc of exactly what an alloc gave: of this CTA's columns, at once.

    Raises:
        SimFault: it is no live allocation, or not all of one; or the leader of a pair frees what
            its peer may not have got yet.
        RaceError: an access to the columns is not known to be over.
    """
    tm = memory_of(ag.cta)
    _one_warp(ag, site, mask)
    columns = site.columns
    found = tm.allocations.get(address)
    if found is None or found.columns != columns or not found.claimed:
        raise SimFault(tensor_faults.not_allocated(ag, site, tm, address, columns), site.loc)
    known = ag.known(mask)
    record = Access(
        ag,
        site,
        mask,
        (0, LANES, found.column, found.column + columns),
        True,
        True,
        m.order.new_bit(),
    )
    access(m, tm, record, known)
    tm.accesses.remove(record)  # nothing can reach the columns now
    m.order.retire(record)
    if found.twin is not None:
        if waits_for_the_peer(found.twin, known):
            raise SimFault(
                tensor_faults.freed_before_the_peer(ag, site, found, peer_of(m, tm)), site.loc
            )
        m.order.retire_bit(found.twin.through)
        found.twin.through = 0
    del tm.allocations[found.column]
    tm.freed[found.column] = (found, ag, site)
    _notify(m, tm.users, mask)
    _notify(m, tm, mask)
    _settle(m, tm)
    if site.cta_group == 2:
        _settle(m, peer_of(m, tm))


def waits_for_the_peer(twin: Allocation, known: int) -> bool:
    """True if the alloc of a pair's odd CTA is not known to have returned."""
    return not twin.through & known


def _notify(m: Machine, thing: TensorMemory | Users, mask: int) -> None:
    """A step uses in turn the columns of a CTA, or the right to call for them.

    An alloc of a pair's odd CTA uses the latter alone: it gets what the leader has allocated, or
    will have, so the order of the two decides nothing.
    """
    m.in_turn(thing, mask, True)


def peer_of(m: Machine, tm: TensorMemory) -> TensorMemory:
    """The tensor memory of the pair's other CTA."""
    return memory_of(m.ctas[tm.cta.rank ^ 1])


def _is_given(tm: TensorMemory, call: Call) -> bool:
    """True if an alloc gets the columns that the leader of a pair has allocated."""
    return call.group == 2 and bool(tm.cta.rank & 1)


def _places(m: Machine, tm: TensorMemory, call: Call) -> list[TensorMemory]:
    """The tensor memories that an alloc takes columns of: in a pair the leader those of both, the
    odd CTA what it was given.
    """
    return [tm, peer_of(m, tm)] if call.group == 2 and not _is_given(tm, call) else [tm]


def _settle(m: Machine, tm: TensorMemory) -> None:
    """Performs what can be performed of the allocs under way in a CTA, in order."""
    for call in [c for c in tm.calls if not c.done]:
        if _is_given(tm, call):
            # in the leader's order
            given = next((a for a in tm.allocations.values() if not a.claimed), None)
            if given is None:
                continue
            if given.columns != call.columns:
                raise SimFault(tensor_faults.unequal_pair(call, given), call.site.loc)
            given.claimed, given.agent, given.site = True, call.agent, call.site
            given.variable = call.variable
            call.column = given.column
            _finish(m, call)
            continue
        places = _places(m, tm, call)
        column = _first_fit(places, call.columns)
        if column is None:
            continue
        call.column = column
        for place in reversed(places):
            own = place is tm
            twin = None if own is False or len(places) == 1 else places[1].allocations[column]
            place.allocations[column] = Allocation(
                column, call.columns, call.agent, call.site, twin, own, variable=call.variable
            )
            place.empty(column, call.columns)
        _finish(m, call)
        if len(places) == 2:
            _settle(m, places[1])


def _finish(m: Machine, call: Call) -> None:
    call.done = True
    if call.agent.parked:
        call.agent.parked = False
        m.wake([call.agent])


def _first_fit(places: list[TensorMemory], columns: int) -> int | None:
    """The first column from which `columns` are free in all places."""
    taken = sorted(
        (a.column, a.column + a.columns) for tm in places for a in tm.allocations.values()
    )
    start = 0
    for first, end in taken:
        if first - start >= columns:
            break
        start = max(start, end)
    return start if start + columns <= COLUMNS else None
