"""Scalars: arithmetic, conversions, control flow and accesses of every dtype as small kernels with
what NumPy says of them, for the simulator, for NVRTC, and for a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array, Case, Made, Rng
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType

REGISTERS = [t for t in dtypes.ALL if t.in_registers]
NAMED: dict[str, Callable[[Any], Any]] = {
    "neg": np.negative,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcp": lambda x: 1 / x,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": lambda x: np.array([math.erf(v) for v in np.asarray(x, np.float64)]),
}
NUMPY = SimpleNamespace(
    min=np.minimum,
    max=np.maximum,
    select=np.where,
    math=lambda name, x: NAMED.get(name, getattr(np, name, np.abs))(x),
)
Operator = Callable[[Any, Any, Any], Any]  # (ctx or NUMPY, x, y)


def check(got: Array, want: Array, limit: float) -> None:
    """The output is what NumPy gives: exactly, or within `limit`, relative and absolute."""
    if got.dtype == want.dtype and got.dtype.kind in "iub":  # float64 would round 64 bits
        np.testing.assert_array_equal(got, want)
        return
    if limit == 0 or got.dtype.kind in "iub":
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
        return
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=limit, atol=limit
    )


# -- arithmetic ------------------------------------------------------------------------

COMPARISONS: dict[str, Operator] = {
    "eq": lambda c, x, y: x == y,
    "ne": lambda c, x, y: x != y,
    "lt": lambda c, x, y: x < y,
    "le": lambda c, x, y: x <= y,
    "gt": lambda c, x, y: x > y,
    "ge": lambda c, x, y: x >= y,
}
BOTH: dict[str, Operator] = COMPARISONS | {
    "add": lambda c, x, y: x + y,
    "sub": lambda c, x, y: x - y,
    "mul": lambda c, x, y: x * y,
    "min": lambda c, x, y: c.min(x, y),
    "max": lambda c, x, y: c.max(x, y),
    "select": lambda c, x, y: c.select(x > y, x, y),
    "constants": lambda c, x, y: x * 3 + 1,
    "abs": lambda c, x, y: c.math("abs", x),
}
WHOLE: dict[str, Operator] = BOTH | {
    "floordiv": lambda c, x, y: x // y,
    "mod": lambda c, x, y: x % y,
    "and": lambda c, x, y: x & y,
    "or": lambda c, x, y: x | y,
    "xor": lambda c, x, y: x ^ y,
    "shl": lambda c, x, y: x << (y & 3),
    "shr": lambda c, x, y: x >> (y & 3),
    "by eight": lambda c, x, y: x // 8,
    "rest of eight": lambda c, x, y: x % 8,
    "both": lambda c, x, y: (x > 2) & ~(y > 3) | (x == y),
}
SIGNED: dict[str, Operator] = WHOLE | {
    "neg": lambda c, x, y: -x,
    "not": lambda c, x, y: ~x,
    "by minus three": lambda c, x, y: x // -3,
    "modulo minus three": lambda c, x, y: x % -3,
}
FUNCTIONS: dict[str, Operator] = {
    name: lambda c, x, y, name=name: c.math(name, x)
    for name in (
        "neg",
        "abs",
        "exp",
        "exp2",
        "log",
        "log2",
        "sqrt",
        "rsqrt",
        "tanh",
        "sin",
        "cos",
        "floor",
        "ceil",
        "round",
        "erf",
        "sigmoid",
        "rcp",
    )
} | {"div": lambda c, x, y: x / y, "reciprocal": lambda c, x, y: 1.0 / y}


@tp.kernel()
def arithmetic(
    ctx: tp.Context, x: Any, y: Any, out: Any, *, operators: tuple[Operator, ...]
) -> None:
    """out[i, lane] = operator i of x[lane] and y[lane]."""

    @ctx.role("one", warps=1)
    def one() -> None:
        a, b = ctx.load(x[ctx.lane]), ctx.load(y[ctx.lane])
        for i, operator in enumerate(operators):
            ctx.store(out[i, ctx.lane], operator(ctx, a, b))


def whole(dtype: DType, signed: bool) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        largest = 11 if dtype.bits == 8 else 30_000
        x, y = rng.integers(1, largest + 1, (2, 32))
        x, y = np.maximum(x, y), np.minimum(x, y)  # unsigned differences must not be negative
        operators = SIGNED if signed else WHOLE
        if signed:
            x, y = x * rng.choice([-1, 1], 32), y * rng.choice([-1, 1], 32)
        out = np.zeros((len(operators), 32), np.int64)
        want = np.stack(
            [np.asarray(operator(NUMPY, x, y)).astype(np.int64) for operator in operators.values()]
        )
        program = arithmetic.bind(
            x.astype(dtype.numpy), y.astype(dtype.numpy), out, operators=tuple(operators.values())
        )
        return program, out, want, 0

    return make


LIMITS = {"float64": 1e-6, "float32": 4e-6, "float16": 4e-3, "bfloat16": 3.2e-2}


def fractions(dtype: DType) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        x, y = rng.uniform(0.1, 3, (2, 32)).astype(dtype.numpy)
        y[::2] *= -1
        operators = BOTH | FUNCTIONS
        out = np.zeros((len(operators), 32), np.float64)
        wide = [z.astype(np.float64) for z in (x, y)]
        want = np.stack(
            [
                np.asarray(operator(NUMPY, *wide)).astype(np.float64)
                for operator in operators.values()
            ]
        )
        program = arithmetic.bind(x, y, out, operators=tuple(operators.values()))
        return program, out, want, LIMITS[dtype.name]

    return make


# -- conversions and accesses ----------------------------------------------------------


@tp.kernel()
def conversions(ctx: tp.Context, x: Any, out: Any) -> None:
    """out[i, lane] = x[lane] by way of dtype i."""

    @ctx.role("one", warps=1)
    def one() -> None:
        for i, dtype in enumerate(REGISTERS):
            ctx.store(out[i, ctx.lane], ctx.load(x[ctx.lane]).to(dtype).to("float64"))


def converted(dtype: DType) -> Callable[[Rng], Made]:
    """Small numbers, which every dtype holds."""

    def make(rng: Rng) -> Made:
        x = rng.integers(0, 8, 32).astype(dtype.numpy)
        out = np.zeros((len(REGISTERS), 32), np.float64)
        want = np.stack(
            [x.astype(np.float64).astype(t.numpy).astype(np.float64) for t in REGISTERS]
        )
        return conversions.bind(x, out), out, want, 0

    return make


@tp.kernel()
def stored(ctx: tp.Context, x: Any, out: Any) -> None:
    """out = x, in out's dtype."""

    @ctx.role("one", warps=1)
    def one() -> None:
        for i in ctx.range(0, x.shape[0], 32):
            with ctx.when(i + ctx.lane < x.shape[0]):
                ctx.store(out[i + ctx.lane], ctx.load(x[i + ctx.lane]))


def rounded(kind: str, dtype: DType) -> Callable[[Rng], Made]:
    """Numbers between those that the dtype has: rounded to the nearest, ties to even, down to
    denormal ones.
    """

    def make(rng: Rng) -> Made:
        if kind == "int32":
            x = rng.integers(-(2**31), 2**31, 500).astype(np.int32)
        else:
            ties = np.array(
                [
                    1 + 2.0**-9,
                    1 + 3 * 2.0**-9,
                    1 + 2.0**-11,
                    1.0625,
                    1.1875,
                    1.125,
                    1.375,
                    2.0**-9,
                    3 * 2.0**-10,
                    2.0**-24,
                ]
            )
            x = np.concatenate(
                [rng.standard_normal(300) * 20, rng.standard_normal(100) * 2.0**-8, ties, -ties]
            ).astype(np.float32)
        out = np.zeros(len(x), dtype.numpy)
        return stored.bind(x, out), out, x.astype(dtype.numpy), 0

    return make


@tp.kernel()
def through_shared(ctx: tp.Context, x: Any, out: Any, *, order: str, swizzle: int) -> None:
    """out[i] = x[i] backwards, through a tile: each lane reads what another one wrote."""
    tile = ctx.smem((32, 32), x.dtype, order=order, swizzle=swizzle, name="tile")[0]

    @ctx.role("one", warps=1)
    def one() -> None:
        for i in ctx.range(32):
            ctx.store(tile[i, ctx.lane], ctx.load(x[i, ctx.lane]))
        ctx.syncwarp()
        for i in ctx.range(32):
            ctx.store(out[i, ctx.lane], ctx.load(tile[i, 31 - ctx.lane]))


def shared(dtype: DType, order: str = "row", swizzle: int = 0) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        x = rng.integers(0, 8, (32, 32)).astype(dtype.numpy)
        out = np.zeros_like(x)
        return through_shared.bind(x, out, order=order, swizzle=swizzle), out, x[:, ::-1], 0

    return make


# -- control flow and places -----------------------------------------------------------


@tp.kernel()
def control(ctx: tp.Context, n: Any, out: Any) -> None:
    """Loops, branches of all threads and of some lanes, variables, elections, a ring's place; out
    has a row for each.
    """

    @ctx.role("one", warps=2)
    def one() -> None:
        total = ctx.var(ctx.lane * 0)
        trips = ctx.var(0)
        place = tp.PipelineState(ctx, 3)
        for i in ctx.range(1, n, 3):
            trips += 1
            place.advance(i)
            odd = ctx.let(i % 2, "odd")
            with ctx.when(odd == 0):
                total += i
            with ctx.otherwise():
                with ctx.when(ctx.lane < i):
                    total += ctx.lane
                with ctx.otherwise():
                    total -= 1
        for _ in ctx.range(n, n):
            total.set(-1000)
        ctx.store(out[0, ctx.thread], total.get())
        ctx.store(out[1, ctx.thread], trips.get())
        ctx.store(out[2, ctx.thread], place.index() * 2 + place.phase())
        with ctx.elect_one():
            ctx.store(out[3, ctx.warp], 1)
        with ctx.elect_one("role"):
            ctx.store(out[4, 0], 1)
        ctx.assert_(n > 0, "n must be positive")  # noqa: PT009
        ctx.assert_(total.get() > -1000)  # noqa: PT009
        with ctx.elect_one("role"):
            ctx.print("n is {}, {} trips", n, trips.get())
        ctx.launch_dependents()


def controlled(n: int) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        del rng
        out, want = np.zeros((5, 64), np.int32), np.zeros((5, 64), np.int32)
        lane, loop = np.arange(64) % 32, range(1, n, 3)
        for i in loop:
            want[0] += i if i % 2 == 0 else np.where(lane < i, lane, -1)
        want[1] = len(loop)
        want[2] = sum(loop) % 3 * 2 + sum(loop) // 3 % 2
        want[3, :2] = want[4, 0] = 1
        return control.bind(n, out), out, want, 0

    return make


NAMES = (
    "lane",
    "warp",
    "thread",
    "cta_rank",
    "cluster_id",
    "num_clusters",
    "block_id",
    "cluster_size",
)


@tp.kernel(grid=8, cluster=lambda size: size)
def places(ctx: tp.Context, out: Any, groups: Any, *, size: int) -> None:
    """Where each thread of a role of three warps is, and the warpgroup of each of two."""

    @ctx.role("narrow", warps=3)
    def narrow() -> None:
        for i, name in enumerate(NAMES):
            ctx.store(out[ctx.block_id, i, ctx.thread], getattr(ctx, name))

    @ctx.role("wide", warpgroups=2)
    def wide() -> None:
        ctx.store(groups[ctx.block_id, ctx.thread], ctx.warpgroup_rank * 8 + ctx.warp)


def placed(size: int) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        del rng
        out, groups = np.zeros((8, len(NAMES), 96), np.int32), np.zeros((8, 256), np.int32)
        thread, block = np.broadcast_arrays(np.arange(96)[None], np.arange(8)[:, None])
        clusters = np.full_like(block, 8 // size)
        want = [
            thread % 32,
            thread // 32,
            thread,
            block % size,
            block // size,
            clusters,
            block,
            np.full_like(block, size),
        ]
        return places.bind(out, groups, size=size), out, np.stack(want, axis=1), 0

    return make


def _signed(t: DType) -> bool:
    return t.kind == "int"


CASES = [
    Case(name, make)
    for name, make in {
        **{f"integers_{t.name}": whole(t, False) for t in REGISTERS if t.is_integer},
        **{f"signed_{t.name}": whole(t, True) for t in REGISTERS if _signed(t)},
        **{f"fractions_{name}": fractions(dtypes.dtype(name)) for name in LIMITS},
        **{f"converted_{t.name}": converted(t) for t in REGISTERS},
        **{
            f"rounded_{name}": rounded("float32", dtypes.dtype(name))
            for name in ("float16", "bfloat16", "float8_e4m3", "float8_e5m2")
        },
        **{
            f"rounded_int32_{name}": rounded("int32", dtypes.dtype(name))
            for name in ("float32", "bfloat16")
        },
        **{f"shared_{t.name}": shared(t) for t in REGISTERS},
        **{
            f"shared_{order}_{bits}": shared(dtypes.float32, order, bits)
            for order in ("row", "col")
            for bits in (32, 64, 128)
        },
        **{
            f"shared_bfloat16_{order}_{bits}": shared(dtypes.bfloat16, order, bits)
            for order in ("row", "col")
            for bits in (32, 64)
        },
        **{f"control_{n}": controlled(n) for n in (1, 2, 40)},
        **{f"places_{size}": placed(size) for size in (1, 2, 4, 8)},
    }.items()
]
