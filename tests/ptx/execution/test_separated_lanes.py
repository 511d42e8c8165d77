"""Lanes of a warp that a branch has separated: verdicts on locks that each lane takes, and on what
lanes do on the two sides of a condition.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.check import Bounds, Verdict, check

TRY = "TRY: atom.global.cas.b32 %r1, [%b0], 0, 1; setp.ne.u32 %p1, %r1, 0;"
ADD = """{fence} ld.volatile.global.u32 %r2, [%b0+4]; add.u32 %r2, %r2, 1;
    st.volatile.global.u32 [%b0+4], %r2; {fence} {give_back}"""
# `while (atomicCAS(lock, 0, 1) != 0);` and what the lock guards after it
AFTER = f"{TRY} @%p1 bra TRY; {ADD}"
# `while (!done) if (atomicCAS(lock, 0, 1) == 0) { ...; done = true; }`
INSIDE = f"""mov.u32 %r9, 0; {TRY} @%p1 bra NEXT; {ADD} mov.u32 %r9, 1;
    NEXT: setp.eq.u32 %p2, %r9, 0; @%p2 bra TRY;"""
GIVE_BACK = {
    "exch": "atom.global.exch.b32 %r3, [%b0], 0;",
    "volatile": "mov.u32 %r3, 0; st.volatile.global.u32 [%b0], %r3;",
}


def checked(
    form: str, lanes: int, give_back: str = "exch", fence: str = "membar.gl;", grid: int = 1
) -> Verdict:
    text = form.format(fence=fence, give_back=GIVE_BACK[give_back])
    launch = kernel(text, 1).bind([np.zeros(2, np.int32)], grid=grid, block=lanes)
    return check(launch, bounds=Bounds(seconds=60))


@pytest.mark.parametrize("give_back", GIVE_BACK)
@pytest.mark.parametrize("lanes", [1, 2, 3, 8])
def test_lanes_that_meet_after_each_try_of_a_lock_are_decided(lanes: int, give_back: str) -> None:
    assert checked(INSIDE, lanes, give_back).ok


@pytest.mark.parametrize("give_back", GIVE_BACK)
@pytest.mark.parametrize("lanes", [2, 3, 8])
def test_lanes_that_pass_others_which_poll_are_undecided(lanes: int, give_back: str) -> None:
    """On a GPU the program ends: threads make progress independently. But each lane that has the
    lock runs beside lanes that poll, and only one order of their steps is looked at.
    """
    verdict = checked(AFTER, lanes, give_back)
    assert verdict.verdict == "undecided"
    assert "both act before they meet again" in verdict.bound
    assert "(atom.global.cas.b32) and" in verdict.bound
    assert verdict.bound.endswith(
        "only one order of the two is looked at. Let one lane of the warp do both, or, of a lock,"
        " put what it guards and its release into the loop, where a lane has got it"
    )
    assert checked(AFTER, 1, give_back).ok


def test_how_many_ctas_run_at_once_has_no_part_in_what_is_not_modelled() -> None:
    """A lock in global memory orders CTAs, too; fewer of them would change nothing."""
    assert checked(AFTER, 2, grid=2).bound == checked(AFTER, 2).bound.replace(
        "warp 0", "warp 0 of CTA 0"
    )


def test_what_a_lock_of_lanes_guards_is_examined() -> None:
    """Data by ordinary accesses, with and without the fences."""
    weak = INSIDE.replace(".volatile.global", ".global")
    assert checked(weak, 3).ok
    (fault,) = checked(weak, 3, fence="").faults
    assert fault.kind == "RaceError"


SIDES = {
    "a predicate": "@%p1 {one} @!%p1 {other}",
    "a branch": "@!%p1 bra ELSE; {one} bra MEET; ELSE: {other} MEET:",
}
ACTS = {
    "strong": ("st.relaxed.gpu.global.u32 [%b0], %t;", "st.relaxed.gpu.global.u32 [%b0+4], %t;"),
    "weak": ("st.global.u32 [%b0], %r1;", "st.global.u32 [%b0+4], %r1;"),
}


@pytest.mark.parametrize("way", SIDES)
@pytest.mark.parametrize("acts", ACTS)
def test_both_sides_of_a_condition(way: str, acts: str) -> None:
    """As docs/verification-gaps.md has it, "Lanes of one instruction"."""
    one, other = ACTS[acts]
    text = "setp.eq.u32 %p1, %t, 0; mov.u32 %r1, 5; " + SIDES[way].format(one=one, other=other)
    verdict = check(kernel(text, 1).bind([np.zeros(2, np.int32)], grid=1, block=2))
    undecided = (way, acts) == ("a branch", "strong")
    assert verdict.verdict == ("undecided" if undecided else "verified")
    assert ("both act before they meet again" in verdict.bound) == undecided
