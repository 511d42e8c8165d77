"""A relaxed arrive at the barrier of a cluster is named where it should have released an access."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.check import check
from tilepipe.ptx import Launch

# Thread 0 of CTA 0 writes 7, and thread 0 of CTA 1 reads it after both have met.
MEET = """
    .shared .align 16 .b32 tile[4];
    setp.ne.u32 %p1, %cluster_ctarank, 0;
    setp.ne.u32 %p2, %l, 0;
    or.pred %p3, %p1, %p2;
    mov.u32 %r2, tile;
    mapa.shared::cluster.u32 %r3, %r2, 1;
    barrier.cluster.arrive; barrier.cluster.wait;
    @%p3 bra MEET;
    {write}
    {fence}
    MEET: bar.warp.sync -1;
    barrier.cluster.arrive{order};
    barrier.cluster.wait;
    {again}
    @!%p1 bra END;
    @%p2 bra END;
    {read}
    st.global.u32 [%b1], %r4;
    END: barrier.cluster.arrive; barrier.cluster.wait;
"""
SHARED = {"write": "st.shared::cluster.u32 [%r3], 7;", "read": "ld.shared.u32 %r4, [tile];"}
GLOBAL = {"write": "st.global.u32 [%b0], 7;", "read": "ld.global.u32 %r4, [%b0];"}


def meet(
    memory: dict[str, str], order: str = ".relaxed", fence: str = "", again: str = ""
) -> Launch:
    text = MEET.format(**memory, order=order, fence=fence, again=again)
    arrays = [np.zeros(1, np.int32), np.zeros(1, np.int32)]
    return kernel(text, 2).bind(arrays, grid=2, block=32, cluster=2)


@pytest.mark.parametrize("again", ["", "barrier.cluster.arrive.relaxed; barrier.cluster.wait;"])
@pytest.mark.parametrize("memory", [SHARED, GLOBAL], ids=["shared", "global"])
def test_a_relaxed_arrive_orders_no_access_before_it(memory: dict[str, str], again: str) -> None:
    (fault,) = check(meet(memory, again=again)).faults
    assert fault.message.startswith("race on ")
    assert (
        "  the barrier.cluster.arrive.relaxed of warp 0 of CTA 0 at <ptx>:25 is relaxed: it"
        " orders no access before it. Drop .relaxed, or put fence.acq_rel.cluster before it.\n"
        in fault.message
    )


@pytest.mark.parametrize("memory", [SHARED, GLOBAL], ids=["shared", "global"])
def test_what_the_message_advises(memory: dict[str, str]) -> None:
    assert check(meet(memory, order="")).ok
    assert check(meet(memory, fence="fence.acq_rel.cluster;")).ok


def test_a_race_after_the_barrier_is_not_its_fault() -> None:
    """The write comes after the relaxed arrive; nothing was withheld."""
    late = {"write": "", "read": GLOBAL["read"]}
    (fault,) = check(meet(late, again=f"@%p3 bra ON; {GLOBAL['write']} ON:")).faults
    assert fault.message.startswith("race on tensor")
    assert "must arrive on a barrier that" in fault.message
    assert "is relaxed" not in fault.message
