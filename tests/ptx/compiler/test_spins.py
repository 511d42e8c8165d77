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


def waits(body: str) -> list[bool]:
    """Which of its tests are waits."""
    (kernel,) = load(f"{HEAD}{body}{TAIL}").values()
    sites = kernel.code.sites.values()
    return [s.spins for s in sites if s.instruction.opcode == "mbarrier"]


def asks(answer: str) -> str:
    """A test, as `TEST` with another register for its answer."""
    return TEST.replace("%p1", answer)


LOOP = f"AGAIN: {asks('%p8')} @!%p8 bra AGAIN;\n"


@pytest.mark.parametrize(
    "body",
    [
        f"{asks('%p1')} @%p1 bra DONE;\n{LOOP}DONE:",
        # three attempts, each of which says how long it may take
        "".join(
            f"mov.u32 %r{9 + i}, 1000; {asks(f'%p{5 + i}').replace('%r2;', f'%r2, %r{9 + i};')}"
            f" @%p{5 + i} bra DONE;\n"
            for i in range(3)
        )
        + f"{LOOP}DONE:",
        # a copy of the answer decides
        f"{asks('%p1')} not.pred %p2, %p1; @!%p2 bra DONE;\n{LOOP}DONE:",
        # the second attempt under a guard
        f"{asks('%p1')} @!%p1 {asks('%p1')} @%p1 bra DONE;\n{LOOP}DONE:",
        # what does not depend on the answer stands between
        f"{asks('%p1')} shl.b32 %r4, %r3, 2; @%p1 bra DONE;\n{LOOP}DONE:",
        # the address is computed anew for each attempt
        f"shl.b32 %r6, %r3, 3; {asks('%p1').replace('%r1', '%r6')} @%p1 bra DONE;\n"
        f"shl.b32 %r7, %r3, 3; {asks('%p5').replace('%r1', '%r7')} @%p5 bra DONE;\n"
        f"AGAIN: shl.b32 %r8, %r3, 3; {asks('%p8').replace('%r1', '%r8')} @!%p8 bra AGAIN;\nDONE:",
    ],
)
def test_attempts_before_the_loop_are_waits(body: str) -> None:
    found = waits(body)
    assert len(found) > 1
    assert all(found)


@pytest.mark.parametrize(
    "body",
    [
        # a register tells which attempt has succeeded
        f"{asks('%p1')} @%p1 bra DONE; mov.u32 %r5, 1;\n{LOOP}DONE:",
        f"{asks('%p4')} @%p4 bra DONE;\n{LOOP}DONE:",
        f"{asks('%p1')} selp.b32 %r5, 1, 0, %p1; @%p1 bra DONE;\n{LOOP}DONE:",
        # the ways do not meet again before something is done
        f"{asks('%p1')} @%p1 bra DONE;\n{LOOP} st.global.u32 [%rd1], %r3; DONE:",
        # an address that is computed in another way
        f"{asks('%p1').replace('%r1', '%r3')} @%p1 bra DONE;\n"
        f"AGAIN: shl.b32 %r8, %r3, 3; {asks('%p8').replace('%r1', '%r8')} @!%p8 bra AGAIN;\nDONE:",
        # another phase, another barrier, another scope
        f"{asks('%p1')} @%p1 bra DONE; xor.b32 %r2, %r2, 1;\n{LOOP}DONE:",
        f"{asks('%p1')} @%p1 bra DONE;\n{LOOP.replace('[%r1]', '[%r1+8]')}DONE:",
        f"{asks('%p1')} @%p1 bra DONE;\n"
        f"{LOOP.replace('.shared', '.acquire.cluster.shared::cta')}DONE:",
        # nothing but the last attempt waits for it
        f"{asks('%p1')} @%p1 bra DONE; st.global.u32 [%rd1], %r3;\n{LOOP}DONE:",
    ],
)
def test_an_attempt_that_tells_is_none(body: str) -> None:
    assert waits(body) == [False, True]
