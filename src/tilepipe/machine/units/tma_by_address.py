"""TMA by address: copies between global memory and shared memory, and between the shared memories
of a cluster, of boxes that a tensor map describes or of consecutive bytes.

They act and are ordered as those of `tma`: a copy that completes on an mbarrier is live from its
issue on, and others learn of it through that barrier; one in a bulk group reads and writes at some
moment before the wait for its group returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BarrierError, SimFault
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.mbarrier import named_by, remote
from tilepipe.machine.barriers.state import Mbarrier, TmaLoadUnit
from tilepipe.machine.cta import Cta
from tilepipe.machine.happens_before.byte_events import ByteEvent
from tilepipe.machine.happens_before.conflicts import read
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_access import Combine, asynchronous
from tilepipe.machine.memory.byte_sets import Bytes, ByteSet
from tilepipe.machine.memory.device_memory import DeviceMemory, Region
from tilepipe.machine.memory.elements import cta_of
from tilepipe.machine.memory.tensor_map import NAN_WORD, UNIT, TensorMap
from tilepipe.machine.memory.tiles import ByteSpace
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import StoreQueue, TmaStoreUnit
from tilepipe.machine.units.tma import credit_copy, depart, finished, occupy, one_lane

Coords = Sequence[int]


# -- what a copy moves -----------------------------------------------------------------


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
        """What of it two executions have in common."""
        return self.at, self.nbytes


class SharedBox(NamedTuple):
    """A box at an address of a CTA's shared memory, as its tensor map lays it out."""

    space: ByteSpace
    at: int
    map: TensorMap

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
        """What tells it from others in messages."""
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

    map: TensorMap
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
    memory: DeviceMemory, map_: TensorMap, coords: Coords, site: Site, *, store: bool, whole: bool
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


def _check_coords(map_: TensorMap, coords: Coords, site: Site, *, store: bool) -> None:
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


# -- units -----------------------------------------------------------------------------


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class CopyIn(TmaLoadUnit):
    """A copy into the shared memory of a CTA, which credits its bytes to an mbarrier there.
    `map_read`: its read of a tensor map in global memory.
    """

    source: Global | Shared
    to: Shared
    map_read: ByteEvent | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What of it two executions have in common."""
        return self.source.key, self.to.key


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class CopyOut(TmaStoreUnit):
    """A copy out of the shared memory of a CTA, in a bulk group of the thread that issued it.
    `reduction`: what it does to what is there. `map_read`: as of `CopyIn`.
    """

    source: Shared
    to: Global
    reduction: Combine | None
    map_read: ByteEvent | None = None

    @property
    def read_bits(self) -> int:
        return self.read.bit | (self.map_read.bit if self.map_read is not None else 0)


def land(m: Machine, unit: CopyIn) -> None:
    """The bytes are in shared memory, and the barrier gets them."""
    unit.to.put(unit.source.get())
    if unit.map_read is not None:
        unit.bar.acc |= unit.map_read.bit
    credit_copy(m, unit)


def write_out(m: Machine, unit: CopyOut) -> None:
    """The bytes are in global memory."""
    unit.to.put(unit.source.get(), unit.reduction)
    finished(m, unit)


# -- copies that complete on an mbarrier -------------------------------------------------


class Completion(NamedTuple):
    """The mbarrier that a copy credits: the rank of its CTA, its address there. `pair`: the copy
    may name that of the other CTA of its pair (.cta_group::2).
    """

    rank: int
    address: int
    pair: bool = False


def load_tensor(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    memory: DeviceMemory,
    map_: TensorMap,
    coords: Coords,
    at: int,
    to: Completion,
    ctas: int | None = None,
    map_read: ByteEvent | None = None,
) -> None:
    """cp.async.bulk.tensor global -> shared: a box, to this CTA or to each CTA of a mask, at the
    same address. With .cta_group::2 the barrier is that of the CTA in the destination's pair which
    has the same place there as the one that is named (PTX ISA).
    """
    one_lane(ag, site, mask)
    map_.check(site, coords, at)
    source = boxed(memory, map_, coords, site, store=False, whole=False)

    def into(cta: Cta) -> Shared:
        return SharedBox(cta.bytes(), at, map_)

    _bring(m, ag, site, mask, source, into, map_.nbytes, to, ctas, map_read)


def load_bulk(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    memory: DeviceMemory,
    address: int,
    nbytes: int,
    at: int,
    to: Completion,
    ctas: int | None = None,
) -> None:
    """cp.async.bulk global -> shared: consecutive bytes, to this CTA or to each CTA of a mask."""
    one_lane(ag, site, mask)
    _check_bulk(site, nbytes, address, at)
    source = GlobalBytes(memory.span(str(ag), address, nbytes, site))

    def into(cta: Cta) -> Shared:
        return SharedBytes(cta.bytes(), at, nbytes)

    _bring(m, ag, site, mask, source, into, nbytes, to, ctas)


def _bring(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    source: Global,
    into: Callable[[Cta], Shared],
    nbytes: int,
    to: Completion,
    ctas: int | None,
    map_read: ByteEvent | None = None,
) -> None:
    known = ag.known(mask) if ag.split else ag.k
    region = source.region
    seen = region.ordered(m, ag, site, mask, is_write=False) if region is not None else None
    end = occupy(ag, nbytes)
    if to.rank != ag.cta.rank and (not to.pair or to.rank >> 1 != ag.cta.rank >> 1):
        raise BarrierError(
            f"{site.what}: it signals a barrier of CTA rank {to.rank}, but is issued by CTA rank"
            f" {ag.cta.rank}: a copy signals one of its own CTA, or of its pair's with"
            " .cta_group::2.",
            site.loc,
        )
    for cta in [ag.cta] if ctas is None else named_by(m, site, ctas, "multicast mask"):
        if ctas is None and not to.pair:
            bar = cta.bars[to.address]
        else:
            rank = cta.rank & ~1 | to.rank & 1 if to.pair else cta.rank
            bar = remote(m, ag, site, rank, to.address)
        part = into(cta)
        write = asynchronous(m, ag, site, mask, part.space, part.touched(), is_write=True)
        unit = CopyIn(
            ag, site, source.coords, part.space, write, nbytes, bar, seen, end, source=source,
            to=part, map_read=map_read,
        )  # fmt: skip
        depart(m, unit, known)


def copy_to_cta(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    source: int,
    nbytes: int,
    rank: int,
    at: int,
    to: Completion,
) -> None:
    """cp.async.bulk shared::cta -> shared::cluster, which completes on an mbarrier of the
    destination's CTA.
    """
    one_lane(ag, site, mask)
    _check_bulk(site, nbytes, source, at)
    if to.rank != rank:
        raise BarrierError(
            f"{site.what}: its mbarrier is in CTA rank {to.rank}, and its destination in rank"
            f" {rank}: they are in one CTA",
            site.loc,
        )
    known = ag.known(mask) if ag.split else ag.k
    given = SharedBytes(ag.cta.bytes(), source, nbytes)
    seen = asynchronous(m, ag, site, mask, given.space, given.touched(), is_write=False)
    read(m, given.space, seen, known)
    cta = cta_of(m, ag, site, rank)
    part = SharedBytes(cta.bytes(), at, nbytes)
    write = asynchronous(m, ag, site, mask, part.space, part.touched(), is_write=True)
    bar = _barrier(m, ag, site, to)
    end = occupy(ag, nbytes)
    unit = CopyIn(ag, site, (at,), part.space, write, nbytes, bar, seen, end, source=given, to=part)
    depart(m, unit, known)


def _barrier(m: Machine, ag: Agent, site: Site, to: Completion) -> Mbarrier:
    if to.rank == ag.cta.rank:
        return ag.cta.bars[to.address]
    return remote(m, ag, site, to.rank, to.address)


# -- copies in bulk groups ---------------------------------------------------------------


def store_tensor(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    memory: DeviceMemory,
    map_: TensorMap,
    coords: Coords,
    at: int,
    reduction: Combine | None = None,
    map_read: ByteEvent | None = None,
) -> None:
    """cp.async.bulk.tensor and cp.reduce.async.bulk.tensor shared -> global, into this thread's
    open group.
    """
    one_lane(ag, site, mask)
    map_.check(site, coords, at)
    to = boxed(memory, map_, coords, site, store=True, whole=reduction is None)
    source = SharedBox(ag.cta.bytes(), at, map_)
    _send(m, ag, site, mask, source, to, map_.nbytes, reduction, map_read)


def store_bulk(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    memory: DeviceMemory,
    address: int,
    nbytes: int,
    at: int,
    reduction: Combine | None = None,
) -> None:
    """cp.async.bulk and cp.reduce.async.bulk shared -> global, into this thread's open group."""
    one_lane(ag, site, mask)
    _check_bulk(site, nbytes, address, at)
    to = GlobalBytes(memory.span(str(ag), address, nbytes, site))
    _send(m, ag, site, mask, SharedBytes(ag.cta.bytes(), at, nbytes), to, nbytes, reduction)


def _send(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    source: Shared,
    to: Global,
    nbytes: int,
    reduction: Combine | None,
    map_read: ByteEvent | None = None,
) -> None:
    known = ag.known(mask) if ag.split else ag.k
    record = asynchronous(m, ag, site, mask, source.space, source.touched(), is_write=False)
    read(m, source.space, record, known)
    region = to.region
    atomic = reduction is not None
    event = (
        region.ordered(m, ag, site, mask, is_write=True, atomic=atomic)
        if region is not None
        else None
    )
    unit = CopyOut(
        ag, site, to.coords, source.space, record, event, occupy(ag, nbytes), 0, source=source,
        to=to, reduction=reduction, map_read=map_read,
    )  # fmt: skip
    ag.stores.setdefault(mask.bit_length() - 1, StoreQueue()).open.append(unit)
    m.pending.append(unit)
    if m.world.on_event is not None:
        m.world.on_event(ag, site, ag.time, unit.end)


def _check_bulk(site: Site, nbytes: int, *addresses: int) -> None:
    """Sizes and addresses of bulk copies are multiples of 16 (PTX ISA, cp.async.bulk)."""
    for what, value in (("size", nbytes), *(("address", a) for a in addresses)):
        if value % UNIT:
            raise SimFault(
                f"{site.what}: {what} {value:#x} of a bulk copy is no multiple of {UNIT}", site.loc
            )
