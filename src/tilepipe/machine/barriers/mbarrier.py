"""mbarriers and their arithmetic (PTX ISA, "mbarrier").

An mbarrier has an expected count, pending arrivals, a signed number of pending transaction bytes,
and a phase. On hardware the phase is one parity bit; here it is a full number, so that a wait which
the bit would answer wrongly is seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from tilepipe.errors import BarrierError
from tilepipe.ir.rules.mbarrier import MAX_COUNT, MAX_TX_BYTES
from tilepipe.machine.agents import BLOCKED, Agent, Blocked
from tilepipe.machine.faults import addresses
from tilepipe.machine.faults import messages as faults
from tilepipe.machine.journal import Touch
from tilepipe.machine.sites import SETUP

if TYPE_CHECKING:
    from tilepipe.machine.cta import Cta
    from tilepipe.machine.machine import Machine
    from tilepipe.machine.sites import Site
    from tilepipe.machine.units.tma import TmaLoadUnit

UNINITIALISED, LIVE, INVALIDATED = 0, 1, 2
WORD_BYTES = 8  # an mbarrier in shared memory (PTX ISA, mbarrier, size and alignment)
_NEVER = -(1 << 40)  # the phase of a barrier that is not live: no wait matches it


class Mbarrier:
    """One mbarrier.

    Attributes:
        flat: what names it among the mbarriers of its CTA (`Cta.bars`): its number, or its
            address. address: in shared memory.
        phase: number of the phase in progress; phases below it are complete.
        count: arrivals of a phase. pending: arrivals still to come.
        tx: bytes still to come (negative: delivered early). expected: bytes announced in this
            phase.
        copies: the TMA loads issued in it. inflight: their bytes not landed yet.
        arrivals: who arrived in this phase, for messages. last_arrivals, last_copies: of the phase
            before.
        completions: phases completed since the CTA started.
        acc: knowledge released into this phase. known: what every completed phase released.
        doubled: (phase, arrivals) of the first phase in which an agent arrived twice; for messages.
        completed_by: the op whose arrival, or bytes, completed the phase before; for messages.
        waiters: agents to wake when the phase completes.
        born: the bit of its initialisation, in a cluster or in a role; fenced, proxied: one that
            whoever comes after a fence.mbarrier_init, or a fence.proxy.async, of the initialising
            thread knows. maker: that thread, (agent, mask).
        by_parity: some wait on its array gives a parity. over: then, of the last two phases that
        completed, latest first, a bit that whoever knows of the completion knows.
        in_role, again: it was initialised in a role, and after it had been invalidated.
        acc_time, time: virtual times of the last arrival of this phase, and of the last completion.
    """

    __slots__ = (
        "acc", "acc_time", "address", "again", "array", "arrivals", "born", "by_parity", "completed_by",
        "completions", "copies", "count", "cta", "doubled", "expected", "fenced", "flat",
        "in_role", "index", "inflight", "init_site", "known", "last_arrivals", "last_copies",
        "maker", "over", "pending", "phase", "proxied", "size", "state", "time", "tx", "waiters",
    )  # fmt: skip

    def __init__(
        self,
        cta: Cta,
        array: str,
        index: int,
        size: int,
        flat: int,
        by_parity: bool = False,
        *,
        address: int,
    ) -> None:
        self.cta = cta
        self.address = address
        self.flat = flat
        self.by_parity = by_parity
        self.array = array
        self.index = index
        self.size = size
        self.completions = 0
        self.reset()

    def reset(self) -> None:
        """Memory that holds no barrier."""
        self.state = UNINITIALISED
        self.count = self.pending = self.tx = self.expected = self.inflight = 0
        self.phase = _NEVER
        self.acc = self.known = 0
        self.acc_time = self.time = 0.0
        self.copies: list[TmaLoadUnit] = []
        self.arrivals: list[tuple[Agent, Site, int]] = []
        self.last_arrivals: list[tuple[Agent, Site, int]] = []
        self.last_copies: list[TmaLoadUnit] = []
        self.waiters: list[Agent] = []
        self.born = self.fenced = self.proxied = 0
        self.over = (0, 0)
        self.in_role = self.again = False
        self.maker: tuple[int, int] = (-1, 0)
        self.init_site: Site | None = None
        self.completed_by: Site | None = None
        self.doubled: tuple[int, list[tuple[Agent, Site, int]]] | None = None

    @property
    def name(self) -> str:
        return f"{self.array}[{self.index}]" if self.size > 1 else self.array

    @property
    def where(self) -> str:
        """The name, with the CTA where there is more than one."""
        return f"{self.name} of CTA {self.cta.block_id}" if self.cta.grid > 1 else self.name

    def forget(self, dead: int) -> None:
        keep = ~dead
        self.acc &= keep
        self.known &= keep


def complete(m: Machine, bar: Mbarrier, site: Site) -> None:
    """The phase completes: nothing is pending any more."""
    if bar.inflight:
        faults.completes_early(bar, site)
    if m.journal is not None:
        m.journal.completed(bar, bar.phase)
    if bar.waiters:
        m.ready.extend(bar.waiters)
        bar.waiters = []
    bar.phase += 1
    bar.completed_by = site
    bar.completions += 1
    bar.pending = bar.count
    bar.known |= bar.acc
    bar.acc = 0
    if bar.by_parity:
        m.order.retire_bit(bar.over[1])
        bar.over = m.order.new_bit(), bar.over[0]
        bar.known |= bar.over[0]
    bar.time = bar.acc_time
    bar.expected = 0
    if bar.doubled is None and len(bar.arrivals) > len({id(agent) for agent, _, _ in bar.arrivals}):
        bar.doubled = bar.phase - 1, bar.arrivals
    bar.last_arrivals, bar.arrivals = bar.arrivals, []
    bar.last_copies, bar.copies = bar.copies, []


def credit(m: Machine, bar: Mbarrier, nbytes: int, site: Site) -> None:
    """complete_tx: `nbytes` have arrived."""
    bar.tx -= nbytes
    if bar.pending == 0:
        if bar.tx == 0:
            complete(m, bar, site)
        elif bar.tx < 0:
            faults.too_many_bytes(bar, site)
    if bar.tx < -MAX_TX_BYTES:
        faults.tx_range(bar, site)


# -- mbarrier ops ----------------------------------------------------------------------


def mbar_init(
    m: Machine, ag: Agent, site: Site, mask: int, first: int, size: int, count: int
) -> None:
    """mbarrier.init of `size` barriers, of which `first` is the first."""
    if not 1 <= count <= MAX_COUNT:
        raise BarrierError(
            f"{site.what}: a count of {count}; an mbarrier counts 1 .. {MAX_COUNT} arrivals",
            site.loc,
        )
    for number in range(first, first + size):
        bar = ag.cta.bars[number]
        if bar.state == LIVE:
            faults.reinit(bar, site)
        if ag.cta.space is not None:
            addresses.misplaced(bar, ag, site)
            ag.cta.space.write_word(m, ag, site, mask, bar)
        again = bar.state == INVALIDATED
        bar.reset()
        bar.state = LIVE
        bar.count = bar.pending = count
        bar.phase = 0
        bar.init_site = site
        bar.in_role, bar.again, bar.maker = site.role != SETUP, again, (ag.uid, mask)
        if bar.in_role:
            m.reborn.append(bar)
        if len(m.ctas) > 1 or bar.in_role:
            bar.born = m.order.new_bit()
            ag.acquire(mask, bar.born)
        for agent in ag.cta.agents:
            agent.passed.pop((ag.cta.rank, bar.flat), None)
        if m.journal is not None:
            m.journal.born(bar, mask)


def mbar_inval(m: Machine, ag: Agent, site: Site, mask: int, bar: int) -> None:
    """mbarrier.inval."""
    b = ag.cta.bars[bar]
    if b.state != LIVE:
        faults.not_live(b, site, ag)
    if b.waiters:
        raise BarrierError(f"{b.where} is invalidated while {b.waiters[0]} waits on it", site.loc)
    m.order.retire_bit(b.born | b.fenced | b.proxied | b.over[0] | b.over[1])
    if b in m.reborn:
        m.reborn.remove(b)
    b.reset()
    b.state = INVALIDATED
    if ag.cta.space is not None:
        ag.cta.space.write_word(m, ag, site, mask, b)
    if m.journal is not None:
        m.journal.died(b, mask)


def mbar_arrive(
    m: Machine, ag: Agent, site: Site, mask: int, bar: int, count: int, cta: int | None = None
) -> None:
    """mbarrier.arrive by each thread of `mask`, `count` each; on the copy in CTA rank `cta` of the
    cluster.
    """
    b = ag.cta.bars[bar] if cta is None else remote(m, ag, site, cta, bar)
    n = count if mask & (mask - 1) == 0 else count * mask.bit_count()
    if n > b.pending or n < 1:
        faults.cannot_arrive(m, b, site, ag, n)
    if site.relaxed and b.cta is not ag.cta:
        b.acc |= ag.retired
        if ag.handed:
            b.acc |= ag.publish(mask) & ag.handed
        if ag.tensor is not None:
            b.acc |= ag.publish(mask) & ag.tensor.published
    else:
        b.acc |= ag.publish(mask) if ag.split else ag.k
    if b.cta is not ag.cta:
        note_remote(m, ag, site, mask, b)
    if m.journal is not None:
        m.journal.touch(Touch.ARRIVE, b, b.phase, mask)
    arrived(m, b, ag, site, n, ag.time)


def arrived(m: Machine, b: Mbarrier, ag: Agent, site: Site, n: int, time: float) -> None:
    """`n` arrivals take effect, of as many as are pending at least."""
    b.arrivals.append((ag, site, n))
    b.pending -= n
    if time > b.acc_time:
        b.acc_time = time
    if b.pending == 0:
        if b.tx == 0:
            complete(m, b, site)
        elif b.tx < 0:
            faults.too_many_bytes(b, site)


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
        faults.not_live(b, site, ag)
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
    for lane, part in each_lane(mask):
        mbar_arrive(m, ag, site, part, bar, count, int(ctas[lane - base]))


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
    for lane, part in each_lane(mask):
        mbar_expect(m, ag, site, part, bar, nbytes, arrive, int(ctas[lane - base]))


def each_lane(mask: int) -> Iterator[tuple[int, int]]:
    """(number, mask) of each thread of a mask."""
    while mask:
        part = mask & -mask
        yield part.bit_length() - 1, part
        mask ^= part


def mbar_complete_tx(
    m: Machine, ag: Agent, site: Site, mask: int, bar: int, nbytes: int, cta: int | None = None
) -> None:
    """Credits bytes without a copy."""
    b = ag.cta.bars[bar] if cta is None else remote(m, ag, site, cta, bar)
    if b.state != LIVE:
        faults.not_live(b, site, ag)
    if b.cta is not ag.cta:
        note_remote(m, ag, site, mask, b)
    if m.journal is not None and nbytes:  # nothing waits for no bytes
        m.journal.touch(Touch.CREDIT, b, b.phase, mask)
    credit(m, b, nbytes * mask.bit_count(), site)


def mbar_wait(m: Machine, ag: Agent, site: Site, mask: int, bar: int, phase: int) -> Blocked | None:
    """Blocks until phase number `phase` is complete."""
    b = ag.cta.bars[bar]
    if phase != b.phase - 1:
        return _wait_slow(m, ag, site, b, phase)
    if mask == ag.full:
        ag.k |= b.known
    else:
        ag.acquire(mask, b.known)
    if b.time > ag.time:
        ag.time = b.time
    if site.by_parity:
        key = b.cta.rank, bar
        if ag.passed.get(key) == phase:
            ag.repeated[key] = phase, site
        else:
            ag.passed[key] = phase
            ag.repeated.pop(key, None)
    if m.journal is not None:
        m.journal.passed(b, phase, mask)
    return None


def _wait_slow(m: Machine, ag: Agent, site: Site, b: Mbarrier, phase: int) -> Blocked:
    if b.state != LIVE:
        faults.not_live(b, site, ag)
    if phase < b.phase - 1:
        faults.lapped(m, b, site, ag, phase)
    if phase > b.phase:
        faults.ahead(b, site, ag, phase)
    b.waiters.append(ag)
    return BLOCKED


def mbar_wait_parity(
    m: Machine, ag: Agent, site: Site, mask: int, bar: int, parity: int
) -> Blocked | None:
    """A wait that gives a parity; see `phase_of`."""
    return mbar_wait(m, ag, site, mask, bar, phase_of(ag, bar, parity, mask))


def phase_of(ag: Agent, bar: int, parity: int, mask: int | None = None) -> int:
    """The phase that threads of an agent mean by a parity: the last one that they know to be
    complete if it has that parity, else the one after it.

    They know of a phase that they have waited for, and of one that somebody has waited for on whom
    they have waited since. Where they know less than that, the phase may be one that is over
    already: the wait was lapped.
    """
    last = ag.passed.get((ag.cta.rank, bar), -1)
    phase = last if last & 1 == parity & 1 else last + 1
    b = ag.cta.bars[bar]
    if phase >= b.phase - 1:
        return phase
    known = ag.known(ag.full if mask is None else mask)
    for age, bit in enumerate(b.over, 1):
        if bit & known:
            last = b.phase - age
            return last if last & 1 == parity & 1 else last + 1
    return phase


def mbar_try_wait(m: Machine, ag: Agent, site: Site, mask: int, bar: int, phase: int) -> bool:
    """Whether phase `phase` is complete; learns what it released if so."""
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
    """The copy of a barrier in a CTA of the cluster, whose initialisation must have reached this
    one.
    """
    if not 0 <= cta < len(m.ctas):
        raise BarrierError(f"{site.what}: CTA rank {cta} of a cluster of {len(m.ctas)}", site.loc)
    b = m.ctas[cta].bars[bar]
    if b.cta is not ag.cta and not b.fenced & (ag.everything() if ag.split else ag.k):
        faults.not_visible(b, site, ag)
    return b


def note_remote(m: Machine, ag: Agent, site: Site, mask: int, b: Mbarrier) -> None:
    """A remote arrive is an access to the peer's life time: the peer must learn of it before it
    exits.
    """
    key = (ag.uid, b.flat)
    old = b.cta.arrivals.get(key)
    if old is not None:
        m.order.retire_bit(old[0])
    bit = m.order.new_bit()
    b.cta.arrivals[key] = (bit, ag, site)
    b.acc |= bit
    # in program order: what these threads release later, the cluster barrier included, tells of it
    ag.acquire(mask, bit)
