"""Arithmetic of 16-bit floats, each operation of which is rounded: bit for bit what NumPy gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Case, Made, Rng
from tilepipe.ir import dtypes

Body = Callable[[Any, Any, Any], Any]  # (ctx or None, a, b)

BODIES: dict[str, Body] = {
    "sum of products": lambda c, a, b: (a * b) * a + b,
    "difference": lambda c, a, b: (a - b * a) - (0.3 if c else a.dtype.type(0.3)),
    "quotient": lambda c, a, b: (a + b) / (b + 3),
    "square": lambda c, a, b: (a + b) ** 2 - a,
    "exact": lambda c, a, b: abs(-(a * b)) + a,
    "chosen": lambda c, a, b: (
        (np.where(a * b > 0.5, a * b, b) if c is None else c.select(a * b > 0.5, a * b, b)) + a
    ),
    "wide and back": lambda c, a, b: (
        (
            (a.astype(np.float32) * b.astype(np.float32)).astype(a.dtype)
            if c is None
            else (a.to("float32") * b.to("float32")).to(a.dtype)
        )
        * a
    ),
}


@tp.kernel(grid=1)
def of_scalars(ctx: tp.Context, a: Any, b: Any, out: Any) -> None:
    """out[i] = body i of a and b, by lanes; then of numbers that all lanes share."""

    @ctx.role("one", warps=1)
    def one() -> None:
        x, y = ctx.load(a[ctx.lane]), ctx.load(b[ctx.lane])
        for i, body in enumerate(BODIES.values()):
            ctx.store(out[i, ctx.lane], body(ctx, x, y).to("float32"))
        x, y = (ctx.shuffle(v.to("float32"), 3).to(a.dtype) for v in (x, y))
        for i, body in enumerate(BODIES.values()):
            ctx.store(out[len(BODIES) + i, ctx.lane], body(ctx, x, y).to("float32"))


def scalars(kind: str) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a, b = (rng.uniform(-2, 2, 32).astype(dtypes.dtype(kind).numpy) for _ in range(2))
        shared = np.full_like(a, a[3]), np.full_like(b, b[3])
        want = [body(None, *given) for given in ((a, b), shared) for body in BODIES.values()]
        out = np.zeros((len(want), 32), np.float32)
        return of_scalars.bind(a, b, out), out, np.stack(want).astype(np.float32), 0

    return make


@tp.kernel(grid=1)
def of_fragments(ctx: tp.Context, a: Any, b: Any, out: Any, *, layout: str) -> None:
    """out[i] = body i of a, (64, 16), and b, (64, 1)."""

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        x = ctx.load_global(a, (0, 0), (64, 16), layout=layout)
        y = ctx.load_global(b, (0,), (64, 1), layout=layout)
        for i, body in enumerate(BODIES.values()):
            ctx.store_global(out, (i, 0, 0), ctx.fragment(body(ctx, x, y)))


def fragments(kind: str, layout: str) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        t = dtypes.dtype(kind).numpy
        a, b = rng.uniform(-2, 2, (64, 16)).astype(t), rng.uniform(-2, 2, 64).astype(t)
        want = np.stack([body(None, a, b[:, None]) for body in BODIES.values()]).astype(np.float32)
        out = np.zeros((len(BODIES), 64, 16), t)
        return of_fragments.bind(a, b, out, layout=layout), out, want.astype(t), 0

    return make


CASES = [
    Case(name, make)
    for name, make in {
        **{f"halves_{kind}": scalars(kind) for kind in ("float16", "bfloat16")},
        **{
            f"halves_{kind}_{layout}": fragments(kind, layout)
            for kind in ("float16", "bfloat16")
            for layout in ("wgmma", "rows:2")
        },
    }.items()
]
