"""`tile.T` as an operand of wgmma: the elements that are read are those of the tile itself, so that
races are found by them, and messages name both.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused


@tp.kernel(grid=1)
def overwritten(ctx: tp.Context, out: tp.GlobalTensor, *, first: int) -> None:
    """Half of the columns of b are multiplied, as rows of its transpose; 32 from `first` on are
    written before the MMA has been waited for.
    """
    a, b = (ctx.smem((64, 64), "bfloat16", name=name)[0] for name in "ab")

    @ctx.role("one", warpgroups=1)
    def one() -> None:
        ones = ctx.fragment(shape=(64, 64))
        ones.fill(1)
        ctx.store(a, ones)
        ctx.store(b, ones)
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        sums = ctx.accumulator((64, 32))
        ctx.mma(sums, a, b.T.rows(0, 32), accumulate=False)
        ctx.wgmma_commit()
        ctx.store(b.cols(first, 32), ones.cols(0, 32))
        ctx.wgmma_wait(0)
        ctx.store_global(out, (0, 0), sums)


def test_a_write_to_what_the_transpose_reads_is_a_race() -> None:
    with refused(
        tp.RaceError,
        "race on b",
        "reads rows 0..63, columns 0..31 (async proxy): wgmma acc = a[0] · b.T[0] rows 0..31ᵀ",
        "writes rows 0..15, columns 0..31",
    ):
        overwritten.bind(np.zeros((64, 32), np.float32), first=0).run(seed=1)


def test_a_write_beside_it_is_none() -> None:
    out = np.zeros((64, 32), np.float32)
    program = overwritten.bind(out, first=32)
    program.run(seed=1)
    assert (out == 64).all()
    assert program.check().verdict == "verified"


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 32])
def test_from_the_printed_code(first: int) -> None:
    program = overwritten.bind(np.zeros((64, 32), np.float32), first=first)
    if first:
        program.ptx("sm_90a").run(seed=1)
        return
    with pytest.raises(tp.RaceError, match="wgmma"):
        program.ptx("sm_90a").run(seed=1)
