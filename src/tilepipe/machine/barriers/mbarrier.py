"""mbarriers and their arithmetic (PTX ISA, "mbarrier").

An mbarrier has an expected count, pending arrivals, a signed number of pending transaction bytes,
and a phase. On hardware the phase is one parity bit; here it is a full number, so that a wait which
the parity bit would let pass wrongly is found.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from tilepipe.errors import BarrierError
from tilepipe.ir.chip import MAX_COUNT, MAX_TX_BYTES
from tilepipe.machine.actors import BLOCKED, Blocked
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.state import (
    INVALIDATED,
    LIVE,
    WORD_BYTES,
    Mbarrier,
    MbarrierArrival,
    Released,
)
from tilepipe.machine.cta import Arriver, Cta
from tilepipe.machine.faults import mbarriers as faults
from tilepipe.machine.happens_before import flags
from tilepipe.machine.happens_before.memory_order import Scope, Strong, Value
from tilepipe.machine.journal import Touch
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_access import write_word
from tilepipe.machine.memory.tensor_access import registers_moved
from tilepipe.machine.past_waits import PastWaits
from tilepipe.machine.rules import RELAXED_HAND_BACK, SCOPE_OF_WAIT, TENSOR_FENCES
from tilepipe.machine.sites import SETUP, Site
from tilepipe.machine.thread_masks import lanes_in


def release(m: Machine, bar: Released, number: int) -> None:
    """Phase `number` of a barrier of any kind completes: what was released into it becomes known,
    and those that wait go on.
    """
    if m.journal is not None:
        m.journal.completed(bar, number)
    if bar.waiters:
        m.wake(bar.waiters)
        bar.waiters = []
    bar.known |= bar.acc
    bar.acc = 0
    bar.time = bar.acc_time
    if m.world.recorder is not None:
        m.world.recorder.completed(bar, number)


def complete(m: Machine, bar: Mbarrier, site: Site) -> None:
    """The phase completes: no arrival and no byte is pending."""
    if bar.inflight:
        faults.completes_early(m, bar, site)
    release(m, bar, bar.phase)
    bar.phase += 1
    bar.completed_by = site
    bar.completions += 1
    bar.pending = bar.count
    if bar.by_parity:
        m.order.retire_bit(bar.completion_bits[1])
        bar.completion_bits = m.order.new_bit(), bar.completion_bits[0]
        bar.known |= bar.completion_bits[0]
    bar.expected = 0
    arrivals = bar.arrivals
    repeats = len(arrivals) > 1 and len({a.who for a in arrivals}) < len(arrivals)
    if repeats and bar.repeated_arrivals is None:
        bar.repeated_arrivals = bar.phase - 1, arrivals
    bar.last_arrivals, bar.arrivals = arrivals, []
    bar.last_copies, bar.copies = bar.copies, []


def credit(m: Machine, bar: Mbarrier, nbytes: int, site: Site) -> None:
    """complete_tx: `nbytes` have arrived."""
    bar.tx -= nbytes
    if bar.pending == 0:
        if bar.tx == 0:
            complete(m, bar, site)
        elif bar.tx < 0:
            faults.too_many_bytes(m, bar, site)
    if bar.tx < -MAX_TX_BYTES:
        faults.tx_range(bar, site)


# -- mbarrier ops ----------------------------------------------------------------------


def mbar_init(
    m: Machine, ag: Agent, site: Site, mask: int, first: int, size: int, count: int
) -> None:
    """mbarrier.init of `size` adjacent barriers. `first`: the number or the address of the
    first.
    """
    if not 1 <= count <= MAX_COUNT:
        raise BarrierError(
            f"{site.what}: a count of {count}; an mbarrier counts 1 .. {MAX_COUNT} arrivals",
            site.loc,
        )
    step = 1 if isinstance(ag.cta.bars, list) else WORD_BYTES
    for number in range(first, first + size * step, step):
        bar = ag.cta.bars[number]
        if bar.state == LIVE:
            faults.reinit(bar, site)
        if ag.cta.space is not None:
            faults.misplaced(ag.cta, bar, ag, site)
            write_word(m, ag, site, mask, ag.cta.space, bar)
        again = bar.state == INVALIDATED
        bar.reset()
        bar.state = LIVE
        bar.count = bar.pending = count
        bar.phase = 0
        bar.init_site = site
        bar.in_role, bar.reinitialised, bar.initialiser = site.role != SETUP, again, (ag.uid, mask)
        if bar.in_role:
            m.initialised_in_roles.append(bar)
        if len(m.ctas) > 1 or bar.in_role:
            bar.init_bit = m.order.new_bit()
            ag.acquire(mask, bar.init_bit)
        for agent in ag.cta.agents:
            agent.passed.pop((ag.cta.rank, bar.flat), None)
            agent.waited.pop((ag.cta.rank, bar.flat), None)
        if m.journal is not None:
            m.journal.initialised(bar, mask)


def mbar_inval(m: Machine, ag: Agent, site: Site, mask: int, bar: int) -> None:
    """mbarrier.inval."""
    b = ag.cta.bars[bar]
    if b.state != LIVE:
        faults.not_live(m, b, site, ag)
    if b.waiters:
        raise BarrierError(f"{b.where} is invalidated while {b.waiters[0]} waits on it", site.loc)
    m.order.retire_bit(
        b.init_bit | b.fenced | b.proxy_bit | b.completion_bits[0] | b.completion_bits[1]
    )
    if b in m.initialised_in_roles:
        m.initialised_in_roles.remove(b)
    b.reset()
    b.state = INVALIDATED
    if ag.cta.space is not None:
        write_word(m, ag, site, mask, ag.cta.space, b)
    if m.journal is not None:
        m.journal.invalidated(b, mask)


def mbar_arrive(
    m: Machine, ag: Agent, site: Site, mask: int, bar: int, count: int, cta: int | None = None
) -> None:
    """mbarrier.arrive by each thread of `mask`, `count` each; on the copy in CTA rank `cta` of the
    cluster.
    """
    b = ag.cta.bars[bar] if cta is None else remote(m, ag, site, cta, bar)
    n = count if mask & (mask - 1) == 0 else count * mask.bit_count()
    if n > b.pending or n < 1:
        faults.cannot_arrive(m, b, site, ag, n, mask)
    if site.relaxed or (site.near and b.cta is not ag.cta):
        bits = _published(m, ag, site, mask, b)
    else:
        bits = ag.publish(mask) if ag.split else ag.k
    if b.cta is not ag.cta:
        b.far |= bits & ~(b.acc | b.known)
        b.acc |= bits
        note_remote(m, ag, site, mask, b)
    else:
        b.acc |= bits
        if b.far:
            b.far &= ~bits
    if m.journal is not None:
        m.journal.touch(Touch.ARRIVE, b, b.phase, mask)
    alone = b.by_parity and n == b.count and mask & (mask - 1) == 0 and not b.expected
    phase = b.phase
    arrived(m, b, MbarrierArrival(ag, site, n, (mask & -mask).bit_length() - 1 >> 5), ag.time)
    if alone and b.phase > phase:  # the thread knows that the phase is complete
        if m.world.program.addressed:
            ag.acquire(mask, b.completion_bits[0])
        elif b.cta is ag.cta and phase == 0:
            # The first phase is completed so to begin with a barrier that has been signalled. A
            # later one is an arrival too many, and the wait that missed its phase says so.
            ag.passed[b.cta.rank, bar] = phase


def _published(m: Machine, ag: Agent, site: Site, mask: int, b: Mbarrier) -> int:
    """The knowledge that an arrive publishes although it releases nothing to the CTA of its
    barrier: what fences and waits of its threads have published before.
    """
    bits, known = ag.retired, ag.publish(mask)
    if ag.handed_on:
        bits |= known & ag.handed_on
    if ag.tensor is not None:
        bits |= known & ag.tensor.published
    if m.published.made:
        scope = Scope.CTA if b.cta is ag.cta else Scope.CLUSTER
        bits |= flags.released(m, ag, known, scope)
    if b.cta is not ag.cta:
        if not m.world.asks(RELAXED_HAND_BACK):
            bits |= known & _events(m, ag.cta, b.cta.rank)
        if (
            not m.world.asks(TENSOR_FENCES)
            and m.world.program.addressed
            and not site.relaxed
            and ag.cta.tmem is not None
        ):
            bits |= known & registers_moved(ag.cta.tmem)
    return bits


def _events(m: Machine, cta: Cta, rank: int) -> int:
    """The knowledge that an arrive on a barrier of another CTA publishes in practice, besides
    accesses to memory: of arrivals on barriers there, and of an alloc of a pair
    (`rules.RELAXED_HAND_BACK`).
    """
    bits = 0
    for bit, *_ in m.ctas[rank].arrivals.values():
        bits |= bit
    if cta.tmem is not None:
        for allocation in cta.tmem.allocations.values():
            bits |= allocation.through
    return bits


def arrived(m: Machine, b: Mbarrier, arrival: MbarrierArrival, time: float) -> None:
    """Arrivals take effect; at least as many are pending."""
    b.arrivals.append(arrival)
    b.arrivers[arrival.who] = arrival
    b.pending -= arrival.number
    if m.world.recorder is not None:
        m.world.recorder.arrived(b, arrival.agent, arrival.site, time)
    if time > b.acc_time:
        b.acc_time = time
    if b.pending == 0:
        if b.tx == 0:
            complete(m, b, arrival.site)
        elif b.tx < 0:
            faults.too_many_bytes(m, b, arrival.site)


def mbar_expect(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    bar: int,
    nbytes: int,
    arrive: bool,
    cta: int | None = None,
) -> None:
    """mbarrier.arrive.expect_tx, or expect_tx alone, by each thread of `mask`."""
    b = ag.cta.bars[bar] if cta is None else remote(m, ag, site, cta, bar)
    lanes = mask.bit_count()
    if b.state != LIVE:
        faults.not_live(m, b, site, ag)
    if nbytes < 0:
        raise BarrierError(f"{site.what}: expects {nbytes} bytes on {b.where}", site.loc)
    b.tx += nbytes * lanes
    b.expected += nbytes * lanes
    if b.tx > MAX_TX_BYTES:
        faults.tx_range(b, site)
    if arrive:
        mbar_arrive(m, ag, site, mask, bar, 1, cta)
        return
    if b.cta is not ag.cta:
        note_remote(m, ag, site, mask, b)
    if m.journal is not None and nbytes:
        m.journal.touch(Touch.EXPECT, b, b.phase, mask)
    if b.pending == 0 and b.tx == 0:
        complete(m, b, site)


def mbar_drop(
    m: Machine, ag: Agent, site: Site, mask: int, bar: int, count: int, cta: int | None = None
) -> None:
    """mbarrier.arrive_drop: arrives, and lowers the count of the phases after this one."""
    b = ag.cta.bars[bar] if cta is None else remote(m, ag, site, cta, bar)
    dropped = count * mask.bit_count()
    if b.state == LIVE and dropped > b.count:
        raise BarrierError(
            f"{site.what}: {ag} drops {dropped} arrivals of {b.where}, which counts {b.count}",
            site.loc,
        )
    b.count -= dropped
    mbar_arrive(m, ag, site, mask, bar, count, cta)
    b.arrivers.clear()  # who arrives in the phases after this one is not known


def check_stays_open(m: Machine, ag: Agent, site: Site, mask: int, bar: int, count: int) -> None:
    """mbarrier.arrive.noComplete: raises BarrierError where the arrivals would complete the
    phase.
    """
    b = ag.cta.bars[bar]
    n = count * mask.bit_count()
    if b.state == LIVE and n == b.pending and b.tx <= 0:
        raise BarrierError(
            f"{site.what}: {ag} arrives {n} times on {b.where}, of which {b.pending} arrivals are"
            f" pending: that completes phase {b.phase}, and .noComplete says that it does not.",
            site.loc,
        )


def mbar_arrive_each(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    bar: int,
    count: int,
    ctas: npt.NDArray[Any],
    base: int,
) -> None:
    """mbarrier.arrive by each thread of `mask`, on the copy in the CTA that it names: `ctas`, of
    the threads from `base`.
    """
    for lane in lanes_in(mask):
        mbar_arrive(m, ag, site, 1 << lane, bar, count, int(ctas[lane - base]))


def mbar_expect_each(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    bar: int,
    nbytes: int,
    arrive: bool,
    ctas: npt.NDArray[Any],
    base: int,
) -> None:
    """`mbar_expect` in the same way."""
    for lane in lanes_in(mask):
        mbar_expect(m, ag, site, 1 << lane, bar, nbytes, arrive, int(ctas[lane - base]))


def mbar_complete_tx(
    m: Machine, ag: Agent, site: Site, mask: int, bar: int, nbytes: int, cta: int | None = None
) -> None:
    """Credits bytes without a copy."""
    b = ag.cta.bars[bar] if cta is None else remote(m, ag, site, cta, bar)
    if b.state != LIVE:
        faults.not_live(m, b, site, ag)
    if b.cta is not ag.cta:
        note_remote(m, ag, site, mask, b)
    if m.journal is not None and nbytes:  # nothing waits for no bytes
        m.journal.touch(Touch.CREDIT, b, b.phase, mask)
    credit(m, b, nbytes * mask.bit_count(), site)


def mbar_wait(m: Machine, ag: Agent, site: Site, mask: int, bar: int, phase: int) -> Blocked | None:
    """Blocks until phase number `phase` is complete."""
    b = ag.cta.bars[bar]
    if phase != b.phase - 1:
        return _wait_slow(m, ag, site, mask, b, phase)
    if site.relaxed or (site.near and b.far and _is_near(m, site)):
        _see(m, ag, site, mask, b)
    elif mask == ag.full:
        ag.k |= b.known
    else:
        ag.acquire(mask, b.known)
    if b.time > ag.time:
        if m.world.recorder is not None:
            m.world.recorder.waited(ag, site, b, phase)
        ag.time = b.time
    if site.parity or site.by_parity:
        key = b.cta.rank, bar
        if site.by_parity:
            ag.passed[key] = phase
        waited = ag.waited.get(key)
        if waited is None:
            ag.waited[key] = PastWaits(site, phase, mask)
        else:
            waited.passed(site, phase, mask)
    if m.journal is not None:
        m.journal.passed(b, phase, mask)
    return None


def _is_near(m: Machine, site: Site) -> bool:
    """True if a wait acquires only what threads of its own CTA have released: where it says so, or
    by the letter where it names no scope.
    """
    return site.near and (not site.unscoped or m.world.asks(SCOPE_OF_WAIT))


def _see(m: Machine, ag: Agent, site: Site, mask: int, b: Mbarrier) -> None:
    """A wait that acquires nothing, until a fence follows, or only what threads of its own CTA have
    released.
    """
    near, far = (m.cluster_id, ag.cta.rank), (m.cluster_id, -1)
    value = Value(
        b.completed_by or site, near, "those that arrive", Strong(Scope.CLUSTER), b.where,
        {(Scope.CLUSTER, near): b.known & ~b.far, (Scope.CLUSTER, far): b.far}, b.known, True,
    )  # fmt: skip
    scope = Scope.CTA if _is_near(m, site) else Scope.CLUSTER
    flags.observed(m, ag, site, mask, value, Strong(scope, acquires=not site.relaxed))


def _wait_slow(m: Machine, ag: Agent, site: Site, mask: int, b: Mbarrier, phase: int) -> Blocked:
    if b.state != LIVE:
        faults.not_live(m, b, site, ag)
    if phase < b.phase - 1:
        faults.lapped(m, b, site, ag, phase, mask)
    if phase > b.phase:
        faults.ahead(m, b, site, ag, phase)
    b.waiters.append(ag)
    ag.waits = b, phase
    return BLOCKED


def mbar_wait_parity(
    m: Machine, ag: Agent, site: Site, mask: int, bar: int, parity: int
) -> Blocked | None:
    """A wait that gives a parity; see `phase_of`."""
    return mbar_wait(m, ag, site, mask, bar, phase_of(ag, bar, parity, mask))


def phase_of(ag: Agent, bar: int, parity: int, mask: int | None = None) -> int:
    """The phase that threads of an agent mean by a parity: the last one that they know to be
    complete if it has that parity, else the one after it.

    They know that a phase is complete if they have waited for it, if its only arrival was theirs,
    or if they have since synchronised with an agent that knows. Otherwise the phase that they mean
    may be over already, and the wait is lapped.
    """
    last = ag.passed.get((ag.cta.rank, bar), -1)
    phase = last if last & 1 == parity & 1 else last + 1
    b = ag.cta.bars[bar]
    if phase >= b.phase - 1:
        return phase
    known = ag.known(ag.full if mask is None else mask)
    for age, bit in enumerate(b.completion_bits, 1):
        if bit & known:
            last = b.phase - age
            return last if last & 1 == parity & 1 else last + 1
    return phase


def mbar_try_wait(m: Machine, ag: Agent, site: Site, mask: int, bar: int, phase: int) -> bool:
    """True if phase `phase` is complete; if it is, acquires what it released."""
    b = ag.cta.bars[bar]
    outcome = b.state != LIVE or phase != b.phase
    if m.journal is not None and b.state == LIVE:
        m.journal.tried(b, phase, outcome, mask)
    if not outcome:
        return False
    return mbar_wait(m, ag, site, mask, bar, phase) is None


def mbar_try_wait_parity(
    m: Machine, ag: Agent, site: Site, mask: int, bar: int, parity: int
) -> bool:
    """A try_wait that gives a parity; the phase it is for is chosen as in `mbar_wait_parity`."""
    return mbar_try_wait(m, ag, site, mask, bar, phase_of(ag, bar, parity, mask))


def phase_asked(ag: Agent, args: tuple[Any, ...]) -> int:
    """The phase that a wait or a test is for, which gives a full number or a parity; `args` are its
    operands.
    """
    site, mask, bar, given = args
    return phase_of(ag, bar, given, mask) if site.parity else int(given)


def remote(m: Machine, ag: Agent, site: Site, cta: int, bar: int) -> Mbarrier:
    """The copy of a barrier in a CTA of the cluster; its initialisation must be visible to the
    threads of this agent.
    """
    if not 0 <= cta < len(m.ctas):
        raise BarrierError(f"{site.what}: {m.no_cta_of(cta)}", site.loc)
    b = m.ctas[cta].bars[bar]
    if b.cta is not ag.cta and not b.fenced & (ag.everything() if ag.split else ag.k):
        faults.not_visible(b, site, ag)
    return b


def named_by(m: Machine, site: Site, mask: int, what: str) -> list[Cta]:
    """The CTAs of the cluster whose ranks a mask names. `what`: what the mask is called."""
    if not 0 < mask < 1 << len(m.ctas):
        raise BarrierError(
            f"{site.what}: {what} {mask:#b} for a cluster of {len(m.ctas)} CTA(s); it must name at"
            " least one, and no other",
            site.loc,
        )
    return [cta for cta in m.ctas if mask >> cta.rank & 1]


def note_remote(m: Machine, ag: Agent, site: Site, mask: int, b: Mbarrier) -> None:
    """A remote arrive accesses the peer's shared memory: the peer must know of it before it
    exits.
    """
    bit = arrival_bit(m, ag, site, Arriver(ag.uid), b)
    b.acc |= bit
    # in program order: what these threads release later, at the cluster barrier too, includes it
    ag.acquire(mask, bit)


def arrival_bit(m: Machine, ag: Agent, site: Site, who: Arriver, b: Mbarrier) -> int:
    """A bit for an arrival, which `Cta.arrivals` keeps; it replaces that of the last one by
    `who`.
    """
    arrivals, key = m.ctas[b.cta.rank].arrivals, (who, b.flat)
    if key in arrivals:
        m.order.retire_bit(arrivals[key][0])
    bit = m.order.new_bit()
    arrivals[key] = bit, ag, site
    return bit
