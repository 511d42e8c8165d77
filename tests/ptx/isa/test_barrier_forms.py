"""Forms of barriers: thread counts, a barrier of each lane, arms of a branch, relaxed waits,
generic addresses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel, run
from tilepipe.check import check
from tilepipe.errors import DeadlockError, RaceError, SimFault

WAIT = "{label}: mbarrier.try_wait.parity{order}.shared.b64 %p1, [{bar}], 0; @!%p1 bra {label};"


@pytest.mark.parametrize("threads", [48, 1, 33])
def test_a_barrier_of_all_threads_counts_warps(threads: int) -> None:
    out = np.zeros(threads, np.int32)
    text = """
        .shared .b32 word;
        setp.eq.u32 %p1, %t, 0;
        mov.u32 %r3, 0;
        @%p1 st.shared.u32 [word], %r3;
        bar.sync 0;
        ld.shared.u32 %r1, [word];
        barrier.cta.red.popc.u32 %r2, 1, 1;
        add.u32 %r1, %r1, %r2;
        st.global.u32 [%a0], %r1;
        """
    run(text, out, threads=threads)
    assert (out == threads).all()


def test_a_barrier_is_for_whole_warps() -> None:
    with pytest.raises(SimFault, match="a barrier for 48 threads; the number is a multiple of 32"):
        run("bar.sync 1, 48;", threads=64)


def test_arms_of_a_branch_meet_at_a_barrier_that_is_not_aligned() -> None:
    text = """
        .shared .align 4 .b32 words[64];
        mov.u32 %r1, words;
        mad.lo.u32 %r1, %t, 4, %r1;
        and.b32 %r2, %t, 1;
        setp.eq.u32 %p1, %r2, 0;
        @%p1 bra EVEN;
        st.shared.u32 [%r1], %t;
        barrier.sync 0;
        ld.shared.u32 %r3, [%r1+-4];
        bra END;
        EVEN: add.u32 %r4, %t, 100;
        st.shared.u32 [%r1], %r4;
        barrier.sync 0;
        ld.shared.u32 %r3, [%r1+4];
        END: st.global.u32 [%a0], %r3;
        """
    for seed in (0, 1):
        out = np.zeros(64, np.int32)
        run(text, out, threads=64, seed=seed)
        assert out.tolist() == [i + 1 if i % 2 == 0 else i + 99 for i in range(64)]
    with pytest.raises(DeadlockError, match=r"do not come to it: lanes 0x.* wait at PTX"):
        run(text.replace("barrier.sync", "bar.sync"), np.zeros(64, np.int32), threads=64)


@pytest.mark.parametrize("aligned", ["wgmma.fence.sync.aligned;", "bar.sync 0;"])
def test_arms_of_a_branch_execute_an_aligned_instruction_each(aligned: str) -> None:
    text = f"""
        and.b32 %r2, %t, 1;
        setp.eq.u32 %p1, %r2, 0;
        @%p1 bra EVEN;
        {aligned}
        bra END;
        EVEN: {aligned}
        END: st.global.u32 [%a0], %r2;
        """
    with pytest.raises(DeadlockError, match=r"the lanes 0x\w+ of warp 0 execute it, and 0x"):
        run(text, np.zeros(128, np.int32), threads=128)


@pytest.mark.parametrize("test", ["lt", "ge"])
def test_lanes_that_leave_are_not_waited_for(test: str) -> None:
    text = f"""
        setp.{test}.u32 %p1, %t, 5;
        @%p1 bra GO;
        setp.eq.u32 %p2, %t, {7 if test == "lt" else 2};
        @%p2 exit;
        barrier.sync 0;
        bra END;
        GO: barrier.sync 0;
        END: st.global.u32 [%a0], 1;
        """
    out = np.zeros(32, np.int32)
    run(text, out)
    assert out.sum() == 31


def test_lanes_on_their_way_out_are_not_waited_for() -> None:
    out = np.zeros(32, np.int32)
    run("setp.eq.u32 %p1, %t, 3; @%p1 bra OUT; bar.warp.sync -1; st.global.u32 [%a0], 1; OUT:", out)
    assert out.sum() == 31


EACH = """
    .shared .align 8 .b64 bars[32];
    mov.u32 %r1, bars;
    mad.lo.u32 %r1, %l, 8, %r1;
    setp.lt.u32 %p3, %t, 32;
    @%p3 mbarrier.init.shared.b64 [%r1], 1;
    bar.sync 0;
    @!%p3 mbarrier.arrive.shared.b64 _, [%r1];
    WAIT: mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0;
    @!%p1 bra WAIT;
    st.global.u32 [%a0], %t;
    """


@pytest.mark.parametrize("seed", range(3))
def test_each_lane_waits_on_a_barrier_of_its_own(seed: int) -> None:
    out = np.zeros(64, np.int32)
    run(EACH, out, threads=64, seed=seed)
    assert (out == np.arange(64)).all()
    some = EACH.replace("@!%p3 mbarrier.arrive", "setp.gt.u32 %p4, %t, 40; @%p4 mbarrier.arrive")
    with pytest.raises(DeadlockError):
        run(some, out, threads=64, seed=seed)


HAND_OVER = """
    .shared .align 8 .b64 bar;
    .shared .align 8 .b64 word;
    setp.eq.u32 %p2, %t, 0;
    @%p2 mbarrier.init.shared.b64 [bar], 1;
    bar.sync 0;
    @%p2 bra READ;
    setp.ne.u32 %p3, %t, 32;
    @%p3 bra END;
    st.shared.u32 [word], 5;
    mbarrier.arrive.shared.b64 _, [bar];
    bra END;
    READ: {wait}
    {fence}
    ld.shared.u32 %r1, [word];
    st.global.u32 [%b0], %r1;
    END:
    """


@pytest.mark.parametrize(
    ("order", "fence", "right"),
    [
        ("", "", True),
        (".acquire.cta", "", True),
        (".relaxed.cta", "", False),
        (".relaxed.cta", "fence.acquire.cta;", True),
        (".relaxed.cluster", "fence.acquire.sync_restrict::shared::cluster.cluster;", True),
        (".relaxed.cta", "fence.release.cta;", False),
    ],
)
def test_a_relaxed_wait_orders_nothing_without_a_fence(order: str, fence: str, right: bool) -> None:
    wait = WAIT.format(label="AGAIN", order=order, bar="bar")
    text = HAND_OVER.format(wait=wait, fence=fence).replace("[word], 5", "[word], %t")
    out = np.zeros(1, np.int32)
    if right:
        run(text, out, threads=64)
        assert out[0] == 32
        return
    with pytest.raises(RaceError, match=r"read relaxed .*write mbarrier.try_wait.acquire.cta"):
        run(text, out, threads=64)


@pytest.mark.parametrize(
    ("fence", "arrive", "right"),
    [
        ("", "arrive.relaxed.cta", False),
        ("", "arrive.relaxed.cluster", False),
        ("", "arrive_drop.relaxed.cta", False),
        ("", "arrive.expect_tx.relaxed.cta", False),
        ("fence.acq_rel.cta;", "arrive.relaxed.cta", True),
        ("fence.acq_rel.cluster;", "arrive_drop.relaxed.cta", True),
        ("fence.acq_rel.cta;", "arrive.expect_tx.relaxed.cta", True),
        ("", "arrive_drop.release.cta", True),
        ("", "arrive.expect_tx", True),
    ],
)
def test_a_relaxed_arrive_releases_nothing_without_a_fence(
    fence: str, arrive: str, right: bool
) -> None:
    """On a barrier of its own CTA, too."""
    wait = WAIT.format(label="AGAIN", order="", bar="bar")
    count = ", 0" if "expect" in arrive else ""
    text = HAND_OVER.format(wait=wait, fence="").replace("[word], 5", "[word], %t")
    text = text.replace(
        "mbarrier.arrive.shared.b64 _, [bar]",
        f"{fence} mbarrier.{arrive}.shared.b64 _, [bar]{count}",
    )
    out = np.zeros(1, np.int32)
    if right:
        run(text, out, threads=64)
        assert out[0] == 32
        return
    with pytest.raises(RaceError, match=r"nothing orders the second access after the first"):
        run(text, out, threads=64)


def test_a_fence_of_another_lane_is_none_of_a_relaxed_arrive() -> None:
    """A fence publishes what its own thread knows."""
    wait = WAIT.format(label="AGAIN", order="", bar="bar")
    text = HAND_OVER.format(wait=wait, fence="").replace("[word], 5", "[word], %t")
    text = text.replace(
        "@%p3 bra END;", "setp.eq.u32 %p4, %t, 33; @%p4 fence.acq_rel.cta; @%p3 bra END;"
    ).replace("mbarrier.arrive.shared", "mbarrier.arrive.relaxed.cta.shared")
    with pytest.raises(RaceError, match=r"nothing orders the second access after the first"):
        run(text, np.zeros(1, np.int32), threads=64)


@pytest.mark.parametrize(
    ("arrive", "wait", "rules", "culprit"),
    [
        (".release.cluster", "", "practice", ""),
        (".release.cluster", "", "strict", "read"),  # as .acquire.cta
        (".release.cluster", ".acquire.cluster", "strict", ""),
        ("", "", "practice", "written"),  # as .release.cta
        (".release.cta", ".acquire.cluster", "practice", "written"),
        (".release.cluster", ".acquire.cta", "practice", "read"),
    ],
)
def test_a_scope_leaves_out_the_peer(arrive: str, wait: str, rules: Any, culprit: str) -> None:
    waiting = WAIT.format(label="AGAIN", order=wait, bar="bar")
    text = f"""
        .shared .align 8 .b64 bar;
        .shared .align 8 .b64 word;
        mov.u32 %r9, %cluster_ctarank;
        setp.eq.u32 %p2, %r9, 0;
        @%p2 mbarrier.init.shared.b64 [bar], 1;
        @%p2 fence.mbarrier_init.release.cluster;
        barrier.cluster.arrive; barrier.cluster.wait;
        @%p2 bra READ;
        mov.u32 %r1, bar;
        mapa.shared::cluster.u32 %r2, %r1, 0;
        mov.u32 %r1, word;
        mapa.shared::cluster.u32 %r3, %r1, 0;
        st.shared::cluster.u32 [%r3], %r9;
        mbarrier.arrive{arrive}.shared::cluster.b64 _, [%r2];
        bra END;
        READ: {waiting}
        ld.shared.u32 %r1, [word];
        st.global.u32 [%b0], %r1;
        END: barrier.cluster.arrive; barrier.cluster.wait;
        """
    out = np.zeros(1, np.int32)
    launch = kernel(text, 1).bind([out], grid=2, block=1, cluster=2)
    if not culprit:
        launch.run(rules=rules)
        assert out[0] == 1
        return
    with pytest.raises(RaceError) as raised:
        launch.run(rules=rules)
    op = "mbarrier.arrive.release" if culprit == "written" else "mbarrier.try_wait.acquire"
    said = str(raised.value)
    assert f"is {culprit} with a scope that leaves out the other CTA (mbarrier." in said
    assert f"write {op}.cluster" in said


def test_in_practice_a_barrier_is_initialised_over_an_earlier_one_without_fence() -> None:
    """As Triton does between two loops that copy: strict asks for the fence, practice advises."""
    load = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
    copy = f"""
        @%p2 mbarrier.init.shared.b64 [bar], 1;
        bar.sync 0;
        @%p2 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 128;
        @%p2 {load} [words], [%b0], 128, [bar];
        """
    text = f"""
        .shared .align 8 .b64 bar;
        .shared .align 128 .b32 words[32];
        setp.eq.u32 %p2, %t, 0;
        {copy}
        {WAIT.format(label="FIRST", order="", bar="bar")}
        bar.sync 0;
        @%p2 mbarrier.inval.shared.b64 [bar];
        bar.sync 0;
        {copy}
        {WAIT.format(label="SECOND", order="", bar="bar")}
        mov.u32 %r1, words;
        mad.lo.u32 %r1, %t, 4, %r1;
        ld.shared.u32 %r2, [%r1];
        mad.wide.u32 %a0, %t, 4, %b1;
        st.global.u32 [%a0], %r2;
        """
    arrays = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    launch = kernel(text, 2).bind(arrays, grid=1, block=32)
    practice = check(launch)
    assert practice.verdict == "verified"
    assert any("mbarrier-init fence" in line and "again at" in line for line in practice.advice)
    assert check(launch, rules="strict").verdict == "fault"


@pytest.mark.parametrize(
    "text",
    [
        "mbarrier.init.b64 [%b0], 1;",
        "mbarrier.inval.b64 [%b0];",
        "mbarrier.arrive.b64 %rd1, [%b0];",
        "mbarrier.expect_tx.b64 [%b0], 8;",
        "mbarrier.test_wait.parity.b64 %p1, [%b0], 0;",
    ],
)
def test_a_generic_address_of_a_barrier_lies_in_shared_memory(text: str) -> None:
    with pytest.raises(SimFault, match="lies in global memory; the operand is in shared memory"):
        run(text, np.zeros(8, np.int32), threads=1)


def test_in_practice_a_plain_arrive_hands_back_earlier_arrivals() -> None:
    """The peer may exit then: under the strict rules it does not know that the first is over."""
    wait = WAIT.format(label="AGAIN", order=".acquire.cluster", bar="second")
    text = f"""
        .shared .align 8 .b64 first;
        .shared .align 8 .b64 second;
        mov.u32 %r9, %cluster_ctarank;
        setp.eq.u32 %p2, %r9, 0;
        @%p2 mbarrier.init.shared.b64 [first], 1;
        @%p2 mbarrier.init.shared.b64 [second], 1;
        @%p2 fence.mbarrier_init.release.cluster;
        barrier.cluster.arrive; barrier.cluster.wait;
        @%p2 bra WAIT;
        mov.u32 %r1, first;
        mapa.shared::cluster.u32 %r2, %r1, 0;
        mov.u32 %r1, second;
        mapa.shared::cluster.u32 %r3, %r1, 0;
        mbarrier.arrive.shared::cluster.b64 _, [%r2];
        mbarrier.arrive.shared::cluster.b64 _, [%r3];
        bra END;
        WAIT: {wait}
        END:
        """
    launch = kernel(text, 0).bind((), grid=2, block=1, cluster=2)
    assert check(launch).verdict == "verified"
    found = check(launch, rules="strict")
    assert found.verdict == "fault"
    assert "mbarrier.arrive.shared::cluster.b64 _, [%r2]" in found.faults[0].message
    swapped = text.replace("[%r2];\n        mbarrier", "[%r3];\n        mbarrier", 1).replace(
        "[%r3];\n        bra END", "[%r2];\n        bra END", 1
    )
    later = check(kernel(swapped, 0).bind((), grid=2, block=1, cluster=2))
    assert later.faults[0].kind == "ExitError"


def test_a_phase_that_one_thread_has_completed_is_known_to_those_it_syncs_with() -> None:
    """Thread 0 frees the slot before the first round; warp 1 waits for the next phase alone."""
    out = np.zeros(64, np.int32)
    text = """
        .shared .b64 bar;
        .shared .b32 word;
        setp.eq.u32 %p2, %t, 0;
        setp.lt.u32 %p3, %t, 32;
        @%p2 mbarrier.init.shared.b64 [bar], 1;
        @%p2 mbarrier.arrive.shared.b64 _, [bar];
        bar.sync 0;
        @%p2 st.shared.u32 [word], 7;
        @%p2 mbarrier.arrive.shared.b64 _, [bar];
        @%p3 bra END;
        W: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 1; @!%p1 bra W;
        ld.shared.u32 %r1, [word];
        st.global.u32 [%a0], %r1;
        END: ret;
        """
    for seed in range(3):
        run(text, out, threads=64, seed=seed)
        assert out.tolist() == [0] * 32 + [7] * 32


@pytest.mark.parametrize(
    ("fence", "arrive", "right"),
    [
        ("", "", True),
        ("", ".relaxed", False),
        ("fence.acq_rel.cluster;", ".relaxed", True),
        ("fence.acq_rel.cta;", ".relaxed", False),
    ],
)
def test_a_relaxed_cluster_barrier_publishes_what_a_fence_does(
    fence: str, arrive: str, right: bool
) -> None:
    text = f"""
        .shared .align 4 .b32 word;
        mov.u32 %r9, %cluster_ctarank;
        setp.eq.u32 %p2, %r9, 0;
        mov.u32 %r1, word;
        mapa.shared::cluster.u32 %r3, %r1, 0;
        @!%p2 st.shared::cluster.u32 [%r3], 7;
        {fence}
        barrier.cluster.arrive{arrive}; barrier.cluster.wait;
        @%p2 ld.shared.u32 %r5, [word];
        barrier.cluster.arrive; barrier.cluster.wait;
        """
    found = check(kernel(text, 0).bind((), grid=2, block=1, cluster=2))
    assert [fault.kind for fault in found.faults] == ([] if right else ["RaceError"])
