"""A grouped GEMM for Hopper, as a mixture of experts needs it: persistent and warp-specialised, as
`gemm.sm90`.

    C[i, n] = a_scale[i] · b_scale[g, n] · A[i, k] · B[g, n, k]ᵀ    for the rows i of group g

The rows of A (m, k) are sorted by group; offsets[g], an int32 in GPU memory, is the row after the
last of group g, and is read by the kernel: the host knows the number of groups and no more, so that
one launch, or one CUDA graph, serves all distributions. B (groups, n, k) row- or column-major, C
(m, n) bfloat16, float16 or float32. A tile of C begins at a group's first row, wherever that is.
TMA loads whatever follows the group's last row, and TMA stores leave those rows out
(`tensor_map(..., ragged=True)`), so that there is one way through the kernel for whole and for
ragged tiles.

Padded, A (groups, m, k) and C (groups, m, n) have a matrix for each group, of which the first
offsets[g] rows are used: a launch that does not depend on how many there are, also not by where
they lie.
"""

from __future__ import annotations

from functools import partial

import tilepipe as tp
from tilepipe.kernels.common.epilogue import Terms
from tilepipe.kernels.common.grouped import GroupedEpilogue, grouped_grid
from tilepipe.kernels.common.multicast import load_rows
from tilepipe.kernels.common.sm90_gemm import Sm90Gemm, multiply_and_store
from tilepipe.kernels.common.tiling import BLOCK_ROWS, store_width
from tilepipe.kernels.common.validation import Array, check_config, mapped
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.validation import NAME, check_arguments


@tp.kernel(grid=grouped_grid, cluster=lambda cfg: cfg.cluster_size)
def gemm_grouped(
    ctx: tp.Context,
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    c: tp.GlobalTensor,
    offsets: tp.GlobalTensor,
    a_scale: tp.GlobalTensor | None,
    b_scale: tp.GlobalTensor | None,
    *,
    cfg: GroupedGemmConfig,
) -> None:
    """C = a_scale · b_scale · A · Bᵀ, group by group"""
    tiles = tp.StandardTilePayload(
        a_type=a.dtype,
        b_type=b.dtype,
        a_shape=(cfg.bm, cfg.bk),
        b_shape=(cfg.bn, cfg.bk),
        b_order=b.order,
    )
    inputs = tp.InputTilePipeline.allocate(ctx, tiles, num_group_stages=cfg.stages)
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
    terms = Terms(a_scale=a_scale, b_scale=b_scale, scales="none" if a_scale is None else "row")
    shared = Sm90Gemm.allocate(ctx, cfg, inputs, work, a, c, terms, GroupedEpilogue)
    shared.declare_roles(partial(load, shared, work, a, b), partial(multiply_and_store, shared))


def load(gemm: Sm90Gemm, work: tp.GroupedScheduler, a: tp.GlobalTensor, b: tp.GlobalTensor) -> None:
    """The load role. A tile's rows of A begin where the group does, and B is the group's."""
    ctx, cfg, inputs = gemm.ctx, gemm.cfg, gemm.inputs
    with inputs.producer() as producer:
        for tile in work:
            for step in ctx.range(gemm.k_steps):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    a_tile, b_tile = stage.tile()
                    a_place = (tile.batch, tile.row, step * cfg.bk)
                    b_place = (tile.batch, gemm.first_row("b", tile, cfg.bn), step * cfg.bk)
                    gemm.a_share.load(ctx, a, a_tile, a_place, stage.barrier())
                    gemm.b_share.load(ctx, b, b_tile, b_place, stage.barrier())
        ctx.launch_dependents()
        producer.drain()


def bind(
    a: Array,
    b: Array,
    c: Array,
    offsets: Array,
    cfg: GroupedGemmConfig,
    *,
    a_scale: Array | None = None,
    b_scale: Array | None = None,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The grouped GEMM for arrays a (m, k), b (groups, n, k), c (m, n) and offsets (groups,), which
    must satisfy TMA's rules (16-byte strides, one contiguous dimension).

    Group g has rows [start, end) of a and c: end is offsets[g], but at most m and at least start,
    which is the end of the group before, 0 for the first. Rows of c that are in no group are not
    written.

    Padded, with a (groups, m, k) and c (groups, m, n): group g has the first offsets[g] rows of its
    matrix, none where that is below 0, all where it is above m. The others are not written.

    Args:
        a, b: both bfloat16, both float16, or fp8. a row-major; each b row- or column-major, of fp8
            row-major.
        c: bfloat16, float16 or float32, row-major. offsets: int32.
        a_scale, b_scale: float32 (m,) and (groups, n), of fp8 or any other a and b; both or
            neither; not padded.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    check_config(NAME, cfg, GroupedGemmConfig, "a GroupedGemmConfig")
    check_arguments(a, b, c, offsets, a_scale, b_scale, cfg)
    one, width = (1,) * (len(a.shape) - 2), store_width(tp.tensor_map(c).dtype, cfg)
    return gemm_grouped.bind(
        mapped(NAME, "a", a, (*one, load_rows(cfg.bm // cfg.cluster_n), cfg.bk), order="row"),
        mapped(NAME, "b", b, (1, load_rows(cfg.bn // cfg.cluster), cfg.bk)),
        mapped(NAME, "c", c, (*one, BLOCK_ROWS, width), order="row", ragged=True),
        offsets,
        a_scale,
        b_scale,
        chip=chip,
        cfg=cfg,
    )
