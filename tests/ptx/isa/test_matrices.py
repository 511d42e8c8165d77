"""Matrices in the registers of a warp."""

from __future__ import annotations

import itertools
import re
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.ptx.isa.programs import run
from tilepipe.errors import PtxError

Array = npt.NDArray[Any]
LANE = np.arange(32)
_RANDOM = np.random.default_rng(3)


def _stored(registers: int, bytes_: int) -> str:
    """Stores %r10 .. to the thread's row of array 1, of as many registers."""
    names = ", ".join(f"%r{10 + i}" for i in range(registers))
    names = f"{{{names}}}" if registers > 1 else names
    vector = f".v{registers}" if registers > 1 else ""
    return f"mad.wide.u32 %a1, %t, {bytes_}, %b1; st.global{vector}.b32 [%a1], {names};"


_FILL = """
    .shared .align 16 .b8 buffer[1024];
    mov.u32 %r1, buffer;
    mad.lo.u32 %r2, %t, 16, %r1;
    mad.wide.u32 %a0, %t, 16, %b0;
    ld.global.v4.b32 {{%r3, %r4, %r5, %r6}}, [%a0];
    st.shared.v4.b32 [%r2], {{%r3, %r4, %r5, %r6}};
    bar.warp.sync -1;
    {instruction}
    """


def _loaded(form: str, registers: int) -> tuple[Array, Array]:
    """(32 rows of 16 bytes, the registers (32, registers)) of an ldmatrix."""
    rows = _RANDOM.integers(0, 256, (32, 16), np.uint8)
    out = np.zeros((32, registers), np.uint32)
    names = ", ".join(f"%r{10 + i}" for i in range(registers))
    instruction = f"ldmatrix.sync.aligned.{form} {{{names}}}, [%r2];"
    instruction += _stored(registers, 4 * registers)
    arch = "sm_90a" if "m8n8" in form else "sm_100a"
    run(_FILL.format(instruction=instruction), rows, out, arch=arch)
    return rows, out


@pytest.mark.parametrize("transposed", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_of_16_bits(count: int, transposed: str) -> None:
    rows, out = _loaded(f"m8n8.x{count}{transposed}.shared.b16", count)
    matrices = rows.view(np.uint16).reshape(4, 8, 8)[:count]
    if transposed:
        matrices = matrices.transpose(0, 2, 1)
    pairs = np.ascontiguousarray(matrices).reshape(count, 32, 2).view(np.uint32)[..., 0]
    np.testing.assert_array_equal(out, pairs.T)


@pytest.mark.parametrize("count", [1, 2])
def test_ldmatrix_of_bytes_transposed(count: int) -> None:
    """As CuTe's SM100_U8x8_LDSM_T: (thread, byte of its registers) -> (row, byte)."""
    rows, out = _loaded(f"m16n16.x{count}.trans.shared.b8", 2 * count)
    got = out.view(np.uint8).reshape(32, 2 * count, 4)
    for lane in range(32):
        for register in range(2 * count):
            for byte in range(4):
                row = 4 * (lane % 4) + 2 * (register % 2) + byte % 2 + 16 * (register // 2)
                assert got[lane, register, byte] == rows[row, lane // 4 + 8 * (byte // 2)]


@pytest.mark.parametrize(("packed", "bits"), [("b4x16_p64", 4), ("b6x16_p32", 6)])
@pytest.mark.parametrize("count", [1, 4])
def test_ldmatrix_expands_to_bytes(packed: str, bits: int, count: int) -> None:
    rows, out = _loaded(f"m8n16.x{count}.shared.b8x16.{packed}", count)
    numbers = [int.from_bytes(row.tobytes(), "little") for row in rows]
    each = np.array([[n >> bits * i & ((1 << bits) - 1) for i in range(16)] for n in numbers])
    words = each.astype(np.uint8).view(np.uint32).reshape(4, 8, 4)[:count]
    np.testing.assert_array_equal(out, words.reshape(count, 32).T)


@pytest.mark.parametrize(
    "form", ["m8n8.x4", "m8n8.x4.trans", "m8n8.x1", "m16n8.x2.trans", "x2.m8n8", "x2.m8n8.trans"]
)
def test_stmatrix_is_the_inverse_of_ldmatrix(form: str) -> None:
    """Of the b8 form a row has what CuTe's SM100_U8x8_STSM_T says."""
    count = int(re.findall(r"x(\d)", form)[0])
    rows = _RANDOM.integers(0, 256, (32, 16), np.uint8)
    out = np.zeros((32, 16), np.uint8)
    names = ", ".join(f"%r{3 + i}" for i in range(count))
    kind = "b16" if "m8n8" in form else "b8"
    late = ".trans" if form == "x2.m8n8.trans" else ""
    instruction = f"""
        add.u32 %r2, %r2, 512;
        st.shared.v4.b32 [%r2], {{0, 0, 0, 0}};
        bar.warp.sync -1;
        stmatrix.sync.aligned.{form.removesuffix(late)}.shared.{kind}{late} [%r2], {{{names}}};
        ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r2];
        {_stored(4, 16)}
        """
    arch = "sm_90a" if kind == "b16" else "sm_100a"
    run(_FILL.format(instruction=instruction), rows, out, arch=arch)
    registers = rows.view(np.uint32)[:, :count]  # (lane, register)
    expected = np.zeros((32, 16), np.uint8)
    for lane in range(32):
        for number in range(count):
            raw = registers[lane, number : number + 1].view(np.uint8)
            for byte in range(4):
                if kind == "b8":
                    row, at = 2 * (lane % 4) + byte % 2, lane // 4 + 8 * (byte // 2)
                elif "trans" in form:
                    row, at = 2 * (lane % 4) + byte // 2, 2 * (lane // 4) + byte % 2
                else:
                    row, at = lane // 4, 4 * (lane % 4) + byte
                expected[8 * number + row, at] = raw[byte]
    np.testing.assert_array_equal(out, expected)


def test_movmatrix_transposes() -> None:
    matrix = _RANDOM.integers(0, 1 << 16, (8, 8), np.uint16)
    out = np.zeros_like(matrix)
    text = """
        ld.global.b32 %r1, [%a0];
        movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1;
        st.global.b32 [%a1], %r2;
        """
    run(text, matrix.view(np.uint32).reshape(32), out.view(np.uint32).reshape(32))
    np.testing.assert_array_equal(out, matrix.T)


_TYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip


@pytest.mark.parametrize(
    ("depth", "to", "a_type", "b_type"),
    [
        (8, "f32", "f16", "f16"), (16, "f32", "f16", "f16"), (16, "f16", "f16", "f16"),
        (8, "f32", "bf16", "bf16"), (16, "f32", "bf16", "bf16"), (4, "f32", "tf32", "tf32"),
        (8, "f32", "tf32", "tf32"), (32, "f32", "e4m3", "e5m2"), (16, "f16", "e5m2", "e4m3"),
        (32, "s32", "s8", "u8"), (16, "s32", "u8", "s8"),
    ],
)  # fmt: skip
def test_mma_sync(depth: int, to: str, a_type: str, b_type: str) -> None:
    """The fragments by the formulas of the PTX ISA, "Matrix Fragments for mma.m16n8k..."."""
    a, b = (
        _RANDOM.integers(-4 * (t != "u8"), 5, shape).astype(_TYPES[t])
        for t, shape in ((a_type, (16, depth)), (b_type, (8, depth)))
    )
    c = _RANDOM.integers(-9, 10, (16, 8)).astype({"f32": "f4", "f16": "f2", "s32": "i4"}[to])
    each = 4 // a.itemsize
    group, within = LANE // 4, LANE % 4
    halves = depth // (4 * each)  # along K
    a_words, b_words = [], []
    for half in range(halves):
        along = 4 * each * half + each * within[:, None] + np.arange(each)
        for upper in (0, 8):
            a_words.append(a[(group + upper)[:, None], along])
        b_words.append(b[group[:, None], along])
    a_words, b_words = (
        [np.ascontiguousarray(w).view(np.uint32)[:, 0] for w in words]
        for words in (a_words, b_words)
    )
    cols = 2 * within[:, None] + np.arange(2)
    c_parts = [c[(group + upper)[:, None], cols] for upper in (0, 8)]
    c_words = np.concatenate([np.ascontiguousarray(p).view(np.uint32) for p in c_parts], axis=1)
    words = np.stack([*a_words, *b_words, *c_words.T], axis=1)
    out = np.zeros_like(c_words)
    counts = len(a_words), len(b_words), c_words.shape[1]
    names, at = [], 20
    for count in counts:
        names.append(", ".join(f"%r{at + i}" for i in range(count)))
        at += count
    loads = "\n".join(f"ld.global.b32 %r{20 + i}, [%a0+{4 * i}];" for i in range(sum(counts)))
    results = ", ".join(f"%r{10 + i}" for i in range(counts[2]))
    run(
        f"""
        mad.wide.u32 %a0, %t, {words.shape[1] * 4}, %b0;
        {loads}
        mma.sync.aligned.m16n8k{depth}.row.col.{to}.{a_type}.{b_type}.{to}
            {{{results}}}, {{{names[0]}}}, {{{names[1]}}}, {{{names[2]}}};
        {_stored(counts[2], 4 * counts[2])}
        """,
        np.ascontiguousarray(words),
        out,
    )
    total = a.astype(np.float64) @ b.astype(np.float64).T + c
    expected = [
        np.ascontiguousarray(total.astype(c.dtype)[(group + upper)[:, None], cols]).view(np.uint32)
        for upper in (0, 8)
    ]
    np.testing.assert_array_equal(out, np.concatenate(expected, axis=1))


SMALL = {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "f64": 64}


@pytest.mark.parametrize(
    ("shape", "a_type", "b_type", "end"),
    [
        ((8, 4), "f64", "f64", ""), ((16, 4), "f64", "f64", ""), ((16, 8), "f64", "f64", ""),
        ((16, 16), "f64", "f64", ""), ((8, 16), "s8", "u8", ""), ((8, 32), "s4", "u4", ""),
        ((16, 32), "u4", "s4", ""), ((16, 64), "s4", "s4", ""), ((8, 128), "b1", "b1", ".xor.popc"),
        ((16, 128), "b1", "b1", ".and.popc"), ((16, 256), "b1", "b1", ".xor.popc"),
    ],
)  # fmt: skip
def test_mma_sync_of_small_integers_and_doubles(
    shape: tuple[int, int], a_type: str, b_type: str, end: str
) -> None:
    """Lane by lane: lane 4 g + t has elements t e, ..., t e + e - 1 of row g (and of row g + 8) of
    each piece of 4 e along K, where a register holds e of them.
    """
    rows, depth = shape
    wide = a_type == "f64"
    low, high = {"s": (-8, 8), "u": (0, 16), "b": (0, 2), "f": (-9, 9)}[a_type[0]]
    a = _RANDOM.integers(low, high, (rows, depth))
    low, high = {"s": (-8, 8), "u": (0, 16), "b": (0, 2), "f": (-9, 9)}[b_type[0]]
    b = _RANDOM.integers(low, high, (8, depth))
    c = _RANDOM.integers(-99, 99, (rows, 8))
    width = SMALL[a_type]
    each = max(32 // width, 1)
    unsigned = np.uint64 if wide else np.uint32

    def packed(elements: Array) -> int:
        if wide:
            return int(np.float64(elements[0]).view(np.uint64))
        return sum((int(e) & ((1 << width) - 1)) << (width * i) for i, e in enumerate(elements))

    words: list[list[int]] = []
    for lane in range(32):
        g, t = divmod(lane, 4)
        pieces = [slice(at + t * each, at + (t + 1) * each) for at in range(0, depth, 4 * each)]
        found = [packed(a[row, piece]) for piece in pieces for row in range(g, rows, 8)]
        found += [packed(b[g, piece]) for piece in pieces]
        sums = [c[row, 2 * t + i] for row in range(g, rows, 8) for i in (0, 1)]
        as_words = np.array(sums, np.float64 if wide else np.int32).view(unsigned)
        words.append([*found, *map(int, as_words)])
    given = np.array(words, unsigned)
    counts = [rows * depth // (32 * each), 8 * depth // (32 * each), rows // 4]
    out = np.zeros((32, counts[2]), unsigned)
    size, bank, kind = (8, "rd", "b64") if wide else (4, "r", "b32")
    names = [f"%{bank}{i + 10}" for i in range(sum(counts))]
    at = [0, counts[0], counts[0] + counts[1], sum(counts)]
    groups = [", ".join(names[i:j]) for i, j in itertools.pairwise(at)]
    results = [f"%{bank}{i}" for i in range(counts[2])]
    to = "f64" if wide else "s32"
    run(
        f"""
        mad.wide.u32 %a0, %t, {given.shape[1] * size}, %b0;
        mad.wide.u32 %a1, %t, {counts[2] * size}, %b1;
        {"".join(f"ld.global.{kind} {n}, [%a0+{size * i}];" for i, n in enumerate(names))}
        mma.sync.aligned.m{rows}n8k{depth}.row.col.{to}.{a_type}.{b_type}.{to}{end}
            {{{", ".join(results)}}}, {{{groups[0]}}}, {{{groups[1]}}}, {{{groups[2]}}};
        {"".join(f"st.global.{kind} [%a1+{size * i}], {n};" for i, n in enumerate(results))}
        """,
        given,
        out,
    )
    total = (a[:, None, :] != b[None, :, :]).sum(axis=2) + c if end == ".xor.popc" else a @ b.T + c
    expected = [
        [total[row, 2 * (lane % 4) + i] for row in range(lane // 4, rows, 8) for i in (0, 1)]
        for lane in range(32)
    ]
    np.testing.assert_array_equal(out.view(np.float64 if wide else np.int32), expected)


def test_a_nan_of_a_product_is_the_one_of_the_hardware() -> None:
    out = np.zeros(32, np.uint32)
    run(
        """
        mov.b32 %r1, 0x7c007c00; mov.b32 %r2, 0; mov.b32 %r3, 0;
        mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32
            {%r10, %r11, %r12, %r13}, {%r1, %r1}, {%r2}, {%r3, %r3, %r3, %r3};
        st.global.b32 [%a0], %r10;
        """,
        out,
    )
    assert set(out.tolist()) == {0x7FFFFFFF}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ldmatrix.sync.aligned.m8n16.x1.shared.b8 {%r1}, [%r2];", "expected .b6x16_p32"),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [%r2];", "1 registers where there are 2"),
        ("stmatrix.sync.aligned.m16n8.x1.shared.b8 [%r2], {%r1};", "expected .trans"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {%r1,%r2,%r3,%r4}, {%r1,%r2,%r3,%r4},"
         " {%r5,%r6}, {%r1,%r2,%r3,%r4};", "this combination of shape and types"),
        ("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 %r1, %r2, %r3, %r4;", "'.sp'"),
    ],
)  # fmt: skip
def test_forms_that_the_isa_lacks_are_refused(text: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run(text)
