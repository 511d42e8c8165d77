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
        cls, ctx: tp.Context, cfg: AttentionConfig, shape: tp.FA4Config, dtype: tp.DType
    ) -> Memory:
        """Allocates shared memory and barriers for tiles of a dtype."""
        queries = tp.ProducerConsumerPipeline.allocate(ctx, cfg.q_tiles, name="queries")

        def rows(name: str, width: int, count: int) -> tp.SMemTileArray2D:
            return tp.SMemTileArray2D(ctx, dtype, cfg.bm, width, count, name=name)

        q_tiles = rows("q_tile", shape.padded_qk_depth, cfg.q_tiles)
        o_tile = rows("o_tile", shape.padded_ov_depth, 1)[0] if cfg.store == "tile" else None
        keys = tp.StagedPipeline.allocate(ctx, cfg.stages, cfg.qk_stages, name="keys")
        k_tiles = tp.tile_layout_k_major(dtype, cfg.bn, shape.BK0).allocate(
            ctx, cfg.stages * cfg.qk_stages, "k_tiles"
        )
        values = tp.StagedPipeline.allocate(ctx, cfg.stages, name="values")
        v_tiles = tp.tile_layout_mn_major(dtype, shape.padded_ov_depth, cfg.bn).allocate(
            ctx, cfg.stages, "v_tiles"
        )
        return cls(shape, queries, q_tiles, o_tile, keys, k_tiles, values, v_tiles)

    def q_tile(self, stage: tp.ProducerStage | tp.ConsumerStage) -> tp.SmemTile:
        """The tile of queries of a stage."""
        return self.q_tiles[0 if self.queries.num_stages == 1 else stage.index()]

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
