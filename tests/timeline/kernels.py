"""A kernel whose timeline is known: one warp loads tiles through a ring of one stage, another
stores them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.timeline import Timeline

TILE = 16
COPY = TILE * TILE * 2 / 48  # cycles of the TMA unit, for a tile of float16
LATENCY = 700.0  # cycles, of a copy


@tp.kernel(grid=lambda a: a.shape[0] // TILE)
def copy(ctx: Any, a: Any, out: Any) -> None:
    """out = a"""
    ring = tp.ProducerConsumerPipeline.allocate(ctx, 1, name="ring")
    tiles = ctx.smem((TILE, TILE), a.dtype, count=1, name="tiles")
    columns = ctx.ceil_div(a.shape[1], TILE)
    row = ctx.block_id * TILE

    @ctx.role("load", warps=1)  # type: ignore[untyped-decorator]
    def load() -> None:
        for j in ctx.range(columns):
            with ring.produce() as stage, ctx.elect_one():
                stage.mbar().expect_bytes(tiles.tile_bytes)
                ctx.tma_load(a, (row, j * TILE), tiles[stage.index()], stage.mbar())

    @ctx.role("store", warps=1)  # type: ignore[untyped-decorator]
    def store() -> None:
        for j in ctx.range(columns):
            with ring.consume_explicit() as stage, ctx.elect_one():
                ctx.tma_store(out, (row, j * TILE), tiles[stage.index()])
                ctx.tma_store_commit()
                ctx.tma_store_wait(0, read=True)
                stage.mbar().arrive()
        with ctx.elect_one():
            ctx.tma_store_wait(0)


def copying(rows: int = 2, columns: int = 2) -> tp.Program:
    """It copies `rows` × `columns` tiles, a row a CTA."""
    a = np.ones((rows * TILE, columns * TILE), np.float16)
    return copy.bind(*(tp.tensor_map(x, box=(TILE, TILE)) for x in (a, np.zeros_like(a))))


def recorded(program: tp.Program, timeline: bool | int = True, **options: Any) -> Timeline:
    """The timeline of a run."""
    found = program.run(timeline=timeline, **options).timeline
    assert found is not None
    return found
