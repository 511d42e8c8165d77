"""Bulk and tensor copies, and tensor maps that a kernel changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.errors import BindError, ExitError, PtxError, RaceError, SimFault
from tilepipe.machine.memory import tensor_map
from tilepipe.ptx import Argument, Launch, TensorMap, load

Array = npt.NDArray[Any]
ELECTED = "setp.eq.u32 %p0, %t, 0;"
WAIT = """
    WAITING: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
    @!%p1 bra WAITING;
"""
SHARED = (
    ".shared .align 1024 .b8 tile[4096]; .shared .align 8 .b64 bar; .shared .align 128 .b8 m[128];"
)
BEGIN = f"""
    {ELECTED}
    @%p0 mbarrier.init.shared.b64 [bar], 1;
    @%p0 fence.mbarrier_init.release.cluster;
    bar.sync 0;
"""
END = "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"


def run(text: str, *arguments: Argument, maps: int = 0) -> Launch:
    """Runs a kernel of one warp; `map0` .. are its first parameters, the others pointers."""
    before = SHARED
    if not maps:
        made = kernel(text, len(arguments), before=before)
    else:
        names = [f".param .align 64 .b8 map{i}[128]" for i in range(maps)]
        names += [f".param .u64 array{i}" for i in range(len(arguments) - maps)]
        bases = "".join(f"ld.param.u64 %b{i}, [array{i}];" for i in range(len(arguments) - maps))
        for i in range(maps):
            bases += f"mov.b64 %rd{30 + i}, map{i}; cvta.param.u64 %rd{30 + i}, %rd{30 + i};"
        made = load(f"""
            .version 9.0
            .target sm_90a
            .address_size 64
            {before}
            .visible .entry k({", ".join(names)}) {{
            .reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %rd<40>; .reg .b64 %b<9>; .reg .b32 %t;
            mov.u32 %t, %tid.x;
            {bases}
            {text}
            ret;
            }}""")["k"]
    launch = made.bind(arguments, grid=1, block=32)
    launch.run()
    return launch


LOAD = """
    @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
    @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
        [tile], [%rd30, {0, 0}], [bar];
"""


def test_a_load_by_a_map_that_begins_before_its_array() -> None:
    """Its address may be mapped by nobody, where a load can fault; stores may use such a map."""
    a, c = np.arange(8 * 32, dtype=np.uint32).reshape(8, 32), np.zeros((8, 32), np.uint32)
    # row 8 of the map is row 0 of the array
    early_a, early_c = (TensorMap(x, (8, 32), shape=(16, 32), before=8 * 128) for x in (a, c))
    store = (
        "@%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd31, {0, 8}], [tile];"
    )
    text = f"{BEGIN} {LOAD} {WAIT} {store} {END}"
    run(text, TensorMap(a, (8, 32)), early_c, maps=2)
    assert (c == a).all()
    text = f"{BEGIN} {LOAD.replace('{0, 0}', '{0, 8}')} {WAIT}"
    with pytest.raises(SimFault, match=r"'map0' is encoded at .*, where no array lies") as found:
        run(text, early_a, c, maps=1)
    assert "let addresses wrap round" in str(found.value)


@pytest.mark.parametrize("kind", ["add", "min", "max", "and", "or", "xor", "inc", "dec"])
def test_a_reduction_of_a_box(kind: str) -> None:
    rng = np.random.default_rng(3)
    a, c = (rng.integers(0, 1 << 31, (8, 32), np.uint32) for _ in range(2))
    want = {
        "add": a + c, "min": np.minimum(a, c), "max": np.maximum(a, c), "and": a & c, "or": a | c,
        "xor": a ^ c, "inc": np.where(c >= a, 0, c + 1),
        "dec": np.where((c == 0) | (c > a), a, c - 1),
    }[kind]  # fmt: skip
    text = f"""{BEGIN} {LOAD} {WAIT}
        @%p0 cp.reduce.async.bulk.tensor.2d.global.shared::cta.{kind}.tile.bulk_group
            [%rd31, {{0, 0}}], [tile];
        {END}"""
    run(text, TensorMap(a, (8, 32), 128), TensorMap(c, (8, 32), 128), maps=2)
    assert (c == want).all()


def test_a_store_that_a_whole_warp_issues_is_advised_against() -> None:
    a, c = np.arange(256, dtype=np.uint32).reshape(8, 32), np.zeros((8, 32), np.uint32)
    to = "cp{}.async.bulk.tensor.2d.global.shared::cta{}.tile.bulk_group [%rd31, {{0, 0}}], [tile];"
    maps = TensorMap(a, (8, 32), 128), TensorMap(c, (8, 32), 128)
    launch = run(f"{BEGIN} {LOAD} {WAIT} {to.format('', '')} {END}", *maps, maps=2)
    assert (c == a).all()
    (advice,) = launch.advice
    assert "32 threads of warp 0 issue the same store: one is enough" in advice
    with pytest.raises(SimFault, match=r"32 threads of warp 0 .* 32 copies are made"):
        run(f"{BEGIN} {LOAD} {WAIT} {to.format('.reduce', '.add')} {END}", *maps, maps=2)


def test_a_reduction_that_tma_does_not_have() -> None:
    a, c = np.zeros((8, 32), np.float32), np.zeros((8, 32), np.float32)
    text = f"""{BEGIN} {LOAD} {WAIT}
        @%p0 cp.reduce.async.bulk.tensor.2d.global.shared::cta.min.tile.bulk_group
            [%rd31, {{0, 0}}], [tile];
        {END}"""
    with pytest.raises(SimFault, match="elements of type f32, which TMA does not reduce by min"):
        run(text, TensorMap(a, (8, 32), 128), TensorMap(c, (8, 32), 128), maps=2)


def test_bulk_copies_and_a_bulk_reduction() -> None:
    a, c = np.arange(64, dtype=np.uint32), np.full(64, 5, np.uint32)
    run(
        f"""{BEGIN}
        @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
        @%p0 cp.async.bulk.prefetch.L2.global [%b0], 256;
        @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
            [tile], [%b0], 256, [bar];
        {WAIT}
        @%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%b1], [tile], 128;
        @%p0 cp.async.bulk.global.shared::cta.bulk_group [%b1+128], [tile+128], 128;
        {END}""",
        a,
        c,
    )
    assert (c[:32] == a[:32] + 5).all()
    assert (c[32:] == a[32:]).all()


STORE = "@%p0 cp.async.bulk.global.shared::cta.bulk_group [%b0], [tile], 128;"


def test_a_committed_store_may_outlive_its_cta_in_practice() -> None:
    """As in DeepGEMM: shared memory is kept until it has been read."""
    fill = f"{ELECTED} mov.u32 %r1, tile; mad.lo.u32 %r1, %t, 4, %r1; st.shared.u32 [%r1], %t;"
    text = f"{fill} fence.proxy.async.shared::cta; bar.sync 0; {STORE}"
    c = np.zeros(32, np.uint32)
    launch = run(f"{text} cp.async.bulk.commit_group;", c)
    assert (c == np.arange(32)).all()
    (advice,) = launch.advice
    assert advice.startswith("store at exit")
    assert "cp.async.bulk.wait_group 0" in advice
    with pytest.raises(ExitError, match="strict rules, store at exit: the CTA exits while a bulk"):
        launch.run(rules="strict")
    with pytest.raises(ExitError, match="was never committed"):
        run(text, c)


GATHER = """
    @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
    @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes
        [tile], [%rd30, {32, 5, 0, -1, 9}], [bar];
"""


def test_four_rows_are_gathered_into_one_box() -> None:
    """Rows that do not exist are zero; the swizzle is that of a box of four rows."""
    a, c = np.arange(8 * 64, dtype=np.uint32).reshape(8, 64), np.zeros((4, 32), np.uint32)
    text = f"""{BEGIN} {GATHER} {WAIT}
        shl.b32 %r1, %t, 4; mov.b32 %r2, tile; add.u32 %r2, %r2, %r1;
        ld.shared.v4.b32 {{%r3, %r4, %r5, %r6}}, [%r2];
        cvt.u64.u32 %rd1, %r1; add.u64 %rd1, %b0, %rd1;
        st.global.v4.b32 [%rd1], {{%r3, %r4, %r5, %r6}};"""
    run(text, TensorMap(a, (1, 32), 128), c, maps=1)
    expected = np.zeros((4, 32), np.uint32)
    for row, index in enumerate((5, 0, -1, 9)):
        line = a[index, 32:] if 0 <= index < 8 else np.zeros(32, np.uint32)
        for part in range(8):
            expected[row, 4 * (part ^ row) :][:4] = line[4 * part :][:4]
    assert (c == expected).all()


def test_four_rows_are_scattered() -> None:
    a, c = np.arange(8 * 32, dtype=np.uint32).reshape(8, 32), np.zeros((16, 32), np.uint32)
    text = f"""{BEGIN} {LOAD} {WAIT}
        @%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group
            [%rd31, {{0, 7, 3, 15, 0}}], [tile];
        {END}"""
    run(text, TensorMap(a, (8, 32)), TensorMap(c, (1, 32)), maps=2)
    expected = np.zeros_like(c)
    expected[[7, 3, 15, 0]] = a[:4]
    assert (c == expected).all()


def test_a_box_of_several_rows_is_not_gathered() -> None:
    a = np.zeros((8, 64), np.uint32)
    with pytest.raises(SimFault, match=r"has the box \(32, 2\); one that gathers or scatters"):
        run(f"{BEGIN} {GATHER} {WAIT}", TensorMap(a, (2, 32)), maps=1)


def test_each_lane_copies_a_row_of_its_own() -> None:
    a, c = np.arange(32 * 4, dtype=np.uint32).reshape(32, 4), np.zeros((32, 4), np.uint32)
    text = f"""{BEGIN}
        @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 512;
        bar.warp.sync -1;
        shl.b32 %r1, %t, 4; mov.b32 %r2, tile; add.u32 %r2, %r2, %r1;
        xor.b32 %r3, %r1, 496; cvt.u64.u32 %rd1, %r3; add.u64 %rd1, %b0, %rd1;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 16, [bar];
        {WAIT}
        cvt.u64.u32 %rd2, %r1; add.u64 %rd2, %b1, %rd2;
        cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2], 16;
        {END}"""
    run(text, a, c)
    assert (c == a[::-1]).all()


def test_lanes_that_copy_the_same_are_still_a_fault() -> None:
    text = f"""{BEGIN}
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
            [tile], [%b0], 16, [bar];"""
    with pytest.raises(SimFault, match="32 threads of warp 0 issue it, so 32 copies are made"):
        run(text, np.zeros(4, np.uint32))


@pytest.mark.parametrize("kind", ["add.u32", "min.s32", "max.u32", "inc.u32", "xor.b32"])
def test_a_bulk_reduction_in_shared_memory(kind: str) -> None:
    """PTX ISA, cp.reduce.async.bulk: it completes on an mbarrier."""
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0, 1 << 31, 32, np.uint32) for _ in range(2))
    c = np.zeros(32, np.uint32)
    want = {
        "add.u32": a + b, "min.s32": np.minimum(a, b), "max.u32": np.maximum(a, b),
        "inc.u32": np.where(b >= a, 0, b + 1), "xor.b32": a ^ b,
    }[kind]  # fmt: skip
    text = f"""{BEGIN}
        shl.b32 %r1, %t, 2; mov.b32 %r2, tile; add.u32 %r2, %r2, %r1;
        cvt.u64.u32 %rd1, %r1; add.u64 %rd2, %b0, %rd1; add.u64 %rd3, %b1, %rd1;
        ld.global.b32 %r3, [%rd2]; st.shared.b32 [%r2], %r3;
        ld.global.b32 %r3, [%rd3]; st.shared.b32 [%r2+512], %r3;
        fence.proxy.async.shared::cta;
        bar.warp.sync -1;
        @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 128;
        @%p0 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{kind}
            [tile+512], [tile], 128, [bar];
        {WAIT}
        ld.shared.b32 %r3, [%r2+512]; add.u64 %rd3, %b2, %rd1; st.global.b32 [%rd3], %r3;"""
    run(text, a, b, c)
    np.testing.assert_array_equal(c, want)


def test_an_interleaved_layout_is_refused() -> None:
    map_ = tensor_map.TensorMapFields(tensor_map.BY_NAME["u32"], 1 << 40, (32, 8), (128,), (32, 8))
    raw = tensor_map.replaced(tensor_map.encode(map_), "interleave_layout", 0, 2)
    given = np.concatenate([np.frombuffer(raw, np.uint8), np.zeros(128, np.uint8)])
    with pytest.raises(
        SimFault, match=r"its layout is interleaved \(code 2\), which is not modelled"
    ):
        run(f"{BEGIN} mov.b64 %rd30, %b0; {LOAD} {WAIT}", given)


def changed(fence: str) -> str:
    """Copies the tensor map of array 0 to shared memory, points it at array 1, publishes it in
    array 2, and loads a box with it.
    """
    return f"""{BEGIN}
        shl.b32 %r1, %t, 2;
        cvt.u64.u32 %rd1, %r1;
        add.u64 %rd2, %b0, %rd1;
        ld.global.b32 %r2, [%rd2];
        mov.b32 %r3, m;
        add.u32 %r3, %r3, %r1;
        st.shared.b32 [%r3], %r2;
        bar.warp.sync -1;
        @%p0 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [m], %b1;
        @%p0 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [m], 1, 4;
        bar.warp.sync -1;
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned
            [%b2], [m], 128;
        {fence}
        bar.warp.sync -1;
        mov.b64 %rd30, %b2;
        {LOAD} {WAIT}
        mov.b32 %r4, tile;
        add.u32 %r4, %r4, %r1;
        ld.shared.b32 %r5, [%r4+0];
        ld.shared.b32 %r6, [%r4+512];
        add.u64 %rd3, %b3, %rd1;
        st.global.b32 [%rd3], %r5;
        st.global.b32 [%rd3+128], %r6;
        """


def changed_arguments() -> list[Array]:
    u32 = tensor_map.BY_NAME["u32"]
    of_old = tensor_map.TensorMapFields(u32, 1 << 40, (32, 8), (128,), (32, 8))
    raw = np.frombuffer(tensor_map.encode(of_old), np.uint8).copy()
    new = np.arange(256, dtype=np.uint32) + 7
    aligned = np.zeros(256, np.uint8)
    return [raw, new, aligned, np.ones(64, np.uint32)]


def test_a_tensor_map_that_the_kernel_changes_and_publishes() -> None:
    given = changed_arguments()
    run(changed("fence.proxy.tensormap::generic.acquire.gpu [%b2], 128;"), *given)
    assert (given[3][:32] == given[1][:32]).all()
    assert (given[3][32:] == 0).all()  # row 4 is beyond the new extent


def test_a_changed_tensor_map_needs_its_fence() -> None:
    with pytest.raises(RaceError, match=r"no fence.proxy.tensormap::generic.acquire on it"):
        run(changed(""), *changed_arguments())


def test_bytes_that_are_no_tensor_map() -> None:
    text = f"{BEGIN} mov.b64 %rd30, %b0; {LOAD} {WAIT}"
    with pytest.raises(SimFault, match="not the bytes of a tensor map"):
        run(text, np.arange(128, dtype=np.uint8))
    with pytest.raises(SimFault, match="there is no tensor map at"):
        run(text, np.zeros(64, np.uint8))


@pytest.mark.parametrize(
    "text",
    [
        "cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        " [tile], [%b0, {0, 0}], [bar];",
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes"
        " [tile], [%b0, {0, 0, 0, 0, 0}], [bar];",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes"
        " [tile], [%b0, {0, 0}], [bar];",
        "cp.async.bulk.tensor.2d.global.shared::cta.tile::gather4.bulk_group"
        " [%b0, {0, 0, 0, 0, 0}], [tile];",
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [tile], [%b0], 16, [bar], 1;",
        "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%b0], [tile], 16, 1;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.and.u32 [%b0], [tile], 16;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.b32 [%b0], [tile], 16;",
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.f32"
        " [tile], [tile], 16, [bar];",
        "cp.reduce.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.add.u32"
        " [tile], [%b0], 16, [bar];",
        "cp.async.bulk.prefetch.tensor.2d.L2.global [%b0, {0}];",
        "cp.async.bulk.prefetch.L2.global %b0, 16;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.min.f32 [%b0], [tile], 16;",
        "tensormap.replace.tile.colour.shared::cta.b1024.b32 [m], 1;",
    ],
)
def test_what_is_not_modelled(text: str) -> None:
    with pytest.raises(PtxError, match="is not modelled"):
        _ = kernel(text, 1, before=SHARED).code


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        (b"123", "'.u64 array0' has 8 bytes, and its argument (bytes) 3"),
        (1 << 64, "'.u64 array0': 18446744073709551616 does not fit in 8 bytes"),
        ("text", "'.u64 array0': expected an array, a ptx.TensorMap, a ptx.Struct, a number"),
        (TensorMap(np.zeros((8, 16), np.float16), (8, 12)), "a row of its box has 24 bytes"),
        (TensorMap(np.zeros((8, 16), np.complex64), (8, 16)), "no elements of complex64"),
        (TensorMap(np.zeros((8, 16), np.float16), (8, 16), 48), "a swizzle of 0, 32, 64, 128"),
    ],
)
def test_arguments_that_do_not_fit(argument: Any, said: str) -> None:
    with pytest.raises(BindError) as caught:
        kernel("", 1).bind([argument], grid=1, block=32)
    assert said in str(caught.value)
