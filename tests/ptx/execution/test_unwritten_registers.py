"""Registers that hold nothing when they are read: poison, which may be dropped."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel, run
from tilepipe.check import check
from tilepipe.errors import PoisonError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # the upper half of a pair, which LLVM leaves undefined
        ("mov.b64 %rd1, {%t, %r9}; cvt.u32.u64 %r1, %rd1;", 1),
        # a comparison whose result a selection drops
        ("setp.lt.u32 %p1, %r9, 5; mov.pred %p2, 0; and.pred %p3, %p1, %p2;"
         " selp.u32 %r1, 9, %t, %p3;", 1),
        # written in one round of a loop, read from the next one on
        ("mov.u32 %r2, 0; A: setp.gt.u32 %p1, %r2, 0; selp.u32 %r1, %r9, 0, %p1;"
         " mov.u32 %r9, %t; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 3; @%p2 bra A;", 1),
        # written by lanes that alone use it
        ("setp.ge.u32 %p1, %t, 16; @%p1 mov.u32 %r9, %t; mov.u32 %r1, 0; @%p1 add.u32 %r1, %r9, 0;"
         " @!%p1 mov.u32 %r1, %t;", 1),
    ],
    ids=["a half", "a selection", "a loop", "a part of the lanes"],
)  # fmt: skip
def test_poison_that_is_dropped_is_no_fault(text: str, expected: int) -> None:
    out = np.zeros(32, np.uint32)
    run(f"{text} st.global.u32 [%a0], %r1;", out)
    np.testing.assert_array_equal(out, np.arange(32) * expected)


@pytest.mark.parametrize(
    ("text", "register"),
    [
        ("st.global.u32 [%a0], %r9;", "%r9"),
        ("mov.b64 %rd1, {%t, %r9}; shr.u64 %rd1, %rd1, 8; cvt.u32.u64 %r1, %rd1;"
         " st.global.u32 [%a0], %r1;", "%r9"),
        ("setp.lt.u32 %p1, %r9, 5; @%p1 bra A; A: st.global.u32 [%a0], 1;", "%r9"),
        ("mov.u32 %r9, 0; @%p1 mov.u32 %r9, 1; st.global.u32 [%a0], %r9;", "%p1"),
        ("mov.u32 %r1, 0; @%p1 st.global.u32 [%a0], %r1;", "%p1"),
        ("setp.ge.u32 %p1, %t, 16; @!%p1 bra A; mov.u32 %r9, %t; A: st.global.u32 [%a0], %r9;",
         "%r9"),
        ("setp.ge.u32 %p1, %t, 16; @%p1 mov.u32 %r9, %t; st.global.u32 [%a0], %r9;", "%r9"),
    ],
    ids=["a store", "a half", "a branch", "a guard", "a store's guard", "a part of the lanes",
         "a guard of lanes"],
)  # fmt: skip
def test_poison_that_decides_or_leaves_is_a_fault(text: str, register: str) -> None:
    with pytest.raises(PoisonError, match=f"{register} is read, and nothing has written it"):
        run(text, np.zeros(64, np.uint32))


@pytest.mark.parametrize("some", ["@%p1 mov.u32 %r1, 5;", "@!%p1 bra OVER; mov.u32 %r1, 5; OVER:"])
def test_lanes_that_have_not_written_a_constant_do_not_hold_it(some: str) -> None:
    text = f"""
        setp.lt.u32 %p1, %t, 4;
        {some}
        mad.wide.u32 %a0, %t, 4, %b0;
        st.global.u32 [%a0], %r1;"""
    verdict = check(kernel(text, 1).bind([np.zeros(32, np.int32)], grid=1, block=32))
    assert [fault.kind for fault in verdict.faults] == ["PoisonError"]
    only = text.replace("st.global", "@%p1 st.global")
    assert check(kernel(only, 1).bind([np.zeros(32, np.int32)], grid=1, block=32)).ok


@pytest.mark.parametrize(
    "instruction",
    ["bar.warp.sync %r9", "vote.sync.any.pred %p2, %p1, %r9", "elect.sync _|%p2, %r9"],
)
def test_a_mask_that_nothing_has_written_is_a_fault(instruction: str) -> None:
    text = f"setp.eq.u32 %p1, %t, 0; {instruction};"
    verdict = check(kernel(text, 0).bind([], grid=1, block=32))
    assert [fault.kind for fault in verdict.faults] == ["PoisonError"]
