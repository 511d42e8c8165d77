"""Rung 7: a cluster that shares its loads.

    C[m, n] = A[m, k] · B[n, k]ᵀ in tiles of 128×128, two CTAs of a cluster one above the other.

New: both CTAs need the same B tile, so each loads half of it and multicasts it to both. A full
barrier still gets the bytes of whole tiles, half of B from the peer; an empty barrier now counts
the warpgroups of both CTAs, because a slot may be refilled only when both have read it: the commit
carries the mask of the cluster. And no CTA may exit while its peer can still arrive on its
barriers: the producer drains the ring at the end.

Still slow: the stores of a tile wait for one another within a warpgroup.
tilepipe/kernels/gemm/sm90.py goes on from here.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

import tilepipe as tp
from tilepipe.testing import compare_matmul

BM, BN, BK, STAGES = 128, 128, 64, 4
CLUSTER = 2
BOTH = 0b11  # the CTAs of the cluster, as a mask


@tp.kernel(grid=4, cluster=CLUSTER)
def gemm(ctx: tp.Context, a: tp.GlobalTensor, b: tp.GlobalTensor, c: tp.GlobalTensor) -> None:
    """C = A · Bᵀ"""
    tiles = tp.StandardTilePayload(
        a_type=a.dtype, b_type=b.dtype, a_shape=(BM, BK), b_shape=(BN, BK)
    )
    inputs = tp.InputTilePipeline.allocate(ctx, tiles, num_group_stages=STAGES)
    out = ctx.smem((64, 64), c.dtype, count=2 * BN // 64, name="out")
    scheduler = tp.StaticScheduler(
        ctx, tiles=(ctx.ceil_div(c.shape[0], BM), ctx.ceil_div(c.shape[1], BN))
    )
    k_steps = ctx.ceil_div(a.shape[1], BK)
    share = BN // CLUSTER  # rows of B that each CTA loads

    @ctx.role("load", warps=1, registers=40)
    def load() -> None:
        with inputs.producer() as producer:
            for tile in scheduler:
                for k in ctx.range(k_steps):
                    with producer.acquire() as stage, ctx.elect_one():
                        stage.expect_bytes(inputs.stage_bytes)
                        a_tile, b_tile = stage.tile()
                        ctx.tma_load(a, (tile.m * BM, k * BK), a_tile, stage.barrier())
                        part = ctx.cta_rank * share
                        half = b_tile.rows(part, share)
                        at = (tile.n * BN + part, k * BK)
                        ctx.tma_load(b, at, half, stage.barrier(), multicast=BOTH)
            producer.drain()

    @ctx.role("mma", warpgroups=2, registers=232)
    def mma() -> None:
        acc = ctx.accumulator((64, BN))
        row = ctx.warpgroup_rank * 64
        for tile in scheduler:
            acc.fill(0)
            with inputs.consumer(lag=1) as consumer:
                for _ in ctx.range(k_steps):
                    with consumer.acquire() as stage:
                        a_tile, b_tile = stage.tile()
                        ctx.mma(acc, a_tile.rows(row, 64), b_tile)
                        ctx.mma_commit(stage.mbar(), mask=BOTH)
            with ctx.elect_one("warpgroup"):
                # the tile before has been read: its slots may be written
                ctx.tma_store_wait(0, read=True)
            ctx.sync_warpgroup()
            for j in range(BN // 64):
                ctx.store(out[ctx.warpgroup_rank * 2 + j], acc.cols(64 * j, 64))
            ctx.fence_proxy_async()
            ctx.sync_warpgroup()
            with ctx.elect_one("warpgroup"):
                for j in range(BN // 64):
                    part = out[ctx.warpgroup_rank * 2 + j]
                    ctx.tma_store(c, (tile.m * BM + row, tile.n * BN + 64 * j), part)
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
    program = gemm.bind(
        tp.tensor_map(a, box=(BM, BK)),
        tp.tensor_map(b, box=(BN // CLUSTER, BK)),
        tp.tensor_map(c, box=(64, 64)),
    )
    run = program.run(seed=seed)
    result = compare_matmul(c, a, b.T)
    assert result.ok, result
    print(f"200×264×648: {result}.", *run.roles, sep="\n  ")
    return program


if __name__ == "__main__":
    main()
