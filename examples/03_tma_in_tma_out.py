"""Rung 3: TMA in, TMA out.

    out = a, a matrix copied in tiles of 64×64 by the copy engine; each CTA copies one row of tiles.

New: tensor maps, TMA loads and stores. One lane issues a copy of a whole tile. A load signals the
full barrier with its bytes: expect_bytes is the barrier's one arrival and says how many bytes
complete the phase. A store signals
nothing: the lane that committed it waits until the tile has been read, and only then frees the
slot. Tiles that stick out of the matrix arrive as zeros, and are clipped when stored.

Still missing: arithmetic.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilepipe as tp

TILE = 64
STAGES = 2


@tp.kernel(grid=lambda a: -(-a.shape[0] // TILE))
def copy_tiles(ctx: tp.Context, a: tp.GlobalTensor, out: tp.GlobalTensor) -> None:
    """out = a"""
    ring = tp.ProducerConsumerPipeline.allocate(ctx, STAGES, name="ring")
    tiles = ctx.smem((TILE, TILE), a.dtype, count=STAGES, name="tiles")
    columns = ctx.ceil_div(a.shape[1], TILE)
    row = ctx.block_id * TILE

    @ctx.role("load", warps=1)
    def load() -> None:
        for j in ctx.range(columns):
            with ring.produce() as stage, ctx.elect_one():
                stage.mbar().expect_bytes(tiles.tile_bytes)
                ctx.tma_load(a, (row, j * TILE), tiles[stage.index()], stage.mbar())

    @ctx.role("store", warps=1)
    def store() -> None:
        for j in ctx.range(columns):
            with ring.consume_explicit() as stage, ctx.elect_one():
                ctx.tma_store(out, (row, j * TILE), tiles[stage.index()])
                ctx.tma_store_commit()
                ctx.tma_store_wait(0, read=True)  # the slot has been read
                stage.mbar().arrive()
        with ctx.elect_one():
            ctx.tma_store_wait(0)  # the matrix has been written


def main(seed: int = 0) -> tp.Program:
    """Runs the kernel on the simulated GPU, verifies it and returns the program."""
    a = np.random.default_rng(seed).standard_normal((200, 328)).astype(ml_dtypes.bfloat16)
    out = np.zeros_like(a)
    program = copy_tiles.bind(
        tp.tensor_map(a, box=(TILE, TILE)), tp.tensor_map(out, box=(TILE, TILE))
    )
    run = program.run(seed=seed)
    assert np.array_equal(out, a)
    print("200×328 in tiles of 64×64: right.", *run.roles, sep="\n  ")
    return program


if __name__ == "__main__":
    main()
