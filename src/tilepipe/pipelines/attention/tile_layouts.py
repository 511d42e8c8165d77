"""Layouts of the tiles of an attention kernel in shared memory: K as an operand of S = Q · Kᵀ, V as
one of O += P · V.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.layout import SWIZZLES
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import MatrixOrder, Name, Swizzle
from tilepipe.lang.context.context import Context
from tilepipe.lang.memory.shared_tiles import SmemTileArray
from tilepipe.pipelines.rings.tile_arrays import SMemTileArray2D


@dataclass(frozen=True)
class TileLayout:
    """A tile (rows, cols) of an MMA's operand: M or N by K. Where its elements lie is what
    `ir.layout` says of such a tile.

    Attributes:
        order: "row": K contiguous (K-major); "col": M or N contiguous (MN-major).
        swizzle: bytes: 0, 32, 64 or 128.
    """

    dtype: DType
    rows: int
    cols: int
    order: MatrixOrder
    swizzle: Swizzle

    def __post_init__(self) -> None:
        extent = self.cols if self.order == "row" else self.rows
        if any(type(x) is not int or x < 1 for x in (self.rows, self.cols)):
            raise TraceError(
                f"a tile has static extents of at least 1, got {self.rows!r}×{self.cols!r}",
                caller(),
            )
        if self.swizzle not in SWIZZLES or (
            self.swizzle and extent * self.dtype.nbytes % self.swizzle
        ):
            raise TraceError(
                f"swizzle {self.swizzle} must be one of {SWIZZLES} and divide the contiguous"
                f" extent: {extent} × {self.dtype.nbytes} ="
                f" {extent * self.dtype.nbytes} bytes",
                caller(),
            )

    def size(self) -> int:
        """Elements."""
        return self.rows * self.cols

    @property
    def nbytes(self) -> int:
        """Bytes."""
        return self.size() * self.dtype.nbytes

    def allocate(self, ctx: Context, count: int, name: Name = "tiles") -> SMemTileArray2D:
        """`count` tiles of this layout, in set-up code."""
        return SMemTileArray2D(
            ctx,
            self.dtype,
            self.rows,
            self.cols,
            count,
            order=self.order,
            swizzle=self.swizzle,
            name=name,
        )

    @staticmethod
    def of(tiles: SmemTileArray) -> TileLayout:
        """The layout of an array's tiles."""
        b = tiles.buffer
        return TileLayout(b.dtype, b.rows, b.cols, b.order, b.swizzle)

    def __str__(self) -> str:
        return (
            f"{self.rows}×{self.cols} {self.dtype} ({self.order} order, swizzle {self.swizzle}) ="
            f" {self.nbytes:,} bytes"
        )


def tile_layout_k_major(dtype: DType | str, mn: int, k: int, swizzle_mode: int = 128) -> TileLayout:
    """An operand (mn, k) with K contiguous in memory: K of S = Q · Kᵀ, `mn` keys of `k` elements of
    the depth.

    Raises:
        TraceError: the swizzle does not divide the k · size bytes of a row.
    """
    return TileLayout(dtypes.dtype(dtype), mn, k, "row", swizzle_mode)


def tile_layout_mn_major(
    dtype: DType | str, mn: int, k: int, swizzle_mode: int = 128
) -> TileLayout:
    """An operand (mn, k) with M or N contiguous in memory: V of O += P · V, `mn` columns of the
    output by `k` keys, which lie in memory as (keys, columns). Its tensor map is one of V
    transposed (`v.swapaxes(-1, -2)`).

    Raises:
        TraceError: the swizzle does not divide the mn · size bytes of a column.
    """
    return TileLayout(dtypes.dtype(dtype), mn, k, "col", swizzle_mode)
