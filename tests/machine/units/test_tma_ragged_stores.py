"""TMA stores of a tile's first rows: which elements they touch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp


@tp.kernel()
def nothing_and_all(ctx: tp.Context, counts: Any, out: Any) -> None:
    """Two warps store to the same rows, as many of them as `counts` says."""
    tile = ctx.smem(out.box, out.dtype, count=2, swizzle=0, name="tile")

    @ctx.role("both", warps=2)
    def both() -> None:
        mine = tile[ctx.warp]
        for row in range(out.box[0]):
            ctx.store(mine[row, ctx.lane], ctx.warp)
        ctx.fence_proxy_async()
        ctx.syncwarp()
        count = ctx.load(counts[ctx.warp])
        for warp in range(2):
            with ctx.when(ctx.warp == warp), ctx.elect_one():
                ctx.tma_store(out, (2, 0), mine, rows=count)
                ctx.tma_store_commit()
                ctx.tma_store_wait(0)


@pytest.mark.parametrize("seed", range(6))
def test_a_store_of_no_rows_meets_no_other(seed: int) -> None:
    for counts in ((0, 4), (4, -1)):
        out = np.full((8, 32), 9, np.int32)
        nothing_and_all.bind(
            np.array(counts, np.int32), tp.tensor_map(out, box=(4, 32), swizzle=0, ragged=True)
        ).run(seed=seed)
        assert (out[2:6] == int(counts[0] == 0)).all()
        assert (np.delete(out, slice(2, 6), 0) == 9).all()
    result = tp.tensor_map(np.zeros((8, 32), np.int32), box=(4, 32), swizzle=0, ragged=True)
    with pytest.raises(tp.RaceError, match="race on tensor 'out'"):
        nothing_and_all.bind(np.array([1, 1], np.int32), result).run(seed=seed)
