"""MmaConsumer: releases of a ring of raw slots that are bound to MMAs, with and without a lag."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tilepipe.check.mutation.judging import judge, outputs
from tilepipe.check.mutation.mutants import mutants


@tp.kernel(grid=1)
def product(
    ctx: tp.Context, a: Any, b: Any, out: Any, *, lag: int, stages: int, commit: int
) -> None:
    """out = A · Bᵀ, over slots that the kernel has allocated itself; `commit`: how often the body
    commits by hand.
    """
    ring = tp.ProducerConsumerPipeline.allocate(ctx, stages, name="ring")
    left = ctx.smem(a.box, a.dtype, count=stages, name="left")
    right = ctx.smem(b.box, b.dtype, count=stages, name="right")
    steps = ctx.ceil_div(a.shape[1], a.box[1])

    @ctx.role("load", warps=1)
    def load() -> None:
        for i in ctx.range(steps):
            with ring.produce() as stage, ctx.elect_one():
                stage.mbar().expect_bytes(left.tile_bytes + right.tile_bytes)
                for tensor, tiles in ((a, left), (b, right)):
                    tile = tiles[stage.index()]
                    ctx.tma_load(tensor, (0, i * a.box[1]), tile, stage.mbar())
        ring.drain_producer()

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        acc = ctx.accumulator((a.box[0], b.box[0]))
        acc.fill(0)
        with tp.MmaConsumer(ring, lag=lag) as consumer:
            for _ in ctx.range(steps):
                with consumer.acquire() as stage:
                    ctx.mma(acc, left[stage.index()], right[stage.index()])
                    for _ in range(commit):
                        ctx.mma_commit(stage.mbar())
        ctx.store_global(out, (0, 0), acc)


def made(lag: int, stages: int = 3, commit: int = 0) -> tuple[tp.Program, Any, Any]:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (rows, 7 * 32)).astype(ml_dtypes.bfloat16) for rows in (64, 16))
    out = np.zeros((64, 16), np.float32)
    maps = [tp.tensor_map(x, box=(len(x), 32)) for x in (a, b)]
    program = product.bind(*maps, out, lag=lag, stages=stages, commit=commit)
    return program, out, a.astype(np.float32) @ b.astype(np.float32).T


@pytest.mark.parametrize("commit", [0, 1])
@pytest.mark.parametrize("lag", [0, 1, 2])
def test_a_ring_of_raw_slots_is_freed_when_its_mmas_are_over(lag: int, commit: int) -> None:
    program, out, want = made(lag, commit=commit)
    run = program.run(seed=1)
    assert (out == want).all()
    assert run.completions["ring.empty"] == [[3, 2, 2]]
    assert program.check().ok
    assert f"wgmma_wait pending={lag}" in str(program)


@pytest.mark.slow
def test_the_printed_kernel_computes_the_same() -> None:
    program, out, want = made(1)
    program.ptx("sm_90a").run(0)
    assert (out == want).all()


@pytest.mark.slow
def test_an_arrival_without_its_wait_is_found() -> None:
    program, _, _ = made(1)
    launch = program.launch_args
    before = outputs(launch)
    judged = [
        (mutant.what, judge(mutant, launch, before).caught)
        for mutant in mutants(launch.kernel, ["drop"])
        if "role 'mma'" in mutant.what
    ]
    assert any(what.startswith("dropped: wgmma_wait pending=1") for what, _ in judged)
    assert [what for what, caught in judged if not caught] == []


@pytest.mark.parametrize("lag", [-1, 3, None, "1"])
def test_a_lag_that_there_cannot_be(lag: Any) -> None:
    with pytest.raises(tp.TraceError) as caught:
        made(lag)
    assert "lag" in str(caught.value)


def test_two_commits_of_a_stage() -> None:
    with pytest.raises(tp.HandleError, match="committed once, in the block that acquired it"):
        made(1, commit=2)


def test_a_commit_of_a_raw_stage_without_a_wait_says_what_to_write() -> None:
    @tp.kernel(grid=1)
    def k(ctx: tp.Context, a: Any) -> None:
        ring = tp.ProducerConsumerPipeline.allocate(ctx, 2, producer_arrivals=1, name="ring")
        slots = ctx.smem(a.box, a.dtype, count=2)

        @ctx.role("mma", warpgroups=1)
        def mma() -> None:
            acc = ctx.accumulator((64, 64))
            for _ in ctx.range(4):
                with ring.consume() as stage:
                    ctx.mma(acc, slots[stage.index()], slots[stage.index()])
                    ctx.mma_commit(stage.mbar())

    with pytest.raises(tp.TraceError, match=r"of a ring of raw slots `tp.MmaConsumer\(ring, lag="):
        k.bind(tp.tensor_map(np.zeros((64, 64), ml_dtypes.bfloat16), box=(64, 64)))
