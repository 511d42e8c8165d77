"""Lanes of a warp that wait for each other: the message names the instruction that keeps them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ptx.isa.programs import kernel
from tilepipe.check import check
from tilepipe.errors import DeadlockError

# The lower half of a warp takes a branch of its own.
HALF = """
    mov.u32 %r1, 1;
    setp.lt.u32 %p1, %t, 16;
    @!%p1 bra OVER;
    {inside}
    OVER: {after}
    st.global.u32 [%b0], 1;
"""
SHUFFLE = "shfl.sync.down.b32 %r1, %t, 8, 31, 0xffffffff;"
BY_MASK = {
    "shfl.sync": SHUFFLE,
    "vote.sync": "vote.sync.ballot.b32 %r1, %p1, 0xffffffff;",
    "bar.warp.sync": "bar.warp.sync 0xffffffff;",
}


@pytest.mark.parametrize("form", BY_MASK)
def test_the_instruction_that_names_too_many_lanes_is_blamed_not_the_barrier(form: str) -> None:
    text = HALF.format(inside=BY_MASK[form], after="bar.sync 0;")
    launch = kernel(text, 1).bind([np.zeros(1, np.int32)], grid=1, block=32)
    (fault,) = check(launch).faults
    assert fault.kind == "DeadlockError"
    assert fault.message.startswith(f"{form}")
    assert "the lanes 0xffff of warp 0 wait at it for the lanes 0xffff0000" in fault.message
    assert "lanes 0xffff0000 wait at PTX line" in fault.message
    assert "bar.sync 0" in fault.message
    assert f"(PTX ISA, {form})" in fault.message
    assert "__ballot_sync()" in fault.message


def test_lanes_that_exit_are_not_waited_for() -> None:
    """PTX ISA, vote.sync: it waits for the lanes of its mask that have not exited."""
    text = HALF.format(inside=BY_MASK["vote.sync"], after="@!%p1 ret;")
    out = np.zeros(1, np.int32)
    kernel(text.replace("[%b0], 1", "[%b0], %r1"), 1).bind([out], grid=1, block=32).run()
    assert out[0] == 0xFFFF


def test_a_barrier_for_the_whole_warp_in_one_branch() -> None:
    text = HALF.format(inside="barrier.sync 0;", after=SHUFFLE)
    with pytest.raises(DeadlockError, match=r"shfl.sync.down.b32 .* for the lanes 0xffff, which"):
        kernel(text, 1).bind([np.zeros(1, np.int32)], grid=1, block=32).run()
