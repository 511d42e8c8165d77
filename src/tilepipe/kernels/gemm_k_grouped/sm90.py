"""A GEMM for Hopper whose K is divided among groups, as the weight gradients of a mixture of
experts need it: persistent and warp-specialised, as `gemm.sm90`.

    C[g, m, n] = Σ A[m, k] · B[n, k]    over the k of group g

offsets[g], an int32 in GPU memory, is the element of K after the last of group g, and is read by
the kernel, as `gemm_grouped` does. A (m, k) and B (n, k) are contiguous along m and n, so that a
group may begin at any k. The copies of a group's last K tile stop at its end, and the rest of the
tile arrives as zeros: whatever follows, infinities included, is of another group.
"""

from __future__ import annotations

from functools import partial

import tilepipe as tp
from tilepipe.kernels.common.groups_of_k import Groups
from tilepipe.kernels.common.sm90_gemm import Accumulators, Sm90Gemm, output_tiles, persistent_grid
from tilepipe.kernels.common.validation import Array, check_config
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped.validation import NAME, check_arguments, maps


@tp.kernel(grid=persistent_grid, cluster=lambda cfg: cfg.cluster_size)
def gemm_k_grouped(
    ctx: tp.Context,
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    c: tp.GlobalTensor,
    offsets: tp.GlobalTensor,
    *,
    cfg: KGroupedGemmConfig,
) -> None:
    """C[group] = A · Bᵀ over the group's part of K"""
    tiles = tp.StandardTilePayload(
        a_type=a.dtype,
        b_type=b.dtype,
        a_shape=(cfg.bm, cfg.bk),
        b_shape=(cfg.bn, cfg.bk),
        a_order=a.order,
        b_order=b.order,
    )
    inputs = tp.InputTilePipeline.allocate(ctx, tiles, num_group_stages=cfg.stages)
    work = output_tiles(ctx, c, cfg)
    shared = Sm90Gemm.allocate(ctx, cfg, inputs, work, a, c)
    groups = Groups(ctx, offsets, a.shape[1], cfg.bk)
    shared.declare_roles(partial(load, shared, groups, a, b), partial(multiply, shared, groups))


def load(gemm: Sm90Gemm, groups: Groups, a: tp.GlobalTensor, b: tp.GlobalTensor) -> None:
    """The load role. The K tiles begin where the group does and stop at its end."""
    ctx, cfg, inputs = gemm.ctx, gemm.cfg, gemm.inputs
    walk = groups.walk()
    with inputs.producer() as producer:
        for tile in gemm.work:
            assert tile.batch is not None
            span = walk.to(tile.batch)
            for step in ctx.range(span.steps):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    a_tile, b_tile = stage.tile()
                    k = ctx.let(span.first + step * cfg.bk, "k")
                    lines, full = span.end - k, stage.barrier()
                    a_place = (None, gemm.first_row("a", tile, cfg.bm), k)
                    b_place = (None, gemm.first_row("b", tile, cfg.bn), k)
                    gemm.a_share.load(ctx, a, a_tile, a_place, full, lines=lines)
                    gemm.b_share.load(ctx, b, b_tile, b_place, full, lines=lines)
        ctx.launch_dependents()
        producer.drain()


def multiply(gemm: Sm90Gemm, groups: Groups) -> None:
    """The MMA role. The sums of a group without rows are 0, and are stored as any others."""
    ctx = gemm.ctx
    sums = Accumulators(ctx, gemm.cfg, gemm.readers, empty=True)
    first_row = ctx.warpgroup_rank * gemm.cfg.rows
    walk = groups.walk()
    for tile in gemm.work:
        assert tile.batch is not None
        span = walk.to(tile.batch)
        with gemm.inputs.consumer(lag=sums.lag) as consumer:
            sums.multiply(consumer, span.steps, first_row)
        gemm.store(sums.blocks, tile, first_row)
    gemm.drain()


def bind(
    a: Array,
    b: Array,
    c: Array,
    offsets: Array,
    cfg: KGroupedGemmConfig,
    *,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The product for arrays a (m, k), b (n, k), c (groups, m, n) and offsets (groups,), which must
    satisfy TMA's rules (16-byte strides, one contiguous dimension).

    Group g has the elements [start, end) of k: end is offsets[g], but at most k and at least start,
    which is the end of the group before, 0 for the first. Every element of c is written: that of a
    group without elements is 0.

    Args:
        a, b: both bfloat16 or both float16, contiguous along m and n: a transposed view of the rows
            that belong to groups. c: bfloat16, float16 or float32, row-major. offsets: int32.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    check_config(NAME, cfg, KGroupedGemmConfig, "a KGroupedGemmConfig")
    check_arguments(a, b, c, offsets)
    return gemm_k_grouped.bind(*maps(a, b, c, cfg), offsets, chip=chip, cfg=cfg)
