"""A GEMM of block-scaled operands for Blackwell: `gemm.sm100` with two more tiles in
each input stage, the scales of the rows of A and B, which the MMA warp copies to tensor memory
before it multiplies.

    C[m, n] = activation(alpha · a_scale · b_scale · (A · sfa)[m, k] · (B · sfb)[n, k]ᵀ + bias[n] +
    beta · source[m, n])

MXFP8, MXFP4 and NVFP4: each 32, or 16, elements of a row of A and B share a scale. The scales are
in the layout of `block_scaled_layout.to_blocked`. C bfloat16, float16 or float32, row-major.
Simulated, checked and compiled; it has not been run on a Blackwell GPU.
"""

from __future__ import annotations

from typing import Any

import tilepipe as tp
from tilepipe.kernels.common import epilogue
from tilepipe.kernels.common.multicast import ClusterShares
from tilepipe.kernels.gemm.config import store_width
from tilepipe.kernels.gemm.sm100 import Accumulator, grid, scheduler
from tilepipe.kernels.gemm.validation import check_extras, check_kinds, scale_extents
from tilepipe.kernels.gemm_block_scaled.config import BlockScaledGemmConfig as BlockScaledGemmConfig
from tilepipe.kernels.gemm_block_scaled.layout import PIECE_ROWS
from tilepipe.kernels.gemm_block_scaled.validation import NAME, maps


@tp.kernel(grid=grid, cluster=lambda cfg: cfg.cluster_size)
def gemm_block_scaled(
    ctx: tp.Context,
    a: Any,
    b: Any,
    sfa: Any,
    sfb: Any,
    c: Any,
    bias: Any,
    a_scale: Any,
    b_scale: Any,
    source: Any,
    alpha: Any,
    beta: Any,
    *,
    cfg: BlockScaledGemmConfig,
    scales: str,
) -> None:
    """C = activation(alpha · a_scale · b_scale · (A · sfa) · (B · sfb)ᵀ + bias + beta · source)"""
    tiles = tp.BlockScaledTilePayload(
        a_type=a.dtype, b_type=b.dtype, a_shape=(cfg.bm, cfg.bk), b_shape=(cfg.b_rows, cfg.bk),
        sfa_type=sfa.dtype, sfb_type=sfb.dtype, sfa_shape=(cfg.bm, cfg.blocks), sfb_shape=(cfg.sfb_rows, cfg.blocks),
    )  # fmt: skip
    inputs = tp.InputTilePipeline.allocate(
        ctx,
        tiles,
        num_group_stages=cfg.stages,
        k_group_size=cfg.k_group_size,
        cta_group=cfg.cta_group,
    )
    accumulators = tp.OutputPipelineConfig(
        num_stages=cfg.accumulators, stage_stride_cols=cfg.bn, cta_group=cfg.cta_group
    )
    tmem = tp.BlockScaledTmem(ctx, accumulators, tiles)
    outputs = tp.OutputTilePipeline.allocate(ctx, accumulators, tmem=tmem)
    work = scheduler(ctx, (ctx.ceil_div(c.shape[0], cfg.bm), ctx.ceil_div(c.shape[1], cfg.bn)), cfg)
    k_steps = ctx.ceil_div(a.shape[1], cfg.bk * cfg.k_group_size)
    shares = ClusterShares.of(ctx, cfg.cluster, cfg.cluster_n, cfg.cta_group)
    finish = epilogue.Epilogue(
        ctx, c, bias, a_scale, b_scale, source, alpha, beta, cfg=cfg, scales=scales
    )

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
                for step in ctx.range(k_steps):
                    with producer.acquire() as stage, ctx.elect_one():
                        stage.expect_bytes(inputs.stage_bytes)
                        for j in range(cfg.k_group_size):
                            a_tile, b_tile, sfa_tile, sfb_tile = stage.tile(j)
                            k = (step * cfg.k_group_size + j) * cfg.bk
                            line = (step * cfg.k_group_size + j) * sfa.box[-2]  # of scales
                            shares.a.load(
                                ctx, a, a_tile, (None, tile.m * cfg.bm, k), stage.barrier()
                            )
                            shares.b.load(
                                ctx, b, b_tile, (None, tile.n * cfg.bn + half, k), stage.barrier()
                            )
                            shares.a.load_whole(
                                ctx, sfa, sfa_tile, (tile.m, line, 0), stage.barrier()
                            )
                            shares.b_whole.load_whole(
                                ctx,
                                sfb,
                                sfb_tile,
                                (tile.n * cfg.bn // PIECE_ROWS, line, 0),
                                stage.barrier(),
                            )
            ctx.launch_dependents()
            producer.drain()

    @ctx.role("mma", warps=1)
    def mma() -> None:
        with outputs.mma_warp(), inputs.consumer() as consumer:
            for tile in work:
                with ctx.when(tp.elect_one_cta(ctx)), outputs.producer() as output:
                    acc = output.tmem.tensor((cfg.bm, cfg.bn))
                    for step in ctx.range(k_steps):
                        with consumer.acquire() as stage, ctx.elect_one():
                            for j in range(cfg.k_group_size):
                                a_tile, b_tile, sfa_tile, sfb_tile = stage.tile(j)
                                ctx.tmem_copy(tmem.sfa(), sfa_tile)
                                ctx.tmem_copy(tmem.sfb(), sfb_tile)
                                of_n = tmem.sfb().rows(first_row(tile.n, cfg), cfg.bn)
                                ctx.mma(
                                    acc,
                                    a_tile,
                                    b_tile,
                                    accumulate=True if j else step > 0,
                                    sfa=tmem.sfa(),
                                    sfb=of_n,
                                )
                            ctx.mma_commit(stage.mbar(), mask=shares.release)

    @ctx.role("epilogue", warpgroups=1)
    def store() -> None:
        with outputs.epilogue_warp():
            for tile in work:
                with outputs.consumer() as output:
                    finish.store([[Accumulator(ctx, output, cfg)]], tile, 0)
            finish.drain()


def first_row(n: Any, cfg: BlockScaledGemmConfig) -> Any:
    """Of the scales that are loaded for the tiles with index `n`, the first row that is theirs: 0,
    or 64 where bn is no multiple of 128 and the tile begins inside a piece.
    """
    return n % 2 * (cfg.bn % PIECE_ROWS) if cfg.bn % PIECE_ROWS else 0


def bind(
    a: Any,
    b: Any,
    sfa: Any,
    sfb: Any,
    c: Any,
    cfg: BlockScaledGemmConfig,
    *,
    bias: Any = None,
    a_scale: Any = None,
    b_scale: Any = None,
    source: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The GEMM for arrays a (m, k), b (n, k) and c (m, n), row-major with strides of a multiple of
    16 bytes. fp4 comes packed, as uint8 (rows, k / 2), the first of two neighbours in the low half.
    NumPy arrays are for the simulator: the limits are then those of a B200.

    Args:
        sfa, sfb: the scales of a and b, float8_e8m0 (one for 32 along k) or of NVFP4 float8_e4m3
            (for 16), as `block_scaled_layout.to_blocked` lays out those of (m, k blocks) and (n, k
            blocks); any shape with as many elements. Padding must be no NaN. The sign of a scale of
            float8_e4m3 is not looked at by the hardware.
        bias: (n,), added to every row. source: like c, added times beta.
        a_scale, b_scale: float32, both of one element, as NVFP4 has them for the whole tensor, or
            (m,) and (n,), for each row.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    if not isinstance(cfg, BlockScaledGemmConfig):
        raise tp.BindError(f"{NAME}: cfg is a BlockScaledGemmConfig, got {cfg!r}")
    check_kinds(
        {}, {"bias": bias, "a_scale": a_scale, "b_scale": b_scale, "source": source}, alpha, beta
    )
    inputs = maps(a, b, sfa, sfb, c, cfg)
    check_extras(bias, source, beta, tuple(c.shape))
    scales = scale_extents(a_scale, b_scale, *c.shape)
    c_map = tp.tensor_map(c, box=(cfg.bm, store_width(tp.tensor_map(c).dtype, cfg)), order="row")
    return gemm_block_scaled.bind(
        *inputs, c_map, bias, a_scale, b_scale, source if beta else None,
        None if alpha == 1.0 else float(alpha), float(beta) if beta else None, chip=chip, cfg=cfg, scales=scales,
    )  # fmt: skip
