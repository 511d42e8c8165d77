"""Tests of a barrier that only decide whether a wait is made."""

from __future__ import annotations

import pytest

from tilepipe.ptx import load
from tilepipe.ptx.compiler.peeks import Peeks, peeks

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
"""
PEEK = "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2;\n"
# without it, the test and the wait that follows it at once are one wait: test_spins.py
WORK = "st.global.u32 [%rd1], 7;\n"
WAIT = """SPIN:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r1], %r2;
    @!%p2 bra SPIN;
"""


def found(body: str) -> tuple[Peeks, int, int]:
    """What is found, and the instructions of the test and of the wait."""
    (kernel,) = load(f"{HEAD}{body}\nDONE:\n    ret;\n}}\n").values()
    tests = [n for n, i in enumerate(kernel.code.function.instructions) if i.opcode == "mbarrier"]
    return peeks(kernel.code), tests[0], tests[-1]


@pytest.mark.parametrize(
    "between",
    [
        "@%p1 bra DONE;",
        "selp.b32 %r3, 1, 0, %p1; setp.ne.b32 %p3, %r3, 0; @%p3 bra DONE;",
        "selp.b32 %r3, -1, 0, %p1; mov.u32 %r4, %r3; setp.eq.u32 %p3, %r4, 0; @!%p3 bra DONE;",
        "mov.u32 %r5, -1; vote.sync.all.pred %p3, %p1, %r5; @%p3 bra DONE;",
        "vote.sync.any.pred %p3, !%p1, -1; @!%p3 bra DONE;",
    ],
)
def test_a_test_that_guards_a_wait_is_found(between: str) -> None:
    answer, test, wait = found(f"{PEEK}{WORK}{between}\n{WAIT}")
    assert answer.tests.keys() == {test}
    assert answer.waits == {wait: answer.tests[test]}
    assert answer.unread == {answer.tests[test]}


@pytest.mark.parametrize(
    "body",
    [
        # its answer is written to memory
        f"{PEEK}selp.b32 %r3, 1, 0, %p1; st.global.u32 [%rd1], %r3; @%p1 bra DONE;\n{WAIT}",
        # the branch around the wait goes around something else, too
        f"{PEEK}@%p1 bra DONE;\n{WAIT} st.global.u32 [%rd1], 1;",
        # its answer is mixed with another value
        f"{PEEK}setp.eq.u32 %p3, %r2, %r1; and.pred %p4, %p1, %p3; @%p4 bra DONE;\n{WAIT}",
        # it guards nothing
        f"{PEEK}{WAIT}",
        # lanes that have been told "no" go on where another lane has been told "yes"
        f"{PEEK}vote.sync.any.pred %p3, %p1, -1; @%p3 bra DONE;\n{WAIT}",
        f"{PEEK}vote.sync.uni.pred %p3, %p1, -1; @%p3 bra DONE;\n{WAIT}",
        # it decides the address of the wait
        f"{PEEK}selp.b32 %r3, 8, 0, %p1; add.u32 %r1, %r1, %r3; @%p1 bra DONE;\n{WAIT}",
    ],
)
def test_a_test_that_decides_more_is_not(body: str) -> None:
    answer, _, _ = found(body)
    assert not answer.tests
    assert not answer.waits


AHEAD = """
    mov.u32 %r3, 0;
    mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2;
    st.global.u32 [%rd1], 7;
LOOP:
    @%p1 bra READY;
SPIN:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r1], %r2;
    @!%p2 bra SPIN;
READY:
    mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2;
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p4, %r3, 4;
    st.global.u32 [%rd1], %r3;
    @%p4 bra LOOP;
"""


def test_an_answer_that_is_dropped_at_the_end_is_read_by_nothing() -> None:
    answer, _, _ = found(AHEAD)
    assert len(answer.tests) == 2
    assert answer.unread == set(answer.tests.values())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # the answer is kept over the next test
        ("READY:\n", "READY:\n mov.pred %p5, %p1;\n"),
        # a "no" leads past the wait in some steps
        ("SPIN:\n", "setp.eq.u32 %p6, %r3, 2; @%p6 bra READY;\nSPIN:\n"),
    ],
)
def test_an_answer_that_may_have_been_read_has_to_be_followed_by_its_wait(
    old: str, new: str
) -> None:
    body = AHEAD.replace(old, new)
    if "%p5" in new:
        body = body.replace("@%p1 bra READY", "@%p5 bra READY").replace(
            "LOOP:", "mov.pred %p5, %p1;\nLOOP:"
        )
    answer, _, _ = found(body)
    assert answer.tests
    assert not answer.unread
