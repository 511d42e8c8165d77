"""Attention on Hopper: the rings and tiles in shared memory."""

from __future__ import annotations

from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.attention.config import AttentionConfig


@dataclass(frozen=True, eq=False)
class Memory:
    """The tiles in shared memory and the rings that hand them over.

    Attributes:
        shape: extents of the tiles.
        queries: the ring of tiles of queries, `q_tiles`. keys, values: the rings of K and V.
        o_tile: of the output, where it is stored through shared memory.
    """

    shape: tp.FA4Config
    queries: tp.ProducerConsumerPipeline
    q_tiles: tp.SMemTileArray2D
    o_tile: tp.SmemTile | None
    keys: tp.StagedPipeline
    k_tiles: tp.SmemTileArray
    values: tp.StagedPipeline
    v_tiles: tp.SmemTileArray

    @classmethod
    def allocate(
        cls, ctx: tp.Context, cfg: AttentionConfig, shape: tp.FA4Config, out: tp.DType
    ) -> Memory:
        """Allocates shared memory and barriers. `out`: the dtype of the output."""
        dtype, swizzle = shape.qkv_dtype, shape.swizzle_mode
        queries = tp.ProducerConsumerPipeline.allocate(ctx, cfg.q_tiles, name="queries")

        def rows(name: str, kind: tp.DType, width: int, count: int) -> tp.SMemTileArray2D:
            return tp.SMemTileArray2D(ctx, kind, cfg.bm, width, count, name=name)

        q_tiles = rows("q_tile", dtype, shape.padded_qk_depth, cfg.q_tiles)
        o_tile = rows("o_tile", out, shape.padded_ov_depth, 1)[0] if cfg.store == "tile" else None
        keys = tp.StagedPipeline.allocate(ctx, cfg.stages, cfg.qk_stages, name="keys")
        k_tiles = tp.tile_layout_k_major(dtype, cfg.bn, shape.BK0, swizzle).allocate(
            ctx, cfg.stages * cfg.qk_stages, "k_tiles"
        )
        values = tp.StagedPipeline.allocate(ctx, cfg.stages, name="values")
        of_v = tp.tile_layout_k_major if shape.v_k_major else tp.tile_layout_mn_major
        v_tiles = of_v(dtype, shape.padded_ov_depth, cfg.bn, shape.v_swizzle_mode).allocate(
            ctx, cfg.stages, "v_tiles"
        )
        return cls(shape, queries, q_tiles, o_tile, keys, k_tiles, values, v_tiles)

    def q_tile(self, stage: tp.ProducerStage | tp.ConsumerStage) -> tp.SmemTile:
        """The tile of queries of a stage."""
        return self.q_tiles[0 if self.queries.num_stages == 1 else stage.index()]

    def depths(self) -> list[int]:
        """What is multiplied of each part of a tile of K. Of a head padded to whole spans of the
        swizzle that is only the part that has elements.
        """
        shape = self.shape
        whole = -(-shape.depth // shape.MMA_K) * shape.MMA_K
        return [min(shape.BK0, whole - i * shape.BK0) for i in range(shape.num_qk_stages)]

    def producers(self) -> tuple[tp.KProducerPipeline, tp.VProducerPipeline]:
        """The sides of the rings of K and V that the load role has."""
        return (
            tp.KProducerPipeline(self.keys, self.k_tiles, self.shape),
            tp.VProducerPipeline(self.values, self.v_tiles, self.shape),
        )

    def consumers(self) -> tuple[tp.KConsumerPipeline, tp.VConsumerPipeline]:
        """The sides of the rings of K and V that a warpgroup of the attend role has."""
        return (
            tp.KConsumerPipeline(self.keys, self.k_tiles, self.shape),
            tp.VConsumerPipeline(self.values, self.v_tiles, self.shape),
        )
