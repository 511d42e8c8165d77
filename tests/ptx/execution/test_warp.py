"""Warps of small kernels: divergence, lanes that wait for each other, and what a register holds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tilepipe.errors import PtxError, SimFault
from tilepipe.ptx import load

LANE = np.arange(32)


def run(text: str, threads: int = 32, seed: int = 0) -> npt.NDArray[np.int32]:
    """What each thread leaves in %r9, in a kernel with this body."""
    out = np.full(threads, -1, np.int32)
    kernel = load(
        f"""
        .version 8.7
        .target sm_90a
        .address_size 64
        .visible .entry k(.param .u64 out) {{
        .reg .pred %p<9>; .reg .b32 %r<30>; .reg .b64 %rd<5>;
        mov.u32 %r0, %tid.x;
        mov.u32 %r1, %laneid;
        {text}
        ld.param.u64 %rd0, [out];
        mul.wide.u32 %rd1, %r0, 4;
        add.s64 %rd2, %rd0, %rd1;
        st.global.u32 [%rd2], %r9;
        ret;
        }}
        """
    )["k"]
    kernel.bind([out], grid=1, block=threads).run(seed)
    return out


def test_lanes_take_both_sides_of_a_branch_and_meet() -> None:
    got = run(
        """
        setp.lt.u32 %p1, %r1, 5;
        @%p1 bra LESS;
        mov.u32 %r9, 100;
        bra JOIN;
        LESS: mov.u32 %r9, 7;
        JOIN: vote.sync.ballot.b32 %r2, 1, 0xffffffff;
        popc.b32 %r3, %r2;
        add.u32 %r9, %r9, %r3;
        """
    )
    np.testing.assert_array_equal(got, np.where(LANE < 5, 7, 100) + 32)


def test_each_lane_leaves_a_loop_in_its_own_iteration() -> None:
    """The value of a lane that has left stays, though others compute the register again."""
    got = run(
        """
        mov.u32 %r2, 0;
        LOOP: mul.lo.u32 %r9, %r2, 10;
        add.u32 %r2, %r2, 1;
        setp.le.u32 %p1, %r2, %r1;
        @%p1 bra LOOP;
        """
    )
    np.testing.assert_array_equal(got, LANE * 10)


def test_nested_branches_meet_inside_out() -> None:
    got = run(
        """
        mov.u32 %r9, 0;
        setp.lt.u32 %p1, %r1, 16;
        @!%p1 bra OUT;
        and.b32 %r2, %r1, 1;
        setp.eq.u32 %p2, %r2, 0;
        @!%p2 bra ODD;
        add.u32 %r9, %r9, 1;
        ODD: activemask.b32 %r3;
        popc.b32 %r4, %r3;
        mad.lo.u32 %r9, %r4, 100, %r9;
        OUT: add.u32 %r9, %r9, 5;
        """
    )
    inside = 16 * 100 + (LANE % 2 == 0)
    np.testing.assert_array_equal(got, np.where(LANE < 16, inside, 0) + 5)


def test_lanes_that_have_left_are_not_waited_for() -> None:
    got = run(
        """
        setp.ge.u32 %p1, %r1, 20;
        @%p1 exit;
        activemask.b32 %r2;
        popc.b32 %r9, %r2;
        """
    )
    np.testing.assert_array_equal(got, np.where(LANE < 20, 20, -1))


def test_a_guarded_instruction_keeps_the_other_lanes() -> None:
    got = run(
        """
        mov.u32 %r9, 3;
        setp.gt.u32 %p1, %r1, 30;
        @%p1 mov.u32 %r9, 4;
        @!%p1 add.u32 %r9, %r9, 10;
        """
    )
    np.testing.assert_array_equal(got, np.where(LANE > 30, 4, 13))


def test_diverged_lanes_meet_at_an_instruction_for_all_of_them() -> None:
    """Two lanes groups come to one shfl.sync by different ways round a loop."""
    got = run(
        """
        setp.lt.u32 %p1, %r1, 8;
        @%p1 bra A;
        mov.u32 %r2, 1000;
        bra B;
        A: mov.u32 %r2, 2000;
        B: shfl.sync.bfly.b32 %r9, %r2, 8, 31, 0xffffffff;
        """
    )
    np.testing.assert_array_equal(got, np.where((LANE ^ 8) < 8, 2000, 1000))


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles_take_the_lane_that_the_isa_names(mode: str) -> None:
    got = run(
        f"""
        mul.lo.u32 %r2, %r1, 3;
        shfl.sync.{mode}.b32 %r9|%p1, %r2, 2, {0 if mode == "up" else 0x1F}, 0xffffffff;
        @!%p1 add.u32 %r9, %r9, 1000;
        """
    )
    source = {"up": LANE - 2, "down": LANE + 2, "bfly": LANE ^ 2, "idx": 0 * LANE + 2}[mode]
    valid = (source >= 0) & (source < 32)
    np.testing.assert_array_equal(got, 3 * np.where(valid, source, LANE) + 1000 * ~valid)


def test_brx_separates_lanes_by_their_index() -> None:
    got = run(
        """
        rem.u32 %r2, %r1, 3;
        T: .branchtargets A, B, C;
        brx.idx %r2, T;
        A: mov.u32 %r9, 10; bra END;
        B: mov.u32 %r9, 20; bra END;
        C: mov.u32 %r9, 30; bra END;
        END: add.u32 %r9, %r9, 1;
        """
    )
    np.testing.assert_array_equal(got, (LANE % 3 + 1) * 10 + 1)


def test_elect_names_one_lane_the_same_every_time() -> None:
    got = run(
        """
        mov.u32 %r9, 0;
        elect.sync _|%p1, 0xffffffff;
        @%p1 add.u32 %r9, %r9, 1;
        elect.sync %r2|%p2, 0xffffffff;
        @%p2 add.u32 %r9, %r9, 1;
        """
    )
    assert sorted(got)[-2:] == [0, 2]
    assert got.sum() == 2


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_warps_of_a_cta_meet_at_a_barrier(seed: int) -> None:
    got = run(
        """
        { .shared .align 4 .b32 box[4];
        shr.u32 %r2, %r0, 5;
        mul.lo.u32 %r3, %r2, 4;
        mov.u32 %r4, box;
        add.u32 %r5, %r4, %r3;
        setp.eq.u32 %p1, %r1, 0;
        @%p1 st.shared.u32 [%r5], %r0;
        bar.sync 0;
        ld.shared.u32 %r6, [box];
        ld.shared.u32 %r7, [box+4];
        ld.shared.u32 %r8, [box+8];
        add.u32 %r9, %r6, %r7;
        add.u32 %r9, %r9, %r8; }
        """,
        threads=96,
        seed=seed,
    )
    assert (got == 32 + 64).all()


def test_a_missing_barrier_is_a_race() -> None:
    with pytest.raises(SimFault, match="race"):
        run(
            """
            { .shared .align 4 .b32 box[1];
            shr.u32 %r2, %r0, 5;
            setp.eq.u32 %p1, %r0, 0;
            @%p1 st.shared.u32 [box], %r0;
            ld.shared.u32 %r9, [box]; }
            """,
            threads=64,
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frobnicate.b32 %r9, %r1;", "the opcode 'frobnicate' is not modelled"),
        ("add.wrong.u32 %r9, %r1, 1;", r"PTX line 9: add.wrong.u32"),
        ("add.u32.more %r9, %r1, 1;", "the modifier '.more' is not modelled"),
        ("add.u32 %r9, %r1;", "2 operands; expected 3"),
        ("rem.foo %r9, %r1, 3;", "line 9: rem.foo .*: no form that is modelled"),
        ("mul.hi.foo %r9, %r1, 3;", "line 9: mul.hi.foo"),
        ("clz.foo %r9, %r1;", "line 9: clz.foo"),
        ("mov.b64 {%r1, %r2, %r3}, %rd1;", "line 9: mov.b64"),
    ],
)
def test_what_is_not_modelled_is_refused_before_anything_runs(text: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run(text)


def test_a_register_that_nothing_has_written_is_named() -> None:
    with pytest.raises(SimFault, match=r"%r20 is read, and nothing has written it"):
        run("bra SKIP; mov.u32 %r20, %r1; SKIP: add.u32 %r9, %r20, 1;")


def test_a_lane_that_a_mask_does_not_name_may_not_execute_the_instruction() -> None:
    with pytest.raises(SimFault, match=r"the lanes 0x20 execute it, which its mask 0xffffffdf"):
        run("elect.sync _|%p1, 0xffffffdf; selp.u32 %r9, 1, 0, %p1;")


def test_an_address_that_nothing_has_written_is_named() -> None:
    with pytest.raises(SimFault, match=r"%r4 is read, and nothing has written it"):
        run("bra SKIP; mov.u32 %r4, %r1; SKIP: mbarrier.init.shared.b64 [%r4], 1; mov.u32 %r9, 0;")


def test_a_trap_that_no_lane_comes_to_is_none() -> None:
    assert (run("setp.gt.u32 %p1, %r0, 100; @%p1 trap; mov.u32 %r9, 1;") == 1).all()
    with pytest.raises(SimFault, match="trap"):
        run("setp.gt.u32 %p1, %r0, 30; @%p1 trap; mov.u32 %r9, 1;")


def test_an_integer_moved_to_a_register_is_its_bits() -> None:
    got = run("mov.b32 %r2, 1065353216; add.f32 %r9, %r2, %r2;")
    assert (got.view(np.float32) == 2.0).all()


@pytest.mark.parametrize(
    "body",
    [
        "red.global.add.u32 [%x], 1;",
        "atom.global.add.u32 %r, [%x], 1;",
        "@%p bra A; red.global.add.u32 [%x], 1; A:",
        "bra A; B: red.global.add.u32 [%x], 1; bra C; A: bra B; C:",
        "red.global.add.u32 [%x], 1; @%q ret;",
        "call f, ();",
    ],
)
def test_lanes_that_run_past_the_last_instruction_are_done(body: str) -> None:
    out = np.zeros(1, np.uint32)
    text = f"""
        .version 8.7
        .target sm_90a
        .address_size 64
        .global .u32 v;
        .func f() {{ .reg .b64 %x; mov.u64 %x, v; red.global.add.u32 [%x], 1; }}
        .visible .entry k(.param .u64 p) {{
        .reg .b64 %x; .reg .b32 %r; .reg .pred %p, %q;
        ld.param.u64 %x, [p];
        mov.u32 %r, %tid.x;
        setp.ne.u32 %p, %r, 0;
        setp.eq.u32 %q, %r, 0;
        {body} }}
        """
    launch = load(text).only().bind([out], grid=1, block=1)
    launch.run(timeout=5)
    assert launch.check().ok
    assert out[0] == (0 if "call" in body else 1)


@pytest.mark.parametrize("body", ["", "A:", ".reg .b32 %r;"])
def test_an_empty_kernel_does_nothing(body: str) -> None:
    text = f".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k() {{ {body} }}\n"
    launch = load(text).only().bind([], grid=2, block=64)
    launch.run(timeout=5)
    assert launch.check().ok
