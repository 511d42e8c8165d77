"""A rectangle of a tile that depends on the rank of the CTA alone is computed once, at the top of
the role: one that leaves the tile in a CTA whose branch is not taken is no fault.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp


@tp.kernel(grid=2, cluster=2)
def halves(ctx: tp.Context, out: tp.GlobalTensor, *, guarded: bool) -> None:
    """CTA r writes rows 64 (r + 1) .. of a tile of 128, which CTA 1 does not have."""
    tile = ctx.smem((128, 32), "float32", name="tile")[0]

    @ctx.role("rows", warpgroups=1)
    def rows() -> None:
        row = (ctx.cta_rank + 1) * 64
        ones = ctx.fragment(shape=(64, 32))
        ones.fill(1)
        with ctx.when((row < 128) if guarded else (row < 1000)):
            ctx.store(tile.rows(row, 64), ones)
        ctx.store_global(out, (64 * ctx.cta_rank, 0), ones)


def test_a_branch_that_is_not_taken() -> None:
    out = np.zeros((128, 32), np.float32)
    halves.bind(out, guarded=True).run()
    assert (out == 1).all()


def test_a_branch_that_is_taken() -> None:
    out = np.zeros((128, 32), np.float32)
    with pytest.raises(tp.SimFault, match=r"rows 128\.\.191 and columns 0\.\.31 of a 128×32 tile"):
        halves.bind(out, guarded=False).run()
