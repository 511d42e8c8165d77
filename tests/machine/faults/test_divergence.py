"""A deadlock of lanes that wait for others of their warp, which stand behind them: the report names
both by their masks.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tests.ptx.isa.programs import kernel
from tests.scenarios.support import at
from tilepipe.check import check

# Lane 0 waits in a branch for what others are to bring after it.
BRANCH = """
    .shared .align 8 .b64 full;
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra READY;
    mbarrier.init.shared.b64 [full], 1;
    READY: bar.sync 0;
    setp.ne.u32 %p2, %l, 0;
    setp.ne.u32 %p3, %l, 1;
    @%p2 bra MEET;
    {wait}
    MEET: {meet}
    {bring}
    DONE:
"""
MBARRIER = """WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [full], 0;
    @!%p4 bra WAIT;"""
ARRIVE = "@%p3 bra DONE; mbarrier.arrive.shared.b64 _, [full];"
FLAG = "WAIT: ld.acquire.gpu.global.u32 %r4, [%b0]; setp.eq.u32 %p4, %r4, 0; @%p4 bra WAIT;"
RELEASE = "st.release.gpu.global.u32 [%b0], 1;"


def stuck(wait: str, meet: str, bring: str, block: int = 32) -> str:
    text = BRANCH.format(wait=wait, meet=meet, bring=bring)
    (fault,) = check(kernel(text, 1).bind([np.zeros(1, np.int32)], grid=1, block=block)).faults
    assert fault.kind == "DeadlockError"
    return fault.message.split("what to look at: ")[1]


@pytest.mark.parametrize("block", [32, 64])
@pytest.mark.parametrize(
    "meet", ["bar.warp.sync -1;", "bar.sync 0;", "shfl.sync.idx.b32 %r1, %l, 0, 31, -1;"]
)
def test_lanes_that_would_arrive_stand_where_the_branch_ends(meet: str, block: int) -> None:
    assert stuck(MBARRIER, meet, ARRIVE, block).startswith(
        "the lanes 0x1 of warp 0 wait at <ptx>:21, and the lanes 0xfffffffe of the same warp, which"
        " could go on to mbarrier.arrive.shared.b64 at <ptx>:24, stand at <ptx>:23, where the lanes"
        " of a branch meet, until those come. Put that before the wait, or let another warp do one"
        " of the two."
    )


def test_lanes_that_would_set_a_flag_stand_at_an_instruction_for_all_lanes() -> None:
    assert stuck(FLAG, "bar.warp.sync -1;", RELEASE).startswith(
        "the lanes 0x1 of warp 0 wait at <ptx>:21, and the lanes 0xfffffffe of the same warp, which"
        " could go on to st.release.gpu.global.u32 at <ptx>:23, stand at <ptx>:22 (bar.warp.sync"
        " -1) until those come."
    )


@pytest.mark.parametrize(
    ("wait", "bring"),
    [(MBARRIER, ""), (FLAG, ""), (FLAG, "st.global.u32 [%b0], 1;")],
    ids=["nobody arrives", "nobody sets it", "an ordinary store"],
)
def test_lanes_that_bring_nothing_are_not_blamed(wait: str, bring: str) -> None:
    assert "of the same warp" not in stuck(wait, "bar.warp.sync -1;", bring)


# In each round lane 0 of warp 0 waits and arrives, and the warp meets; warp 1 does not free it.
ROUNDS = """
    .shared .align 8 .b64 full; .shared .align 8 .b64 empty;
    mov.u32 %r1, 0;
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra READY;
    mbarrier.init.shared.b64 [full], 1;
    mbarrier.init.shared.b64 [empty], 1;
    READY: bar.sync 0;
    setp.ge.u32 %p3, %t, 32;
    @%p3 bra OTHER;
    setp.ne.u32 %p2, %l, 0;
    ROUND: @%p2 bra MEET;
    WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [empty], {parity};
    @!%p4 bra WAIT;
    mbarrier.arrive.shared.b64 _, [full];
    MEET: bar.warp.sync -1;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p5, %r1, 2;
    @%p5 bra ROUND;
    bra DONE;
    OTHER: mbarrier.try_wait.parity.shared.b64 %p4, [full], 0;
    @!%p4 bra OTHER;
    DONE:
"""


def test_lanes_that_go_round_to_the_same_wait_are_not_blamed() -> None:
    """What they can come to without that wait is all that they could bring."""
    text = ROUNDS.replace("{parity}", "%r2").replace("ROUND: @", "ROUND: xor.b32 %r2, %r1, 1; @")
    (fault,) = check(kernel(text, 0).bind([], grid=1, block=64)).faults
    assert fault.kind == "DeadlockError"
    assert "of the same warp" not in fault.message
    assert "nothing has ever arrived on the mbarrier at 'empty'" in fault.message


@tp.kernel()
def traced(ctx: tp.Context, *, meet: bool) -> None:
    """Lane 0 waits for lane 1."""
    full = tp.SharedMemBarrier.allocate(ctx, name="full")

    @ctx.role("one", warps=1)
    def one() -> None:
        with ctx.when(ctx.lane == 0):
            full.wait(0)  # <waits>
        if meet:
            ctx.syncwarp()  # <meets>
        with ctx.when(ctx.lane == 1):
            full.arrive()  # <arrives>


def test_lanes_of_a_role_that_meet_those_that_wait_before_they_arrive() -> None:
    (fault,) = traced.bind(meet=True).check().faults
    here = {mark: at(__file__, mark) for mark in ("waits", "meets", "arrives")}
    assert (
        f"what to look at: the lanes 0x1 of role 'one' wait at {here['waits']}, and the lanes 0x2"
        f" of the same warp, which could go on to mbar_arrive at {here['arrives']}, stand at"
        f" {here['meets']} (sync_warp) until those come. Put that before the wait, or let another"
        " role do one of the two." in fault.message
    )


def test_lanes_of_a_role_that_meet_nobody_are_undecided() -> None:
    verdict = traced.bind(meet=False).check()
    assert verdict.verdict == "undecided"
    assert "other lanes of the same warp, which need not wait there" in verdict.bound
