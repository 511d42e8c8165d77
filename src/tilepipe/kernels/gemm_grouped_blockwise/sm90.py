"""A grouped GEMM of fp8 operands with a scale for each block, for Hopper: the main loop of
`gemm_blockwise.sm90` on the tiles of `gemm_grouped.sm90`.

    C[i, n] = Σ_kb a_scales[kb, i] · b_scales[g, n / 128, kb] · (A_kb[i, :] · B_kb[g, n, :]ᵀ)

for the rows i of group g. Rows that follow each other: A (m, k), and offsets[g], an int32 in GPU
memory, is the row after the last of group g, which may be any. Padded: A (groups, m, k), and
rows[g] of the rows of each matrix are used, as a decoder has them, whose launch must not depend on
how many there are.

TMA copies from multiples of 16 bytes, four scales of A, and a tile may begin at any row: a stage
has room for more scales than the tile has rows, and the copy begins at most three rows before it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tilepipe as tp
from tilepipe.kernels.common.grouped import GroupedEpilogue, grouped_grid
from tilepipe.kernels.common.sm90_gemm import Sm90Gemm
from tilepipe.kernels.common.validation import Array, check_config
from tilepipe.kernels.gemm_blockwise.config import BLOCK, BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.sm90_halves import Halves, stages_of_tile, store_sums
from tilepipe.kernels.gemm_blockwise.sm90_scales import BScales
from tilepipe.kernels.gemm_blockwise.sm90_sums import BlockSums
from tilepipe.kernels.gemm_grouped_blockwise.validation import (
    NAME,
    SCALES_OF_16_BYTES,
    check_arguments,
    maps,
    scales_of_block,
)


@tp.kernel(grid=grouped_grid, cluster=lambda cfg: cfg.cluster_size)
def gemm_grouped_blockwise(
    ctx: tp.Context,
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    a_scales: tp.GlobalTensor,
    b_scales: tp.GlobalTensor,
    c: tp.GlobalTensor,
    offsets: tp.GlobalTensor,
    *,
    cfg: BlockwiseGemmConfig,
) -> None:
    """C = Σ over blocks of K of a_scales · b_scales · (A · Bᵀ), group by group"""
    payload = tp.BlockwiseFP8TilePayload(
        a_type=a.dtype,
        b_type=b.dtype,
        a_shape=(cfg.bm * cfg.blocks_of_stage, BLOCK),
        b_shape=(cfg.bn * cfg.blocks_of_stage, BLOCK),
        a_scales_type=tp.float32,
        a_scales_shape=(1, scales_of_block(cfg) * cfg.blocks_of_stage),
    )
    inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=cfg.stages)
    work = tp.GroupedScheduler(
        ctx,
        offsets,
        rows=c.shape[-2],
        tile_rows=cfg.bm,
        columns=ctx.ceil_div(c.shape[-1], cfg.bn),
        cluster=(cfg.cluster, cfg.cluster_n),
        raster=cfg.raster,
        group=cfg.group,
        padded=c.rank == 3,
    )
    scales = BScales(ctx, b_scales, cfg)
    shared = Sm90Gemm.allocate(ctx, cfg, inputs, work, a, c, epilogue=GroupedEpilogue)
    epilogue = shared.epilogue
    store = epilogue.store_at_once if cfg.store_slots == cfg.slices(c.dtype) else epilogue.store
    shared.declare_roles(
        partial(load, shared, work, a, b, a_scales),
        partial(multiply, shared, work, scales, Halves.of(ctx, cfg), store),
    )


def load(
    gemm: Sm90Gemm,
    work: tp.GroupedScheduler,
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    a_scales: tp.GlobalTensor,
) -> None:
    """The load role, as that of `gemm_blockwise.sm90`: a tile's rows of A begin where the group
    does, and B and its scales are the group's.
    """
    ctx, cfg, inputs = gemm.ctx, gemm.cfg, gemm.inputs
    assert isinstance(cfg, BlockwiseGemmConfig)
    assert a_scales.box is not None
    width, scales, steps = a_scales.box[-1], scales_of_block(cfg), stages_of_tile(gemm)
    with inputs.producer() as producer:
        for tile in work:
            first = tile.row // SCALES_OF_16_BYTES * SCALES_OF_16_BYTES
            for step in ctx.range(steps):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    a_tiles, b_tiles, scales_tile = stage.tile()
                    full, col = stage.barrier(), gemm.first_row("b", tile, cfg.bn)
                    for j in range(cfg.blocks_of_stage):
                        block = step * cfg.blocks_of_stage + j
                        a_tile = a_tiles.rows(j * cfg.bm, cfg.bm)
                        b_tile = b_tiles.rows(j * cfg.bn, cfg.bn)
                        k = block * BLOCK
                        gemm.a_share.load(ctx, a, a_tile, (tile.batch, tile.row, k), full)
                        gemm.b_share.load(ctx, b, b_tile, (tile.batch, col, k), full)
                        for i in range(0, scales, width):
                            at = (tile.batch, block, first + i)[-a_scales.rank :]
                            slot = scales_tile.cols(j * scales + i, width)
                            ctx.tma_load(a_scales, at, slot, full)
        ctx.launch_dependents()
        producer.drain()


def multiply(
    gemm: Sm90Gemm,
    work: tp.GroupedScheduler,
    scales: BScales,
    halves: Halves | None,
    store: Callable[..., None],
) -> None:
    """The MMA role, as that of `gemm_blockwise.sm90`. `store`: of the epilogue."""
    ctx, cfg = gemm.ctx, gemm.cfg
    assert isinstance(cfg, BlockwiseGemmConfig)
    sums = BlockSums(ctx, cfg, scales, gemm.readers)
    first_row, steps = ctx.warpgroup_rank * cfg.rows, stages_of_tile(gemm)
    for tile in work:
        skipped = tile.row % SCALES_OF_16_BYTES
        if halves is not None:  # a block has more scales in a stage than rows
            skipped += ctx.warpgroup_rank * (scales_of_block(cfg) - cfg.bm)
        sums.expect(tile)
        with gemm.inputs.consumer() as consumer:
            sums.multiply(consumer, steps, tile, first_row, ctx.let(skipped, "skipped"))
        store_sums(gemm, sums, halves, store, tile)
    gemm.epilogue.drain()


def bind(
    a: Array,
    b: Array,
    a_scales: Array,
    b_scales: Array,
    c: Array,
    offsets: Array,
    cfg: BlockwiseGemmConfig,
    *,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The grouped product for arrays a (m, k), b (groups, n, k) of float8_e4m3, c (m, n) of
    bfloat16, float16 or float32, all row-major with strides of a multiple of 16 bytes, and offsets
    (groups,) of int32.

    Group g has rows [start, end) of a and c: end is offsets[g], but at most m and at least start,
    which is the end of the group before, 0 for the first. Rows of c that are in no group are not
    written.

    Padded, with a (groups, m, k) and c (groups, m, n): group g has the first offsets[g] rows of its
    matrix, none where that is below 0, all where it is above m. The others are not written.

    Args:
        a_scales: float32, (k blocks, m), padded (groups, k blocks, m), in row order with strides of
            a multiple of 16 bytes, or the transposed views of those: a scale for each row and each
            128 of K.
        b_scales: float32, (groups, n blocks, k blocks): a scale for each 128×128 of B. The last
            block of an extent may be shorter.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    check_config(NAME, cfg, BlockwiseGemmConfig, "a BlockwiseGemmConfig")
    check_arguments(a, b, a_scales, b_scales, c, offsets)
    a_map, b_map, scales_map, c_map = maps(a, b, a_scales, c, cfg)
    return gemm_grouped_blockwise.bind(
        a_map, b_map, scales_map, b_scales, c_map, offsets, chip=chip, cfg=cfg
    )
