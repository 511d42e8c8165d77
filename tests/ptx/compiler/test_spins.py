"""Tests of a barrier in loops: which of them are waits."""

from __future__ import annotations

import pytest

from tilepipe.ptx import load

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
    mov.u32 %r1, bar;
    mov.u32 %r2, 0;
    mov.u32 %r3, %tid.x;
    setp.eq.u32 %p3, %r3, 5;
    setp.eq.u32 %p4, %r3, 6;
    mov.u32 %r4, 0;
    mov.u32 %r5, 0;
"""
TAIL = """
    add.u32 %r4, %r4, %r5;
    st.global.u32 [%rd1], %r4;
    @%p4 st.global.u32 [%rd1], %r3;
    ret;
}
"""
TEST = "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2;"


def is_wait(body: str) -> bool:
    (kernel,) = load(f"{HEAD}{body}{TAIL}").values()
    (site,) = [s for s in kernel.code.sites.values() if s.instruction.opcode == "mbarrier"]
    return site.spins


@pytest.mark.parametrize(
    "body",
    [
        f"AGAIN: {TEST} @!%p1 bra AGAIN;",
        f"AGAIN: {TEST} @%p1 bra DONE; bra AGAIN; DONE:",
        # what stands after the wait, and does not change, has been moved into the loop
        f"AGAIN: {TEST} setp.eq.u32 %p5, %r3, 7; and.pred %p4, %p3, %p5; @!%p1 bra AGAIN;",
        # the same of its answer, which the last pass through the loop computes anew
        f"AGAIN: {TEST} not.pred %p2, %p1; and.pred %p4, %p3, %p2; @%p2 bra AGAIN;",
        # what it computes each time before the test
        f"AGAIN: shl.b32 %r5, %r3, 3; {TEST} add.u32 %r4, %r5, 1; @!%p1 bra AGAIN;",
    ],
)
def test_a_loop_that_only_tests_is_a_wait(body: str) -> None:
    assert is_wait(body)


@pytest.mark.parametrize(
    "body",
    [
        # it counts how often it has tested
        f"AGAIN: {TEST} add.u32 %r4, %r4, 1; @!%p1 bra AGAIN;",
        # the parity changes from one test to the next
        f"AGAIN: {TEST} xor.b32 %r2, %r2, 1; @!%p1 bra AGAIN;",
        f"mov.u32 %r6, 1; AGAIN: mov.u32 %r2, %r6; {TEST} mov.u32 %r6, %r3; @!%p1 bra AGAIN;",
        # a register remembers that a test has failed
        f"AGAIN: {TEST} @%p1 bra DONE; mov.u32 %r5, 1; bra AGAIN; DONE:",
        f"AGAIN: {TEST} @!%p1 mov.u32 %r5, 1; @!%p1 bra AGAIN;",
        # more than the answer decides whether it tests again
        f"AGAIN: {TEST} or.pred %p2, %p1, %p3; @!%p2 bra AGAIN;",
        # it stores each time
        f"AGAIN: {TEST} st.global.u32 [%rd1], %r3; @!%p1 bra AGAIN;",
    ],
)
def test_a_loop_that_does_more_is_none(body: str) -> None:
    assert not is_wait(body)
