"""Loops around a test of a barrier: which of them are waits, and that the others do not keep the
rest of the grid from going on.
"""

from __future__ import annotations

import pytest

from tests.scenarios.test_dynamic_work import bind
from tests.support.printed_ptx import Printed, printed
from tilepipe.errors import DeadlockError, UnfinishedError
from tilepipe.ptx import load

TEST = "mbarrier.test_wait.parity.shared.b64 %p1, [%r2], 0;"
WAITS = {
    "nothing else": f"LOOP: {TEST} @!%p1 bra LOOP;",
    "a flag of the result": f"LOOP: {TEST} selp.u32 %r3, 1, 0, %p1; setp.eq.u32 %p2, %r3, 0; "
    "@%p2 bra LOOP;",
    "the address, computed each time": f"LOOP: mov.u32 %r4, words; add.u32 %r2, %r4, 0; {TEST} "
    "@!%p1 bra LOOP;",
    "another barrier each time": f"LOOP: xor.b32 %r2, %r2, 8; {TEST} @!%p1 bra LOOP;",
    "two ways out": f"LOOP: {TEST} @%p1 bra OUT; bra LOOP; OUT:",
}
NO_WAITS = {
    "a count": f"LOOP: add.u32 %r5, %r5, 1; {TEST} @!%p1 bra LOOP;",
    "a way out by a count": f"LOOP: {TEST} add.u32 %r5, %r5, 1; setp.eq.u32 %p2, %r5, 0; "
    "@%p2 bra OUT; @!%p1 bra LOOP; OUT:",
}


def run(loop: str, seed: int) -> None:
    text = f"""
        .version 8.7
        .target sm_90a
        .address_size 64
        .visible .entry k() {{
        .reg .pred %p<3>; .reg .b32 %r<9>;
        .shared .align 8 .b64 words[2];
        mov.u32 %r2, words;
        mov.u32 %r5, 0;
        mbarrier.init.shared.b64 [words], 1;
        mbarrier.init.shared.b64 [words+8], 1;
        {loop}
        ret;
        }}
        """
    load(text)["k"].bind([], grid=1, block=1).run(seed, timeout=0.1)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("loop", WAITS.values(), ids=WAITS.keys())
def test_a_loop_that_only_tests_is_a_wait(loop: str, seed: int) -> None:
    with pytest.raises(DeadlockError):
        run(loop, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("loop", NO_WAITS.values(), ids=NO_WAITS.keys())
def test_a_loop_that_changes_something_is_none(loop: str, seed: int) -> None:
    with pytest.raises(UnfinishedError):
        run(loop, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_lanes_that_poll_for_an_answer_of_the_grid_let_it_come(seed: int) -> None:
    program, out = bind("", clusters=7, size=1, stages=1, room=0)
    made = printed(program)
    polling = made.text.replace("mbarrier.try_wait", "bar.warp.sync -1; mbarrier.try_wait")
    assert polling != made.text
    Printed(program, polling, made.smem_bytes).run(seed, timeout=30)
    assert out.all()
