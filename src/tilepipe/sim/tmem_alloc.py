"""Who holds which columns of tensor memory: tcgen05.alloc, relinquish_alloc_permit and dealloc.

Columns are given first fit. With cta_group 2 one warp of each CTA of a pair calls, and the two calls are one: they get the same
columns of both. PTX ISA, "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilepipe.errors import SimFault
from tilepipe.ir.tcgen05 import COLUMNS, LANES
from tilepipe.ir.tmem_ops import TmemAlloc, TmemDealloc
from tilepipe.sim import tmem_words
from tilepipe.sim.agents import BLOCKED, Agent, Blocked
from tilepipe.sim.elements import generic
from tilepipe.sim.memory import access
from tilepipe.sim.ordering import WARP_MASK, Access
from tilepipe.sim.tmem import TensorMemory, memory_of, warp_of

if TYPE_CHECKING:
    from tilepipe.sim.machine import Machine
    from tilepipe.sim.ordering import Rect
    from tilepipe.sim.sites import Site


@dataclass
class Allocation:
    """Columns [column, column + columns), and whose alloc gave them."""

    column: int
    columns: int
    agent: Agent
    site: Site


@dataclass(eq=False)
class Call:
    """An alloc or a dealloc that an agent is performing; `freeing`: the dealloc's allocation. `column`: what an alloc got."""

    agent: Agent
    site: Site
    columns: int
    group: int
    freeing: Allocation | None = None
    column: int = -1
    done: bool = False


def _one_warp(ag: Agent, site: Site, mask: int) -> None:
    """The warp converges; raises SimFault where it is not one whole warp."""
    ag.converge(mask)
    if mask != WARP_MASK << (32 * warp_of(mask)):
        raise SimFault(
            f"{site.what}: {mask.bit_count()} threads of {ag} execute it; one whole warp must, together. Put it in a role of one warp.",
            site.loc,
        )


def tmem_alloc(m: Machine, ag: Agent, site: Site, mask: int, slot: int, rect: Rect) -> Blocked | None:
    """tcgen05.alloc: blocks until there are `columns` consecutive free ones; writes their address to shared memory."""
    tm, op = memory_of(ag.cta), site.op
    assert isinstance(op, TmemAlloc)
    if not ag.blocked:
        _one_warp(ag, site, mask)
        _may_allocate(tm, ag, site, op.columns)
        tm.calls.append(Call(ag, site, op.columns, op.cta_group))
        _told(m, tm, mask)
        _settle(m, tm)
    call = next(c for c in tm.calls if c.agent is ag)
    if not call.done:
        return BLOCKED
    _went_on(m, ag, tm, call, mask)
    tm.calls.remove(call)
    tile = ag.cta.slots[slot]
    record = generic(m, ag, site, mask, tile, rect, True, None)
    access(m, tile, record, ag.known(mask))
    ag.made(mask, record.bit, converged=True)
    r0, r1, c0, c1 = rect
    tile.data[r0:r1, c0:c1] = call.column
    tile.written(rect)
    return None


def _may_allocate(tm: TensorMemory, ag: Agent, site: Site, columns: int) -> None:
    if tm.relinquished is not None:
        who, where = tm.relinquished
        raise SimFault(
            f"{site.what}: {ag} allocates {columns} columns of tensor memory after {who} gave up the right to at {where.loc.short}"
            " (tcgen05.relinquish_alloc_permit holds for the whole CTA). Relinquish after the last allocation.",
            site.loc,
        )
    if columns > tm.smallest:
        raise SimFault(
            f"{site.what}: {ag} allocates {columns} columns of tensor memory after an allocation of {tm.smallest}; the number of"
            " columns must not grow from one allocation of a CTA to the next. Allocate the larger part first.",
            site.loc,
        )
    tm.smallest = columns


def tmem_relinquish(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """tcgen05.relinquish_alloc_permit."""
    _one_warp(ag, site, mask)
    tm = memory_of(ag.cta)
    _told(m, tm, mask)
    tm.relinquished = (ag, site)


def tmem_dealloc(m: Machine, ag: Agent, site: Site, mask: int, address: int) -> Blocked | None:
    """tcgen05.dealloc of exactly what an alloc gave.

    Raises:
        SimFault: it is no live allocation, or not all of one.
        RaceError: an access to the columns is not known to be over.
    """
    tm, op = memory_of(ag.cta), site.op
    assert isinstance(op, TmemDealloc)
    if ag.blocked:
        call = next(c for c in tm.calls if c.agent is ag)
    else:
        _one_warp(ag, site, mask)
        columns = op.columns
        found = tm.allocations.get(address)
        if found is None or found.columns != columns or any(c.freeing is found for c in tm.calls):
            raise SimFault(tmem_words.not_allocated(ag, site, tm, address, columns), site.loc)
        record = Access(ag, site, mask, (0, LANES, found.column, found.column + columns), True, True, m.order.new_bit())
        access(m, tm, record, ag.known(mask))
        tm.accesses.remove(record)  # nothing can reach the columns now
        m.order.retire(record)
        call = Call(ag, site, columns, op.cta_group, freeing=found)
        tm.calls.append(call)
        _told(m, tm, mask)
        _settle(m, tm)
    if not call.done:
        return BLOCKED
    _went_on(m, ag, tm, call, mask)
    tm.calls.remove(call)
    return None


def _told(m: Machine, tm: TensorMemory, mask: int) -> None:
    if m.journal is not None:
        m.journal.in_turn(tm, mask, True)


def _went_on(m: Machine, ag: Agent, tm: TensorMemory, call: Call, mask: int) -> None:
    if m.journal is not None and ag.blocked:
        for one in (tm, peer_of(m, tm)) if call.group == 2 else (tm,):
            m.journal.woken(one, mask)


def peer_of(m: Machine, tm: TensorMemory) -> TensorMemory:
    """The tensor memory of the pair's other CTA."""
    return memory_of(m.ctas[tm.cta.rank ^ 1])


def _settle(m: Machine, tm: TensorMemory) -> None:
    """Performs what can be performed of the calls under way, in order."""
    for call in [c for c in tm.calls if not c.done]:
        places, calls = [tm], [call]
        if call.group == 2:
            peer = peer_of(m, tm)
            other = next((c for c in peer.calls if not c.done and (c.freeing is None) == (call.freeing is None)), None)
            if other is None:
                continue
            if other.columns != call.columns:
                raise SimFault(tmem_words.unequal_pair(call, other), call.site.loc)
            places, calls = [tm, peer], [call, other]
        if call.freeing is not None:
            for place, one in zip(places, calls, strict=True):
                assert one.freeing is not None
                del place.allocations[one.freeing.column]
                place.freed[one.freeing.column] = (one.freeing, one.agent, one.site)
            _finish(m, calls)
            _settle(m, tm)
            return
        column = _first_fit(places, call.columns)
        if column is None:
            continue
        for place, one in zip(places, calls, strict=True):
            one.column = column
            place.allocations[column] = Allocation(column, call.columns, one.agent, one.site)
            place.empty(column, call.columns)
        _finish(m, calls)


def _finish(m: Machine, calls: list[Call]) -> None:
    for call in calls:
        call.done = True
        if call.agent.parked:
            call.agent.parked = False
            m.ready.append(call.agent)


def _first_fit(places: list[TensorMemory], columns: int) -> int | None:
    """The first column from which `columns` are free in all places."""
    taken = sorted((a.column, a.column + a.columns) for tm in places for a in tm.allocations.values())
    start = 0
    for first, end in taken:
        if first - start >= columns:
            break
        start = max(start, end)
    return start if start + columns <= COLUMNS else None
