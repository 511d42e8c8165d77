"""Instructions by which lanes of a warp learn of each other, and branches of several ways."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import apply, run
from tilepipe.errors import SimFault
from tilepipe.ptx import load

LANE = np.arange(32, dtype=np.uint32)


@pytest.mark.parametrize(("mode", "by"), [("idx", 31), ("bfly", 16)])
def test_a_value_of_a_lane_that_takes_no_part_is_a_fault(mode: str, by: int) -> None:
    text = f"""
        setp.lt.u32 %p1, %t, 16;
        @%p1 shfl.sync.{mode}.b32 %r1, %t, {by}, 31, 0xffff;
        """
    with pytest.raises(SimFault, match=r"lane 0 takes the value of lane (31|16), which does not"):
        run(text, np.zeros(32, np.uint32))


def test_lanes_past_the_end_of_a_part_of_a_warp_may_go_unused() -> None:
    text = """
        cvt.rn.f32.u32 %r1, %t;
        mov.b32 %r2, %r1;
        setp.ge.u32 %p1, %t, 16;
        @%p1 bra OUT;
        """ + "".join(
        f"shfl.sync.down.b32 %r3, %r2, {by}, 31, 0xffff; add.f32 %r2, %r2, %r3;"
        for by in (8, 4, 2, 1)
    )
    got = apply(text + "OUT: mov.b32 %o, %r2;", LANE, out=np.float32)
    assert got[0] == 120
    assert np.isnan(got[8:16]).all()  # what lanes beyond the 16 take part in
    assert (got[16:] == LANE[16:]).all()


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize("index", [3, 0xFFFFFFFF])
def test_an_index_beyond_the_labels_of_a_branch_is_a_fault(uniform: bool, index: int) -> None:
    text = f"""
        mov.u32 %r1, {index};
        {"" if uniform else "setp.eq.u32 %p1, %t, 5; selp.b32 %r1, %r1, 0, %p1;"}
        list: .branchtargets A, B, C;
        brx.idx %r1, list;
        A: B: C: st.global.u32 [%a0], %t;
        """
    with pytest.raises(SimFault, match=rf"brx.idx %r1, list: index {index} of 3 labels"):
        run(text, np.zeros(32, np.uint32))


def test_a_vector_of_a_parameter_may_go_to_registers_that_vary() -> None:
    source = """.version 9.0 .target sm_90a .address_size 64
        .visible .entry k(.param .u64 out, .param .align 16 .b8 given[16]) {
        .reg .pred %p<2>; .reg .b32 %r<9>; .reg .f32 %f<2>; .reg .b64 %rd<3>;
        mov.u32 %r0, %tid.x; ld.param.u64 %rd1, [out]; mad.wide.u32 %rd2, %r0, 16, %rd1;
        mov.b32 %r1, %r0; mov.b32 %r2, %r0; mov.b32 %f1, 0f3F800000; mov.b32 %r4, 0;
        setp.gt.u32 %p1, %r0, 3;
        @%p1 ld.param.v4.b32 {%r1, %r2, %f1, %r4}, [given];
        add.f32 %f1, %f1, 0f3F800000;
        st.global.v4.b32 [%rd2], {%r1, %r2, %f1, %r4}; ret; }"""
    out = np.zeros((32, 4), np.uint32)
    given = np.arange(4, dtype=np.float32)
    load(source)["k"].bind([out, given.tobytes()], grid=1, block=32).run()
    bits = given.view(np.uint32)
    two, three = (int(np.float32(i).view(np.uint32)) for i in (2, 3))
    assert out[3].tolist() == [3, 3, two, 0]
    assert out[4].tolist() == [bits[0], bits[1], three, bits[3]]


def test_fns_finds_bits_up_and_down() -> None:
    given = np.array([0b1011_0100] * 32, np.uint32)
    text = "mov.b32 %r1, 3; fns.b32 %r2, %i0, %r1, {}; mov.b32 %o, %r2;"
    assert apply(text.format(1), given, out=np.uint32)[0] == 4
    assert apply(text.format(2), given, out=np.uint32)[0] == 5
    assert apply(text.format(-1), given, out=np.uint32)[0] == 2
    assert apply(text.format(-2), given, out=np.uint32)[0] == 0xFFFFFFFF
    assert apply(text.format(0), given, out=np.uint32)[0] == 0xFFFFFFFF
