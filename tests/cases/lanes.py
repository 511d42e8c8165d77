"""The ops by which the lanes of a warp learn of each other's values, each with what NumPy says of
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array, Case, Made, Rng
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType


@tp.kernel()
def exchanged(ctx: tp.Context, x: Any, out: Any) -> None:
    """Values of other lanes: of one lane, of the next, of a butterfly; sums over each warp."""

    def exchange(row: int, value: Any) -> None:
        total = ctx.var(value)
        for mask in (1, 2, 4, 8, 16):
            total += ctx.shuffle_xor(total.get(), mask)
        one = ctx.shuffle(value, 37)
        with ctx.when(one > 0):
            ctx.store(out[row, 0, ctx.thread], one)
        ctx.store(out[row, 1, ctx.thread], ctx.shuffle(value, ctx.lane + 1))
        ctx.store(out[row, 2, ctx.thread], ctx.shuffle_xor(value, 6))
        ctx.store(out[row, 3, ctx.thread], total.get())

    @ctx.role("warps", warps=4)
    def warps() -> None:
        exchange(0, ctx.load(x[0, ctx.thread]))

    @ctx.role("warpgroup", warpgroups=1)
    def warpgroup() -> None:
        exchange(1, ctx.load(x[1, ctx.thread]))


EXCHANGED = ("int32", "uint32", "float32")


def exchanges(dtype: DType) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        x = rng.integers(1, 100, (2, 128)).astype(dtype.numpy)
        warps, lane = x.reshape(2, 4, 32), np.arange(32)
        read = [warps[..., lanes] for lanes in (0 * lane + 37 % 32, (lane + 1) % 32, lane ^ 6)]
        total = warps.sum(axis=2, keepdims=True) + 0 * warps
        want = np.stack([*read, total], axis=1).reshape(2, 4, 128).astype(dtype.numpy)
        out = np.zeros_like(want)
        return exchanged.bind(x, out), out, want, 0

    return make


# -- votes -----------------------------------------------------------------------------


@tp.kernel()
def votes(ctx: tp.Context, x: Any, out: Any) -> None:
    """Whether any, all, which lanes of each warp have a positive x; by single warps, by the warps
    of a warpgroup, under per_warp, and of conditions that all lanes share.
    """

    def vote(row: int, thread: Any) -> None:
        value = ctx.load(x[row, thread])
        with ctx.when(ctx.any_lane(value > 0)):
            ctx.store(out[row, 0, thread], 1)
        ctx.store(out[row, 1, thread], ctx.all_lanes(value > 0).to("uint32"))
        ctx.store(out[row, 2, thread], ctx.ballot(value > 0))
        shared = x.shape[1] > 128 * row
        ctx.store(out[row, 3, thread], ctx.ballot(shared))
        ctx.store(out[row, 4, thread], ctx.any_lane(shared).to("uint32"))

    @ctx.role("warps", warps=4)
    def warps() -> None:
        vote(0, ctx.thread)

    @ctx.role("warpgroup", warpgroups=1)
    def warpgroup() -> None:
        vote(1, ctx.thread)
        with ctx.per_warp():
            vote(2, ctx.thread)


def voted(rng: Rng) -> Made:
    x = rng.integers(-5, 2, (3, 128)).astype(np.int32)
    x[:, 32:64], x[:, 64:96] = 3, -3
    warps = x.reshape(3, 4, 32) > 0
    bits = (warps.astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(axis=2)
    shared = np.array([1, 0, 0])[:, None] + 0 * bits
    found = [warps.any(axis=2), warps.all(axis=2), bits, 0xFFFFFFFF * shared, shared]
    want = np.stack([np.repeat(each, 32, axis=1) for each in found], axis=1).astype(np.uint32)
    out = np.zeros_like(want)
    return votes.bind(x, out), out, want, 0


# -- reductions ------------------------------------------------------------------------


@tp.kernel()
def reductions(ctx: tp.Context, x: Any, out: Any, *, names: tuple[Any, ...]) -> None:
    """Each reduction of x over each warp, and of a value that all lanes share."""

    def reduce(row: int, thread: Any) -> None:
        value, shared = ctx.load(x[row, thread]), ctx.load(x[row, 0])
        for i, name in enumerate(names):
            ctx.store(out[row, i, thread], ctx.reduce_lanes(name, value))
            ctx.store(out[row, len(names) + i, thread], ctx.reduce_lanes(name, shared))

    @ctx.role("warps", warps=4)
    def warps() -> None:
        reduce(0, ctx.thread)

    @ctx.role("warpgroup", warpgroups=1)
    def warpgroup() -> None:
        reduce(1, ctx.thread)
        with ctx.per_warp():
            reduce(2, ctx.thread)


REDUCED: dict[str, Any] = {
    "add": np.add,
    "min": np.fmin,
    "max": np.fmax,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def reduced(kind: str) -> Callable[[Rng], Made]:
    """Integers of all magnitudes; floats with NaN among them, and NaN alone."""
    dtype = dtypes.dtype(kind)

    def make(rng: Rng) -> Made:
        x: Array
        names: tuple[str, ...]
        if dtype.is_float:
            names = ("min", "max")
            x = rng.standard_normal((3, 128)).astype(np.float32)
            x[:, 7], x[:, 64:96] = np.nan, np.nan
            x[:, 100:102] = np.inf, -np.inf
        else:
            names = tuple(REDUCED)
            low, high = (-(2**25), 2**25) if kind == "int32" else (0, 2**32)
            x = rng.integers(low, high, (3, 128)).astype(dtype.numpy)
        with np.errstate(all="ignore"):
            warps, shared = x.reshape(3, 4, 32), np.broadcast_to(x[:, :1, None], (3, 4, 32))
            want = np.stack(
                [
                    np.repeat(REDUCED[name].reduce(values, axis=2), 32, axis=1)
                    for values in (warps, shared)
                    for name in names
                ],
                axis=1,
            ).astype(dtype.numpy)
        out = np.zeros_like(want)
        return reductions.bind(x, out, names=names), out, want, 0

    return make


CASES = [
    Case(name, make)
    for name, make in {
        **{f"exchanged_{name}": exchanges(dtypes.dtype(name)) for name in EXCHANGED},
        "voted": voted,
        **{f"reduced_{kind}": reduced(kind) for kind in ("int32", "uint32", "float32")},
    }.items()
]
