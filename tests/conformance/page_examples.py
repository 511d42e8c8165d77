"""The sixteen examples of the five API pages, line by line, each inside a kernel that computes
something.

Every function between the two rulers is an example: its body is the page's, but for what Python has
no word for. `var x =` and `x^.release()` are `x =` and `x.release()`; `if lane_id() < n:` is `with
ctx.when(ctx.lane < n):`; what one thread does stands under `ctx.elect_one()`. Where the page has a
slip, the right call stands here and a comment says what the page has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Case, Made, Rng

ROWS, WIDTH = 5, 32  # rows that a ring passes on
CLUSTER_SIZE = 2  # arrivals of the lane-guarded examples
PAYLOAD = tp.StandardTilePayload(a_type="float32", b_type="float32", a_shape=(8, 8), b_shape=(8, 8))
M, N, K, STEPS = 128, 16, 16, 3
MMA_TILES = tp.StandardTilePayload(
    a_type="bfloat16", b_type="bfloat16", a_shape=(M, K), b_shape=(N, K)
)
SCALED = tp.BlockwiseFP8TilePayload(
    a_type="float8_e4m3",
    b_type="float8_e4m3",
    a_shape=(M, 32),
    b_shape=(N, 32),
    a_scales_type="float32",
    a_scales_shape=(1, M),
)


@dataclass(frozen=True)
class Work:
    """What an example is given: `put` fills a stage of a ring with a row, `take` copies one out of
    it.
    """

    ctx: tp.Context
    pipeline: Any
    put: Callable[[Any], None]
    take: Callable[[Any], None]
    other_work: Callable[[], None] = lambda: None


# == ProducerConsumerPipeline
# =============================================================================================


def try_wait_producer(w: Work) -> None:
    """Note of try_wait_producer."""
    ready = w.pipeline.try_wait_producer()
    w.other_work()  # ... do other work ...
    w.pipeline.wait_producer_if_needed(ready)
    w.take(w.pipeline.consumer_stage())
    w.pipeline.consumer_mbar(w.pipeline.consumer_stage()).arrive()
    w.pipeline.consumer_step()


def produce(w: Work) -> None:
    """Usage of produce."""
    with w.pipeline.produce() as stage:
        w.put(stage.index())  # stage.index() gives current stage
        stage.mbar().arrive()  # stage.mbar() gives barrier for signaling
        # exit calls producer_step()


def consume(w: Work) -> None:
    """Usage of consume."""
    with w.pipeline.consume() as stage:
        w.take(stage.index())  # stage.index() gives current stage
        # exit signals consumer done and advances


def consume_explicit(w: Work) -> None:
    """Usage of consume_explicit."""
    with w.pipeline.consume_explicit() as stage:
        w.take(stage.index())  # ... do work ...
        w.ctx.syncwarp()  # a lane that arrives speaks for all of them
        with w.ctx.when(w.ctx.lane < CLUSTER_SIZE):
            stage.arrive()  # Lane-guarded arrive
        # exit only advances, does NOT arrive


def acquire_producer(w: Work) -> None:
    """Usage of acquire_producer."""
    stage = w.pipeline.acquire_producer()
    w.put(stage.index())  # ... produce data, signal via stage.mbar() ...
    stage.mbar().arrive()
    stage.release()  # Advances to next stage


def acquire_consumer(w: Work) -> None:
    """Usage of acquire_consumer."""
    stage = w.pipeline.acquire_consumer()
    w.take(stage.index())  # ... consume data ...
    stage.release()  # Signals complete and advances


def acquire_consumer_explicit(w: Work) -> None:
    """The same, for explicit signaling."""
    stage = w.pipeline.acquire_consumer()
    w.take(stage.index())  # ... consume data ...
    w.ctx.syncwarp()
    with w.ctx.when(w.ctx.lane < CLUSTER_SIZE):
        stage.arrive()
    stage.release_without_signal()


def consume_explicit_leader(
    ctx: tp.Context,
    pipeline: tp.ProducerConsumerPipeline,
    cta_group: int,
    do_work: Callable[[Any], None],
) -> None:
    """Usage of consume_explicit, for specialized signaling."""
    with pipeline.consume_explicit() as stage:
        do_work(stage.index())
        if cta_group == 1:
            stage.arrive()
        else:
            tp.umma_arrive_leader_cta(stage.mbar())


# == InputTilePipeline and ProducerTiles
# ==================================================================================


@dataclass(frozen=True)
class Tiles:
    """What an example of the input tiles is given."""

    ctx: tp.Context
    pipeline: tp.InputTilePipeline
    load_tiles: Callable[..., None]
    process_tiles: Callable[..., None]
    other_work: Callable[[], None] = lambda: None


def try_acquire_producer(w: Tiles) -> None:
    """Example (TMA Load warp) of try_acquire_producer."""
    ready = w.pipeline.try_acquire_producer()
    w.other_work()  # ... do other work while potentially waiting ...
    # the page has wait_producer_if_needed, with which the producer waits for itself
    w.pipeline.wait_consumer_if_needed(ready)
    stage = w.pipeline.producer_stage()
    with w.ctx.elect_one():  # ... load tiles ...
        w.pipeline.producer_mbar(stage).expect_bytes(w.pipeline.stage_bytes)
        w.load_tiles(w.pipeline.payload, stage, w.pipeline.producer_mbar(stage))
    w.pipeline.pipeline.producer_step()


def try_acquire_consumer(w: Tiles) -> None:
    """Example (MMA warp) of try_acquire_consumer."""
    ready = w.pipeline.try_acquire_consumer()
    w.other_work()  # ... do other work while potentially waiting ...
    w.pipeline.wait_producer_if_needed(ready)  # the page has wait_consumer_if_needed
    stage = w.pipeline.consumer_stage()
    w.process_tiles(w.pipeline.payload, stage)  # ... process tiles ...
    w.pipeline.consumer_mbar(stage).arrive()
    w.pipeline.pipeline.consumer_step()


def acquire_producer_tiles(w: Tiles) -> None:
    """Usage of acquire_producer."""
    tiles = w.pipeline.acquire_producer()
    with w.ctx.elect_one():
        tiles.expect_bytes(w.pipeline.stage_bytes)
        w.load_tiles(tiles.payload(), tiles.stage(), tiles.barrier())
    tiles.release()  # Advances to next stage


def acquire_consumer_tiles(w: Tiles) -> None:
    """Usage of acquire_consumer."""
    tiles = w.pipeline.acquire_consumer()
    w.process_tiles(tiles.payload(), tiles.stage())
    tiles.release()  # Signals complete and advances


def producer_tiles(w: Tiles) -> None:
    """Usage of ProducerTiles."""
    producer, num_bytes = w.pipeline.producer(), w.pipeline.stage_bytes
    with producer.acquire() as tiles, w.ctx.elect_one():
        tiles.expect_bytes(num_bytes)
        w.load_tiles(tiles.payload(), tiles.stage(), tiles.barrier())
        # release called automatically


# == OutputTilePipeline
# ==================================================================================================
# =


def acquire_mma_linear(
    ctx: tp.Context,
    output_pipeline: tp.OutputTilePipeline,
    mma_op: tp.MmaOp,
    a_tile: Any,
    b_tile: Any,
) -> None:
    """Usage of acquire_mma_linear."""
    stage = output_pipeline.acquire_mma_linear()
    with ctx.elect_one():
        mma_op.mma(a_tile, b_tile, stage.tmem_offset())
        mma_op.commit(stage.mbar())
    # Signals mma_arrive and advances; here only the latter, since the line above has signalled
    stage.release()


def acquire_epilogue_linear(
    output_pipeline: tp.OutputTilePipeline, process_tmem: Callable[[tp.TmemStage], None]
) -> None:
    """Usage of acquire_epilogue_linear."""
    stage = output_pipeline.acquire_epilogue_linear()
    process_tmem(stage.tmem())
    stage.release()  # Advances to next stage


def per_k_epilogue(
    ctx: tp.Context,
    output_pipeline: tp.OutputTilePipeline,
    input_pipeline: tp.ProducerConsumerPipeline,
    num_iters: int,
    accum: tp.BlockwiseFP8Accumulator,
    a_scales: Callable[[Any], Any],
) -> None:
    """Example of per_k_epilogue."""
    for _k_iter in ctx.range(num_iters):
        with output_pipeline.per_k_epilogue(input_pipeline) as stage:
            accum.promote(stage, a_scales(stage), 0.5)
        # Both pipelines signaled automatically


# == the kernels around them
# ==============================================================================================


def ring(producer: Callable[[Work], None], consumer: Callable[[Work], None]) -> tp.KernelFunction:
    """out[i] = a[i] + 1 through a ring of two rows."""
    # who arrives without a handle says how often
    counts = {"consumer_arrivals": 32} if consumer is try_wait_producer else {}

    @tp.kernel()
    def passing(ctx: tp.Context, a: Any, out: Any) -> None:
        pipeline = tp.ProducerConsumerPipeline.allocate(ctx, 2, name="ring", **counts)
        slots = ctx.smem((1, WIDTH), tp.float32, count=2, swizzle=0, name="slots")

        @ctx.role("producer", warps=1)
        def producing() -> None:
            for i in ctx.range(ROWS):

                def put(stage: Any, i: Any = i) -> None:
                    ctx.store(slots[stage][0, ctx.lane], ctx.load(a[i, ctx.lane]))

                producer(Work(ctx, pipeline, put, put))

        @ctx.role("consumer", warps=1)
        def consuming() -> None:
            for i in ctx.range(ROWS):

                def take(stage: Any, i: Any = i) -> None:
                    ctx.store(out[i, ctx.lane], ctx.load(slots[stage][0, ctx.lane]) + 1)

                consumer(Work(ctx, pipeline, take, take))

    return passing


def made_ring(
    producer: Callable[[Work], None], consumer: Callable[[Work], None]
) -> Callable[[Rng], Made]:
    def made(rng: Rng) -> Made:
        a = rng.integers(0, 99, (ROWS, WIDTH)).astype(np.float32)
        out = np.zeros_like(a)
        return ring(producer, consumer).bind(a, out), out, a + 1, 0

    return made


def tiles(
    producer: Callable[[Tiles], None], consumer: Callable[[Tiles], None]
) -> tp.KernelFunction:
    """Half of A + 10 B of each of ROWS tiles."""
    counts: dict[str, Any] = {"producer_arrivals": 1} if producer is try_acquire_producer else {}
    counts |= {"consumer_arrivals": 32} if consumer is try_acquire_consumer else {}

    @tp.kernel()
    def passing(ctx: tp.Context, a: Any, b: Any, out: Any) -> None:
        pipeline = tp.InputTilePipeline.allocate(ctx, PAYLOAD, num_group_stages=2, **counts)

        @ctx.role("load", warps=1)
        def load() -> None:
            for i in ctx.range(ROWS):

                def load_tiles(payload: Any, stage: Any, barrier: Any, i: Any = i) -> None:
                    ctx.tma_load(a, (0, 8 * i), payload.get_a_tile(stage, k_group_size=1), barrier)
                    ctx.tma_load(b, (0, 8 * i), payload.get_b_tile(stage, k_group_size=1), barrier)

                producer(Tiles(ctx, pipeline, load_tiles, load_tiles))

        @ctx.role("use", warps=1)
        def use() -> None:
            for i in ctx.range(ROWS):

                def process_tiles(payload: Any, stage: Any, i: Any = i) -> None:
                    a_tile, b_tile = payload.get_tile(stage, k_group_size=1)
                    at = ctx.lane // 8, ctx.lane % 8
                    ctx.store(out[i, ctx.lane], ctx.load(a_tile[at]) + 10 * ctx.load(b_tile[at]))

                consumer(Tiles(ctx, pipeline, process_tiles, process_tiles))

    return passing


def made_tiles(
    producer: Callable[[Tiles], None], consumer: Callable[[Tiles], None]
) -> Callable[[Rng], Made]:
    def made(rng: Rng) -> Made:
        a, b = (rng.integers(1, 9, (8, 8 * ROWS)).astype(np.float32) for _ in range(2))
        out = np.zeros((ROWS, 32), np.float32)
        want = np.stack([(a + 10 * b)[:4, 8 * t : 8 * t + 8].reshape(32) for t in range(ROWS)])
        return (
            tiles(producer, consumer).bind(
                tp.tensor_map(a, box=(8, 8)), tp.tensor_map(b, box=(8, 8)), out
            ),
            out,
            want,
            0,
        )

    return made


@tp.kernel()
def linear_outputs(ctx: tp.Context, a: Any, b: Any, out: Any) -> None:
    """Tiles of A · Bᵀ, one MMA each, by acquire_mma_linear and acquire_epilogue_linear."""
    pipeline = tp.InputTilePipeline.allocate(ctx, MMA_TILES, num_group_stages=2)
    output_pipeline = tp.OutputTilePipeline.allocate(
        ctx, tp.OutputPipelineConfig(num_stages=2, stage_stride_cols=N)
    )
    mma_op = tp.MmaOp(ctx)
    count = out.shape[0] // M

    @ctx.role("load", warps=1)
    def load() -> None:
        for tile in ctx.range(count):
            with pipeline.producer().acquire() as stage, ctx.elect_one():
                stage.expect_bytes(pipeline.stage_bytes)
                ctx.tma_load(a, (tile * M, 0), stage.tile()[0], stage.barrier())
                ctx.tma_load(b, (0, 0), stage.tile()[1], stage.barrier())
        pipeline.drain_producer()

    @ctx.role("mma", warps=1)
    def mma() -> None:
        with output_pipeline.mma_warp():
            for _ in ctx.range(count):
                with pipeline.consumer().acquire() as inputs:
                    acquire_mma_linear(ctx, output_pipeline, mma_op, *inputs.tile())

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        with output_pipeline.epilogue_warp():
            for tile in ctx.range(count):

                def process_tmem(tmem: tp.TmemStage, tile: Any = tile) -> None:
                    x = tmem.tensor((M, N)).load()
                    ctx.tmem_wait_load()
                    ctx.store_global(out, (tile * M, 0), x)

                acquire_epilogue_linear(output_pipeline, process_tmem)


def made_outputs(rng: Rng) -> Made:
    a, b = (rng.integers(-3, 4, (rows, K)).astype(tp.bfloat16.numpy) for rows in (5 * M, N))
    out = np.zeros((5 * M, N), np.float32)
    maps = tp.tensor_map(a, box=(M, K)), tp.tensor_map(b, box=(N, K))
    return linear_outputs.bind(*maps, out), out, a.astype(np.float32) @ b.astype(np.float32).T, 0


@tp.kernel()
def scaled_steps(ctx: tp.Context, a: Any, b: Any, scales: Any, out: Any) -> None:
    """A tile of A · Bᵀ whose steps of K have a scale for each row of A, by per_k_epilogue."""
    inputs = tp.InputTilePipeline.allocate(ctx, SCALED, num_group_stages=2)
    output_pipeline = tp.OutputTilePipeline.allocate(
        ctx, tp.OutputPipelineConfig(num_stages=2, stage_stride_cols=N)
    )

    @ctx.role("load", warps=1)
    def load() -> None:
        for k in ctx.range(STEPS):
            with inputs.producer().acquire() as stage, ctx.elect_one():
                stage.expect_bytes(inputs.stage_bytes)
                for tensor, at, part in zip(
                    (a, b, scales), ((0, k * 32), (0, k * 32), (k, 0)), stage.tile(), strict=True
                ):
                    ctx.tma_load(tensor, at, part, stage.barrier())

    @ctx.role("mma", warps=1)
    def mma() -> None:
        with output_pipeline.mma_warp():
            for _ in ctx.range(STEPS):
                step = output_pipeline.per_k().acquire_k_stage_linear()
                with inputs.consumer().acquire() as stage, ctx.elect_one():
                    ctx.mma(step.tmem_offset(), *stage.tile()[:2], accumulate=False)
                    ctx.mma_commit(stage.mbar())
                step.release()

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        accum = tp.BlockwiseFP8Accumulator(ctx, (M, N))
        payload: Any = inputs.payload
        with output_pipeline.epilogue_warp():
            accum.clear()
            per_k_epilogue(
                ctx,
                output_pipeline,
                inputs.pipeline,
                STEPS,
                accum,
                lambda stage: payload.get_a_scales_tile(stage.input_stage_index, k_group_size=1),
            )
            ctx.store_global(out, (0, 0), accum.total)


def made_steps(rng: Rng) -> Made:
    a, b = (rng.integers(-3, 4, (rows, STEPS * 32)).astype(tp.float8_e4m3.numpy) for rows in (M, N))
    scales = 2.0 ** rng.integers(-2, 3, (STEPS, M)).astype(np.float32)
    out, want = np.zeros((M, N), np.float32), np.zeros((M, N), np.float32)
    for k in range(STEPS):
        part = slice(32 * k, 32 * k + 32)
        want += (
            0.5
            * scales[k][:, None]
            * (a[:, part].astype(np.float32) @ b[:, part].astype(np.float32).T)
        )
    maps = (
        tp.tensor_map(a, box=(M, 32)),
        tp.tensor_map(b, box=(N, 32)),
        tp.tensor_map(scales, box=(1, M)),
    )
    return scaled_steps.bind(*maps, out), out, want, 0


def explicit_outputs(group: int) -> tp.KernelFunction:
    """Tiles of A · Bᵀ whose accumulators the epilogue frees by the specialized form of
    consume_explicit.
    """

    @tp.kernel(grid=group, cluster=group)
    def explicit(ctx: tp.Context, a: Any, b: Any, out: Any) -> None:
        inputs = tp.InputTilePipeline.allocate(ctx, MMA_TILES, num_group_stages=2, cta_group=group)
        outputs = tp.OutputTilePipeline.allocate(ctx, tp.OutputPipelineConfig(2, group * N, group))
        count = out.shape[0] // (group * M)

        @ctx.role("load", warps=1)
        def load() -> None:
            for tile in ctx.range(count):
                with inputs.producer().acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    a_tile, b_tile = stage.tile()
                    ctx.tma_load(a, ((group * tile + ctx.cta_rank) * M, 0), a_tile, stage.barrier())
                    ctx.tma_load(b, (ctx.cta_rank * N, 0), b_tile, stage.barrier())
            inputs.drain_producer()

        @ctx.role("mma", warps=1)
        def mma() -> None:
            with outputs.mma_warp(), ctx.when(tp.elect_one_cta(ctx)):
                for _ in ctx.range(count):
                    with (
                        outputs.producer() as acc,
                        inputs.consumer().acquire() as stage,
                        ctx.elect_one(),
                    ):
                        ctx.mma(acc.tmem.offset(), *stage.tile(), accumulate=False)
                        if group == 2:
                            tp.MmaOp(ctx).commit(stage.mbar(), outputs.mma_complete_mask)

        @ctx.role("epilogue", warpgroups=1)
        def epilogue() -> None:
            with outputs.epilogue_warp():
                for tile in ctx.range(count):

                    def do_work(index: Any, tile: Any = tile) -> None:
                        ctx.tcgen05_fence_after()
                        x = (
                            tp.TmemStage(outputs.tmem, index, group * N)
                            .tensor((M, group * N))
                            .load()
                        )
                        ctx.tmem_wait_load()
                        ctx.tcgen05_fence_before()
                        ctx.store_global(out, ((group * tile + ctx.cta_rank) * M, 0), x)

                    consume_explicit_leader(ctx, outputs.pipeline, group, do_work)

    return explicit


def made_explicit(group: int) -> Callable[[Rng], Made]:
    def made(rng: Rng) -> Made:
        a, b = (
            rng.integers(-3, 4, (rows, K)).astype(tp.bfloat16.numpy)
            for rows in (3 * group * M, group * N)
        )
        out = np.zeros((3 * group * M, group * N), np.float32)
        maps = tp.tensor_map(a, box=(M, K)), tp.tensor_map(b, box=(N, K))
        return (
            explicit_outputs(group).bind(*maps, out),
            out,
            a.astype(np.float32) @ b.astype(np.float32).T,
            0,
        )

    return made


HOPPER_EXAMPLES: dict[str, Callable[[Rng], Made]] = {
    "ProducerConsumerPipeline.try_wait_producer": made_ring(produce, try_wait_producer),
    "ProducerConsumerPipeline.produce": made_ring(produce, consume),
    "ProducerConsumerPipeline.consume": made_ring(acquire_producer, consume),
    "ProducerConsumerPipeline.consume_explicit": made_ring(produce, consume_explicit),
    "ProducerConsumerPipeline.acquire_producer": made_ring(acquire_producer, acquire_consumer),
    "ProducerConsumerPipeline.acquire_consumer": made_ring(produce, acquire_consumer),
    "ProducerConsumerPipeline.acquire_consumer, explicit": made_ring(
        acquire_producer, acquire_consumer_explicit
    ),
    "InputTilePipeline.try_acquire_producer": made_tiles(
        try_acquire_producer, acquire_consumer_tiles
    ),
    "InputTilePipeline.try_acquire_consumer": made_tiles(
        acquire_producer_tiles, try_acquire_consumer
    ),
    "InputTilePipeline.acquire_producer": made_tiles(
        acquire_producer_tiles, acquire_consumer_tiles
    ),
    "InputTilePipeline.acquire_consumer": made_tiles(producer_tiles, acquire_consumer_tiles),
    "ProducerTiles": made_tiles(producer_tiles, acquire_consumer_tiles),
}
BLACKWELL_EXAMPLES: dict[str, Callable[[Rng], Made]] = {
    "ProducerConsumerPipeline.consume_explicit, one CTA": made_explicit(1),
    "ProducerConsumerPipeline.consume_explicit, a pair": made_explicit(2),
    "OutputTilePipeline.acquire_mma_linear": made_outputs,
    "OutputTilePipeline.acquire_epilogue_linear": made_outputs,
    "OutputTilePipeline.per_k_epilogue": made_steps,
}
EXAMPLES = [Case(name, make) for name, make in (HOPPER_EXAMPLES | BLACKWELL_EXAMPLES).items()]
