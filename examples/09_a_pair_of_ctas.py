"""Rung 9: a pair of CTAs that shares its MMAs.

    C[m, n] = A[m, k] · B[n, k]ᵀ, 256×128 of C for each pair; sm_100a.

New: cta_group=2. One MMA, issued by the even CTA, reads the shared memory of both CTAs and writes
the tensor memory of both. Each loads its own 128 rows of A and half of the B tile, and its
accumulator holds its own rows. What the pair shares is counted in the even CTA, or signalled in
both. The full barrier is the even CTA's: barrier() is that one in both, stage_bytes counts both
CTAs' bytes, and only the even CTA expects them. A commit signals both, since both load. An
accumulator is free when both epilogues have loaded theirs: 256 arrivals on the even CTA's
barrier.

Still missing: larger clusters, a schedule that moves work: tilepipe/kernels/gemm/sm100.py goes
on from here.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilepipe as tp
from tilepipe.testing import compare_matmul

BM, BN, BK, STAGES = 128, 128, 64, 4
PAIR, BOTH = 2, 0b11  # CTAs of a pair, and both as a mask


@tp.kernel(grid=4, cluster=PAIR)
def gemm(ctx: tp.Context, a: tp.GlobalTensor, b: tp.GlobalTensor, c: tp.GlobalTensor) -> None:
    """C = A · Bᵀ"""
    half = BN // PAIR  # rows of B that each CTA holds
    tiles = tp.StandardTilePayload(
        a_type=a.dtype, b_type=b.dtype, a_shape=(BM, BK), b_shape=(half, BK)
    )
    inputs = tp.InputTilePipeline.allocate(ctx, tiles, num_group_stages=STAGES, cta_group=PAIR)
    outputs = tp.OutputTilePipeline.allocate(
        ctx, tp.OutputPipelineConfig(2, stage_stride_cols=BN, cta_group=PAIR)
    )
    out = ctx.smem((BM, 64), c.dtype, count=BN // 64, name="out")
    scheduler = tp.StaticScheduler(
        ctx, tiles=(ctx.ceil_div(c.shape[0], BM), ctx.ceil_div(c.shape[1], BN))
    )
    k_steps = ctx.ceil_div(a.shape[1], BK)

    @ctx.role("load", warps=1)
    def load() -> None:
        with inputs.producer() as producer:
            for tile in scheduler:  # the CTAs of a pair work one above the other
                for k in ctx.range(k_steps):
                    with producer.acquire() as stage, ctx.elect_one():
                        stage.expect_bytes(inputs.stage_bytes)  # by the even CTA, for both
                        a_tile, b_tile = stage.tile()
                        ctx.tma_load(a, (tile.m * BM, k * BK), a_tile, stage.barrier())
                        row = tile.n * BN + ctx.cta_rank * half
                        ctx.tma_load(b, (row, k * BK), b_tile, stage.barrier())
            producer.drain()

    @ctx.role("mma", warps=1)
    def mma() -> None:
        # The odd CTA's warp owns its columns and has no MMAs, so here it has no tiles either. In
        # the sm_100 GEMM it iterates as all warps do, and the condition stands inside the loop,
        # whatever deals out the tiles.
        with outputs.mma_warp(), inputs.consumer() as consumer, ctx.when(tp.elect_one_cta(ctx)):
            for _ in scheduler:
                with outputs.producer() as output:
                    acc = output.tmem.tensor((BM, BN))
                    for k in ctx.range(k_steps):
                        with consumer.acquire() as stage, ctx.elect_one():
                            a_tile, b_tile = stage.tile()
                            ctx.mma(acc, a_tile, b_tile, accumulate=k > 0)
                            ctx.mma_commit(stage.mbar(), mask=BOTH)

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        with outputs.epilogue_warp():
            for tile in scheduler:
                with outputs.consumer() as output:
                    result = output.tmem.tensor((BM, BN)).load()
                with ctx.elect_one("warpgroup"):
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
        rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((500, 648), (264, 648))
    )
    c = np.zeros((500, 264), ml_dtypes.bfloat16)
    maps = (
        tp.tensor_map(x, box=box)
        for x, box in ((a, (BM, BK)), (b, (BN // PAIR, BK)), (c, (BM, 64)))
    )
    program = gemm.bind(*maps)
    run = program.run(seed=seed)
    result = compare_matmul(c, a, b.T)
    assert result.ok, result
    print(f"500×264×648: {result}.", *run.roles, sep="\n  ")
    return program


if __name__ == "__main__":
    main()
