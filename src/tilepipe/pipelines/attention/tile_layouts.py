"""Layouts of the tiles of an attention kernel in shared memory: K as an operand of S = Q · Kᵀ, V as
one of O += P · V, and the slots of a ring that holds both in turn.
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
from tilepipe.lang.memory.shared_tiles import SmemTile, SmemTileArray
from tilepipe.pipelines.attention.fa4_config import FA4Config
from tilepipe.pipelines.barriers.mbarriers import MbarPtr
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
                f" extent: {extent} × {self.dtype.nbytes} = {extent * self.dtype.nbytes} bytes",
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


@dataclass(frozen=True, eq=False)
class TMADestination:
    """The target of a TMA load: a tile, and the barrier that its bytes are credited to.
    `k.async_copy(dst, coords)` is `ctx.tma_load(k, coords, dst.smem, dst.mbar)`.
    """

    mbar: MbarPtr
    smem: SmemTile


@dataclass(frozen=True, eq=False)
class KVTiles:
    """The slots of a ring that K and V share, one tile of either in each: `use_fused_kv`.

    Attributes:
        k, v: the slots as tiles of K, (keys, depth) with the depth contiguous, and as tiles of V,
            (columns, keys) with the columns contiguous. A slot holds the tile that was written
            last; reading it as the other kind is a fault in the simulator.
    """

    k: SmemTileArray
    v: SmemTileArray

    @classmethod
    def allocate(
        cls,
        ctx: Context,
        config: FA4Config,
        dtype: DType | str | None = None,
        *,
        name: Name = "kv_tiles",
    ) -> KVTiles:
        """`config.num_kv_stages` slots, each as large as the larger tile, in set-up code.

        Raises:
            TraceError: no FA4Config, or one with a ring for each of K and V.
        """
        if not isinstance(config, FA4Config) or not config.use_fused_kv:
            raise TraceError(
                f"KVTiles are of an FA4Config with use_fused_kv; got {config!r}. Where K and V have"
                " rings of their own, each has an array of tiles:"
                " tile_layout_k_major(...).allocate, tile_layout_mn_major(...).allocate",
                caller(),
            )
        kind, c = config.qkv_dtype if dtype is None else dtypes.dtype(dtype), config
        k = tile_layout_k_major(kind, c.k_rows_per_cta(), c.BK0, c.swizzle_mode)
        v = tile_layout_mn_major(kind, c.v_cols_per_cta(), c.BK1, c.swizzle_mode)
        first, second = (k, v) if k.nbytes >= v.nbytes else (v, k)
        tiles = first.allocate(ctx, c.num_kv_stages, f"{name}_{'k' if first is k else 'v'}")
        view = tiles.view(
            (second.rows, second.cols),
            order=second.order,
            swizzle=second.swizzle,
            name=f"{name}_{'v' if first is k else 'k'}",
        )
        return cls(tiles, view) if first is k else cls(view, tiles)
