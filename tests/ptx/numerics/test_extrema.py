"""Minima, maxima, signs and kinds of floats against the ISA's semantics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ptx.numerics.reference import (
    DTYPES,
    NAN,
    WIDTH,
    bits,
    chosen_lanes,
    decode,
    encode,
    flushed,
    operands,
    special_bits,
)
from tilepipe.ptx.numerics import Unsupported, extrema

FACTORIES: dict[str, Callable[..., Any]] = {"min": extrema.min, "max": extrema.max}


def lesser(a: float, b: float, greatest: bool, nan: bool) -> float:
    """min_num, min_nan and their opposites, as the ISA has them: -0 is less than +0."""
    if math.isnan(a) or math.isnan(b):
        if nan or (math.isnan(a) and math.isnan(b)):
            return math.nan
        return b if math.isnan(a) else a
    order = sorted([a, b], key=lambda value: (value, math.copysign(1, value)))
    return order[1 if greatest else 0]


def lanes(type: str, count: int) -> list[tuple[int, ...]]:
    return chosen_lanes([special_bits(type)] * count, [WIDTH[type]] * count)


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("type", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("xorsign_abs", [False, True])
def test_two_operands(name: str, type: str, nan: bool, xorsign_abs: bool) -> None:
    drawn = lanes(type, 2)
    for ftz in (False, True) if type != "bf16" else (False,):
        compute = FACTORIES[name](type, ftz=ftz, nan=nan, xorsign_abs=xorsign_abs)
        wanted = []
        for lane in drawn:
            a, b = (
                flushed(decode(each, type), type) if ftz else decode(each, type) for each in lane
            )
            sign = (lane[0] ^ lane[1]) >> (WIDTH[type] - 1)
            value = lesser(*((abs(a), abs(b)) if xorsign_abs else (a, b)), name == "max", nan)
            if xorsign_abs and not math.isnan(value):
                value = -abs(value) if sign else abs(value)
            wanted.append(encode(value, type))
        assert bits(compute(*operands(drawn, *[DTYPES[type]] * 2))) == wanted


@pytest.mark.parametrize("name", FACTORIES)
def test_f64(name: str) -> None:
    drawn = lanes("f64", 2)
    got = FACTORIES[name]("f64")(*operands(drawn, np.float64, np.float64))
    for lane, result in zip(drawn, bits(got), strict=True):
        wanted = lesser(decode(lane[0], "f64"), decode(lane[1], "f64"), name == "max", nan=False)
        if math.isnan(wanted):
            assert math.isnan(decode(result, "f64"))
        else:
            assert result == encode(wanted, "f64")


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("magnitude", [False, True])
def test_three_operands(name: str, nan: bool, magnitude: bool) -> None:
    drawn = lanes("f32", 3)
    compute = FACTORIES[name]("f32", nan=nan, abs=magnitude, inputs=3)
    wanted = []
    for lane in drawn:
        values = [decode(each, "f32") for each in lane]
        a, b, c = map(abs, values) if magnitude else values
        wanted.append(
            encode(lesser(lesser(a, b, name == "max", nan), c, name == "max", nan), "f32")
        )
    assert bits(compute(*operands(drawn, *[np.float32] * 3))) == wanted


@pytest.mark.parametrize("type", ["f32", "f16", "bf16", "f64"])
def test_signs(type: str) -> None:
    drawn = lanes(type, 1)
    (values,) = operands(drawn, DTYPES[type])
    top = 1 << (WIDTH[type] - 1)
    for ftz in (False, True) if type in ("f32", "f16") else (False,):
        modifiers = {"ftz": True} if ftz else {}
        absolute, negative = [], []
        for (pattern,) in drawn:
            value = decode(pattern, type)
            if math.isnan(value):
                kept = NAN.get(type, pattern)
                absolute.append(kept)
                negative.append(kept)
                continue
            if ftz and flushed(value, type) == 0:
                pattern &= top
            absolute.append(pattern & ~top)
            negative.append(pattern ^ top)
        assert bits(extrema.abs(type, **modifiers)(values)) == absolute
        assert bits(extrema.neg(type, **modifiers)(values)) == negative


def test_packed_registers() -> None:
    a, b = np.array([[0x3C00BC00], [0x7E004000]], np.uint32)  # (-1, 1), (2, NaN)
    assert bits(extrema.max("f16x2")(a, b)) == [0x3C004000]
    assert bits(extrema.min("f16x2", nan=True)(a, b)) == [0x7FFFBC00]
    assert bits(extrema.neg("f16x2")(a)) == [0xBC003C00]
    assert bits(extrema.abs("bf16x2")(np.array([0xBF80BF80], np.uint32))) == [0x3F803F80]


@pytest.mark.parametrize("type", ["f32", "f64"])
def test_copysign_and_testp(type: str) -> None:
    drawn = lanes(type, 2)
    a, b = operands(drawn, *[DTYPES[type]] * 2)
    top = 1 << (WIDTH[type] - 1)
    assert bits(extrema.copysign(type)(a, b)) == [x & top | y & (top - 1) for x, y in drawn]
    values = [decode(lane[0], type) for lane in drawn]
    least = 2.0 ** (-126 if type == "f32" else -1022)
    kinds: dict[str, Callable[[float], bool]] = {
        "finite": math.isfinite,
        "infinite": math.isinf,
        "number": lambda x: not math.isnan(x),
        "notanumber": math.isnan,
        "normal": lambda x: math.isfinite(x) and (x == 0 or abs(x) >= least),
        "subnormal": lambda x: 0 < abs(x) < least,
    }
    for name, reference in kinds.items():
        assert extrema.testp(name, type)(a).tolist() == [reference(value) for value in values]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: extrema.min("f32x2"), "min has no type .f32x2"),
        (lambda: extrema.min("f64", nan=True), "min.f64 has no .NaN"),
        (lambda: extrema.max("f64", xorsign_abs=True), "max.f64 has no .xorsign"),
        (lambda: extrema.max("bf16", ftz=True), "max.bf16 has no .ftz"),
        (lambda: extrema.max("f16", inputs=3), "max.f16 takes two operands"),
        (lambda: extrema.max("f32", inputs=4), "max takes two operands, or three of f32, not 4"),
        (lambda: extrema.max("f32", inputs=3, xorsign_abs=True), "three operands has no .xorsign"),
        (lambda: extrema.max("f32", abs=True), "has no .abs"),
        (lambda: extrema.neg("f64", ftz=True), "neg.f64 has no .ftz"),
        (lambda: extrema.abs("f32x2"), "abs has no type .f32x2"),
        (lambda: extrema.copysign("f16"), "copysign has no type .f16"),
        (lambda: extrema.testp("nan", "f32"), "testp takes one of finite"),
    ],
)
def test_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        call()
