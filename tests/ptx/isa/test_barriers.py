"""mbarriers, barriers of a CTA and of a cluster, and fences."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import run
from tilepipe.errors import BarrierError, DeadlockError, PtxError, SimFault

LANE = np.arange(32)

_BAR = """
    .shared .align 8 .b64 bar;
    .shared .align 4 .b32 box[64];
    mov.u32 %r1, bar;
    setp.eq.u32 %p1, %t, 0;
    @%p1 mbarrier.init.shared.b64 [bar], {count};
    bar.sync 0;
    {text}
    """


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("test", ["try_wait", "test_wait", "try_wait.acquire.cta"])
@pytest.mark.parametrize("where", ["shared", "shared::cta", ""])
def test_threads_wait_with_the_state_that_their_arrive_returned(
    test: str, where: str, seed: int
) -> None:
    out = np.zeros(64, np.uint32)
    space = f".{where}" if where else ""
    at = "%r1" if where else "%rd9"
    text = f"""
        cvt.u64.u32 %rd8, %r1; cvta.shared.u64 %rd9, %rd8;
        mov.u32 %r2, box; mad.lo.u32 %r2, %t, 4, %r2;
        st.shared.b32 [%r2], %t;
        mbarrier.arrive{space}.b64 %rd1, [{at}];
        WAIT: mbarrier.{test}{space}.b64 %p2, [{at}], %rd1;
        @!%p2 bra WAIT;
        xor.b32 %r3, %t, 33; mov.u32 %r4, box; mad.lo.u32 %r4, %r3, 4, %r4;
        ld.shared.b32 %r5, [%r4];
        st.global.b32 [%a0], %r5;
        """
    run(_BAR.format(count=64, text=text), out, threads=64, seed=seed)
    np.testing.assert_array_equal(out, np.arange(64) ^ 33)


def test_pending_count_is_that_before_each_arrive() -> None:
    out = np.zeros(32, np.uint32)
    text = """
        mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %rd1, [bar], 2;
        mbarrier.pending_count.b64 %r2, %rd1;
        st.global.b32 [%a0], %r2;
        """
    run(_BAR.format(count=65, text=text), out)
    np.testing.assert_array_equal(out, 65 - 2 * LANE)


def test_no_complete_must_not_complete() -> None:
    text = "mbarrier.arrive.noComplete.shared.b64 %rd1, [bar], 1;"
    with pytest.raises(BarrierError, match=r"completes phase 0, and .noComplete"):
        run(_BAR.format(count=32, text=text))


@pytest.mark.parametrize("form", ["", ".release.cluster", ".expect_tx", ".expect_tx.relaxed.cta"])
def test_arrive_drop_lowers_the_count(form: str) -> None:
    """Warp 1 leaves after one phase; warp 0 completes the next alone."""
    out = np.zeros(64, np.uint32)
    count = ", 0" if "expect" in form else ""
    text = f"""
        setp.lt.u32 %p2, %t, 32;
        @%p2 bra STAY;
        mbarrier.arrive_drop{form}.shared::cta.b64 _, [bar]{count};
        bra DONE;
        STAY: mbarrier.arrive.shared::cta.b64 _, [bar];
        W0: mbarrier.try_wait.parity.shared::cta.b64 %p3, [bar], 0, 1000;
        @!%p3 bra W0;
        mbarrier.arrive.shared::cta.b64 _, [bar];
        W1: mbarrier.test_wait.parity.shared::cta.b64 %p3, [bar], 1;
        @!%p3 bra W1;
        st.global.b32 [%a0], 1;
        DONE:
        """
    run(_BAR.format(count=64, text=text), out, threads=64)
    assert out.sum() == 32


@pytest.mark.parametrize(
    "form",
    [
        "arrive.release.cluster.shared::cluster",
        "arrive.shared::cluster",
        "arrive.expect_tx.relaxed.cluster.shared::cluster",
    ],
)
def test_remote_arrives(form: str) -> None:
    count = ", 0" if "expect" in form else ""
    text = f"""
        @%p1 fence.mbarrier_init.release.cluster;
        barrier.cluster.arrive.relaxed.aligned;
        barrier.cluster.wait.acquire.aligned;
        mov.u32 %r2, %cluster_ctarank; xor.b32 %r2, %r2, 1;
        mapa.shared::cluster.u32 %r3, %r1, %r2;
        @%p1 mbarrier.{form}.b64 _, [%r3]{count};
        W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [bar], 0;
        @!%p2 bra W;
        barrier.cluster.arrive; barrier.cluster.wait;
        """
    run(_BAR.format(count=1, text=text), cluster=2)


def test_expect_and_complete() -> None:
    text = """
        @%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [bar], 64;
        bar.sync 0;
        mbarrier.arrive.shared.b64 _, [bar];
        @%p1 mbarrier.complete_tx.shared.b64 [bar], 64;
        W: mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0;
        @!%p2 bra W;
        """
    run(_BAR.format(count=32, text=text))


# -- barriers ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bar", "barrier.cta"])
@pytest.mark.parametrize("seed", [0, 1])
def test_barriers_reduce_predicates(name: str, seed: int) -> None:
    out = np.zeros((96, 3), np.uint32)
    aligned = "" if name == "bar" else ".aligned"
    text = f"""
        setp.lt.u32 %p1, %t, 40;
        setp.lt.u32 %p4, %t, 96;
        {name}.red.popc{aligned}.u32 %r1, 1, %p1;
        {name}.red.and{aligned}.pred %p2, 2, 96, %p4;
        {name}.red.or{aligned}.pred %p3, 1, 96, !%p4;
        selp.u32 %r2, 1, 0, %p2; selp.u32 %r3, 1, 0, %p3;
        mad.wide.u32 %a0, %t, 12, %b0;
        st.global.b32 [%a0], %r1; st.global.b32 [%a0+4], %r2; st.global.b32 [%a0+8], %r3;
        """
    run(text, out, threads=96, seed=seed)
    assert (out == [40, 1, 0]).all()


def test_a_warp_arrives_and_another_waits() -> None:
    out = np.zeros(64, np.uint32)
    text = """
        .shared .align 4 .b32 box[32];
        setp.lt.u32 %p1, %t, 32;
        mov.u32 %r1, box; mad.lo.u32 %r2, %l, 4, %r1;
        @!%p1 bra READ;
        st.shared.b32 [%r2], 9;
        barrier.cta.arrive.aligned 3, 64;
        bra DONE;
        READ: barrier.sync 3, 64;
        ld.shared.b32 %r3, [%r2];
        st.global.b32 [%a0], %r3;
        DONE:
        """
    run(text, out, threads=64)
    assert out.sum() == 32 * 9


@pytest.mark.parametrize(
    "fence",
    ["fence.acq_rel.cta", "fence.sc.gpu", "fence.acq_rel.cluster", "membar.gl", "membar.cta",
     "fence.acquire.sync_restrict::shared::cluster.cluster", "fence.proxy.alias",
     "fence.release.sync_restrict::shared::cta.cluster", "fence.proxy.async", "fence.release.sys",
     "fence.proxy.async.global", "griddepcontrol.launch_dependents", "griddepcontrol.wait"],
)  # fmt: skip
def test_fences(fence: str) -> None:
    out = np.zeros(32, np.uint32)
    run(f"{fence}; st.global.b32 [%a0], 1;", out)
    assert out.all()


def test_a_write_before_the_wait_for_the_kernel_before_is_a_race() -> None:
    with pytest.raises(SimFault, match=r"no griddepcontrol.wait"):
        run("st.global.b32 [%a0], 1; griddepcontrol.wait;", np.zeros(32, np.uint32))


def test_a_relaxed_arrive_publishes_what_a_fence_does() -> None:
    """Without the fence the peer reads what it does not know to be written."""
    text = """
        @%p1 fence.mbarrier_init.release.cluster;
        barrier.cluster.arrive; barrier.cluster.wait;
        mov.u32 %r2, %cluster_ctarank; xor.b32 %r2, %r2, 1;
        mapa.shared::cluster.u32 %r3, %r1, %r2;
        mov.u32 %r4, box; mapa.shared::cluster.u32 %r5, %r4, %r2;
        @%p1 st.shared::cluster.b32 [%r5], 5;
        {fence}
        @%p1 mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r3];
        W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [bar], 0;
        @!%p2 bra W;
        @%p1 ld.shared.b32 %r6, [box];
        barrier.cluster.arrive; barrier.cluster.wait;
        """
    run(_BAR.format(count=1, text=text.format(fence="fence.acq_rel.cluster;")), cluster=2)
    with pytest.raises(SimFault, match="race on 'box' of CTA 0: "):
        run(_BAR.format(count=1, text=text.format(fence="")), cluster=2)


def test_waiting_for_nobody_is_a_deadlock() -> None:
    text = """
        W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;
        @!%p2 bra W;
        """
    with pytest.raises(DeadlockError, match="the mbarrier at"):
        run(_BAR.format(count=1, text=text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mbarrier.arrive.shared::cluster.b64 %rd1, [bar];", "state of a phase of another CTA"),
        ("mbarrier.arrive.acquire.cta.b64 _, [bar];", "acquire"),
        ("mbarrier.arrive.release.gpu.b64 _, [bar];", "expected .cta, .cluster"),
        ("mbarrier.arrive.expect_tx.b64 _, [bar];", "2 operands; expected 3"),
        ("mbarrier.test_wait.b64 %p2, [bar], %rd1, 5;", "4 operands; expected 3"),
        ("bar.sync.aligned 0;", "aligned"),
        ("barrier.cta.arrive 0;", "1 operands; expected 2"),
        ("barrier.cluster.arrive.acquire;", "acquire"),
        ("fence.acq_rel;", "modifier missing"),
        ("fence.proxy.tensormap;", "tensormap"),
        ("membar.gpu;", "gpu"),
        ("mov.u32 %r1, %pm0;", "no value|pm0"),
        ("mov.u32 %r1, %envreg3;", "the special register %envreg3"),
    ],
)
def test_forms_that_the_isa_lacks_are_refused(text: str, message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run(_BAR.format(count=1, text=text))
