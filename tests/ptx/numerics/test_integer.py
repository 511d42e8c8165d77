"""Integer arithmetic and carry chains against Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.ptx.numerics.reference import bits, chosen_lanes, edges, integers, operands, rows, signed
from tilepipe.ptx.numerics import Unsupported, carry, integer
from tilepipe.ptx.numerics.types import TYPES

SCALARS = ["u16", "u32", "u64", "s16", "s32", "s64"]
SIGNED = ["s16", "s32", "s64"]
CHAINED = ["u32", "s32", "u64", "s64"]
LEAST, GREATEST = -(2**31), 2**31 - 1
EXAMPLES = settings(max_examples=6, deadline=None)


def against(
    compute: Callable[..., Any], types: list[str], result: str, reference: Callable[..., int]
) -> None:
    """Compare with a reference on the values of the operands, whose result wraps around."""
    widths = [TYPES[type].bits for type in types]
    out = TYPES[result].bits

    def compare(lanes: list[tuple[int, ...]]) -> None:
        got = compute(*operands(lanes, *[TYPES[type].dtype for type in types]))
        assert got.dtype == TYPES[result].dtype
        wanted = []
        for lane in lanes:
            values = [
                signed(each, width) if type[0] == "s" else each
                for each, width, type in zip(lane, widths, types, strict=True)
            ]
            wanted.append(reference(*values) % 2**out)
        assert bits(got) == wanted

    compare(chosen_lanes([edges(width) for width in widths], widths))
    EXAMPLES(given(rows(*map(integers, widths)))(compare))()


def clamp(value: int) -> int:
    return min(max(value, LEAST), GREATEST)


def quotient(a: int, b: int) -> int:
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return -1 if b == 0 else a - b * quotient(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("type", SCALARS)
def test_two_operands(type: str) -> None:
    cases: list[tuple[Callable[..., Any], Callable[..., int]]] = [
        (integer.add, lambda a, b: a + b),
        (integer.sub, lambda a, b: a - b),
        (integer.min, min),
        (integer.max, max),
        (integer.div, quotient),
        (integer.rem, remainder),
    ]
    for factory, reference in cases:
        against(factory(type), [type, type], type, reference)


@pytest.mark.parametrize("type", SIGNED)
def test_one_operand(type: str) -> None:
    against(integer.abs(type), [type], type, abs)
    against(integer.neg(type), [type], type, lambda a: -a)


@pytest.mark.slow
@pytest.mark.parametrize("type", SCALARS)
def test_products(type: str) -> None:
    width = TYPES[type].bits
    against(integer.mul(type, "lo"), [type] * 2, type, lambda a, b: a * b)
    against(integer.mul(type, "hi"), [type] * 2, type, lambda a, b: a * b >> width)
    against(integer.mad(type, "lo"), [type] * 3, type, lambda a, b, c: a * b + c)
    against(integer.mad(type, "hi"), [type] * 3, type, lambda a, b, c: (a * b >> width) + c)
    against(integer.sad(type), [type] * 3, type, lambda a, b, c: c + abs(a - b))
    if width < 64:
        wide = f"{type[0]}{2 * width}"
        against(integer.mul(type, "wide"), [type] * 2, wide, lambda a, b: a * b)
        against(integer.mad(type, "wide"), [type, type, wide], wide, lambda a, b, c: a * b + c)


def test_saturation() -> None:
    three = ["s32"] * 3
    against(integer.add("s32", sat=True), three[:2], "s32", lambda a, b: clamp(a + b))
    against(integer.sub("s32", sat=True), three[:2], "s32", lambda a, b: clamp(a - b))
    against(
        integer.mad("s32", "hi", sat=True), three, "s32", lambda a, b, c: clamp((a * b >> 32) + c)
    )
    against(
        integer.mad24("s32", "hi", sat=True),
        three,
        "s32",
        lambda a, b, c: clamp(signed(signed(a, 24) * signed(b, 24) >> 16, 32) + c),
    )


@pytest.mark.parametrize("type", ["u32", "s32"])
def test_24_bits(type: str) -> None:
    def product(a: int, b: int) -> int:
        if type == "s32":
            return signed(a, 24) * signed(b, 24)
        return (a & 0xFFFFFF) * (b & 0xFFFFFF)

    against(integer.mul24(type, "lo"), [type] * 2, type, product)
    against(integer.mul24(type, "hi"), [type] * 2, type, lambda a, b: product(a, b) >> 16)
    against(integer.mad24(type, "lo"), [type] * 3, type, lambda a, b, c: product(a, b) + c)
    against(integer.mad24(type, "hi"), [type] * 3, type, lambda a, b, c: (product(a, b) >> 16) + c)


def test_division_by_zero_and_of_the_least_integer() -> None:
    least, minus_one = np.array([LEAST], np.int32), np.array([-1], np.int32)
    zero = np.array([0], np.int32)
    with np.errstate(all="raise"):
        assert integer.div("s32")(least, minus_one).tolist() == [LEAST]
        assert integer.rem("s32")(least, minus_one).tolist() == [0]
        assert integer.div("s32")(least, zero).tolist() == [-1]
        assert integer.rem("s32")(least, zero).tolist() == [-1]
        assert integer.div("u16")(*np.array([[7], [0]], np.uint16)).tolist() == [0xFFFF]
        assert integer.rem("u64")(*np.array([[7], [0]], np.uint64)).tolist() == [2**64 - 1]


def halves(value: int, is_signed: bool) -> list[int]:
    parts = [value & 0xFFFF, value >> 16]
    return [signed(part, 16) for part in parts] if is_signed else parts


@pytest.mark.parametrize("type", ["u16x2", "s16x2"])
@pytest.mark.parametrize("relu", [False, True])
def test_pairs(type: str, relu: bool) -> None:
    is_signed = type[0] == "s"
    if relu and not is_signed:
        with pytest.raises(Unsupported, match=r"min.u16x2 has no .relu"):
            integer.min(type, relu=relu)
        return

    def each(function: Callable[[int, int], int], floor: int | None = None) -> Callable[..., int]:
        def apply(a: int, b: int) -> int:
            results = [
                function(x, y)
                for x, y in zip(halves(a, is_signed), halves(b, is_signed), strict=True)
            ]
            if floor is not None:
                results = [max(result, floor) for result in results]
            return results[0] & 0xFFFF | (results[1] & 0xFFFF) << 16

        return apply

    def against_pairs(compute: Callable[..., Any], reference: Callable[..., int]) -> None:
        against(compute, ["u32"] * 2, "u32", reference)

    against_pairs(integer.add(type), each(lambda a, b: a + b))
    against_pairs(integer.min(type, relu=relu), each(min, 0 if relu else None))
    against_pairs(integer.max(type, relu=relu), each(max, 0 if relu else None))


def test_relu_of_s32() -> None:
    against(integer.min("s32", relu=True), ["s32"] * 2, "s32", lambda a, b: max(min(a, b), 0))
    against(integer.max("s32", relu=True), ["s32"] * 2, "s32", lambda a, b: max(a, b, 0))


def fields(value: int, width: int, type: str) -> list[int]:
    parts = [value >> start & (2**width - 1) for start in range(0, 32, width)]
    return [signed(part, width) for part in parts] if type == "s32" else parts


@pytest.mark.parametrize("a_type", ["u32", "s32"])
@pytest.mark.parametrize("b_type", ["u32", "s32"])
def test_dot_products(a_type: str, b_type: str) -> None:
    result = "s32" if "s32" in (a_type, b_type) else "u32"
    types = ["u32", "u32", result]

    def dp4a(a: int, b: int, c: int) -> int:
        pairs = zip(fields(a, 8, a_type), fields(b, 8, b_type), strict=True)
        return c + sum(x * y for x, y in pairs)

    def dp2a(first: int) -> Callable[..., int]:
        def apply(a: int, b: int, c: int) -> int:
            right = fields(b, 8, b_type)[first : first + 2]
            return c + sum(x * y for x, y in zip(fields(a, 16, a_type), right, strict=True))

        return apply

    against(integer.dp4a(a_type, b_type), types, result, dp4a)
    against(integer.dp2a("lo", a_type, b_type), types, result, dp2a(0))
    against(integer.dp2a("hi", a_type, b_type), types, result, dp2a(2))


@pytest.mark.parametrize("type", CHAINED)
def test_carry_chains_add_and_subtract_wide_integers(type: str) -> None:
    """Three words, the least first: the carries make them one integer."""
    width = TYPES[type].bits
    words = 3

    def wide(lane: tuple[int, ...]) -> int:
        return sum(word << (width * index) for index, word in enumerate(lane))

    @EXAMPLES
    @given(rows(*[integers(width)] * (2 * words)))
    def check(lanes: list[tuple[int, ...]]) -> None:
        columns = operands(lanes, *[TYPES[type].dtype] * (2 * words))
        for first, later, sign in [
            (carry.add_cc(type), carry.addc(type), 1),
            (carry.sub_cc(type), carry.subc(type), -1),
        ]:
            word, flag = first(columns[0], columns[words])
            results = [word]
            for index in range(1, words):
                word, flag = later(columns[index], columns[words + index], flag)
                results.append(word)
            assert flag.dtype == np.bool_
            assert all(word.dtype == TYPES[type].dtype for word in results)
            got = [wide(lane) for lane in zip(*map(bits, results), strict=True)]
            exact = [wide(lane[:words]) + sign * wide(lane[words:]) for lane in lanes]
            assert got == [value % 2 ** (words * width) for value in exact]
            overflow = [not 0 <= value < 2 ** (words * width) for value in exact]
            assert flag.tolist() == overflow

    check()


@pytest.mark.parametrize("type", CHAINED)
@pytest.mark.parametrize("mode", ["lo", "hi"])
def test_carries_of_multiply_add(type: str, mode: str) -> None:
    width = TYPES[type].bits

    @EXAMPLES
    @given(rows(*[integers(width)] * 3, integers(1)))
    def check(lanes: list[tuple[int, ...]]) -> None:
        a, b, c = operands([lane[:3] for lane in lanes], *[TYPES[type].dtype] * 3)
        flags = np.array([lane[3] & 1 for lane in lanes], np.bool_)
        sums, sums_in = [], []
        for lane in lanes:
            x, y = (signed(each, width) if type[0] == "s" else each for each in lane[:2])
            product = (x * y >> (width if mode == "hi" else 0)) % 2**width
            sums.append(product + lane[2])
            sums_in.append(product + lane[2] + (lane[3] & 1))
        for (got, out), wanted in [
            (carry.mad_cc(type, mode)(a, b, c), sums),
            (carry.madc(type, mode)(a, b, c, flags), sums_in),
        ]:
            assert bits(got) == [value % 2**width for value in wanted]
            assert out.tolist() == [value >= 2**width for value in wanted]

    check()


def test_the_product_of_two_words_by_two() -> None:
    """The example of madc in the ISA: [r3, r2, r1, r0] = [r5, r4] * [r7, r6]."""
    random = np.random.default_rng(3)
    r4, r5, r6, r7 = random.integers(0, 2**32, (4, 50), dtype=np.uint32)
    low, high = integer.mul("u32", "lo"), integer.mul("u32", "hi")
    mad_low, madc_high = carry.mad_cc("u32", "lo"), carry.madc("u32", "hi")
    zero = np.zeros(50, np.uint32)
    r0, r1 = low(r4, r6), high(r4, r6)
    r1, flag = mad_low(r5, r6, r1)
    r2, _ = madc_high(r5, r6, zero, flag)
    r1, flag = mad_low(r4, r7, r1)
    r2, flag = madc_high(r4, r7, r2, flag)
    r3, _ = carry.addc("u32")(zero, zero, flag)
    r2, flag = mad_low(r5, r7, r2)
    r3, _ = madc_high(r5, r7, r3, flag)
    for lane in range(50):
        a, b = (int(x[lane]) << 32 | int(y[lane]) for x, y in ((r5, r4), (r7, r6)))
        words = [int(word[lane]) for word in (r0, r1, r2, r3)]
        assert sum(word << (32 * index) for index, word in enumerate(words)) == a * b


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: integer.add("f32"), "add has no type .f32"),
        (lambda: integer.add("u8"), "add has no type .u8"),
        (lambda: integer.add("u32", sat=True), "add.u32 has no .sat"),
        (lambda: integer.add("s16x2", sat=True), "add.s16x2 has no .sat"),
        (lambda: integer.sub("s16x2"), "sub has no type .s16x2"),
        (lambda: integer.mul("u64", "wide"), "mul.wide has no type .u64"),
        (lambda: integer.mul("u32", "low"), "mul takes one of lo hi wide, not .low"),
        (lambda: integer.mad("s32", "lo", sat=True), "mad.lo.s32 has no .sat"),
        (lambda: integer.mad24("u32", "hi", sat=True), r"mad24.hi.u32 has no .sat"),
        (lambda: integer.mul24("u16", "lo"), "mul24 has no type .u16"),
        (lambda: integer.abs("u32"), "abs has no type .u32"),
        (lambda: integer.max("u32", relu=True), "max.u32 has no .relu"),
        (lambda: integer.dp4a("u16", "u32"), "dp4a has no type .u16"),
        (lambda: carry.addc("u16"), "addc has no type .u16"),
        (lambda: carry.madc("u32", "wide"), "madc takes one of lo hi, not .wide"),
    ],
)
def test_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        call()
