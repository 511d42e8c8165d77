"""Which warp of a warpgroup a line of a measured timeline is taken from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.ir import ops
from tilepipe.ir.stamps import Stamp, WarpStamps, points
from tilepipe.timeline.clocks import Clocks
from tilepipe.timeline.passages import passages


@tp.kernel(grid=1)
def twice(ctx: Any, out: Any) -> None:
    bar = tp.SharedMemBarrier.allocate(ctx, count=1, name="bar")

    @ctx.role("give", warps=4)  # type: ignore[untyped-decorator]
    def give() -> None:
        with ctx.elect_one():
            bar.arrive()

    @ctx.role("take", warpgroups=1)  # type: ignore[untyped-decorator]
    def take() -> None:
        for i in ctx.range(2):
            bar.wait(i % 2)


def test_a_line_is_that_of_one_warp() -> None:
    """Warp 1 blocks in both turns, warp 0 in the second alone, where it comes later and goes on
    earlier.
    """
    kernel = twice.bind(np.zeros(1, np.float32)).kernel
    (take,) = (role for role in kernel.roles if role.name == "take")
    (wait,) = (n for n, x in enumerate(points(kernel)) if isinstance(x.op, ops.MbarWait))

    def warp(number: int, *spans: tuple[int, int]) -> WarpStamps:
        stamps = tuple(
            Stamp(wait, ended, at, 0, 0, None)
            for span in spans
            for ended, at in zip((False, True), span, strict=True)
        )
        return WarpStamps(0, take.first_warp + number, 0, 0, 1000, 0, 1000, stamps, 0)

    # the order in which they are given does not matter
    noted = [warp(1, (100, 200), (450, 650)), warp(0, (500, 600)), warp(2)]
    (found,) = passages(kernel, noted, Clocks(1.0, {0: (0, 0)}))
    assert [x.stamp.ended for x in found] == [False, True]
    assert [x.us for x in found] == pytest.approx([0.5, 0.6])
