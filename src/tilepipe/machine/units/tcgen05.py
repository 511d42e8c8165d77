"""The tensor core of Blackwell: MMAs, copies and commits, which one thread issues and which act in
the order of issue.

An MMA of a pair (cta_group 2) is issued by the even CTA for both: it reads A of each CTA and the
halves of B of both, and writes the accumulators of both (PTX ISA, "TensorCore 5th Generation
Instructions", .cta_group).
"""

from __future__ import annotations

import numpy as np

from tilepipe.errors import SimFault
from tilepipe.ir.hardware.tensor_memory import LANES, Scaling, half_rule, scaling_of
from tilepipe.machine import cost
from tilepipe.machine.agents import Agent, tensor_state
from tilepipe.machine.barriers.mbarrier import arrival_bit, arrived, named_by, remote
from tilepipe.machine.barriers.state import LIVE, MbarrierArrival
from tilepipe.machine.cta import Arriver, Cta, memory_of
from tilepipe.machine.faults import mbarriers as faults
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.conflicts import access, read
from tilepipe.machine.journal import Touch
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.storage import Array, truncated
from tilepipe.machine.memory.tensor_access import place_of, scale_place, tcgen05_fence_before
from tilepipe.machine.memory.tensor_memory import Place, ScalePlace, TensorMemory, elements, rects
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import (
    CommitUnit,
    CopyPart,
    CopyUnit,
    MmaPart,
    MmaUnit,
    Operand,
    TensorQueue,
    TensorUnit,
)
from tilepipe.machine.units.tma import one_lane


def queue_of(ag: Agent, lane: int) -> TensorQueue:
    """The queue of one thread."""
    queues = tensor_state(ag).queues
    if lane not in queues:
        queues[lane] = TensorQueue()
    return queues[lane]


def multiply(m: Machine, unit: MmaUnit) -> None:
    """An MMA is computed."""
    halves = [_elements(*part.b) for part in unit.parts]
    b = halves[0] if len(halves) == 1 else np.concatenate(halves)
    site = unit.site
    assert site.shape is not None
    dtype = site.shape[2]
    for tm, place, source, _, scales in unit.parts:
        a = _elements(*source) if len(source) == 2 else tm.words(source)
        acc = tm.words(place).view(np.float32)
        if scales:
            assert isinstance(source[0], Slot)
            scaling = scaling_of(source[0].buffer.dtype, dtype, scales[0].scales.dtype)
            assert scaling is not None
            sfa, sfb = (s.values(tm, site) for s in scales)
            _scaled_product(acc, unit.adds, a, b, sfa, sfb, scaling)
            continue
        if site.place_a is not None:
            a = elements(a, site.place_a.dtype)
        if dtype.name == "float32":
            a, b = truncated(a), truncated(b)
        product = np.matmul(b, a.T).reshape(acc.shape)
        if unit.adds:
            acc += product
        else:
            acc[...] = product
    unit.queue.done |= unit.bits


def _scaled_product(
    acc: Array, adds: bool, a: Array, b: Array, sfa: Array, sfb: Array, scaling: Scaling
) -> None:
    """acc (n, m), float32, = or += (B · sfb) (A · sfa)ᵀ, one instruction along K after the
    other.

    A product of scaled numbers is exact in float64: an fp8 number has 4 significant bits, and the
    exponents of four factors stay within its range. Each instruction adds its sum of products to
    the accumulator, rounded to float32.
    """
    # NaN scale factors, sums beyond float32: as the hardware gives them
    with np.errstate(invalid="ignore", over="ignore"):
        left = a.astype(np.float64) * np.repeat(sfa, scaling.block, axis=1)
        right = b.astype(np.float64) * np.repeat(sfb, scaling.block, axis=1)
        for k in range(0, a.shape[1], scaling.k):
            product = np.matmul(right[:, k : k + scaling.k], left[:, k : k + scaling.k].T).astype(
                np.float32
            )
            acc[...] = acc + product if adds or k else product


def copy(m: Machine, unit: CopyUnit) -> None:
    """A copy from shared to tensor memory is made."""
    for tm, place, (slot, rect) in unit.parts:
        raw = np.ascontiguousarray(_elements(slot, rect).astype(slot.buffer.dtype.numpy))
        if isinstance(place, ScalePlace):
            place.copy(tm, raw.view(np.uint8))
            continue
        raw = raw.view(np.uint32)
        tm.words(place)[...] = (raw if len(raw) == place[0] else np.tile(raw, (4, 1))).T
    unit.queue.done |= unit.bits


def arrive(m: Machine, unit: CommitUnit) -> None:
    """Everything before a commit has acted: its arrivals take effect."""
    published = unit.queue.done | unit.bits
    for bar, bit in unit.arrivals:
        if bar.pending < 1:
            faults.cannot_arrive(m, bar, unit.site, unit.agent, 1)
        bar.acc |= published | bit
        if m.journal is not None:
            m.journal.touch(Touch.ARRIVE, bar, bar.phase, 0)
        arrived(m, bar, MbarrierArrival(unit.agent, unit.site, 1, -1), unit.time)
        if bar.cta is unit.agent.cta:
            unit.queue.done |= bit


def _elements(slot: Slot, rect: Rect) -> Array:
    """A rectangle of a tile as it is now, a view."""
    r0, r1, c0, c1 = rect
    return slot.data[r0:r1, c0:c1]


# -- ops -------------------------------------------------------------------------------


def issue(m: Machine, queue: TensorQueue, unit: TensorUnit) -> None:
    """Issues what a commit tracks: an MMA, a copy, a shift."""
    queue.issued |= unit.bits
    queue.uncommitted += 1
    m.issue(queue, unit)


def begun(ag: Agent, site: Site, mask: int, made: str) -> tuple[TensorQueue, int]:
    """The queue of the one thread that issues an op, and what the op is ordered after: what the
    thread knows, and what it has issued. `made`: what several threads would do.

    Raises:
        SimFault: several lanes are active.
    """
    queue = queue_of(ag, one_lane(ag, site, mask, made))
    return queue, ag.known(mask) | queue.issued


def ctas_of(m: Machine, ag: Agent, site: Site, group: int) -> list[Cta]:
    """The CTAs that an MMA or a copy works on (PTX ISA, tcgen05, Issue granularity).

    Raises:
        SimFault: issued by the odd CTA of a pair.
    """
    if group == 1:
        return [ag.cta]
    if ag.cta.rank & 1:
        raise SimFault(
            f"{site.what}: {ag} issues it in CTA rank {ag.cta.rank}; with cta_group=2 the even CTA"
            f" of a pair, rank {ag.cta.rank - 1}, issues for both. Put it under"
            f" {ag.cta.words['a predicate on %cluster_ctarank']}.",
            site.loc,
        )
    return m.ctas[ag.cta.rank : ag.cta.rank + 2]


def order_read(
    m: Machine, ag: Agent, site: Site, mask: int, slot: Slot, rect: Rect, known: int
) -> int:
    """Reads shared memory, or tensor memory, asynchronously; returns the bits."""
    record = Access(ag, site, mask, rect, False, True, m.order.new_bit())
    if isinstance(slot, TensorMemory):
        record.fenced = record.bit
    return record.bit | read(m, slot, record, known)


def order_write(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    tm: TensorMemory,
    where: list[Rect],
    known: int,
    adds: bool,
) -> int:
    """Writes tensor memory, or adds to it; returns the bits."""
    bits = 0
    for rect in where:
        record = Access(ag, site, mask, rect, True, True, m.order.new_bit())
        record.fenced = record.bit
        bits |= record.bit | (read if adds else access)(m, tm, record, known)
        tm.written(rect)
    return bits


def occupy(
    m: Machine,
    ag: Agent,
    site: Site,
    queue: TensorQueue,
    ctas: list[Cta],
    flops: float,
    bits: int,
    tile: Slot | None = None,
) -> None:
    """An MMA takes the tensor cores of its CTAs, by the cost model: `flops` of each, with elements
    of B of `bits` bits. `tile`: B in shared memory, where it is a tile.
    """
    start = max(ag.time, *(cta.tensor_free for cta in ctas))
    end = start + flops / cost.TCGEN05_FLOPS_PER_CYCLE[bits]
    for cta in ctas:
        cta.tensor_free = end
    queue.end = max(queue.end, end)
    if m.world.recorder is not None:
        m.world.recorder.mma(ag, site, start, end, ctas, tile)


def tcgen05_mma(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    acc: int,
    a: int,
    rect_a: Rect | None,
    b: int,
    rect_b: Rect,
    adds: bool,
    sfa: tuple[int, int] | None = None,
    sfb: tuple[int, int] | None = None,
) -> None:
    """Issues acc += A · Bᵀ, or acc = A · Bᵀ. `a`: a slot, or, without `rect_a`, an address in
    tensor memory. `sfa`, `sfb`: address and first row of scale factors.
    """
    assert site.place is not None
    assert site.shape is not None
    queue, known = begun(ag, site, mask, "MMAs are issued")
    bits = 0
    parts: list[MmaPart] = []
    ctas = ctas_of(m, ag, site, site.cta_group)
    for cta in ctas:
        tm = memory_of(cta)
        source: Operand
        bits |= order_read(m, ag, site, mask, cta.slots[b], rect_b, known)
        if rect_a is None:
            assert site.place_a is not None
            source = place = place_of(ag, site, tm, site.place_a, a)
            if site.place_a.rows != LANES and place[1] != acc >> 16:
                raise SimFault(f"{site.what}: {half_rule(place[1], acc >> 16)}.", site.loc)
            for rect in rects(place):
                bits |= order_read(m, ag, site, mask, tm, rect, known)
        else:
            bits |= order_read(m, ag, site, mask, cta.slots[a], rect_a, known)
            source = cta.slots[a], rect_a
        scales = [
            scale_place(ag, site, tm, s, *where)
            for s, where in zip(site.scales, (sfa, sfb), strict=False)
            if where is not None
        ]
        for rect in (rect for s in scales for rect in s.rects()):
            bits |= order_read(m, ag, site, mask, tm, rect, known)
        place = place_of(ag, site, tm, site.place, acc)
        bits |= order_write(m, ag, site, mask, tm, rects(place), known, adds)
        parts.append(MmaPart(tm, place, source, (cta.slots[b], rect_b), scales))
    flops, tile = site.flops / len(ctas), ag.cta.slots[b]
    occupy(m, ag, site, queue, ctas, flops, site.shape[2].bits, tile)
    issue(m, queue, MmaUnit(site, queue, bits, adds, parts))


def tmem_copy(
    m: Machine, ag: Agent, site: Site, mask: int, dst: int, slot: int, rect: Rect
) -> None:
    """Issues tcgen05.cp: in each CTA, from its shared memory to its tensor memory."""
    queue, known = begun(ag, site, mask, "copies are made")
    bits = 0
    parts: list[CopyPart] = []
    for cta in ctas_of(m, ag, site, site.cta_group):
        tm = memory_of(cta)
        place: Place | ScalePlace
        if site.scales:
            place = scale_place(ag, site, tm, site.scales[0], dst, whole=True)
            where = place.copied_rects()
        else:
            assert site.place is not None
            place = place_of(ag, site, tm, site.place, dst)
            where = rects(place)
        bits |= order_read(m, ag, site, mask, cta.slots[slot], rect, known)
        bits |= order_write(m, ag, site, mask, tm, where, known, False)
        parts.append(CopyPart(tm, place, (cta.slots[slot], rect)))
    queue.end = max(queue.end, ag.time)
    issue(m, queue, CopyUnit(site, queue, bits, parts))


def not_published_by_commits(m: Machine) -> int:
    """The bits that a commit does not publish: those of ordinary accesses (PTX ISA,
    tcgen05.commit).
    """
    return m.order.release_bits


def tcgen05_commit(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    bar: int,
    ctas: int | None = None,
    cta: int | None = None,
) -> None:
    """Issues tcgen05.commit: an arrival on this CTA's barrier, on that of CTA rank `cta`, or on
    those of a mask of ranks.
    """
    lane = one_lane(ag, site, mask, "arrivals are made")
    if ctas is None:
        targets = [ag.cta.bars[bar] if cta is None else remote(m, ag, site, cta, bar)]
    else:
        targets = [remote(m, ag, site, c.rank, bar) for c in named_by(m, site, ctas, "mask")]
    tcgen05_fence_before(m, ag, site, mask)
    queue = queue_of(ag, lane)
    bits = ag.publish(mask) & ~not_published_by_commits(m)
    arrivals = []
    for target in targets:
        if target.state != LIVE:
            faults.not_live(m, target, site, ag)
        bit = arrival_bit(m, ag, site, Arriver(ag.uid, lane), target)
        arrivals.append((target, bit))
    queue.uncommitted = 0
    queue.committed = site
    queue.end = max(queue.end, ag.time)
    m.issue(queue, CommitUnit(site, queue, bits, ag, arrivals, queue.end))
