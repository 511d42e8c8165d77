"""A small kernel that has something of everything: a ring, a fence that is needed and one that is
not, a store through shared memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp

ROWS, COLS = 8, 32


@tp.kernel()
def copies(ctx: tp.Context, a: Any, out: Any, *, num_stages: int = 2, fences: int = 1) -> None:
    """out = a, in tiles of 8×32 float32: loaded by TMA, copied by a warp, stored by TMA."""
    tiles = ctx.smem((ROWS, COLS), a.dtype, count=num_stages, swizzle=0, name="tiles")
    result = ctx.smem((ROWS, COLS), a.dtype, swizzle=0, name="result")[0]
    ring = tp.ProducerConsumerPipeline.allocate(ctx, num_stages, name="ring")

    @ctx.role("load", warps=1)
    def load() -> None:
        for i in ctx.range(a.shape[0] // ROWS):
            with ring.produce() as stage, ctx.elect_one():
                stage.mbar().expect_bytes(tiles.tile_bytes)
                ctx.tma_load(a, (i * ROWS, 0), tiles[stage.index()], stage.mbar())

    @ctx.role("store", warps=1)
    def store() -> None:
        for i in ctx.range(a.shape[0] // ROWS):
            with ctx.elect_one():
                ctx.tma_store_wait(0, read=True)
            ctx.syncwarp()
            with ring.consume() as stage:
                for row in range(ROWS):
                    ctx.store(result[row, ctx.lane], ctx.load(tiles[stage.index()][row, ctx.lane]))
                ctx.syncwarp()
                with ctx.elect_one():
                    stage.mbar().arrive()
            for _ in range(fences):
                ctx.fence_proxy_async()
            ctx.syncwarp()
            with ctx.elect_one():
                ctx.tma_store(out, (i * ROWS, 0), result)
                ctx.tma_store_commit()
        with ctx.elect_one():
            ctx.tma_store_wait(0)


def program(tiles: int = 5, **static: Any) -> tp.Program:
    """The kernel bound to `tiles` tiles; `static`: its static parameters."""
    a = np.arange(tiles * ROWS * COLS, dtype=np.float32).reshape(tiles * ROWS, COLS)
    out = np.zeros_like(a)
    return copies.bind(*arguments(a, out), **static)


def arguments(a: Any, out: Any) -> tuple[Any, Any]:
    """What the kernel is bound to."""
    return tp.tensor_map(a, box=(ROWS, COLS), swizzle=0), tp.tensor_map(
        out, box=(ROWS, COLS), swizzle=0
    )
