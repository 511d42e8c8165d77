"""Stores of a fragment's first rows: which elements they touch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp


@tp.kernel()
def neighbours(
    ctx: tp.Context, counts: Any, out: Any, *, shape: tuple[int, int], layout: str
) -> None:
    """Two warpgroups store their number, the second from row 5 on, in as many rows as `counts`
    says.
    """

    @ctx.role("both", warpgroups=2)
    def both() -> None:
        x = ctx.fragment(shape=shape, layout=layout)
        x.fill(ctx.warpgroup_rank.to("float32"))
        first, count = 5 * ctx.warpgroup_rank, ctx.load(counts[ctx.warpgroup_rank])
        where = (first, 0) if shape[1] > 1 else (first,)
        ctx.store_global(out, where, x, rows=count)


LAYOUTS = {
    "wgmma": ((64, 16), "wgmma"),
    "tmem": ((128, 16), "tmem"),
    "threads": ((16, 64), "rows:8"),
    "a value a row": ((64, 1), "wgmma"),
    "a value a row of threads": ((16, 1), "rows:8"),
}


@pytest.mark.parametrize(("shape", "layout"), LAYOUTS.values(), ids=LAYOUTS)
def test_rows_that_are_not_written_meet_no_other(shape: tuple[int, int], layout: str) -> None:
    def stored(*counts: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        out = np.full((shape[0] + 5, shape[1]) if shape[1] > 1 else shape[0] + 5, 9, np.float32)
        neighbours.bind(np.array(counts, np.int32), out, shape=shape, layout=layout).run()
        return out.reshape(len(out), -1)[:, 0]

    found = stored(5, 3)
    assert (found[:5] == 0).all()
    assert (found[5:8] == 1).all()
    assert (found[8:] == 9).all()
    assert (stored(0, -1) == 9).all()
    assert (stored(-3, 1000)[5:] == 1).all()
    with pytest.raises(tp.RaceError, match="race on tensor 'out'"):
        stored(6, 1)
