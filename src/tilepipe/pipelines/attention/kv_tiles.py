"""The slots of a ring that K and V share, and the destination of a TMA load."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import Name
from tilepipe.lang.context.context import Context
from tilepipe.lang.memory.shared_tiles import SmemTile, SmemTileArray
from tilepipe.pipelines.attention.fa4_config import FA4Config
from tilepipe.pipelines.attention.tile_layouts import (
    tile_layout_k_major,
    tile_layout_mn_major,
)
from tilepipe.pipelines.barriers.mbarriers import MbarPtr


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
                f"KVTiles are of an FA4Config with use_fused_kv; got {config!r}. Where K and V"
                " have rings of their own, each has an array"
                " of tiles: tile_layout_k_major(...).allocate, tile_layout_mn_major(...).allocate",
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
