"""Accumulators by address: `ctx.mma` and `MmaOp` into one, halves that are loaded and stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import from_text, refused
from tilepipe import cuda

M, N, K, STEPS = 128, 16, 16, 3
TILES = tp.StandardTilePayload(a_type="bfloat16", b_type="bfloat16", a_shape=(M, K), b_shape=(N, K))


def product(how: str) -> tp.KernelFunction:
    """A · Bᵀ in the second 16 columns of tensor memory; the epilogue exchanges the two halves in
    place, and stores what is there.
    """

    @tp.kernel()
    def addressed(ctx: tp.Context, a: Any, b: Any, out: Any) -> None:
        inputs = tp.InputTilePipeline.allocate(ctx, TILES, num_group_stages=2)
        outputs = tp.OutputTilePipeline.allocate(ctx, tp.OutputPipelineConfig(1, 32))
        mma_op = tp.MmaOp(ctx)

        @ctx.role("load", warps=1)
        def load() -> None:
            for k in ctx.range(STEPS):
                with inputs.producer().acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    a_tile, b_tile = stage.tile()
                    ctx.tma_load(a, (0, k * K), a_tile, stage.barrier())
                    ctx.tma_load(b, (0, k * K), b_tile, stage.barrier())

        @ctx.role("mma", warps=1)
        def mma() -> None:
            with outputs.mma_warp(), outputs.producer() as stage:
                at = tp.TmemAddress(stage.tmem.offset()) + 16
                for k in ctx.range(STEPS):
                    with inputs.consumer().acquire() as tiles, ctx.elect_one():
                        a_tile, b_tile = tiles.tile()
                        if how == "mma_op":
                            mma_op.mma(a_tile, b_tile, at, init_c=k == 0)
                            mma_op.commit(tiles.mbar())
                        else:
                            ctx.mma(
                                at if how == "address" else at.addr,
                                a_tile,
                                b_tile,
                                accumulate=k > 0,
                            )
                            ctx.mma_commit(tiles.mbar())

        @ctx.role("epilogue", warpgroups=1)
        def epilogue() -> None:
            with outputs.epilogue_warp(), outputs.consumer() as stage:
                at = tp.TmemAddress(stage.tmem.offset()) + 16
                upper, lower = at.load_upper(N), at.load_lower(N)
                at.wait_load()
                at.store_upper(lower)
                at.store_lower(upper)
                at.wait_store()
                x = at.tensor((M, N)).load()
                at.wait_load()
                ctx.store_global(out, (0, 0), x)

    return addressed


@pytest.mark.slow
@pytest.mark.parametrize("how", ["mma_op", "address", "value"])
def test_against_numpy(how: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (rows, STEPS * K)).astype(tp.bfloat16.numpy) for rows in (M, N))
    out = np.zeros((M, N), np.float32)
    program = product(how).bind(tp.tensor_map(a, box=(M, K)), tp.tensor_map(b, box=(N, K)), out)
    program.run(seed=1)
    want = (
        (a.astype(np.float32) @ b.astype(np.float32).T).reshape(4, 2, 16, N)[:, ::-1].reshape(M, N)
    )
    assert np.array_equal(out, want)
    assert program.check().ok
    assert cuda.compile(program.kernel, arch="sm_100a").spill_bytes == 0


HEAD = """
inputs = tp.InputTilePipeline.allocate(ctx, TILES, num_group_stages=2, producer_arrivals=1,
    consumer_arrivals=1)
outputs = tp.OutputTilePipeline.allocate(ctx, tp.OutputPipelineConfig(2, 16), producer_arrivals=1,
    consumer_arrivals=128)
other = tp.OutputTilePipeline.allocate(ctx, tp.OutputPipelineConfig(2, 16), producer_arrivals=1,
    consumer_arrivals=128, name='other')
tiles = inputs.payload.get_tile(0, k_group_size=1)
ctx.role('epilogue', warpgroups=1)(lambda: None)
@ctx.role('mma', warps=1)
def mma():
    with outputs.mma_warp():
"""
REFUSED: dict[str, tuple[str, type[tp.TilepipeError], tuple[str, ...]]] = {
    "no init_c in a loop": (
        (
            "stage = outputs.acquire_mma_linear()\n"
            "for k in ctx.range(3):\n"
            "    with ctx.elect_one():\n"
            "        tp.MmaOp(ctx).mma(*tiles, stage.tmem_offset())"
        ),
        tp.TraceError,
        ("mma in a loop without init_c", "init_c=k == 0 adds up the iterations"),
    ),
    "an address that is a number": (
        "tp.TmemAddress(16)",
        tp.TraceError,
        ("an address in tensor memory is a traced uint32", "got 16"),
    ),
    "an address that is no integer": (
        "tp.TmemAddress(ctx.lane.to('float32'))",
        tp.TraceError,
        ("is a traced uint32",),
    ),
    "operands that are no tiles": (
        "with ctx.elect_one():\n    ctx.mma(outputs.tmem.addr, 1, 2)",
        tp.TraceError,
        ("A is a tile or in tensor memory", "got 1 and 2"),
    ),
    "half of 128 rows": (
        "x = outputs.tmem.tensor((128, 16))\ntp.TmemAddress(x.offset()).store_upper(x)",
        tp.TraceError,
        ("stored from a fragment of 64 rows",),
    ),
    "a raw stage of another pipeline": (
        "outputs.release_from_mma(tp.OutputStage.from_raw(other.pipeline, 0, outputs.tmem.addr))",
        tp.HandleError,
        ("release_from_mma of 'outputs' is given a stage of 'other'",),
    ),
    "a stage of another pipeline": (
        "stage = outputs.acquire_for_mma()\nother.release_from_mma(stage)",
        tp.HandleError,
        ("takes the stage that acquire_for_mma gave",),
    ),
    "no stage": (
        "outputs.release_from_mma(0)",
        tp.HandleError,
        ("takes the stage that acquire_for_mma gave, or one of OutputStage.from_raw",),
    ),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_refused(mistake: str) -> None:
    text, kind, words = REFUSED[mistake]
    body = "\n".join(f"        {line}" for line in text.splitlines())
    with refused(kind, *words):
        from_text(HEAD + body, TILES=TILES).bind(np.zeros(4, np.int32))
