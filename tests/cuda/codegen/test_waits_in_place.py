"""A branch before a wait for MMAs that follows computation: without it ptxas moves the wait up, as
tests/kernels/attention/test_narrow.py sees.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp


@tp.kernel(grid=1)
def beside(ctx: tp.Context, a: Any, b: Any, out: Any, *, computes: bool) -> None:
    """Two products; where `computes`, exponentials of the first beside the second."""
    a_tile, b_tile = (ctx.smem((64, 64), "bfloat16", name=name)[0] for name in "ab")
    loaded = tp.SharedMemBarrier.allocate(ctx, 1, "loaded")

    @ctx.role("all", warpgroups=1)
    def role() -> None:
        with ctx.elect_one("role"):
            loaded.expect_bytes(a_tile.nbytes + b_tile.nbytes)
            ctx.tma_load(a, (0, 0), a_tile, loaded)
            ctx.tma_load(b, (0, 0), b_tile, loaded)
        loaded.wait(0)
        first, second = ctx.accumulator((64, 64)), ctx.accumulator((64, 64))
        ctx.mma(first, a_tile, b_tile, accumulate=False)
        ctx.wgmma_commit()
        ctx.mma(second, b_tile, a_tile, accumulate=False)
        ctx.wgmma_commit()
        ctx.wgmma_wait(1)
        if computes:
            first.set(first.apply("exp2"))
        ctx.wgmma_wait(0)
        ctx.store_global(out, (0, 0), first + second)


def bound(computes: bool) -> tp.Program:
    a, b = (np.zeros((64, 64), ml_dtypes.bfloat16) for _ in range(2))
    maps = (tp.tensor_map(x, box=(64, 64)) for x in (a, b))
    return beside.bind(*maps, np.zeros((64, 64), np.float32), computes=computes)


@pytest.mark.parametrize("computes", [False, True])
def test_a_branch_stands_before_a_wait_that_follows_computation(computes: bool) -> None:
    body = bound(computes).source().split("---- roles")[1]
    assert ("no_earlier();" in body) == computes
    assert bool(re.search(r"no_earlier\(\);.*\n\s*wgmma_wait<0>\(\);", body)) == computes
