"""Kernels of PTX at the edges of what makes a check cheaper: each has a wrong twin that is found,
or a right one that no reduction may call wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.check import Verdict, check
from tilepipe.ptx import load

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def checked(
    text: str,
    *arrays: Any,
    grid: int = 1,
    block: int = 32,
    cooperative: bool = False,
    **options: Any,
) -> Verdict:
    kernel = load(HEAD + text).only()
    launch = kernel.bind(list(arrays), grid=grid, block=block, cooperative=cooperative)
    return check(launch, shorten=False, **options)


def word() -> Any:
    return np.zeros(4, np.int32)


POLLED = """
.visible .entry k(.param .u64 f) {
    .reg .b64 %f; .reg .b32 %c, %i; .reg .pred %p, %q;
    ld.param.u64 %f, [f];
    mov.u32 %c, WHO;
    setp.eq.u32 %p, %c, OTHER;
    @%p bra WRITE;
    setp.eq.u32 %p, %c, 0;
    @%p bra LOOK;
    ret;
WRITE:
    red.relaxed.gpu.global.add.u32 [%f], 1;
    ret;
LOOK:
    ld.relaxed.gpu.global.u32 %i, [%f];
    setp.eq.u32 %q, %i, 0;
    @%q bra LOOK;
    ret;
}"""


def test_the_last_op_of_a_warp_wakes_those_that_poll_what_it_writes() -> None:
    ctas = POLLED.replace("WHO", "%ctaid.x").replace("OTHER", "1")
    assert checked(ctas, word(), grid=2, block=1, cooperative=True).verdict == "verified"
    warps = POLLED.replace("WHO", "%tid.x").replace("OTHER", "32")
    assert checked(warps, word(), block=64).verdict == "verified"
    never = ctas.replace("add.u32 [%f], 1", "add.u32 [%f], 0")
    found = checked(never, word(), grid=2, block=1, cooperative=True)
    assert [f.kind for f in found.faults] == ["DeadlockError"]


def test_the_last_op_of_a_traced_role_does_so_too() -> None:
    @tp.kernel(grid=1)
    def polled(ctx: tp.Context, flag: Any) -> None:
        @ctx.role("look", warps=1)
        def look() -> None:
            with ctx.elect_one():
                empty = ctx.var(True)
                for _ in ctx.loop_while(empty):
                    empty.set(ctx.atomic_add(flag[0], 0) == 0)

        @ctx.role("add", warps=1)
        def add() -> None:
            with ctx.elect_one():
                ctx.atomic_add(flag[0], 1)

    assert polled.bind(np.zeros(1, np.int32)).check().ok


LOCK = """
.visible .entry k(.param .u64 x, .param .u64 d) {
    .reg .b64 %x, %d; .reg .b32 %a, %t; .reg .pred %p;
    ld.param.u64 %x, [x];
    ld.param.u64 %d, [d];
    mov.u32 %t, %tid.x;
    setp.gt.u32 %p, %t, 1;
    @%p ret;
TAKE:
    atom.acquire.gpu.global.cas.b32 %a, [%x], 0, 1;
    setp.ne.u32 %p, %a, 0;
    @%p bra TAKE;
    ld.global.u32 %a, [%d];
    add.u32 %a, %a, 1;
    st.global.u32 [%d], %a;
    st.release.gpu.global.u32 [%x], 0;
    ret;
}"""


def test_a_lock_between_lanes_of_a_warp_is_no_deadlock() -> None:
    assert checked(LOCK, word(), word()).verdict != "fault"


ARRIVES = """
.visible .entry k() {
    .reg .b32 %l, %t, %v, %n; .reg .pred %p, %q, %r, %d, %s, %c;
    .shared .align 8 .b64 bar;
    mov.u32 %t, %tid.x;
    mov.u32 %l, %laneid;
    setp.eq.u32 %r, %t, 0;
    @%r mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    setp.ge.u32 %c, %t, 32;
    @%c bra WAIT;
    elect.sync _|%p, -1;
    BODY
    @%s bra DONE;
    @%p mbarrier.arrive.shared.b64 _, [bar];
DONE:
    ret;
WAIT:
    mbarrier.try_wait.parity.shared.b64 %d, [bar], 0;
    @!%d bra WAIT;
    ret;
}"""


@pytest.mark.parametrize(
    "body",
    [
        "setp.eq.u32 %q, %l, 5; and.pred %q, %q, %p; vote.sync.any.pred %s, %q, -1;",
        "selp.b32 %v, %l, 0, %p; redux.sync.add.u32 %n, %v, -1; setp.eq.u32 %s, %n, 5;",
    ],
)
def test_what_all_lanes_learn_of_the_elected_one_is_its_number(body: str) -> None:
    verdict = checked(ARRIVES.replace("BODY", body), block=64, rules="strict")
    assert [f.kind for f in verdict.faults] == ["DeadlockError"]


def test_a_trap_of_the_elected_lane_is_tried_for_each_lane() -> None:
    body = "setp.eq.u32 %q, %l, 7; and.pred %q, %q, %p; @%q trap; setp.ne.u32 %s, %l, %l;"
    assert (
        "trap" in checked(ARRIVES.replace("BODY", body), block=64, rules="strict").faults[0].message
    )


APART = """
.visible .entry k(.param .u64 x) {
    .reg .b64 %x; .reg .b32 %l, %a; .reg .pred %p, %q;
    ld.param.u64 %x, [x];
    mov.u32 %l, %laneid;
    setp.eq.u32 %p, %l, 5;
    @%p bra ONE;
    setp.ne.u32 %p, %l, 3;
    @%p bra MEET;
    ld.relaxed.gpu.global.u32 %a, [%x];
    setp.eq.u32 %q, %a, 9;
    @%q trap;
    bra MEET;
ONE:
    st.relaxed.gpu.global.u32 [%x], 1;
MEET:
    ret;
}"""


def test_lanes_that_look_at_each_other_s_writes_apart_are_undecided() -> None:
    verdict = checked(APART, word())
    assert (verdict.verdict, verdict.bound[:12]) == ("undecided", "not modelled")


PEEK = """
.visible .entry k() {
    .reg .b32 %t; .reg .pred %p, %q, %r;
    .shared .align 8 .b64 bar;
    mov.u32 %t, %tid.x;
    setp.eq.u32 %r, %t, 0;
    @%r mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    setp.lt.u32 %r, %t, 32;
    @%r bra LOOK;
    setp.eq.u32 %r, %t, 32;
    @%r mbarrier.arrive.shared.b64 _, [bar];
    ret;
LOOK:
    mbarrier.test_wait.parity.shared.b64 %p, [bar], 0;
    @GUARD bra DONE;
WAIT:
    mbarrier.try_wait.parity.shared.b64 %q, [bar], PARITY;
    @!%q bra WAIT;
DONE:
    ret;
}"""


@pytest.mark.parametrize(
    ("guard", "parity", "kinds"),
    [
        ("%p", 0, []),
        ("!%p", 0, []),
        # phase 1 never completes; the wait for it follows where phase 0 is complete
        ("!%p", 1, ["DeadlockError"]),
    ],
)
@pytest.mark.parametrize("explore", [False, True])
def test_a_branch_that_waits_where_the_test_says_yes(
    guard: str, parity: int, kinds: list[str], explore: bool
) -> None:
    text = PEEK.replace("GUARD", guard).replace("PARITY", str(parity))
    assert [f.kind for f in checked(text, block=64, explore=explore).faults] == kinds


COPIED = """
.visible .entry k(.param .u64 x) {
    .reg .b64 %x; .reg .b32 %t, %s, %b; .reg .pred %p, %q, %r, %d;
    .shared .align 8 .b64 bar;
    .shared .align 16 .b8 buffer[16];
    ld.param.u64 %x, [x];
    mov.u32 %t, %tid.x;
    mov.u32 %s, buffer;
    mov.u32 %b, bar;
    setp.eq.u32 %r, %t, 0;
    @%r mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    setp.ne.u32 %p, %t, 0;
    @%p ret;
    cp.async.ca.shared.global [%s], [%x], 16;
    cp.async.mbarrier.arrive.noinc.shared.b64 [%b];
    mbarrier.test_wait.parity.shared.b64 %d, [bar], 0;
    @WHEN trap;
WAIT:
    mbarrier.try_wait.parity.shared.b64 %q, [bar], 0;
    @!%q bra WAIT;
    cp.async.wait_all;
    ret;
}"""


@pytest.mark.parametrize("when", ["%d", "!%d"])
def test_an_arrival_of_cp_async_may_come_at_once_or_late(when: str) -> None:
    (fault,) = checked(COPIED.replace("WHEN", when), word()).faults
    assert "trap" in fault.message
