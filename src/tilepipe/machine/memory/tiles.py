"""Typed tiles of shared memory: elements in logical order, and which of them have been written.

Layout and swizzle map the elements of a tile one to one on its bytes (`ir.layout.byte_offsets`), so
two accesses to one tile touch a common byte exactly when they touch a common element. As long as
only typed ops touch a tile, its elements are all there is. From the first access by address to one
of its bytes, the bytes are what it holds (`ByteSpace`), and typed ops convert.

Views of one buffer's slots (`SmemBuffer.shares`) keep contents of their own until then: a write
through one of them leaves the others unwritten.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tilepipe.ir import dtypes
from tilepipe.machine.actors import CtaPlace
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.memory_order import Value
from tilepipe.machine.memory import tile_bytes
from tilepipe.machine.memory.byte_sets import Bytes, ByteSet, lanes_at_common, one_lane_each
from tilepipe.machine.memory.poison import Origin
from tilepipe.machine.memory.storage import Array, storage
from tilepipe.machine.memory.tile_bytes import OneTile, TileArray

EMPTY, PARTIAL, WHOLE = 0, 1, 2
FEW = 64  # live accesses that a space of bytes has room for at first


class Slot:
    """Tile `index` of a buffer in one CTA.

    Attributes:
        base: its address in shared memory.
        whole: the rectangle that is all of it.
        state: EMPTY, PARTIAL (see `filled`) or WHOLE: what has been written; the rest is poison.
        accesses: the live accesses.
        axes, unit: what its two dimensions, and its elements, are called in messages.
        views: what else lies on the same bytes: other views of its buffer, and the space of bytes
            where something has accessed its bytes by address. given_views: the former alone.
        space: that space of bytes, which then holds its contents; else None.
    """

    axes = ("row", "column")
    unit = "elements"
    __slots__ = (
        "_data", "accesses", "base", "buffer", "cta", "filled", "given_views", "index", "space",
        "state", "views", "whole",
    )  # fmt: skip

    def __init__(self, cta: CtaPlace, buffer: TileArray, index: int) -> None:
        self.cta = cta
        self.buffer = buffer
        self.index = index
        self.base = buffer.offset + index * buffer.step
        self._data: Array = np.zeros((buffer.rows, buffer.cols), storage(buffer.dtype))
        self.whole: Rect = (0, buffer.rows, 0, buffer.cols)
        self.filled: npt.NDArray[np.bool_] | None = None
        self.state = EMPTY
        self.accesses: list[Access] = []
        self.given_views: tuple[Slot, ...] = ()
        self.views: tuple[Slot, ...] = ()
        self.space: ByteSpace | None = None

    @property
    def data(self) -> Array:
        """(rows, cols) in storage form, for reading: it may be a part of a tensor."""
        if self.space is not None:
            self._data = tile_bytes.decoded(self.buffer, self.base, self.space.memory)
        return self._data

    def writable(self) -> Array:
        """`data`, for writing. Who changes elements of it calls `written` next."""
        data = self.data
        if not data.flags.writeable:
            data = self._data = data.copy()
        return data

    def write(self, rect: Rect, values: Array | float) -> None:
        """Sets the elements of a rectangle."""
        r0, r1, c0, c1 = rect
        self.writable()[r0:r1, c0:c1] = values
        self.written(rect)

    def fill(self, rect: Rect, values: Array) -> None:
        """`write`, of a box of a tensor. One that can never change becomes the contents of a whole
        tile without being copied.
        """
        if (
            rect != self.whole
            or values.flags.writeable
            or self.space is not None
            or values.dtype != self._data.dtype
        ):
            self.write(rect, values)
            return
        self._data = values
        self.state = WHOLE

    @property
    def name(self) -> str:
        return f"{self.buffer.name}[{self.index}]" if self.buffer.count > 1 else self.buffer.name

    def reset(self) -> None:
        """A new CTA: its memory is poison."""
        self.state = EMPTY
        self.filled = None
        self.clear()
        self.space = None
        self.views = self.given_views

    def written(self, rect: Rect) -> None:
        """Marks a rectangle as written."""
        if self.state == WHOLE:
            return
        if self.space is not None:
            tile_bytes.encode(self.buffer, self.base, rect, self._data, self.space.memory)
            self.space.present[tile_bytes.addresses(self.buffer, self.base, rect)] = True
            return
        if rect == self.whole:
            self.state = WHOLE
            return
        r0, r1, c0, c1 = rect
        if self.filled is None:
            self.filled = np.zeros(self.data.shape, np.bool_)
        self.filled[r0:r1, c0:c1] = True
        self.state = WHOLE if self.filled.all() else PARTIAL

    def poisoned(self, rect: Rect) -> int:
        """The number of elements of a rectangle that nothing has written."""
        if self.state == WHOLE:
            return 0
        if self.space is not None:
            there = self.space.present[tile_bytes.addresses(self.buffer, self.base, rect)]
            return int((~there.all(axis=-1)).sum())
        r0, r1, c0, c1 = rect
        if self.filled is None:
            return (r1 - r0) * (c1 - c0)
        return int((~self.filled[r0:r1, c0:c1]).sum())

    def missing(self, access: Access) -> int:
        """The number of elements of an access that nothing has written."""
        if access.points is None:
            return self.poisoned(access.rect)
        places = ((p >> 32, p & 0xFFFFFFFF) for p in access.elements or ())
        return sum(self.poisoned((r, r + 1, c, c + 1)) for r, c in places)

    def give_to(self, space: ByteSpace) -> None:
        """From now on the space of bytes holds the contents: something accesses them by address."""
        data, state, filled = self._data, self.state, self.filled
        if state == WHOLE or filled is not None:
            written = np.ones(data.shape, np.bool_) if filled is None or state == WHOLE else filled
            tile_bytes.encode(self.buffer, self.base, self.whole, data, space.memory)
            space.present[tile_bytes.addresses(self.buffer, self.base, self.whole)[written]] = True
        self.space = space
        self.state, self.filled = PARTIAL, None
        self.views = (*self.given_views, space)

    def overwritten(self) -> None:
        """A write through another view leaves nothing here that could be read."""
        if self.space is None:
            self.state = EMPTY
            self.filled = None

    # -- the live accesses -------------------------------------------------------------

    def near(self, rect: Rect) -> list[Access]:
        """The live accesses whose rectangles meet another, in the order in which they came."""
        r0, r1, c0, c1 = rect
        found = []
        for old in self.accesses:
            o0, o1, p0, p1 = old.rect
            if r0 < o1 and o0 < r1 and c0 < p1 and p0 < c1:
                found.append(old)
        return found

    def add(self, access: Access) -> None:
        """A further live access."""
        self.accesses.append(access)

    def drop(self, gone: set[Access]) -> None:
        """Some accesses are live no longer."""
        self.accesses = [old for old in self.accesses if old not in gone]

    def clear(self) -> None:
        """No access is live any longer."""
        self.accesses = []

    # -- which accesses touch what -----------------------------------------------------

    def points_meet(self, a: Access, b: Access) -> bool:
        """True if two accesses touch a common element; at least one is of single elements."""
        mine, theirs = a.elements, b.elements
        if mine is not None and theirs is not None:
            return not mine.keys().isdisjoint(theirs)
        points, rect = (mine, b.rect) if mine is not None else (theirs, a.rect)
        assert points is not None
        r0, r1, c0, c1 = rect
        return any(r0 <= p >> 32 < r1 and c0 <= p & 0xFFFFFFFF < c1 for p in points)

    def one_lane_each(self, a: Access, b: Access) -> bool:
        """True if each element that two accesses have in common is touched by one and the same
        lane.
        """
        mine, theirs = a.elements, b.elements
        if mine is None or theirs is None:
            return False
        common = mine.keys() & theirs.keys()
        return all(mine[p] == theirs[p] and mine[p].bit_count() == 1 for p in common)

    def lanes_at_common(self, old: Access, new: Access) -> Iterator[tuple[int, int]] | None:
        """For the elements that two accesses have in common, the lanes that touch them in `old`,
        and those in `new`; None where one is not by lanes.
        """
        before, after = old.elements, new.elements
        if before is None or after is None:
            return None
        return ((before[p], after[p]) for p in before.keys() & after.keys())

    def covers(self, new: Access, old: Access) -> bool:
        """True if every element of `old` is one of `new`."""
        mine, theirs = new.elements, old.elements
        if mine is not None:
            return theirs is not None and theirs.keys() <= mine.keys()
        r0, r1, c0, c1 = new.rect
        o0, o1, p0, p1 = old.rect
        return r0 <= o0 and o1 <= r1 and c0 <= p0 and p1 <= c1

    def bytes_of(self, access: Access) -> ByteSet:
        """The bytes that an access to it touches."""
        return tile_bytes.bytes_of(self.buffer, self.base, access.rect, access.elements)

    @property
    def end(self) -> int:
        """One past its last byte in shared memory."""
        return self.base + self.buffer.dtype.bytes_of(self.buffer.rows * self.buffer.cols)

    def object_of(self, *accesses: Access) -> str:
        """What messages call the memory that some accesses have in common."""
        return self.name

    def part(self, access: Access) -> str:
        """What messages call the part of the memory that an access touches."""
        return f"{self.name} ({self.extent(access)})"

    def extent(self, access: Access) -> str:
        """The part that an access touches, where a message has named the whole."""
        r0, r1, c0, c1 = access.rect
        if access.rect == self.whole:
            return "all of it"
        row, col = self.axes
        rows = f"{row} {r0}" if r1 - r0 == 1 else f"{row}s {r0}..{r1 - 1}"
        cols = f"{col} {c0}" if c1 - c0 == 1 else f"{col}s {c0}..{c1 - 1}"
        return f"{rows}, {cols}"


class ByteSpace(Slot):
    """The bytes of a CTA's shared memory.

    Attributes:
        memory: what they hold. present: which of them have been written.
        size: how many there are. values: what strong writes have left, by address.
        carried: address of a byte to which poison has been stored -> where it was read.
        writers: (agent, site) -> the bytes that it has written, as a mask from byte 0.

    A kernel that goes by address makes thousands of accesses that are live at once, and each is
    near few others. So where they begin and end is in arrays (`_ends`), which are compared at once.
    """

    axes = ("row", "byte")
    unit = "bytes"
    __slots__ = ("_ends", "carried", "memory", "present", "size", "values", "writers")

    def __init__(self, cta: CtaPlace, size: int) -> None:
        super().__init__(cta, OneTile("shared memory", dtypes.uint8, 1, size), 0)
        self._ends: npt.NDArray[np.int64] = np.empty((2, FEW), np.int64)
        self.size = size
        self.memory: Bytes = self._data[0]
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.state = PARTIAL
        self.filled = np.zeros((1, self.size), np.bool_)
        self.present: npt.NDArray[np.bool_] = self.filled[0]
        self.values: dict[int, Value] = {}
        self.carried: dict[int, Origin] = {}
        self.writers: dict[tuple[int, int], int] = {}

    def overwritten(self) -> None:
        """A write through a typed tile leaves its bytes here."""

    def join(self, slot: Slot) -> None:
        """A typed tile becomes a view of these bytes."""
        slot.give_to(self)
        self.views = (*self.views, slot)

    def missing(self, access: Access) -> int:
        touched = self.bytes_of(access)
        if self.present[touched.lo : touched.hi].all():
            return 0
        return int((~self.present[touched.addresses()]).sum())

    # -- the live accesses -------------------------------------------------------------

    def near(self, rect: Rect) -> list[Access]:
        return [self.accesses[i] for i in self._places(rect[2], rect[3])]

    def add(self, access: Access) -> None:
        count = len(self.accesses)
        if count == self._ends.shape[1]:
            self._ends = np.concatenate([self._ends, self._ends], axis=1)
        self._ends[:, count] = access.rect[2:]
        self.accesses.append(access)

    def drop(self, gone: set[Access]) -> None:
        lo, hi = min(old.rect[2] for old in gone), max(old.rect[3] for old in gone)
        places = [i for i in self._places(lo, hi) if self.accesses[i] in gone]
        left = np.delete(self._ends[:, : len(self.accesses)], places, axis=1)
        self._ends[:, : left.shape[1]] = left
        for i in reversed(places):
            del self.accesses[i]

    def clear(self) -> None:
        self.accesses = []
        self._ends = np.empty((2, FEW), np.int64)

    def _places(self, lo: int, hi: int) -> list[int]:
        """The indices of the live accesses that have bytes between two addresses."""
        first, end = self._ends[:, : len(self.accesses)]
        return np.flatnonzero((first < hi) & (lo < end)).tolist()

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

    def lanes_at_common(self, old: Access, new: Access) -> Iterator[tuple[int, int]] | None:
        return lanes_at_common(self.bytes_of(old), self.bytes_of(new))

    def covers(self, new: Access, old: Access) -> bool:
        return self.bytes_of(old).within(self.bytes_of(new))

    def object_of(self, *accesses: Access) -> str:
        """The variable that all of the common bytes lie in, if there is one."""
        lo = max(self.bytes_of(a).lo for a in accesses)
        common = ~0
        for access in accesses:
            common &= self.bytes_of(access).mask_from(lo)
        if common <= 0:
            return self.name
        first = lo + (common & -common).bit_length() - 1
        return self.cta.names.variable(first, lo + common.bit_length() - 1) or self.name

    def part(self, access: Access) -> str:
        touched = self.bytes_of(access)
        return self.named(touched) or f"{self.name} ({touched})"

    def extent(self, access: Access) -> str:
        return self.shown(self.bytes_of(access))

    def shown(self, touched: ByteSet) -> str:
        """Some of its bytes, for messages: by the variable that they lie in, or by address."""
        return self.named(touched) or str(touched)

    def named(self, touched: ByteSet) -> str:
        """The same; "" where they have no name."""
        return self.cta.names.span(touched.lo, touched.hi - 1, len(touched))

    def put(self, addresses: npt.NDArray[np.int64], values: Bytes) -> None:
        """Writes bytes."""
        self.memory[addresses] = values
        self.present[addresses] = True

    def carry(self, addresses: npt.NDArray[np.int64], origin: Origin) -> None:
        """Marks these bytes as poison."""
        self.present[addresses] = False
        self.carried.update(dict.fromkeys(addresses.tolist(), origin))

    def origin(self, touched: ByteSet) -> Origin | None:
        """Where the first unwritten of these bytes was read, if poison has been stored to it."""
        if not self.carried:
            return None
        for address in touched.addresses().ravel().tolist():
            if not self.present[address]:
                return self.carried.get(address)
        return None
