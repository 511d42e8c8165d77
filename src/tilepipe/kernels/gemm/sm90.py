"""A persistent, warp-specialised GEMM for Hopper: one TMA warp feeds 1-3 warpgroups of wgmma, which
store through shared memory.

    C[m, n] = activation(alpha · a_scale · b_scale · A[m, k] · B[n, k]ᵀ + bias[n] + beta · source[m,
    n])

A and B both bfloat16, both float16, each row- or column-major, or float32 (multiplied in tf32) or
fp8, row-major; float32 accumulation; C bfloat16, float16 or float32, row-major; all of them with a
leading batch dimension if C has one. The CTAs of a cluster work on the same columns, or the same
rows, and load a part of the B, or A, tile each and multicast it; or on parts of K of the same tile.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import tilepipe as tp
from tilepipe.kernels.common import epilogue
from tilepipe.kernels.common.multicast import Share, load_rows
from tilepipe.kernels.gemm.config import BLOCK_ROWS, store_width
from tilepipe.kernels.gemm.config import GemmConfig as GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem as Problem
from tilepipe.kernels.gemm.heuristics import choose as choose
from tilepipe.kernels.gemm.validation import FP8 as FP8
from tilepipe.kernels.gemm.validation import INPUTS as INPUTS
from tilepipe.kernels.gemm.validation import OUTPUTS as OUTPUTS
from tilepipe.kernels.gemm.validation import (
    check_extras,
    check_inputs,
    check_kinds,
    check_order,
    check_stage_bytes,
    matrix_extents,
    scale_extents,
)


def persistent_grid(c: tp.TensorMap, cfg: GemmConfig, chip: tp.Chip) -> int:
    """As many clusters as the chip holds at once, or fewer when there are fewer tiles."""
    *batches, m, n = c.shape
    tiles = (
        -(-m // (cfg.bm * cfg.cluster))
        * -(-n // (cfg.bn * cfg.cluster_n))
        * (batches[0] if batches else 1)
    )
    # Where none fits, loading the kernel says so.
    return min(tiles, max(chip.resident_clusters(cfg.cluster_size), 1)) * cfg.cluster_size


@tp.kernel(grid=persistent_grid, cluster=lambda cfg: cfg.cluster_size)
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
    cfg: GemmConfig,
    scales: str,
) -> None:
    """C = activation(alpha · a_scale · b_scale · A · Bᵀ + bias + beta · source)"""
    if cfg.swap == "ab":  # C is Cᵀ already
        a, b, a_scale, b_scale = b, a, b_scale, a_scale
    tiles = tp.StandardTilePayload(
        a_type=a.dtype,
        b_type=b.dtype,
        a_shape=(cfg.bm, cfg.bk),
        b_shape=(cfg.bn, cfg.bk),
        a_order=a.order,
        b_order=b.order,
    )
    inputs = tp.InputTilePipeline.allocate(
        ctx, tiles, num_group_stages=cfg.stages, k_group_size=cfg.k_group_size
    )
    rows, columns = ctx.ceil_div(c.shape[-2], cfg.bm), ctx.ceil_div(c.shape[-1], cfg.bn)
    work = tp.StaticScheduler(
        ctx,
        tiles=(c.shape[0], rows, columns) if c.rank == 3 else (rows, columns),
        cluster=(cfg.cluster, cfg.cluster_n),
        raster=cfg.raster,
        group=cfg.group,
    )
    all_steps = ctx.ceil_div(a.shape[-1], cfg.bk * cfg.k_group_size)
    multicasts = cfg.cluster_size > 1 and cfg.split_k == 1
    everyone = (1 << cfg.cluster_size) - 1 if multicasts else None
    a_share, b_share = Share.of_all(ctx, cfg.cluster_n), Share.of_all(ctx, cfg.cluster)
    pingpong = cfg.schedule == "pingpong"
    order = tp.OrderedBarrier(ctx, 2, depth=2) if pingpong else None
    finish = epilogue.Epilogue(
        ctx, c, bias, a_scale, b_scale, source, alpha, beta, cfg=cfg, scales=scales
    )

    @ctx.role("load", warps=1, registers=cfg.registers[0])
    def load() -> None:
        first, k_steps = part_of_k(ctx, all_steps, cfg)
        with inputs.producer() as producer:
            for tile in work:
                for step in ctx.range(k_steps):
                    with producer.acquire() as stage, ctx.elect_one():
                        stage.expect_bytes(inputs.stage_bytes)
                        for j in range(cfg.k_group_size):
                            a_tile, b_tile = stage.tile(j)
                            k = ((first + step) * cfg.k_group_size + j) * cfg.bk
                            a_share.load(
                                ctx, a, a_tile, (tile.batch, tile.m * cfg.bm, k), stage.barrier()
                            )
                            b_share.load(
                                ctx, b, b_tile, (tile.batch, tile.n * cfg.bn, k), stage.barrier()
                            )
            ctx.launch_dependents()
            producer.drain()

    @ctx.role("mma", warpgroups=cfg.consumers, registers=cfg.registers[1])
    def mma() -> None:
        _, k_steps = part_of_k(ctx, all_steps, cfg)
        multiply_tiles(ctx, inputs, work, k_steps, order, finish, cfg, everyone)


def multiply_tiles(
    ctx: tp.Context, inputs: Any, work: Any, k_steps: Any, order: tp.OrderedBarrier | None, finish: epilogue.Epilogue, cfg: GemmConfig,
    everyone: int | None,
) -> None:  # fmt: skip
    """The MMA role: the product of `k_steps` stages for each tile of a schedule, stored by
    `finish`.

    Args:
        order: of the two warpgroups, where they take whole tiles in turn.
        everyone: the CTAs that are told when a stage has been read, as a mask; None: this one.
    """
    sums = Accumulators(ctx, cfg)
    if order is None:
        first_row = ctx.warpgroup_rank * cfg.rows
        for tile in work:
            with inputs.consumer(lag=sums.lag) as consumer:
                sums.multiply(consumer, k_steps, first_row, everyone)
            finish.exchange(sums.blocks)
            finish.store(sums.blocks, tile, first_row)
    else:
        inputs.consumer_advance(ctx.warpgroup_rank * k_steps)
        for tile in work.share(ctx.warpgroup_rank, 2):
            with (
                inputs.consumer(lag=sums.lag, shared=False) as consumer,
                order.turn(ctx.warpgroup_rank),
            ):
                sums.multiply(consumer, k_steps, 0, everyone)
            inputs.consumer_advance(k_steps)  # those are the other warpgroup's
            with order.turn(ctx.warpgroup_rank):
                finish.store(sums.blocks, tile, 0)
    finish.drain()


def part_of_k(ctx: tp.Context, steps: Any, cfg: GemmConfig) -> tuple[Any, Any]:
    """(first step, number of steps) of K that this CTA takes."""
    if cfg.split_k == 1:
        return 0, steps
    share = ctx.ceil_div(steps, cfg.split_k)
    first = ctx.let(ctx.min(ctx.cta_rank * share, steps), "first_step")
    return first, ctx.let(ctx.min(steps - first, share), "steps")


class Accumulators:
    """The sums of one warpgroup's rows of a tile, in blocks of 64 rows and the columns of one
    wgmma: `blocks[row][column]`.

    `lag`: stages whose MMAs may still be running when the next is waited for.
    """

    def __init__(self, ctx: tp.Context, cfg: GemmConfig) -> None:
        self._ctx = ctx
        self._cfg = cfg
        self.lag = 0 if cfg.accumulate == "promote" else 1
        self.blocks = self._new()
        self._partial = self._new() if cfg.accumulate == "promote" else self.blocks

    def _new(self) -> list[list[Any]]:
        cfg, shape = self._cfg, (BLOCK_ROWS, self._cfg.block_cols)
        return [
            [self._ctx.accumulator(shape) for _ in range(cfg.bn // cfg.block_cols)]
            for _ in range(cfg.rows // BLOCK_ROWS)
        ]

    def multiply(self, consumer: Any, k_steps: Any, first_row: Any, everyone: int | None) -> None:
        """The product of `k_steps` stages; rows [first_row, first_row + rows) of their A tiles."""
        ctx, cfg = self._ctx, self._cfg
        promotes = self._partial is not self.blocks
        if promotes or cfg.split_k > 1:  # no step may be this CTA's
            for acc in chain(*self.blocks):
                acc.fill(0)
        for step in ctx.range(k_steps):
            with consumer.acquire() as stage:
                for j in range(cfg.k_group_size):
                    adds: Any = (
                        True
                        if j or (cfg.split_k > 1 and not promotes)
                        else False
                        if promotes
                        else step > 0
                    )
                    a_tile, b_tile = stage.tile(j)
                    self._multiply_tiles(a_tile, b_tile, first_row, adds)
                ctx.mma_commit(stage.mbar(), mask=everyone)
            if promotes:
                for total, partial in zip(chain(*self.blocks), chain(*self._partial), strict=True):
                    total += partial

    def _multiply_tiles(self, a_tile: Any, b_tile: Any, first_row: Any, adds: Any) -> None:
        cols = self._cfg.block_cols
        for i, row in enumerate(self._partial):
            for n, acc in enumerate(row):
                a_block = a_tile.rows(first_row + i * BLOCK_ROWS, BLOCK_ROWS)
                self._ctx.mma(acc, a_block, b_tile.rows(n * cols, cols), accumulate=adds)


def bind(
    a: Any,
    b: Any,
    c: Any,
    cfg: GemmConfig,
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
    strides, one contiguous dimension). With c (batch, m, n), a and b may have a batch dimension
    each.

    Args:
        cfg: with swap "ab", of the product Cᵀ = B · Aᵀ.
        bias: (n,), added to every row. source: like c, added times beta.
        a_scale, b_scale: float32, both of one element, for the whole tensor, or (m,) and (n,), for
            each row.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    if not isinstance(cfg, GemmConfig):
        raise tp.BindError(f"gemm: cfg is a GemmConfig, got {cfg!r}")
    check_kinds(
        {"a": a, "b": b, "c": c},
        {"bias": bias, "a_scale": a_scale, "b_scale": b_scale, "source": source},
        alpha,
        beta,
    )
    m, n = matrix_extents(a, b, c)
    check_extras(bias, source, beta, tuple(c.shape))
    scales = scale_extents(a_scale, b_scale, m, n)
    left, right = load_rows(cfg.bm // cfg.cluster_n), load_rows(cfg.bn // cfg.cluster)
    if cfg.swap == "ab":
        left, right = right, left
        c, source = c.swapaxes(-1, -2), source if source is None else source.swapaxes(-1, -2)
    a_map = tp.tensor_map(a, box=_box(a, left, cfg.bk))
    b_map = tp.tensor_map(b, box=_box(b, right, cfg.bk))
    check_inputs(a_map.dtype, b_map.dtype)
    check_stage_bytes(cfg.bm, cfg.bn, cfg.bk, cfg.k_group_size, a_map.dtype)
    rows, columns = (cfg.bm, "bm and cluster_n"), (cfg.bn, "bn and cluster")
    check_order("A", a_map, *(rows if cfg.swap == "none" else columns))
    check_order("B", b_map, *(columns if cfg.swap == "none" else rows))
    dtype = tp.tensor_map(c).dtype
    if dtype not in OUTPUTS:
        raise tp.BindError(f"gemm writes {', '.join(t.name for t in OUTPUTS)}; C is {dtype}")
    c_map = tp.tensor_map(
        c,
        box=_box(c, BLOCK_ROWS, store_width(dtype, cfg)),
        order="col" if cfg.swap == "ab" else "row",
    )
    return gemm.bind(
        a_map, b_map, c_map, bias, a_scale, b_scale, source if beta else None,
        None if alpha == 1.0 else float(alpha), float(beta) if beta else None, chip=chip, cfg=cfg, scales=scales,
    )  # fmt: skip


def _box(array: Any, rows: int, cols: int) -> tuple[int, ...]:
    return (rows, cols) if len(array.shape) == 2 else (1, rows, cols)
