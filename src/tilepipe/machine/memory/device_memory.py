"""Global memory by address: allocations, and ordinary and atomic accesses to their bytes.

All accesses to an allocation, ordinary ones and those of copies, have one order, byte by byte
(`happens_before.byte_events`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError, SimFault
from tilepipe.ir import dtypes
from tilepipe.machine.agents import Agent, looked
from tilepipe.machine.happens_before import flags
from tilepipe.machine.happens_before.byte_events import ByteEvent, ByteOrder, Offsets, Runs
from tilepipe.machine.happens_before.global_memory import runs, taken_for_constant
from tilepipe.machine.happens_before.memory_order import RELAXED, Strong
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_access import Addresses, Combine, check_one_value
from tilepipe.machine.memory.byte_sets import Bytes
from tilepipe.machine.memory.global_memory import GlobalTensor, PlainTensor
from tilepipe.machine.polling import Writers
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import lanes_in

ELEMENT = 2  # the fewest bytes of an element that a copy reduces
GAP = 2 << 20  # bytes between allocations, so that an access beyond one meets no other


class Allocation(NamedTuple):
    """Bytes of global memory from an address on."""

    name: str
    start: int
    data: Bytes
    tensor: GlobalTensor

    @property
    def order(self) -> ByteOrder:
        found = self.tensor.order
        assert isinstance(found, ByteOrder)
        return found

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def element(self, offset: int) -> str:
        """The name of the element at an offset of so many bytes, in messages."""
        return f"'{self.name}' + {offset:,}" if offset else f"'{self.name}'"


class DeviceMemory:
    """The allocations of a launch, each at a multiple of 512 bytes."""

    def __init__(self, first: int) -> None:
        self._allocations: list[Allocation] = []
        self._starts: list[int] = []
        self._by_buffer: dict[int, Allocation] = {}
        self._next = first
        self._given: list[Bytes] = []

    @property
    def tensors(self) -> list[GlobalTensor]:
        """The tensors whose accesses the machine orders: one for each allocation."""
        return [a.tensor for a in self._allocations]

    def address_of(self, name: str, array: npt.NDArray[Any]) -> int:
        """The address of an array's first element; arrays that share a buffer share addresses.

        Raises:
            BindError: the array is no view of a contiguous buffer.
        """
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        low, high = np.lib.array_utils.byte_bounds(owner)
        found = self._by_buffer.get(low)
        if found is None or len(found.data) < high - low:
            found = self._by_buffer[low] = self._allocate(name, owner, high - low)
        return found.start + int(array.__array_interface__["data"][0]) - low

    def _allocate(self, name: str, owner: npt.NDArray[Any], nbytes: int) -> Allocation:
        if not owner.nbytes:
            raise BindError(
                f"the array of '{name}' has no elements, and so no address: bind one of at least an"
                " element, or None for a null pointer"
            )
        flat = owner.reshape(-1, order="A") if owner.flags.forc else None
        if flat is None or not np.shares_memory(flat, owner):
            raise BindError(f"the array of '{name}' is no contiguous buffer, nor a view of one")
        bytes_ = flat.view(np.uint8)
        tensor = GlobalTensor(PlainTensor(name, dtypes.uint8, 1), bytes_, False, True)
        tensor.order = ByteOrder(name, nbytes)
        start = self._next
        self._next += -(-(nbytes + GAP) // GAP) * GAP
        made = Allocation(name, start, bytes_, tensor)
        self._allocations.append(made)
        self._starts.append(start)
        return made

    def forget(self) -> None:
        """A new launch: no access has been made."""
        for made in self._allocations:
            made.tensor.order = ByteOrder(made.name, len(made.data))

    def copied(self) -> DeviceMemory:
        """The same allocations on copies of their bytes, which `restore` gives back."""
        made = DeviceMemory(self._next)
        made._starts = self._starts
        for one in self._allocations:
            data = one.data.copy()
            data.flags.writeable = one.data.flags.writeable
            tensor = GlobalTensor(one.tensor.param, data, False, True)
            tensor.order = ByteOrder(one.name, len(data))
            made._allocations.append(one._replace(data=data, tensor=tensor))
        made._given = [one.data for one in self._allocations]
        return made

    def restore(self) -> None:
        """Gives copies the bytes that they were made of, where something has written them."""
        for made, given in zip(self._allocations, self._given, strict=True):
            if made.order.history:
                np.copyto(made.data, given)

    def at(self, address: int, end: int) -> Allocation | None:
        """The allocation that has all bytes from an address up to another."""
        number = bisect_right(self._starts, address) - 1
        found = self._allocations[number] if number >= 0 else None
        return found if found is not None and end <= found.end else None

    def exactly(self, address: int) -> str:
        """`'out' + 4 (0x7f0000000004)`, where the address itself is at fault."""
        found = self.at(address, address)
        if found is None:
            return f"{address:#x}"
        return f"{found.element(address - found.start)} ({address:#x})"

    def missing(self, address: int) -> str:
        """The fault of an address at which no allocation has all bytes of an access."""
        number = bisect_right(self._starts, address) - 1
        if number < 0 or address >= self._allocations[number].end + GAP:
            return "where there is no allocation"
        found = self._allocations[number]
        over = found.end - address
        end = f"{over} bytes after" if over > 0 else f"{-over} bytes before"
        return f"which is not all of '{found.name}': it ends {end} that address"

    def find(self, ag: Agent, site: Site, lane: int, address: int, nbytes: int) -> Allocation:
        """The allocation that has all bytes of an ordinary access.

        Raises:
            SimFault: none has, or the address is no multiple of the size.
        """
        found = self.at(address, address + nbytes)
        if found is None:
            raise SimFault(
                f"{site.what}: thread {lane} of {ag} accesses {nbytes} bytes at {address:#x} of"
                f" global memory, {self.missing(address)}.",
                site.loc,
            )
        if address % nbytes:
            raise SimFault(
                f"{site.what}: thread {lane} of {ag} accesses {nbytes} bytes at"
                f" {self.exactly(address)}, which is no multiple of {nbytes}",
                site.loc,
            )
        return found

    def span(self, what: str, address: int, nbytes: int, site: Site) -> Region:
        """Consecutive bytes that a copy moves. `what`: who does, for the message.

        Raises:
            SimFault: no allocation has them.
        """
        return self.region(what, address, (), (), nbytes, site)

    def region(
        self,
        what: str,
        address: int,
        counts: Sequence[int],
        strides: Sequence[int],
        nbytes: int,
        site: Site,
    ) -> Region:
        """Rows of `nbytes` that lie `strides` apart, as many as `counts` has in each dimension.

        Raises:
            SimFault: no allocation has all of them.
        """
        last = sum((n - 1) * s for n, s in zip(counts, strides, strict=True))
        found = self.at(address, address + last + nbytes)
        if found is None:
            there = address if self.at(address, address + nbytes) is None else address + last
            raise SimFault(
                f"{site.what}: {what} accesses {nbytes} bytes at {there:#x} of global memory,"
                f" {self.missing(there)}.",
                site.loc,
            )
        return Region(found, address - found.start, tuple(counts), tuple(strides), nbytes)


class Region(NamedTuple):
    """Rows of bytes of an allocation that a copy moves.

    Attributes:
        offset: of the first byte. counts, strides: how many rows, and how many bytes apart, in each
            dimension, outermost first. size: bytes of a row.
    """

    allocation: Allocation
    offset: int
    counts: tuple[int, ...]
    strides: tuple[int, ...]
    size: int

    @property
    def view(self) -> Bytes:
        """The bytes, (*counts, size)."""
        return np.lib.stride_tricks.as_strided(
            self.allocation.data[self.offset :],
            (*self.counts, self.size),
            (*self.strides, 1),
            writeable=self.allocation.data.flags.writeable,
        )

    def starts(self) -> Offsets:
        """Where the rows begin in the allocation."""
        at = np.array([self.offset], np.int64)
        for count, stride in zip(self.counts, self.strides, strict=True):
            at = (at[:, None] + stride * np.arange(count)).reshape(-1)
        return at

    def ordered(
        self, m: Machine, ag: Agent, site: Site, mask: int, is_write: bool, atomic: bool = False
    ) -> ByteEvent:
        """Orders the access of a copy to these bytes.

        Raises:
            RaceError: nothing orders it after a conflicting access.
        """
        if is_write:
            check_writable(ag, site, self.allocation)
        return runs(
            m, self.allocation.order, ag, site, mask, Runs(self.starts(), self.size), is_write,
            strong=RELAXED if atomic else None, asynchronous=True,
        )  # fmt: skip


def load_global(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    memory: DeviceMemory,
    addresses: Addresses,
    nbytes: int,
    strong: Strong | None = None,
    constant: bool = False,
) -> Bytes:
    """ld.global: for each thread of the agent, `nbytes` bytes at `addresses[thread]`; zeros for
    those that are not active. `strong`: of a volatile, relaxed or acquiring load. `constant`: of
    one that takes the bytes for read-only (.nc).
    """
    out = np.zeros((32 * ag.warps, nbytes), np.uint8)
    for allocation, lanes, offsets in _by_allocation(ag, site, mask, memory, addresses, nbytes):
        order_lanes(m, ag, site, allocation, lanes, offsets, nbytes, is_write=False, strong=strong)
        if constant:
            taken_for_constant(m, allocation.order, site, Runs(offsets, nbytes))
        out[lanes] = allocation.data[offsets[:, None] + np.arange(nbytes)]
        if strong is not None:
            for lane, offset in zip(lanes, offsets.tolist(), strict=True):
                for at in strong.locations(offset, nbytes):
                    m.in_turn((allocation.start, at), 1 << lane, False)
            _observe(m, ag, site, allocation, lanes, offsets, nbytes, strong)
    if strong is not None:
        looked(
            ag,
            site,
            mask,
            lanes_in(mask),
            addresses,
            out,
            lambda: allocation.element(int(offsets[0])),
            lambda: _writers(ag, site, mask, memory, addresses, nbytes),
        )
    return out


def store_global(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    memory: DeviceMemory,
    addresses: Addresses,
    values: Bytes,
    strong: Strong | None = None,
) -> None:
    """st.global: each active thread stores its row of `values` at `addresses[thread]`. `strong`: of
    a volatile, relaxed or releasing store.
    """
    nbytes = values.shape[1]
    for allocation, lanes, offsets in _by_allocation(ag, site, mask, memory, addresses, nbytes):
        check_writable(ag, site, allocation)
        order_lanes(m, ag, site, allocation, lanes, offsets, nbytes, is_write=True, strong=strong)
        where = offsets[:, None] + np.arange(nbytes)
        allocation.data[where] = values[lanes]
        kept = allocation.order.values
        if strong is None:
            differs = allocation.data[where] != values[lanes]
            check_one_value(ag, site, lanes, addresses, differs, memory.exactly)
            if kept:
                flags.overwritten(kept, offsets.tolist(), nbytes)
            continue
        for lane, offset in zip(lanes, offsets.tolist(), strict=True):
            locations = strong.locations(offset, nbytes)
            access = flags.written(allocation.order, ag, site, 1 << lane, len(locations))
            for at in locations:
                m.in_turn((allocation.start, at), 1 << lane, True)
                name = allocation.element(at)
                flags.wrote(m, ag, site, 1 << lane, kept, at, strong, name, access=access)


def reduced(m: Machine, region: Region) -> None:
    """Reports the reduction of a copy: what strong accesses find there depends on it."""
    if m.world.looks:
        for start in region.starts().tolist():
            for at in range(start, start + region.size, ELEMENT):
                m.in_turn((region.allocation.start, at), 0, True)


def atomic_global(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    memory: DeviceMemory,
    addresses: Addresses,
    operands: Bytes,
    nbytes: int,
    combine: Combine,
    strong: Strong = RELAXED,
) -> Bytes:
    """atom.global, red.global: one thread after another reads `nbytes` bytes and writes what
    `combine` makes of them. Returns what each thread found.
    """
    changed = False
    out = np.zeros((32 * ag.warps, nbytes), np.uint8)
    for allocation, lanes, offsets in _by_allocation(ag, site, mask, memory, addresses, nbytes):
        check_writable(ag, site, allocation)
        order_lanes(m, ag, site, allocation, lanes, offsets, nbytes, is_write=True, strong=strong)
        kept = allocation.order.values
        for lane, offset in zip(lanes, offsets.tolist(), strict=True):
            there = allocation.data[offset : offset + nbytes]
            out[lane] = there
            there[:] = combine(out[lane], operands[lane])
            changes = bool((there != out[lane]).any())
            changed |= changes
            locations = strong.locations(offset, nbytes)
            access = flags.written(allocation.order, ag, site, 1 << lane, len(locations))
            for at in locations:
                m.in_turn((allocation.start, at), 1 << lane, changes)
                if site.id not in m.world.unread:
                    flags.observed(m, ag, site, 1 << lane, kept.get(at), strong)
                name = allocation.element(at)
                flags.wrote(
                    m, ag, site, 1 << lane, kept, at, strong, name, access=access, updates=True
                )
    if changed:
        ag.repeats = False
    else:
        looked(
            ag,
            site,
            mask,
            lanes_in(mask),
            addresses,
            out,
            lambda: allocation.element(int(offsets[0])),
            lambda: _writers(ag, site, mask, memory, addresses, nbytes),
        )
    return out


def _observe(
    m: Machine, ag: Agent, site: Site, allocation: Allocation, lanes: Sequence[int],
    offsets: Offsets, nbytes: int, strong: Strong,
) -> None:  # fmt: skip
    """The values that threads read by a strong load."""
    kept = allocation.order.values
    if not kept:
        return
    readers: dict[int, int] = {}
    for lane, offset in zip(lanes, offsets.tolist(), strict=True):
        for at in strong.locations(offset, nbytes):
            readers[at] = readers.get(at, 0) | 1 << lane
    for at, mask in readers.items():
        flags.observed(m, ag, site, mask, kept.get(at), strong)


def _writers(
    ag: Agent, site: Site, mask: int, memory: DeviceMemory, addresses: Addresses, nbytes: int
) -> Writers:
    """What has written some of the bytes that threads look at."""
    found = _by_allocation(ag, site, mask, memory, addresses, nbytes)
    return frozenset(
        writer for at, _, offsets in found for writer in at.order.writers_of(Runs(offsets, nbytes))
    )


def check_writable(ag: Agent, site: Site, allocation: Allocation) -> None:
    """Raises SimFault for a write to an array that is read-only."""
    if not allocation.data.flags.writeable:
        raise SimFault(
            f"{site.what}: {ag} writes to '{allocation.name}', whose array is read-only", site.loc
        )


def _by_allocation(
    ag: Agent, site: Site, mask: int, memory: DeviceMemory, addresses: Addresses, nbytes: int
) -> list[tuple[Allocation, list[int], Offsets]]:
    """The active threads by the allocation that they access, and where in it each does."""
    active = lanes_in(mask)
    where = np.asarray(addresses).astype(np.int64)[active]
    low, high = int(where.min()), int(where.max())
    one = memory.at(low, high + nbytes)
    if one is not None and not (where % nbytes).any():
        return [(one, active, where - one.start)]
    found: dict[int, tuple[Allocation, list[int]]] = {}
    for lane in active:
        allocation = memory.find(ag, site, lane, int(addresses[lane]), nbytes)
        found.setdefault(allocation.start, (allocation, []))[1].append(lane)
    return [
        (a, lanes, np.array([int(addresses[lane]) - a.start for lane in lanes], np.int64))
        for a, lanes in found.values()
    ]


def order_lanes(
    m: Machine,
    ag: Agent,
    site: Site,
    allocation: Allocation,
    lanes: Sequence[int],
    offsets: Offsets,
    nbytes: int,
    *,
    is_write: bool,
    strong: Strong | None = None,
) -> None:
    """Orders the accesses of threads, a warp at a time, to `nbytes` at an offset of each."""
    for warp in range(ag.warps):
        mine = [i for i, lane in enumerate(lanes) if lane // 32 == warp]
        if mine:
            part = tuple(lanes[i] for i in mine)
            touched = Runs(offsets if len(mine) == len(lanes) else offsets[mine], nbytes, part)
            mask = sum(1 << lane for lane in part)
            runs(m, allocation.order, ag, site, mask, touched, is_write, strong=strong)
