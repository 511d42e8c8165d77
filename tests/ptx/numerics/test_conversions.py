"""cvt between scalars against integers and fractions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.ptx.numerics.reference import (
    DTYPES,
    FORMATS,
    MODES,
    WIDTH,
    bits,
    chosen_lanes,
    decode,
    edges,
    encode,
    flushed,
    operands,
    signed,
    special_bits,
)
from tilepipe.ptx.numerics import Unsupported
from tilepipe.ptx.numerics.conversions import cvt
from tilepipe.ptx.numerics.types import TYPES

INTEGERS = ["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"]
FLOATS = ["f16", "bf16", "f32", "f64"]
INTEGRAL: dict[str, Callable[[Fraction], int]] = {
    "rni": round,
    "rzi": math.trunc,
    "rmi": math.floor,
    "rpi": math.ceil,
}


def bounds(type: str) -> tuple[int, int]:
    width = TYPES[type].bits
    return (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if type[0] == "s" else (0, 2**width - 1)


def integer_lanes(type: str) -> list[tuple[int, ...]]:
    """Integers at the edges, and those that lie at ties of the narrower floats."""
    width = TYPES[type].bits
    ties = [
        (1 << top) + delta + (1 << shift if shift < top else 0)
        for top in range(width)
        for shift in (top - 8, top - 11, top - 24, top - 53)
        if shift >= 0
        for delta in (-1, 0, 1)
        if top % 4 == 3 or shift < 2
    ]
    values = {tie % 2**width for tie in ties} | {-tie % 2**width for tie in ties}
    return [*chosen_lanes([edges(width)], [width]), *((value,) for value in sorted(values))]


def float_lanes(type: str) -> list[tuple[int, ...]]:
    """Special values, halves of integers, and the ends of the ranges of integers."""
    values = [x / 2 for x in range(-9, 10)]
    values += [
        s * (2.0**p + d) for p in (7, 8, 15, 16, 31, 32) for d in (-1, -0.5, 0, 1) for s in (1, -1)
    ]
    with np.errstate(all="ignore"):
        more = np.array(values).astype(DTYPES[type]).view(f"u{WIDTH[type] // 8}")
    drawn = chosen_lanes([special_bits(type)], [WIDTH[type]])
    return drawn + [(int(pattern),) for pattern in more]


def value_of(pattern: int, type: str) -> int:
    return signed(pattern, TYPES[type].bits) if type[0] == "s" else pattern


@pytest.mark.parametrize("source", INTEGERS)
def test_integers_wrap_or_saturate(source: str) -> None:
    drawn = chosen_lanes([edges(TYPES[source].bits)], [TYPES[source].bits])
    (a,) = operands(drawn, TYPES[source].dtype)
    values = [value_of(pattern, source) for (pattern,) in drawn]
    for to in INTEGERS:
        width, (low, high) = TYPES[to].bits, bounds(to)
        got = cvt(to, source)(a)
        assert got.dtype == TYPES[to].dtype
        assert bits(got) == [value % 2**width for value in values]
        if low <= bounds(source)[0] and bounds(source)[1] <= high:
            with pytest.raises(Unsupported, match=rf"cvt.{to}.{source} has no .sat"):
                cvt(to, source, sat=True)
        else:
            wanted = [min(max(value, low), high) % 2**width for value in values]
            assert bits(cvt(to, source, sat=True)(a)) == wanted


@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("rounding", INTEGRAL)
def test_floats_to_integers_clamp(source: str, rounding: str) -> None:
    drawn = float_lanes(source)
    (a,) = operands(drawn, DTYPES[source])
    for to, ftz in itertools.product(INTEGERS, (False, True)):
        if ftz and source != "f32":
            continue
        (low, high), width = bounds(to), TYPES[to].bits
        empty = 1 << (width - 1) if source == "f64" or width == 64 else 0
        wanted = []
        for (pattern,) in drawn:
            value = decode(pattern, source)
            if math.isnan(value):
                wanted.append(empty)
            elif math.isinf(value):
                wanted.append((high if value > 0 else low) % 2**width)
            else:
                exact = INTEGRAL[rounding](Fraction(flushed(value, source) if ftz else value))
                wanted.append(min(max(exact, low), high) % 2**width)
        got = cvt(to, source, rounding=rounding, ftz=ftz)(a)
        assert got.dtype == TYPES[to].dtype
        assert bits(got) == wanted


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("mode", MODES)
def test_integers_to_floats(source: str, mode: str) -> None:
    drawn = integer_lanes(source)
    (a,) = operands(drawn, TYPES[source].dtype)
    for to in FLOATS:
        wanted = [
            encode(FORMATS[to].round(Fraction(value_of(pattern, source)), mode), to)
            for (pattern,) in drawn
        ]
        got = cvt(to, source, rounding=mode)(a)
        assert got.dtype == DTYPES[to]
        assert bits(got) == wanted


def rounded(value: float, to: str, mode: str, finite: bool = False) -> float:
    if math.isnan(value):
        return value
    if math.isinf(value):
        return math.copysign(float(FORMATS[to].largest), value) if finite else value
    if value == 0:
        return value
    return FORMATS[to].round(Fraction(value), mode, finite)


NARROWINGS = [("f32", "f64"), ("f16", "f64"), ("bf16", "f64"), ("f16", "f32"), ("bf16", "f32")]
NARROWINGS += [("f16", "bf16"), ("bf16", "f16")]


def close_lanes(to: str, source: str) -> list[tuple[int, ...]]:
    """Lanes of the source near the values, and near the ties, of the narrower type."""
    drawn = float_lanes(source)
    if TYPES[source].bits > TYPES[to].bits:
        with np.errstate(all="ignore"):
            held = np.array([decode(each, to) for each in special_bits(to)])
            ties = (held[1:] + held[:-1]) / 2
            near = (
                np.concatenate([held, ties]).astype(DTYPES[source]).view(f"u{WIDTH[source] // 8}")
            )
        drawn += [
            (max(int(pattern) + delta, 0) % 2 ** WIDTH[source],)
            for pattern in near
            for delta in (-1, 0, 1)
        ]
    return drawn


@pytest.mark.parametrize(("to", "source"), NARROWINGS)
@pytest.mark.parametrize("mode", MODES)
def test_floats_to_narrower_floats(to: str, source: str, mode: str) -> None:
    drawn = close_lanes(to, source)
    (a,) = operands(drawn, DTYPES[source])
    got = cvt(to, source, rounding=mode)(a)
    assert got.dtype == DTYPES[to]
    for (pattern,), result in zip(drawn, bits(got), strict=True):
        value = decode(pattern, source)
        if math.isnan(value):
            assert math.isnan(decode(result, to))  # of f32.f64 it keeps the payload
        else:
            assert result == encode(rounded(value, to, mode), to)


@pytest.mark.parametrize("to", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz"])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("satfinite", [False, True])
def test_relu_and_satfinite(to: str, mode: str, relu: bool, satfinite: bool) -> None:
    drawn = close_lanes(to, "f32")
    (a,) = operands(drawn, np.float32)
    got = cvt(to, "f32", rounding=mode, relu=relu, satfinite=satfinite)(a)
    wanted = []
    for (pattern,) in drawn:
        value = rounded(decode(pattern, "f32"), to, mode, satfinite)
        wanted.append(encode(0.0 if relu and value <= 0 else value, to))
    assert bits(got) == wanted


@pytest.mark.parametrize("mode", ["rn", "rz", "rna"])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("satfinite", [False, True])
def test_tf32(mode: str, relu: bool, satfinite: bool) -> None:
    if relu and mode == "rna":
        with pytest.raises(Unsupported, match=r"cvt.rna.tf32.f32 has no .relu"):
            cvt("tf32", "f32", rounding=mode, relu=relu)
        return
    drawn = float_lanes("f32") + [(0x3F801000 + d,) for d in (-1, 0, 1)] + [(0x3F803000,)]
    (a,) = operands(drawn, np.float32)
    wanted = []
    for (pattern,) in drawn:
        value = rounded(decode(pattern, "f32"), "tf32", mode, satfinite)
        value = 0.0 if relu and value <= 0 else value
        wanted.append(0x7FFFE000 if math.isnan(value) else encode(value, "f32"))
    got = cvt("tf32", "f32", rounding=mode, relu=relu, satfinite=satfinite)(a)
    assert got.dtype == np.uint32
    assert got.tolist() == wanted


def test_flushing_and_saturation_of_floats() -> None:
    a = np.array([1e-40, -1e-40, 0.5, 2, -1, math.nan, -0.0], np.float32)
    assert bits(cvt("f32", "f32", ftz=True)(a))[:2] == [0, 0x80000000]
    assert cvt("f32", "f32", sat=True)(a)[2:].tolist() == [0.5, 1, 0, 0, 0]
    assert cvt("f16", "f32", rounding="rn", sat=True)(a).tolist() == [0, 0, 0.5, 1, 0, 0, 0]
    assert cvt("f64", "f32", ftz=True)(a)[:3].tolist() == [0, 0, 0.5]
    wide = np.array([2.0**-127, 2.0**-126 * (1 - 2.0**-30), 3.0])
    assert cvt("f32", "f64", rounding="rn")(wide).tolist() == [2.0**-127, 2.0**-126, 3]
    assert cvt("f32", "f64", rounding="rn", ftz=True)(wide).tolist() == [0, 2.0**-126, 3]
    half = np.array([2.0**-24, 1], np.float16)
    assert cvt("f32", "f16", ftz=True)(half).tolist() == [2.0**-24, 1]  # normal in f32
    assert cvt("f32", "s32", rounding="rn", sat=True)(np.array([-3, 0, 7], np.int32)).tolist() == [
        0,
        0,
        1,
    ]


def test_rounding_to_integers_in_place() -> None:
    values = [2.5, -2.5, 3.5, 0.3, -0.3, 1e30, -math.inf]
    for type in FLOATS:
        a = np.array(values).astype(DTYPES[type])
        for rounding, expected in {"rni": [2, -2, 4, 0, 0], "rpi": [3, -2, 4, 1, 0]}.items():
            got = cvt(type, type, rounding=rounding)(a)
            assert got.dtype == DTYPES[type]
            assert got[:5].astype(np.float64).tolist() == expected
            assert float(got[6]) == -math.inf
    assert bits(cvt("f32", "f32", rounding="rni")(np.array([-0.3], np.float32))) == [0x80000000]


def test_nan() -> None:
    single = np.array([0xFF800001, 0x7FC00123], np.uint32).view(np.float32)
    double = np.array([0xFFF8000000000123], np.uint64).view(np.float64)
    assert bits(cvt("f16", "f32", rounding="rn")(single)) == [0x7FFF] * 2
    assert bits(cvt("bf16", "f32", rounding="rz")(single)) == [0x7FFF] * 2
    assert bits(cvt("f32", "f32", rounding="rni")(single)) == [0x7FFFFFFF] * 2
    assert bits(cvt("f32", "f64", rounding="rn")(double)) == [0xFFC00000]
    half = np.array([0xFFC1], np.uint16)
    assert bits(cvt("f32", "bf16")(half.view(DTYPES["bf16"]))) == [0xFFC10000]
    assert bits(cvt("f32", "f16")(half.view(np.float16))) == [0x7FFFFFFF]


def test_widening_is_exact() -> None:
    for source in ("f16", "bf16"):
        every = np.arange(65536, dtype=np.uint16).view(DTYPES[source])
        for to in ("f32", "f64"):
            got = cvt(to, source)(every)
            assert got.dtype == DTYPES[to]
            assert np.array_equal(got.astype(np.float64), every.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize(
    ("to", "source", "modifiers", "message"),
    [
        ("u32", "u16", {"rounding": "rn"}, "cvt.u32.u16 has no .rn"),
        ("s32", "f32", {}, "cvt.s32.f32 takes one of rni rzi rmi rpi, not no modifier"),
        ("s32", "f32", {"rounding": "rn"}, "cvt.s32.f32 takes one of rni rzi rmi rpi, not .rn"),
        ("f32", "s32", {}, "cvt.f32.s32 takes one of rn rz rm rp, not no modifier"),
        ("f16", "f32", {"rounding": "rna"}, "cvt.f16.f32 takes one of rn rz rm rp, not .rna"),
        ("f16", "f32", {"rounding": "rm", "relu": True}, "takes one of rn rz, not .rm"),
        ("f64", "f32", {"rounding": "rn"}, "cvt.f64.f32 has no .rn"),
        ("f32", "f32", {"rounding": "rn"}, "cvt.f32.f32 takes one of rni rzi rmi rpi, not .rn"),
        ("f16", "f16", {"ftz": True}, "cvt.f16.f16 has no .ftz"),
        ("bf16", "f32", {"rounding": "rn", "sat": True}, "cvt.bf16.f32 has no .sat"),
        ("f16", "f32", {"rounding": "rn", "relu": True, "ftz": True}, "has no .ftz"),
        ("f32", "f64", {"rounding": "rn", "relu": True}, "cvt.f32.f64 has no .relu"),
        ("tf32", "f64", {"rounding": "rn"}, "cvt.tf32 has no type .f64"),
        ("tf32", "f32", {"rounding": "rm"}, "cvt.tf32 takes one of rn rz rna, not .rm"),
        ("b32", "u32", {}, "cvt has no type .b32"),
    ],
)
def test_refused(to: str, source: str, modifiers: dict[str, Any], message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        cvt(to, source, **modifiers)


def test_shapes() -> None:
    convert: Callable[..., Any] = cvt("u64", "f32", rounding="rzi")
    assert convert(np.full((2, 3), 7, np.float32)).shape == (2, 3)
    assert convert(np.float32(7)) == 7
    assert cvt("bf16", "f32", rounding="rm")(np.zeros((4, 1), np.float32)).shape == (4, 1)
