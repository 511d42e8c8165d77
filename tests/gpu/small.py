"""Small kernels for the tests of launching, whose results tell in which order launches ran."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array

PRIME = 65521


@tp.kernel(grid=lambda x: -(-x.shape[0] // 128))
def step(ctx: tp.Context, x: Any, y: Any, *, early: bool = False, variant: int = 0) -> None:
    """y = (5 x + 1) mod a prime, int32. `early`: the next kernel may start at once. `variant`:
    makes a kernel of its own.
    """

    @ctx.role("one", warps=4)
    def one() -> None:
        if early:
            ctx.launch_dependents()
        i = ctx.block_id * 128 + ctx.thread
        with ctx.when(i < x.shape[0]):
            ctx.store(y[i], (ctx.load(x[i]) * 5 + (1 + variant)) % PRIME)


def stepped(x: Array, times: int = 1, variant: int = 0) -> Array:
    """What `times` steps make of x."""
    for _ in range(times):
        x = (x * 5 + 1 + variant) % PRIME
    return x


@tp.kernel(grid=lambda a: -(-a.shape[0] // 64))
def transposed(ctx: tp.Context, a: Any, out: Any) -> None:
    """out = aᵀ, float32, 64×32 tiles by TMA in, ordinary stores out."""
    tile = ctx.smem((64, 32), a.dtype, swizzle=a.swizzle, name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("one", warps=2)
    def one() -> None:
        for j in ctx.range(ctx.ceil_div(a.shape[1], 32)):
            with ctx.elect_one("role"):
                full.expect_bytes(tile.nbytes)
                ctx.tma_load(a, (ctx.block_id * 64, j * 32), tile, full)
            full.wait(j)
            row = ctx.block_id * 64 + ctx.thread
            for k in range(32):
                with ctx.when((row < a.shape[0]) & (j * 32 + k < a.shape[1])):
                    ctx.store(out[j * 32 + k, row], ctx.load(tile[ctx.thread, k]))
            ctx.sync_role()


@tp.kernel()
def asserting(ctx: tp.Context, x: Any, y: Any) -> None:
    """y = x, which must be below 5."""

    @ctx.role("one", warps=1)
    def one() -> None:
        value = ctx.load(x[ctx.lane])
        ctx.assert_(value < 5, "x is too large")  # noqa: PT009
        ctx.store(y[ctx.lane], value)


@tp.kernel()
def greedy(ctx: tp.Context, y: Any, *, tiles: int) -> None:
    """Takes `tiles` KiB of shared memory; y = 1."""
    ctx.smem((1, 256), "float32", count=tiles, swizzle=0, name="tiles")

    @ctx.role("one", warps=1)
    def one() -> None:
        ctx.store(y[ctx.lane], 1)


def numbers(n: int, seed: int = 0) -> Array:
    """Random int32 below the prime."""
    return np.random.default_rng(seed).integers(0, PRIME, n).astype(np.int32)
