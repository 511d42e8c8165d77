"""A GEMM of block-scaled operands for Blackwell: `gemm.sm100` with two more tiles in
each input stage, the scales of the rows of A and B, which the MMA warp copies to tensor memory
before it multiplies.

    C[m, n] = activation(alpha · a_scale · b_scale · (A · sfa)[m, k] · (B · sfb)[n, k]ᵀ
        + bias[n] + beta · source[m, n])

MXFP8, MXFP4 and NVFP4: each 32, or 16, elements of a row of A and B share a scale. The scales are
in the layout of `layout.to_blocked`. C bfloat16, float16 or float32, row-major.
Simulated, checked and compiled; it has not been run on a Blackwell GPU.
"""

from __future__ import annotations

from functools import partial

import tilepipe as tp
from tilepipe.kernels.common.epilogue import Terms
from tilepipe.kernels.common.sm100_gemm import KTile, Sm100Gemm, grid, load, multiply, store
from tilepipe.kernels.common.validation import Array, check_config
from tilepipe.kernels.gemm.validation import Extras, check_kinds, output_map
from tilepipe.kernels.gemm_block_scaled.config import BlockScaledGemmConfig
from tilepipe.kernels.gemm_block_scaled.layout import PIECE_ROWS
from tilepipe.kernels.gemm_block_scaled.validation import NAME, Scales, maps


@tp.kernel(grid=grid, cluster=lambda cfg: cfg.cluster_size)
def gemm_block_scaled(
    ctx: tp.Context,
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    sfa: tp.GlobalTensor,
    sfb: tp.GlobalTensor,
    c: tp.GlobalTensor,
    bias: tp.GlobalTensor | None,
    a_scale: tp.GlobalTensor | None,
    b_scale: tp.GlobalTensor | None,
    source: tp.GlobalTensor | None,
    alpha: tp.Value | None,
    beta: tp.Value | None,
    *,
    cfg: BlockScaledGemmConfig,
    scales: str,
) -> None:
    """C = activation(alpha · a_scale · b_scale · (A · sfa) · (B · sfb)ᵀ + bias + beta · source)"""
    tiles = tp.BlockScaledTilePayload(
        a_type=a.dtype,
        b_type=b.dtype,
        a_shape=(cfg.bm, cfg.bk),
        b_shape=(cfg.b_rows, cfg.bk),
        sfa_type=sfa.dtype,
        sfb_type=sfb.dtype,
        sfa_shape=(cfg.bm, cfg.blocks),
        sfb_shape=(cfg.sfb_rows, cfg.blocks),
    )
    terms = Terms(bias, a_scale, b_scale, source, alpha, beta, scales)
    shared = Sm100Gemm.allocate(ctx, tiles, a, c, cfg, terms)
    shared.declare_roles(
        partial(load, shared, partial(copy, a, b, sfa, sfb)),
        partial(multiply, shared, issue),
        partial(store, shared),
    )


def copy(
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    sfa: tp.GlobalTensor,
    sfb: tp.GlobalTensor,
    gemm: Sm100Gemm,
    k_tile: KTile,
) -> None:
    """Starts the copies of this CTA's parts of a K tile. The scales of a tile are too few to be
    divided among CTAs: one of those that share it copies them for all. In a pair each CTA needs the
    scales of all rows of B, not only of its half.
    """
    ctx, cfg, shares, barrier = gemm.ctx, gemm.cfg, gemm.shares, k_tile.stage.barrier()
    a_tile, b_tile, sfa_tile, sfb_tile = k_tile.tiles
    m, n, k = k_tile.output.m, k_tile.output.n, k_tile.number * cfg.bk
    assert sfa.box is not None
    line = k_tile.number * sfa.box[-2]  # of scales
    shares.a.load(ctx, a, a_tile, (None, m * cfg.bm, k), barrier)
    shares.b.load(ctx, b, b_tile, (None, k_tile.first_of_b, k), barrier)
    shares.a.load_whole(ctx, sfa, sfa_tile, (m, line, 0), barrier)
    shares.b_whole.load_whole(ctx, sfb, sfb_tile, (n * cfg.bn // PIECE_ROWS, line, 0), barrier)


def issue(
    gemm: Sm100Gemm,
    stage: tp.InputConsumerStage,
    slot: int,
    acc: tp.TmemTensor,
    tile: tp.WorkTile,
    adds: bool | tp.Value,
) -> None:
    """Copies the scales of a K tile to tensor memory, and multiplies it. The tensor core runs
    copies and MMAs of one thread in the order in which they are issued, so nothing waits in
    between.
    """
    ctx, cfg, tmem = gemm.ctx, gemm.cfg, gemm.tmem
    assert isinstance(cfg, BlockScaledGemmConfig)
    assert tmem is not None
    a_tile, b_tile, sfa_tile, sfb_tile = stage.tile(slot)
    ctx.tmem_copy(tmem.sfa(), sfa_tile)
    ctx.tmem_copy(tmem.sfb(), sfb_tile)
    sfb = tmem.sfb().rows(first_row(tile.n, cfg), cfg.bn)
    ctx.mma(acc, a_tile, b_tile, accumulate=adds, sfa=tmem.sfa(), sfb=sfb)


def first_row(n: tp.Value, cfg: BlockScaledGemmConfig) -> tp.Value | int:
    """The first row of tile `n` within the scales that are loaded for it: 0, or 64 where bn is no
    multiple of 128 and the tile begins inside a piece.
    """
    return n % 2 * (cfg.bn % PIECE_ROWS) if cfg.bn % PIECE_ROWS else 0


def bind(
    a: Array,
    b: Array,
    sfa: Scales,
    sfb: Scales,
    c: Array,
    cfg: BlockScaledGemmConfig,
    *,
    bias: Array | None = None,
    a_scale: Array | None = None,
    b_scale: Array | None = None,
    source: Array | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The GEMM for arrays a (m, k), b (n, k) and c (m, n), row-major with strides of a multiple of
    16 bytes. fp4 comes packed, as uint8 (rows, k / 2), the first of two neighbours in the low half.
    NumPy arrays are for the simulator: the limits are then those of a B200.

    Args:
        sfa, sfb: the scales of a and b, float8_e8m0 (one for 32 along k) or of NVFP4 float8_e4m3
            (for 16), as `layout.to_blocked` lays out those of (m, k blocks) and (n, k
            blocks); any shape with as many elements. Padding must be no NaN. The sign of a scale of
            float8_e4m3 is not looked at by the hardware.
        bias: (n,), added to every row, or (m, 1), added to every column. source: like c, added
            times beta.
        a_scale, b_scale: float32, both of one element, as NVFP4 has them for the whole tensor, or
            (m,) and (n,), for each row.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    check_config(NAME, cfg, BlockScaledGemmConfig, "a BlockScaledGemmConfig")
    extras = Extras(bias, a_scale, b_scale, source, alpha, beta)
    check_kinds({}, extras)
    inputs = maps(a, b, sfa, sfb, c, cfg)
    extras.check(tuple(c.shape))
    scales, c_map = extras.scales(*c.shape), output_map(c, cfg)
    operands = *inputs, c_map, *extras.operands()
    return gemm_block_scaled.bind(*operands, chip=chip, cfg=cfg, scales=scales)
