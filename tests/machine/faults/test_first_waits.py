"""A deadlock in which all begin with phase 0 of fresh barriers: the advice is parity 1 for the one
that fills first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.machine.faults.test_waits import COPIED, STORED, ring
from tests.scenarios.support import at
from tilepipe.check import check
from tilepipe.ptx import Launch


def advice(launch: Launch) -> str:
    (fault,) = check(launch).faults
    assert fault.kind == "DeadlockError"
    return fault.message.split("what to look at: ")[1]


@pytest.mark.parametrize(("fill", "reads"), [(COPIED, 38), (STORED, 37)], ids=["copied", "stored"])
def test_two_warps_that_both_begin_with_parity_0(fill: str, reads: int) -> None:
    assert advice(ring(fill, fills="0", reads="0")).startswith(
        "whoever fills first must wait with parity 1: on a fresh mbarrier the phase before the"
        " first counts as complete, so that this wait passes. Here all begin with parity 0, and"
        " nothing has arrived: warp 0 for phase 0 of the mbarrier at 'empty' (<ptx>:29); warp 1 for"
        f" phase 0 of the mbarrier at 'full' (<ptx>:{reads}). If none of them fills first, an"
        " arrive on one of these barriers is missing."
    )


def test_a_barrier_that_has_been_used_is_no_first_wait() -> None:
    """The second round lacks its release."""
    launch = ring(STORED, read="bra DONE;")
    assert "whoever fills first" not in advice(launch)


@tp.kernel()
def by_hand(ctx: tp.Context, src: Any, out: Any, *, first: int) -> None:
    """A ring of one stage by hand, whose producer begins with parity `first`."""
    tile = tp.SMemTileArray2D(ctx, src.dtype, 8, 16, 1, name="tile")[0]
    full = tp.SharedMemBarrier.allocate(ctx, name="filled")
    empty = tp.SharedMemBarrier.allocate(ctx, name="freed")

    @ctx.role("read", warps=1)
    def read() -> None:
        for k in range(2):
            full.wait(k % 2)  # <reader waits>
            with ctx.when(ctx.lane < 16):
                ctx.store(out[k, ctx.lane], ctx.load(tile[0, ctx.lane]))
            ctx.syncwarp()
            with ctx.elect_one():
                empty.arrive()

    @ctx.role("load", warps=1)
    def load() -> None:
        for k in range(2):
            empty.wait((k + first) % 2)  # <load waits>
            with ctx.elect_one():
                full.expect_bytes(256)
                ctx.tma_load(src, (0, 16 * k), tile, full)


def bound(first: int) -> tp.Program:
    src, out = np.ones((8, 32), tp.bfloat16.numpy), np.zeros((2, 16), np.float32)
    return by_hand.bind(tp.tensor_map(src, box=(8, 16)), out, first=first)


def test_the_role_that_copies_is_named() -> None:
    assert bound(1).check().ok
    (fault,) = bound(0).check().faults
    assert (
        "what to look at: role 'load' fills first, and must wait with parity 1: on a fresh mbarrier"
        " the phase before the first counts as complete, so that this wait passes. Here all begin"
        " with parity 0, and nothing has arrived: role 'read' for phase 0 of filled"
        f" ({at(__file__, 'reader waits')}); role 'load' for phase 0 of freed"
        f" ({at(__file__, 'load waits')})." in fault.message
    )
    assert "is missing" not in fault.message
