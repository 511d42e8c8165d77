"""The data of a bulk copy or a tensor copy: consecutive bytes, or a box that a tensor map
describes, in global memory and in shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilepipe.errors import SimFault
from tilepipe.machine.agents import Agent
from tilepipe.machine.happens_before.byte_events import ByteEvent
from tilepipe.machine.memory.byte_access import Combine
from tilepipe.machine.memory.byte_sets import Bytes, ByteSet
from tilepipe.machine.memory.device_memory import DeviceMemory, Region
from tilepipe.machine.memory.tensor_map import NAN_WORD, UNIT, TensorMapFields
from tilepipe.machine.memory.tiles import ByteSpace
from tilepipe.machine.shared_names import SharedNames
from tilepipe.machine.sites import Site

Coords = Sequence[int]


# -- where the bytes are -----------------------------------------------------------------


class SharedBytes(NamedTuple):
    """Bytes of a CTA's shared memory, from an address on."""

    space: ByteSpace
    at: int
    nbytes: int

    def touched(self) -> ByteSet:
        return ByteSet.span(self.at, self.nbytes)

    def get(self) -> Bytes:
        return self.space.memory[self.at : self.at + self.nbytes].copy()

    def put(self, raw: Bytes) -> None:
        self.space.memory[self.at : self.at + self.nbytes] = raw
        self.space.present[self.at : self.at + self.nbytes] = True

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal in every execution: no object of one machine."""
        return self.at, self.nbytes


class SharedBox(NamedTuple):
    """A box at an address of a CTA's shared memory, as its tensor map lays it out."""

    space: ByteSpace
    at: int
    map: TensorMapFields

    def touched(self) -> ByteSet:
        map_ = self.map
        if map_.pitch == map_.line_bytes and map_.smem_bytes % 128 == 0:
            # a swizzle permutes within lines of 128 bytes
            return ByteSet.span(self.at, map_.smem_bytes)
        grain = map_.grain
        places = map_.places(self.at) * grain
        return ByteSet.of((places[:, None] + np.arange(grain)).reshape(-1))

    def get(self) -> Bytes:
        map_ = self.map
        return map_.unpadded(self._grains(self.space.memory)[map_.places(self.at)].reshape(-1))

    def put(self, raw: Bytes) -> None:
        map_, places = self.map, self.map.places(self.at)
        self._grains(self.space.memory)[places] = map_.padded(raw).reshape(-1, map_.grain)
        self._grains(self.space.present)[places] = True

    def _grains(self, memory: npt.NDArray[Any]) -> npt.NDArray[Any]:
        grain = self.map.grain
        return memory[: self.space.size // grain * grain].reshape(-1, grain)

    @property
    def key(self) -> tuple[object, ...]:
        return self.at, self.map.key


class GlobalBytes(NamedTuple):
    """Consecutive bytes of global memory."""

    region: Region

    def get(self) -> Bytes:
        return self.region.view.copy()

    @property
    def coords(self) -> tuple[int, ...]:
        """Values that tell it from others in messages."""
        return (self.region.allocation.start + self.region.offset,)

    def put(self, raw: Bytes, reduction: Combine | None = None) -> None:
        there = self.region.view
        there[...] = raw if reduction is None else reduction(there.copy(), raw)

    @property
    def key(self) -> tuple[object, ...]:
        return *self.coords, self.region.size


class GlobalBox(NamedTuple):
    """The part of a box that lies within the bounds of its tensor.

    Attributes:
        part: where that is in the box: a slice for each dimension, outermost first, the last in
            bytes. region: of global memory; None where the whole box is out of bounds.
    """

    map: TensorMapFields
    coords: tuple[int, ...]
    part: tuple[slice, ...]
    region: Region | None

    def get(self) -> Bytes:
        map_ = self.map
        out = np.zeros((*reversed(map_.counts[1:]), map_.row_bytes), np.uint8)
        if map_.nan:
            out.reshape(-1, 2)[...] = np.frombuffer(NAN_WORD, np.uint8)
        if self.region is not None:
            out[self.part] = map_.loaded(self.region.view)
        return out.reshape(-1)

    def put(self, raw: Bytes, reduction: Combine | None = None) -> None:
        if self.region is None:
            return
        map_, there = self.map, self.region.view
        given = raw.reshape(*reversed(map_.counts[1:]), map_.row_bytes)[self.part]
        if reduction is not None:
            flat = np.ascontiguousarray(given).reshape(-1)
            given = reduction(there.copy().reshape(-1), flat).reshape(given.shape)
        there[...] = given

    @property
    def key(self) -> tuple[object, ...]:
        return self.map.key, self.coords


def boxed(
    memory: DeviceMemory,
    map_: TensorMapFields,
    coords: Coords,
    site: Site,
    *,
    store: bool,
    whole: bool,
) -> GlobalBox:
    """The part of a box that a copy accesses. `whole`: a row that a store writes ends at a multiple
    of 16 bytes, beyond the bounds where these do not (seen on an H100), as far as there is memory.

    Raises:
        SimFault: no allocation has all of it; or the hardware refuses the coordinates.
    """
    _check_coords(map_, coords, site, store=store)
    address, part, counts, strides = map_.address, [], [], []
    for axis in range(map_.rank - 1, 0, -1):
        step, at, stride = map_.steps[axis], coords[axis], map_.strides[axis - 1]
        first = -(min(at, 0) // step)
        end = min(map_.counts[axis], -((at - map_.shape[axis]) // step))
        part.append(slice(first, max(end, first)))
        counts.append(end - first)
        strides.append(step * stride)
        address += (at + step * first) * stride
    at = coords[0]
    first, end = max(-at, 0), min(map_.box[0], map_.shape[0] - at)
    begin, over = first * map_.bits // 8, end * map_.bits // 8
    address += (at + first) * map_.bits // 8
    if end <= first or min(counts, default=1) <= 0:
        part.append(slice(0, 0))
        return GlobalBox(map_, tuple(coords), tuple(part), None)
    address &= (1 << 64) - 1
    if whole:
        last = address + sum((n - 1) * s for n, s in zip(counts, strides, strict=True))
        found = memory.at(address, last + over - begin)
        room = found.end - last - (over - begin) if found is not None else 0
        over += min(-over % UNIT, room, map_.row_bytes - over)
    region = memory.region(map_.name, address, counts, strides, over - begin, site)
    part.append(slice(begin, over))
    return GlobalBox(map_, tuple(coords), tuple(part), region)


def _check_coords(map_: TensorMapFields, coords: Coords, site: Site, *, store: bool) -> None:
    """Neither rule is in the PTX ISA; on an H100 breaking one is an illegal instruction."""
    if coords[0] * map_.bits % (8 * UNIT):
        unit = 8 * UNIT // map_.bits
        raise SimFault(
            f"{site.what}, {map_.name}: TMA copies from and to multiples of {UNIT} bytes along the"
            f" contiguous dimension; the box starts at element {coords[0]}. Start at a multiple of"
            f" {unit} elements.",
            site.loc,
        )
    if store and min(coords) < 0:
        raise SimFault(
            f"{site.what}, {map_.name}: a TMA store may reach beyond the end of a tensor, where it"
            " is clipped, but not start before it: its box starts at"
            f" {tuple(coords)} (contiguous dimension first)",
            site.loc,
        )


Shared = SharedBytes | SharedBox
Global = GlobalBytes | GlobalBox


# -- what an instruction names -----------------------------------------------------------


class Span(NamedTuple):
    """Consecutive bytes of global memory (cp.async.bulk)."""

    memory: DeviceMemory
    address: int
    nbytes: int
    map_read: ByteEvent | None = None

    def found(self, ag: Agent, site: Site, *, store: bool, whole: bool) -> GlobalBytes:
        """The bytes. Raises SimFault where no allocation has all of them."""
        return GlobalBytes(self.memory.span(str(ag), self.address, self.nbytes, site))

    def inside(self, space: ByteSpace, at: int) -> SharedBytes:
        """Its place at an address of shared memory."""
        return SharedBytes(space, at, self.nbytes)

    def check(self, site: Site, at: int, names: SharedNames) -> None:
        """Raises SimFault for a copy from or to an address of shared memory that bulk copies do
        not allow. `names`: of shared memory.
        """
        check_bulk(site, self.nbytes, self.address, self.memory.exactly)
        check_bulk(site, self.nbytes, at, names.exactly)


class Box(NamedTuple):
    """A box of a tensor (cp.async.bulk.tensor). `map_read`: the read of a tensor map in global
    memory. `row`: its place among the rows that one instruction gathers or scatters.
    """

    memory: DeviceMemory
    map: TensorMapFields
    coords: Coords
    map_read: ByteEvent | None = None
    row: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes that a copy credits."""
        return self.map.nbytes

    def found(self, ag: Agent, site: Site, *, store: bool, whole: bool) -> GlobalBox:
        """The part of it within the bounds of the tensor."""
        return boxed(self.memory, self.map, self.coords, site, store=store, whole=whole)

    def inside(self, space: ByteSpace, at: int) -> SharedBox:
        """Its place at an address of shared memory."""
        return SharedBox(space, at + self.row * self.map.pitch, self.map)

    def check(self, site: Site, at: int, names: SharedNames) -> None:
        """Raises SimFault for a copy that the tensor map, or the address, does not allow."""
        self.map.check(site, self.coords, at, names)


def gathered(
    memory: DeviceMemory, map_: TensorMapFields, coords: Coords, site: Site, read: ByteEvent | None
) -> list[Box]:
    """The four rows of .tile::gather4 and .tile::scatter4, which lie in shared memory as those of
    one box; `coords`: of the column, and of each row.

    Raises:
        SimFault: the tensor map has not two dimensions, or its box not one row (PTX ISA,
            .tile::scatter4 and .tile::gather4 modes).
    """
    if map_.rank != 2 or map_.box[1] != 1:
        raise SimFault(
            f"{site.what}: {map_.name} has the box {map_.box}; one that gathers or scatters four"
            " rows has two dimensions and one row",
            site.loc,
        )
    column, *rows = coords
    return [
        Box(memory, map_, (column, row), read if number == 0 else None, number)
        for number, row in enumerate(rows)
    ]


def check_bulk(site: Site, nbytes: int, address: int, exactly: Callable[[int], str]) -> None:
    """Sizes and addresses of bulk copies are multiples of 16 (PTX ISA, cp.async.bulk). `exactly`:
    an address in words.
    """
    if nbytes % UNIT or address % UNIT:
        what = f"size {nbytes:,}" if nbytes % UNIT else f"address {exactly(address)}"
        raise SimFault(f"{site.what}: {what} of a bulk copy is not a multiple of {UNIT}", site.loc)
