"""Small kernels that use every member of InputTilePipeline, its views and its payloads, with what
NumPy says of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Case, Made, Rng

PAYLOAD = tp.StandardTilePayload(a_type="float32", b_type="float32", a_shape=(8, 8), b_shape=(8, 8))
SCALED = tp.BlockwiseFP8TilePayload(
    a_type="float8_e4m3",
    b_type="float8_e4m3",
    a_shape=(32, 16),
    b_shape=(8, 16),
    a_scales_type="float32",
    a_scales_shape=(1, 32),
)
GROUP = 2  # tiles of a stage


def read_group(ctx: tp.Context, out: Any, tiles: Any, group: Any) -> None:
    """A row of `out` for each tile of the group: A + 10 B, half of a tile."""
    for j, (a, b) in enumerate(tiles):
        at = ctx.lane // 8, ctx.lane % 8
        ctx.store(out[group * GROUP + j, ctx.lane], ctx.load(a[at]) + 10 * ctx.load(b[at]))


def load_group(ctx: tp.Context, a: Any, b: Any, tiles: Any, group: Any, barrier: Any) -> None:
    """The TMA copies of a group."""
    for j, (a_tile, b_tile) in enumerate(tiles):
        at = 0, (group * GROUP + j) * 8
        ctx.tma_load(a, at, a_tile, barrier)
        ctx.tma_load(b, at, b_tile, barrier)


@tp.kernel()
def flat_inputs(ctx: tp.Context, a: Any, b: Any, out: Any) -> None:
    """Groups of tiles, every other one by waits, barriers and steps, the rest by handles."""
    storage = tp.SMemArray(ctx, tp.SharedMemBarrier, 6, "inputs")
    tp.InputTilePipeline.init_barriers(storage, 1, 32)
    inputs = tp.InputTilePipeline(storage, PAYLOAD.allocate(ctx, 3 * GROUP, "inputs"), 3, GROUP)
    groups = out.shape[0] // GROUP

    def tiles(stage: Any) -> Any:
        return [inputs.payload.get_tile(stage, j, k_group_size=GROUP) for j in range(GROUP)]

    @ctx.role("load", warps=1)
    def load() -> None:
        for group in ctx.range(0, groups, 2):
            inputs.wait_consumer_if_needed(inputs.try_acquire_producer())
            stage = inputs.producer_stage()
            with ctx.elect_one():
                barrier = inputs.producer_mbar(stage)
                barrier.expect_bytes(inputs.stage_bytes)
                load_group(ctx, a, b, tiles(stage), group, barrier)
            inputs.pipeline.producer_step()
            held = inputs.acquire_producer()
            with ctx.elect_one():
                held.expect_bytes(inputs.stage_bytes)
                group_tiles = [
                    held.payload().get_tile(held.stage(), j, k_group_size=GROUP)
                    for j in range(GROUP)
                ]
                load_group(ctx, a, b, group_tiles, group + 1, held.barrier())
            held.release()
        inputs.drain_producer()

    @ctx.role("use", warps=1)
    def use() -> None:
        ours = inputs.copy()
        for group in ctx.range(0, groups, 2):
            ours.wait_producer_if_needed(ours.try_acquire_consumer())
            stage = ours.consumer_stage()
            read_group(ctx, out, tiles(stage), group)
            ours.consumer_mbar(stage).arrive()
            ours.pipeline.consumer_step()
            held = ours.acquire_consumer()
            read_group(
                ctx,
                out,
                [
                    held.payload().get_tile(held.stage(), j, k_group_size=GROUP)
                    for j in range(GROUP)
                ],
                group + 1,
            )
            held.mbar().arrive()
            held.release()


@tp.kernel()
def viewed_inputs(ctx: tp.Context, a: Any, b: Any, out: Any) -> None:
    """Groups of tiles by way of the views of the two sides."""
    inputs = tp.InputTilePipeline.allocate(ctx, PAYLOAD, num_group_stages=3, k_group_size=GROUP)
    groups = out.shape[0] // GROUP

    @ctx.role("load", warps=1)
    def load() -> None:
        def fill(stage: Any, group: Any) -> None:
            with ctx.elect_one():
                stage.expect_bytes(inputs.stage_bytes)
                tiles = [
                    stage.payload().get_tile(stage.stage(), j, k_group_size=GROUP)
                    for j in range(GROUP)
                ]
                load_group(ctx, a, b, tiles, group, stage.barrier())

        with inputs.producer() as producer:
            for group in ctx.range(0, groups, 3):
                with producer.acquire() as entered:
                    assert entered.pipeline_ptr is inputs
                    fill(entered, group)
                with producer.acquire_if_needed(producer.try_acquire()) as tried:
                    fill(tried, group + 1)
                held = producer.acquire_stage()
                fill(held, group + 2)
                held.release()
            producer.drain()

    @ctx.role("use", warps=1)
    def use() -> None:
        def take(stage: Any, group: Any) -> None:
            tiles = [
                stage.payload().get_tile(stage.stage(), j, k_group_size=GROUP) for j in range(GROUP)
            ]
            read_group(ctx, out, tiles, group)
            stage.mbar().arrive()

        with inputs.consumer() as consumer:
            for group in ctx.range(0, groups, 3):
                with consumer.acquire() as entered:
                    take(entered, group)
                with consumer.acquire_if_needed(consumer.try_acquire()) as tried:
                    take(tried, group + 1)
                held = consumer.acquire_stage()
                take(held, group + 2)
                held.release()


def summed(kernel: tp.KernelFunction, groups: int) -> Any:
    def make(rng: Rng) -> Made:
        tiles = groups * GROUP
        a, b = (rng.integers(1, 9, (8, 8 * tiles)).astype(np.float32) for _ in range(2))
        out = np.zeros((tiles, 32), np.float32)
        want = np.stack([(a + 10 * b)[:4, 8 * t : 8 * t + 8].reshape(32) for t in range(tiles)])
        program = kernel.bind(tp.tensor_map(a, box=(8, 8)), tp.tensor_map(b, box=(8, 8)), out)
        return program, out, want, 0

    return make


@tp.kernel()
def scaled_inputs(ctx: tp.Context, a: Any, b: Any, scales: Any, out: Any) -> None:
    """A column of each A tile times its scales, plus B: every operand of the payload arrives by
    TMA.
    """
    inputs = tp.InputTilePipeline.allocate(ctx, SCALED, num_group_stages=2)

    @ctx.role("load", warps=1)
    def load() -> None:
        for k in ctx.range(out.shape[0]):
            with inputs.producer().acquire() as stage, ctx.elect_one():
                stage.expect_bytes(inputs.stage_bytes)
                tiles, coordinates = stage.tile(), [(0, k * 16), (0, k * 16), (k, 0)]
                for tensor, at, tile in zip((a, b, scales), coordinates, tiles, strict=True):
                    ctx.tma_load(tensor, at, tile, stage.barrier())
        inputs.drain_producer()

    @ctx.role("use", warps=1)
    def use() -> None:
        for k in ctx.range(out.shape[0]):
            with inputs.consumer().acquire() as stage:
                a_tile, b_tile, scale = stage.tile()
                x = ctx.load(a_tile[ctx.lane, 3]).to(tp.float32) * ctx.load(scale[0, ctx.lane])
                ctx.store(out[k, ctx.lane], x + ctx.load(b_tile[ctx.lane % 8, 5]).to(tp.float32))


def made_scaled(rng: Rng) -> Made:
    e4m3 = tp.float8_e4m3.numpy
    a, b = (rng.integers(1, 9, (rows, 16 * 7)).astype(e4m3) for rows in (32, 8))
    scales, out = rng.integers(1, 9, (7, 32)).astype(np.float32), np.zeros((7, 32), np.float32)
    want = (
        a.astype(np.float32)[:, 3::16].T * scales + b.astype(np.float32)[np.arange(32) % 8, 5::16].T
    )
    maps = (
        tp.tensor_map(a, box=(32, 16)),
        tp.tensor_map(b, box=(8, 16)),
        tp.tensor_map(scales, box=(1, 32)),
    )
    return scaled_inputs.bind(*maps, out), out, want, 0


SHORT = {"flat_inputs": summed(flat_inputs, 4), "viewed_inputs": summed(viewed_inputs, 3)}
CASES = [
    Case("flat_inputs", summed(flat_inputs, 10)),
    Case("viewed_inputs", summed(viewed_inputs, 12)),
    Case("scaled_inputs", made_scaled),
]
