"""Comparisons, set, selp and slct against the ISA's tables."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ptx.numerics.reference import (
    DTYPES,
    WIDTH,
    bits,
    chosen_lanes,
    decode,
    edges,
    flushed,
    operands,
    signed,
    special_bits,
)
from tilepipe.ptx.numerics import Unsupported, compare
from tilepipe.ptx.numerics.types import TYPES

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


@pytest.mark.parametrize("type", ["f32", "f64", "f16", "bf16"])
def test_floats(type: str) -> None:
    drawn = chosen_lanes([special_bits(type)] * 2, [WIDTH[type]] * 2)
    a, b = operands(drawn, *[DTYPES[type]] * 2)
    for ftz in (False, True) if type in ("f32", "f16") else (False,):
        values = [tuple(decode(each, type) for each in lane) for lane in drawn]
        if ftz:
            values = [(flushed(x, type), flushed(y, type)) for x, y in values]
        unordered = [math.isnan(x) or math.isnan(y) for x, y in values]
        for name, reference in OPERATORS.items():
            ordered = [
                not nan and reference(x, y) for nan, (x, y) in zip(unordered, values, strict=True)
            ]
            got = compare.compare(name, type, ftz=ftz)(a, b)
            assert got.dtype == np.bool_
            assert got.tolist() == ordered
            got = compare.compare(f"{name}u", type, ftz=ftz)(a, b)
            assert got.tolist() == [x or nan for x, nan in zip(ordered, unordered, strict=True)]
        assert compare.compare("nan", type, ftz=ftz)(a, b).tolist() == unordered
        assert compare.compare("num", type, ftz=ftz)(a, b).tolist() == [not x for x in unordered]


@pytest.mark.parametrize("type", ["u16", "u32", "u64", "s16", "s32", "s64", "b16", "b32", "b64"])
def test_integers(type: str) -> None:
    width = TYPES[type].bits
    drawn = chosen_lanes([edges(width)] * 2, [width] * 2)
    a, b = operands(drawn, *[TYPES[type].dtype] * 2)
    values = [tuple(signed(x, width) if type[0] == "s" else x for x in lane) for lane in drawn]
    names = {name: name for name in (OPERATORS if type[0] != "b" else ("eq", "ne"))}
    if type[0] == "u":
        names |= UNSIGNED
    for name, same_as in names.items():
        wanted = [OPERATORS[same_as](*lane) for lane in values]
        assert compare.compare(name, type)(a, b).tolist() == wanted


def test_packed_halves_compare_apart() -> None:
    a, b = np.array([[0x3C00_4000], [0x4000_3C00]], np.uint32)  # low 2 and 1, high 1 and 2
    got = compare.compare("gt", "f16x2")(a, b)
    assert got.tolist() == [[True, False]]
    assert bits(compare.written("f16x2", "f16x2")(got)) == [0x0000_3C00]
    assert bits(compare.written("u32", "f16x2")(got)) == [0x0000_FFFF]


def test_what_set_writes() -> None:
    predicate = np.array([True, False])
    for dtype, source, true in [
        ("u32", "s32", 0xFFFFFFFF),
        ("s32", "f32", 0xFFFFFFFF),
        ("f32", "u64", 0x3F800000),
        ("u16", "f16", 0xFFFF),
        ("f16", "f16", 0x3C00),
        ("bf16", "bf16", 0x3F80),
    ]:
        got = compare.written(dtype, source)(predicate)
        assert got.dtype == TYPES[dtype].dtype
        assert bits(got) == [true, 0]


def test_selections() -> None:
    a, b = np.array([1, 2, 3], np.uint32), np.array([7, 8, 9], np.uint32)
    assert compare.selp()(a, b, np.array([True, False, True])).tolist() == [1, 8, 3]
    assert compare.slct("s32")(a, b, np.array([0, -1, 1], np.int32)).tolist() == [1, 8, 3]
    c = np.array([-0.0, np.nan, -1e-40], np.float32)
    assert compare.slct("f32")(a, b, c).tolist() == [1, 8, 9]
    assert compare.slct("f32", ftz=True)(a, b, c).tolist() == [1, 8, 3]


def test_boolean_operators() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    for name, wanted in [("and", a & b), ("or", a | b), ("xor", a ^ b)]:
        assert compare.boolean(name)(a, b).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare.compare("lt", "b32"), "setp.b32 has no comparison .lt"),
        (lambda: compare.compare("lo", "s32"), "setp.s32 has no comparison .lo"),
        (lambda: compare.compare("equ", "u32"), "setp.u32 has no comparison .equ"),
        (lambda: compare.compare("hi", "f32"), "setp.f32 has no comparison .hi"),
        (lambda: compare.compare("eq", "f64", ftz=True), "setp.f64 has no .ftz"),
        (lambda: compare.compare("eq", "u8"), "setp has no type .u8"),
        (lambda: compare.boolean("nor"), "setp takes one of and or xor, not .nor"),
        (lambda: compare.written("u16", "f32"), "set from .f32 has no type .u16"),
        (lambda: compare.slct("s32", ftz=True), "slct.s32 has no .ftz"),
    ],
)
def test_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        call()
