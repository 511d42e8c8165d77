"""Cluster launch control: who may hand the memory of a response back to the thread that asks."""

from __future__ import annotations

import pytest

import tilepipe as tp
from tests.ptx.isa.programs import kernel
from tilepipe.check import Verdict, check
from tilepipe.machine.rules import Rules

# One warp in each of two CTAs. Both read each response, and hand its memory back to the leader,
# whose first lane asks.
ASKING = """
    .shared .align 16 .b8 response[16];
    .shared .align 8 .b64 full;
    .shared .align 8 .b64 empty;
    mov.u32 %r9, %cluster_ctarank;
    setp.eq.u32 %p1, %t, 0;
    setp.eq.and.u32 %p2, %r9, 0, %p1;
    @%p1 mbarrier.init.shared.b64 [full], 1;
    @%p1 mbarrier.init.shared.b64 [empty], 2;
    @%p1 fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive; barrier.cluster.wait;
    mov.u32 %r1, empty;
    mapa.shared::cluster.u32 %r2, %r1, 0;
    mov.u32 %r3, response;
    mov.u32 %r4, full;
    mov.u32 %r5, 0;
    NEXT: @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [full], 16;
    @!%p2 bra READ;
    xor.b32 %r6, %r5, 1;
    EMPTY: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p3, [empty], %r6;
    @!%p3 bra EMPTY;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes\
.multicast::cluster::all.b128 [%r3], [%r4];
    READ: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p3, [full], %r5;
    @!%p3 bra READ;
    ld.shared.b128 %q1, [response];
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q1;
    fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    @%p1 mbarrier.arrive.shared::cluster.b64 _, [%r2];
    xor.b32 %r5, %r5, 1;
    @%p4 bra NEXT;
    barrier.cluster.arrive; barrier.cluster.wait;
    """
FENCE = "fence.proxy.async.shared::cta;"
PLAIN = "mbarrier.arrive.shared::cluster"
ONE_AT_ONCE = tp.Chip(name="one", arch="sm_100a", sms=2, clusters=((2, 1),))


def verdict(text: str, rules: Rules = "practice", order: str = "") -> Verdict:
    """Of two clusters, of which the first takes the place of the second. `order`: of the arrive."""
    text = text.replace(PLAIN, PLAIN.replace("arrive", f"arrive{order}"))
    made = kernel(text, 0, "sm_100a")
    return check(made.bind((), grid=4, block=32, cluster=2, chip=ONE_AT_ONCE), rules=rules)


@pytest.mark.parametrize("rules", ["practice", "strict"])
@pytest.mark.parametrize("order", ["", ".relaxed.cluster", ".release.cluster"])
def test_a_response_that_was_read_and_fenced_is_handed_back(order: str, rules: Rules) -> None:
    found = verdict(ASKING, rules, order)
    assert found.verdict == "verified", found


@pytest.mark.parametrize("order", ["", ".release.cluster"])
def test_a_response_that_was_read_needs_a_fence_before_the_next(order: str) -> None:
    (fault,) = verdict(ASKING.replace(FENCE, ""), order=order).faults
    assert fault.kind == "RaceError"
    assert "ld.shared.b128 %q1" in fault.message
    assert "clusterlaunchcontrol.try_cancel" in fault.message


def test_a_read_after_the_arrive_is_not_handed_back() -> None:
    found = verdict(ASKING.replace("xor.b32 %r5", "ld.shared.b128 %q2, [response]; xor.b32 %r5"))
    assert "nothing orders the second access after the first" in found.faults[0].message
    assert "ld.shared.b128 %q2" in found.faults[0].message


def test_nothing_else_is_handed_on_with_a_response() -> None:
    """A plain arrive does not publish a word that the peer has written beside the response."""
    text = ASKING.replace("[16];", "[16]; .shared .align 4 .b32 word;", 1)
    text = text.replace("mov.u32 %r5, 0;", """
        mov.u32 %r5, 0; mov.u32 %r7, word; mapa.shared::cluster.u32 %r8, %r7, 0;
        setp.eq.and.u32 %p5, %r9, 1, %p1; @%p5 st.shared::cluster.u32 [%r8], 1;
    """)  # fmt: skip
    text = text.replace("clusterlaunchcontrol.try", """
        setp.eq.u32 %p6, %r5, 1; @%p6 ld.shared.u32 %r10, [word]; clusterlaunchcontrol.try
    """.strip(), 1)  # fmt: skip
    found = verdict(text).faults[0].message
    assert "nothing orders the second access after the first" in found
    assert "ld.shared.u32 %r10, [word]" in found
    assert verdict(text, order=".release.cluster").verdict == "verified"
