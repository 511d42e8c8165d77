"""A GEMM of fp8 operands with a scale for each block, for Blackwell: as `gemm.sm100`,
but each block of 128 along K is an accumulator of its own, which the epilogue multiplies by the
block's scales and adds up in registers.

    C[m, n] = Σ_kb a_scales[kb, m] · b_scales[n / 128, kb] · (A_kb[m, :] · B_kb[n, :]ᵀ)

A (m, k) and B (n, k) e4m3, row-major. The scales of A come with its tiles and are read by the
epilogue, so a slot is free when the MMAs and every epilogue warp are done with it. Simulated,
checked and compiled; it has not been run on a Blackwell GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tilepipe as tp
from tilepipe.kernels.common import epilogue
from tilepipe.kernels.common.multicast import ClusterShares, load_rows
from tilepipe.kernels.gemm.config import store_width
from tilepipe.kernels.gemm.config_sm100 import Sm100GemmConfig
from tilepipe.kernels.gemm.sm100 import grid, scheduler
from tilepipe.kernels.gemm_blockwise.config import BLOCK
from tilepipe.kernels.gemm_blockwise.validation import boxed, check_arguments, scales_by_rows


@dataclass(frozen=True)
class Sm100BlockwiseGemmConfig(Sm100GemmConfig):
    """Static settings of the blockwise fp8 GEMM on Blackwell: those of `Sm100GemmConfig`. A K
    tile is a block of scales, and the sums of a tile are in the registers of one warpgroup.
    """

    bk: int = BLOCK
    stages: int = 5
    accumulators: int = 2

    def _rules(self) -> dict[str, bool]:
        return super()._rules() | {
            f"bk must be {BLOCK}, the block of a scale": self.bk == BLOCK,
            "k_group_size must be 1: each K tile has scales": self.k_group_size == 1,
            f"bn must divide {BLOCK}, so that a tile has one scale of B": self.bn >= 1
            and BLOCK % self.bn == 0,
            "bm must be 128: a row for each thread of the epilogue": self.bm == BLOCK,
            "activation must be none": self.activation == "none",
        }


@tp.kernel(grid=grid, cluster=lambda cfg: cfg.cluster_size)
def gemm_blockwise(
    ctx: tp.Context,
    a: Any,
    b: Any,
    a_scales: Any,
    b_scales: Any,
    c: Any,
    *,
    cfg: Sm100BlockwiseGemmConfig,
) -> None:
    """C = Σ over blocks of K of a_scales · b_scales · (A · Bᵀ)"""
    tiles = tp.BlockwiseFP8TilePayload(
        a_type=a.dtype, b_type=b.dtype, a_shape=(cfg.bm, BLOCK), b_shape=(cfg.b_rows, BLOCK), a_scales_type=tp.float32,
        a_scales_shape=(1, cfg.bm),
    )  # fmt: skip
    inputs = tp.InputTilePipeline.allocate(
        ctx, tiles, num_group_stages=cfg.stages, cta_group=cfg.cta_group
    )
    outputs = tp.OutputTilePipeline.allocate(
        ctx,
        tp.OutputPipelineConfig(
            num_stages=cfg.accumulators, stage_stride_cols=cfg.bn, cta_group=cfg.cta_group
        ),
    )
    work = scheduler(ctx, (ctx.ceil_div(c.shape[0], cfg.bm), ctx.ceil_div(c.shape[1], cfg.bn)), cfg)
    k_blocks = ctx.ceil_div(a.shape[1], BLOCK)
    shares = ClusterShares.of(ctx, cfg.cluster, cfg.cluster_n, cfg.cta_group)
    finish = epilogue.Epilogue(ctx, c, None, None, None, None, None, None, cfg=cfg, scales="none")

    if work.needs_role:

        @ctx.role("schedule", warps=1)
        def schedule() -> None:
            work.schedule()

    @ctx.role("load", warps=1)
    def load() -> None:
        half = ctx.cta_rank % cfg.cta_group * cfg.b_rows  # of B, in a pair
        with inputs.producer() as producer:
            for tile in work:
                work.throttle_signal()
                for block in ctx.range(k_blocks):
                    with producer.acquire() as stage, ctx.elect_one():
                        stage.expect_bytes(inputs.stage_bytes)
                        a_tile, b_tile, scales_tile = stage.tile()
                        row, col, k = tile.m * cfg.bm, tile.n * cfg.bn + half, block * BLOCK
                        shares.a.load(ctx, a, a_tile, (None, row, k), stage.barrier())
                        ctx.tma_load(a_scales, (block, row), scales_tile, stage.barrier())
                        shares.b.load(ctx, b, b_tile, (None, col, k), stage.barrier())
            ctx.launch_dependents()
            producer.drain()

    @ctx.role("mma", warps=1)
    def mma() -> None:
        with outputs.mma_warp(), inputs.consumer() as consumer:
            for _ in work:
                with ctx.when(tp.elect_one_cta(ctx)):
                    for _ in ctx.range(k_blocks):
                        with (
                            outputs.per_k().produce() as output,
                            consumer.acquire() as stage,
                            ctx.elect_one(),
                        ):
                            a_tile, b_tile, _ = stage.tile()
                            ctx.mma(
                                output.tmem.tensor((cfg.bm, cfg.bn)),
                                a_tile,
                                b_tile,
                                accumulate=False,
                            )
                            ctx.mma_commit(stage.mbar(), mask=shares.release)

    @ctx.role("epilogue", warpgroups=1)
    def store() -> None:
        sums = tp.BlockwiseFP8Accumulator(ctx, (cfg.bm, cfg.bn))
        with outputs.epilogue_warp():
            for tile in work:
                sums.clear()
                # a cluster's last may lie outside
                n_block = ctx.let(
                    ctx.min(tile.n * cfg.bn // BLOCK, b_scales.shape[0] - 1), "n_block"
                )
                for block in ctx.range(k_blocks):
                    with outputs.per_k_epilogue(inputs) as stage:
                        sums.promote(stage, stage.tile()[2], ctx.load(b_scales[n_block, block]))
                finish.store([[sums.total]], tile, 0)
            finish.drain()


def bind(
    a: Any, b: Any, a_scales: Any, b_scales: Any, c: Any, cfg: Sm100BlockwiseGemmConfig, *, chip: tp.Chip | None = None
) -> tp.Program:  # fmt: skip
    """The product for the arrays, and the chip, that `gemm_blockwise.sm90.bind` takes.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    if not isinstance(cfg, Sm100BlockwiseGemmConfig):
        raise tp.BindError(f"gemm_blockwise: cfg is an Sm100BlockwiseGemmConfig, got {cfg!r}")
    m, _, k = check_arguments(a, b, a_scales, b_scales, c)
    a_map = boxed("a", a, (load_rows(cfg.bm // cfg.cluster_n), BLOCK))
    b_map = boxed("b", b, (load_rows(cfg.b_rows // (cfg.cluster // cfg.cta_group)), BLOCK))
    scales_map = boxed("a_scales", scales_by_rows(a_scales, m, k), (1, cfg.bm))
    c_map = boxed("c", c, (cfg.bm, store_width(tp.tensor_map(c).dtype, cfg)))
    return gemm_blockwise.bind(a_map, b_map, scales_map, b_scales, c_map, chip=chip, cfg=cfg)
