"""Pipelines under load, after the unit tests of CUTLASS' pipelines (C1-C3)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import Array, at, clean, faults, matrix, refuted, total, zeros

SIXTEEN = tp.Chip(max_cluster=16)


def where(mark: str) -> str:
    return at(__file__, mark)


@tp.kernel(grid=lambda cluster: cluster[0] * cluster[1], cluster=lambda cluster: cluster)
def two_producer_warps(
    ctx: tp.Context, out: Any, n: int, *, stages: int, cluster: tuple[int, int]
) -> None:
    """C1: two producer warps, one consumer warp, one elected lane of each; the first lap commits
    without acquiring.
    """
    words = ctx.smem((1, 32), "int32", count=stages, swizzle=0, name="words")
    ring = tp.ProducerConsumerPipeline.allocate(
        ctx, stages, producer_arrivals=2, consumer_arrivals=1, name="ring"
    )

    def commit(i: Any) -> None:
        stage = ring.producer_stage()
        with ctx.elect_one():
            ctx.store(words[stage][0, ctx.warp], 2 * i + ctx.warp)
            ring.producer_mbar(stage).arrive()
        ring.producer_step()

    @ctx.role("produce", warps=2)
    def produce() -> None:
        first = ctx.let(ctx.min(n, stages), "first")
        for i in ctx.range(first):
            commit(i)
        for i in ctx.range(first, n):
            ring.wait_consumer()
            commit(i)

    @ctx.role("consume", warps=1)
    def consume() -> None:
        for i in ctx.range(n):
            with ring.consume_explicit() as stage, ctx.elect_one():
                word = words[stage.index()]
                ctx.store(out[ctx.block_id, i], ctx.load(word[0, 0]) + ctx.load(word[0, 1]))
                stage.mbar().arrive()


@pytest.mark.sampled(suite=5)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("stages", "n", "cluster"),
    [
        (2, 1000, (1, 1)),
        (11, 377, (1, 1)),
        (5, 3, (1, 1)),
        (3, 64, (2, 1)),
        (4, 33, (1, 2)),
        (7, 50, (2, 2)),
        (2, 41, (4, 1)),
    ]
    + [(6, 17, (4, 4))]
    + [(stages, 7 * stages + 3, (1, 1)) for stages in range(2, 12)],
)
def test_c1_every_full_phase_completes_exactly_n_times(
    stages: int, n: int, cluster: tuple[int, int]
) -> None:
    ctas = cluster[0] * cluster[1]
    out = np.zeros((ctas, n), np.int32)
    program = two_producer_warps.bind(out, n, chip=SIXTEEN, stages=stages, cluster=cluster)
    want = np.broadcast_to(4 * np.arange(n) + 1, (ctas, n))
    per_stage = [len(range(s, n, stages)) for s in range(stages)]
    for run in clean(program, seeds=(0, 0, 5)):  # run twice, and at random
        assert run.completions["ring.full"] == [per_stage] * ctas
        assert run.completions["ring.empty"] == [per_stage] * ctas
        np.testing.assert_array_equal(out, want)
        out[:] = 0


@tp.kernel(grid=lambda shape: shape[0] * shape[1], cluster=lambda shape: shape)
def rows_and_columns(
    ctx: tp.Context,
    a: Any,
    b: Any,
    out: Any,
    n: int,
    *,
    shape: tuple[int, int],
    stages: int,
    lag: int,
) -> None:
    """C2: one warpgroup produces and consumes.

    Each CTA multicasts a tile to its row and its column of the cluster, and gets one from each of
    them; it multiplies them all, and frees a stage `lag` MMA groups after it was read, in every CTA
    it came from.
    """
    rows, cols = shape
    ctas, peers = rows * cols, rows + cols - 1
    tiles = ctx.smem((64, 16), a.dtype, count=stages * ctas, name="tiles")
    b_tile = ctx.smem((8, 16), b.dtype, name="b_tile")
    c_tile = ctx.smem((64, 8), "float32", swizzle=0, name="c_tile")
    b_full = tp.SharedMemBarrier.allocate(ctx, 1, "b_full")
    ring = tp.ProducerConsumerPipeline.allocate(
        ctx, stages, producer_arrivals=1, consumer_arrivals=peers, name="ring"
    )
    freed = tp.PipelineState(ctx, stages, name="freed")

    def friends(rank: int) -> list[int]:
        return [p for p in range(ctas) if p // cols == rank // cols or p % cols == rank % cols]

    def produce(i: Any) -> None:
        ring.wait_consumer()
        stage = ring.producer_stage()
        with ctx.elect_one("warpgroup"):
            ring.producer_mbar(stage).expect_bytes(peers * 64 * 32)
            for rank in range(ctas):
                mask = sum(1 << p for p in friends(rank))
                with ctx.when(ctx.cta_rank == rank):
                    tile, full = tiles[stage * ctas + rank], ring.producer_mbar(stage)
                    box = (rank * 64, i * 16)
                    ctx.tma_load(a, box, tile, full, multicast=mask)  # <refill by multicast>
        ring.producer_step()

    def free() -> None:
        stage = freed.index()
        with ctx.elect_one("warpgroup"):
            for rank in range(ctas):
                with ctx.when(ctx.cta_rank == rank):
                    for peer in friends(rank):
                        ring.consumer_mbar(stage).arrive_cluster(peer)
        freed.step()

    @ctx.role("both", warpgroups=1)
    def both() -> None:
        with ctx.elect_one("warpgroup"):
            b_full.expect_bytes(8 * 32)
            ctx.tma_load(b, (0, 0), b_tile[0], b_full)
        b_full.wait(0)
        acc = ctx.accumulator((64, 8))
        acc.fill(0)
        for i in ctx.range(ctx.min(n, stages)):
            produce(i)
        for i in ctx.range(n):
            with ring.consume_explicit() as stage:
                for rank in range(ctas):
                    with ctx.when(ctx.cta_rank == rank):
                        for peer in friends(rank):
                            a_tile = tiles[stage.index() * ctas + peer]
                            ctx.mma(acc, a_tile, b_tile[0])  # <reading mma>
                ctx.wgmma_commit()
            ctx.wgmma_wait(lag)
            with ctx.when(i > 0):
                free()
                with ctx.when(i - 1 + stages < n):
                    produce(i - 1 + stages)
        ctx.wgmma_wait(0)
        free()
        ctx.store(c_tile[0], acc)
        ctx.sync_warpgroup()
        with ctx.when(ctx.thread < 64):
            for j in range(8):
                ctx.store(
                    out[ctx.block_id * 64 + ctx.thread, j], ctx.load(c_tile[0][ctx.thread, j])
                )
        ctx.cluster_arrive()
        ctx.cluster_wait()


def bind_rows_and_columns(
    shape: tuple[int, int], stages: int, n: int, lag: int = 1
) -> tuple[tp.Program, Array, Array]:
    rows, cols = shape
    ctas = rows * cols
    a, b, out = matrix(64 * ctas, 16 * n, 3), matrix(8, 16, 4), zeros(64 * ctas, 8)
    maps = tp.tensor_map(a, box=(64, 16)), tp.tensor_map(b, box=(8, 16))
    program = rows_and_columns.bind(
        *maps, out, n, chip=SIXTEEN, shape=shape, stages=stages, lag=lag
    )
    own = (
        a.astype(np.float32).reshape(ctas * 64, n, 16).sum(axis=1) @ b.astype(np.float32).T
    ).reshape(rows, cols, 64, 8)
    want = own.sum(axis=0, keepdims=True) + own.sum(axis=1, keepdims=True) - own
    return program, out, want.reshape(ctas * 64, 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "stages", "n"),
    [((1, 1), 2, 9), ((2, 1), 2, 12), ((1, 2), 3, 2), ((2, 2), 3, 10), ((4, 4), 2, 4)],
)
def test_c2_producer_and_consumer_in_one_warpgroup_across_a_cluster(
    shape: tuple[int, int], stages: int, n: int
) -> None:
    program, out, want = bind_rows_and_columns(shape, stages, n)
    for run in clean(program, seeds=(0, 1, 2)):
        for cta in range(shape[0] * shape[1]):
            assert total(run, "ring.full", cta) == n
            assert total(run, "ring.empty", cta) == n
        np.testing.assert_array_equal(out, want)
        out[:] = 0


@pytest.mark.slow
def test_c2_freeing_a_stage_whose_mma_still_runs() -> None:
    program, _, _ = bind_rows_and_columns((2, 1), 2, 6, lag=2)
    words = (
        "race on tiles[",
        "role 'both'",
        "wgmma acc",
        where("reading mma"),
        where("refill by multicast"),
    )
    faults(program, tp.RaceError, *words)


@tp.kernel()
def three_warpgroups(
    ctx: tp.Context, a: Any, b: Any, out: Any, n: int, *, stages: int, meet: bool = True
) -> None:
    """C3: producer, consumer (frees a stage one MMA late) and an idle warpgroup; the producer's
    tail acquires min(S, N) times more.

    `meet`: the producer's warps meet before one lane fills a stage for all of them.
    """
    payload = tp.StandardTilePayload(
        a_type=a.dtype, b_type=b.dtype, a_shape=(64, 16), b_shape=(8, 16)
    )
    inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=stages)
    c_tile = ctx.smem((64, 8), "float32", swizzle=0, name="c_tile")

    @ctx.role("produce", warpgroups=1)
    def produce() -> None:
        with inputs.producer() as producer:
            for k in ctx.range(n):
                with producer.acquire() as stage:  # <four warps acquire>
                    if meet:
                        ctx.sync_warpgroup()
                    with ctx.elect_one("role"):
                        stage.expect_bytes(inputs.stage_bytes)
                        a_tile, b_tile = stage.tile()
                        ctx.tma_load(a, (0, 16 * k), a_tile, stage.barrier())
                        ctx.tma_load(b, (0, 16 * k), b_tile, stage.barrier())
        for _ in ctx.range(ctx.max(stages - n, 0)):
            inputs.pipeline.producer_step()  # stages that were never filled
        for _ in ctx.range(ctx.min(n, stages)):
            inputs.pipeline.wait_consumer()
            inputs.pipeline.producer_step()

    @ctx.role("consume", warpgroups=1)
    def consume() -> None:
        acc = ctx.accumulator((64, 8))
        acc.fill(0)
        with inputs.consumer(lag=1) as consumer:
            for _ in ctx.range(n):
                with consumer.acquire() as stage:
                    ctx.mma(acc, *stage.tile())
                    ctx.mma_commit(stage.mbar())  # <frees for all four>
        ctx.store(c_tile[0], acc)
        ctx.sync_warpgroup()
        with ctx.when(ctx.thread < 64):
            for j in range(8):
                ctx.store(out[ctx.thread, j], ctx.load(c_tile[0][ctx.thread, j]))

    @ctx.role("idle", warpgroups=1)
    def idle() -> None:
        ctx.syncwarp()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 25])
@pytest.mark.parametrize("stages", [2, 3, 8])
def test_c3_release_one_mma_late_beside_an_idle_warpgroup(stages: int, n: int) -> None:
    a, b, out = matrix(64, 16 * n, 5), matrix(8, 16 * n, 6), zeros(64, 8)
    program = three_warpgroups.bind(
        tp.tensor_map(a, box=(64, 16)), tp.tensor_map(b, box=(8, 16)), out, n, stages=stages
    )
    want = a.astype(np.float32) @ b.astype(np.float32).T
    per_stage = [len(range(s, n, stages)) for s in range(stages)]
    for run in clean(program, seeds=(0, 1, 2)):
        assert run.completions == {"inputs.full": [per_stage], "inputs.empty": [per_stage]}
        np.testing.assert_array_equal(out, want)
        out[:] = 0


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 4])
def test_c3_one_lane_fills_a_stage_that_its_sibling_warps_still_wait_for(n: int) -> None:
    """Nothing stops the consumer from freeing the stage again before the other three warps have
    looked; no run shows it.
    """
    a, b, out = matrix(64, 16 * n, 5), matrix(8, 16 * n, 6), zeros(64, 8)
    program = three_warpgroups.bind(
        tp.tensor_map(a, box=(64, 16)), tp.tensor_map(b, box=(8, 16)), out, n, stages=2, meet=False
    )
    for seed in range(8):
        program.run(seed=seed)
    words = (
        "inputs.empty[0]: warp",
        "can be lapped by the other warps",
        "completes phase 0",
        "the wait of warp",
        "for phase -1",
    )
    refuted(
        program,
        tp.BarrierError,
        *words,
        "synchronise the warps between",
        where("four warps acquire"),
        where("frees for all four"),
    )
