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
    ],
)
def test_a_test_that_guards_a_wait_is_found(between: str) -> None:
    answer, test, wait = found(f"{PEEK}{between}\n{WAIT}")
    assert answer.tests.keys() == {test}
    assert answer.waits == {wait: answer.tests[test]}


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
        # it decides the address of the wait
        f"{PEEK}selp.b32 %r3, 8, 0, %p1; add.u32 %r1, %r1, %r3; @%p1 bra DONE;\n{WAIT}",
    ],
)
def test_a_test_that_decides_more_is_not(body: str) -> None:
    answer, _, _ = found(body)
    assert not answer.tests
    assert not answer.waits
