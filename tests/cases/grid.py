"""What reaches beyond the cluster, as small kernels with what NumPy says of them, for the
simulator, for NVRTC, and for a GPU. Which CTA does what differs from run to run; what comes out
does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Case, Made, Rng
from tests.support.scheduler_orders import Dealt


@tp.kernel(grid=lambda ctas: ctas)
def tickets(ctx: tp.Context, out: Any, a: Any, *, ctas: int) -> None:
    """out[i] = 3 · a[i] + 1 for each ticket i that some CTA draws; the last element of `out` is the
    counter.
    """
    n = a.shape[0]
    drawn = ctx.smem((1, 4), tp.int32, swizzle=0, name="drawn")[0]

    @ctx.role("draw", warps=1)
    def draw() -> None:
        more = ctx.var(True)
        for _ in ctx.loop_while(more):
            with ctx.elect_one():
                ctx.store(drawn[0, 0], ctx.atomic_add(out[n], 1))
            ctx.syncwarp()
            ticket = ctx.load(drawn[0, 0])
            with ctx.when(ticket < n), ctx.elect_one():
                ctx.store(out[ticket], 3 * ctx.load(a[ticket]) + 1)
            more.set(ticket < n)
            ctx.syncwarp()


def drawing(ctas: int, n: int) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a, out = rng.integers(-99, 99, n).astype(np.int32), np.zeros(n + 1, np.int32)
        return tickets.bind(out, a, ctas=ctas), out, np.append(3 * a + 1, n + ctas), 0

    return make


@tp.kernel(grid=5)
def sums(ctx: tp.Context, out: Any, *, by: int, rows: int) -> None:
    """out[i, j] += by · (i + 1) from every CTA and two roles; what leaves the dtype wraps."""

    def everyone() -> None:
        for i in ctx.range(rows):
            with ctx.elect_one():
                ctx.atomic_add(out[i, 1], (i + 1).to(out.dtype) * by)

    ctx.role("one", warps=1)(everyone)
    ctx.role("other", warps=1)(everyone)


def summing(dtype: type[np.generic], by: int) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        del rng
        out, want = np.zeros((3, 2), dtype), np.zeros((3, 2), dtype)
        want[:, 1] = (10 * by * np.arange(1, 4, dtype=np.int64)).astype(dtype)
        return sums.bind(out, by=by, rows=3), out, want, 0

    return make


def dealing(**problem: Any) -> Callable[[Rng], Made]:
    """The visits that an AtomicScheduler's tiles get, each once."""

    def make(rng: Rng) -> Made:
        del rng
        dealt = Dealt("atomic", **problem)
        return dealt.bind(), dealt.visits, dealt.want, 0

    return make


@tp.kernel(grid=2)
def early(ctx: tp.Context, weights: Any, x: Any, out: Any) -> None:
    """out = weights · x: the weights are read before the kernels before this one have ended."""

    @ctx.role("one", warps=1)
    def one() -> None:
        w = ctx.load(weights[ctx.block_id, ctx.lane])
        ctx.grid_dependency_wait()
        ctx.store(out[ctx.block_id, ctx.lane], w * ctx.load(x[ctx.lane]))


def reading_early(rng: Rng) -> Made:
    weights, x = (
        rng.integers(-9, 9, (2, 32)).astype(np.float32),
        rng.integers(-9, 9, 32).astype(np.float32),
    )
    out = np.zeros_like(weights)
    return early.bind(weights, x, out), out, weights * x, 0


@tp.kernel(grid=1)
def collatz(ctx: tp.Context, out: Any, start: Any) -> None:
    """out[i] = steps from start[i] to 1, the loop of each warp as long as it takes."""

    @ctx.role("walk", warps=4)
    def walk() -> None:
        for i in ctx.range(out.shape[0] // 4):
            at = ctx.let(i * 4 + ctx.warp, "at")
            x, steps = ctx.var(ctx.load(start[at])), ctx.var(ctx.warp * 0)
            more = ctx.var(x.get() > 1)
            for _ in ctx.loop_while(more):
                now = x.get()
                x.set(ctx.select(now % 2 == 0, now // 2, 3 * now + 1))
                steps += 1
                more.set(x.get() > 1)
            with ctx.elect_one():
                ctx.store(out[at], steps.get())


def walking(rng: Rng) -> Made:
    start = rng.integers(1, 999, 12).astype(np.int32)
    want = []
    for x in start.tolist():
        n = 0
        while x > 1:
            x, n = (x // 2 if x % 2 == 0 else 3 * x + 1), n + 1
        want.append(n)
    out = np.zeros(12, np.int32)
    return collatz.bind(out, start), out, np.array(want), 0


CASES = [
    Case(name, make)
    for name, make in {
        "tickets_1": drawing(1, 9),
        "tickets_7": drawing(7, 200),
        "tickets_of_few": drawing(40, 3),
        "sums_int32": summing(np.int32, 2**29 - 7),
        "sums_uint32": summing(np.uint32, 2**29 + 1),
        "early": reading_early,
        "collatz": walking,
        "dealt": dealing(batches=1, m=9, n=5, clusters=7),
        "dealt_pairs": dealing(batches=2, m=5, n=6, clusters=3, size=2, warpgroups=2),
        "dealt_in_fours": dealing(
            batches=1, m=7, n=9, clusters=5, size=4, shape=(2, 2), raster="rows", stages=3
        ),
        "dealt_one_slot": dealing(
            batches=1, m=8, n=8, clusters=2, size=8, shape=(4, 2), raster="columns", stages=1
        ),
    }.items()
]
