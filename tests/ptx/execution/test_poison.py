"""Poison, which is loaded from memory that nothing has written, travels with the values made of it;
it is a fault where it decides or leaves.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.ptx.isa.programs import kernel
from tilepipe.errors import PoisonError
from tilepipe.ptx import Launch

# %r1, %f1: poison in all lanes; %p1: false, %p2: true; %a0: the lane's place in the output
_START = """
    .shared .align 16 .b8 box[512];
    .local .align 8 .b8 own[32];
    .reg .f32 %f<9>; .reg .f64 %d<3>;
    mad.wide.u32 %a0, %t, 4, %b0;
    mov.u32 %r0, box; mad.lo.u32 %r0, %t, 4, %r0;
    mov.u32 %r9, box; mad.lo.u32 %r9, %t, 8, %r9;
    ld.shared.b32 %r1, [%r0]; mov.b32 %f1, %r1;
    setp.ne.u32 %p1, %t, %t; setp.eq.u32 %p2, %t, %t;
    """
_STORE = "st.global.b32 [%a0], %r2;"


def _launch(text: str, threads: int = 32) -> Launch:
    made = kernel(_START + text, 1)
    return made.bind([np.zeros(64, np.uint32)], grid=1, block=threads)


_CLEAN = {
    "nothing": "",
    "is selected away": "selp.b32 %r2, %r1, 7, %p1;" + _STORE,
    "is selected away after arithmetic": "mul.f32 %f1, %f1, %f1; mov.b32 %r1, %f1;"
    "selp.b32 %r2, %r1, 7, %p1;" + _STORE,
    "is masked": "and.b32 %r2, %r1, 0;" + _STORE,
    "is shifted out": "shl.b32 %r2, %r1, 16; and.b32 %r2, %r2, 0xffff;" + _STORE,
    "is the half that is not taken": "mov.b32 %r3, 5; prmt.b32 %r3, %r3, %r1, 0x7610;"
    "cvt.u32.u16 %r2, %r3; cvt.u16.u32 %h1, %r3; cvt.u32.u16 %r2, %h1;" + _STORE,
    "is the half that is unpacked and left": "mov.b32 %r3, 5; prmt.b32 %r3, %r3, %r1, 0x7610;"
    "mov.b32 {%h1, %h2}, %r3; cvt.u32.u16 %r2, %h1;" + _STORE,
    "is overwritten": "mov.b32 %r2, %r1; mov.b32 %r2, 3;" + _STORE,
    "is overwritten in memory": "st.shared.b32 [%r0], %r1; st.shared.b32 [%r0], 1;"
    "ld.shared.b32 %r2, [%r0];" + _STORE,
    "is in other lanes": "setp.lt.u32 %p3, %t, 8; @!%p3 mov.b32 %r1, 0;"
    "shfl.sync.idx.b32 %r2, %r1, 9, 0x1f, -1;" + _STORE,
    "does not change a predicate": "setp.lt.f32 %p3, %f1, 0f00000000; and.pred %p3, %p3, %p1;"
    "selp.b32 %r2, 1, 2, %p3;" + _STORE,
    "of equal values": "setp.lt.f32 %p3, %f1, 0f00000000; selp.b32 %r2, 4, 4, %p3;" + _STORE,
    "is in the other half of a pair": "mov.b32 %r3, 0x3c003c00;"
    "prmt.b32 %r3, %r3, %r1, 0x7610; add.f16x2 %r3, %r3, %r3; and.b32 %r2, %r3, 0xffff;" + _STORE,
    "is stored under a false guard": "mov.b32 %r2, %r1; @%p1 st.global.b32 [%a0], %r2;",
    "is loaded around a loop": "mov.b32 %r5, 0; L: ld.shared.b32 %r1, [%r0];"
    "add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 3; @%p3 bra L; mov.b32 %r2, %r5;" + _STORE,
    "is loaded by lanes apart": "setp.lt.u32 %p3, %t, 8; @%p3 bra A; mov.b32 %r1, 0; A:"
    "selp.b32 %r2, 3, %r1, %p3;" + _STORE,
    "is copied within local memory": "ld.local.b64 %rd1, [own+8]; st.local.b64 [own], %rd1;"
    "st.local.b32 [own+4], 3; ld.local.b32 %r2, [own+4];" + _STORE,
}  # fmt: skip

_USED = {
    "it is stored to global memory": "mov.b32 %r2, %r1;" + _STORE,
    r"st.global.b32 \[%a0\], %r2": "add.f32 %f1, %f1, 0f3F800000; mov.b32 %r2, %f1;" + _STORE,
    r"ld.shared.b32 %r1, \[%r0\], but 128 of 128": "xor.b32 %r2, %r1, %r1; sub.u32 %r2, %r2, %r1;"
    + _STORE,
    r"st.global.b32 \[%a0\], %r3": "selp.b32 %r3, %r1, 7, %p2; st.global.b32 [%a0], %r3;",
    "its guard %p3 decides": "setp.lt.u32 %p3, %r1, 8; @%p3 bra A; mov.b32 %r2, 0; A:",
    r"@%p3 st.global.b32 .*its guard %p3 decides": "setp.lt.u32 %p3, %r1, 8; mov.b32 %r2, 0;"
    "@%p3 st.global.b32 [%a0], %r2;",
    "%r1 decides": "add.u32 %r1, %r1, 4; ld.shared.b32 %r2, [%r1];",
    "%rd1 decides": "cvt.u64.u32 %rd1, %r1; add.u64 %rd1, %rd1, %a0; st.global.b32 [%rd1], %r0;",
    "it is an operand|%r1 decides": "red.global.add.u32 [%a0], %r1;",
    r"atom.shared.add.u32 .*128 of 128": "atom.shared.add.u32 %r2, [%r0], 1;",
    r"st.global.b32 \[%a0\], %r4": "st.shared.b32 [%r0], %r1; ld.shared.b32 %r4, [%r0];"
    "st.global.b32 [%a0], %r4;",
    r"st.global.b32 \[%a0\], %r5": "shfl.sync.bfly.b32 %r5, %r1, 1, 0x1f, -1;"
    "st.global.b32 [%a0], %r5;",
    r"st.global.b32 \[%a0\], %r6": "setp.lt.u32 %p3, %r1, 8; vote.sync.ballot.b32 %r6, %p3, -1;"
    "st.global.b32 [%a0], %r6;",
    r"st.global.b32 \[%a0\], %r7": "mov.b32 %r7, 0; setp.lt.u32 %p3, %r1, 8; @%p3 mov.b32 %r7, 1;"
    "st.global.b32 [%a0], %r7;",
    r"st.global.b32 \[%a0\], %r8": "mov.b32 %r3, 5; prmt.b32 %r3, %r3, %r1, 0x7610;"
    "shr.u32 %r8, %r3, 12; st.global.b32 [%a0], %r8;",
    r"reads local memory \(thread 0: bytes 0x8..0xb\) with ld.local.b32 %r2": "st.local.b32 [own],"
    "1; ld.local.b32 %r2, [own+8];" + _STORE,
    r"with ld.local.b64 %rd1, \[own\+8\], but": "ld.local.b64 %rd1, [own+8];"
    "st.local.b64 [own], %rd1; ld.local.b32 %r2, [own+4];" + _STORE,
}  # fmt: skip


@pytest.mark.parametrize("text", _CLEAN.values(), ids=_CLEAN)
def test_poison_that_neither_decides_nor_leaves(text: str) -> None:
    made = _launch(text)
    made.run()
    verdict = _launch(text).check()
    assert verdict.ok, verdict
    assert not verdict.advice


@pytest.mark.parametrize(("said", "text"), _USED.items(), ids=_USED)
def test_poison_that_decides_or_leaves(said: str, text: str) -> None:
    with pytest.raises(PoisonError) as caught:
        _launch(text).run()
    assert re.search(said, str(caught.value)), caught.value
    assert not _launch(text).check().ok


def test_the_message_names_the_load_and_the_use() -> None:
    with pytest.raises(PoisonError) as caught:
        _launch(f"\nadd.u32 %r2, %r1, 1;\n\n{_STORE}").run()
    said = str(caught.value)
    assert "warp 0 reads bytes 0..127 of 'box' with ld.shared.b32 %r1, [%r0]" in said
    load, use = (int(n) for n in re.findall(r"<ptx>:(\d+)", said)[::-1][:2])
    assert use == load + 5
    assert caught.value.loc is not None
    assert caught.value.loc.line == load


@tp.kernel()
def _selected(ctx: tp.Context, out: Any) -> None:
    box = ctx.smem((1, 32), tp.float32, count=1, swizzle=0, name="box")[0]

    @ctx.role("all", warps=1)
    def all_lanes() -> None:
        loaded = ctx.load(box[0, ctx.lane])
        ctx.store(out[ctx.lane], ctx.select(ctx.lane < 0, loaded, 7.0))


def test_a_traced_program_may_not_load_poison() -> None:
    """Which bytes are poison is one definition; a traced program has no compiler that loads before
    it knows whether it needs to.
    """
    program = _selected.bind(np.zeros(32, np.float32))
    with pytest.raises(PoisonError, match=r"reads box .* but 32 of 32 elements were never"):
        program.run()


_PRODUCT = """
    mov.b32 %r10, 0x3c003c00; mov.b32 %r11, %r10; mov.b32 %r12, %r10; mov.b32 %r13, %r10;
    mov.b32 %r20, 0; mov.b32 %r21, 0; mov.b32 %r22, 0; mov.b32 %r23, 0;
    {given}
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%r20, %r21, %r22, %r23}},
        {{%r10, %r11, %r12, %r13}}, {{%r14, %r15}}, {{%r20, %r21, %r22, %r23}};
    st.global.b32 [%a0], %r{stored};
    """


@pytest.mark.parametrize(
    ("given", "stored", "clean"),
    [
        # the second register of A has rows 8..15, as the third and fourth of the result
        ("mov.b32 %r11, %r1; mov.b32 %r14, %r10; mov.b32 %r15, %r10;", 20, True),
        ("mov.b32 %r11, %r1; mov.b32 %r14, %r10; mov.b32 %r15, %r10;", 22, False),
        ("mov.b32 %r14, %r1; mov.b32 %r15, %r10;", 20, False),
        ("mov.b32 %r14, %r10; mov.b32 %r15, %r10; mov.b32 %r22, %r1;", 21, True),
        ("mov.b32 %r14, %r10; mov.b32 %r15, %r10; mov.b32 %r22, %r1;", 22, False),
    ],
)
def test_rows_and_columns_of_a_product(given: str, stored: int, clean: bool) -> None:
    made = _launch(_PRODUCT.format(given=given, stored=stored))
    assert made.check().ok is clean


_WGMMA = """
    .shared .align 1024 .b8 a[8192]; .shared .align 1024 .b8 b[1024];
    mov.u32 %r3, b; mad.lo.u32 %r3, %t, 8, %r3; st.shared.b64 [%r3], 0;
    mov.u32 %r4, a; mad.lo.u32 %r4, %t, 16, %r4; mov.b32 %r5, 0;
    setp.lt.u32 %p3, %t, {filled};
    @%p3 st.shared.v4.b32 [%r4], {{%r5, %r5, %r5, %r5}};
    fence.proxy.async.shared::cta; bar.sync 0;
    mov.u32 %r6, a; cvt.u64.u32 %rd1, %r6; shr.u64 %rd1, %rd1, 4;
    or.b64 %rd1, %rd1, 0x0000001000080000;
    mov.u32 %r6, b; cvt.u64.u32 %rd2, %r6; shr.u64 %rd2, %rd2, 4;
    or.b64 %rd2, %rd2, 0x0000001000080000;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%f2, %f3, %f4, %f5}}, %rd1, %rd2, 0, 1, 1,
        0, 0;
    wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
    setp.lt.u32 %p4, %t, {stored}; mov.b32 %r2, %f2;
    @%p4 st.global.b32 [%a0], %r2;
    """


@pytest.mark.parametrize(
    ("filled", "stored", "clean"), [(128, 128, True), (64, 64, True), (64, 96, False)]
)
def test_rows_of_wgmma_that_nothing_fills(filled: int, stored: int, clean: bool) -> None:
    """64 of the 128 blocks of 16 bytes are rows 0..31 of A: those of warps 0 and 1."""
    made = kernel(_START + _WGMMA.format(filled=filled, stored=stored), 1)
    verdict = made.bind([np.zeros(128, np.float32)], grid=1, block=128).check()
    assert verdict.ok is clean, verdict
    if not clean:
        assert "PoisonError" in verdict.faults[0].kind
        assert "with wgmma.mma_async" in verdict.faults[0].message
        assert "it is stored to global memory" in verdict.faults[0].message


_COLUMNS = """
    .shared .b32 place;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;
    bar.sync 0;
    ld.shared.b32 %r3, [place];
    mov.b32 %r4, 5;
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r3], {{%r4}};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x2.b32 {{%r4, %r5}}, [%r3];
    tcgen05.wait::ld.sync.aligned;
    mov.b32 %r2, %r{stored};
    {text}
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 32;
    st.global.b32 [%a0], %r2;
    """


@pytest.mark.parametrize(
    ("stored", "text", "said"),
    [
        (4, "", ""),
        (5, "", "stored to global memory"),
        (4, "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r3], {%r5}; tcgen05.wait::st.sync.aligned;",
         "stored to tensor memory"),
    ],
)  # fmt: skip
def test_columns_of_tensor_memory(stored: int, text: str, said: str) -> None:
    text = _COLUMNS.format(stored=stored, text=text)
    made = kernel(_START + text, 1, arch="sm_100a").bind(
        [np.zeros(64, np.uint32)], grid=1, block=32
    )
    verdict = made.check()
    assert verdict.ok is (not said), verdict
    if said:
        assert verdict.faults[0].kind == "PoisonError"
        assert said in verdict.faults[0].message
