"""tcgen05: kinds of MMA, accumulators, loads and stores, copies; by descriptors that the tests make
themselves.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.golden.tables import rows
from tests.ptx.isa.programs import run
from tilepipe.errors import PtxError, SimFault
from tilepipe.ir.hardware.tensor_memory import COLUMNS, LANES
from tilepipe.machine.actors import CtaPlace
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tensor_operands import tensor_operand
from tilepipe.machine.wording import PTX
from tilepipe.ptx.isa.tcgen05 import _places

Array = npt.NDArray[Any]
_RANDOM = np.random.default_rng(11)
_A, _B = 1024, 8192  # where the operands lie in shared memory


def _image(rows: Array) -> Array:
    """Rows of 32 bytes as core matrices of 8 rows of 16 bytes, those along K first."""
    cores = rows.reshape(-1, 8, 2, 16).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(cores).reshape(-1)


def _descriptor(at: int) -> int:
    """No swizzle: 128 bytes along K, 256 to the next 8 rows."""
    return at >> 4 | (128 >> 4) << 16 | (256 >> 4) << 32 | 1 << 46


_KERNEL = """
    .shared .align 8 .b64 bar;
    .shared .align 4 .b32 place;
    setp.eq.u32 %p1, %t, 0;
    setp.lt.u32 %p2, %t, 32;
    @%p1 mbarrier.init.shared.b64 [bar], 1;
    @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 128;
    mov.u32 %r1, 0;
    FILL: mad.lo.u32 %r2, %r1, 128, %t;
    mul.lo.u32 %r2, %r2, 16;
    cvt.u64.u32 %rd1, %r2; add.u64 %rd1, %rd1, %b0;
    ld.global.v4.b32 {{%r3, %r4, %r5, %r6}}, [%rd1];
    mov.u32 %r7, memory; add.u32 %r7, %r7, %r2;
    st.shared.v4.b32 [%r7], {{%r3, %r4, %r5, %r6}};
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p3, %r1, {fills};
    @%p3 bra FILL;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    ld.shared.b32 %r10, [place];
    shr.u32 %r11, %t, 5; shl.b32 %r11, %r11, 21; add.u32 %r12, %r10, %r11;
    {before}
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    bar.sync 0;
    tcgen05.fence::after_thread_sync;
    mov.u32 %r13, memory; shr.u32 %r13, %r13, 4; cvt.u64.u32 %rd2, %r13;
    @!%p1 bra WAIT;
    {text}
    tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [bar], 0;
    @!%p4 bra WAIT;
    tcgen05.fence::after_thread_sync;
    {after}
    tcgen05.wait::ld.sync.aligned;
    mad.wide.u32 %a1, %t, {row}, %b1;
    {stores}
    bar.sync 0;
    @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 128;
    """


def _run(
    memory: Array, text: str, registers: int, *, before: str = "", after: str = "", seed: int = 0
) -> Array:
    """What each of 128 threads has in %r100 and the registers after it: (128, registers)."""
    padded = np.zeros(-(-len(memory) // 2048) * 2048, np.uint8)
    padded[: len(memory)] = memory
    out = np.zeros((128, registers), np.uint32)
    names = ", ".join(f"%r{100 + i}" for i in range(registers))
    after = after or f"tcgen05.ld.sync.aligned.32x32b.x{registers}.b32 {{{names}}}, [%r12];"
    stores = "\n".join(f"st.global.b32 [%a1+{4 * i}], %r{100 + i};" for i in range(registers))
    body = _KERNEL.format(
        fills=len(padded) // 2048, before=before, text=text, after=after, row=4 * registers,
        stores=stores,
    )  # fmt: skip
    memory_at = ".extern .shared .align 1024 .b8 memory[];"
    run(
        body, padded, out, threads=128, arch="sm_100a", smem=len(padded), seed=seed,
        before=memory_at,
    )  # fmt: skip
    return out


_CODES = {
    "e4m3": (0, ml_dtypes.float8_e4m3fn), "e5m2": (1, ml_dtypes.float8_e5m2),
    "e2m3": (3, ml_dtypes.float6_e2m3fn), "e3m2": (4, ml_dtypes.float6_e3m2fn),
    "e2m1": (5, ml_dtypes.float4_e2m1fn), "u8": (0, np.uint8), "s8": (1, np.int8),
    "f16": (0, np.float16), "bf16": (1, ml_dtypes.bfloat16), "tf32": (2, np.float32),
}  # fmt: skip
_PACKED = {"e2m3": 6, "e3m2": 6, "e2m1": 4}


def _operand(kind: str, rows: int) -> tuple[Array, Array]:
    """(numbers (rows, K), their bytes (rows, 32))."""
    dtype: Any = np.dtype(_CODES[kind][1])
    depth = 32 // dtype.itemsize
    numbers = _RANDOM.integers(0 if kind == "u8" else -3, 4, (rows, depth)).astype(dtype)
    if kind not in _PACKED:
        return numbers.astype(np.float64), numbers.view(np.uint8).reshape(rows, 32)
    width = _PACKED[kind]
    codes = numbers.view(np.uint8)
    raw = np.zeros((rows, 2, 16), np.uint8)
    for row in range(rows):
        for half in range(2):
            each = codes[row, 16 * half : 16 * half + 16].tolist()
            packed = sum((c & (1 << width) - 1) << width * i for i, c in enumerate(each))
            raw[row, half, : 2 * width] = np.frombuffer(packed.to_bytes(2 * width, "little"), "u1")
    return numbers.astype(np.float64), raw.reshape(rows, 32)


def _mma(
    kind: str, a_type: str, b_type: str, accumulator: str, extra: int = 0, words: str = ""
) -> tuple[Array, Array]:
    """(what the accumulator holds after two MMAs as words, A · Bᵀ)."""
    rows, cols = 128, 16
    a, a_raw = _operand(a_type, rows)
    b, b_raw = _operand(b_type, cols)
    memory = np.zeros(_B - _A + 512, np.uint8)
    memory[:4096], memory[_B - _A :] = _image(a_raw), _image(b_raw)
    formats = {"f16": 0, "f32": 1, "s32": 2}[accumulator] << 4
    formats |= _CODES[a_type][0] << 7 | _CODES[b_type][0] << 10 | cols // 8 << 17 | rows // 16 << 24
    idesc = formats | extra
    mma = f"tcgen05.mma.cta_group::1.kind::{kind} [%r10], %rd3, %rd4, {idesc}{words}"
    text = f"""
        add.u64 %rd3, %rd2, {_descriptor(0)}; add.u64 %rd4, %rd2, {_descriptor(_B - _A)};
        setp.ne.u32 %p5, %t, 0;
        {mma}, %p5; {mma}, %p1;
        """
    before = ""
    if words:
        names = ", ".join(["%r20"] * cols)
        lanes = "mov.b32 %r21, 1; mov.b32 %r22, 0; mov.b32 %r23, -1; mov.b32 %r24, 0x80000000;"
        store = f"tcgen05.st.sync.aligned.32x32b.x{cols}.b32 [%r12], {{{names}}};"
        before = f"{lanes} mov.b32 %r20, 77; {store}"
    return _run(memory, text, cols, before=before), a @ b.T


@pytest.mark.parametrize(
    ("kind", "a", "b", "accumulator"),
    [
        ("f16", "f16", "f16", "f32"), ("f16", "bf16", "bf16", "f32"), ("f16", "f16", "f16", "f16"),
        ("tf32", "tf32", "tf32", "f32"), ("f8f6f4", "e4m3", "e5m2", "f32"),
        ("f8f6f4", "e5m2", "e4m3", "f16"), ("f8f6f4", "e2m1", "e3m2", "f32"),
        ("f8f6f4", "e2m3", "e4m3", "f32"), ("i8", "s8", "u8", "s32"), ("i8", "u8", "u8", "s32"),
    ],
)  # fmt: skip
def test_kinds_of_mma(kind: str, a: str, b: str, accumulator: str) -> None:
    got, product = _mma(kind, a, b, accumulator)
    if accumulator == "f16":
        values = got.astype(np.uint16).view(np.float16)
    else:
        values = got.view(np.float32 if accumulator == "f32" else np.int32)
    np.testing.assert_array_equal(values, 2 * product)


def test_a_negated_operand() -> None:
    got, product = _mma("f16", "f16", "f16", "f32", extra=1 << 13)
    np.testing.assert_array_equal(got.view(np.float32), -2 * product)


def test_disabled_lanes_keep_what_they_hold() -> None:
    got, product = _mma("f16", "f16", "f16", "f32", words=", {%r21, %r22, %r23, %r24}")
    kept = np.zeros(128, bool)
    kept[[0, 127]] = True
    kept[64:96] = True
    np.testing.assert_array_equal(got[kept], 77)
    np.testing.assert_array_equal(got.view(np.float32)[~kept], 2 * product[~kept])


@pytest.mark.parametrize(
    ("idesc", "message"),
    [(1 << 4 | 1 << 2, "ask for sparsity"), (2 << 4, "ask for"), (1 << 4 | 5 << 7, "types")],
)
def test_instruction_descriptors_that_the_kind_lacks(idesc: int, message: str) -> None:
    with pytest.raises(SimFault, match=message):
        _mma("f16", "f16", "f16", "f16", extra=idesc)


@pytest.mark.parametrize(
    "row",
    rows("accumulator_layouts", "further", "further_columns"),
    ids=lambda row: f"{row['cols']} from {row['from_col']}",
)
def test_accumulators_of_a_pair_with_64_rows_each(row: dict[str, Any]) -> None:
    """Where CuTe has them: the right half of the columns in the upper lanes."""
    tm = TensorMemory(CtaPlace(0, 1, PTX))
    held: Any = SimpleNamespace(column=0, columns=COLUMNS)
    tm.allocations[0] = held
    column, lane = np.arange(COLUMNS, dtype=np.uint32)[:, None], np.arange(LANES, dtype=np.uint32)
    tm.columns[...] = column * LANES + lane
    site: Any = SimpleNamespace(what="mma", loc=None)
    agent: Any = None
    count = len(row["columns"])
    words = tensor_operand(agent, site, tm, 0, 64, 2 * count, pair=True).words()
    first = row["from_col"]
    expected = np.array(row["columns"])[None, :] * LANES + np.array(row["lanes"])[:, None]
    np.testing.assert_array_equal(words[:, first : first + count], expected)


# -- loads, stores and copies ------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [*rows("tmem_load_store_registers", "rows"), *rows("tmem_load_store_registers", "further")],
    ids=lambda row: f"{row['shape']}.x{row['num']}",
)
def test_registers_of_loads_and_stores(row: dict[str, Any]) -> None:
    """Where CuTe has them."""
    _, _, lanes, columns = _places(row["shape"], row["num"])
    np.testing.assert_array_equal(lanes.T, row["lanes"])
    np.testing.assert_array_equal(columns.T, row["columns"])


def test_words_are_packed_and_unpacked() -> None:
    """A register holds the lower halves of two columns."""
    names = ", ".join(f"%r{20 + i}" for i in range(4))
    words = "\n".join(f"mad.lo.u32 %r{20 + i}, %t, 65536, {i + 1};" for i in range(4))
    before = f"{words} tcgen05.st.sync.aligned.32x32b.x4.unpack::16b.b32 [%r12], {{{names}}};"
    got = _run(np.zeros(16, np.uint8), "", 8, before=before)
    thread = np.arange(128)
    for i in range(4):
        np.testing.assert_array_equal(got[:, 2 * i], i + 1)
        np.testing.assert_array_equal(got[:, 2 * i + 1], thread)
    packed = ", ".join(f"%r{100 + i}" for i in range(4))
    after = f"tcgen05.ld.sync.aligned.32x32b.x4.pack::16b.b32 {{{packed}}}, [%r12];"
    got = _run(np.zeros(16, np.uint8), "", 4, before=before, after=after)
    np.testing.assert_array_equal(got, thread[:, None] << 16 | np.arange(1, 5))


@pytest.mark.parametrize(
    ("form", "rows", "columns"),
    [("128x256b", 128, 8), ("128x128b", 128, 4), ("64x128b.warpx2::02_13", 64, 4),
     ("32x128b.warpx4", 32, 4)],
)  # fmt: skip
@pytest.mark.parametrize("seed", [0, 1])
def test_copies_from_shared_memory(form: str, rows: int, columns: int, seed: int) -> None:
    raw = _RANDOM.integers(0, 256, (rows, 32), np.uint8)
    text = f"""
        add.u64 %rd3, %rd2, {_descriptor(0)};
        tcgen05.cp.cta_group::1.{form} [%r10], %rd3;
        """
    got = _run(_image(raw), text, columns, seed=seed)
    expected = np.ascontiguousarray(raw[:, : 4 * columns]).view(np.uint32)
    np.testing.assert_array_equal(got, np.tile(expected, (128 // rows, 1)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tcgen05.mma.ws.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;", "tcgen05.mma.ws"),
        ("tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, {1, 2}, %p1;", "2 words"),
        ("tcgen05.cp.cta_group::1.4x256b [%r1], %rd1;", "4x256b"),
        ("tcgen05.cp.cta_group::1.128x256b.b8x16.b4x16_p64 [%r1], %rd1;", "b8x16"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 48;", "48 columns"),
        ("tcgen05.ld.red.sync.aligned.32x32b.x2.min.f32 {%r1, %r2}, %r3, [%r4];", "'.red'"),
    ],
)
def test_forms_that_are_not_modelled_are_refused(text: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run(text, arch="sm_100a")
