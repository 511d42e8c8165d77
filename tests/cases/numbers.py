"""Conversions and integer operations over edge values, as kernels with what Python's exact integers
and NumPy say of them.

The reference does not use `tilepipe.ir.numbers`: it is what the simulator, and a GPU, are held to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array, Case, Made, Rng
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType

INTEGERS = [t for t in dtypes.ALL if t.is_integer]
FLOATS = [t for t in dtypes.ALL if t.is_float and t.in_registers]
Number = int | float


def bounds(t: DType) -> tuple[int, int]:
    """The least and the greatest integer of a dtype."""
    return (0, 2**t.bits - 1) if t.kind == "uint" else (-(2 ** (t.bits - 1)), 2 ** (t.bits - 1) - 1)


def edges(t: DType) -> Array:
    """Values of a dtype at which a conversion or an operation may go wrong."""
    if t.is_integer:
        low, high = bounds(t)
        near = [
            low,
            low + 1,
            -129,
            -128,
            -3,
            -1,
            0,
            1,
            2,
            7,
            127,
            128,
            255,
            256,
            2**24 + 1,
            2**31 - 1,
            2**31,
        ]
        near += [2**53 + 1, high - 1, high]
        return np.array(sorted({x for x in near if low <= x <= high}), t.numpy)
    limits = [bounds(i) for i in INTEGERS]
    near_f = [0.0, -0.0, 0.5, 0.99, 1.5, 2.5, math.inf, math.nan, 1e-30, 3e38, 6e4]
    near_f += [float(x) + d for pair in limits for x in pair for d in (-1.0, -0.5, 0.0, 0.5, 1.0)]
    values = np.array(near_f + [-x for x in near_f], np.float64)
    with np.errstate(over="ignore"):
        return values.astype(np.float32).astype(t.numpy) if t.bits < 64 else values


def as_integer(x: float, t: DType) -> int:
    """PTX's cvt.rzi: truncated, clamped; NaN is 0."""
    low, high = bounds(t)
    return 0 if math.isnan(x) else low if x <= low else high if x >= high else math.trunc(x)


def modulo(x: int, t: DType) -> int:
    """The integer of `t` with the low bits of `x`."""
    low, high = bounds(t)
    x %= high - low + 1
    return x if x <= high else x - (high - low + 1)


def converts(x: Number, source: DType, t: DType) -> bool:
    """Whether a conversion is no fault: of int64 to int32, a number that does not fit is one."""
    return (source.name, t.name) != ("int64", "int32") or bounds(t)[0] <= x <= bounds(t)[1]


@tp.kernel()
def convert(ctx: tp.Context, x: Any, out: Any) -> None:
    """out[i] = x[i], converted."""

    @ctx.role("one", warps=1)
    def one() -> None:
        for i in ctx.range(0, x.shape[0], 32):
            with ctx.when(i + ctx.lane < x.shape[0]):
                ctx.store(out[i + ctx.lane], ctx.load(x[i + ctx.lane]).to(out.dtype))


@tp.kernel()
def convert_uniform(ctx: tp.Context, x: Any, out: Any) -> None:
    """The same, one number at a time."""

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.elect_one():
            for i in ctx.range(x.shape[0]):
                ctx.store(out[i], ctx.load(x[i]).to(out.dtype))


def to_float(x: Array, t: DType) -> Array:
    """Rounded to nearest even by way of float32, as the device does; fp8 saturates."""
    if t.bits == 64:
        return x.astype(np.float64)
    with np.errstate(over="ignore"):
        narrow = x.astype(np.float32)
        if t.bits == 8:
            limit = np.float32(448 if t.name == "float8_e4m3" else 57344)
            narrow = np.clip(narrow, -limit, limit)
        return narrow.astype(t.numpy)


def conversion(source: DType, t: DType, uniform: bool) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        del rng
        x = edges(source)
        if t.is_integer:
            x = np.array([v for v in x if converts(v.item(), source, t)], x.dtype)
            numbers = [v.item() for v in x]
            want = np.array(
                [as_integer(v, t) if source.is_float else modulo(v, t) for v in numbers], t.numpy
            )
        else:
            want = to_float(x, t)
        out = np.full(len(x), 77, t.numpy)
        return (convert_uniform if uniform else convert).bind(x, out), out, want, 0

    return make


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "shl": lambda x, y: x << (y if 0 <= y <= 64 else 65),
    "shr": lambda x, y: x >> (y if 0 <= y <= 64 else 65),
    "abs": lambda x, y: abs(x),
    "neg": lambda x, y: -x,
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "not": lambda x, y: ~x,
}


def outcome(name: str, x: int, y: int, t: DType) -> int | None:
    """What an operation gives; None where it is a fault."""
    if name in ("floordiv", "mod") and (y == 0 or (x == bounds(t)[0] and y == -1)):
        return None
    exact = OPERATIONS[name](x, y)
    low, high = bounds(t)
    if t.kind == "uint":
        return modulo(exact, t)
    return exact if low <= exact <= high else None


@tp.kernel()
def operate(ctx: tp.Context, x: Any, y: Any, out: Any, *, name: str, uniform: bool) -> None:
    """out[i] = x[i] operation y[i]."""
    operators: dict[str, Callable[[Any, Any], Any]] = {
        "floordiv": lambda a, at: a // ctx.load(y[at]),
        "mod": lambda a, at: a % ctx.load(y[at]),
        "shl": lambda a, at: a << ctx.load(y[at]),
        "shr": lambda a, at: a >> ctx.load(y[at]),
        "add": lambda a, at: a + ctx.load(y[at]),
        "mul": lambda a, at: a * ctx.load(y[at]),
        "abs": lambda a, at: abs(a),
        "neg": lambda a, at: -a,
        "not": lambda a, at: ~a,
    }

    @ctx.role("one", warps=1)
    def one() -> None:
        if uniform:
            with ctx.elect_one():
                for i in ctx.range(x.shape[0]):
                    ctx.store(out[i], operators[name](ctx.load(x[i]), i))
        else:
            for i in ctx.range(0, x.shape[0], 32):
                at = ctx.let(i + ctx.lane)
                with ctx.when(at < x.shape[0]):
                    ctx.store(out[at], operators[name](ctx.load(x[at]), at))


def pairs(t: DType) -> Iterator[tuple[int, int]]:
    """Operands: edge values with edge values, and with the amounts at which shifts change."""
    high = bounds(t)[1]
    amounts = [n for n in (0, 1, 7, 8, 9, 31, 32, 33, 40, 63, 64, 65, 100) if n <= high]
    values = [int(v) for v in edges(t)]
    yield from product(values, sorted({*values, *amounts}))


def operation(name: str, t: DType, uniform: bool) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        del rng
        defined = [(x, y, z) for x, y in pairs(t) if (z := outcome(name, x, y, t)) is not None]
        x, y, want = (np.array(column, t.numpy) for column in zip(*defined, strict=True))
        out = np.full(len(x), 77, t.numpy)
        return operate.bind(x, y, out, name=name, uniform=uniform), out, want, 0

    return make


# What wraps round, and is used further: the bounds of the result are those of the dtype, whatever
# the operands' are.
WRAPPED: dict[str, tuple[Callable[[tp.Context, Any], Any], Callable[[int], int]]] = {
    "divided": (
        lambda ctx, lane: 1000 // (lane - 5 | 1),
        lambda lane: 1000 // ((lane - 5) % 2**32 | 1),
    ),
    "shifted by": (
        lambda ctx, lane: (lane * 0 + 3) << (lane - 5),
        lambda lane: 3 << (lane - 5) & 0xFFFFFFFF if lane >= 5 else 0,
    ),
    "widened": (lambda ctx, lane: (lane - 5).to("int64") * 2, lambda lane: (lane - 5) % 2**32 * 2),
    "negated": (lambda ctx, lane: -lane >> 28, lambda lane: -lane % 2**32 >> 28),
}


@tp.kernel()
def wrap(ctx: tp.Context, out: Any, *, name: str) -> None:
    """out[lane] = what becomes of an unsigned difference."""

    @ctx.role("one", warps=1)
    def one() -> None:
        ctx.store(out[ctx.lane], WRAPPED[name][0](ctx, ctx.lane.to("uint32")))


def wrapped(name: str) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        del rng
        out = np.full(32, 77, np.int64)
        return (
            wrap.bind(out, name=name),
            out,
            np.array([WRAPPED[name][1](lane) for lane in range(32)]),
            0,
        )

    return make


def cases(uniform: bool) -> list[Case]:
    """Every conversion and every operation."""
    types = [*INTEGERS, *FLOATS]
    return [
        *(
            Case(f"{s.name}_to_{t.name}", conversion(s, t, uniform))
            for s, t in product(types, types)
            if s is not t
        ),
        *(
            Case(f"{name}_{t.name}", operation(name, t, uniform))
            for name, t in product(OPERATIONS, INTEGERS)
        ),
    ]


CASES = [*cases(uniform=False), *(Case(f"unsigned_{name}", wrapped(name)) for name in WRAPPED)]
# for the simulator, which computes these as Python numbers, and lanes' as arrays
UNIFORM = cases(uniform=True)
