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
    maxima, totals = team.exchange(mine, sums)
    best = maxima.max(axis=None)
    scaled = totals * ((maxima - best) * LOG2_E).apply("exp2")
    largest, total = team.joined(best), team.joined(scaled.sum(axis=None))
    return mine, exponentials, largest, total
