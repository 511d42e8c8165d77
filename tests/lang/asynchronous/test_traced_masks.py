"""`ctx.mma_commit(mbar, mask=...)` of wgmma with a mask that depends on the rank of the CTA."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.accumulators import who_arrives


@tp.kernel(grid=4, cluster=4)
def tells_others(ctx: tp.Context, out: tp.GlobalTensor, *, known: bool) -> None:
    """Each CTA multiplies, and tells itself and the CTA two further on that it has."""
    a = ctx.smem((64, 64), "bfloat16", name="a")[0]
    done = tp.ProducerConsumerPipeline.allocate(ctx, 1, producer_arrivals=2, name="done")

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        zeros, acc = ctx.fragment(shape=(64, 64)), ctx.accumulator((64, 64))
        zeros.fill(0)
        ctx.store(a, zeros)
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        ctx.mma(acc, a, a, accumulate=False)
        mask: Any = 5 << ctx.cta_rank % 2 if known else ctx.load(out[0, 0])
        ctx.mma_commit(done.producer_mbar(0), mask=mask)
        ctx.wgmma_wait(0)
        done.wait_producer()
        done.consumer_step()
        ctx.store_global(out, (64 * ctx.cta_rank, 0), (acc + 1).to("int32"))


def test_the_ctas_of_a_traced_mask_are_told() -> None:
    out = np.zeros((256, 64), np.int32)
    program = tells_others.bind(out, known=True)
    program.run()
    assert (out == 1).all()
    assert set(who_arrives(program)) == {
        ("done.full", to, "mma", source)
        for to in range(4)
        for source in range(4)
        if to % 2 == source % 2
    }
    assert program.check().verdict == "verified"
    out[...] = 0
    program.ptx("sm_90a").run(1)
    assert (out == 1).all()


def test_a_mask_that_is_not_known_before_the_launch() -> None:
    words = "a traced mask of mma_commit must be made of ctx.cta_rank and constants alone"
    with pytest.raises(tp.TraceError, match=re.escape(words)):
        tells_others.bind(np.zeros((256, 64), np.int32), known=False)
