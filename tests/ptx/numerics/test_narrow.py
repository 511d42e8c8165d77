"""cvt to and from packed floats of 16, 8, 6 and 4 bits, against fractions and ml_dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.ptx.numerics.reference import (
    DTYPES,
    FORMATS,
    Array,
    bits,
    chosen_lanes,
    decode,
    encode,
    operands,
    special_bits,
)
from tilepipe.ptx.numerics import Unsupported, narrow
from tilepipe.ptx.numerics.types import TYPES

SMALL = ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"]
WIDTHS = {"e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4}


def code(value: float, element: str, relu: bool) -> int:
    """The code of a value, rounded to nearest and kept finite."""
    format_ = FORMATS[element]
    if math.isnan(value):
        return 0x7F if element in ("e4m3", "e5m2") else 2 ** (WIDTHS[element] - 1) - 1
    if relu and value <= 0:
        return 0
    if value == 0:
        return 2 ** (WIDTHS[element] - 1) if math.copysign(1, value) < 0 else 0
    if math.isinf(value):
        value = math.copysign(float(format_.largest), value)
    return encode(format_.round(Fraction(value), "rn", finite=True), element)


def close_lanes(element: str, source: str) -> list[tuple[int, ...]]:
    """Lanes of the source near the values, and near the ties, of the small format."""
    held = np.arange(2 ** (WIDTHS[element] - 1), dtype=np.uint8).view(DTYPES[element])
    values = np.sort(held.astype(np.float64))
    values = values[np.isfinite(values)]
    near = np.concatenate([values, (values[1:] + values[:-1]) / 2, [values[-1] * 1.1]])
    width = np.dtype(DTYPES[source]).itemsize
    patterns = np.concatenate([near, -near]).astype(DTYPES[source]).view(f"u{width}")
    close = [max(int(pattern) + delta, 0) for pattern in patterns for delta in (-1, 0, 1)]
    close += special_bits(source)
    return [(a, b) for a, b in zip(close, reversed(close), strict=True)]


def register(lane: tuple[int, ...], source: str, element: str, relu: bool) -> int:
    """The codes of a lane's two values of the source type, the first one in the upper half."""
    high, low = (code(decode(each, source), element, relu) for each in lane)
    return high << (4 if element == "e2m1" else 8) | low


@pytest.mark.parametrize("element", SMALL)
@pytest.mark.parametrize("relu", [False, True])
def test_pairs_of_f32_to_small_floats(element: str, relu: bool) -> None:
    drawn = close_lanes(element, "f32")
    convert = narrow.cvt_pair(f"{element}x2", rounding="rn", relu=relu, satfinite=True)
    got = convert(*operands(drawn, np.float32, np.float32))
    assert got.dtype == (np.uint8 if element == "e2m1" else np.uint16)
    assert got.tolist() == [register(lane, "f32", element, relu) for lane in drawn]


@pytest.mark.parametrize("element", SMALL)
@pytest.mark.parametrize("source", ["f16", "bf16"])
@pytest.mark.parametrize("relu", [False, True])
def test_packed_halves_to_small_floats(element: str, source: str, relu: bool) -> None:
    drawn = close_lanes(element, source)
    convert = narrow.cvt_packed(
        f"{element}x2", f"{source}x2", rounding="rn", relu=relu, satfinite=True
    )
    registers = np.array([high << 16 | low for high, low in drawn], np.uint32)
    wanted = [register(lane, source, element, relu) for lane in drawn]
    assert convert(registers).tolist() == wanted


@pytest.mark.parametrize("element", SMALL)
@pytest.mark.parametrize("relu", [False, True])
def test_every_code_to_f16(element: str, relu: bool) -> None:
    shift = 4 if element == "e2m1" else 8
    count = 2 ** WIDTHS[element]
    codes = np.arange(count)
    with np.errstate(all="ignore"):
        values = codes.astype(np.uint8).view(DTYPES[element]).astype(np.float64)
    halves = [encode(0.0 if relu and value <= 0 else value, "f16") for value in values]
    registers = np.array([high << shift | count - 1 - high for high in range(count)])
    registers = registers.astype(TYPES[f"{element}x2"].dtype)
    got = narrow.cvt_packed("f16x2", f"{element}x2", relu=relu)(registers)
    assert got.dtype == np.uint32
    assert got.tolist() == [halves[high] << 16 | halves[count - 1 - high] for high in range(count)]


def exponent(value: float, mode: str, satfinite: bool) -> int:
    """The code of ue8m0 for a magnitude: 2**(code - 127), or 255 for NaN."""
    if math.isnan(value) or (math.isinf(value) and not satfinite):
        return 255
    magnitude = min(abs(value), 2.0**128)
    if magnitude <= 2.0**-127:
        return 0
    power = math.frexp(magnitude)[1] - 1
    if mode == "rp" and 2.0**power < magnitude:
        power += 1
    result = max(power + 127, 0)
    return min(result, 254) if satfinite else min(result, 255)


@pytest.mark.parametrize("mode", ["rz", "rp"])
@pytest.mark.parametrize("satfinite", [False, True])
def test_scales(mode: str, satfinite: bool) -> None:
    drawn = chosen_lanes([special_bits("f32")] * 2, [32, 32])
    convert = narrow.cvt_pair("ue8m0x2", rounding=mode, satfinite=satfinite)
    got = convert(*operands(drawn, np.float32, np.float32))
    wanted = []
    for lane in drawn:
        high, low = (exponent(decode(each, "f32"), mode, satfinite) for each in lane)
        wanted.append(high << 8 | low)
    assert got.tolist() == wanted
    drawn = chosen_lanes([special_bits("bf16")] * 2, [16, 16])
    packed = narrow.cvt_packed("ue8m0x2", "bf16x2", rounding=mode, satfinite=satfinite)
    got = packed(np.array([high << 16 | low for high, low in drawn], np.uint32))
    wanted = []
    for lane in drawn:
        high, low = (exponent(decode(each, "bf16"), mode, satfinite) for each in lane)
        wanted.append(high << 8 | low)
    assert got.tolist() == wanted


def test_scales_to_bf16() -> None:
    registers = np.array([code << 8 | 255 - code for code in range(256)], np.uint16)
    got = narrow.cvt_packed("bf16x2", "ue8m0x2")(registers)
    values = [0x7FFF if code == 255 else encode(2.0 ** (code - 127), "bf16") for code in range(256)]
    assert got.tolist() == [values[code] << 16 | values[255 - code] for code in range(256)]


@pytest.mark.parametrize("element", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_pairs_of_f32_to_halves(element: str, mode: str) -> None:
    drawn = chosen_lanes([special_bits("f32")] * 2, [32, 32])
    a, b = operands(drawn, np.float32, np.float32)

    def half(pattern: int, relu: bool, finite: bool) -> int:
        value = decode(pattern, "f32")
        if math.isinf(value) and finite:
            value = math.copysign(float(FORMATS[element].largest), value)
        if math.isfinite(value) and value:
            value = FORMATS[element].round(Fraction(value), mode, finite)
        return encode(0.0 if relu and value <= 0 else value, element)

    for relu, finite in [(False, False), (True, False), (False, True), (True, True)]:
        convert = narrow.cvt_pair(f"{element}x2", rounding=mode, relu=relu, satfinite=finite)
        wanted = [half(x, relu, finite) << 16 | half(y, relu, finite) for x, y in drawn]
        assert bits(convert(a, b)) == wanted


def test_shapes() -> None:
    one = np.ones((2, 3), np.float32)
    two: Array = np.full((3,), 2, np.float32)
    pair = narrow.cvt_pair("f16x2", rounding="rn")
    assert pair(one, two).tolist() == [[0x3C004000] * 3] * 2
    assert pair(np.array(1, np.float32), np.array(2, np.float32)) == 0x3C004000
    small = narrow.cvt_pair("e2m1x2", rounding="rn", satfinite=True)
    assert small(one, two).tolist() == [[0x24] * 3] * 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: narrow.cvt_pair("e4m3x2", rounding="rn"), "cvt.e4m3x2 needs .satfinite"),
        (
            lambda: narrow.cvt_pair("e4m3x2", rounding="rz", satfinite=True),
            "cvt.e4m3x2 takes one of rn, not .rz",
        ),
        (lambda: narrow.cvt_pair("ue8m0x2", rounding="rn"), "takes one of rz rp, not .rn"),
        (lambda: narrow.cvt_pair("ue8m0x2", rounding="rz", relu=True), "ue8m0x2 has no .relu"),
        (lambda: narrow.cvt_pair("f16x2", rounding="rp"), "takes one of rn rz, not .rp"),
        (lambda: narrow.cvt_pair("s8x4", rounding="rn"), "cvt has no type .s8x4"),
        (lambda: narrow.cvt_packed("e4m3x2", "e4m3x2"), "cvt has no .e4m3x2.e4m3x2"),
        (lambda: narrow.cvt_packed("f16x2", "ue8m0x2"), "cvt has no .f16x2.ue8m0x2"),
        (lambda: narrow.cvt_packed("f16x2", "e4m3x2", satfinite=True), "has no .satfinite"),
        (lambda: narrow.cvt_packed("bf16x2", "ue8m0x2", relu=True), "has no .relu"),
        (
            lambda: narrow.cvt_packed("ue8m0x2", "f16x2", rounding="rz"),
            "cvt has no .ue8m0x2.f16x2",
        ),
    ],
)
def test_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        call()
