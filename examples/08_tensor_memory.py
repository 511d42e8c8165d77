"""Rung 8: Blackwell, where accumulators are in tensor memory.

    C[m, n] = A[m, k] · B[n, k]ᵀ in tiles of 128×128; compiles for sm_100a, and for no Hopper GPU.

New: one lane issues the MMAs (tcgen05.mma), and the accumulator is not in registers but in tensor
memory, 512 columns of 128 lanes beside them. So the MMA role is one warp, and the epilogue a role
of its own: a warpgroup that loads finished accumulators. Between the two stands a second ring,
OutputTilePipeline, here of two accumulators: while the epilogue stores one tile, the MMAs of the
next run. A commit is itself the arrival, so no warp waits for MMAs: no lag, no wgmma_wait.
mma_warp() and epilogue_warp() manage tensor memory: the MMA warp allocates it, publishes its
address, and frees it when the epilogue has finished.

Still slow: each CTA holds the whole B tile that its MMAs read; a pair of CTAs can hold half of it
each.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilepipe as tp
from tilepipe.testing import compare_matmul

BM, BN, BK, STAGES, ACCUMULATORS = 128, 128, 64, 4, 2


@tp.kernel(grid=2)
def gemm(ctx: tp.Context, a: tp.GlobalTensor, b: tp.GlobalTensor, c: tp.GlobalTensor) -> None:
    """C = A · Bᵀ"""
    tiles = tp.StandardTilePayload(
        a_type=a.dtype, b_type=b.dtype, a_shape=(BM, BK), b_shape=(BN, BK)
    )
    inputs = tp.InputTilePipeline.allocate(ctx, tiles, num_group_stages=STAGES)
    outputs = tp.OutputTilePipeline.allocate(
        ctx, tp.OutputPipelineConfig(num_stages=ACCUMULATORS, stage_stride_cols=BN)
    )
    out = ctx.smem((BM, 64), c.dtype, count=BN // 64, name="out")
    scheduler = tp.StaticScheduler(
        ctx, tiles=(ctx.ceil_div(c.shape[0], BM), ctx.ceil_div(c.shape[1], BN))
    )
    k_steps = ctx.ceil_div(a.shape[1], BK)

    @ctx.role("load", warps=1)
    def load() -> None:
        with inputs.producer() as producer:
            for tile in scheduler:
                for k in ctx.range(k_steps):
                    with producer.acquire() as stage, ctx.elect_one():
                        stage.expect_bytes(inputs.stage_bytes)
                        a_tile, b_tile = stage.tile()
                        ctx.tma_load(a, (tile.m * BM, k * BK), a_tile, stage.barrier())
                        ctx.tma_load(b, (tile.n * BN, k * BK), b_tile, stage.barrier())
            producer.drain()

    @ctx.role("mma", warps=1)
    def mma() -> None:
        with outputs.mma_warp(), inputs.consumer() as consumer:
            for _ in scheduler:
                # waits until the epilogue has freed an accumulator
                with outputs.producer() as output:
                    acc = output.tmem.tensor((BM, BN))
                    for k in ctx.range(k_steps):
                        with consumer.acquire() as stage, ctx.elect_one():
                            a_tile, b_tile = stage.tile()
                            ctx.mma(acc, a_tile, b_tile, accumulate=k > 0)
                            # frees the slot when these MMAs have read it
                            ctx.mma_commit(stage.mbar())

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        with outputs.epilogue_warp():
            for tile in scheduler:
                # waits until the MMAs of an accumulator are done
                with outputs.consumer() as output:
                    result = output.tmem.tensor((BM, BN)).load()
                # left: the load is waited for, the accumulator is free, and the MMAs go on while
                # this tile is stored
                with ctx.elect_one("warpgroup"):
                    # the tile before has been read: its slots may be written
                    ctx.tma_store_wait(0, read=True)
                ctx.sync_warpgroup()
                for j in range(BN // 64):
                    ctx.store(out[j], result.cols(64 * j, 64))
                ctx.fence_proxy_async()
                ctx.sync_warpgroup()
                with ctx.elect_one("warpgroup"):
                    for j in range(BN // 64):
                        ctx.tma_store(c, (tile.m * BM, tile.n * BN + 64 * j), out[j])
                    ctx.tma_store_commit()
            with ctx.elect_one("warpgroup"):
                ctx.tma_store_wait(0)


def main(seed: int = 0) -> tp.Program:
    """Runs the kernel on the simulated GPU, verifies it against float64 and returns the program."""
    rng = np.random.default_rng(seed)
    a, b = (
        rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((200, 648), (264, 648))
    )
    c = np.zeros((200, 264), ml_dtypes.bfloat16)
    maps = (
        tp.tensor_map(a, box=(BM, BK)),
        tp.tensor_map(b, box=(BN, BK)),
        tp.tensor_map(c, box=(BM, 64)),
    )
    program = gemm.bind(*maps)
    run = program.run(seed=seed)
    result = compare_matmul(c, a, b.T)
    assert result.ok, result
    print(f"200×264×648: {result}.", *run.roles, sep="\n  ")
    return program


if __name__ == "__main__":
    main()
