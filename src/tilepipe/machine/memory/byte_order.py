"""Ordering accesses to shared memory by address.

An access by address is ordered against the live ones by the same rules as one to a typed tile
(`happens_before.conflicts`); only what it touches is another kind of set. A typed tile of which
something accesses a byte by address becomes a view of these bytes, so that accesses of both kinds
are compared byte by byte, and each sees what the other wrote.
"""

from __future__ import annotations

from tilepipe.errors import SimFault
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.state import LIVE, WORD_BYTES, Mbarrier
from tilepipe.machine.cta import Cta
from tilepipe.machine.faults import addresses, messages as faults
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.happens_before.conflicts import access
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_sets import ByteSet, LaneBytes
from tilepipe.machine.memory.tiles import ByteSpace
from tilepipe.machine.sites import Site


def record(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    space: ByteSpace,
    touched: ByteSet,
    *,
    is_write: bool,
    asynchronous: bool,
) -> Access:
    """An access by the threads of `mask` to some bytes, which are in range and part of no
    mbarrier.

    Raises:
        SimFault: some of them are not.
    """
    cta = m.ctas[space.cta.rank]
    _check_range(space, ag, site, touched)
    _check_words(cta, ag, site, touched, is_write)
    _join_tiles(cta, space, touched)
    exact = touched if isinstance(touched, LaneBytes) or not touched.is_span else None
    rect = (0, 1, touched.lo, touched.hi)
    made = Access(ag, site, mask, rect, is_write, asynchronous, m.order.new_bit(), exact)
    if not asynchronous:
        if is_write or m.world.strict:
            m.order.add_fences(made, space.cta.rank)
        if m.world.program.commits:
            m.order.add_release_bit(made)
    return made


def order(m: Machine, space: ByteSpace, new: Access, known: int) -> int:
    """Orders an access against the live ones; a read must not see poison. Returns the bits of
    those that it is ordered after.
    """
    need = access(m, space, new, known)
    if not new.is_write:
        touched = space.bytes_of(new)
        there = space.present[touched.lo : touched.hi]
        if not there.all():
            missing = int((~space.present[touched.addresses()]).sum())
            if missing:
                faults.poison(m, space, new, missing)
    return need


def _check_range(space: ByteSpace, ag: Agent, site: Site, touched: ByteSet) -> None:
    if touched.lo < 0 or touched.hi > space.size:
        raise SimFault(
            f"{site.what}: {ag} accesses {touched} of shared memory, and the CTA has"
            f" {space.size:,} bytes of it, 0x0..{space.size - 1:#x}.",
            site.loc,
        )


def _check_words(cta: Cta, ag: Agent, site: Site, touched: ByteSet, is_write: bool) -> None:
    """An mbarrier is an opaque object: nothing but mbarrier operations may access its bytes
    (PTX ISA, mbarrier, "Size and alignment").
    """
    for bar in cta.bars:
        if bar.state != LIVE or not touched.lo < bar.address + WORD_BYTES:
            continue
        if bar.address < touched.hi and touched.meets(ByteSet.span(bar.address, WORD_BYTES)):
            addresses.barrier_word(bar, ag, site, str(touched), is_write)


def _join_tiles(cta: Cta, space: ByteSpace, touched: ByteSet) -> None:
    """The typed tiles that have some of these bytes become views of them."""
    for slot in cta.slots:
        if slot is space or slot is cta.tmem or slot.space is not None:
            continue
        if slot.base < touched.hi and touched.lo < slot.end:
            space.join(slot)


def write_word(
    m: Machine, ag: Agent, site: Site, mask: int, space: ByteSpace, bar: Mbarrier
) -> None:
    """mbarrier.init and .inval write the barrier's 8 bytes, as ordinary stores would."""
    word = ByteSet.span(bar.address, WORD_BYTES)
    lanes = LaneBytes([(mask & -mask, bar.address, WORD_BYTES)])
    made = record(
        m, ag, site, mask, space, lanes if mask & mask - 1 == 0 else word,
        is_write=True, asynchronous=False,
    )  # fmt: skip
    order(m, space, made, ag.known(mask))
    ag.made(mask, made.bit | made.release_bit)
    space.present[word.lo : word.hi] = False
