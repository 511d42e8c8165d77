"""The three-role GEMM on which the checker is measured: load, MMA and epilogue, with a ring between
each two.

    C[m, n] = relu(A[m, k] · B[n, k]ᵀ), for Hopper, one cluster of CTAs.

One warp loads A and B into a ring of `stages`; `consumers` warpgroups multiply and put their sums
into a ring of `accumulators` in shared memory; as many warpgroups of the epilogue take them from
there, and store C through TMA. The CTAs of a cluster lie along M, and load a part of each B tile
for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import tilepipe as tp

# of a tile: rows of each consumer warpgroup, columns, and K; each line is 128 bytes
ROWS, BN, BK = 64, 32, 64


@dataclass(frozen=True)
class Shape:
    """What the cost of a check depends on.

    Attributes:
        stages: of the ring of A and B. accumulators: slots between the MMAs and the epilogue.
        tiles: of C that each CTA computes. k_steps: for each of them. consumers: MMA warpgroups,
            and those of the epilogue.
        tries: the load role asks whether a stage is free before it waits for it.
    """

    stages: int = 3
    accumulators: int = 2
    tiles: int = 2
    k_steps: int = 4
    cluster: int = 1
    consumers: int = 1
    tries: bool = False


@tp.kernel(grid=lambda cfg: cfg.cluster, cluster=lambda cfg: cfg.cluster)
def three_roles(ctx: tp.Context, a: Any, b: Any, c: Any, *, cfg: Shape) -> None:
    """C = relu(A · Bᵀ)"""
    bm, part = ROWS * cfg.consumers, BN // cfg.cluster
    everyone = (1 << cfg.cluster) - 1 if cfg.cluster > 1 else None
    payload = tp.StandardTilePayload(
        a_type=a.dtype, b_type=b.dtype, a_shape=(bm, BK), b_shape=(BN, BK)
    )
    inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=cfg.stages)
    outputs = tp.ProducerConsumerPipeline.allocate(ctx, cfg.accumulators, name="outputs")
    sums = ctx.smem((ROWS, BN), tp.float32, count=cfg.accumulators * cfg.consumers, name="sums")
    out = ctx.smem((ROWS, BN), c.dtype, count=cfg.consumers, name="out")
    work = tp.StaticScheduler(
        ctx, tiles=(ctx.ceil_div(c.shape[0], bm), 1), cluster=(cfg.cluster, 1)
    )
    k_steps = ctx.ceil_div(a.shape[1], BK)

    @ctx.role("load", warps=1)
    def load() -> None:
        first = ctx.cta_rank * part
        with inputs.producer() as producer:
            for tile in work:
                for k in ctx.range(k_steps):
                    acquired = (
                        producer.acquire_if_needed(producer.try_acquire())
                        if cfg.tries
                        else producer.acquire()
                    )
                    with acquired as stage, ctx.elect_one():
                        stage.expect_bytes(inputs.stage_bytes)
                        a_tile, b_tile = stage.tile()
                        ctx.tma_load(a, (tile.m * bm, k * BK), a_tile, stage.barrier())
                        ctx.tma_load(
                            b,
                            (first, k * BK),
                            b_tile.rows(first, part),
                            stage.barrier(),
                            multicast=everyone,
                        )
            producer.drain()

    @ctx.role("mma", warpgroups=cfg.consumers)
    def mma() -> None:
        acc = ctx.accumulator((ROWS, BN))
        for _ in work:
            with inputs.consumer(lag=1 if cfg.stages > 1 else 0) as consumer:
                for k in ctx.range(k_steps):
                    with consumer.acquire() as stage:
                        a_tile, b_tile = stage.tile()
                        ctx.mma(
                            acc,
                            a_tile.rows(ctx.warpgroup_rank * ROWS, ROWS),
                            b_tile,
                            accumulate=k > 0,
                        )
                        ctx.mma_commit(stage.mbar(), mask=everyone)
            with outputs.produce() as slot:  # waits until the epilogue has taken what was there
                ctx.store(sums[slot.index() * cfg.consumers + ctx.warpgroup_rank], acc)
                slot.mbar().arrive()

    @ctx.role("epilogue", warpgroups=cfg.consumers)
    def epilogue() -> None:
        x = ctx.fragment(shape=(ROWS, BN), dtype="float32")
        mine = out[ctx.warpgroup_rank]
        for tile in work:
            with outputs.consume() as slot:
                x.load(sums[slot.index() * cfg.consumers + ctx.warpgroup_rank])
            with ctx.elect_one("warpgroup"):
                ctx.tma_store_wait(0, read=True)  # the tile before has left shared memory
            ctx.sync_warpgroup()
            ctx.store(mine, x.maximum(0))
            ctx.fence_proxy_async()
            ctx.sync_warpgroup()
            with ctx.elect_one("warpgroup"):
                ctx.tma_store(c, (tile.m * bm + ctx.warpgroup_rank * ROWS, 0), mine)
                ctx.tma_store_commit()
        with ctx.elect_one("warpgroup"):
            ctx.tma_store_wait(0)


def operands(cfg: Shape, seed: int = 0) -> tuple[Any, Any, Any]:
    """A (m, k), B (32, k), bfloat16, small integers; C (m, 32) bfloat16, of zeros. m = 64 ·
    consumers · tiles · cluster.
    """
    rng = np.random.default_rng(seed)
    m, k = ROWS * cfg.consumers * cfg.tiles * cfg.cluster, BK * cfg.k_steps
    a, b = (rng.integers(-1, 2, (rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, BN))
    return a, b, np.zeros((m, BN), ml_dtypes.bfloat16)


def bind(cfg: Shape, a: Any, b: Any, c: Any) -> tp.Program:
    """The kernel on these operands."""
    maps = (a, (ROWS * cfg.consumers, BK)), (b, (BN // cfg.cluster, BK)), (c, (ROWS, BN))
    return three_roles.bind(*(tp.tensor_map(array, box=box) for array, box in maps), cfg=cfg)


def program(cfg: Shape = Shape()) -> tp.Program:
    """The kernel on operands of its own."""
    return bind(cfg, *operands(cfg))
