"""TMA: copies between global and shared memory, each an asynchronous unit of its own.

A load writes its box at some moment between its issue and the completion of the phase that counts
its bytes; so its access is live from the issue on, and other agents learn of it through the
mbarrier. A store reads shared memory at some moment before the wait for its group returns.
"""

from __future__ import annotations

from tilepipe.errors import BarrierError, SimFault
from tilepipe.ir.hardware.tma import broken_coordinate_rule
from tilepipe.machine import cost
from tilepipe.machine.actors import BLOCKED, Blocked
from tilepipe.machine.advice import Advice
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.mbarrier import credit, named_by, remote
from tilepipe.machine.barriers.state import LIVE, TmaLoadUnit
from tilepipe.machine.faults import mbarriers as faults
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.conflicts import access, read
from tilepipe.machine.happens_before.events import Event
from tilepipe.machine.happens_before.global_memory import box as order_box
from tilepipe.machine.happens_before.memory_order import RELAXED, Strong
from tilepipe.machine.journal import Touch
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.global_memory import Coords, GlobalTensor
from tilepipe.machine.memory.reductions import combined, reduced
from tilepipe.machine.memory.storage import rounded
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import lanes_in
from tilepipe.machine.units.in_flight import GroupWait, RepeatedLoad, StoreQueue, TmaStoreUnit


def land(m: Machine, unit: TmaLoadUnit) -> None:
    """A copy lands: the box is in shared memory, and the barrier gets its bytes."""
    site, slot = unit.site, unit.slot
    tensor = m.world.tensors[site.tensor]
    _fill(slot, unit.write.rect, tensor, unit.coords, site, unit.lines)
    credit_copy(m, unit)


def _fill(
    tile: Slot, rect: Rect, tensor: GlobalTensor, coords: Coords, site: Site, lines: int | None
) -> None:
    """Puts the box of a load into its tile; `lines`: as of `tma_load`."""
    if lines is None:
        tile.fill(rect, tensor.read(coords, site.rows, site.cols))
        return
    rows, cols = _lines(tensor, site, lines)
    r0, _, c0, _ = rect
    tile.write(rect, tensor.outside)
    tile.write((r0, r0 + rows, c0, c0 + cols), tensor.read(coords, rows, cols))


def _lines(tensor: GlobalTensor, site: Site, lines: int | None) -> tuple[int, int]:
    """(rows, columns) that a load reads: the first `lines` rows, or columns of a column-major tile,
    or all.
    """
    if lines is None:
        return site.rows, site.cols
    if tensor.param.contiguous_axis == tensor.param.rank - 1:
        return min(max(lines, 0), site.rows), site.cols
    return site.rows, min(max(lines, 0), site.cols)


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
    if m.world.recorder is not None:
        m.world.recorder.arrived(bar, unit.agent, site, unit.end)
    if unit.end > bar.acc_time:
        bar.acc_time = unit.end
    if m.journal is not None:
        m.journal.touch(Touch.CREDIT, bar, bar.phase, 0)
    credit(m, bar, unit.nbytes, site)


def write_out(m: Machine, unit: TmaStoreUnit) -> None:
    """A store reads shared memory and writes the tensor; out of bounds is clipped."""
    r0, r1, c0, c1 = unit.read.rect
    tensor = m.world.tensors[unit.site.tensor]
    values = unit.tile.data[r0 : min(r0 + unit.rows, r1), c0:c1]
    if unit.tile.buffer.dtype is not tensor.param.dtype:
        values = rounded(values, tensor.param.dtype)
    tensor.write(unit.coords, values, unit.reduction)
    if unit.reduction is not None and unit.write is not None:
        reduced(m, unit.site, 0, unit.write.box or ())
        if m.world.looks_at(unit.site):
            noticed(m, unit)
    finished(m, unit)


def noticed(m: Machine, unit: TmaStoreUnit) -> None:
    """A reduction has changed what strong accesses find: the wait for it comes after that."""
    m.in_turn(unit, 0, True)
    unit.reported = True


def finished(m: Machine, unit: TmaStoreUnit) -> None:
    """A store has written: its thread may go on, if it waits for the group."""
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
            f" {made}. Put it inside {ag.cta.words['elect.sync in a warp']} or a condition that one"
            " lane satisfies.",
            site.loc,
        )
    return mask.bit_length() - 1


def storing_lane(m: Machine, ag: Agent, site: Site, mask: int, atomic: bool) -> int:
    """The mask of the one thread whose store counts: as many threads as issue a store write the
    same bytes to the same place, which CuTe DSL's kernels rely on.

    Raises:
        SimFault: several threads issue a reduction.
    """
    if atomic or not mask & (mask - 1):
        return 1 << one_lane(ag, site, mask)
    text = (
        f"{site.what}: {mask.bit_count()} threads of {ag} issue the same store: one is enough. Put"
        f" it inside {ag.cta.words['elect.sync in a warp']}."
    )
    m.world.advise(Advice("one store of several threads", (site.loc.short,), (text,)))
    return mask & -mask


def _checked_tensor(
    m: Machine, site: Site, coords: Coords, *, store: bool, ragged: bool = False
) -> GlobalTensor:
    """The tensor of a copy. Raises SimFault where the hardware would refuse the copy."""
    tensor = m.world.tensors[site.tensor]
    param = tensor.param
    broken = broken_coordinate_rule(
        coords, param.contiguous_axis, param.dtype, store=store, ragged=ragged
    )
    if broken is not None:
        raise SimFault(f"{site.what}, tensor '{param.name}': {broken}", site.loc)
    return tensor


def _order_tensor(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    tensor: GlobalTensor,
    coords: Coords,
    extents: Coords,
    is_write: bool,
    strong: Strong | None = None,
) -> Event:
    """Orders the access to the part of a box within the tensor's bounds."""
    assert tensor.order is not None
    where = tensor.clip(coords, extents)[0]
    return order_box(
        m, tensor.order, ag, site, mask, where, is_write, asynchronous=True, strong=strong
    )


def occupy(ag: Agent, nbytes: int) -> float:
    """When a copy is over, by the cost model: the TMA unit of the CTA sends one after another."""
    start = ag.cta.tma_free
    if ag.time > start:
        start = ag.time
    ag.cta.tma_free = start + nbytes / cost.TMA_BYTES_PER_CYCLE
    return ag.cta.tma_free + cost.TMA_LATENCY


# -- ops -------------------------------------------------------------------------------


def tma_load(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    coords: Coords,
    at: int,
    rect: Rect,
    bar: int,
    multicast: int | None = None,
    leader: int | None = None,
    lines: int | None = None,
) -> None:
    """Issues cp.async.bulk.tensor global -> shared, to this CTA or to each CTA of a mask.

    `coords`: in elements, outermost dimension first. `at`, `rect`: the number of a tile and a
    rectangle of it. `leader`: a CTA of this one's pair. `lines`: how many rows of the box at most,
    or columns of a column-major one, are read; the others are zeros. The barrier credited is that
    of the CTA in the destination's pair which has the same place there (PTX ISA,
    cp.async.bulk.tensor, .cta_group::2).
    """
    one_lane(ag, site, mask)
    tensor = _checked_tensor(m, site, coords, store=False, ragged=lines is not None)
    known = ag.known(mask) if ag.split else ag.k
    nbytes = site.nbytes
    seen = None
    if tensor.order is not None:
        extents = tensor.box(*_lines(tensor, site, lines))
        seen = _order_tensor(m, ag, site, mask, tensor, coords, extents, is_write=False)
    end = occupy(ag, nbytes)
    if leader is not None and leader >> 1 != ag.cta.rank >> 1:
        raise BarrierError(
            f"{site.what}: it signals a barrier of CTA rank {leader}, but CTA rank {ag.cta.rank} is"
            f" paired with rank {ag.cta.rank ^ 1}: a copy of a pair signals one of its own two"
            " CTAs.",
            site.loc,
        )
    ctas = [ag.cta] if multicast is None else named_by(m, site, multicast, "multicast mask")
    for cta in ctas:
        if multicast is None and leader is None:
            there = cta.bars[bar]
        else:
            rank = cta.rank if leader is None else cta.rank & ~1 | leader & 1
            there = remote(m, ag, site, rank, bar)
        write = Access(ag, site, mask, rect, True, True, m.order.new_bit())
        unit = TmaLoadUnit(ag, site, coords, cta.slots[at], write, nbytes, there, seen, end)
        unit.lines = lines
        depart(m, unit, known)


def tma_load_again(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    coords: Coords,
    at: int,
    rect: Rect,
    bar: int,
    multicast: int | None = None,
    leader: int | None = None,
    lines: int | None = None,
) -> None:
    """`tma_load` in a cluster that repeats another, of a tensor that nothing writes: its access to
    shared memory is in order, and who waits for it is known.
    """
    tensor = _checked_tensor(m, site, coords, store=False, ragged=lines is not None)
    assert tensor.order is None
    for cta in m.ctas:
        if cta is ag.cta if multicast is None else multicast >> cta.rank & 1:
            m.pending.append(RepeatedLoad(site, cta.slots[at], rect, site.tensor, coords, lines))


def land_again(m: Machine, unit: RepeatedLoad) -> None:
    """The box is in shared memory."""
    tensor = m.world.tensors[unit.tensor]
    _fill(unit.tile, unit.rect, tensor, unit.coords, unit.site, unit.lines)


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
    if m.world.recorder is not None:
        m.world.recorder.copy(ag, unit)


def tma_store(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    coords: Coords,
    at: int,
    rect: Rect,
    rows: int | None = None,
    operation: str | None = None,
) -> None:
    """Issues cp.async.bulk.tensor shared -> global into this thread's open group, or
    cp.reduce.async.bulk.tensor with this `operation`. `at`, `rect`: as of `tma_load`. `rows`: how
    many rows of the tile at most.
    """
    lane = one_lane(ag, site, mask)
    tensor = _checked_tensor(m, site, coords, store=True)
    known = ag.known(mask) if ag.split else ag.k
    slot = ag.cta.slots[at]
    record = Access(ag, site, mask, rect, False, True, m.order.new_bit())
    read(m, slot, record, known)
    count = site.rows if rows is None else min(max(rows, 0), site.rows)
    extents = tensor.box(count, site.cols)
    strong, reduction = None, None
    if operation is not None:
        strong, reduction = RELAXED, combined(operation, tensor.param.dtype)
    event = _order_tensor(m, ag, site, mask, tensor, coords, extents, is_write=True, strong=strong)
    end = occupy(ag, site.nbytes)
    unit = TmaStoreUnit(ag, site, coords, slot, record, event, end, count, reduction=reduction)
    send(m, ag, lane, unit)


def tma_store_again(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    coords: Coords,
    at: int,
    rect: Rect,
    rows: int | None = None,
) -> None:
    """`tma_store` in a cluster that repeats another: its access to shared memory is in order; that
    to the tensor is checked.
    """
    tensor = _checked_tensor(m, site, coords, store=True)
    count = site.rows if rows is None else min(max(rows, 0), site.rows)
    extents = tensor.box(count, site.cols)
    event = _order_tensor(m, ag, site, mask, tensor, coords, extents, is_write=True)
    read_ = Access(ag, site, mask, rect, False, True, 0)
    m.pending.append(TmaStoreUnit(ag, site, coords, ag.cta.slots[at], read_, event, 0.0, count))


def send(m: Machine, ag: Agent, lane: int, unit: TmaStoreUnit) -> None:
    """Sends a store on its way, in the open group of a thread."""
    ag.stores.setdefault(lane, StoreQueue()).open.append(unit)
    m.pending.append(unit)
    if m.world.recorder is not None:
        m.world.recorder.copy(ag, unit)


def tma_store_commit(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """cp.async.bulk.commit_group, by each active thread."""
    for lane in lanes_in(mask):
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
    stores = ag.stores
    mine = [(lane, stores[lane]) for lane in sorted(stores) if mask >> lane & 1] if stores else []
    for _, queue in mine:
        for group in queue.groups[: max(len(queue.groups) - pending, 0)]:
            for unit in group:
                if not unit.done:
                    return BLOCKED
    if m.world.recorder is not None:
        m.world.recorder.awaited(
            ag,
            site,
            (
                (unit.site, unit.end)
                for _, queue in mine
                for group in queue.groups[: max(len(queue.groups) - pending, 0)]
                for unit in group
            ),
        )
    for lane, queue in mine:
        bits = 0
        for _ in range(len(queue.groups) - pending):
            group = queue.groups.pop(0)
            for unit in group:
                bits |= unit.read_bits
                if unit.reported and m.journal is not None:
                    m.journal.woken(unit, 1 << lane)
                ag.time = max(ag.time, unit.end)
            queue.unwritten.append(group)
        if not reading:
            ready = len(queue.unwritten) + len(queue.groups) - pending
            for group in queue.unwritten[: max(ready, 0)]:
                for unit in group:
                    bits |= unit.written_bits
            del queue.unwritten[: max(ready, 0)]
            left = len(queue.unwritten) + len(queue.groups)
            queue.waited_written = GroupWait(site, pending, left)
        queue.waited = GroupWait(site, pending, len(queue.groups), reading)
        if bits:
            ag.acquire(1 << lane, bits)
    return None
