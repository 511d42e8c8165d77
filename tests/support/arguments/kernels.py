"""The kernels whose calls are tried: each public member of a context, a pipeline, a payload, ... is
called by one of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases import (
    bits as bit_cases,
    block_scales as block_scale_cases,
    copies as copy_cases,
    fragments as fragment_cases,
    grid as grid_cases,
    mma as mma_cases,
    packed_operands,
    reductions as reduction_cases,
    scalars as scalar_cases,
    synchronisation as sync_cases,
    tensor_memory as tmem_cases,
)
from tests.cases.fragments import Case, Made, Rng
from tests.conformance import cases as pages


@tp.kernel(grid=2)
def scheduled(ctx: tp.Context, out: Any) -> None:
    """Tiles of a static schedule, by two warpgroups in turn, which a ring and an order keep in
    step.
    """
    work = tp.StaticScheduler(ctx, (2, 2), cluster=(1, 1), raster="grouped", group=1)
    order = tp.OrderedBarrier(ctx, 2, depth=1, name="order")
    ring = tp.ProducerConsumerPipeline.allocate(
        ctx, 2, producer_arrivals=128, consumer_arrivals=128
    )
    tiles = ctx.smem((8, 32), "float32", count=2, swizzle=0)
    assert tp.TileLayout.of(tiles) == tp.TileLayout(tp.float32, 8, 32, "row", 0)
    assert tp.ProducerConsumerPipeline.smem_bytes_for(2) == ring.smem_bytes()

    @ctx.role("groups", warpgroups=2)
    def groups() -> None:
        count = ctx.var(0)
        count[...] = 1
        sums = ctx.accumulator((64, 8))
        sums[...] = 1.0
        for tile in work.share(ctx.warpgroup_rank, 2):
            ring.producer_advance(ctx.warpgroup_rank)
            ring.consumer_advance(ctx.warpgroup_rank)
            order.wait(ctx.warpgroup_rank)
            ctx.store(tiles[0].part(row=0, col=0, rows=4, cols=8)[0, 0], tile.m + count[...])
            order.pass_on(ctx.warpgroup_rank)
            with order.turn(ctx.warpgroup_rank):
                ctx.store(out[tile.m, tile.n], 1)


@tp.kernel()
def grouped(ctx: tp.Context, offsets: Any, out: Any) -> None:
    """Tiles of groups of rows."""
    work = tp.GroupedScheduler(
        ctx,
        offsets,
        rows=out.shape[0],
        tile_rows=8,
        columns=ctx.ceil_div(out.shape[1], 8),
        cluster=(1, 1),
        raster="rows",
        group=2,
        padded=False,
    )

    @ctx.role("one", warps=1)
    def one() -> None:
        for tile in work.share(0, 1):
            ctx.store(out[tile.row, tile.n], tile.end)


@tp.kernel(grid=16)
def asked(ctx: tp.Context, out: Any) -> None:
    """A scheduler that asks for work as it goes, and the response by hand (Blackwell)."""
    work = tp.ClcScheduler(ctx, (4, 4), cluster=(1, 1), raster="rows", group=2, stages=2)
    response = ctx.smem((8, 4), tp.int32, swizzle=0)[0]
    done = tp.SharedMemBarrier.allocate(ctx)

    @ctx.role("ask", warps=1)
    def ask() -> None:
        work.schedule()
        with ctx.elect_one():
            done.expect_bytes(16)
            ctx.clc_try_cancel(response.rows(0, 1), done)
        done.wait(0)
        ctx.clc_query(response.rows(0, 1))

    @ctx.role("work", warps=1)
    def loop() -> None:
        for tile in work:
            work.throttle_signal()
            ctx.store(out[tile.m, tile.n], 1)


@tp.kernel()
def flat(ctx: tp.Context, out: Any) -> None:
    """What the other kernels leave out of the rings."""
    roles = tp.ProducerPipeline.allocate(ctx, 2, producer_arrivals=32, consumer_arrivals=32)
    parts = tp.StagedPipeline.allocate(ctx, 2, producer_arrivals=32, consumer_arrivals=32)
    payload = tp.StandardTilePayload(
        a_type="float32", b_type="float32", a_shape=(8, 8), b_shape=(8, 8)
    )
    inputs = tp.InputTilePipeline.allocate(
        ctx, payload, num_group_stages=2, producer_arrivals=32, consumer_arrivals=32
    )
    scales = tp.SMemTileArrayWithLayout(
        ctx, "float8_e8m0", tp.ScaleFactorLayout(128, 4), 2, name="scales"
    )

    place = tp.PipelineState(ctx, 2)
    blockwise: Any = tp.BlockwiseFP8TilePayload(
        a_type="float8_e4m3",
        b_type="float8_e4m3",
        a_shape=(32, 16),
        b_shape=(8, 16),
        a_scales_type="float32",
        a_scales_shape=(1, 32),
    ).allocate(ctx, 2, "blockwise")
    scaled: Any = tp.BlockScaledTilePayload(
        a_type="float8_e4m3",
        b_type="float8_e4m3",
        a_shape=(128, 128),
        b_shape=(64, 128),
        sfa_type="float8_e8m0",
        sfb_type="float8_e8m0",
        sfa_shape=(128, 4),
        sfb_shape=(64, 4),
    ).allocate(ctx, 2, "scaled")
    named: Any = tp.OperandTilePayload(
        a=tp.TileOperand("float32", (8, 8)), b=tp.TileOperand("float32", (8, 8), "row", 32)
    ).allocate(ctx, 2, "named")
    keys = tp.FA4Config(
        qkv_dtype=tp.bfloat16,
        depth=64,
        BM=64,
        BN=16,
        num_kv_stages=2,
        num_qk_stages=1,
        chip=tp.H200,
    )
    assert keys.BN == 16

    @ctx.role("one", warps=1)
    def one() -> None:
        blockwise.get_tile(0, 0, k_group_size=1)
        blockwise.get_a_tile(0, 0, k_group_size=1)
        blockwise.get_b_tile(0, 0, k_group_size=1)
        blockwise.get_a_scales_tile(0, 0, k_group_size=1)
        scaled.get_tile(0, 0, k_group_size=1)
        named.get_tile(0, 0, k_group_size=1)
        tp.MmaConsumer(inputs.pipeline, lag=1, shared=True).flush()
        tp.ProducerAhead(inputs)
        scaled.get_sfa_tile(0, 0, k_group_size=1)
        scaled.get_sfb_tile(0, 0, k_group_size=1)
        place.advance(2)
        ctx.print("{} of {}", ctx.lane, out.shape[0])
        ctx.assert_(out.shape[0] > 0, "there is an output")  # noqa: PT009
        roles.producer_mbar(0).arrive()
        roles.consumer_mbar(0).arrive()
        parts.consumer_mbar(0).arrive()
        inputs.producer_advance(2)
        inputs.consumer_advance(2)
        ctx.shuffle_xor(ctx.shuffle(ctx.lane, 3), 1)
        ctx.any_lane(ctx.all_lanes(ctx.ballot(ctx.lane > 2) == 0))
        ctx.reduce_lanes("add", ctx.lane)
        for i in ctx.range(2):
            ctx.store(out[i], scales[0].shape[0])


@tp.kernel()
def addressed(ctx: tp.Context, out: Any) -> None:
    """Tensor memory by its address alone, and in halves."""
    outputs = tp.OutputTilePipeline.allocate(
        ctx, tp.OutputPipelineConfig(2, 16), producer_arrivals=1, consumer_arrivals=128
    )

    @ctx.role("mma", warps=1)
    def mma() -> None:
        with outputs.mma_warp(), outputs.producer():
            pass

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        with outputs.epilogue_warp(), outputs.consumer() as stage:
            place = tp.TmemAddress(stage.tmem.offset())
            upper, lower = place.load_upper(16), place.load_lower(16)
            ctx.tmem_wait_load()
            place.store_upper(upper)
            place.store_lower(lower)
            assert (
                place.tensor((128, 16)).shape
                == tp.TmemStage.from_offset(stage.tmem.offset(), 0).tensor((128, 16)).shape
            )
            both = tp.TmemFragments.load(stage.tmem, 128, 16)
            ctx.tmem_wait_load()
            ctx.store_global(out, (0, 0), both.upper)


@tp.kernel()
def shared(ctx: tp.Context, out: Any) -> None:
    """A ring that K and V share."""
    cfg = tp.FA4Config(
        qkv_dtype=tp.bfloat16,
        depth=128,
        BM=64,
        BN=32,
        num_kv_stages=3,
        num_qk_stages=1,
        use_fused_kv=True,
        chip=tp.H200,
    )
    ring = tp.KVPipeline.allocate(ctx, 3, producer_arrivals=1, consumer_arrivals=1)
    slots = tp.KVTiles.allocate(ctx, cfg, name="slots")
    values = tp.TMAConsumerPipeline(ring, slots, cfg, is_k=False)
    assert (
        len(ctx.smem((8, 64), "float32", count=2, name="words").view((8, 32), name="narrow")) == 2
    )

    @ctx.role("use", warpgroups=1)
    def use() -> None:
        acc = ctx.accumulator((64, 8))
        acc.fill(0)
        values.wait_v()
        values.release_at(0)
        ctx.wgmma_wait(0)
        ctx.store_global(out, (0, 0), acc)


def _only(program: tp.Program, out: Any) -> Made:
    return program, out, out, 0


def scheduled_made(rng: Rng) -> Made:
    out = np.zeros((2, 2), np.int32)
    return _only(scheduled.bind(out), out)


def grouped_made(rng: Rng) -> Made:
    out = np.zeros((32, 16), np.int32)
    return _only(grouped.bind(np.array([8, 32], np.int32), out), out)


def asked_made(rng: Rng) -> Made:
    out = np.zeros((4, 4), np.int32)
    return _only(asked.bind(out), out)


def flat_made(rng: Rng) -> Made:
    out = np.zeros(2, np.int32)
    return _only(flat.bind(out), out)


def addressed_made(rng: Rng) -> Made:
    out = np.zeros((64, 16), np.float32)
    return _only(addressed.bind(out), out)


def shared_made(rng: Rng) -> Made:
    out = np.zeros((64, 8), np.float32)
    return _only(shared.bind(out), out)


@tp.kernel(grid=2, cooperative=True)
def between(ctx: tp.Context, words: Any, out: Any) -> None:
    """Atomic operations, a flag and a fence."""

    @ctx.role("one", warps=1)
    def one() -> None:
        lane = ctx.lane
        ctx.atomic_add(words[lane], lane, order="relaxed", scope="gpu")
        ctx.atomic_min(words[lane], lane, order="relaxed", scope="gpu")
        ctx.atomic_max(words[lane], lane, order="relaxed", scope="gpu")
        ctx.atomic_and(words[lane], lane, order="relaxed", scope="gpu")
        ctx.atomic_or(words[lane], lane, order="relaxed", scope="gpu")
        ctx.atomic_xor(words[lane], lane, order="relaxed", scope="gpu")
        ctx.atomic_exchange(words[lane], lane, order="relaxed", scope="gpu")
        ctx.atomic_cas(words[lane], lane, lane, order="relaxed", scope="gpu")
        ctx.fence("acq_rel", scope="gpu")
        with ctx.elect_one():
            ctx.store(words[32 + ctx.block_id], 1, order="release", scope="gpu")
            ctx.wait_until(words[32], lambda value: value == 1, order="acquire", scope="gpu")
            ctx.store(out[ctx.block_id], ctx.load(words[32], order="acquire", scope="gpu"))


def between_made(rng: Rng) -> Made:
    out = np.zeros(2, np.int32)
    return _only(between.bind(np.zeros(34, np.int32), out), out)


OWN = [
    Case("between", between_made),
    Case("addressed", addressed_made),
    Case("shared", shared_made),
    Case("scheduled", scheduled_made),
    Case("grouped", grouped_made),
    Case("asked", asked_made),
    Case("flat", flat_made),
]
_WANTED = set(
    """bfloat16 m=64 n=8|integers_int8|copy_int8|polled|bfloat16 n=8|reborn|passed_round_1
    |move_float32|column_filled|tickets_1|causal_64|converted_boolean|rounded_float16|meetings|everybody_1|collatz|dealt|kept|gelu|clamp|push_float32_64×8|turned_float32_64_0
    |pair bfloat16 n=32|stored float32 m=128 n=8 half=0|copied bfloat16 rows=128
    |mxfp8 n=8|bits_nibbles|bits_halves|bits_exponents|packed_e4m3
    |column_max_wgmma_float32|column_min_wgmma_float32""".replace("\n    ", "").split("|")
)
_OTHERS: list[Any] = [
    *scalar_cases.CASES,
    *copy_cases.CASES,
    *sync_cases.CASES,
    *grid_cases.CASES,
    *fragment_cases.CASES,
    *bit_cases.CASES,
    *packed_operands.CASES,
    *mma_cases.CASES,
    *tmem_cases.CASES,
    *reduction_cases.CASES,
    *block_scale_cases.CASES,
]
# Where several call a member, the first is the one that is tried.
CASES: list[Any] = [
    *OWN,
    *(case for case in _OTHERS if case.name in _WANTED or case.name.startswith("push_")),
    *pages.CASES,
]
