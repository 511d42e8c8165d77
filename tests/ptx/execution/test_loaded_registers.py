"""When a tcgen05.ld is over whose registers are used without tcgen05.wait::ld, and which arrives
hand it on.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.check import Verdict
from tilepipe.machine.rules import Rules

# The warp of CTA 1 loads words of its tensor memory, and arrives on a barrier of CTA 0. A thread of
# CTA 0 waits for that, and copies other words over them, in both CTAs.
PAIR = """
    .shared .align 128 .b8 tile[4096];
    .shared .align 8 .b64 bars[2];
    .shared .b32 word;
    setp.eq.u32 %p1, %t, 0; mov.u32 %r2, %cluster_ctarank; setp.eq.u32 %p2, %r2, 0;
    mov.u32 %r3, bars; mov.u32 %r4, word; mov.u32 %r5, tile;
    @%p1 mbarrier.init.shared.b64 [bars], 1;
    @%p1 mbarrier.init.shared.b64 [bars+8], 1;
    tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r4], 32;
    fence.mbarrier_init.release.cluster;
    mov.u32 %r6, 0;
    FILL: add.u32 %r7, %r6, %t; shl.b32 %r7, %r7, 2; add.u32 %r7, %r5, %r7;
    st.shared.u32 [%r7], 7; add.u32 %r6, %r6, 32; setp.lt.u32 %p4, %r6, 1024; @%p4 bra FILL;
    fence.proxy.async.shared::cta;
    bar.warp.sync -1; ld.shared.b32 %r8, [word];
    tcgen05.st.sync.aligned.32x32b.x2.b32 [%r8], {%t, %t};
    tcgen05.wait::st.sync.aligned;
    tcgen05.fence::before_thread_sync;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    tcgen05.fence::after_thread_sync;
    @%p2 bra WAIT;
    mapa.shared::cluster.u32 %r9, %r3, 0;
    mul.wide.u32 %rd3, %t, 4; add.s64 %rd3, %b0, %rd3;
    tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r10, %r11}, [%r8];
    BODY
    bra DONE;
    WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p6, [bars], 0;
    @!%p6 bra WAIT;
    shr.u32 %r12, %r5, 4; cvt.u64.u32 %rd1, %r12; or.b64 %rd1, %rd1, 0x400000080000;
    or.b64 %rd1, %rd1, 0x1000000000; mov.b16 %h1, 3; @!%p1 bra DONE;
    tcgen05.cp.cta_group::2.128x256b [%r8], %rd1;
    tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64
      [bars+8], %h1;
    DONE: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p6, [bars+8], 0;
    @!%p6 bra DONE;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r8, 32;
    """
ARRIVE = "@%p1 mbarrier.arrive.shared::cluster.b64 _, [%r9];"
RELAXED = "@%p1 mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r9];"
USE = "add.u32 %r12, %r11, 1; st.global.b32 [%rd3], %r12;"
COPY = "mov.b32 %r13, %r11;"
USE_OF_COPY = "st.global.b32 [%rd3], %r13;"
IN_VAIN = "setp.gt.u32 %p7, %t, 99; @%p7 st.global.b32 [%rd3], %r11;"
WAIT = "tcgen05.wait::ld.sync.aligned;"


def checked(*body: str, rules: Rules = "practice") -> Verdict:
    text = PAIR.replace("BODY", "\n".join(body))
    launch = kernel(text, 1, "sm_100a").bind([np.zeros(32, np.uint32)], grid=2, block=32, cluster=2)
    return launch.check(rules=rules)


@pytest.mark.parametrize(
    "body", [(USE, ARRIVE), (COPY, USE_OF_COPY, ARRIVE), (WAIT, ARRIVE, USE)],
    ids=["a use", "a use of a copy", "a wait"],
)  # fmt: skip
def test_a_plain_arrive_hands_on_what_is_in_registers(body: tuple[str, ...]) -> None:
    assert checked(*body).verdict == "verified"


@pytest.mark.slow
def test_by_the_letter_a_plain_arrive_hands_nothing_on_without_a_fence() -> None:
    (fault,) = checked(WAIT, ARRIVE, USE, rules="strict").faults
    assert "tensor memory of CTA 1: nothing orders the second access" in fault.message
    fence = "tcgen05.fence::before_thread_sync;"
    (fault,) = checked(WAIT, fence, ARRIVE, USE, rules="strict").faults
    assert "no tcgen05.fence::after_thread_sync stands" in fault.message


@pytest.mark.parametrize(
    "body", [(ARRIVE, USE), (COPY, ARRIVE, USE_OF_COPY), (IN_VAIN, ARRIVE, USE), (ARRIVE, WAIT)],
    ids=["a use after it", "a copy before it", "a guard that never holds", "a wait after it"],
)  # fmt: skip
def test_an_arrive_before_they_are_used_hands_nothing_on(body: tuple[str, ...]) -> None:
    (fault,) = checked(*body).faults
    assert fault.kind == "RaceError"
    assert "over when its warp has executed tcgen05.wait::ld, or has used" in fault.message


@pytest.mark.slow
def test_a_relaxed_arrive_hands_nothing_on() -> None:
    (fault,) = checked(USE, RELAXED).faults
    assert "or has used what it loads. This one is over, but nothing after" in fault.message
    assert checked(USE, "tcgen05.fence::before_thread_sync;", RELAXED).verdict == "verified"
