"""GroupedScheduler by itself: the tiles that it deals out, of rows that follow each other and of
padded groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.gemm_grouped.reference import rows_of

ROWS, HEIGHT, COLUMNS = 50, 8, 3


@tp.kernel(grid=lambda ctas: ctas)
def dealt(ctx: tp.Context, offsets: Any, visits: Any, *, ctas: int, padded: bool) -> None:
    """visits[group, row, column] += the rows of the tile that begins there."""
    work = tp.GroupedScheduler(
        ctx, offsets, rows=ROWS, tile_rows=HEIGHT, columns=COLUMNS, padded=padded
    )

    @ctx.role("all", warps=1)
    def all_of_it() -> None:
        for tile in work:
            at = visits[tile.batch, tile.row, tile.n]
            with ctx.elect_one():
                ctx.store(at, ctx.load(at) + ctx.min(tile.end - tile.row, HEIGHT))


@pytest.mark.parametrize("ctas", [1, 3])
@pytest.mark.parametrize("padded", [False, True], ids=["rows", "padded"])
@pytest.mark.parametrize("offsets", [[5, 5, 40, 50], [0, 17, -3, 99], [60, 30, 61], [-(2**31)]])
def test_each_row_of_a_group_is_in_one_tile(offsets: list[int], padded: bool, ctas: int) -> None:
    visits = np.zeros((len(offsets), ROWS, COLUMNS), np.int32)
    ends, want = np.array(offsets, np.int32), np.zeros_like(visits)
    dealt.bind(ends, visits, ctas=ctas, padded=padded).run(seed=ctas)
    like = np.empty((*(len(offsets),) * padded, ROWS, 1), np.bool_)
    for group, start, end in rows_of(like, ends):
        for row in range(start, end, HEIGHT):
            want[group, row] = min(end - row, HEIGHT)
    np.testing.assert_array_equal(visits, want)
