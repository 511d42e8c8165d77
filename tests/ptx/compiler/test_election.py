"""Which lanes have to be elected in turn to say that the elected lane makes no difference."""

from __future__ import annotations

import pytest

from tilepipe.ptx import load
from tilepipe.ptx.compiler.election import UNNAMED, lanes_to_elect
from tilepipe.ptx.compiler.thread_values import ThreadValues

HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .pred %p<9>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<9>;
    .shared .align 8 .b64 bar;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    elect.sync %r2|%p1, -1;
"""
WORKS = """
    mov.u32 %r9, bar;
    @%p1 mbarrier.arrive.shared.b64 _, [%r9];
"""


def lanes(body: str, block: tuple[int, int, int] = (128, 1, 1)) -> list[int]:
    (kernel,) = load(f"{HEAD}{body}\n    ret;\n}}\n").values()
    return list(lanes_to_elect(kernel.code.flow, kernel.code.operations, block))


def test_a_kernel_without_an_election_needs_one_execution() -> None:
    text = HEAD.replace("elect.sync %r2|%p1, -1;", "setp.eq.u32 %p1, %r1, 3;")
    (kernel,) = load(f"{text}{WORKS}    ret;\n}}\n").values()
    assert list(lanes_to_elect(kernel.code.flow, kernel.code.operations, (32, 1, 1))) == [0]


def test_a_lane_that_no_number_decides_about_is_like_any_other() -> None:
    assert lanes(WORKS) == [0]


def test_the_policy_of_a_cache_is_no_number_of_a_lane() -> None:
    policy = "createpolicy.fractional.L2::evict_first.b64 %rd2, 1.0; add.u64 %rd3, %rd2, 1;"
    assert lanes(policy + WORKS) == [0]


@pytest.mark.parametrize(
    "condition",
    [
        "shr.u32 %r3, %r1, 5; setp.eq.u32 %p2, %r3, 2;",
        "setp.lt.u32 %p2, %r1, 64;",
        "and.b32 %r3, %r1, 96; setp.ne.u32 %p2, %r3, 32;",
    ],
)
def test_the_number_of_a_warp_is_not_that_of_a_lane(condition: str) -> None:
    body = f"{condition} and.pred %p1, %p1, %p2; {WORKS}"
    assert lanes(body) == [0]


def test_the_same_number_is_that_of_lanes_where_a_warp_has_several_rows() -> None:
    body = f"setp.lt.u32 %p2, %r1, 32; and.pred %p1, %p1, %p2; {WORKS}"
    assert lanes(body, (48, 2, 1)) == list(range(32))


@pytest.mark.parametrize(
    "body",
    [
        # the elected lane writes where its number says
        "mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2; @%p1 st.global.u32 [%rd3], 1;",
        # the number of the elected lane is written
        "@%p1 st.global.u32 [%rd1], %r2;",
        # which lanes voted
        "vote.sync.ballot.b32 %r3, %p1, -1; @%p1 st.global.u32 [%rd1], %r3;",
        # what lane 0 gets depends on whether it is the elected one
        "selp.u32 %r3, 1, 0, %p1; shfl.sync.idx.b32 %r4, %r3, 0, 31, -1;"
        " st.global.u32 [%rd1], %r4;",
        # a lane with a number is or is not the elected one
        "setp.eq.u32 %p2, %r1, 7; and.pred %p3, %p1, %p2; @%p3 st.global.u32 [%rd1], 1;",
    ],
)
def test_all_lanes_are_tried_where_their_numbers_meet_the_election(body: str) -> None:
    assert lanes(body) == list(range(32))


def test_two_lanes_are_tried_where_others_are_named() -> None:
    body = f"{WORKS} setp.eq.u32 %p2, %r1, 0; @%p2 st.global.u32 [%rd1], 1;"
    assert lanes(body) == [UNNAMED, 0]


def test_a_register_that_every_way_writes_alike_does_not_depend_on_the_way() -> None:
    body = """
    @%p1 bra ONE;
    xor.b32 %r5, %r6, 1;
    bra DONE;
ONE:
    mov.u32 %r9, bar;
    xor.b32 %r5, %r6, 1;
DONE:
    mad.lo.u32 %r7, %r5, 4, %r1;
    cvt.u64.u32 %rd4, %r7;
    add.u64 %rd5, %rd1, %rd4;
    st.global.u32 [%rd5], 0;
"""
    initial = "mov.u32 %r6, 3;"
    assert lanes(initial + body) == [0]
    assert lanes(
        initial + body.replace("xor.b32 %r5, %r6, 1;\n    bra", "xor.b32 %r5, %r6, 2;\n    bra")
    ) == list(range(32))


def test_values_that_threads_alone_decide_are_known() -> None:
    text = f"{HEAD} shr.u32 %r3, %r1, 5; add.u32 %r4, %r3, %r1; mov.u32 %r5, %ctaid.x; ret; }}"
    (kernel,) = load(text).values()
    code = kernel.code
    values = ThreadValues(code.flow, code.operations, (64, 1, 1))
    found = {
        str(i.operands[0]): values.differ(i.operands[0].number)
        for i in code.function.instructions
        if i.opcode in ("shr", "add", "mov")
        for _ in [0]
        if hasattr(i.operands[0], "number")
    }
    assert found == {"%r1": True, "%r3": False, "%r4": True, "%r5": None}
