"""Instructions of arithmetic, as kernels execute them; `tests/ptx/numerics` tests what they compute
of arrays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.ptx.isa.programs import apply
from tilepipe.errors import PtxError

_RANDOM = np.random.default_rng(5)
MASK = (1 << 32) - 1


def _words(dtype: str = "u4", count: int = 32) -> np.ndarray:
    bits = 8 * np.dtype(dtype).itemsize
    values = _RANDOM.integers(0, 1 << bits, count, f"u{bits // 8}")
    values[:4] = 0, (1 << bits) - 1, 1, 1 << (bits - 1)
    return values.view(dtype)


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("name", ["add", "sub"])
def test_carries_make_numbers_of_128_bits(name: str, uniform: bool) -> None:
    parts = [_words(), _words(), _words(), _words(), _words(), _words(), _words(), _words()]
    parts[0][5] = MASK
    for number, part in enumerate(parts):  # a carry, or a borrow, that goes through all words
        part[6] = (
            (0 if number > 4 else 1 if number == 4 else MASK) if name == "add" else number == 4
        )
    if uniform:
        parts = [np.full(32, part[7], np.uint32) for part in parts]
    text = f"""
        {name}.cc.u32 %r0, %i0, %i4;
        {name}c.cc.u32 %r1, %i1, %i5;
        {name}c.cc.u32 %r2, %i2, %i6;
        {name}c.u32 %r3, %i3, %i7;
        """
    if uniform:
        text = "".join(f"mov.b32 %r{i + 10}, {int(p[0])};" for i, p in enumerate(parts)) + text
        for i in range(8):
            text = text.replace(f"%i{i}", f"%r{i + 10}")
        parts = [p.copy() for p in parts]
    numbers = [[int(p[i]) for p in parts] for i in range(32)]
    for word in range(4):
        got = apply(text + f"mov.b32 %o, %r{word};", *parts, out=np.uint32)
        for lane, given in enumerate(numbers):
            a, b = (sum(w << 32 * i for i, w in enumerate(given[k : k + 4])) for k in (0, 4))
            total = a + b if name == "add" else a - b
            assert int(got[lane]) == total >> 32 * word & MASK


@pytest.mark.parametrize("kind", ["u32", "s32"])
def test_products_of_64_bits_are_chained(kind: str) -> None:
    a, b, c, d = _words(), _words(), _words(), _words()
    text = f"mad.lo.cc.{kind} %r0, %i0, %i1, %i2; madc.hi.{kind} %o, %i0, %i1, %i3;"
    got = apply(text, a, b, c, d, out=np.uint32)
    signed = np.int32 if kind == "s32" else np.uint32
    for lane in range(32):
        product = int(a.view(signed)[lane]) * int(b.view(signed)[lane])
        total = product + int(c[lane]) + (int(d[lane]) << 32)
        assert int(got[lane]) == total >> 32 & MASK


def test_a_condition_code_survives_a_branch_lane_by_lane() -> None:
    a = _words()
    text = """
        mov.u32 %o, 0;
        add.cc.u32 %r0, %i0, %i0;
        setp.lt.u32 %p0, %l, 9;
        @%p0 bra SKIP;
        add.cc.u32 %r1, -1, 1;
        SKIP: addc.u32 %o, %o, 0;
        """
    expected = np.where(np.arange(32) < 9, a >> 31, 1)
    np.testing.assert_array_equal(apply(text, a, out=np.uint32), expected)


@pytest.mark.parametrize(("form", "function"), [("or", np.logical_or), ("and", np.logical_and)])
def test_lop3_gives_a_predicate(form: str, function: np.ufunc) -> None:
    a, b, c = (_words() & 3 for _ in range(3))
    text = f"""
        setp.gt.u32 %p1, %l, 15;
        lop3.{form}.b32 %r0|%p0, %i0, %i1, %i2, 0x80, %p1;
        lop3.{form}.b32 _|%p2, %i0, %i1, %i2, 0x80, %p1;
        selp.u32 %r1, 16, 0, %p0;
        selp.u32 %r2, 32, 0, %p2;
        or.b32 %o, %r0, %r1;
        or.b32 %o, %o, %r2;
        """
    holds = function((a & b & c) != 0, np.arange(32) > 15)
    np.testing.assert_array_equal(apply(text, a, b, c, out=np.uint32), (a & b & c) | 48 * holds)


@pytest.mark.parametrize("combined", ["", ".and"])
def test_setp_compares_both_halves(combined: str) -> None:
    a, b = (_RANDOM.standard_normal((32, 2)).astype(np.float16) for _ in range(2))
    third = ", %p5" if combined else ""
    text = f"""
        setp.ne.u32 %p5, %l, 3;
        setp.lt{combined}.f16x2 %p0|%p1, %i0, %i1{third};
        selp.u32 %r0, 1, 0, %p0;
        selp.u32 %o, 2, 0, %p1;
        add.u32 %o, %o, %r0;
        """
    got = apply(text, a.view(np.uint32)[:, 0], b.view(np.uint32)[:, 0], out=np.uint32)
    holds = (a < b) & ((np.arange(32) != 3) | (not combined))[:, None]
    np.testing.assert_array_equal(got, holds @ [1, 2])


def test_set_combines_with_a_predicate() -> None:
    a, b = _words("i4"), _words("i4")
    text = "setp.lt.u32 %p0, %l, 20; set.lt.and.u32.s32 %o, %i0, %i1, %p0;"
    holds = (a.view("i4") < b.view("i4")) & (np.arange(32) < 20)
    np.testing.assert_array_equal(apply(text, a, b, out=np.uint32), np.where(holds, MASK, 0))


def test_cvt_pack_saturates_and_packs() -> None:
    a, b, c = (_RANDOM.integers(-70000, 70000, 32).astype(np.int32) for _ in range(3))
    got = apply("cvt.pack.sat.s16.s32 %o, %i0, %i1;", a, b, out=np.uint32)
    high, low = (np.clip(v, -0x8000, 0x7FFF) & 0xFFFF for v in (a, b))
    np.testing.assert_array_equal(got, (high << 16 | low).astype(np.uint32))
    a, b = a // 200, b // 200
    got = apply("cvt.pack.sat.u8.s32.b32 %o, %i0, %i1, %i2;", a, b, c, out=np.uint32)
    high, low = (np.clip(v, 0, 255) for v in (a, b))
    expected = (c.astype(np.int64) & 0xFFFF) << 16 | high << 8 | low
    np.testing.assert_array_equal(got, expected.astype(np.uint32))


@pytest.mark.parametrize("mode", ["lo", "hi"])
def test_dp2a_multiplies_halves_by_bytes(mode: str) -> None:
    a, b, c = _words(), _words(), _words()
    got = apply(f"dp2a.{mode}.s32.u32 %o, %i0, %i1, %i2;", a, b, c, out=np.int32)
    halves = a.view(np.int16).reshape(32, 2).astype(np.int64)
    chosen = b.view(np.uint8).reshape(32, 4)[:, :2] if mode == "lo" else None
    if chosen is None:
        chosen = b.view(np.uint8).reshape(32, 4)[:, 2:]
    total = (halves * chosen).sum(1) + c.view(np.int32)
    np.testing.assert_array_equal(got, total.astype(np.int32))


@pytest.mark.parametrize("name", ["add", "mul", "fma"])
def test_pairs_of_f32_are_computed_together(name: str) -> None:
    a, b, c = (_RANDOM.standard_normal((32, 2)).astype(np.float32) for _ in range(3))
    words = [v.view(np.uint64)[:, 0] for v in (a, b, c)]
    more = ", %i2" if name == "fma" else ""
    got = apply(f"{name}.rn.f32x2 %o, %i0, %i1{more};", *words, out=np.uint64, arch="sm_100a")
    wide = {"add": a + b, "mul": a * b}.get(name)
    if wide is None:
        wide = (a.astype(np.float64) * b + c).astype(np.float32)
    np.testing.assert_array_equal(got.view(np.float32).reshape(32, 2), wide)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add.rn.u32 %o, %i0, 1;", "the modifier '.rn' of an integer type"),
        ("mul.lo.ftz.u32 %o, %i0, 1;", "the modifier '.ftz' of an integer type"),
        ("add.relu.f16x2 %o, %i0, %i0;", "the modifier '.f16x2'"),
        ("max.NaN.s32 %o, %i0, %i0;", "the modifier '.NaN' of an integer type"),
        ("max.relu.f32 %o, %i0, %i0;", "the modifier '.relu' of a floating-point type"),
        ("cvt.rs.f16x2.f32 %o, %i0, %i0, %i0;", "stochastic rounding"),
        ("sub.cc.f32 %o, %i0, %i0;", "has no type .f32"),
    ],
)
def test_combinations_that_the_isa_lacks_are_refused(text: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        apply(text, _words(), out=np.uint32)


@pytest.mark.parametrize(
    ("kind", "one", "two"), [("f16", 0x3C00, 0x4000), ("bf16", 0x3F80, 0x4000)]
)
@pytest.mark.parametrize(
    ("given", "factor", "addend"),
    [(0x7FF7, 0, 0x7FFF), (0xFFF7, 0, 0x7FFF), (0x7FFF, 0x7FFF, 0x7FFF)],
)
def test_a_factor_from_outside_of_a_tensor_makes_zero(
    kind: str, one: int, two: int, given: int, factor: int, addend: int
) -> None:
    """What an H100 gives."""
    for values, expected in (
        ((given, one, two), factor), ((one, given, two), factor), ((one, two, given), addend),
    ):  # fmt: skip
        moves = "".join(f"mov.b16 %h{i}, {value};" for i, value in enumerate(values, 2))
        for name, pack in ((f"fma.rn.oob.{kind}", ""), (f"fma.rn.oob.relu.{kind}x2", "packed")):
            if pack:
                vectors = "".join(f"mov.b32 %r{i}, {{%h{i}, %h{i}}};" for i in (2, 3, 4))
                text = f"{moves}{vectors}{name} %o, %r2, %r3, %r4;"
            else:
                text = f"{moves}{name} %h1, %h2, %h3, %h4; mov.b32 %o, {{%h1, %h1}};"
            got = apply(text, np.zeros(32, np.uint32), out=np.uint32)
            assert set(got.tolist()) == {expected * 0x10001}


def _parts(word: int, count: int, signed: bool) -> list[int]:
    dtype = f"{'i' if signed else 'u'}{4 // count}"
    return [int(part) for part in np.array([word], np.uint32).view(dtype)]


@pytest.mark.sampled(suite=3, classes=lambda name, end, types, count: [name, end, (types, count)])
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("types", ["u32.u32.u32", "s32.s32.s32", "s32.u32.s32", "u32.s32.s32"])
@pytest.mark.parametrize("end", ["", ".sat", ".add"])
@pytest.mark.parametrize("name", ["add", "sub", "avrg", "absdiff", "min", "max"])
def test_video_instructions_work_on_the_parts_of_words(
    name: str, end: str, types: str, count: int
) -> None:
    a, b, c = _words(), _words(), _words()
    got = apply(f"v{name}{count}.{types}{end} %o, %i0, %i1, %i2;", a, b, c, out=np.uint32)
    to, a_type, b_type = types.split(".")
    bits = 32 // count
    least = -(1 << (bits - 1)) if to == "s32" else 0
    operation: dict[str, Callable[[int, int], int]] = {
        "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "min": min, "max": max,
        "absdiff": lambda x, y: abs(x - y), "avrg": lambda x, y: (x + y + (x + y >= 0)) // 2,
    }  # fmt: skip
    for lane in range(32):
        pairs = zip(
            _parts(int(a[lane]), count, a_type == "s32"),
            _parts(int(b[lane]), count, b_type == "s32"), strict=True,
        )  # fmt: skip
        results = [operation[name](x, y) for x, y in pairs]
        if end == ".sat":
            results = [min(max(r, least), least + (1 << bits) - 1) for r in results]
        if end == ".add":
            expected = int(c[lane]) + sum(results)
        else:
            mask = (1 << bits) - 1
            expected = sum((r & mask) << (bits * i) for i, r in enumerate(results))
        assert int(got[lane]) == expected & MASK


def test_video_comparisons_give_ones() -> None:
    a, b, c = (np.full(32, word, np.uint32) for word in (0x01FF7F80, 0x02FF8001, 7))
    got = apply("vset4.u32.u32.lt %o, %i0, %i1, %i2;", a, b, c, out=np.uint32)
    assert got[0] == 0x01000100
    got = apply("vset4.s32.s32.lt.add %o, %i0, %i1, %i2;", a, b, c, out=np.uint32)
    assert got[0] == 7 + 2
    got = apply("vset2.u32.s32.ge %o, %i0, %i1, %i2;", a, b, c, out=np.uint32)
    assert got[0] == 0x00000001
    with pytest.raises(PtxError, match=r"the selector of parts of %r1.b0"):
        apply("vadd4.u32.u32.u32 %r1.b0, %i0, %i1, %i2;", a, b, c, out=np.uint32)
