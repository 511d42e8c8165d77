"""The maximum and the sum of the exponentials of rows, for softmax and cross entropy."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.rows.team import RowTeam

LOG2_E = 1.4426950408889634

LEAST = -3.4028234e38  # of float32


def largest_and_sum(
    team: RowTeam, x: tp.GlobalTensor, loaded: tp.Fragment
) -> tuple[tp.Fragment, tp.Fragment, tp.Fragment, tp.Fragment]:
    """Of rows of `x`: (the maximum of this group's part, exp(values - it) in float32, the maximum
    of the row, Σ exp(values - that)). Columns outside count as -inf.

    A part of -inf alone, which may lie outside, counts as having the least maximum of float32: a
    difference of infinities would be NaN.
    """
    ctx = team.ctx
    values = team.inside(x, loaded.to("float32"), float("-inf"))
    # of the elements as they were loaded, two of 16 bits at a time
    mine = ctx.fragment((values if team.ragged else loaded).max().to("float32"))
    if team.cfg.members > 1:
        mine.set(mine.maximum(LEAST))
    exponentials = ctx.fragment(((values - mine) * LOG2_E).apply("exp2"))
    sums = exponentials.sum()
    if team.cfg.members == 1:
        return mine, exponentials, mine, sums
    parts, totals = team.gather(mine, sums)
    largest, total = ctx.fragment(parts[0]), team.fragment(cols=1)
    for part in parts[1:]:
        largest.set(largest.maximum(part))
    for part, n in zip(parts, totals, strict=True):
        total += n * ((part - largest) * LOG2_E).apply("exp2")
    return mine, exponentials, largest, total
