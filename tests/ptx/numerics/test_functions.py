"""Division and roots against fractions, the approximate functions against their error bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ptx.numerics.reference import (
    DTYPES,
    MODES,
    NAN,
    WIDTH,
    Array,
    arithmetic,
    bits,
    chosen_lanes,
    decode,
    encode,
    flushed,
    operands,
    special_bits,
)
from tilepipe.ptx.numerics import Unsupported, functions

INFINITY = math.inf


def same(got: list[int], wanted: list[float], type: str) -> None:
    for pattern, value in zip(got, wanted, strict=True):
        if type == "f64" and math.isnan(value):
            assert math.isnan(decode(pattern, type))
        else:
            assert pattern == encode(value, type)


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("mode", MODES)
def test_division_and_roots_are_correctly_rounded(type: str, mode: str) -> None:
    for ftz in (False, True) if type == "f32" else (False,):
        modifiers: dict[str, Any] = {"rounding": mode} | ({"ftz": True} if ftz else {})

        def value(pattern: int, ftz: bool = ftz) -> float:
            return flushed(decode(pattern, type), type) if ftz else decode(pattern, type)

        def result(operation: str, values: list[float], ftz: bool = ftz) -> float:
            exact = arithmetic(operation, values, type, mode)
            return flushed(exact, type) if ftz else exact

        drawn = chosen_lanes([special_bits(type)] * 2, [WIDTH[type]] * 2)
        a, b = operands(drawn, *[DTYPES[type]] * 2)
        wanted = [result("div", [value(each) for each in lane]) for lane in drawn]
        same(bits(functions.div(type, **modifiers)(a, b)), wanted, type)
        wanted = [result("div", [1.0, value(lane[0])]) for lane in drawn]
        same(bits(functions.rcp(type, **modifiers)(a)), wanted, type)
        wanted = [result("sqrt", [value(lane[0])]) for lane in drawn]
        same(bits(functions.sqrt(type, **modifiers)(a)), wanted, type)


def singles(*values: float) -> Array:
    return np.array(values, np.float32)


NAN_F32 = decode(NAN["f32"], "f32")
CORNERS: dict[str, tuple[Callable[..., Any], list[tuple[float, float]]]] = {
    "rcp": (
        lambda: functions.rcp("f32", rounding="approx", ftz=True),
        [
            (-INFINITY, -0.0),
            (-1e-40, -INFINITY),
            (-0.0, -INFINITY),
            (1e-40, INFINITY),
            (0.0, INFINITY),
            (INFINITY, 0.0),
            (math.nan, NAN_F32),
        ],
    ),
    "sqrt": (
        lambda: functions.sqrt("f32", rounding="approx", ftz=True),
        [
            (-INFINITY, NAN_F32),
            (-1.0, NAN_F32),
            (-1e-40, -0.0),
            (-0.0, -0.0),
            (0.0, 0.0),
            (1e-40, 0.0),
            (INFINITY, INFINITY),
            (math.nan, NAN_F32),
        ],
    ),
    "rsqrt": (
        lambda: functions.rsqrt("f32", ftz=True),
        [
            (-INFINITY, NAN_F32),
            (-1.0, NAN_F32),
            (-1e-40, -INFINITY),
            (-0.0, -INFINITY),
            (0.0, INFINITY),
            (1e-40, INFINITY),
            (INFINITY, 0.0),
            (math.nan, NAN_F32),
        ],
    ),
    "sin": (
        lambda: functions.sin("f32"),
        [
            (-INFINITY, NAN_F32),
            (-1e-40, -0.0),
            (-0.0, -0.0),
            (0.0, 0.0),
            (1e-40, 0.0),
            (INFINITY, NAN_F32),
            (math.nan, NAN_F32),
        ],
    ),
    "cos": (
        lambda: functions.cos("f32"),
        [(-INFINITY, NAN_F32), (-1e-40, 1.0), (0.0, 1.0), (INFINITY, NAN_F32)],
    ),
    "lg2": (
        lambda: functions.lg2("f32", ftz=True),
        [
            (-INFINITY, NAN_F32),
            (-1.0, NAN_F32),
            (-1e-40, -INFINITY),
            (-0.0, -INFINITY),
            (0.0, -INFINITY),
            (1e-40, -INFINITY),
            (INFINITY, INFINITY),
            (8.0, 3.0),
        ],
    ),
    "ex2": (
        lambda: functions.ex2("f32"),
        [
            (-INFINITY, 0.0),
            (-1e-40, 1.0),
            (0.0, 1.0),
            (INFINITY, INFINITY),
            (math.nan, NAN_F32),
            (-149.0, 2.0 ** (-149)),
            (128.0, INFINITY),
        ],
    ),
    "tanh": (
        lambda: functions.tanh("f32"),
        [
            (-INFINITY, -1.0),
            (-0.0, -0.0),
            (0.0, 0.0),
            (INFINITY, 1.0),
            (math.nan, NAN_F32),
            (2.0 ** (-130), 2.0 ** (-130)),
        ],
    ),
}


@pytest.mark.parametrize("name", CORNERS)
def test_corner_cases_of_approximations(name: str) -> None:
    factory, cases = CORNERS[name]
    got = factory()(singles(*(each for each, _ in cases)))
    assert bits(got) == [encode(wanted, "f32") for _, wanted in cases]


@pytest.mark.parametrize(
    ("compute", "exact", "low", "high", "bound"),
    [
        (functions.rcp("f32", rounding="approx"), lambda x: 1 / x, 1, 2, 2**-23),
        (functions.sqrt("f32", rounding="approx"), math.sqrt, 1, 4, 2**-23),
        (functions.rsqrt("f32"), lambda x: x**-0.5, 1, 4, 2**-22.4),
        (functions.sin("f32"), math.sin, -math.pi, math.pi, 2**-20.5),
        (functions.cos("f32"), math.cos, -math.pi, math.pi, 2**-20.5),
        (functions.lg2("f32"), math.log2, 0.5, 2, 2**-22),
        (functions.ex2("f32"), math.exp2, -1, 1, 2**-22),
        (functions.tanh("f32"), math.tanh, -8, 8, 2**-11),
    ],
)
def test_errors_of_approximations(
    compute: Callable[..., Any],
    exact: Callable[[float], float],
    low: float,
    high: float,
    bound: float,
) -> None:
    x = np.linspace(low, high, 500).astype(np.float32)
    wanted = np.array([exact(float(each)) for each in x])
    assert np.max(np.abs(compute(x) - wanted)) <= bound


@pytest.mark.parametrize("type", ["f16", "bf16"])
def test_functions_of_halves(type: str) -> None:
    x = np.linspace(-6, 6, 200).astype(DTYPES[type])
    last = {"f16": 2.0**-10, "bf16": 2.0**-7}[type]
    wanted = np.exp2(x.astype(np.float64))
    got = functions.ex2(type, ftz=type == "bf16")(x)
    assert got.dtype == DTYPES[type]
    assert np.all(np.abs(got.astype(np.float64) - wanted) <= last * wanted)
    hyperbolic = functions.tanh(type)(x).astype(np.float64)
    assert np.max(np.abs(hyperbolic - np.tanh(x.astype(np.float64)))) <= last
    pairs = x.reshape(-1, 2).view(np.uint32)[..., 0]
    packed = functions.tanh(f"{type}x2")(pairs)
    assert bits(packed) == bits(functions.tanh(type)(x).reshape(-1, 2).view(np.uint32))


def test_ex2_of_bf16_flushes_subnormal_results() -> None:
    x = np.array([-126, -127, -130, -1000], DTYPES["bf16"])
    got = functions.ex2("bf16", ftz=True)(x).astype(np.float64)
    assert got.tolist() == [2.0**-126, 0, 0, 0]


def test_approximate_division() -> None:
    divide = functions.div("f32", rounding="approx")
    a = singles(1, -1, INFINITY, 1, 6, 1, -1, 0)
    b = singles(2.0**127, 2.0**127, 2.0**127, 2.0**126, 3, 0, 0, 0)
    wanted = [0.0, -0.0, NAN_F32, 2.0**-126, 2.0, INFINITY, -INFINITY, NAN_F32]
    assert bits(divide(a, b)) == [encode(each, "f32") for each in wanted]
    full = functions.div("f32", rounding="full")
    assert bits(full(a, b))[:3] == [
        encode(each, "f32") for each in (2.0**-127, -(2.0**-127), INFINITY)
    ]
    assert full(a, b)[4] == 2


def test_gross_approximations_of_f64() -> None:
    x = np.array([1.5, -3.0, 1e300, 0.0, -0.0, math.inf, 1e-310, -1e-310, math.nan, 2.0**1023])
    reciprocal = functions.rcp("f64", rounding="approx", ftz=True)(x)
    assert not np.any(reciprocal.view(np.uint64) & np.uint64(0xFFFFFFFF))
    assert np.all(np.abs(reciprocal[:3] * x[:3] - 1) < 2.0**-19)
    assert reciprocal[3:8].tolist() == [math.inf, -math.inf, 0, math.inf, -math.inf]
    assert bits(reciprocal[8:]) == [0x7FFFFFFF00000000, 0]  # the result 2**-1023 is flushed
    root = functions.rsqrt("f64", ftz=True)(np.array([4.0, -1.0, 0.0, -0.0, math.inf]))
    assert root[0] == 0.5
    assert bits(root[1:2]) == [0x7FFFFFFF00000000]
    assert root[2:].tolist() == [math.inf, -math.inf, 0]
    assert functions.rsqrt("f64")(np.array([4.0, 2.0])).tolist() == [0.5, 1 / math.sqrt(2)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: functions.div("f16", rounding="rn"), "div has no type .f16"),
        (lambda: functions.div("f64", rounding="full"), "div.full has no type .f64"),
        (lambda: functions.div("f64", rounding="rn", ftz=True), "div.f64 has no .ftz"),
        (lambda: functions.div("f32", rounding="rna"), "div takes one of rn rz rm rp approx full"),
        (lambda: functions.rcp("f64", rounding="approx"), "rcp.approx.f64 needs .ftz"),
        (lambda: functions.rcp("f64", rounding="rn", ftz=True), "rcp.f64 has no .ftz"),
        (lambda: functions.sqrt("f64", rounding="approx"), "sqrt.f64 has no .approx"),
        (lambda: functions.sin("f64"), "sin has no type .f64"),
        (lambda: functions.ex2("bf16"), "ex2.approx.bf16 needs .ftz"),
        (lambda: functions.ex2("f16x2", ftz=True), "ex2.f16x2 has no .ftz"),
        (lambda: functions.tanh("f64"), "tanh has no type .f64"),
    ],
)
def test_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        call()
