"""Rung 5: a warp-specialised GEMM.

    C[m, n] = A[m, k] · B[n, k]ᵀ, one 128×128 tile of C for each CTA.

New: InputTilePipeline keeps four stages of A and B tiles with their barriers, phases and counts, so
that loads run ahead of the MMAs; and `lag=1` leaves one group of MMAs running while the next stage
is awaited: releasing stage i waits for the MMAs of stage i - 1 and frees that one. Two warpgroups
share each stage, half of the rows each.

Still slow: every CTA computes one tile and ends, so its epilogue overlaps with nothing; and each
stage costs a barrier round trip.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilepipe as tp
from tilepipe.testing import compare_matmul

BM, BN, BK, STAGES = 128, 128, 64, 4


@tp.kernel(grid=lambda c: -(-c.shape[0] // BM) * -(-c.shape[1] // BN))
def gemm(ctx: tp.Context, a: tp.GlobalTensor, b: tp.GlobalTensor, c: tp.GlobalTensor) -> None:
    """C = A · Bᵀ"""
    tiles = tp.StandardTilePayload(
        a_type=a.dtype, b_type=b.dtype, a_shape=(BM, BK), b_shape=(BN, BK)
    )
    inputs = tp.InputTilePipeline.allocate(ctx, tiles, num_group_stages=STAGES)
    out = ctx.smem((64, 64), c.dtype, count=2 * BN // 64, name="out")
    columns = ctx.ceil_div(c.shape[1], BN)
    m, n = ctx.block_id // columns * BM, ctx.block_id % columns * BN
    k_steps = ctx.ceil_div(a.shape[1], BK)

    @ctx.role("load", warps=1, registers=40)
    def load() -> None:
        with inputs.producer() as producer:
            for k in ctx.range(k_steps):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    a_tile, b_tile = stage.tile()
                    ctx.tma_load(a, (m, k * BK), a_tile, stage.barrier())
                    ctx.tma_load(b, (n, k * BK), b_tile, stage.barrier())

    @ctx.role("mma", warpgroups=2, registers=232)
    def mma() -> None:
        acc = ctx.accumulator((64, BN))
        acc.fill(0)
        row = ctx.warpgroup_rank * 64
        with inputs.consumer(lag=1) as consumer:
            for _ in ctx.range(k_steps):
                with consumer.acquire() as stage:
                    a_tile, b_tile = stage.tile()
                    ctx.mma(acc, a_tile.rows(row, 64), b_tile)
                    # leaving the stage commits its MMAs: they arrive on its empty barrier
        for j in range(BN // 64):
            ctx.store(out[ctx.warpgroup_rank * 2 + j], acc.cols(64 * j, 64))
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        with ctx.elect_one("warpgroup"):
            for j in range(BN // 64):
                ctx.tma_store(c, (m + row, n + 64 * j), out[ctx.warpgroup_rank * 2 + j])
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)


def main(seed: int = 0) -> tp.Program:
    """Runs the kernel on the simulated GPU, verifies it against float64 and returns the program."""
    rng = np.random.default_rng(seed)
    a, b = (
        rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((200, 648), (264, 648))
    )
    c = np.zeros((200, 264), ml_dtypes.bfloat16)
    program = gemm.bind(
        tp.tensor_map(a, box=(BM, BK)),
        tp.tensor_map(b, box=(BN, BK)),
        tp.tensor_map(c, box=(64, 64)),
    )
    run = program.run(seed=seed)
    result = compare_matmul(c, a, b.T)
    assert result.ok, result
    print(f"200×264×648: {result}.", *run.roles, sep="\n  ")
    return program


if __name__ == "__main__":
    main()
