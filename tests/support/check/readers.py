"""Several warps that all do the same: each asks whether a stage is filled, waits for it unless it
is, reads it and frees it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tilepipe as tp


@dataclass(frozen=True)
class Shape:
    """`warps` that read; `rounds`: stages that are filled in all, of a ring of `stages`."""

    warps: int = 2
    rounds: int = 3
    stages: int = 2


@tp.kernel()
def readers(ctx: tp.Context, a: Any, *, cfg: Shape) -> None:
    """Each warp adds a's rows up, and finds no number below 0."""
    ring = tp.ProducerConsumerPipeline.allocate(ctx, cfg.stages, name="ring")
    rows = ctx.smem((1, 32), tp.int32, count=cfg.stages, swizzle=0, name="rows")

    @ctx.role("fill", warps=1)
    def fill() -> None:
        for i in ctx.range(a.shape[0]):
            with ring.produce() as stage:
                ctx.store(rows[stage.index()][0, ctx.lane], ctx.load(a[i, ctx.lane]))
                stage.mbar().arrive()

    @ctx.role("read", warps=cfg.warps)
    def read() -> None:
        total = ctx.var(ctx.lane * 0)
        for _ in ctx.range(a.shape[0]):
            ready = ring.try_wait_producer()
            ring.wait_producer_if_needed(ready)
            stage = tp.ConsumerStage(ring, ring.consumer_stage())
            total += ctx.load(rows[stage.index()][0, ctx.lane])
            stage.release()
        ctx.assert_(total.get() >= 0, "the sum of a column is negative")  # noqa: PT009


def program(cfg: Shape = Shape()) -> tp.Program:
    """The kernel on operands of its own."""
    return readers.bind(np.arange(cfg.rounds * 32, dtype=np.int32).reshape(cfg.rounds, 32), cfg=cfg)
