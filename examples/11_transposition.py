"""Rung 11: a transposition.

    out = aᵀ, in tiles of 64×64: TMA brings a tile, two warps write it back by columns.

New: work that memory bounds. A tile is read row by row and written column by column, so one side
has to go through shared memory. TMA swizzles the tile: the 16-byte parts of a row are exchanged in
an order that depends on the row, which spreads a column over the banks. `tile[row, column]` names
an element wherever it lies. 32 lanes then store 32 consecutive elements of a row of the result.

Still missing: stores of 16 bytes, for which a lane would gather several rows of the tile.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilepipe as tp

TILE = 64
STAGES = 4


@tp.kernel(grid=lambda a: -(-a.shape[0] // TILE))
def transpose(ctx: tp.Context, a: tp.GlobalTensor, out: tp.GlobalTensor) -> None:
    """out = aᵀ; a CTA turns one row of tiles into one column of them."""
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

    @ctx.role("store", warps=2)
    def store() -> None:
        half = ctx.warp * 32  # of the rows of a tile, which are columns of the result
        for j in ctx.range(columns):
            with ring.consume() as stage:
                tile = tiles[stage.index()]
                for column in ctx.range(TILE):
                    at = row + half + ctx.lane
                    inside = (j * TILE + column < out.shape[0]) & (at < out.shape[1])
                    with ctx.when(inside):
                        value = ctx.load(tile[half + ctx.lane, column])
                        ctx.store(out[j * TILE + column, at], value)


def main(seed: int = 0) -> tp.Program:
    """Runs the kernel on the simulated GPU, verifies it and returns the program."""
    a = np.random.default_rng(seed).standard_normal((200, 328)).astype(ml_dtypes.bfloat16)
    out = np.zeros((328, 200), a.dtype)
    program = transpose.bind(tp.tensor_map(a, box=(TILE, TILE)), out)
    run = program.run(seed=seed)
    assert np.array_equal(out, a.T)
    print("200×328, transposed in tiles of 64×64: right.", *run.roles, sep="\n  ")
    return program


if __name__ == "__main__":
    main()
