"""Loads, stores, atomic operations and copies by threads."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.ptx.isa.programs import run
from tilepipe.errors import PtxError, RaceError, SimFault
from tilepipe.ptx import load

Array = npt.NDArray[Any]
LANE = np.arange(32)
_RANDOM = np.random.default_rng(7)


@pytest.mark.parametrize(
    ("load", "store"),
    [
        ("ld.global", "st.global"),
        ("ld.global.nc", "st.global"),
        ("ld.global.nc.L1::no_allocate.L2::128B", "st.global.wt"),
        ("ld.weak.global.ca", "st.weak.global.cs"),
        ("ld.volatile.global", "st.volatile.global"),
        ("ld.relaxed.gpu.global.L1::evict_last", "st.relaxed.sys.global.L1::no_allocate"),
        ("ld.acquire.cluster.global", "st.release.gpu.global"),
        ("ld.global.L1::evict_first.L2::cache_hint.L2::64B",
         "st.global.L1::evict_first.L2::cache_hint"),
        ("ldu.global", "st"),
        ("ld", "st.global"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("vector", [".b8", ".v2.b32", ".v4.f32", ".v2.b64", ".b128", ".v2.u16"])
def test_loads_and_stores_move_bytes(load: str, store: str, vector: str) -> None:
    count = int(vector[2]) if vector[1] == "v" else 1
    bits = int(vector.rsplit(".", 1)[1][1:])
    data = _RANDOM.integers(0, 256, (32, bits // 8 * count), np.uint8)
    out = np.zeros_like(data)
    stem = {8: "%h", 16: "%h", 32: "%r", 64: "%rd", 128: "%q"}[bits]
    registers = ", ".join(f"{stem}{i + 3}" for i in range(count))
    registers = f"{{{registers}}}" if count > 1 else registers
    hints = [", %rd1" if "cache_hint" in text else "" for text in (load, store)]
    run(
        f"""
        createpolicy.fractional.L2::evict_last.b64 %rd1, 1.0;
        mad.wide.u32 %a0, %t, {data.shape[1]}, %b0;
        mad.wide.u32 %a1, %t, {data.shape[1]}, %b1;
        {load}{vector} {registers}, [%a0]{hints[0]};
        {store}{vector} [%a1], {registers}{hints[1]};
        """,
        data,
        out,
    )
    np.testing.assert_array_equal(out, data)


def test_vectors_of_32_bytes() -> None:
    data = _RANDOM.integers(0, 1 << 32, (32, 8), np.uint32)
    out = np.zeros_like(data)
    registers = ", ".join(f"%r{i}" for i in range(8))
    run(
        f"""
        mad.wide.u32 %a0, %t, 32, %b0;
        mad.wide.u32 %a1, %t, 32, %b1;
        ld.global.nc.L2::evict_first.v8.b32 {{{registers}}}, [%a0];
        st.global.v8.b32 [%a1], {{{registers}}};
        """,
        data,
        out,
        arch="sm_100a",
    )
    np.testing.assert_array_equal(out, data)


def test_narrow_loads_are_extended_by_their_type() -> None:
    data = LANE.astype(np.int8) - 16
    out = np.zeros(32, np.int32)
    run("ld.global.s8 %r1, [%a0]; st.global.b32 [%a1], %r1;", data, out)
    np.testing.assert_array_equal(out, data)
    run("ld.global.u8 %r1, [%a0]; st.global.b32 [%a1], %r1;", data, out)
    np.testing.assert_array_equal(out, data.view(np.uint8))


def test_one_local_address_is_another_byte_in_each_lane() -> None:
    out = np.zeros(32, np.uint32)
    run(
        """
        .local .align 8 .b8 stack[16];
        mov.b64 %rd1, stack;
        cvta.local.u64 %rd2, %rd1;
        st.local.b32 [%rd1+4], %t;
        ld.b32 %r1, [%rd2+4];
        st.global.b32 [%a0], %r1;
        """,
        out,
    )
    np.testing.assert_array_equal(out, LANE)


@pytest.mark.parametrize(
    ("load", "store"),
    [
        ("ld.acquire.gpu.global", "st.release.gpu.global"),
        ("ld.global.acquire.gpu", "st.global.release.gpu"),  # as CUTLASS has it
        ("ld.global.relaxed.sys", "st.mmio.relaxed.sys.global"),
        ("ld.volatile.global", "st.global.volatile"),
    ],
)
def test_the_space_stands_before_or_after_the_order(load: str, store: str) -> None:
    out = np.zeros_like(LANE)
    run(f"{load}.b32 %r1, [%a0]; {store}.b32 [%a1], %r1;", LANE.copy(), out)
    np.testing.assert_array_equal(out, LANE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ld.global.v4.b64 %rd1, [%b0];", "4 registers|1 registers"),
        ("ld.shared.v8.b32 %r1, [%r2];", "a vector of 32 bytes"),
        ("ld.relaxed.global.b32 %r1, [%b0];", "expected .cta"),
        ("ld.gpu.global.b32 %r1, [%b0];", "'.gpu'"),
        ("st.mmio.global.b32 [%b0], %r1;", "expected .relaxed"),
        ("ld.shared.nc.b32 %r1, [%r2];", "'.nc' of another space"),
        ("st.acquire.gpu.global.b32 [%b0], %r1;", "acquire"),
        ("ld.global.L2::cache_hint.b32 %r1, [%b0];", "2 operands; expected 3"),
        ("ld.global.L2::evict_last.b32 %r1, [%b0];", "of other than .v8.b32"),
        ("prefetch.global.L3 [%b0];", "L3"),
        ("atom.global.add.f16x2 %r1, [%b0], %r2;", "this combination"),
        ("atom.global.max.f32 %r1, [%b0], %r2;", "f32"),
        ("red.global.exch.b32 [%b0], %r2;", "exch"),
        ("multimem.red.add.u32 [%b0], %r2;", "the opcode 'multimem'"),
        ("cp.async.ca.shared.global [%r1], [%b0], 5;", "5 bytes"),
    ],
)
def test_forms_that_the_isa_lacks_are_refused(text: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run(text, np.zeros(4, np.uint32))


# -- atomic operations -------------------------------------------------------------------

_WORDS = _RANDOM.integers(0, 1 << 32, 32, np.uint32)


def _reference(name: str, start: Any, given: Array) -> Any:
    value = start
    for g in given:
        match name:
            case "add":
                value = value + g
            case "min":
                value = min(value, g)
            case "max":
                value = max(value, g)
            case "and":
                value = value & g
            case "or":
                value = value | g
            case "xor":
                value = value ^ g
            case "inc":
                value = type(value)(0) if value >= g else value + type(value)(1)
            case "dec":
                value = g if value == 0 or value > g else value - type(value)(1)
    return value


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("opcode", ["atom", "red"])
@pytest.mark.parametrize(
    ("name", "kind", "dtype"),
    [
        ("add", "u32", "u4"), ("add", "s32", "i4"), ("add", "u64", "u8"), ("add", "f32", "f4"),
        ("add", "f64", "f8"), ("min", "s32", "i4"), ("max", "u32", "u4"), ("min", "u64", "u8"),
        ("max", "s64", "i8"), ("and", "b32", "u4"), ("or", "b64", "u8"), ("xor", "b32", "u4"),
        ("inc", "u32", "u4"), ("dec", "u32", "u4"),
    ],
)  # fmt: skip
def test_atomic_operations(space: str, opcode: str, name: str, kind: str, dtype: str) -> None:
    given = (_WORDS % 1000).astype(dtype) if kind[0] != "b" else _WORDS.astype(dtype)
    target = np.array([77], dtype)
    found = np.zeros(32, dtype)
    expected = _reference(name, target[0], given)
    register = "%r1" if given.itemsize == 4 else "%rd1"
    old = "%r2" if given.itemsize == 4 else "%rd2"
    bits = 8 * given.itemsize
    at = "[%b0]" if space == "global" else "[box]"
    destination = f"{old}, " if opcode == "atom" else ""
    text = f"""
        .shared .align 8 .b8 box[8];
        ld.global.b{bits} {register}, [%a1];
        setp.eq.u32 %p1, %t, 0;
        ld.global.b{bits} {old}, [%b3];
        @%p1 st.shared.b{bits} [box], {old};
        bar.warp.sync -1;
        {opcode}.relaxed.gpu.{space}.{name}.{kind} {destination}{at}, {register};
        {f"st.global.b{bits} [%a2], {old};" if destination else ""}
        bar.warp.sync -1;
        ld.shared.b{bits} {old}, [box];
        @%p1 st.global.b{bits} [%b3], {old};
        """
    result = target.copy()
    with np.errstate(over="ignore"):
        run(text, target, given, found, result)
        assert (target if space == "global" else result)[0] == expected
        if opcode == "atom":
            before = [_reference(name, 77 + given[0] * 0, given[:i]) for i in range(32)]
            np.testing.assert_array_equal(found, np.array(before, dtype))


@pytest.mark.parametrize(
    ("form", "dtype", "count"),
    [
        ("add.noftz.f16x2", np.float16, 2), ("add.noftz.bf16x2", ml_dtypes.bfloat16, 2),
        ("add.v2.f32", np.float32, 2), ("add.v4.f32", np.float32, 4),
        ("add.noftz.v4.f16x2", np.float16, 8), ("max.noftz.v2.bf16x2", ml_dtypes.bfloat16, 4),
    ],
)  # fmt: skip
def test_atomic_operations_on_vectors(form: str, dtype: Any, count: int) -> None:
    target = np.arange(count).astype(dtype)
    given = _RANDOM.integers(-3, 4, (32, count)).astype(dtype)
    words = count * given.itemsize // 4
    registers = ", ".join(f"%r{i}" for i in range(words))
    registers = f"{{{registers}}}" if words > 1 else registers
    vector = f".v{words}" if words > 1 else ""
    numbers = np.concatenate([target[None], given]).astype(np.float64)
    expected = numbers.sum(0) if form.startswith("add") else numbers.max(0)
    run(
        f"""
        mad.wide.u32 %a1, %t, {4 * words}, %b1;
        ld.global{vector}.b32 {registers}, [%a1];
        red.relaxed.gpu.global.{form} [%b0], {registers};
        """,
        target,
        given,
    )
    np.testing.assert_array_equal(target.astype(np.float64), expected)


def test_compare_and_swap_and_exchange() -> None:
    slots, old = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    run(
        """
        and.b32 %r1, %t, 0xfffffffe;
        atom.acq_rel.gpu.global.cas.b32 %r2, [%a0], %r1, 100;
        st.global.b32 [%a1], %r2;
        """,
        slots,
        old,
    )
    np.testing.assert_array_equal(old, LANE)
    np.testing.assert_array_equal(slots, np.where(LANE % 2 == 0, 100, LANE))
    box = np.zeros(4, np.uint32)
    run(
        """
        mov.b64 %rd1, 5; mov.b64 %rd2, 6; mov.b128 %q1, {%rd1, %rd2};
        setp.eq.u32 %p1, %t, 3;
        @%p1 atom.global.exch.b128 %q2, [%b0], %q1;
        """,
        box,
    )
    np.testing.assert_array_equal(box, [5, 0, 6, 0])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_clusters_draw_tickets_from_a_counter(seed: int) -> None:
    counter, tickets = np.zeros(1, np.uint32), np.full(6, 99, np.uint32)
    run(
        """
        setp.ne.u32 %p1, %t, 0;
        @%p1 ret;
        atom.add.u32 %r1, [%b0], 1;
        mov.u32 %r2, %ctaid.x;
        mad.wide.u32 %rd1, %r2, 4, %b1;
        st.global.b32 [%rd1], %r1;
        """,
        counter,
        tickets,
        grid=6,
        seed=seed,
    )
    assert counter[0] == 6
    assert sorted(tickets) == list(range(6))


def test_an_ordinary_access_races_with_an_atomic_one() -> None:
    with pytest.raises(RaceError, match="race on 'box': "):
        run(
            """
            .shared .align 4 .b32 box[1];
            setp.lt.u32 %p1, %t, 32;
            @%p1 st.shared.b32 [box], 0;
            @!%p1 red.shared.add.u32 [box], 1;
            """,
            threads=64,
        )


# -- copies by threads -------------------------------------------------------------------

_COPY = """
    .shared .align 16 .b8 buffer[512];
    mov.u32 %r1, buffer;
    mad.lo.u32 %r2, %t, 16, %r1;
    mad.wide.u32 %a0, %t, 16, %b0;
    mad.wide.u32 %a1, %t, 16, %b1;
    {issue}
    {wait}
    ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r2];
    st.global.v4.b32 [%a1], {{%r4, %r5, %r6, %r7}};
    """


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("issue", "kept"),
    [
        ("cp.async.cg.shared.global [%r2], [%a0], 16;", 16),
        ("cp.async.ca.shared.global.L2::128B [%r2], [%a0], 16, %r3;", 5),
        ("cp.async.ca.shared.global [%r2], [%a0], 16, %p1;", 0),
    ],
)
@pytest.mark.parametrize("wait", ["cp.async.wait_all;", "commit"])
def test_threads_copy(issue: str, kept: int, wait: str, seed: int) -> None:
    data = _RANDOM.integers(1, 256, (32, 16), np.uint8)
    out = np.zeros_like(data)
    if wait == "commit":
        wait = "cp.async.commit_group; cp.async.wait_group 0;"
    issue = f"mov.u32 %r3, 5; add.u32 %r3, %r3, 0; setp.ge.u32 %p1, %t, 0; {issue}"
    run(_COPY.format(issue=issue, wait=wait), data, out, seed=seed)
    data[:, kept:] = 0
    np.testing.assert_array_equal(out, data)


def test_reading_before_the_group_is_waited_for_is_a_race() -> None:
    issue = "cp.async.cg.shared.global [%r2], [%a0], 16; cp.async.commit_group;"
    data = np.zeros((32, 16), np.uint8)
    with pytest.raises(RaceError, match="generic proxy"):
        run(_COPY.format(issue=issue, wait="cp.async.wait_group 1;"), data, data.copy())


@pytest.mark.parametrize("noinc", [".noinc", ""])
@pytest.mark.parametrize("seed", [0, 3])
def test_an_mbarrier_counts_copies_by_threads(noinc: str, seed: int) -> None:
    data, out = _RANDOM.integers(0, 256, (32, 16), np.uint8), np.zeros((32, 16), np.uint8)
    issue = f"""
        .shared .align 8 .b64 bar;
        setp.eq.u32 %p1, %t, 0;
        @%p1 mbarrier.init.shared.b64 [bar], 32;
        bar.sync 0;
        cp.async.cg.shared.global [%r2], [%a0], 16;
        cp.async.mbarrier.arrive{noinc}.shared.b64 [bar];
        {"" if noinc else "mbarrier.arrive.shared.b64 _, [bar];"}
        """
    wait = """
        WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;
        @!%p2 bra WAIT;
        """
    run(_COPY.format(issue=issue, wait=wait), data, out, seed=seed)
    np.testing.assert_array_equal(out, data)


# -- stores to another CTA that signal ---------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("reduces", [False, True])
def test_stores_signal_an_mbarrier_of_the_peer(reduces: bool, seed: int) -> None:
    out = np.zeros(64, np.uint32)
    store = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r3], %r7, [%r4];"
    if reduces:
        store = (
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32"
            " [%r3], %r7, [%r4];"
        )
    run(
        f"""
        .shared .align 16 .b8 buffer[128];
        .shared .align 8 .b64 bar;
        setp.eq.u32 %p1, %t, 0;
        @%p1 mbarrier.init.shared.b64 [bar], 1;
        @%p1 fence.mbarrier_init.release.cluster;
        mov.u32 %r1, buffer;
        mad.lo.u32 %r2, %t, 4, %r1;
        st.shared.b32 [%r2], 1000;
        barrier.cluster.arrive.release;
        barrier.cluster.wait.acquire;
        @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 128;
        mov.u32 %r5, %cluster_ctarank;
        xor.b32 %r6, %r5, 1;
        mapa.shared::cluster.u32 %r3, %r2, %r6;
        mov.u32 %r8, bar;
        mapa.shared::cluster.u32 %r4, %r8, %r6;
        mad.lo.u32 %r7, %r5, 100, %t;
        {store}
        WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;
        @!%p2 bra WAIT;
        ld.shared.b32 %r9, [%r2];
        mad.lo.u32 %r10, %r5, 32, %t;
        mad.wide.u32 %rd1, %r10, 4, %b0;
        st.global.b32 [%rd1], %r9;
        barrier.cluster.arrive;
        barrier.cluster.wait;
        """,
        out,
        cluster=2,
        seed=seed,
    )
    expected = np.concatenate([100 + LANE, LANE]) + 1000 * reduces
    np.testing.assert_array_equal(out, expected)


def test_atomics_on_local_memory_are_faults() -> None:
    text = """
        .local .align 4 .b8 stack[4];
        mov.b64 %rd1, stack; cvta.local.u64 %rd2, %rd1; atom.add.u32 %r1, [%rd2], 1;
        """
    with pytest.raises(SimFault, match=r"an atomic operation on \.local memory"):
        run(text)


def test_a_register_may_hold_a_parameter_and_then_what_differs_between_lanes() -> None:
    text = """
    .version 9.0
    .target sm_90a
    .address_size 64
    .visible .entry k(.param .u64 to, .param .f32 factor, .param .u32 step) .reqntid 32 {
        .reg .b32 %r<3>; .reg .f32 %f<3>; .reg .b64 %d<3>; .reg .pred %p;
        mov.u32 %r1, %tid.x;
        ld.param.u64 %d1, [to];
        mad.wide.u32 %d1, %r1, 4, %d1;
        ld.param.f32 %f1, [factor];
        cvt.rn.f32.u32 %f2, %r1;
        setp.lt.u32 %p, %r1, 16;
        @%p mul.f32 %f1, %f1, %f2;
        st.global.f32 [%d1], %f1;
        ret;
    }
    """
    out = np.zeros(32, np.float32)
    load(text)["k"].bind([out, 1.5, 3], grid=1).run()
    lanes = np.arange(32, dtype=np.float32)
    assert (out == np.where(lanes < 16, 1.5 * lanes, 1.5)).all()


_FILLED = """
    .shared .align 16 .b8 held[1024];
    shl.b32 %r1, %t, 5; mov.b32 %r2, held; add.u32 %r2, %r2, %r1;
    mov.b32 %r3, -1;
    st.shared.v4.b32 [%r2], {%r3, %r3, %r3, %r3}; st.shared.v4.b32 [%r2+16], {%r3, %r3, %r3, %r3};
    bar.warp.sync -1;
"""
_SEEN = """
    bar.warp.sync -1;
    cvt.u64.u32 %rd9, %r1; add.u64 %rd9, %b0, %rd9;
    ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r2]; st.global.v4.b32 [%rd9], {%r4, %r5, %r6, %r7};
    ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r2+16];
    st.global.v4.b32 [%rd9+16], {%r4, %r5, %r6, %r7};
"""


@pytest.mark.parametrize(
    "text",
    [
        "setp.eq.u32 %p1, %t, 0; @%p1 st.bulk.weak.shared::cta [held+40], %r8, 0;",
        "setp.eq.u32 %p1, %t, 3; mov.u64 %rd1, held; cvta.shared.u64 %rd1, %rd1;"
        " @%p1 st.bulk [%rd1+40], 96, 0;",
        # 12 lanes with 8 bytes each
        "setp.lt.u32 %p1, %t, 12; mov.b32 %r9, held; mad.lo.u32 %r9, %t, 8, %r9;"
        " @%p1 st.bulk.shared::cta [%r9+40], 8, 0;",
    ],
)
def test_zeros_in_bulk(text: str) -> None:
    out = np.zeros(1024, np.uint8)
    run(f"{_FILLED} mov.b32 %r8, 96; {text} {_SEEN}", out, arch="sm_100a")
    expected = np.full(1024, 255, np.uint8)
    expected[40:136] = 0
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (
            "st.bulk.shared::cta [held+4], 8, 0;",
            SimFault,
            r"address 'held' \+ 4 \(0x404\) is not a multiple",
        ),
        ("st.bulk.shared::cta [held], 12, 0;", SimFault, "size 12 is not a multiple of 8"),
        ("st.bulk [%b0], 8, 0;", SimFault, "lies in global memory; the operand is in shared"),
        ("st.bulk.shared::cta [held], 8, 1;", PtxError, "the value 1 is not modelled"),
        ("st.bulk.shared::cta [held+1020], 2048, 0;", SimFault, "0x7fc.* multiple of 8"),
        (
            "st.bulk.shared::cta [held+1016], 4096, 0;",
            SimFault,
            r"1,016\.\.5,111 of 'held' \(which has 1,024 bytes\), bytes 0x7f8\.\.0x17f7 of shared",
        ),
    ],
)
def test_zeros_in_bulk_elsewhere(text: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        run(f"{_FILLED} {text}", np.zeros(4, np.uint8), arch="sm_100a")


@pytest.mark.parametrize(("value", "races"), [("%tid.x", True), ("7", False)])
def test_lanes_that_store_different_values_to_one_place_race(value: str, races: bool) -> None:
    """In global memory as in shared memory; equal values do not."""
    text = (
        ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 x) {"
        f".reg .b32 %v; .reg .b64 %x; mov.u32 %v, {value}; ld.param.u64 %x, [x];"
        " st.global.u32 [%x], %v; ret; }"
    )
    launch = load(text).only().bind([np.zeros(1, np.int32)], grid=1, block=32)
    if races:
        with pytest.raises(
            RaceError, match=r"different values to 'x' \(0x7f0+\) in one instruction"
        ):
            launch.run()
    else:
        launch.run()
