"""Rung 4: a GEMM with one warpgroup, one stage and every wait by hand.

    C[m, n] = A[m, k] · B[n, k]ᵀ, one 64×128 tile of C for each CTA.

New: wgmma. The warpgroup multiplies tiles straight from shared memory into an accumulator in its
registers,
asynchronously: the slot may be overwritten only when the MMAs have finished, which is what
mma_commit binds to the barrier `free` and wgmma_wait(0) waits for. The accumulator goes out through
shared memory: ordinary stores, a proxy fence so that TMA sees them, a barrier, a TMA store.

The phases, by hand: step k is phase k of both barriers. `full.wait(k % 2)` waits for phase k; the
loader needs phase k - 1 of `free`, whose parity is (k + 1) % 2, and which a fresh barrier reports
as complete when k = 0.

Still slow: with a single stage the copy of step k + 1 cannot start before the MMAs of step k have
ended. Nothing overlaps.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilepipe as tp
from tilepipe.testing import compare_matmul

BM, BN, BK = 64, 128, 64


@tp.kernel(grid=lambda c: -(-c.shape[0] // BM) * -(-c.shape[1] // BN))
def gemm(ctx: tp.Context, a: tp.GlobalTensor, b: tp.GlobalTensor, c: tp.GlobalTensor) -> None:
    """C = A · Bᵀ"""
    a_tile = ctx.smem((BM, BK), a.dtype, name="a_tile")[0]
    b_tile = ctx.smem((BN, BK), b.dtype, name="b_tile")[0]
    out = ctx.smem((BM, 64), c.dtype, count=BN // 64, name="out")
    full = tp.SharedMemBarrier.allocate(ctx, count=1, name="full")
    free = tp.SharedMemBarrier.allocate(ctx, count=1, name="free")
    columns = ctx.ceil_div(c.shape[1], BN)
    m, n = ctx.block_id // columns * BM, ctx.block_id % columns * BN
    k_steps = ctx.ceil_div(a.shape[1], BK)

    @ctx.role("load", warps=1)
    def load() -> None:
        for k in ctx.range(k_steps):
            free.wait((k + 1) % 2)
            with ctx.elect_one():
                full.expect_bytes(a_tile.nbytes + b_tile.nbytes)
                ctx.tma_load(a, (m, k * BK), a_tile, full)
                ctx.tma_load(b, (n, k * BK), b_tile, full)

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        acc = ctx.accumulator((BM, BN))
        acc.fill(0)
        for k in ctx.range(k_steps):
            full.wait(k % 2)
            ctx.mma(acc, a_tile, b_tile)
            ctx.mma_commit(free)
            ctx.wgmma_wait(0)  # the MMAs have finished: now the arrival on `free` is made
        for j in range(BN // 64):
            ctx.store(out[j], acc.cols(64 * j, 64))
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        with ctx.elect_one("warpgroup"):
            for j in range(BN // 64):
                ctx.tma_store(c, (m, n + 64 * j), out[j])
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)


def main(seed: int = 0) -> tp.Program:
    """Runs the kernel on the simulated GPU, verifies it against float64 and returns the program."""
    rng = np.random.default_rng(seed)
    a, b = (
        rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((200, 328), (264, 328))
    )
    c = np.zeros((200, 264), ml_dtypes.bfloat16)
    program = gemm.bind(
        tp.tensor_map(a, box=(BM, BK)),
        tp.tensor_map(b, box=(BN, BK)),
        tp.tensor_map(c, box=(BM, 64)),
    )
    run = program.run(seed=seed)
    result = compare_matmul(c, a, b.T)
    assert result.ok, result
    print(f"200×264×328: {result}.", *run.roles, sep="\n  ")
    return program


if __name__ == "__main__":
    main()
