"""Proxy fences between copies, and volatile accesses of lanes, which strict rules alone refuse."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.check import check
from tilepipe.ptx import Launch

# CTA 0 copies 42 from shared memory to the first array and sets the flag, which CTA 1 awaits before
# it copies the array back into its own shared memory.
COPIES = """
    .shared .align 16 .b32 tile[4];
    .shared .align 8 .b64 bar;
    mov.u32 %r1, %ctaid.x;
    setp.ne.u32 %p1, %r1, 0;
    setp.ne.u32 %p3, %l, 0;
    @%p3 bra END;
    @%p1 bra READ;
    mov.u32 %r2, 42;
    st.shared.v4.u32 [tile], {{%r2, %r2, %r2, %r2}};
    fence.proxy.async.shared::cta;
    cp.async.bulk.global.shared::cta.bulk_group [%b0], [tile], 16;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    {writer}
    st.release.gpu.global.u32 [%b1], 1;
    bra END;
    READ:
    ld.acquire.gpu.global.u32 %r3, [%b1];
    setp.ne.u32 %p2, %r3, 1;
    @%p2 bra READ;
    {reader}
    mbarrier.init.shared.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16;
    cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [tile], [%b0], 16, [bar];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [bar], 0;
    @!%p4 bra WAIT;
    ld.shared.u32 %r4, [tile];
    st.global.u32 [%b2], %r4;
    END:
"""


def bound(text: str) -> Launch:
    """A launch of `COPIES`, formatted."""
    arrays = [np.zeros(4, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)]
    return kernel(text, 3).bind(arrays, grid=2, block=32)


def copies(writer: str = "", reader: str = "") -> Launch:
    return bound(COPIES.format(writer=writer, reader=reader))


@pytest.mark.slow
def test_copies_of_two_ctas_need_no_fence_in_practice() -> None:
    verdict = check(copies())
    assert verdict.ok
    assert not verdict.advice


def test_copies_of_two_ctas_need_a_fence_by_the_strict_rules() -> None:
    (fault,) = check(copies(), rules="strict").faults
    assert "strict rules, copies of two CTAs" in fault.message
    assert "no proxy fence stands between" in fault.message


@pytest.mark.parametrize("side", ["writer", "reader"])
def test_a_fence_on_either_side_suffices(side: str) -> None:
    assert check(copies(**{side: "fence.proxy.async.global;"}), rules="strict").ok


# -- volatile accesses -----------------------------------------------------------------

# The tail of a reduction: each lane adds what the lane 8 above it stored.
TAIL = """
    .shared .align 4 .b32 words[64];
    mov.u32 %r1, words;
    mad.lo.u32 %r1, %t, 4, %r1;
    st.volatile.shared.u32 [%r1], %t;
    st.volatile.shared.u32 [%r1+128], %t;
    {between}
    ld.volatile.shared.u32 %r2, [%r1+{offset}];
    mad.lo.u32 %r3, %t, 4, 0;
    cvt.u64.u32 %rd1, %r3;
    add.u64 %rd1, %b0, %rd1;
    st.global.u32 [%rd1], %r2;
"""


def tail(between: str = "", offset: int = 32) -> Launch:
    text = TAIL.format(between=between, offset=offset)
    return kernel(text, 1).bind([np.zeros(32, np.int32)], grid=1, block=32)


def test_volatile_accesses_in_lockstep_are_advice() -> None:
    verdict = check(tail())
    assert verdict.ok
    assert any(
        line.startswith("lockstep") and "lanes of warp 0 read what other lanes wrote" in line
        for line in verdict.advice
    )
    (fault,) = check(tail(), rules="strict").faults
    assert "strict rules, lockstep" in fault.message
    assert "__syncwarp()" in fault.message


@pytest.mark.parametrize(("between", "offset"), [("bar.warp.sync -1;", 32), ("", 0)])
def test_ordered_volatile_accesses_and_those_of_one_lane_are_none(
    between: str, offset: int
) -> None:
    assert not check(tail(between, offset)).advice
    assert check(tail(between, offset), rules="strict").ok
