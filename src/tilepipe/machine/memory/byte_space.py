"""The shared memory of a CTA as bytes: what a front end that works with addresses reads and writes.

An access by address is ordered against the live ones by the same rules as one to a typed tile
(`happens_before.conflicts`); only what it touches is another kind of set. A typed tile of which
something accesses a byte by address becomes a view of these bytes, so that accesses of both kinds
are compared byte by byte, and each sees what the other wrote.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilepipe.errors import SimFault
from tilepipe.ir import dtypes
from tilepipe.machine.barriers.mbarrier import LIVE, WORD_BYTES, Mbarrier
from tilepipe.machine.faults import addresses
from tilepipe.machine.faults import messages as faults
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.happens_before.conflicts import access
from tilepipe.machine.memory.byte_sets import Bytes, ByteSet, LaneBytes, one_lane_each
from tilepipe.machine.memory.tile_bytes import OneTile
from tilepipe.machine.memory.tiles import PARTIAL, Slot

if TYPE_CHECKING:
    from tilepipe.machine.agents import Agent
    from tilepipe.machine.cta import Cta
    from tilepipe.machine.machine import Machine
    from tilepipe.machine.sites import Site


class ByteSpace(Slot):
    """The bytes of a CTA's shared memory.

    Attributes:
        memory: what they hold. present: which of them have been written.
        size: how many there are.
    """

    axes = ("row", "byte")
    unit = "bytes"
    __slots__ = ("memory", "present", "size")

    def __init__(self, cta: Cta, size: int) -> None:
        super().__init__(cta, OneTile("shared memory", dtypes.uint8, 1, size), 0)
        self.size = size
        self.memory: Bytes = self._data[0]
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.state = PARTIAL
        self.filled = np.zeros((1, self.size), np.bool_)
        self.present: npt.NDArray[np.bool_] = self.filled[0]

    def overwritten(self) -> None:
        """What a write through a typed tile leaves here is what it wrote."""

    # -- which accesses touch what -----------------------------------------------------

    def bytes_of(self, access: Access) -> ByteSet:
        """The bytes that an access touches."""
        if isinstance(access.points, ByteSet):
            return access.points
        _, _, lo, hi = access.rect
        return ByteSet.span(lo, hi - lo)

    def points_meet(self, a: Access, b: Access) -> bool:
        return self.bytes_of(a).meets(self.bytes_of(b))

    def one_lane_each(self, a: Access, b: Access) -> bool:
        return one_lane_each(self.bytes_of(a), self.bytes_of(b))

    def covers(self, new: Access, old: Access) -> bool:
        return self.bytes_of(old).within(self.bytes_of(new))

    def extent(self, access: Access) -> str:
        return str(self.bytes_of(access))

    # -- accesses ----------------------------------------------------------------------

    def record(
        self,
        m: Machine,
        ag: Agent,
        site: Site,
        mask: int,
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
        self._check_range(ag, site, touched)
        self._check_words(ag, site, touched, is_write)
        self._join_tiles(touched)
        exact = touched if isinstance(touched, LaneBytes) or not touched.is_span else None
        rect = (0, 1, touched.lo, touched.hi)
        made = Access(ag, site, mask, rect, is_write, asynchronous, m.order.new_bit(), exact)
        if not asynchronous:
            if is_write or m.world.strict:
                m.order.add_fences(made, self.cta.rank)
            if m.world.compiled.commits:
                m.order.add_sure(made)
        return made

    def order(self, m: Machine, new: Access, known: int) -> int:
        """Orders an access against the live ones; a read must not see poison. Returns the bits of
        those that it is ordered after.
        """
        need = access(m, self, new, known)
        if not new.is_write:
            touched = self.bytes_of(new)
            there = self.present[touched.lo : touched.hi]
            if not there.all():
                missing = int((~self.present[touched.addresses()]).sum())
                if missing:
                    faults.poison(m, self, new, missing)
        return need

    def put(self, addresses: npt.NDArray[np.int64], values: Bytes) -> None:
        """Writes bytes."""
        self.memory[addresses] = values
        self.present[addresses] = True

    def _check_range(self, ag: Agent, site: Site, touched: ByteSet) -> None:
        if touched.lo < 0 or touched.hi > self.size:
            raise SimFault(
                f"{site.what}: {ag} accesses {touched} of shared memory, and the CTA has"
                f" {self.size:,} bytes of it, 0x0..{self.size - 1:#x}.",
                site.loc,
            )

    def _check_words(self, ag: Agent, site: Site, touched: ByteSet, is_write: bool) -> None:
        """An mbarrier is an opaque object: nothing but mbarrier operations may access its bytes
        (PTX ISA, mbarrier, "Size and alignment").
        """
        for bar in self.cta.bars:
            if bar.state != LIVE or not touched.lo < bar.address + WORD_BYTES:
                continue
            if bar.address < touched.hi and touched.meets(ByteSet.span(bar.address, WORD_BYTES)):
                addresses.barrier_word(bar, ag, site, str(touched), is_write)

    def _join_tiles(self, touched: ByteSet) -> None:
        """The typed tiles that have some of these bytes become views of them."""
        for slot in self.cta.slots:
            if slot is self or slot is self.cta.tmem or slot.space is not None:
                continue
            end = slot.base + slot.buffer.dtype.bytes_of(slot.buffer.rows * slot.buffer.cols)
            if slot.base < touched.hi and touched.lo < end:
                slot.give_to(self)
                self.views = (*self.views, slot)

    # -- mbarriers ---------------------------------------------------------------------

    def write_word(self, m: Machine, ag: Agent, site: Site, mask: int, bar: Mbarrier) -> None:
        """mbarrier.init and .inval write the barrier's 8 bytes, as ordinary stores would."""
        word = ByteSet.span(bar.address, WORD_BYTES)
        lanes = LaneBytes([(mask & -mask, bar.address, WORD_BYTES)])
        made = self.record(
            m, ag, site, mask, lanes if mask & mask - 1 == 0 else word,
            is_write=True, asynchronous=False,
        )  # fmt: skip
        self.order(m, made, ag.known(mask))
        ag.made(mask, made.bit | made.sure)
        self.present[word.lo : word.hi] = False
