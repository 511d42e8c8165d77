"""Tiles on Hopper of which each of two warpgroups multiplies every other block of K: a stage has a
block for each of them, one after the other in its tiles, and what they have is added up at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tilepipe as tp
from tilepipe.kernels.common.sm90_gemm import Sm90Gemm
from tilepipe.kernels.common.tiling import BLOCK_ROWS
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.sm90_sums import Sums


def stages_of_tile(gemm: Sm90Gemm) -> tp.Value:
    """Stages of the ring that a tile takes, over all of K. The second block of the last may be
    beyond the end of K, where TMA copies zeros.
    """
    assert isinstance(gemm.cfg, BlockwiseGemmConfig)
    every = gemm.cfg.blocks_of_stage
    return gemm.k_steps if every == 1 else gemm.ctx.let(gemm.ctx.ceil_div(gemm.k_steps, every))


class Halves:
    """Adds the sums of the second warpgroup to those of the first, through shared memory."""

    def __init__(self, ctx: tp.Context, cfg: BlockwiseGemmConfig) -> None:
        """Called in set-up code, before the roles."""
        self._ctx = ctx
        # Panels of 32 bytes, eight columns: what a warp stores is 256 consecutive bytes at a time.
        self._parts = ctx.smem(
            (BLOCK_ROWS, cfg.bn),
            tp.float32,
            count=cfg.rows // BLOCK_ROWS,
            swizzle=32,
            name="second_half",
        )

    @classmethod
    def of(cls, ctx: tp.Context, cfg: BlockwiseGemmConfig) -> Halves | None:
        """None where each warpgroup has rows of its own."""
        return cls(ctx, cfg) if cfg.takes == "k" else None

    def add_up(self, totals: Sequence[tp.Fragment]) -> None:
        """By both warpgroups; the first then has the sums of both."""
        ctx = self._ctx
        with ctx.when(ctx.warpgroup_rank == 1):
            for i, total in enumerate(totals):
                ctx.store(self._parts[i], total)
        ctx.sync_role()
        with ctx.when(ctx.warpgroup_rank == 0):
            for i, total in enumerate(totals):
                other = ctx.fragment(shape=total.shape)
                other.load(self._parts[i])
                total += other
        ctx.sync_role()  # the second may store those of its next tile


def store_sums(
    gemm: Sm90Gemm,
    sums: Sums,
    halves: Halves | None,
    store: Callable[..., None],
    tile: tp.WorkTile,
) -> None:
    """Stores a tile's sums: each warpgroup its rows, or the first one all. `store`: of the
    epilogue.
    """
    ctx = gemm.ctx
    blocks = [[total] for total in sums.totals]
    if halves is None:
        store(blocks, tile, ctx.warpgroup_rank * gemm.cfg.rows)
        return
    halves.add_up(sums.totals)
    with ctx.when(ctx.warpgroup_rank == 0):
        store(blocks, tile, 0)
