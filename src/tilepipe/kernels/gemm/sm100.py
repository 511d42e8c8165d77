"""A persistent, warp-specialised GEMM for Blackwell: one TMA warp feeds one warp that issues
tcgen05.mma, which fills accumulators in tensor memory; four warps take them from there and store
through shared memory. A fourth role fetches tiles.

    C[m, n] = activation(alpha · a_scale · b_scale · A[m, k] · B[n, k]ᵀ + bias[n] + beta · source[m,
    n])

A and B both bfloat16 or both float16, each row- or column-major, or fp8, row-major; float32
accumulation; C bfloat16, float16 or float32, row-major. With cta_group 2, pairs of CTAs share each
MMA. CTAs of a cluster load a part of the tiles that they share each, and multicast it. Simulated,
checked and compiled; it has not been run on a Blackwell GPU.
"""

from __future__ import annotations

from typing import Any

import tilepipe as tp
from tilepipe.kernels.common import epilogue
from tilepipe.kernels.common.multicast import ClusterShares, load_rows
from tilepipe.kernels.gemm.config import store_width
from tilepipe.kernels.gemm.config_sm100 import Sm100GemmConfig as Sm100GemmConfig
from tilepipe.kernels.gemm.validation import (
    OUTPUTS,
    check_extras,
    check_inputs,
    check_kinds,
    check_order,
    check_stage_bytes,
    matrix_extents,
    scale_extents,
)


def grid(c: tp.TensorMap, cfg: Sm100GemmConfig, chip: tp.Chip) -> int:
    """A CTA a tile where work is fetched; otherwise as many clusters as the chip holds at once."""
    m, n = c.shape
    tiles = -(-m // (cfg.bm * cfg.cluster)) * -(-n // (cfg.bn * cfg.cluster_n))
    clusters = (
        tiles
        if cfg.scheduler == "clc"
        else min(tiles, max(chip.resident_clusters(cfg.cluster_size), 1))
    )
    return clusters * cfg.cluster_size


@tp.kernel(grid=grid, cluster=lambda cfg: cfg.cluster_size)
def gemm(
    ctx: tp.Context,
    a: Any,
    b: Any,
    c: Any,
    bias: Any,
    a_scale: Any,
    b_scale: Any,
    source: Any,
    alpha: Any,
    beta: Any,
    *,
    cfg: Sm100GemmConfig,
    scales: str,
) -> None:
    """C = activation(alpha · a_scale · b_scale · A · Bᵀ + bias + beta · source)"""
    tiles = tp.StandardTilePayload(
        a_type=a.dtype,
        b_type=b.dtype,
        a_shape=(cfg.bm, cfg.bk),
        b_shape=(cfg.b_rows, cfg.bk),
        a_order=a.order,
        b_order=b.order,
    )
    inputs = tp.InputTilePipeline.allocate(
        ctx,
        tiles,
        num_group_stages=cfg.stages,
        k_group_size=cfg.k_group_size,
        cta_group=cfg.cta_group,
    )
    outputs = tp.OutputTilePipeline.allocate(
        ctx,
        tp.OutputPipelineConfig(
            num_stages=cfg.accumulators, stage_stride_cols=cfg.bn, cta_group=cfg.cta_group
        ),
    )
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
                            a_tile, b_tile = stage.tile(j)
                            k = (step * cfg.k_group_size + j) * cfg.bk
                            shares.a.load(
                                ctx, a, a_tile, (None, tile.m * cfg.bm, k), stage.barrier()
                            )
                            shares.b.load(
                                ctx, b, b_tile, (None, tile.n * cfg.bn + half, k), stage.barrier()
                            )
            ctx.launch_dependents()
            producer.drain()

    @ctx.role("mma", warps=1)
    def mma() -> None:
        with outputs.mma_warp(), inputs.consumer() as consumer:
            for _ in work:
                with ctx.when(tp.elect_one_cta(ctx)), outputs.producer() as output:
                    acc = output.tmem.tensor((cfg.bm, cfg.bn))
                    for step in ctx.range(k_steps):
                        with consumer.acquire() as stage, ctx.elect_one():
                            for j in range(cfg.k_group_size):
                                a_tile, b_tile = stage.tile(j)
                                ctx.mma(acc, a_tile, b_tile, accumulate=True if j else step > 0)
                            ctx.mma_commit(stage.mbar(), mask=shares.release)

    @ctx.role("epilogue", warpgroups=1)
    def store() -> None:
        with outputs.epilogue_warp():
            for tile in work:
                with outputs.consumer() as output:
                    finish.store([[Accumulator(ctx, output, cfg)]], tile, 0)
            finish.drain()


def scheduler(ctx: tp.Context, tiles: tuple[Any, Any], cfg: Sm100GemmConfig) -> Any:
    """Who computes which tile."""
    shape = (cfg.cluster, cfg.cluster_n)
    if cfg.scheduler == "clc":
        return tp.ClcScheduler(ctx, tiles=tiles, cluster=shape, raster=cfg.raster, group=cfg.group)
    return tp.StaticScheduler(ctx, tiles=tiles, cluster=shape, raster=cfg.raster, group=cfg.group)


class Accumulator:
    """A tile's sums in tensor memory as the epilogue takes them, slice after slice; behind the
    last, the MMAs may have it back.
    """

    def __init__(self, ctx: tp.Context, stage: Any, cfg: Sm100GemmConfig) -> None:
        self._ctx = ctx
        self._stage = stage
        self._tensor = stage.tmem.tensor((cfg.bm, cfg.bn))
        self._cfg = cfg

    def cols(self, start: int, count: int) -> Any:
        """Columns [start, start + count) in registers."""
        part = self._tensor.cols(start, count).load()
        if start + count == self._cfg.bn:
            tp.AccumBarrier(self._cfg.cta_group).arrive(self._stage.pipeline, self._stage.index)
        else:
            self._ctx.tmem_wait_load()
        return part


def bind(
    a: Any,
    b: Any,
    c: Any,
    cfg: Sm100GemmConfig,
    *,
    bias: Any = None,
    a_scale: Any = None,
    b_scale: Any = None,
    source: Any = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The GEMM for arrays a (m, k), b (n, k) and c (m, n), which must satisfy TMA's rules (16-byte
    strides, one contiguous dimension). NumPy arrays are for the simulator: the limits are then
    those of a B200.

    Args:
        bias: (n,), added to every row. source: like c, added times beta.
        a_scale, b_scale: float32, both of one element, for the whole tensor, or (m,) and (n,), for
            each row.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    if not isinstance(cfg, Sm100GemmConfig):
        raise tp.BindError(f"gemm: cfg is an Sm100GemmConfig, got {cfg!r}")
    check_kinds(
        {"a": a, "b": b, "c": c},
        {"bias": bias, "a_scale": a_scale, "b_scale": b_scale, "source": source},
        alpha,
        beta,
    )
    m, n = matrix_extents(a, b, c)
    if len(c.shape) != 2:
        raise tp.BindError("gemm multiplies matrices on sm_100, without a batch dimension")
    check_extras(bias, source, beta, tuple(c.shape))
    scales = scale_extents(a_scale, b_scale, m, n)
    sharers = cfg.cluster // cfg.cta_group
    a_map = tp.tensor_map(a, box=(load_rows(cfg.bm // cfg.cluster_n), cfg.bk))
    b_map = tp.tensor_map(b, box=(load_rows(cfg.b_rows // sharers), cfg.bk))
    check_inputs(a_map.dtype, b_map.dtype)
    check_stage_bytes(cfg.bm, cfg.b_rows, cfg.bk, cfg.k_group_size, a_map.dtype, cfg.cta_group)
    check_order("A", a_map, cfg.bm, "bm and cluster_n")
    check_order("B", b_map, cfg.b_rows, "bn and cluster")
    dtype = tp.tensor_map(c).dtype
    if dtype not in OUTPUTS:
        raise tp.BindError(f"gemm writes {', '.join(t.name for t in OUTPUTS)}; C is {dtype}")
    c_map = tp.tensor_map(c, box=(cfg.bm, store_width(dtype, cfg)), order="row")
    return gemm.bind(
        a_map, b_map, c_map, bias, a_scale, b_scale, source if beta else None,
        None if alpha == 1.0 else float(alpha), float(beta) if beta else None, chip=chip, cfg=cfg, scales=scales,
    )  # fmt: skip
