"""A GEMM with scales along K, small: each step of K is an accumulator of its own, which the
epilogue scales and adds up in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import tilepipe as tp
from tests.scenarios.support import zeros

M, K = 128, 32  # rows of an accumulator in one CTA, and K of a step

Step = Callable[[tp.Context, Any, Any, Any, Any], None]


def promoted(ctx: tp.Context, accum: Any, stage: Any, scales: Any, b_scale: Any) -> None:
    """What the epilogue does with one step."""
    accum.promote(stage, scales, b_scale)


def scaled_gemm(
    step: Step = promoted,
    *,
    tiles: int = 2,
    steps: int = 3,
    n: int = 32,
    group: int = 1,
    cluster: int | None = None,
    stages: int = 2,
    ring: int = 2,
    columns: bool = False,
    input_first: bool = False,
    hand_over: bool = True,
) -> tuple[tp.Program, Any, Any]:
    """(program, what it writes, what it should write): each CTA of the cluster its own rows of
    C = sum over steps k of (A_k · B_kᵀ) · a_scales[k] · b_scales[k].

    `columns`: B has a scale for each column, otherwise one a step. `input_first`: the MMA warp
    takes an input stage before an accumulator. `hand_over` False: the MMA warp does not leave the
    per-K view's stage to its context.
    """
    size = group if cluster is None else cluster
    rng = np.random.default_rng(steps * n)
    fp8 = ml_dtypes.float8_e4m3fn
    rows = tiles * size * M
    a = rng.integers(-3, 4, (rows, steps * K)).astype(fp8)
    b = rng.integers(-3, 4, (n, steps * K)).astype(fp8)
    a_scales = 2.0 ** rng.integers(-2, 3, (steps, rows)).astype(np.float32)
    b_scales = 2.0 ** rng.integers(-2, 3, (steps, n)).astype(np.float32)
    if not columns:
        b_scales[:] = b_scales[:, :1]
    out = zeros(rows, n)
    payload = tp.BlockwiseFP8TilePayload(
        a_type="float8_e4m3",
        b_type="float8_e4m3",
        a_shape=(M, K),
        b_shape=(n // group, K),
        a_scales_type="float32",
        a_scales_shape=(1, M),
    )

    @tp.kernel(grid=size, cluster=size)
    def scaled(ctx: tp.Context, a: Any, b: Any, a_scales: Any, b_scales: Any, out: Any) -> None:
        inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=ring, cta_group=group)
        outputs = tp.OutputTilePipeline.allocate(ctx, tp.OutputPipelineConfig(stages, n, group))
        # any CTA may copy into another's slots: a release tells all
        everyone = (1 << size) - 1 if size > 1 else None

        @ctx.role("load", warps=1)
        def load() -> None:
            with inputs.producer() as producer:
                for tile in ctx.range(tiles):
                    for k in ctx.range(steps):
                        row = (tile * size + ctx.cta_rank) * M
                        with producer.acquire() as stage, ctx.elect_one():
                            stage.expect_bytes(inputs.stage_bytes)
                            a_tile, b_tile, scale_tile = stage.tile()
                            half = ctx.cta_rank % group * (n // group)
                            ctx.tma_load(a, (row, k * K), a_tile, stage.barrier())
                            ctx.tma_load(b, (half, k * K), b_tile, stage.barrier())
                            ctx.tma_load(a_scales, (k, row), scale_tile, stage.barrier())
                producer.drain()

        @ctx.role("mma", warps=1)
        def mma() -> None:
            view = outputs.per_k()

            def multiply(accumulator: Any, stage: Any) -> None:
                with ctx.elect_one():
                    a_tile, b_tile, _ = stage.tile()
                    ctx.mma(accumulator, a_tile, b_tile, accumulate=False)
                    ctx.mma_commit(stage.mbar(), mask=everyone)

            with outputs.mma_warp(), inputs.consumer() as consumer, ctx.when(tp.elect_one_cta(ctx)):
                for _ in ctx.range(tiles * steps):
                    if input_first:
                        with consumer.acquire() as stage, view.produce() as held:
                            multiply(held.tmem.tensor((M, n)), stage)
                    elif hand_over:
                        with view.produce() as held, consumer.acquire() as stage:
                            multiply(held.tmem.tensor((M, n)), stage)
                    else:
                        linear = view.acquire_k_stage_linear()
                        with consumer.acquire() as stage:
                            multiply(linear.tmem().tensor((M, n)), stage)
                        linear.release()

        @ctx.role("epilogue", warpgroups=1)
        def epilogue() -> None:
            accum = tp.BlockwiseFP8Accumulator(ctx, (M, n))
            with outputs.epilogue_warp():
                for tile in ctx.range(tiles):
                    accum.clear()
                    for k in ctx.range(steps):
                        factor = (
                            ctx.load_global(b_scales, (k, 0), (1, n), layout="tmem")
                            if columns
                            else ctx.load(b_scales[k, 0])
                        )
                        with outputs.per_k_epilogue(inputs) as stage:
                            assert stage.input_pipeline is inputs.pipeline
                            step(ctx, accum, stage, stage.tile()[2], factor)
                    ctx.store_global(out, ((tile * size + ctx.cta_rank) * M, 0), accum.total)

    program = scaled.bind(
        tp.tensor_map(a, box=(M, K)),
        tp.tensor_map(b, box=(n // group, K)),
        tp.tensor_map(a_scales, box=(1, M), swizzle=0),
        b_scales,
        out,
    )
    products = np.einsum(
        "msk,nsk->smn", *(x.astype(np.float32).reshape(-1, steps, K) for x in (a, b))
    )
    return program, out, (products * a_scales[:, :, None] * b_scales[:, None, :]).sum(axis=0)
