"""TMA: copies between global and shared memory, each an asynchronous unit of its own.

A load writes its box at some moment between its issue and the completion of the phase it is
credited to; so its access exists from the issue, and is known to others through the mbarrier. A
store reads shared memory at some moment before its group has been waited for.
"""

from __future__ import annotations

from tilepipe.errors import BarrierError, SimFault
from tilepipe.ir.hardware.tma import broken_coordinate_rule
from tilepipe.machine import cost
from tilepipe.machine.actors import BLOCKED, Blocked
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.mbarrier import credit, remote
from tilepipe.machine.barriers.state import LIVE, Mbarrier
from tilepipe.machine.faults import messages as faults
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.conflicts import access, read
from tilepipe.machine.happens_before.events import Event
from tilepipe.machine.happens_before.global_memory import note_box
from tilepipe.machine.journal import Touch
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.memory.values import rounded
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import StoreQueue, TmaLoadUnit, TmaStoreUnit

Coords = tuple[int, ...]


def land(m: Machine, unit: TmaLoadUnit) -> None:
    """A copy lands: the box is in shared memory, and the barrier gets its bytes."""
    site, slot = unit.site, unit.slot
    r0, r1, c0, c1 = unit.write.rect
    tensor = m.world.tensors[site.tensor]
    slot.data[r0:r1, c0:c1] = tensor.read(unit.coords, site.rows, site.cols)
    slot.written(unit.write.rect)
    credit_copy(m, unit)


def credit_copy(m: Machine, unit: TmaLoadUnit) -> None:
    """The data of a copy are in shared memory: the barrier gets its bytes."""
    site, bar = unit.site, unit.bar
    unit.landed = True
    if bar.state != LIVE:
        faults.lands_on_dead(bar, unit)
    bar.acc |= unit.write.bit
    if unit.seen is not None:
        bar.acc |= unit.seen.bit
    bar.inflight -= unit.nbytes
    if unit.end > bar.acc_time:
        bar.acc_time = unit.end
    if m.journal is not None:
        m.journal.touch(Touch.CREDIT, bar, bar.phase, 0)
    credit(m, bar, unit.nbytes, site)


def write_out(m: Machine, unit: TmaStoreUnit) -> None:
    """A store reads the tile and writes the tensor; out of bounds is clipped."""
    r0, r1, c0, c1 = unit.read.rect
    tensor = m.world.tensors[unit.site.tensor]
    values = unit.data_slot.data[r0 : min(r0 + unit.rows, r1), c0:c1]
    if unit.data_slot.buffer.dtype is not tensor.param.dtype:
        values = rounded(values, tensor.param.dtype)
    tensor.write(unit.coords, values)
    end_store(m, unit)


def end_store(m: Machine, unit: TmaStoreUnit) -> None:
    """The data of a store are in the tensor: who waits for its group may go on."""
    unit.done = True
    agent = unit.agent
    if agent.parked and agent.request is not None and agent.request[0] is tma_store_wait:
        agent.parked = False
        m.wake([agent])


def one_lane(ag: Agent, site: Site, mask: int, made: str = "copies are made") -> int:
    """The number of the one active lane; `made`: what happens where there are more.

    Raises:
        SimFault: several lanes are active, each of which would issue the op.
    """
    if mask & (mask - 1):
        raise SimFault(
            f"{site.what}: {mask.bit_count()} threads of {ag} issue it, so {mask.bit_count()}"
            f" {made}."
            ' Put it inside ctx.elect_one("role") or a condition that one lane satisfies.',
            site.loc,
        )
    return mask.bit_length() - 1


def _check_place(m: Machine, site: Site, coords: Coords, store: bool) -> None:
    """Raises SimFault where a box starts at coordinates that the hardware refuses."""
    param = m.world.tensors[site.tensor].param
    broken = broken_coordinate_rule(coords, param.contiguous_axis, param.dtype, store=store)
    if broken is not None:
        raise SimFault(f"{site.what}, tensor '{param.name}': {broken}", site.loc)


def tma_load(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    coords: Coords,
    slot: int,
    rect: Rect,
    bar: int,
    multicast: int | None = None,
    leader: int | None = None,
) -> None:
    """Issues cp.async.bulk.tensor global -> shared, to this CTA or to each CTA of a mask.

    `leader`: a CTA of this one's pair. The barrier credited is that of the CTA in the destination's
    pair which has the same place there (PTX ISA, cp.async.bulk.tensor, .cta_group::2).
    """
    one_lane(ag, site, mask)
    _check_place(m, site, coords, store=False)
    known = ag.known(mask) if ag.split else ag.k
    tensor = m.world.tensors[site.tensor]
    seen = (
        note_box(m, tensor, ag, site, mask, coords, is_write=False)
        if tensor.order is not None
        else None
    )
    start = ag.cta.tma_free
    if ag.time > start:
        start = ag.time
    ag.cta.tma_free = busy = start + site.nbytes / cost.TMA_BYTES_PER_CYCLE
    if leader is not None and leader >> 1 != ag.cta.rank >> 1:
        raise BarrierError(
            f"{site.what}: it signals a barrier of CTA rank {leader}, but CTA rank {ag.cta.rank}"
            f" is paired with rank {ag.cta.rank ^ 1}: a"
            " copy of a pair signals one of its own two CTAs.",
            site.loc,
        )
    if multicast is None:
        b = ag.cta.bars[bar] if leader is None else remote(m, ag, site, leader, bar)
        _issue(m, ag, site, mask, coords, ag.cta.slots[slot], rect, b, known, seen, busy)
        return
    if not 0 < multicast < 1 << len(m.ctas):
        raise BarrierError(
            f"{site.what}: multicast mask {multicast:#b} for a cluster of {len(m.ctas)} CTA(s); it must name at least one, and no other",
            site.loc,
        )
    for cta in m.ctas:
        if multicast >> cta.rank & 1:
            b = remote(m, ag, site, cta.rank if leader is None else cta.rank & ~1 | leader & 1, bar)
            _issue(m, ag, site, mask, coords, cta.slots[slot], rect, b, known, seen, busy)


def _issue(
    m: Machine, ag: Agent, site: Site, mask: int, coords: Coords, slot: Slot, rect: Rect, bar: Mbarrier, known: int,
    seen: Event | None, busy: float,
) -> None:  # fmt: skip
    write = Access(ag, site, mask, rect, True, True, m.order.new_bit())
    depart(m, TmaLoadUnit(ag, site, coords, slot, bar, write, seen, busy + cost.TMA_LATENCY), known)


def depart(m: Machine, unit: TmaLoadUnit, known: int) -> None:
    """Sends a copy on its way; from now on it may land. `known`: what the thread that issued it
    knows.
    """
    bar, ag, site = unit.bar, m.agents[unit.agent.uid], unit.site
    if bar.state != LIVE:
        faults.not_live(m, bar, site, ag)
    if bar.in_role and not (bar.fenced | bar.proxy_bit) & known:
        faults.check_init_fence(m, bar, site, ag)
    bar.copies.append(unit)
    access(m, unit.slot, unit.write, known)
    bar.inflight += unit.nbytes
    if m.journal is not None:
        m.journal.touch(Touch.ISSUE, bar, bar.phase, unit.write.mask)
    m.pending.append(unit)
    if m.world.on_event is not None:
        m.world.on_event(ag, site, ag.time, unit.end)


def tma_store(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    coords: Coords,
    slot: int,
    rect: Rect,
    rows: int | None = None,
) -> None:
    """Issues cp.async.bulk.tensor shared -> global into this thread's open group. `rows`: how many
    rows of the tile at most.
    """
    lane = one_lane(ag, site, mask)
    _check_place(m, site, coords, store=True)
    known = ag.known(mask) if ag.split else ag.k
    tile = ag.cta.slots[slot]
    record = Access(ag, site, mask, rect, False, True, m.order.new_bit())
    read(m, tile, record, known)
    count = site.rows if rows is None else min(max(rows, 0), site.rows)
    event = note_box(
        m, m.world.tensors[site.tensor], ag, site, mask, coords, is_write=True, rows=count
    )
    start = max(ag.time, ag.cta.tma_free)
    ag.cta.tma_free = start + site.nbytes / cost.TMA_BYTES_PER_CYCLE
    unit = TmaStoreUnit(
        ag, site, coords, tile, record, event, ag.cta.tma_free + cost.TMA_LATENCY, count
    )
    ag.stores.setdefault(lane, StoreQueue()).open.append(unit)
    m.pending.append(unit)
    if m.world.on_event is not None:
        m.world.on_event(ag, site, ag.time, unit.end)


def _lanes(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def tma_store_commit(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """cp.async.bulk.commit_group, by each active thread."""
    for lane in _lanes(mask):
        queue = ag.stores.get(lane)
        if queue is None:
            if mask & (mask - 1):
                continue
            queue = ag.stores[lane] = StoreQueue()
        queue.groups.append(queue.open)
        queue.open = []


def tma_store_wait(
    m: Machine, ag: Agent, site: Site, mask: int, pending: int, reading: bool
) -> Blocked | None:
    """cp.async.bulk.wait_group[.read], by each active thread for its own groups."""
    mine = [(lane, ag.stores[lane]) for lane in sorted(ag.stores) if mask >> lane & 1]
    for _, queue in mine:
        late = len(queue.groups) - pending
        if any(not unit.done for group in queue.groups[: max(late, 0)] for unit in group):
            return BLOCKED
    for lane, queue in mine:
        bits = 0
        for _ in range(len(queue.groups) - pending):
            group = queue.groups.pop(0)
            for unit in group:
                bits |= unit.read.bit
                ag.time = max(ag.time, unit.end)
            queue.unwritten.append(group)
        if not reading:
            ready = len(queue.unwritten) + len(queue.groups) - pending
            for group in queue.unwritten[: max(ready, 0)]:
                for unit in group:
                    bits |= unit.write.bit
            del queue.unwritten[: max(ready, 0)]
        if bits:
            ag.acquire(1 << lane, bits)
    return None
