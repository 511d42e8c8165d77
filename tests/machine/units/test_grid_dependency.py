"""Kernels that say themselves when they wait for the kernels before them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, faults


def where(mark: str) -> str:
    return at(__file__, mark)


@tp.kernel()
def waits(ctx: tp.Context, weights: Any, x: Any, out: Any, *, plant: str) -> None:
    """out = weights · x; the weights are read before the kernels before this one have ended."""
    told = tp.SharedMemBarrier.allocate(ctx, 32, "told")
    tile = ctx.smem((1, 32), out.dtype, swizzle=0, name="tile")[0]

    @ctx.role("first", warps=1)
    def first() -> None:
        w = ctx.load(weights[ctx.lane])
        if plant == "too late":
            ctx.store(out[ctx.lane], w)  # <too late>
        if plant == "one lane":
            with ctx.elect_one():
                ctx.grid_dependency_wait()
        else:
            ctx.grid_dependency_wait()
        ctx.store(tile[0, ctx.lane], w * ctx.load(x[ctx.lane]))
        told.arrive()
        if plant == "one lane":
            ctx.store(out[ctx.lane], w)  # <other lanes>

    @ctx.role("second", warps=1)
    def second() -> None:
        if plant != "not told":
            told.wait(0)
        if plant in ("", "not told"):
            value = ctx.load(tile[0, ctx.lane]) if plant == "" else 1
            ctx.store(out[ctx.lane], value)  # <not told>


def bind_waits(plant: str) -> tuple[tp.Program, Any, Any]:
    weights, x, out = (
        np.arange(32, dtype=np.float32),
        np.full(32, 3, np.float32),
        np.zeros(32, np.float32),
    )
    return waits.bind(weights, x, out, plant=plant), out, 3 * weights


def test_writes_after_the_wait() -> None:
    for seed in range(4):
        program, out, want = bind_waits("")
        program.run(seed=seed)
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize(
    ("plant", "mark"),
    [("too late", "too late"), ("one lane", "other lanes"), ("not told", "not told")],
)
def test_writes_that_may_come_before_the_kernel_before_has_ended(plant: str, mark: str) -> None:
    words = (
        "writes tensor 'out'",
        "no ctx.grid_dependency_wait() is ordered before this write",
        where(mark),
    )
    faults(bind_waits(plant)[0], tp.RaceError, *words)
