"""add, sub, mul and fma against fractions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.ptx.numerics.reference import (
    DTYPES,
    MODES,
    NAN,
    Array,
    arithmetic,
    bits,
    decode,
    encode,
    float_bits,
    flushed,
    operands,
    rows,
)
from tilepipe.ptx.numerics import (
    Unsupported,
    bits as fields,
    extrema,
    floating,
    functions,
    integer,
    logic,
    narrow,
)

FACTORIES: dict[str, Callable[..., Any]] = {
    "add": floating.add,
    "sub": floating.sub,
    "mul": floating.mul,
    "fma": floating.fma,
}
ROUNDINGS = [(type, mode) for type in ("f32", "f64") for mode in MODES]
ROUNDINGS += [("f16", "rn"), ("bf16", "rn")]
EXAMPLES = settings(max_examples=15, deadline=None)


def same(got: list[int], wanted: list[float], type: str) -> None:
    if type == "f64":  # of a NaN the host decides the payload
        values = [decode(each, type) for each in got]
        assert [math.isnan(each) for each in values] == [math.isnan(each) for each in wanted]
        got = [each for each in got if not math.isnan(decode(each, type))]
        wanted = [each for each in wanted if not math.isnan(each)]
    assert got == [encode(each, type) for each in wanted]


@pytest.mark.sampled(suite=3, classes=lambda operation, type, mode: [operation, (type, mode)])
@pytest.mark.parametrize("operation", FACTORIES)
@pytest.mark.parametrize(("type", "mode"), ROUNDINGS)
def test_results_are_correctly_rounded(operation: str, type: str, mode: str) -> None:
    count = 3 if operation == "fma" else 2
    compute = FACTORIES[operation](type, rounding=mode)

    @EXAMPLES
    @given(rows(*[float_bits(type)] * count))
    def check(lanes: list[tuple[int, ...]]) -> None:
        got = compute(*operands(lanes, *[DTYPES[type]] * count))
        assert got.dtype == DTYPES[type]
        wanted = [
            arithmetic(operation, [decode(each, type) for each in lane], type, mode)
            for lane in lanes
        ]
        same(bits(got), wanted, type)

    check()


@pytest.mark.parametrize(("type", "mode"), ROUNDINGS)
def test_sums_that_cancel_or_nearly_tie(type: str, mode: str) -> None:
    """fma where the product and the addend are near each other, or far apart by a tie."""
    dtype = DTYPES[type]
    compute = floating.fma(type, rounding=mode)
    random = np.random.default_rng(5)
    a, b = (random.uniform(1, 2, 250).astype(dtype) for _ in range(2))
    scale = {"f32": 24, "f64": 53, "f16": 11, "bf16": 8}[type]
    powers = random.integers(-2 * scale - 2, scale + 3, 250)
    c = np.ldexp(random.choice([-1.0, 1.0], 250), powers).astype(dtype)
    near = (-(a.astype(np.float64) * b.astype(np.float64))).astype(dtype)
    c = np.where(random.integers(0, 3, 250) == 0, near, c)
    # and products of powers of two, so that the addend decides a tie
    a = np.where(random.integers(0, 3, 250) == 0, dtype(1), a)
    wanted = [
        arithmetic("fma", list(map(float, lane)), type, mode) for lane in zip(a, b, c, strict=True)
    ]
    same(bits(compute(a, b, c)), wanted, type)


def test_fma_rounds_once_where_rounding_twice_goes_wrong() -> None:
    # 1 + 2**-24 lies halfway between two f32; 2**-60 more decides, and f64 does not hold it
    a = np.array([1 + 2.0**-12], np.float32)
    product = 1 + 2.0**-11 + 2.0**-24
    got = floating.fma("f32", rounding="rn")(a, a, np.array([2.0**-70], np.float32))
    assert float(got[0]) == 1 + 2.0**-11 + 2.0**-23
    got = floating.fma("f32", rounding="rn")(a, a, np.array([-(2.0**-70)], np.float32))
    assert float(got[0]) == 1 + 2.0**-11
    got = floating.fma("f32", rounding="rn")(a, a, np.array([0], np.float32))
    assert float(got[0]) == float(np.float32(product))
    # a product halfway between the least subnormal and zero, and a little more
    least, half = np.array([2.0**-100], np.float32), np.array([2.0**-50], np.float32)
    more = np.array([2.0**-50 * (1 + 2.0**-23)], np.float32)
    zero = np.array([0], np.float32)
    assert float(floating.fma("f32", rounding="rn")(least, half, zero)[0]) == 0
    assert float(floating.fma("f32", rounding="rn")(least, more, zero)[0]) == 2.0**-149


def test_fma_of_f64_near_the_ends_of_the_range() -> None:
    lanes = [
        (1e200, 1e200, -1e308),
        (1.5e154, 1.5e154, -1e308),
        (2.0**1000, 2.0**23, -(2.0**1023)),
        (2.0**-600, 2.0**-474, 2.0**-1074),
        (2.0**-600, 2.0**-475, 0.0),
        (-(2.0**-600), 2.0**-500, 2.0**-1074),
        (1e-200, 1e-200, -0.0),
        (1e308, 1e-308, -1.0),
        (5e-324, 0.5, 5e-324),
    ]
    a, b, c = (np.array(column) for column in zip(*lanes, strict=True))
    for mode in MODES:
        got = floating.fma("f64", rounding=mode)(a, b, c)
        same(bits(got), [arithmetic("fma", lane, "f64", mode) for lane in lanes], "f64")


@pytest.mark.parametrize(
    ("operation", "type", "clamp"),
    [*itertools.product(FACTORIES, ["f32", "f16"], ["", "sat"]), ("fma", "f16", "relu")],
)
def test_ftz_and_clamping(operation: str, type: str, clamp: str) -> None:
    count = 3 if operation == "fma" else 2
    modifiers = {clamp: True} if clamp else {}
    compute = FACTORIES[operation](type, rounding="rn", ftz=True, **modifiers)

    def expected(lane: tuple[int, ...]) -> float:
        values = [flushed(decode(each, type), type) for each in lane]
        value = flushed(arithmetic(operation, values, type, "rn"), type)
        if clamp == "sat":
            return 0.0 if math.isnan(value) or value <= 0 else min(value, 1.0)
        if clamp == "relu":
            return 0.0 if value <= 0 else value
        return value

    @EXAMPLES
    @given(rows(*[float_bits(type)] * count))
    def check(lanes: list[tuple[int, ...]]) -> None:
        got = compute(*operands(lanes, *[DTYPES[type]] * count))
        same(bits(got), [expected(lane) for lane in lanes], type)

    check()


@pytest.mark.parametrize("operation", FACTORIES)
@pytest.mark.parametrize("type", ["f16x2", "bf16x2", "f32x2"])
def test_packed_registers_hold_the_results_of_their_elements(operation: str, type: str) -> None:
    element = type.removesuffix("x2")
    register = np.uint64 if element == "f32" else np.uint32
    random = np.random.default_rng(1)
    values = [random.standard_normal((5, 32, 2)).astype(DTYPES[element]) for _ in range(3)]
    values = values[: 3 if operation == "fma" else 2]
    wanted = FACTORIES[operation](element, rounding="rn")(*values)
    packed = [value.view(register)[..., 0] for value in values]
    got = FACTORIES[operation](type, rounding="rn")(*packed)
    assert got.shape == (5, 32)
    assert bits(got) == bits(wanted.view(register))


def test_operands_of_any_shape_broadcast() -> None:
    add = floating.add("f32")
    assert float(add(np.array(1, np.float32), np.array(2, np.float32))) == 3
    assert add(np.zeros((2, 3), np.float32), np.ones(3, np.float32)).tolist() == [[1.0] * 3] * 2
    packed = floating.add("f16x2")
    one = np.array(0x3C003C00, np.uint32)
    assert packed(one, one) == 0x40004000
    assert packed(np.full(32, one), one).tolist() == [0x40004000] * 32


def test_nan_is_canonical_unless_any_will_do() -> None:
    infinity = np.array([np.inf, 1], np.float32)
    assert bits(floating.sub("f32")(infinity, infinity)) == [NAN["f32"], 0]
    assert bits(floating.mul("f16")(np.array([np.nan], np.float16), np.ones(1, np.float16))) == [
        NAN["f16"]
    ]
    host = floating.sub("f32", any_nan=True)
    assert host is np.subtract
    assert np.isnan(host(infinity, infinity)).tolist() == [True, False]
    # a payload of f64 stays
    nan = np.array([0x7FF8000000000123], np.uint64).view(np.float64)
    assert bits(floating.add("f64")(nan, np.array([1.0]))) == [0x7FF8000000000123]


@pytest.mark.slow
def test_products_of_bf16_about_half_the_least_subnormal() -> None:
    dtype = DTYPES["bf16"]
    significands = np.arange(128, 256)
    a, b = np.meshgrid(np.ldexp(significands, -74), np.ldexp(significands, -74))
    a, b = a.astype(dtype).ravel()[::7], b.astype(dtype).ravel()[::7]
    for scale in (1.0, 0.5, 0.25):
        factor = a * dtype(scale)
        lanes = zip(factor, b, strict=True)
        wanted = [arithmetic("mul", list(map(float, lane)), "bf16", "rn") for lane in lanes]
        same(bits(floating.mul("bf16")(factor, b)), wanted, "bf16")


def test_mixed_precision_widens_the_first_operands() -> None:
    half = np.array([1.5, 65504], np.float16)
    single = np.array([2.0**-20, 1], np.float32)
    assert floating.add("f32", source="f16")(half, single).tolist() == [1.5 + 2.0**-20, 65505]
    assert floating.sub("f32", source="f16")(half, single).tolist() == [1.5 - 2.0**-20, 65503]
    got = floating.fma("f32", rounding="rn", source="f16")(half, half, single)
    assert got.tolist() == [2.25 + 2.0**-20, float(np.float32(65504.0**2 + 1))]


@pytest.mark.parametrize(
    ("factory", "type", "modifiers", "message"),
    [
        ("add", "u32", {}, "add has no type .u32"),
        ("add", "f64", {"ftz": True}, "add.f64 has no .ftz"),
        ("mul", "f64", {"sat": True}, "mul.f64 has no .sat"),
        ("add", "bf16", {"ftz": True}, "add.bf16 has no .ftz"),
        ("sub", "f16x2", {"rounding": "rz"}, "sub.f16x2 takes one of rn, not .rz"),
        ("mul", "f32x2", {"sat": True}, "mul.f32x2 has no .sat"),
        ("add", "f32", {"rounding": "rna"}, "add.f32 takes one of rn rz rm rp, not .rna"),
        ("fma", "f32", {"rounding": "rn", "relu": True}, "fma.f32 has no .relu"),
        ("fma", "f16", {"rounding": "rn", "relu": True, "sat": True}, "fma.f16 has no .relu"),
        ("add", "f32", {"source": "f16", "ftz": True}, "add.f32.f16 has no .ftz"),
        ("add", "f64", {"source": "f16"}, "add.f64 takes no operands of another type"),
        ("fma", "f32", {"rounding": "rn", "source": "f32"}, "takes one of f16 bf16, not .f32"),
    ],
)
def test_refused(factory: str, type: str, modifiers: dict[str, Any], message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        FACTORIES[factory](type, **modifiers)


def layouts(words: Array) -> dict[str, Array]:
    """Views of the same registers that lie in memory in other orders, or only once."""
    return {
        "transposed": words.T,
        "stepped": words[::2, ::3],
        "one register": np.broadcast_to(words[0, 0], (32, 4)),
        "one a row": np.broadcast_to(words[:, :1], words.shape),
        "backwards": words[::-1],
    }


def test_the_layout_of_operands_does_not_matter() -> None:
    words = np.random.default_rng(2).integers(0, 2**32, (32, 16), dtype=np.uint32)
    cases: dict[str, tuple[Callable[..., Any], int]] = {
        "fma.bf16x2": (floating.fma("bf16x2", rounding="rn"), 3),
        "min.s16x2": (integer.min("s16x2"), 2),
        "max.f16x2": (extrema.max("f16x2", xorsign_abs=True), 2),
        "ex2.f16x2": (functions.ex2("f16x2"), 1),
        "popc": (fields.popc("b32"), 1),
        "brev": (fields.brev("b32"), 1),
        "prmt": (logic.prmt(), 3),
        "prmt with an immediate": (logic.prmt(selector=0x5498), 2),
        "dp4a": (integer.dp4a("u32", "s32"), 3),
        "cvt": (narrow.cvt_packed("e5m2x2", "f16x2", satfinite=True), 1),
    }
    for name, (compute, count) in cases.items():
        for layout, view in layouts(words).items():
            got, wanted = compute(*[view] * count), compute(*[view.copy(order="C")] * count)
            assert got.shape == view.shape, (name, layout)
            assert got.tolist() == wanted.tolist(), (name, layout)
