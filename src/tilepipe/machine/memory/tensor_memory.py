"""Tensor memory: its words, the columns that are allocated, and where matrices lie in them.

It is a `Slot` of 128 lanes × 512 columns of 32 bits, so that races, poison and their messages are
those of shared memory. `tensor_access` has its loads and stores, `tensor_allocation` the
allocation of its columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilepipe.errors import SimFault
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.hardware.tensor_memory import (
    COLUMNS,
    LANES,
    PIECE_BYTES,
    SCALE_LANES,
    SCALES_A_COLUMN,
    Scales,
    pieces,
)
from tilepipe.machine.actors import Actor, CtaPlace
from tilepipe.machine.happens_before.accesses import Rect
from tilepipe.machine.memory.storage import Array, rounded, storage
from tilepipe.machine.memory.tile_bytes import OneTile
from tilepipe.machine.memory.tiles import PARTIAL, Slot
from tilepipe.machine.sites import Site

Place = tuple[int, int, int, int]  # rows (64 or 128), first lane, first column, columns


@dataclass
class Allocation:
    """Columns [column, column + columns), and the alloc that returned them.

    Attributes:
        twin: in the leader of a pair, the allocation of the same columns in the odd CTA.
        claimed: the alloc of this CTA has returned their address; in the odd CTA of a pair False
            until that CTA has called alloc.
        through: in the odd CTA of a pair, the bit of its alloc: what is ordered after it knows it.
        variable: the name of the shared memory that its address was written to; "" without one.
    """

    column: int
    columns: int
    agent: Actor
    site: Site
    twin: Allocation | None = None
    claimed: bool = True
    through: int = 0
    variable: str = ""


@dataclass(eq=False)
class Call:
    """An alloc that an agent is performing. `column`: what it got. `variable`: as of an
    `Allocation`.
    """

    agent: Actor
    site: Site
    columns: int
    group: int
    variable: str = ""
    column: int = -1
    done: bool = False


@dataclass(frozen=True, eq=False)
class Users:
    """Those who allocate and free the columns of one CTA, as a thing that they use in turn."""

    cta: CtaPlace


class TensorMemory(Slot):
    """The tensor memory of one CTA.

    Attributes:
        columns: (512, 128) uint32: the words of an accumulator lie together. data: the same as
            (lanes, columns).
        filled: which words have been written since their columns were allocated. full: rectangles
        that were found to be written, so that they need no second look.
        allocations: first column -> the live allocation. freed: the same for the last ones that are
            not live any more.
        calls: allocs under way, in order. relinquished: where the right to allocate was given up.
        smallest: columns of the smallest allocation so far. users: those of this CTA.
    """

    axes = ("lane", "column")
    __slots__ = (
        "allocations", "calls", "columns", "freed", "full", "relinquished", "smallest", "users",
    )  # fmt: skip

    def __init__(self, cta: CtaPlace) -> None:
        super().__init__(cta, OneTile("tensor memory", dtypes.uint32, LANES, COLUMNS), 0)
        self.columns = np.zeros((COLUMNS, LANES), np.uint32)
        self._data = self.columns.T
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.state = PARTIAL
        self.filled = np.zeros((LANES, COLUMNS), np.bool_)
        self.full: set[Rect] = set()
        self.allocations: dict[int, Allocation] = {}
        self.freed: dict[int, tuple[Allocation, Actor, Site]] = {}
        self.calls: list[Call] = []
        self.relinquished: tuple[Actor, Site] | None = None
        self.smallest = COLUMNS
        self.users = Users(self.cta)

    def written(self, rect: Rect) -> None:
        if rect not in self.full:
            assert self.filled is not None
            r0, r1, c0, c1 = rect
            self.filled[r0:r1, c0:c1] = True
            self.full.add(rect)

    def poisoned(self, rect: Rect) -> int:
        missing = 0 if rect in self.full else super().poisoned(rect)
        if not missing:
            self.full.add(rect)
        return missing

    def empty(self, column: int, columns: int) -> None:
        """Columns that have just been allocated hold nothing."""
        assert self.filled is not None
        self.filled[:, column : column + columns] = False
        self.full = {rect for rect in self.full if rect[3] <= column or column + columns <= rect[2]}

    def allocated(self, column: int, end: int) -> bool:
        """True if columns [column, end) lie inside one live allocation."""
        held = self.allocations.values()
        return any(a.column <= column and end <= a.column + a.columns for a in held)

    def words(self, place: Place) -> Array:
        """The words of a matrix by columns, a view: (columns, 128), or (columns, 4, 16) of one of
        64 rows.
        """
        rows, lane, column, columns = place
        part = self.columns[column : column + columns]
        return part if rows == LANES else part.reshape(columns, 4, 32)[:, :, lane : lane + 16]

    def values(self, place: Place, dtype: DType) -> Array:
        """The elements of a matrix, (rows, cols) in storage form."""
        return elements(self.words(place), dtype)

    def put(self, place: Place, values: Array, dtype: DType, warps: list[int]) -> None:
        """Writes the rows of `warps` of a matrix of elements; `values`: (rows, cols), or of the one
        warp alone.
        """
        rows, lane, column, columns = place
        each = rows // 4
        exact = np.ascontiguousarray(rounded(values, dtype).astype(dtype.numpy))
        bits = exact.view(np.uint32).reshape(-1, each, columns)
        for w in warps:
            first = 32 * w + lane
            self.columns[column : column + columns, first : first + each] = bits[
                w if len(bits) == 4 else 0
            ].T


def elements(words: Array, dtype: DType) -> Array:
    """The elements in words by columns, (columns, ...): (rows, cols), in storage form."""
    by_row = np.ascontiguousarray(words.reshape(len(words), -1).T)
    return by_row.view(dtype.numpy).astype(storage(dtype))


def rects(place: Place) -> list[Rect]:
    """The rectangles of lanes and columns that a matrix covers."""
    rows, lane, column, columns = place
    if rows == LANES:
        return [(0, LANES, column, column + columns)]
    return [(32 * w + lane, 32 * w + lane + 16, column, column + columns) for w in range(4)]


def warp_rect(place: Place, warp: int) -> Rect:
    """The part of a matrix that a warp of a warpgroup reaches (PTX ISA, tcgen05.ld, "Access
    restrictions").
    """
    rows, lane, column, columns = place
    first = 32 * warp + lane
    return first, first + rows // 4, column, column + columns


def warp_of(mask: int) -> int:
    """The warp of an agent that the threads of `mask`, of one warp, belong to."""
    return (mask.bit_length() - 1) // 32


@dataclass(frozen=True, slots=True)
class ScalePlace:
    """Where scale factors lie: `starts`, the first column of each 4 blocks of K, of which `used`
    columns are read.
    """

    scales: Scales
    starts: tuple[int, ...]
    used: int

    def rects(self) -> list[Rect]:
        """The rectangles of lanes and columns that an MMA reads."""
        return [(0, 4 * SCALE_LANES, start, start + self.used) for start in self.starts]

    def copied_rects(self) -> list[Rect]:
        """The rectangles that tcgen05.cp writes: whole pieces."""
        base = self.starts[0]
        return [
            (0, 4 * SCALE_LANES, base + column, base + column + 4)
            for column, _ in pieces(self.scales)
        ]

    def copy(self, tm: TensorMemory, raw: npt.NDArray[np.uint8]) -> None:
        """Copies the bytes of a tile of scale factors: each piece to all four groups of 32
        lanes.
        """
        tiles = raw.reshape(-1, PIECE_BYTES).view(np.uint32).reshape(-1, SCALE_LANES, 4)
        for column, piece in pieces(self.scales):
            at = self.starts[0] + column
            tm.columns[at : at + 4] = np.tile(tiles[piece].T, (1, 4))

    def values(self, tm: TensorMemory, site: Site) -> npt.NDArray[np.float64]:
        """The factors, (rows, blocks).

        Raises:
            SimFault: the four groups of 32 lanes hold different ones, or one of float8_e4m3 is
                negative.
        """
        s = self.scales
        columns = np.array(self.starts)[:, None] + np.arange(self.used)
        # [blocks of K by 4, column, group of lanes, lane, byte]
        raw = (
            np.ascontiguousarray(tm.columns[columns])
            .view(np.uint8)
            .reshape(*columns.shape, 4, SCALE_LANES, SCALES_A_COLUMN)
        )
        groups = raw.transpose(2, 1, 3, 0, 4).reshape(4, self.used * SCALE_LANES, -1)[
            :, : s.rows, : s.blocks
        ]
        codes = groups[0]
        if (groups != codes).any():
            group, row, block = (int(i[0]) for i in np.nonzero(groups != codes))
            raise SimFault(
                f"{site.what}: the scale factor of row {row}, block {block} is"
                f" {codes[row, block]:#x} in lanes 0..31 of tensor memory and"
                f" {groups[group, row, block]:#x} in lanes {32 * group}..{32 * group + 31}; all"
                f" four groups of 32 lanes must hold the same. {tm.cta.words['tcgen05.cp.warpx4']}"
                " writes them so.",
                site.loc,
            )
        if s.dtype is dtypes.float8_e4m3 and (codes & 0x80).any():
            row, block = (int(i[0]) for i in np.nonzero(codes & 0x80))
            raise SimFault(
                f"{site.what}: the scale factor of row {row}, block {block} is"
                f" {codes[row, block]:#x}, a negative float8_e4m3; the tensor core reads ue4m3,"
                " which has no sign (PTX ISA, .kind::mxf4nvf4). Put the sign into the elements.",
                site.loc,
            )
        return np.ascontiguousarray(codes).view(s.dtype.numpy).astype(np.float64)
