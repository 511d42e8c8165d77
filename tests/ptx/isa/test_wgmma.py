"""wgmma: types, accumulators, negation and A in registers, by descriptors that the tests make."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.ptx.isa.programs import run
from tilepipe.errors import PtxError

Array = npt.NDArray[Any]
_RANDOM = np.random.default_rng(13)
_TYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip
_B = 2048  # where B lies after A

_KERNEL = """
    setp.eq.u32 %p1, %t, 0;
    mul.lo.u32 %r1, %t, {chunk};
    mov.u32 %r2, memory; add.u32 %r3, %r2, %r1;
    mad.wide.u32 %rd1, %t, {chunk}, %b0;
    {copies}
    fence.proxy.async.shared::cta;
    bar.sync 0;
    shr.u32 %r4, %r2, 4; cvt.u64.u32 %rd2, %r4;
    add.u64 %rd3, %rd2, {a}; add.u64 %rd4, %rd2, {b};
    mad.wide.u32 %rd5, %t, 16, %b2;
    ld.global.v4.b32 {{%r10, %r11, %r12, %r13}}, [%rd5];
    wgmma.fence.sync.aligned;
    {mmas}
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    mad.wide.u32 %a1, %t, {row}, %b1;
    {stores}
    """


def _image(rows: Array) -> Array:
    """Rows of 32 bytes as core matrices of 8 rows of 16 bytes, those along K first."""
    cores = rows.reshape(-1, 8, 2, 16).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(cores).reshape(-1)


def _descriptor(at: int) -> int:
    return at >> 4 | (128 >> 4) << 16 | (256 >> 4) << 32


def _numbers(kind: str, rows: int) -> Array:
    dtype: Any = np.dtype(_TYPES[kind])
    low = 0 if kind == "u8" else -3
    return _RANDOM.integers(low, 4, (rows, 32 // dtype.itemsize)).astype(dtype)


def _product(
    cols: int, to: str, a_type: str, b_type: str, constants: str, *, in_registers: bool = False
) -> tuple[Array, Array]:
    """(the accumulator after two wgmma, A · Bᵀ)."""
    a, b = _numbers(a_type, 64), _numbers(b_type, cols)
    memory = np.zeros(_B + 8192, np.uint8)
    memory[:_B] = _image(a.view(np.uint8).reshape(64, 32))
    memory[_B : _B + 32 * cols] = _image(b.view(np.uint8).reshape(cols, 32))
    fragments = np.zeros((128, 4), np.uint32)
    each = 4 // a.itemsize
    lane = np.arange(128)
    for register in range(4):
        rows = lane // 32 * 16 + lane % 32 // 4 + 8 * (register % 2)
        along = 4 * each * (register // 2) + each * (lane % 4)
        part = a[rows[:, None], along[:, None] + np.arange(each)]
        fragments[:, register] = np.ascontiguousarray(part).view(np.uint32)[:, 0]
    count = cols // (4 if to == "f16" else 2)
    names = ", ".join(f"%r{50 + i}" for i in range(count))
    depth = a.shape[1]
    left = "{%r10, %r11, %r12, %r13}" if in_registers else "%rd3"
    form = f"wgmma.mma_async.sync.aligned.m64n{cols}k{depth}.{to}.{a_type}.{b_type}"
    mmas = "\n".join(
        f"setp.ne.u32 %p2, {adds}, 0; {form} {{{names}}}, {left}, %rd4, %p2{constants};"
        for adds in (0, 1)
    )
    chunk = len(memory) // 128
    copies = "\n".join(
        f"ld.global.v4.b32 {{%r20, %r21, %r22, %r23}}, [%rd1+{i}];"
        f"st.shared.v4.b32 [%r3+{i}], {{%r20, %r21, %r22, %r23}};"
        for i in range(0, chunk, 16)
    )
    out = np.zeros((128, count), np.uint32)
    stores = "\n".join(f"st.global.b32 [%a1+{4 * i}], %r{50 + i};" for i in range(count))
    run(
        _KERNEL.format(
            chunk=chunk, copies=copies, a=_descriptor(0), b=_descriptor(_B), mmas=mmas,
            row=4 * count, stores=stores,
        ),
        memory, out, fragments, threads=128, smem=len(memory),
        before=".extern .shared .align 1024 .b8 memory[];",
    )  # fmt: skip
    values = out.view({"f32": np.float32, "f16": np.float16, "s32": np.int32}[to])
    found = np.zeros((64, cols))
    places = np.arange(cols // 2)
    for thread in range(128):
        rows = thread // 32 * 16 + thread % 32 // 4 + 8 * (places // 2 % 2)
        found[rows, places // 4 * 8 + thread % 4 * 2 + places % 2] = values[thread]
    return found, a.astype(np.float64) @ b.astype(np.float64).T


@pytest.mark.parametrize(
    ("cols", "to", "a", "b", "constants"),
    [
        (8, "f32", "f16", "f16", ", 1, 1, 0, 0"), (24, "f16", "f16", "f16", ", 1, 1, 0, 0"),
        (256, "f32", "bf16", "bf16", ", 1, 1, 0, 0"), (64, "f32", "tf32", "tf32", ", 1, 1"),
        (16, "f32", "e4m3", "e5m2", ", 1, 1"), (40, "f16", "e5m2", "e4m3", ", 1, 1"),
        (32, "s32", "s8", "u8", ""), (8, "s32", "u8", "s8", ""),
    ],
)  # fmt: skip
def test_types_and_accumulators(cols: int, to: str, a: str, b: str, constants: str) -> None:
    got, product = _product(cols, to, a, b, constants)
    np.testing.assert_array_equal(got, 2 * product)


@pytest.mark.parametrize(
    ("kind", "constants"),
    [("f16", ", 1, 1, 0"), ("e4m3", ", 1, 1"), ("s8", ""), ("tf32", ", 1, 1")],
)
def test_a_in_registers(kind: str, constants: str) -> None:
    to = "s32" if kind == "s8" else "f32"
    got, product = _product(16, to, kind, kind, constants, in_registers=True)
    np.testing.assert_array_equal(got, 2 * product)


@pytest.mark.parametrize(
    ("a", "b", "in_registers"), [(-1, 1, False), (1, -1, False), (-1, -1, False), (-1, 1, True)]
)
def test_negated_operands(a: int, b: int, in_registers: bool) -> None:
    constants = f", {a}, {b}, 0" + (", 0" if not in_registers else "")
    got, product = _product(8, "f32", "f16", "f16", constants, in_registers=in_registers)
    np.testing.assert_array_equal(got, 2 * a * b * product)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("m64n8k16.f32.f16.bf16", "the type of B is bf16; allowed with A of .f16: f16"),
        ("m64n8k32.f32.e4m3.s8", "the type of B is s8; allowed with A of .e4m3: e4m3, e5m2"),
        ("m64n8k16.f16.bf16.bf16", "the type of D is f16; allowed with A of .bf16: f32"),
        ("m64n8k8.f16.tf32.tf32", "the type of D is f16; allowed with A of .tf32: f32"),
        ("m64n8k32.f32.s8.s8", "the type of D is f32; allowed with A of .s8: s32"),
        ("m64n8k16.s32.f16.f16", "the type of D is s32; allowed with A of .f16: f32, f16"),
        ("m64n8k8.f32.f16.f16", "K is 8; allowed with A of .f16: 16"),
        ("m64n8k16.f32.tf32.tf32", "K is 16; allowed with A of .tf32: 8"),
        ("m64n12k16.f32.f16.f16", "N is 12; allowed with A of .f16: multiples of 8 up to 256"),
        ("m64n264k16.f32.f16.f16", "N is 264; allowed with A of .f16"),
        ("m64n40k32.s32.s8.s8", "N is 40; allowed with A of .s8: 8, 24 and multiples of 16"),
        (
            "m64n8k16.satfinite.f32.f16.f16",
            "a modifier is .satfinite; allowed with A of .f16: none",
        ),
    ],
)
def test_combinations_that_the_isa_lacks_are_refused(form: str, said: str) -> None:
    with pytest.raises(PtxError) as caught:
        run(f"wgmma.mma_async.sync.aligned.{form} {{%r1, %r2, %r3, %r4}}, %rd1, %rd2, %p1;")
    assert said in str(caught.value)
