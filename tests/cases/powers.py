"""Powers of scalars and of fragments, each with what NumPy says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array, Case, Made, Rng, tolerance, wide
from tilepipe.ir import dtypes

Body = Callable[[Any, Any], Any]

# of a positive x, and of y of either sign: as NumPy has them
FLOATS: dict[str, Body] = {
    "x**0": lambda x, y: y**0,
    "y**1": lambda x, y: y**1,
    "y**2": lambda x, y: y**2,
    "y**3": lambda x, y: y**3,
    "y**7": lambda x, y: y**7,
    "y**12.0": lambda x, y: y**12.0,
    "(x+y)**2": lambda x, y: (x + y) ** 2 - y,
    "x**-1": lambda x, y: x**-1,
    "x**-3": lambda x, y: x**-3,
    "x**0.5": lambda x, y: x**0.5,
    "x**-0.5": lambda x, y: x**-0.5,
    "x**1.5": lambda x, y: x**1.5,
    "x**-0.7": lambda x, y: x**-0.7,
    "x**y": lambda x, y: x**y,
    "2**y": lambda x, y: 2**y,
    "0.3**y": lambda x, y: 0.3**y,
}
# of zeros, negative numbers, infinities and NaN
EDGES: dict[str, Body] = {
    "x**0": lambda x, y: x**0,
    "x**2": lambda x, y: x**2,
    "x**3": lambda x, y: x**3,
    "x**-1": lambda x, y: x**-1,
    "x**-2": lambda x, y: x**-2,
    "x**0.5": lambda x, y: x**0.5,
    "x**-0.5": lambda x, y: x**-0.5,
    "x**1.5": lambda x, y: x**1.5,
    "x**y": lambda x, y: x**y,
    "2**x": lambda x, y: 2.0**x,
}
WHOLE: dict[str, Body] = {
    "x**0": lambda x, y: y**0,
    "y**2": lambda x, y: y**2,
    "y**3": lambda x, y: y**3 - x**1,
    "(x+1)**5": lambda x, y: (x + 1) ** 5,
}


@tp.kernel(grid=1)
def of_scalars(ctx: tp.Context, x: Any, y: Any, out: Any, *, bodies: tuple[Body, ...]) -> None:
    """out[i, lane] = body i of x[lane], y[lane]."""

    @ctx.role("one", warps=1)
    def one() -> None:
        a, b = ctx.load(x[ctx.lane]), ctx.load(y[ctx.lane])
        for i, body in enumerate(bodies):
            ctx.store(out[i, ctx.lane], body(a, b))


@tp.kernel(grid=1)
def of_fragments(
    ctx: tp.Context, x: Any, y: Any, out: Any, *, bodies: tuple[Body, ...], layout: str
) -> None:
    """out[i] = body i of x, (64, 1), and y, (64, 16)."""

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        a = ctx.load_global(x, (0,), (64, 1), layout=layout)
        b = ctx.load_global(y, (0, 0), (64, 16), layout=layout)
        for i, body in enumerate(bodies):
            ctx.store_global(out, (i, 0, 0), 0 * b + body(a, b))


def scalars(kind: str, bodies: dict[str, Body]) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        t = dtypes.dtype(kind)
        x: Array
        y: Array
        if t.is_float:
            x, y = rng.uniform(0.3, 2, 32), rng.uniform(-1.5, 1.5, 32)
        else:
            x, y = rng.integers(0, 7, 32), rng.integers(-20 * (t.kind == "int"), 21, 32)
        x, y = x.astype(t.numpy), y.astype(t.numpy)
        result = np.float64 if t.is_float else t.numpy
        out = np.zeros((len(bodies), 32), result)
        given = (x.astype(np.float64), y.astype(np.float64)) if t.is_float else (x, y)
        want = np.stack([body(*given) for body in bodies.values()]).astype(result)
        program = of_scalars.bind(x, y, out, bodies=tuple(bodies.values()))
        return program, out, want, _limit(kind)

    return make


def edges(rng: Rng) -> Made:
    """All pairs, of which square roots and exp2(y * log2(x)) know less than NumPy's `**`: of -inf
    and 0 ** 0.
    """
    values = np.array([0, -0.0, 1, -1, -2.5, np.inf, -np.inf, np.nan], np.float32)
    x, y = np.repeat(values, 4), np.tile(values[[0, 2, 3, 4]], 8)
    out = np.zeros((len(EDGES), 32), np.float64)
    with np.errstate(all="ignore"):
        want = np.stack([body(x, y) for body in EDGES.values()])
        root, log2 = np.sqrt(x), np.log2(x)
        want[5:9] = root, 1 / root, np.exp2(np.float32(1.5) * log2), np.exp2(y * log2)
    return of_scalars.bind(x, y, out, bodies=tuple(EDGES.values())), out, want, 2e-6


def fragments(kind: str, bodies: dict[str, Body], layout: str) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        t = dtypes.dtype(kind)
        x: Array
        y: Array
        if t.is_float:
            x, y = rng.uniform(0.3, 2, 64), rng.uniform(-1.5, 1.5, (64, 16))
        else:
            x, y = rng.integers(0, 7, 64), rng.integers(0, 21, (64, 16))
        x, y = x.astype(t.numpy), y.astype(t.numpy)
        given: tuple[Array, Array] = (x[:, None], y)
        if t.is_float:
            given = (wide(x)[:, None].astype(np.float64), y.astype(np.float64))
        out = np.zeros((len(bodies), 64, 16), np.float32 if t.is_float else t.numpy)
        want = np.stack([0 * given[1] + body(*given) for body in bodies.values()])
        program = of_fragments.bind(x, y, out, bodies=tuple(bodies.values()), layout=layout)
        return program, out, want.astype(out.dtype), _limit(kind)

    return make


def _limit(kind: str) -> float:
    t = dtypes.dtype(kind)
    return 0 if not t.is_float else 1e-6 if t.bits == 64 else 4 * tolerance(kind)


CASES = [
    Case(name, make)
    for name, make in {
        **{
            f"powers_{kind}": scalars(kind, FLOATS)
            for kind in ("float64", "float32", "float16", "bfloat16")
        },
        **{f"powers_{kind}": scalars(kind, WHOLE) for kind in ("int32", "uint32", "int64")},
        **{
            f"powers_{kind}_{layout}": fragments(kind, FLOATS, layout)
            for kind in ("float32", "bfloat16")
            for layout in ("wgmma", "rows:2")
        },
        **{
            f"powers_{kind}_fragment": fragments(kind, WHOLE, "wgmma")
            for kind in ("int32", "uint32")
        },
        "powers_edges": edges,
    }.items()
]
