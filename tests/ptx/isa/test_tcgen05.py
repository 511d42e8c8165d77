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


def _idesc(a: str, b: str, accumulator: str, rows: int, cols: int) -> int:
    formats = {"f16": 0, "f32": 1, "s32": 2}[accumulator] << 4
    return formats | _CODES[a][0] << 7 | _CODES[b][0] << 10 | cols // 8 << 17 | rows // 16 << 24


def _mma(
    kind: str,
    a_type: str,
    b_type: str,
    accumulator: str,
    extra: int = 0,
    words: str = "",
    *,
    extents: tuple[int, int] = (128, 16),
    name: str = "mma.cta_group::1",
    uses: tuple[str, str] = ("", ""),
    last: str = "",
    idesc: int | None = None,
) -> tuple[Array, Array]:
    """(what the accumulator's lanes hold after two MMAs as words, A · Bᵀ). `uses`: what follows the
    kind in each. `last`: what follows the operands of the second.
    """
    rows, cols = extents
    a, a_raw = _operand(a_type, rows)
    b, b_raw = _operand(b_type, cols)
    memory = np.zeros(_B - _A + 32 * cols, np.uint8)
    memory[: 32 * rows], memory[_B - _A :] = _image(a_raw), _image(b_raw)
    if idesc is None:
        idesc = _idesc(a_type, b_type, accumulator, rows, cols) | extra
    first, second = (
        f"tcgen05.{name}.kind::{kind}{use} [%r10], %rd3, %rd4, {idesc}{words}" for use in uses
    )
    text = f"""
        add.u64 %rd3, %rd2, {_descriptor(0)}; add.u64 %rd4, %rd2, {_descriptor(_B - _A)};
        setp.ne.u32 %p5, %t, 0;
        {first}, %p5; {second}, %p1{last};
        """
    before = ""
    if words:
        names = ", ".join(["%r20"] * cols)
        lanes = "mov.b32 %r21, 1; mov.b32 %r22, 0; mov.b32 %r23, -1; mov.b32 %r24, 0x80000000;"
        store = f"tcgen05.st.sync.aligned.32x32b.x{cols}.b32 [%r12], {{{names}}};"
        before = f"{lanes} mov.b32 %r20, 77; {store}"
    registers = cols if name.startswith("mma.cta") else cols * rows // 128
    return _run(memory, text, registers, before=before), a @ b.T


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


def test_the_accumulator_is_divided_by_a_power_of_two() -> None:
    got, product = _mma("f16", "f16", "f16", "f32", last=", 2")
    np.testing.assert_array_equal(got.view(np.float32), 1.25 * product)


def test_a_fault_of_an_instruction_descriptor_names_the_field() -> None:
    with pytest.raises(SimFault, match=r"is 264; allowed values are multiples"):
        _mma("f16", "f16", "f16", "f32", idesc=_idesc("f16", "f16", "f32", 128, 264))


@pytest.mark.parametrize("rows", [32, 64, 128])
@pytest.mark.parametrize(("kind", "a", "accumulator"), [("f16", "f16", "f32"), ("i8", "s8", "s32")])
def test_weights_stationary(rows: int, kind: str, a: str, accumulator: str) -> None:
    """The columns of fewer than 128 rows go on in the lanes below (PTX ISA, layouts D, E and G)."""
    uses = ".collector::b2::fill", ".collector::b2::lastuse"
    got, product = _mma(
        kind, a, a, accumulator, extents=(rows, 64), name="mma.ws.cta_group::1", uses=uses
    )
    wide = 64 * rows // 128
    values = got.view(np.float32 if accumulator == "f32" else np.int32)
    for lane in range(128):
        part = slice(lane // rows * wide, lane // rows * wide + wide)
        np.testing.assert_array_equal(values[lane], 2 * product[lane % rows, part])


def test_weights_stationary_have_their_own_n() -> None:
    with pytest.raises(SimFault, match=r"is 16; allowed values are 64, 128 and 256"):
        _mma("f16", "f16", "f16", "f32", name="mma.ws.cta_group::1")


def _wide_image(columns: Array) -> Array:
    """tf32 with M or N contiguous, (8, extent): per 32 of these an atom of 4 lines of 128 bytes for
    each 4 of K, whose 32 bytes are swizzled by the line.
    """
    atoms = columns.reshape(2, 4, -1, 4, 8)  # [K by 4, line, extent by 32, 32 bytes, element]
    out = np.empty((2, columns.shape[1] // 32, 4, 4, 8), np.float32)
    for line in range(4):
        for part in range(4):
            out[:, :, line, part ^ line] = atoms[:, line, :, part]
    return out.reshape(-1).view(np.uint8)


@pytest.mark.slow
def test_tf32_with_m_and_n_contiguous() -> None:
    """Only the swizzle of 128 bytes with an atomicity of 32 is there for it."""
    rows, cols = 128, 32
    a = _RANDOM.integers(-9, 9, (8, rows)).astype(np.float32)
    b = _RANDOM.integers(-9, 9, (8, cols)).astype(np.float32)
    memory = np.concatenate([_wide_image(a), _wide_image(b)])
    idesc = _idesc("tf32", "tf32", "f32", rows, cols) | 3 << 15

    def text(code: int) -> str:
        """From one 32 of M or N to the next 512 bytes, from one 4 of K to the next all of them."""
        a_bits, b_bits = (
            at >> 4 | 512 >> 4 << 16 | 16 * extent >> 4 << 32 | 1 << 46 | code << 61
            for at, extent in ((0, rows), (32 * rows, cols))
        )
        return f"""
            add.u64 %rd3, %rd2, {a_bits}; add.u64 %rd4, %rd2, {b_bits};
            setp.ne.u32 %p5, %t, 0;
            tcgen05.mma.cta_group::1.kind::tf32 [%r10], %rd3, %rd4, {idesc}, %p5;"""

    got = _run(memory, text(1), cols).view(np.float32)
    np.testing.assert_array_equal(got, a.T @ b)
    with pytest.raises(SimFault, match="an atomicity of 32 is for tf32 with M or N contiguous"):
        _run(memory, text(2), cols)


_STORED = "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r12+{at}], {{{names}}};"


def _stored(words: Array, at: int) -> tuple[Array, str]:
    """(memory, code that puts its 8 words of each thread into tensor memory)."""
    loads = "\n".join(f"ld.shared.b32 %r{30 + i}, [%r28+{4 * i}];" for i in range(8))
    names = ", ".join(f"%r{30 + i}" for i in range(8))
    code = f"""
        mov.u32 %r28, memory; mad.lo.u32 %r28, %t, 32, %r28;
        {loads}
        {_STORED.format(at=at, names=names)}"""
    return np.ascontiguousarray(words).view(np.uint8).reshape(-1), code


def _moved(rows: Array) -> Array:
    """Each lane gets what the next one holds, but for the last of each 32."""
    out = rows.copy()
    for lane in range(128):
        if lane % 32 != 31:
            out[lane] = rows[lane + 1]
    return out


@pytest.mark.parametrize("name", ["shift.cta_group::1.down", "shift.down.cta_group::1"])
def test_rows_are_shifted_within_the_lanes_of_a_warp(name: str) -> None:
    words = _RANDOM.integers(0, 1 << 32, (128, 8), np.uint32)
    memory, before = _stored(words, 0)
    shift = f"add.u32 %r29, %r10, {64 << 16}; tcgen05.{name} [%r29];"
    got = _run(memory, shift, 8, before=before)
    expected = words.copy()
    expected[64:96] = _moved(words)[64:96]
    np.testing.assert_array_equal(got, expected)
    with pytest.raises(SimFault, match="it shifts from lane 16; the lane is a multiple of 32"):
        _run(memory, shift.replace(str(64 << 16), str(16 << 16)), 8, before=before)


def _from_tensor_memory(a_words: Array, b_raw: Array, idesc: int, kind: str, uses: str) -> Array:
    """The accumulator after one MMA, and after a second one without `uses`, (2, 128, 16)."""
    memory, before = _stored(a_words, 32)
    memory = np.concatenate([memory, _image(b_raw)])
    found = []
    for count in (1, 2):
        mmas = [f"tcgen05.mma.cta_group::1.kind::{kind}{use}" for use in (uses, "")[:count]]
        issued = "\n".join(f"{mma} [%r10], [%r29], %rd4, {idesc}, %p5;" for mma in mmas)
        text = f"""
            add.u32 %r29, %r10, 32; add.u64 %rd4, %rd2, {_descriptor(4096)};
            setp.ne.u32 %p5, %t, 0; {issued}"""
        found.append(_run(memory, text, 16, before=before))
    return np.stack(found)


@pytest.mark.slow
def test_a_shift_after_the_product() -> None:
    """.ashift: the next MMA finds A shifted."""
    (a, a_raw), (b, b_raw) = _operand("f16", 128), _operand("f16", 16)
    idesc = _idesc("f16", "f16", "f32", 128, 16)
    once, twice = _from_tensor_memory(a_raw.view(np.uint32), b_raw, idesc, "f16", ".ashift")
    np.testing.assert_array_equal(once.view(np.float32), a @ b.T)
    np.testing.assert_array_equal(twice.view(np.float32), _moved(a) @ b.T)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["e2m1", "e3m2", "e2m3"])
def test_narrow_elements_in_tensor_memory_stand_in_the_middle_of_a_byte(kind: str) -> None:
    values = np.array([[(7 * row + k) % 5 - 2 for k in range(32)] for row in range(128)])
    codes = values.astype(_CODES[kind][1]).view(np.uint8)
    codes &= (1 << _PACKED[kind]) - 1
    b, b_raw = _operand("e4m3", 16)
    idesc = _idesc(kind, "e4m3", "f32", 128, 16)
    held = codes << (2 if kind == "e2m1" else 1)
    once, _ = _from_tensor_memory(held.view(np.uint32), b_raw, idesc, "f8f6f4", "")
    np.testing.assert_array_equal(once.view(np.float32), values @ b.T)
    with pytest.raises(SimFault, match="bits set outside of the middle"):
        _from_tensor_memory((codes | 128).view(np.uint32), b_raw, idesc, "f8f6f4", "")


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
    words = tensor_operand(agent, site, tm, 0, 64, 2 * count, folds=2).words()
    first = row["from_col"]
    expected = np.array(row["columns"])[None, :] * LANES + np.array(row["lanes"])[:, None]
    np.testing.assert_array_equal(words[:, first : first + count], expected)


# -- pairs -------------------------------------------------------------------------------

_CLUSTER = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
_PAIR = _KERNEL
for _old, _new in (
    ("cta_group::1", "cta_group::2"),
    ("[bar], 1;", "[bar], 1; @%p1 fence.mbarrier_init.release.cluster;"),
    ("mov.u32 %r1, 0;", "mov.u32 %r1, 0; mov.u32 %r15, %cluster_ctarank;"),
    ("add.u64 %rd1, %rd1, %b0;", "add.u64 %rd1, %rd1, %b0; mad.wide.u32 %rd1, %r15, {size}, %rd1;"),
    ("before_thread_sync;\n    bar.sync 0;", f"before_thread_sync; {_CLUSTER}"),
    ("@!%p1 bra WAIT;", "setp.eq.and.u32 %p7, %r15, 0, %p1; mov.u16 %h1, 3; @!%p7 bra WAIT;"),
    ("cluster.b64 [bar];", "cluster.multicast::cluster.b64 [bar], %h1;"),
    ("{row}, %b1;", "{row}, %b1; mad.wide.u32 %a1, %r15, {out}, %a1;"),
    ("{stores}\n    bar.sync 0;", f"{{stores}} {_CLUSTER}"),
):
    assert _old in _PAIR
    _PAIR = _PAIR.replace(_old, _new)


def _run_pair(memories: list[Array], text: str, registers: int, before: str) -> Array:
    """As `_run`, with the memory of each CTA of a pair: (2, 128, registers)."""
    memory = np.stack(memories)
    assert memory.shape[1] % 2048 == 0
    out = np.zeros((2, 128, registers), np.uint32)
    names = ", ".join(f"%r{100 + i}" for i in range(registers))
    body = _PAIR.format(
        fills=memory.shape[1] // 2048, size=memory.shape[1], before=before, text=text,
        after=f"tcgen05.ld.sync.aligned.32x32b.x{registers}.b32 {{{names}}}, [%r12];",
        row=4 * registers, out=512 * registers,
        stores="\n".join(f"st.global.b32 [%a1+{4 * i}], %r{100 + i};" for i in range(registers)),
    )  # fmt: skip
    run(
        body, memory, out, threads=128, arch="sm_100a", smem=memory.shape[1], cluster=2,
        before=".extern .shared .align 1024 .b8 memory[];",
    )  # fmt: skip
    return out


def _of_pair(product: Array) -> Array:
    """A product of 128 × 64 as the lanes of both CTAs hold it: (2, 128, 32)."""
    quarters = product.reshape(2, 64, 2, 32).transpose(0, 2, 1, 3)
    return quarters.reshape(2, 128, 32)


@pytest.mark.slow
def test_a_of_a_pair_in_tensor_memory_stands_there_twice() -> None:
    (a, a_raw), (b, b_raw) = _operand("f16", 128), _operand("f16", 64)
    idesc = _idesc("f16", "f16", "f32", 128, 64)
    text = f"""
        add.u32 %r29, %r10, 32; add.u64 %rd4, %rd2, {_descriptor(4096)}; setp.ne.u32 %p5, %t, 0;
        tcgen05.mma.cta_group::2.kind::f16 [%r10], [%r29], %rd4, {idesc}, %p5;"""

    def memories(changed: int = 0) -> list[Array]:
        found = []
        for rank in range(2):
            half = a_raw.view(np.uint32)[64 * rank : 64 * rank + 64]
            held = np.concatenate([half, half ^ changed])
            image = np.zeros(2048, np.uint8)
            image[:1024] = _image(b_raw[32 * rank : 32 * rank + 32])
            found.append(np.concatenate([held.view(np.uint8).reshape(-1), image]))
        return found

    before = _stored(np.zeros(1, np.uint32), 32)[1]
    got = _run_pair(memories(), text, 32, before)
    np.testing.assert_array_equal(got.view(np.float32), _of_pair(a @ b.T))
    with pytest.raises(SimFault, match="A in tensor memory differs between lanes 0 and 64"):
        _run_pair(memories(1), text, 32, before)


@pytest.mark.slow
def test_scale_factors_of_a_pair_with_64_rows_each() -> None:
    """Those of the right half of B's rows are in the upper 64 lanes, as the columns are."""
    (a, a_raw), (b, b_raw) = _operand("e4m3", 128), _operand("e4m3", 64)
    exponents_a, exponents_b = (_RANDOM.integers(124, 131, n, np.uint32) for n in (128, 64))
    idesc = 8 << 17 | 1 << 23 | 1 << 27
    memories = []
    for rank in range(2):
        held = np.zeros((128, 8), np.uint32)
        for lane in range(128):
            row = 64 * rank + lane % 32
            held[lane, :2] = exponents_a[row], exponents_a[row + 32]
            held[lane, 2] = exponents_b[lane // 64 * 32 + lane % 32]
        image = np.zeros(4096, np.uint8)
        image[:2048] = _image(a_raw[64 * rank : 64 * rank + 64])
        image[2048:3072] = _image(b_raw[32 * rank : 32 * rank + 32])
        memories.append(np.concatenate([held.view(np.uint8).reshape(-1), image]))
    text = f"""
        add.u32 %r29, %r10, 64; add.u32 %r16, %r10, 66; setp.ne.u32 %p5, %t, 0;
        add.u64 %rd3, %rd2, {_descriptor(4096)}; add.u64 %rd4, %rd2, {_descriptor(6144)};
        tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale.scale_vec::1X
            [%r10], %rd3, %rd4, {idesc}, [%r29], [%r16], %p5;"""
    got = _run_pair(memories, text, 32, _stored(np.zeros(1, np.uint32), 64)[1])
    left = a * 2.0 ** (exponents_a.astype(np.float64) - 127)[:, None]
    right = b * 2.0 ** (exponents_b.astype(np.float64) - 127)[:, None]
    np.testing.assert_array_equal(got.view(np.float32), _of_pair(left @ right.T))


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


def test_lane_0_is_the_first_that_a_warp_reaches_in_practice() -> None:
    """As in DeepGEMM, whose epilogues give each warp of a warpgroup the address of the first."""
    before = "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], {%t};"
    after = "and.b32 %r12, %r12, 0xffff; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r100}, [%r12];"
    got = _run(np.zeros(16, np.uint8), "", 1, before=before, after=after)
    np.testing.assert_array_equal(got[:, 0], np.arange(128))


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
    ("form", "source", "columns"),
    [("128x256b", range(128), 8), ("128x128b", range(128), 4),
     ("64x128b.warpx2::02_13", [*range(64), *range(64)], 4),
     ("64x128b.warpx2::01_23", [*range(32), *range(32), *range(32, 64), *range(32, 64)], 4),
     ("32x128b.warpx4", 4 * [*range(32)], 4)],
)  # fmt: skip
@pytest.mark.parametrize("seed", [0, 1])
def test_copies_from_shared_memory(form: str, source: Any, columns: int, seed: int) -> None:
    """`source`: the row that each lane gets."""
    raw = _RANDOM.integers(0, 256, (max(source) + 1, 32), np.uint8)
    text = f"""
        add.u64 %rd3, %rd2, {_descriptor(0)};
        tcgen05.cp.cta_group::1.{form} [%r10], %rd3;
        """
    got = _run(_image(raw), text, columns, seed=seed)
    expected = np.ascontiguousarray(raw[:, : 4 * columns]).view(np.uint32)
    np.testing.assert_array_equal(got, expected[list(source)])


@pytest.mark.parametrize(("form", "width"), [("b4x16_p64", 4), ("b6x16_p32", 6)])
def test_copies_that_decompress(form: str, width: int) -> None:
    """16 elements at the start of 16 bytes become the middle bits of 16 bytes."""
    codes = _RANDOM.integers(0, 1 << width, (128, 2, 16), np.uint8)
    raw = np.full((128, 2, 16), 0xFF, np.uint8)  # the padding means nothing
    for row in range(128):
        for half in range(2):
            packed = sum(int(c) << width * i for i, c in enumerate(codes[row, half]))
            raw[row, half, : 2 * width] = list(packed.to_bytes(2 * width, "little"))
    text = f"""
        add.u64 %rd3, %rd2, {_descriptor(0)};
        tcgen05.cp.cta_group::1.128x256b.b8x16.{form} [%r10], %rd3;
        """
    got = _run(_image(raw.reshape(128, 32)), text, 8)
    expected = (codes.reshape(128, 32) << (8 - width) // 2).view(np.uint32)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tcgen05.mma.sp.cta_group::1.kind::f16 [%r1], %rd1, %rd2, [%r3], %r2, %p1;", "mma.sp"),
        ("tcgen05.mma.ws.sp.cta_group::1.kind::f16 [%r1], %rd1, %rd2, [%r3], %r2, %p1;", "ws.sp"),
        ("tcgen05.mma.ws.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1, %rd3;", "a mask of"),
        ("tcgen05.mma.ws.cta_group::2.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;", "cta_group::2"),
        (
            "tcgen05.mma.ws.cta_group::1.kind::mxf4.block_scale [%r1], %rd1, %rd2, %r2, [%r3],"
            " [%r4], %p1;",
            "'.ws' of kind::mxf4",
        ),
        (
            "tcgen05.mma.cta_group::1.kind::f16.collector::a::use.collector::a::fill"
            " [%r1], %rd1, %rd2, %r2, %p1;",
            "collector::a::fill",
        ),
        (
            "tcgen05.mma.cta_group::1.kind::f16.collector::b0::use [%r1], %rd1, %rd2, %r2, %p1;",
            "collector::b0",
        ),
        ("tcgen05.mma.cta_group::1.kind::f16.ashift [%r1], %rd1, %rd2, %r2, %p1;", "'.ashift'"),
        (
            "tcgen05.mma.cta_group::1.kind::f16.ashift.collector::a::use [%r1], [%r3], %rd2, %r2,"
            " %p1;",
            "'.ashift'",
        ),
        ("tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1, 16;", "scale-input-d 16"),
        ("tcgen05.mma.cta_group::1.kind::i8 [%r1], %rd1, %rd2, %r2, %p1, 1;", "6 operands"),
        ("tcgen05.shift.cta_group::1.up [%r1];", "'.up'"),
        ("tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, {1, 2}, %p1;", "2 words"),
        ("tcgen05.cp.cta_group::1.4x256b [%r1], %rd1;", "4x256b"),
        ("tcgen05.cp.cta_group::1.128x256b.b8x16 [%r1], %rd1;", "b6x16_p32"),
        ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 48;", "48 columns"),
        ("tcgen05.ld.red.sync.aligned.32x32b.x2.min.f32 {%r1, %r2}, %r3, [%r4];", "'.red'"),
    ],
)
def test_forms_that_are_not_modelled_are_refused(text: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run(text, arch="sm_100a")


def _committing(address: str) -> str:
    """An allocation whose address goes to a generic address, and a commit to another."""
    return f"""
        .reg .b64 %g<4>;
        .shared .align 8 .b64 bar;
        .shared .align 4 .b32 place;
        setp.eq.u32 %p1, %t, 0;
        @%p1 mbarrier.init.shared.b64 [bar], 1;
        bar.warp.sync -1;
        mov.u64 %g0, place; cvta.shared.u64 %g0, %g0;
        mov.u64 %g1, bar; cvta.shared.u64 %g1, %g1; mov.u64 %g2, bar;
        tcgen05.alloc.cta_group::1.sync.aligned.b32 [%g0], 32;
        bar.warp.sync -1;
        ld.shared.b32 %r1, [place];
        @%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [{address}];
        WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;
        @!%p2 bra WAIT;
        tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;"""


def test_operands_without_a_space_have_generic_addresses() -> None:
    run(_committing("%g1"), arch="sm_100a")
    with pytest.raises(SimFault, match=r"lies in global memory; the operand is in shared memory"):
        run(_committing("%g2"), arch="sm_100a")
    with pytest.raises(SimFault, match=r"address 0x7f0000000000 lies in global memory"):
        run(_committing("%b0"), np.zeros(4, np.uint64), arch="sm_100a")
