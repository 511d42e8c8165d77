"""Messages whose cure is the whole cure: done as they say, no second message follows about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.check import check


@tp.kernel(grid=1)
def one_element(ctx: tp.Context, out: Any, *, shared: bool) -> None:
    """All threads store to one element."""
    tile = ctx.smem((1, 4), tp.int32, swizzle=0, name="tile")[0]

    @ctx.role("all", warpgroups=1)
    def run() -> None:
        if shared:
            ctx.store(tile[0, 0], 7)
        else:
            ctx.store(out[0], 7)


@pytest.mark.parametrize("shared", [True, False])
def test_all_threads_store_to_one_element(shared: bool) -> None:
    (fault,) = check(one_element.bind(np.zeros(1, np.int32), shared=shared).launch_args).faults
    assert (
        "  It is one store, which all 128 threads of role 'all' make to one element: let one of"
        ' them do so (ctx.elect_one("role")).\n' in fault.message
    )


@tp.kernel(grid=1)
def unfilled(ctx: tp.Context, out: Any) -> None:
    """A loop that has no rounds was to set the fragment."""

    @ctx.role("all", warpgroups=1)
    def run() -> None:
        acc = ctx.fragment(shape=(64, 32))
        for _ in ctx.range(ctx.block_id):
            acc.fill(1.0)
        ctx.store_global(out, (0, 0), acc)


def test_a_loop_without_rounds_leaves_a_fragment_unset() -> None:
    (fault,) = check(unfilled.bind(np.zeros((64, 32), np.float32)).launch_args).faults
    assert (
        "of which 32 of 32 columns were never set. Set it first, for instance with .fill(0). If a"
        " loop was to set it, by its MMAs say, that loop has had no rounds in CTA 0: give it one,"
        " or leave out what uses the fragment.\n" in fault.message
    )


@tp.kernel(grid=1)
def credited(ctx: tp.Context, x: Any, out: Any, *, right: bool) -> None:
    """A ring of two stages, whose copies signal the barrier of their own stage, or the first."""
    payload = tp.StandardTilePayload(
        a_type=x.dtype, b_type=x.dtype, a_shape=(64, 64), b_shape=(64, 64)
    )
    inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=2)
    staged = ctx.smem((64, 64), out.dtype, name="staged")[0]

    @ctx.role("load", warps=1)
    def load() -> None:
        with inputs.producer() as producer:
            for k in ctx.range(4):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    a, b = stage.tile()
                    ctx.tma_load(x, (0, 64 * k), a, stage.barrier())
                    where: Any = stage.barrier() if right else inputs.pipeline.full
                    ctx.tma_load(x, (0, 64 * k), b, where)

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        acc = ctx.accumulator((64, 64))
        with inputs.consumer() as consumer:
            for k in ctx.range(4):
                with consumer.acquire() as stage:
                    ctx.mma(acc, *stage.tile(), accumulate=k > 0)
        for _ in ctx.range(2):
            ctx.store(staged, acc)
            ctx.fence_proxy_async()
            ctx.sync_warpgroup()
            with ctx.elect_one("warpgroup"):
                ctx.tma_store(out, (0, 0), staged)
                ctx.tma_store_commit()
        with ctx.elect_one("warpgroup"):
            ctx.tma_store_wait(0)


def said_of(right: bool) -> str:
    x, out = np.zeros((64, 256), np.float16), np.zeros((64, 64), np.float16)
    maps = tp.tensor_map(x, box=(64, 64)), tp.tensor_map(out, box=(64, 64))
    (fault,) = check(credited.bind(*maps, right=right).launch_args).faults
    return fault.message


def test_a_copy_that_signals_the_barrier_of_another_stage() -> None:
    said = said_of(right=False)
    assert (
        " fills inputs_b[1] and signals inputs.full[0], the barrier of another stage: give it"
        in said
    )
    assert "Raise the number" not in said


def test_a_tile_is_refilled_while_the_store_of_a_warpgroup_reads_it() -> None:
    assert "Between that wait and the second access put ctx.sync_warpgroup().\n" in said_of(
        right=True
    )
