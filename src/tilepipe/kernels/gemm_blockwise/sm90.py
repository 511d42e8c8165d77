"""A GEMM of fp8 operands with a scale for each block, for Hopper: persistent and warp-specialised,
as `gemm.sm90`.

    C[m, n] = Σ_kb a_scales[kb, m] · b_scales[n / 128, kb] · (A_kb[m, :] · B_kb[n, :]ᵀ)

A (m, k) and B (n, k) e4m3, row-major; kb runs over blocks of 128 along K. The tensor cores multiply
one block into partial sums, which the warpgroup then adds, times their scales, to totals in its
float32 registers, while they multiply for the other warpgroup. The scales of A come with its tiles,
by TMA; those of B, one or a few numbers a block, the load warp puts beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import tilepipe as tp
from tilepipe.kernels.common.sm90_gemm import Sm90Gemm, output_tiles, persistent_grid
from tilepipe.kernels.common.validation import Array, check_config
from tilepipe.kernels.gemm_blockwise.config import BLOCK, BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.sm90_halves import Halves, stages_of_tile, store_sums
from tilepipe.kernels.gemm_blockwise.sm90_scales import BScales
from tilepipe.kernels.gemm_blockwise.sm90_sums import BlockSums
from tilepipe.kernels.gemm_blockwise.validation import NAME, check_arguments, maps


@tp.kernel(grid=persistent_grid, cluster=lambda cfg: cfg.cluster_size)
def gemm_blockwise(
    ctx: tp.Context,
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    a_scales: tp.GlobalTensor,
    b_scales: tp.GlobalTensor,
    c: tp.GlobalTensor,
    *,
    cfg: BlockwiseGemmConfig,
) -> None:
    """C = Σ over blocks of K of a_scales · b_scales · (A · Bᵀ)"""
    payload = tp.BlockwiseFP8TilePayload(
        a_type=a.dtype,
        b_type=b.dtype,
        a_shape=(cfg.bm * cfg.blocks_of_stage, BLOCK),
        b_shape=(cfg.bn * cfg.blocks_of_stage, BLOCK),
        a_scales_type=tp.float32,
        a_scales_shape=(1, cfg.bm * cfg.blocks_of_stage),
    )
    inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=cfg.stages)
    work = output_tiles(ctx, c, cfg)
    scales = BScales(ctx, b_scales, cfg)
    shared = Sm90Gemm.allocate(ctx, cfg, inputs, work, a, c)
    # Where the store slots hold a whole tile, the warpgroups meet less often.
    epilogue = shared.epilogue
    store = epilogue.store_at_once if cfg.store_slots == cfg.slices(c.dtype) else epilogue.store
    shared.declare_roles(
        partial(load, shared, a, b, a_scales),
        partial(multiply, shared, work, scales, Halves.of(ctx, cfg), store),
    )


def load(gemm: Sm90Gemm, a: tp.GlobalTensor, b: tp.GlobalTensor, a_scales: tp.GlobalTensor) -> None:
    """The load role: one lane starts the copies of the tiles and of the scales of A, for each block
    of K that a stage has. It waits for the kernel before this one in the stream when it knows its
    tile.
    """
    ctx, cfg, inputs = gemm.ctx, gemm.cfg, gemm.inputs
    assert isinstance(cfg, BlockwiseGemmConfig)
    steps = stages_of_tile(gemm)
    with inputs.producer() as producer:
        for tile in gemm.work:
            ctx.grid_dependency_wait()  # at the first tile; then it is over
            for step in ctx.range(steps):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    a_tiles, b_tiles, scales_tiles = stage.tile()
                    row, col = gemm.first_row("a", tile, cfg.bm), gemm.first_row("b", tile, cfg.bn)
                    full = stage.barrier()
                    for j in range(cfg.blocks_of_stage):
                        block = step * cfg.blocks_of_stage + j
                        a_tile = a_tiles.rows(j * cfg.bm, cfg.bm)
                        b_tile = b_tiles.rows(j * cfg.bn, cfg.bn)
                        scales_tile = scales_tiles.cols(j * cfg.bm, cfg.bm)
                        gemm.a_share.load(ctx, a, a_tile, (None, row, block * BLOCK), full)
                        gemm.b_share.load(ctx, b, b_tile, (None, col, block * BLOCK), full)
                        ctx.tma_load(a_scales, (block, row), scales_tile, full)
        ctx.launch_dependents()
        producer.drain()


def multiply(
    gemm: Sm90Gemm,
    work: tp.StaticScheduler,
    scales: BScales,
    halves: Halves | None,
    store: Callable[..., None],
) -> None:
    """The MMA role. Adding partial sums to totals takes a warpgroup about as long as multiplying
    them takes the tensor cores, so two warpgroups keep them busy: one adds while the other's MMAs
    run. Small tiles are less than that: of those each warpgroup multiplies every other block of K,
    and `halves` adds both up.

    It reads the scales of B from global memory, so it waits for the kernel before this one, too.

    `store`: of the epilogue.
    """
    ctx, cfg = gemm.ctx, gemm.cfg
    assert isinstance(cfg, BlockwiseGemmConfig)
    sums = BlockSums(ctx, cfg, scales, gemm.readers)
    first_row, steps = ctx.warpgroup_rank * cfg.rows, stages_of_tile(gemm)
    tiles = work.ahead()
    ctx.grid_dependency_wait()
    sums.expect(tiles.first)
    for tile in tiles:
        with gemm.inputs.consumer() as consumer:
            sums.multiply(consumer, steps, tile, first_row)
        sums.expect_another(tile.following())  # their latency passes in the epilogue
        store_sums(gemm, sums, halves, store, tile)
    gemm.epilogue.drain()


def bind(
    a: Array,
    b: Array,
    a_scales: Array,
    b_scales: Array,
    c: Array,
    cfg: BlockwiseGemmConfig,
    *,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The product for arrays a (m, k), b (n, k) of float8_e4m3 and c (m, n) of bfloat16, float16 or
    float32, all row-major with strides of a multiple of 16 bytes.

    Args:
        a_scales: float32, (k blocks, m) in row order with strides of a multiple of 16 bytes, or (m,
            k blocks) in column order: a scale for each row and each 128 of K.
        b_scales: float32, (n blocks, k blocks): a scale for each 128×128 of B. The last block of an
            extent may be shorter.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    check_config(NAME, cfg, BlockwiseGemmConfig, "a BlockwiseGemmConfig")
    check_arguments(a, b, a_scales, b_scales, c)
    parts = cfg.bm // cfg.cluster_n, cfg.bn // cfg.cluster
    a_map, b_map, scales_map, c_map = maps(a, b, a_scales, c, cfg, parts)
    return gemm_blockwise.bind(a_map, b_map, scales_map, b_scales, c_map, chip=chip, cfg=cfg)
