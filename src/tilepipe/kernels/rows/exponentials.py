"""The maximum and the sum of the exponentials of rows, for softmax and cross entropy."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.rows.team import RowTeam

LOG2_E = 1.4426950408889634


def largest_and_sum(
    team: RowTeam, values: tp.FragmentValue
) -> tuple[tp.Fragment, tp.Fragment, tp.Fragment, tp.Fragment]:
    """Of float32 rows: (the maximum of this warpgroup's part, exp(values - it), the maximum of the
    row, Σ exp(values - that)). Outside, `values` are -inf.

    A part of -inf alone, which may lie outside, counts as having a maximum of -1e38, whose
    exponential is 0: a difference of infinities would be NaN.
    """
    ctx = team.ctx
    mine = values.max()
    if team.cfg.members > 1:
        mine.set(mine.maximum(-1e38))
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
