"""How many clusters of a launch of PTX run at once: every number is tried where one may wait for
another, unless the launch is cooperative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.check import Bounds, check
from tilepipe.errors import BindError, DeadlockError

# Each CTA sets its flag, and then waits for that of CTA ctaid + {step}, where there is one.
CHAIN = """
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r3, %nctaid.x;
    mul.lo.u32 %r4, %r1, 4;
    cvt.u64.u32 %d1, %r4;
    add.u64 %d1, %b0, %d1;
    st.release.gpu.global.u32 [%d1], 1;
    add.s32 %r5, %r1, {step};
    setp.lt.s32 %p1, %r5, 0;
    @%p1 bra DONE;
    setp.ge.s32 %p1, %r5, %r3;
    @%p1 bra DONE;
    POLL: ld.acquire.gpu.global.u32 %r2, [%d1+{bytes}];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra POLL;
    DONE:
"""


def chain(step: int, ctas: int = 3, **options: Any) -> Any:
    text = ".reg .b64 %d<2>;" + CHAIN.format(step=step, bytes=4 * step)
    return kernel(text, 1).bind([np.zeros(ctas, np.int32)], grid=ctas, block=1, **options)


@pytest.mark.slow
def test_a_cta_may_wait_for_those_before_it() -> None:
    verdict = check(chain(-1))
    assert verdict.ok
    assert verdict.traces >= 3, "one, two and three CTAs at once"


@pytest.mark.slow
def test_a_cta_that_waits_for_a_later_one_may_wait_for_ever() -> None:
    launch = chain(1)
    verdict = check(launch)
    (fault,) = verdict.faults
    assert fault.kind == "DeadlockError"
    assert "CTAs can be resident" in fault.message
    assert "unless the launch is cooperative: bind(..., cooperative=True)" in fault.message
    assert isinstance(launch.replay(fault), DeadlockError)


@pytest.mark.slow
def test_a_cooperative_launch_runs_all_at_once() -> None:
    assert check(chain(1, cooperative=True)).ok
    chain(1, cooperative=True).run(seed=3)


def test_a_cooperative_launch_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BindError, match=r"H200 holds 4,?224 of .* and the grid has 5000"):
        chain(1, 5000, cooperative=True)
    with pytest.raises(BindError, match="cooperative is True or False, got 1"):
        chain(1, cooperative=1)


def test_a_search_that_ends_early_says_how_many_clusters_ran_at_once() -> None:
    verdict = check(chain(-1, 2), bounds=Bounds(traces=5))
    assert verdict.verdict == "undecided"
    assert "this was with 1 of 2 clusters running at once" in verdict.bound
    assert "say cooperative=True if the launch promises that all run" in verdict.bound


def test_a_search_that_ends_with_all_clusters_at_once_does_not_speak_of_fewer() -> None:
    """A cooperative launch would have hit the same bound."""
    assert check(chain(-1, 2), bounds=Bounds(traces=4)).bound == "4 executions"


# As this_grid().sync() of cooperative groups: a thread of each CTA counts, and waits for the flip.
GRID_SYNC = """
    .reg .b32 %hi, %lo, %old, %now;
    mov.u32 %hi, %envreg1;
    mov.u32 %lo, %envreg2;
    mov.b64 %rd1, {%lo, %hi};
    mov.u32 %r1, %ctaid.x;
    mad.wide.u32 %rd2, %r1, 4, %b0;
    st.global.u32 [%rd2], 1;
    bar.sync 0;
    setp.eq.u32 %p1, %r1, 0;
    selp.b32 %r2, 0x7fffffff, 1, %p1;
    atom.add.release.gpu.u32 %old, [%rd1+4], %r2;
    LOOK: ld.acquire.gpu.u32 %now, [%rd1+4];
    xor.b32 %r3, %old, %now;
    setp.ge.s32 %p2, %r3, 0;
    @%p2 bra LOOK;
    {after}
    xor.b32 %r4, %r1, 1;
    mad.wide.u32 %rd2, %r4, 4, %b0;
    ld.global.u32 %r5, [%rd2];
"""


def test_the_barrier_of_a_grid_counts_in_the_workspace_of_a_cooperative_launch() -> None:
    def verdict(text: str) -> str:
        bound = kernel(text, 1).bind([np.zeros(2, np.int32)], grid=2, block=1, cooperative=True)
        return check(bound).verdict

    text = GRID_SYNC.replace("{after}", "")
    assert verdict(text) == "verified"
    assert verdict(text.replace("add.release", "add.relaxed")) == "fault"
