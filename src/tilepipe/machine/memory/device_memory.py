"""Global memory by address: allocations, and ordinary and atomic accesses to their bytes.

An allocation is a `GlobalTensor` of one dimension, so that the order between accesses is kept as
for a tensor that a program names: element by element, where an element is what the array of the
argument has. Accesses to parts of one element count as accesses to all of it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilepipe.errors import SimFault
from tilepipe.ir import dtypes
from tilepipe.machine.agents import Agent
from tilepipe.machine.happens_before.global_memory import points
from tilepipe.machine.happens_before.knowledge import lanes_of
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_access import Addresses, Combine
from tilepipe.machine.memory.byte_sets import Bytes
from tilepipe.machine.memory.global_memory import GlobalTensor, PlainTensor
from tilepipe.machine.sites import Site

GAP = 2 << 20  # bytes between allocations, so that an access beyond one meets no other
_ELEMENTS = {1: dtypes.uint8, 2: dtypes.float16, 4: dtypes.uint32, 8: dtypes.uint64}


class Allocation(NamedTuple):
    """Bytes of global memory from an address on."""

    name: str
    start: int
    data: Bytes
    tensor: GlobalTensor


class DeviceMemory:
    """The allocations of a launch, each at a multiple of 512 bytes."""

    def __init__(self, first: int) -> None:
        self._allocations: list[Allocation] = []
        self._starts: list[int] = []
        self._by_buffer: dict[int, Allocation] = {}
        self._next = first

    @property
    def tensors(self) -> list[GlobalTensor]:
        """What the machine keeps the order of."""
        return [a.tensor for a in self._allocations]

    def address_of(self, name: str, array: npt.NDArray[Any]) -> int:
        """The address of an array's first element; arrays that share a buffer share addresses."""
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        low, high = np.lib.array_utils.byte_bounds(owner)
        found = self._by_buffer.get(low)
        if found is None:
            found = self._by_buffer[low] = self._allocate(name, owner, high - low)
        return found.start + int(array.__array_interface__["data"][0]) - low

    def _allocate(self, name: str, owner: npt.NDArray[Any], nbytes: int) -> Allocation:
        flat = owner.reshape(-1, order="A") if owner.flags.forc else None
        if flat is None or not np.shares_memory(flat, owner):
            raise SimFault(f"the array of '{name}' is no contiguous buffer, nor a view of one")
        element = _ELEMENTS.get(flat.itemsize, dtypes.uint8)
        data = flat.view(np.uint8)
        tensor = GlobalTensor(
            PlainTensor(name, element, 1), flat.view(element.numpy), flat.flags.writeable, True
        )
        start = self._next
        self._next += -(-(nbytes + GAP) // GAP) * GAP
        made = Allocation(name, start, data, tensor)
        self._allocations.append(made)
        self._starts.append(start)
        return made

    def find(self, ag: Agent, site: Site, lane: int, address: int, nbytes: int) -> Allocation:
        """The allocation that has all bytes of an access.

        Raises:
            SimFault: none has, or the address is no multiple of the size.
        """
        number = bisect_right(self._starts, address) - 1
        found = self._allocations[number] if number >= 0 else None
        if found is None or address + nbytes > found.start + len(found.data):
            raise SimFault(
                f"{site.what}: thread {lane} of {ag} accesses {nbytes} bytes at {address:#x} of"
                f" global memory, {_nearest(found, address)}.",
                site.loc,
            )
        if address % nbytes:
            raise SimFault(
                f"{site.what}: thread {lane} of {ag} accesses {nbytes} bytes at {address:#x}, which"
                f" is no multiple of {nbytes}",
                site.loc,
            )
        return found


def _nearest(allocation: Allocation | None, address: int) -> str:
    if allocation is None or address - allocation.start > len(allocation.data) + GAP:
        return "where there is no allocation"
    over = address - allocation.start - len(allocation.data)
    return f"which is not all of '{allocation.name}': it ends {-over} bytes after that address"


def load_global(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    memory: DeviceMemory,
    addresses: Addresses,
    nbytes: int,
    strong: bool = False,
) -> Bytes:
    """ld.global: for each thread of the agent, `nbytes` bytes at `addresses[thread]`; zeros for
    those that are not active. `strong`: a volatile, relaxed or acquiring load.
    """
    out = np.zeros((32 * ag.warps, nbytes), np.uint8)
    for allocation, part, offsets in _by_allocation(ag, site, mask, memory, addresses, nbytes):
        _order(m, ag, site, part, allocation, offsets, nbytes, is_write=False, atomic=strong)
        where = np.asarray(offsets, np.int64)[:, None] + np.arange(nbytes)
        out[lanes_of(part)] = allocation.data[where]
    return out


def store_global(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    memory: DeviceMemory,
    addresses: Addresses,
    values: Bytes,
    strong: bool = False,
) -> None:
    """st.global: each active thread stores its row of `values` at `addresses[thread]`. `strong`: a
    volatile, relaxed or releasing store.
    """
    nbytes = values.shape[1]
    for allocation, part, offsets in _by_allocation(ag, site, mask, memory, addresses, nbytes):
        _check_writable(ag, site, allocation)
        _order(m, ag, site, part, allocation, offsets, nbytes, is_write=True, atomic=strong)
        where = np.asarray(offsets, np.int64)[:, None] + np.arange(nbytes)
        allocation.data[where] = values[lanes_of(part)]


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
) -> Bytes:
    """atom.global, red.global: one thread after another reads `nbytes` bytes and writes what
    `combine` makes of them. Returns what each thread found.
    """
    out = np.zeros((32 * ag.warps, nbytes), np.uint8)
    for allocation, part, offsets in _by_allocation(ag, site, mask, memory, addresses, nbytes):
        _check_writable(ag, site, allocation)
        _order(m, ag, site, part, allocation, offsets, nbytes, is_write=True, atomic=True)
        for lane, offset in zip(lanes_of(part), offsets, strict=True):
            if m.journal is not None:
                m.journal.in_turn((allocation.start, offset), 1 << lane, True)
            there = allocation.data[offset : offset + nbytes]
            out[lane] = there
            there[:] = combine(out[lane], operands[lane])
    return out


def _check_writable(ag: Agent, site: Site, allocation: Allocation) -> None:
    if not allocation.data.flags.writeable:
        raise SimFault(
            f"{site.what}: {ag} writes to '{allocation.name}', whose array is read-only", site.loc
        )


def _by_allocation(
    ag: Agent, site: Site, mask: int, memory: DeviceMemory, addresses: Addresses, nbytes: int
) -> list[tuple[Allocation, int, list[int]]]:
    """The active threads by the allocation that they access, and where in it each does."""
    found: dict[int, tuple[Allocation, int, list[int]]] = {}
    for lane in lanes_of(mask):
        address = int(addresses[lane])
        allocation = memory.find(ag, site, lane, address, nbytes)
        _, part, offsets = found.get(allocation.start, (allocation, 0, []))
        offsets.append(address - allocation.start)
        found[allocation.start] = allocation, part | 1 << lane, offsets
    return list(found.values())


def _order(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    allocation: Allocation,
    offsets: list[int],
    nbytes: int,
    *,
    is_write: bool,
    atomic: bool,
) -> None:
    order = allocation.tensor.order
    if order is None:
        return
    size = allocation.tensor.array.itemsize
    for element in range(max(nbytes // size, 1)):
        where = ([offset // size + element for offset in offsets],)
        points(m, order, ag, site, mask, where, is_write, atomic)
