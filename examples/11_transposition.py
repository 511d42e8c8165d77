"""Rung 11: a transposition.

    out = aᵀ, in tiles of 64×64: TMA brings a tile, a warpgroup turns it, TMA stores it.

New: memory-bound work, so global memory is read and written by TMA alone, in lines of 128
bytes. A tile is turned on its way from one shared tile to another: the first has contiguous rows,
the second, `order="col"`, contiguous columns. The warpgroup loads the first as a fragment, which is
printed as `ldmatrix`, and stores it to the second, `stmatrix.trans`: each moves 8×8 elements in
lines of 16 bytes. Both tiles are swizzled, which spreads these lines over the banks. `out.T`, whose
columns are contiguous as well, gives the tensor map of the result.

Two turned tiles take turns: while TMA stores one, the other is filled.

Still missing: elements of 32 bits, which these instructions do not turn: they would be stored to
the second tile one by one.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilepipe as tp

TILE = 64
STAGES = 4
SLOTS = 2


@tp.kernel(grid=lambda a: -(-a.shape[0] // TILE))
def transpose(ctx: tp.Context, a: tp.GlobalTensor, out: tp.GlobalTensor) -> None:
    """out = a, where the columns of out are contiguous; a CTA copies one row of tiles."""
    ring = tp.ProducerConsumerPipeline.allocate(ctx, STAGES, name="ring")
    tiles = ctx.smem((TILE, TILE), a.dtype, count=STAGES, name="tiles")
    turned = ctx.smem((TILE, TILE), a.dtype, count=SLOTS, order="col", name="turned")
    columns = ctx.ceil_div(a.shape[1], TILE)
    row = ctx.block_id * TILE

    @ctx.role("load", warps=1)
    def load() -> None:
        for j in ctx.range(columns):
            with ring.produce() as stage, ctx.elect_one():
                stage.mbar().expect_bytes(tiles.tile_bytes)
                ctx.tma_load(a, (row, j * TILE), tiles[stage.index()], stage.mbar())

    @ctx.role("turn", warpgroups=1)
    def turn() -> None:
        x = ctx.fragment(shape=(TILE, TILE), dtype=a.dtype)
        for j in ctx.range(columns):
            with ring.consume() as stage:
                x.load(tiles[stage.index()])
            slot = turned[j % SLOTS]
            with ctx.elect_one("warpgroup"):
                ctx.tma_store_wait(SLOTS - 1, read=True)  # the store before last has read the slot
            ctx.sync_warpgroup()
            ctx.store(slot, x)
            ctx.fence_proxy_async()
            ctx.sync_warpgroup()
            with ctx.elect_one("warpgroup"):
                ctx.tma_store(out, (row, j * TILE), slot)
                ctx.tma_store_commit()
        with ctx.elect_one("warpgroup"):
            ctx.tma_store_wait(0)


def main(seed: int = 0) -> tp.Program:
    """Runs the kernel on the simulated GPU, verifies it and returns the program."""
    a = np.random.default_rng(seed).standard_normal((200, 328)).astype(ml_dtypes.bfloat16)
    out = np.zeros((328, 200), a.dtype)
    box = (TILE, TILE)
    program = transpose.bind(tp.tensor_map(a, box=box), tp.tensor_map(out.T, box=box, order="col"))
    run = program.run(seed=seed)
    assert np.array_equal(out, a.T)
    print("200×328, transposed in tiles of 64×64: right.", *run.roles, sep="\n  ")
    return program


if __name__ == "__main__":
    main()
