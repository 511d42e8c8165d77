"""Bit counts, bit fields, logic, shifts and byte permutations against the ISA's loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.ptx.numerics.reference import bits, chosen_lanes, edges, integers, operands, rows, signed
from tilepipe.ptx.numerics import Unsupported, bits as fields, logic
from tilepipe.ptx.numerics.types import TYPES

ONES = 0xFFFFFFFF
EXAMPLES = settings(max_examples=10, deadline=None)
EDGES = [7, 15, 16, 17, 63, 64, 65, 255]
AMOUNTS = st.sampled_from([*EDGES, 31, 32, 33, 256, ONES]) | st.integers(0, 70)


def against(
    compute: Callable[..., Any],
    types: list[str],
    result: str,
    reference: Callable[..., int],
    columns: list[st.SearchStrategy[int]] | None = None,
) -> None:
    """Compare with a reference on the bits of the operands; its result wraps around."""
    widths = [TYPES[type].bits for type in types]
    drawn = columns or list(map(integers, widths))
    values = [edges(width) + EDGES for width in widths] if columns else list(map(edges, widths))

    def compare(lanes: list[tuple[int, ...]]) -> None:
        got = compute(*operands(lanes, *[TYPES[type].dtype for type in types]))
        assert got.dtype == TYPES[result].dtype
        assert bits(got) == [reference(*lane) % 2 ** TYPES[result].bits for lane in lanes]

    compare(chosen_lanes(values, widths))
    EXAMPLES(given(rows(*drawn))(compare))()


@pytest.mark.parametrize("width", [32, 64])
def test_counts(width: int) -> None:
    type = f"b{width}"
    against(fields.popc(type), [type], "u32", int.bit_count)
    against(fields.clz(type), [type], "u32", lambda a: width - a.bit_length())
    against(fields.brev(type), [type], type, lambda a: int(f"{a:0{width}b}"[::-1], 2))


@pytest.mark.parametrize("type", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("shiftamt", [False, True])
def test_bfind(type: str, shiftamt: bool) -> None:
    width = TYPES[type].bits

    def reference(a: int) -> int:
        if type[0] == "s" and a >> (width - 1):
            a ^= 2**width - 1
        if a == 0:
            return ONES
        return width - a.bit_length() if shiftamt else a.bit_length() - 1

    against(fields.bfind(type, shiftamt=shiftamt), [type], "u32", reference)


def test_values_that_f64_would_round_up() -> None:
    a = np.array([2**64 - 1, 2**63 - 1, 2**53 - 1, 2**54 - 1, 2**32, 2**32 - 1], np.uint64)
    assert fields.clz("b64")(a).tolist() == [0, 1, 11, 10, 31, 32]


@pytest.mark.parametrize("type", ["u32", "s32", "u64", "s64"])
def test_bfe(type: str) -> None:
    width = TYPES[type].bits

    def reference(a: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        sign = 0
        if type[0] == "s" and length:
            sign = a >> min(position + length - 1, width - 1) & 1
        result = 0
        for index in range(width):
            inside = index < length and position + index < width
            result |= (a >> (position + index) & 1 if inside else sign) << index
        return result

    columns = [integers(width), AMOUNTS, AMOUNTS]
    against(fields.bfe(type), [type, "u32", "u32"], type, reference, columns)


@pytest.mark.parametrize("type", ["b32", "b64"])
def test_bfi(type: str) -> None:
    width = TYPES[type].bits

    def reference(a: int, b: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        for index in range(length):
            if position + index < width:
                bit = 1 << (position + index)
                b = b | bit if a >> index & 1 else b & ~bit
        return b

    columns = [integers(width), integers(width), AMOUNTS, AMOUNTS]
    against(fields.bfi(type), [type, type, "u32", "u32"], type, reference, columns)


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_bmsk(mode: str) -> None:
    def reference(a: int, b: int) -> int:
        position, width = a & 31, b & 31
        above = ONES << position & ONES
        if mode == "clamp" and a >= 32:
            return 0
        if position + width >= 32 or (mode == "clamp" and b >= 32):
            return above
        return above & ~(ONES << (position + width)) if width else 0

    against(fields.bmsk(mode), ["b32", "b32"], "b32", reference, [AMOUNTS, AMOUNTS])
    assert fields.bmsk("wrap")(*np.array([[1], [2]], np.uint32)).tolist() == [6]


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
@pytest.mark.parametrize("type", ["u32", "s32"])
def test_szext(mode: str, type: str) -> None:
    def reference(a: int, b: int) -> int:
        if mode == "clamp" and b >= 32:
            return a
        width = b & 31
        kept = a & (2**width - 1)
        return signed(kept, width) if width and type == "s32" else kept

    against(fields.szext(mode, type), [type, "u32"], type, reference, [integers(32), AMOUNTS])
    assert bits(fields.szext("wrap", "u32")(*np.array([[ONES], [0]], np.uint32))) == [0]


def test_fns() -> None:
    def reference(mask: int, base: int, offset: int) -> int:
        offset = signed(offset, 32)
        if base > 31:
            return ONES
        if offset == 0:
            return base if mask >> base & 1 else ONES
        step = 1 if offset > 0 else -1
        remaining = abs(offset)
        while 0 <= base < 32:
            remaining -= mask >> base & 1
            if remaining == 0:
                return base
            base += step
        return ONES

    offsets = st.integers(-33, 33).map(lambda offset: offset & ONES)
    columns = [integers(32), st.integers(0, 33), offsets]
    against(fields.fns(), ["b32", "u32", "s32"], "b32", reference, columns)
    for base, offset, found in [(3, 1, 3), (3, -1, 3), (2, 1, 3), (2, -1, 1)]:
        mask, first = np.array([[0xAAAAAAAA], [base]], np.uint32)
        assert fields.fns()(mask, first, np.array([offset], np.int32)).tolist() == [found]


@pytest.mark.slow
@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts_past_the_width(width: int) -> None:
    columns = [integers(width), AMOUNTS]
    for type in (f"b{width}", f"u{width}"):
        against(logic.shr(type), [type, "u32"], type, lambda a, b: a >> b, columns)
    against(
        logic.shl(f"b{width}"),
        [f"b{width}", "u32"],
        f"b{width}",
        lambda a, b: a << b if b < width else 0,
        columns,
    )
    type = f"s{width}"
    against(logic.shr(type), [type, "u32"], type, lambda a, b: signed(a, width) >> b, columns)
    type = f"b{width}"
    against(logic.cnot(type), [type], type, lambda a: int(a == 0))


@pytest.mark.parametrize("direction", ["l", "r"])
@pytest.mark.parametrize("mode", ["clamp", "wrap"])
def test_funnel_shifts(direction: str, mode: str) -> None:
    def reference(a: int, b: int, amount: int) -> int:
        count = min(amount, 32) if mode == "clamp" else amount & 31
        both = b << 32 | a
        return (both << count) >> 32 if direction == "l" else both >> count

    columns = [integers(32), integers(32), AMOUNTS]
    against(logic.shf(direction, mode), ["b32"] * 3, "b32", reference, columns)


def test_lop3_of_all_tables() -> None:
    rng = np.random.default_rng(0)
    a, b, c = rng.integers(0, 2**32, (3, 32), dtype=np.uint32)
    index = [
        (a >> bit & 1) * 4 + (b >> bit & 1) * 2 + (c >> bit & 1)
        for bit in np.arange(32, dtype="u4")
    ]
    for table in range(256):
        wanted = sum((table >> place & 1) << bit for bit, place in enumerate(index))
        got = logic.lop3(table)(a, b, c)
        assert got.dtype == np.uint32
        assert got.tolist() == np.asarray(wanted).tolist(), hex(table)


# the table of the ISA for the modes of prmt: the source bytes of d's bytes 3, 2, 1, 0
MODES = {
    "f4e": ["3210", "4321", "5432", "6543"],
    "b4e": ["5670", "6701", "7012", "0123"],
    "rc8": ["0000", "1111", "2222", "3333"],
    "ecl": ["3210", "3211", "3222", "3333"],
    "ecr": ["0000", "1110", "2210", "3210"],
    "rc16": ["1010", "3232", "1010", "3232"],
}


def permuted(a: int, b: int, choices: list[int]) -> int:
    """The bytes of {b, a}, for d's bytes 3 to 0, that these nibbles choose."""
    both, result = b << 32 | a, 0
    for choice in choices:
        byte = both >> (8 * (choice & 7)) & 0xFF
        if choice & 8:
            byte = 0xFF if byte & 0x80 else 0
        result = result << 8 | byte
    return result


def test_prmt() -> None:
    def reference(a: int, b: int, c: int) -> int:
        return permuted(a, b, [c >> shift & 15 for shift in (12, 8, 4, 0)])

    against(logic.prmt(), ["b32"] * 3, "b32", reference)

    @EXAMPLES
    @given(integers(32), integers(32), integers(32))
    def check_immediate(a: int, b: int, c: int) -> None:
        left, right = np.array([[a], [b]], np.uint32)
        assert logic.prmt(selector=c)(left, right).tolist() == [reference(a, b, c)]

    check_immediate()


@pytest.mark.parametrize("mode", MODES)
def test_modes_of_prmt(mode: str) -> None:
    def reference(a: int, b: int, c: int) -> int:
        return permuted(a, b, [int(digit) for digit in MODES[mode][c & 3]])

    against(logic.prmt(mode), ["b32"] * 3, "b32", reference)
    a, b = np.array([[0x83828180], [0x87868584]], np.uint32)
    for c in range(4):
        got = logic.prmt(mode, selector=c)(a, b)
        assert got.tolist() == [reference(0x83828180, 0x87868584, c)]


def test_shapes() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(0, 2**32, (2, 3), dtype=np.uint32)
    scalar = np.array(5, np.uint32)
    computed: list[tuple[Callable[..., Any], int]] = [
        (fields.popc("b32"), 1),
        (fields.brev("b32"), 1),
        (fields.bfe("u32"), 3),
        (fields.bmsk("clamp"), 2),
        (logic.prmt(), 3),
        (logic.prmt(selector=0x5410), 2),
        (logic.shf("l", "wrap"), 3),
        (logic.lop3(0x96), 3),
        (logic.lop3(0), 3),
    ]
    for compute, operand_count in computed:
        for chosen in itertools.product([a, scalar], repeat=operand_count):
            shapes = [each.shape for each in chosen]
            assert compute(*chosen).shape == np.broadcast_shapes(*shapes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fields.popc("u32"), "popc has no type .u32"),
        (lambda: fields.bfind("b32"), "bfind has no type .b32"),
        (lambda: fields.bfe("b32"), "bfe has no type .b32"),
        (lambda: fields.bmsk("rn"), "bmsk takes one of clamp wrap, not .rn"),
        (lambda: logic.shl("u32"), "shl has no type .u32"),
        (lambda: logic.shr("s8"), "shr has no type .s8"),
        (lambda: logic.lop3(256), "lop3 takes a table from 0 to 255, not 256"),
        (lambda: logic.prmt("f4"), "prmt takes one of f4e b4e rc8 ecl ecr rc16, not .f4"),
        (lambda: logic.shf("l", ""), "shf takes one of clamp wrap"),
    ],
)
def test_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        call()
