"""A polling loop that gives up after some time: undecided where only giving up could end it, and a
deadlock where it never gives up.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe import ptx
from tilepipe.check import check

# CTA 1 polls a flag that CTA 0 sets, or does not; {limit} may leave the loop.
FLAG = """
    .reg .b64 %t0, %t1;
    mov.u32 %r1, %ctaid.x;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra SETS;
    mov.u64 %t0, {clock};
    POLL: ld.acquire.gpu.global.u32 %r2, [%b0];
    setp.ne.u32 %p2, %r2, 0;
    @%p2 bra DONE;
    {limit}
    bra POLL;
    SETS: {sets}
    DONE:
"""
LIMIT = """mov.u64 %t1, {clock};
    sub.u64 %t1, %t1, %t0;
    setp.gt.u64 %p3, %t1, 100000;
    @%p3 bra DONE;"""
SETS = "st.release.gpu.global.u32 [%b0], 1;"
CLOCKS = ("%clock64", "%globaltimer")


def launch(clock: str, limit: str, sets: str) -> ptx.Launch:
    text = FLAG.format(limit=limit.format(clock=clock), sets=sets, clock=clock)
    return kernel(text, 1).bind([np.zeros(1, np.int32)], grid=2, block=1)


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_flag_that_comes_ends_the_loop(clock: str) -> None:
    assert check(launch(clock, LIMIT, SETS)).ok


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_loop_that_only_time_can_end_is_undecided(clock: str) -> None:
    verdict = check(launch(clock, LIMIT, ""))
    assert verdict.verdict == "undecided"
    for words in (
        "warp 0 of CTA 1 polls at",
        "in a loop that reads a clock",
        "mov.u64",
        "check a copy of the kernel without the limit",
    ):
        assert words in str(verdict.bound)


@pytest.mark.slow
@pytest.mark.parametrize("clock", CLOCKS)
def test_a_run_gives_up_as_the_kernel_says(clock: str) -> None:
    launch(clock, LIMIT, "").run()


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_clock_outside_of_the_loop_changes_nothing(clock: str) -> None:
    verdict = check(launch(clock, "", ""))
    assert [fault.kind for fault in verdict.faults] == ["DeadlockError"]
