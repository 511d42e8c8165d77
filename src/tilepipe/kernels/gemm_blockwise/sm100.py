"""A GEMM of fp8 operands with a scale for each block, for Blackwell: as `gemm.sm100`,
but each block of 128 along K is an accumulator of its own, which the epilogue multiplies by the
block's scales and adds up in registers.

    C[m, n] = Σ_kb a_scales[kb, m] · b_scales[n / 128, kb] · (A_kb[m, :] · B_kb[n, :]ᵀ)

A (m, k) and B (n, k) e4m3, row-major. The scales of A come with its tiles and are read by the
epilogue, so a slot is free when the MMAs and every epilogue warp are done with it. Simulated,
checked and compiled; it has not been run on a Blackwell GPU.
"""

from __future__ import annotations

from functools import partial

import tilepipe as tp
from tilepipe.kernels.common.sm100_gemm import KTile, Sm100Gemm, grid, load
from tilepipe.kernels.common.validation import Array, check_config
from tilepipe.kernels.gemm_blockwise.config import BLOCK, Sm100BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.validation import NAME, check_arguments, maps


@tp.kernel(grid=grid, cluster=lambda cfg: cfg.cluster_size)
def gemm_blockwise(
    ctx: tp.Context,
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    a_scales: tp.GlobalTensor,
    b_scales: tp.GlobalTensor,
    c: tp.GlobalTensor,
    *,
    cfg: Sm100BlockwiseGemmConfig,
) -> None:
    """C = Σ over blocks of K of a_scales · b_scales · (A · Bᵀ)"""
    tiles = tp.BlockwiseFP8TilePayload(
        a_type=a.dtype,
        b_type=b.dtype,
        a_shape=(cfg.bm, BLOCK),
        b_shape=(cfg.b_rows, BLOCK),
        a_scales_type=tp.float32,
        a_scales_shape=(1, cfg.bm),
    )
    shared = Sm100Gemm.allocate(ctx, tiles, a, c, cfg)
    shared.declare_roles(
        partial(load, shared, partial(copy, a, b, a_scales)),
        partial(multiply, shared),
        partial(store, shared, b_scales),
    )


def copy(
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    a_scales: tp.GlobalTensor,
    gemm: Sm100Gemm,
    k_tile: KTile,
) -> None:
    """Starts the copies of this CTA's parts of a K tile. The scales of its rows of A are its own:
    no other CTA needs them.
    """
    ctx, cfg, barrier = gemm.ctx, gemm.cfg, k_tile.stage.barrier()
    a_tile, b_tile, scales_tile = k_tile.tiles
    row, k = k_tile.output.m * cfg.bm, k_tile.number * BLOCK
    gemm.shares.a.load(ctx, a, a_tile, (None, row, k), barrier)
    ctx.tma_load(a_scales, (k_tile.number, row), scales_tile, barrier)
    gemm.shares.b.load(ctx, b, b_tile, (None, k_tile.first_of_b, k), barrier)


def multiply(gemm: Sm100Gemm) -> None:
    """The MMA role: each block of K has an accumulator of its own, since its sums are scaled before
    they are added up. The ring of accumulators goes round by one a block and not by one a tile.
    """
    ctx, cfg = gemm.ctx, gemm.cfg
    with gemm.outputs.mma_warp(), gemm.inputs.consumer() as consumer:
        for _ in gemm.work:
            with ctx.when(tp.elect_one_cta(ctx)):
                for _ in ctx.range(gemm.k_steps):
                    with (
                        gemm.outputs.per_k().produce() as output,
                        consumer.acquire() as stage,
                        ctx.elect_one(),
                    ):
                        a_tile, b_tile, _ = stage.tile()
                        acc = output.tmem.tensor((cfg.bm, cfg.bn))
                        ctx.mma(acc, a_tile, b_tile, accumulate=False)
                        ctx.mma_commit(stage.mbar(), mask=gemm.shares.release)


def store(gemm: Sm100Gemm, b_scales: tp.GlobalTensor) -> None:
    """The epilogue role: adds each block's sums, times its scales, to totals in registers, beside
    the MMAs of the next block; then stores the totals. It reads the scales of A in the input stage,
    so the stage is free only when it and the MMAs are done with it.
    """
    ctx, cfg = gemm.ctx, gemm.cfg
    sums = tp.BlockwiseFP8Accumulator(ctx, (cfg.bm, cfg.bn))
    with gemm.outputs.epilogue_warp():
        for tile in gemm.work:
            sums.clear()
            # A cluster's last tile may lie outside of B.
            n_block = ctx.let(ctx.min(tile.n * cfg.bn // BLOCK, b_scales.shape[0] - 1), "n_block")
            for block in ctx.range(gemm.k_steps):
                with gemm.outputs.per_k_epilogue(gemm.inputs) as stage:
                    sums.promote(stage, stage.tile()[2], ctx.load(b_scales[n_block, block]))
            gemm.epilogue.store([[sums.total]], tile, 0)
        gemm.epilogue.drain()


def bind(
    a: Array,
    b: Array,
    a_scales: Array,
    b_scales: Array,
    c: Array,
    cfg: Sm100BlockwiseGemmConfig,
    *,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The product for the arrays, and the chip, that `gemm_blockwise.sm90.bind` takes.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    check_config(NAME, cfg, Sm100BlockwiseGemmConfig, "an Sm100BlockwiseGemmConfig")
    check_arguments(a, b, a_scales, b_scales, c)
    parts = cfg.bm // cfg.cluster_n, cfg.b_rows // (cfg.cluster // cfg.cta_group)
    a_map, b_map, scales_map, c_map = maps(a, b, a_scales, c, cfg, parts)
    return gemm_blockwise.bind(a_map, b_map, scales_map, b_scales, c_map, chip=chip, cfg=cfg)
