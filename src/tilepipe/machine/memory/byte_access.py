"""Accesses to shared memory by address, and ordinary loads and stores (ld.shared, st.shared,
stmatrix) among them.

An access by address is ordered against the live ones by the same rules as one to a typed tile
(`happens_before.conflicts`); only what it touches is another kind of set. A typed tile of which
something accesses a byte by address becomes a view of these bytes, so that accesses of both kinds
are compared byte by byte, and each sees what the other wrote.

In an ordinary access each active lane accesses `nbytes` consecutive bytes at an address of its own.
It is recorded for each warp, with the lane of each byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import RaceError, SimFault
from tilepipe.ir.facts import Unit
from tilepipe.machine.agents import Agent, looked
from tilepipe.machine.barriers.state import LIVE, WORD_BYTES, Mbarrier
from tilepipe.machine.cta import Cta
from tilepipe.machine.faults import mbarriers as faults
from tilepipe.machine.happens_before import flags
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.conflicts import ordinary
from tilepipe.machine.happens_before.memory_order import RELAXED, Strong
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_sets import Bytes, ByteSet, LaneBytes
from tilepipe.machine.memory.elements import cta_of
from tilepipe.machine.memory.poison import Loaded, Origin
from tilepipe.machine.memory.tiles import ByteSpace
from tilepipe.machine.polling import Writers
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import lanes_in, warps_of

Addresses = Sequence[int] | npt.NDArray[np.int64]
Combine = Callable[[Bytes, Bytes], Bytes]  # (what was there, the thread's operand) -> what is then
ROW_BYTES = 16  # of a row of the matrices that ldmatrix and stmatrix move


# -- which bytes -----------------------------------------------------------------------


def asynchronous(
    m: Machine, ag: Agent, site: Site, mask: int, space: ByteSpace, touched: ByteSet, is_write: bool
) -> Access:
    """The record of an access through the async proxy to some bytes.

    Raises:
        SimFault: some of them are out of range, or part of an mbarrier.
    """
    rect, points = _checked(m, ag, site, space, touched, is_write)
    return Access(ag, site, mask, rect, is_write, True, m.order.new_bit(), points)


def _checked(
    m: Machine, ag: Agent, site: Site, space: ByteSpace, touched: ByteSet, is_write: bool
) -> tuple[Rect, ByteSet | None]:
    """`rect` and `points` of an access (`Access`) to bytes that it may touch."""
    cta = m.ctas[space.cta.rank]
    if touched.lo < 0 or touched.hi > space.size:
        named = f"{named}, " if (named := space.named(touched)) else ""
        hint = m.world.program.words.get("smem=", "")
        raise SimFault(
            f"{site.what}: {ag} accesses {named}{touched} of shared memory, and the CTA has"
            f" {space.size:,} bytes of it, 0x0..{space.size - 1:#x}.{hint}",
            site.loc,
        )
    _check_barriers(cta, ag, site, touched, is_write)
    for slot in cta.slots:  # the typed tiles that have some of these bytes become views of them
        if slot is space or slot is cta.tmem or slot.space is not None:
            continue
        if slot.base < touched.hi and touched.lo < slot.end:
            space.join(slot)
    if is_write:
        writer = ag.uid, site.id
        space.writers[writer] = space.writers.get(writer, 0) | touched.mask << touched.lo
    exact = isinstance(touched, LaneBytes) or not touched.is_span
    return (0, 1, touched.lo, touched.hi), touched if exact else None


def _check_barriers(cta: Cta, ag: Agent, site: Site, touched: ByteSet, is_write: bool) -> None:
    """An mbarrier is an opaque object: nothing but mbarrier operations may access its bytes
    (PTX ISA, mbarrier, "Size and alignment").
    """
    for bar in cta.bars:
        if bar.state != LIVE or not touched.lo < bar.address + WORD_BYTES:
            continue
        if bar.address < touched.hi and touched.meets(ByteSet.span(bar.address, WORD_BYTES)):
            faults.barrier_word(bar, ag, site, cta.bytes().shown(touched), is_write)


# -- ordinary accesses -----------------------------------------------------------------


def write_word(
    m: Machine, ag: Agent, site: Site, mask: int, space: ByteSpace, bar: Mbarrier
) -> None:
    """mbarrier.init and .inval write the barrier's 8 bytes, as ordinary stores would."""
    word = ByteSet.span(bar.address, WORD_BYTES)
    by_one = LaneBytes([(mask & -mask, bar.address, WORD_BYTES)])
    rect, points = _checked(m, ag, site, space, by_one if mask & mask - 1 == 0 else word, True)
    ordinary(m, ag, site, mask, space, rect, True, points)
    space.present[word.lo : word.hi] = False


def load_bytes(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    addresses: Addresses,
    nbytes: int,
    cta: int | None = None,
    strong: Strong | None = None,
) -> Bytes:
    """ld.shared: for each thread of the agent, `nbytes` bytes at `addresses[thread]`; zeros for
    those that are not active. `strong`: of a volatile, relaxed or acquiring load. The agent gets
    to know which of them are poison (`Agent.poison`).
    """
    space = cta_of(m, ag, site, cta).bytes()
    out = np.zeros((32 * ag.warps, nbytes), np.uint8)
    active = _in_order(m, ag, site, mask, space, addresses, nbytes, is_write=False, strong=strong)
    where = np.asarray([addresses[lane] for lane in active], np.int64)
    places = where[:, None] + np.arange(nbytes)
    out[active] = space.memory[places]
    if (origin := ag.found) is not None:
        marks = np.zeros_like(out)
        marks[active] = np.where(space.present[places], 0, 0xFF)
        ag.found, ag.poison = None, Loaded(origin, marks)
    if strong is not None:
        for lane in active:
            for at in strong.locations(int(addresses[lane]), nbytes):
                m.in_turn((m.cluster_id, space.cta.rank, at), 1 << lane, False)
                flags.observed(m, ag, site, 1 << lane, space.values.get(at), strong)
        looked(
            ag,
            site,
            mask,
            active,
            addresses,
            out,
            lambda: _name(space, int(where[0])),
            lambda: _writers(m, space, where.tolist(), nbytes),
        )
    return out


def store_bytes(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    addresses: Addresses,
    values: Bytes,
    cta: int | None = None,
    strong: Strong | None = None,
) -> None:
    """st.shared: each active thread stores its row of `values`, (threads, bytes), at
    `addresses[thread]`. `strong`: of a volatile, relaxed or releasing
    store.
    """
    space = cta_of(m, ag, site, cta).bytes()
    nbytes = values.shape[1]
    active = lanes_in(mask)
    where = np.asarray([addresses[lane] for lane in active], np.int64)[:, None] + np.arange(nbytes)
    _in_order(
        m, ag, site, mask, space, addresses, nbytes, is_write=True, strong=strong, stored=values
    )
    space.put(where, values[active])
    if strong is None:
        if space.values:
            flags.overwritten(space.values, where[:, 0].tolist(), nbytes)
    else:
        for lane in active:
            locations = strong.locations(int(addresses[lane]), nbytes)
            access = _written(space, 1 << lane, len(locations))
            for at in locations:
                m.in_turn((m.cluster_id, space.cta.rank, at), 1 << lane, True)
                _wrote(m, ag, site, 1 << lane, space, at, strong, access)
    differs = space.memory[where] != values[active]
    check_one_value(ag, site, active, addresses, differs, ag.cta.names.exactly)


def check_one_value(
    ag: Agent,
    site: Site,
    lanes: Sequence[int],
    addresses: Addresses,
    differs: npt.NDArray[np.bool_],
    exactly: Callable[[int], str],
) -> None:
    """Raises RaceError where memory holds another value, after a store, than one of its lanes has
    stored there. `differs`: a row of bytes for each of the lanes. `exactly`: an address in words.
    """
    if differs.any():
        lane = lanes[int(np.nonzero(differs.any(axis=1))[0][0])]
        raise RaceError(
            f"{site.what}: thread {lane} of {ag} and another one store different values to"
            f" {exactly(int(addresses[lane]))} in one instruction; which value wins is undefined",
            site.loc,
        )


def zero_bytes(
    m: Machine, ag: Agent, site: Site, mask: int, address: int, nbytes: int, cta: int | None = None
) -> None:
    """st.bulk: each active thread stores zeros, at addresses that are multiples of 8."""
    if address % WORD_BYTES or nbytes % WORD_BYTES:
        exactly = ag.cta.names.exactly
        what = f"address {exactly(address)}" if address % WORD_BYTES else f"size {nbytes:,}"
        raise SimFault(
            f"{site.what}: {what} is not a multiple of {WORD_BYTES} (PTX ISA, st.bulk)", site.loc
        )
    if not nbytes:
        return
    space = cta_of(m, ag, site, cta).bytes()
    where = address + np.arange(nbytes)[None, :]
    for _, lanes in warps_of(mask):
        touched = LaneBytes((1 << i, address, nbytes) for i in lanes_in(lanes))
        rect, points = _checked(m, ag, site, space, touched, True)
        ordinary(m, ag, site, lanes, space, rect, True, points)
    space.put(where, np.zeros(where.shape, np.uint8))
    if space.values:
        flags.overwritten(space.values, [address], nbytes)


def atomic_bytes(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    addresses: Addresses,
    operands: Bytes,
    nbytes: int,
    combine: Combine,
    cta: int | None = None,
    strong: Strong = RELAXED,
) -> Bytes:
    """atom.shared, red.shared: one thread after another reads `nbytes` bytes and writes what
    `combine` makes of them. Returns what each thread found.
    """
    space = cta_of(m, ag, site, cta).bytes()
    out = np.zeros((32 * ag.warps, nbytes), np.uint8)
    active = _in_order(
        m, ag, site, mask, space, addresses, nbytes, is_write=True, strong=strong, reads=True
    )
    changed = False
    for lane in active:
        first = int(addresses[lane])
        there = space.memory[first : first + nbytes]
        out[lane] = there
        there[:] = combine(out[lane], operands[lane])
        changes = bool((there != out[lane]).any())
        changed |= changes
        locations = strong.locations(first, nbytes)
        access = _written(space, 1 << lane, len(locations))
        for at in locations:
            m.in_turn((m.cluster_id, space.cta.rank, at), 1 << lane, changes)
            if site.id not in m.world.unread:
                flags.observed(m, ag, site, 1 << lane, space.values.get(at), strong)
            _wrote(m, ag, site, 1 << lane, space, at, strong, access, updates=True)
    if changed:
        ag.repeats = False
    else:
        first = int(addresses[active[0]])
        places = [int(addresses[lane]) for lane in active]
        looked(
            ag, site, mask, active, addresses, out, lambda: _name(space, first),
            lambda: _writers(m, space, places, nbytes),
        )  # fmt: skip
    return out


def reduced(m: Machine, space: ByteSpace, at: int, nbytes: int, element: int) -> None:
    """Reports an asynchronous reduction: what strong accesses find there depends on it."""
    if m.world.looks:
        for place in range(at, at + nbytes, element):
            m.in_turn((m.cluster_id, space.cta.rank, place), 0, True)


def _wrote(
    m: Machine, ag: Agent, site: Site, lane: int, space: ByteSpace, at: int, strong: Strong,
    access: Access | None, *, updates: bool = False,
) -> None:  # fmt: skip
    flags.wrote(
        m, ag, site, lane, space.values, at, strong, _name(space, at), access=access,
        updates=updates, shared=True,
    )  # fmt: skip


def _written(space: ByteSpace, lane: int, locations: int) -> Access | None:
    """The record of the latest access, where it is a write by `lane` alone, to one location
    (`flags.written`).
    """
    latest = space.accesses[-1]
    return latest if latest.mask == lane and locations == 1 else None


def _writers(m: Machine, space: ByteSpace, places: Sequence[int], nbytes: int) -> Writers:
    """What has written some of the bytes that threads look at, `nbytes` at each of `places`."""
    wanted = 0
    for place in places:
        wanted |= ((1 << nbytes) - 1) << place
    return frozenset(
        (m.cluster_id, *writer) for writer, bytes_ in space.writers.items() if bytes_ & wanted
    )


def _name(space: ByteSpace, at: int) -> str:
    """The name of a location in messages."""
    of = f" of CTA {space.cta.block_id}" if space.cta.grid > 1 else ""
    name = space.cta.names.place(at)
    return f"{name}{of}" if name else f"shared memory{of} at {at:#x}"


def load_matrix(
    m: Machine, ag: Agent, site: Site, mask: int, addresses: Addresses, rows: int
) -> Bytes:
    """ldmatrix: the rows of 16 bytes at the addresses of the first threads of a warp: (rows, 16).

    It is a weak access, and no barrier of the warp (PTX ISA, ldmatrix): what other lanes stored
    before is not ordered. What one lane reads, others get, so each lane then knows of all reads.
    """
    first = (mask.bit_length() - 1) // 32 * 32
    lanes = mask & ((1 << rows) - 1) << first
    found = load_bytes(m, ag, site, lanes, addresses, ROW_BYTES)
    made = cta_of(m, ag, site, None).bytes().accesses[-1]
    ag.acquire(mask, made.bit | made.release_bit)
    if ag.poison is not None and ag.poison.marks is not None:
        ag.poison = Loaded(ag.poison.origin, ag.poison.marks[first : first + rows])
    return found[first : first + rows]


def store_matrix(
    m: Machine, ag: Agent, site: Site, mask: int, addresses: Addresses, rows: Bytes
) -> None:
    """stmatrix: a warp stores rows of 16 bytes, (rows, 16), at the addresses of its first threads.
    It is a weak access, and no barrier of the warp (PTX ISA, stmatrix).
    """
    values = np.zeros((32 * ag.warps, ROW_BYTES), np.uint8)
    first = (mask.bit_length() - 1) // 32 * 32
    values[first : first + len(rows)] = rows
    store_bytes(m, ag, site, mask & ((1 << len(rows)) - 1) << first, addresses, values)


def store_poison(
    m: Machine, ag: Agent, site: Site, mask: int, store: Callable[..., None], args: tuple[Any, ...],
    marks: Bytes, origin: Origin,
) -> None:  # fmt: skip
    """`store_bytes` or `store_matrix` of values of which `marks`, in their form, has bits that are
    poison.
    """
    store(m, ag, *args)
    _, lanes, addresses, _, *rest = args
    space = cta_of(m, ag, site, rest[0] if rest else None).bytes()
    first = (lanes.bit_length() - 1) // 32 * 32 if store is store_matrix else 0
    for row, marked in enumerate(marks, first):
        if (lanes >> row & 1) and marked.any():
            space.carry(int(addresses[row]) + np.flatnonzero(marked), origin)


def _in_order(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    space: ByteSpace,
    addresses: Addresses,
    nbytes: int,
    *,
    is_write: bool,
    strong: Strong | None = None,
    reads: bool = False,
    stored: Bytes | None = None,
) -> list[int]:
    """Orders one access for each warp; returns the active threads. `stored`: what each thread of
    the agent stores, where it does nothing else.

    Raises:
        SimFault: an address is no multiple of the size of the access (PTX ISA, ld, st), or out of
            range.
    """
    active = lanes_in(mask)
    for lane in active:
        if addresses[lane] % nbytes:
            raise SimFault(
                f"{site.what}: thread {lane} of {ag} accesses {nbytes} bytes at"
                f" {ag.cta.names.exactly(int(addresses[lane]))}, which is no multiple of {nbytes}",
                site.loc,
            )
    for _, lanes in warps_of(mask):
        touched = LaneBytes((1 << i, int(addresses[i]), nbytes) for i in active if lanes >> i & 1)
        rect, points = _checked(m, ag, site, space, touched, is_write)
        response = m.world.program.hands_on and not is_write and _is_response(space, touched)
        ordinary(
            m, ag, site, lanes, space, rect, is_write, points, strong=strong, reads=reads,
            response=response, stored=None if stored is None else stored[lanes_in(lanes)],
        )  # fmt: skip
    return active


def _is_response(space: ByteSpace, touched: ByteSet) -> bool:
    """True if some of the bytes are of a response to clusterlaunchcontrol.try_cancel."""
    return any(
        written.is_write
        and written.site.facts.unit is Unit.LAUNCH_CONTROL
        and touched.meets(space.bytes_of(written))
        for written in space.near((0, 1, touched.lo, touched.hi))
    )
