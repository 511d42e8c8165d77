"""Small kernels around OutputTilePipeline that use every member of its page: for the simulator and
for NVRTC. Blackwell only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array, Case, Made, Rng

M, N, K = 128, 16, 16  # of an accumulator and a step
STEPS = 3  # of K in a tile
CONFIG = tp.OutputPipelineConfig(num_stages=2, stage_stride_cols=N)
TILES = tp.StandardTilePayload(a_type="bfloat16", b_type="bfloat16", a_shape=(M, K), b_shape=(N, K))
SCALED = tp.BlockwiseFP8TilePayload(
    a_type="float8_e4m3",
    b_type="float8_e4m3",
    a_shape=(M, 32),
    b_shape=(N, 32),
    a_scales_type="float32",
    a_scales_shape=(1, M),
)


def load_all(ctx: tp.Context, inputs: tp.InputTilePipeline, a: Any, b: Any, tiles: Any) -> None:
    """The load warp: the steps of one tile after the other."""
    for tile in ctx.range(tiles):
        for k in ctx.range(STEPS):
            with inputs.producer().acquire() as stage, ctx.elect_one():
                stage.expect_bytes(inputs.stage_bytes)
                a_tile, b_tile = stage.tile()
                ctx.tma_load(a, (tile * M, k * K), a_tile, stage.barrier())
                ctx.tma_load(b, (0, k * K), b_tile, stage.barrier())


def multiply_at(ctx: tp.Context, inputs: tp.InputTilePipeline, address: Any) -> None:
    """The MMAs of a tile, into the accumulator at an address."""
    mma_op = tp.MmaOp(ctx)
    for k in ctx.range(STEPS):
        with inputs.consumer().acquire() as stage, ctx.elect_one():
            a_tile, b_tile = stage.tile()
            mma_op.mma(a_tile, b_tile, address, init_c=k == 0)
            mma_op.commit(stage.mbar())


def multiply(ctx: tp.Context, inputs: tp.InputTilePipeline, acc: tp.TmemTensor) -> None:
    """The MMAs of a tile."""
    for k in ctx.range(STEPS):
        with inputs.consumer().acquire() as stage, ctx.elect_one():
            a_tile, b_tile = stage.tile()
            ctx.mma(acc, a_tile, b_tile, accumulate=k > 0)
            ctx.mma_commit(stage.mbar())


@tp.kernel()
def flat_outputs(ctx: tp.Context, a: Any, b: Any, out: Any) -> None:
    """Tiles of A · Bᵀ, the even ones through the flat form, the odd ones by handles; all the parts
    are made by hand.
    """
    config = tp.OutputPipelineConfig(num_stages=2, stage_stride_cols=N)
    inputs = tp.InputTilePipeline.allocate(ctx, TILES, num_group_stages=2)
    storage = tp.SMemArray(ctx, tp.SharedMemBarrier, 2 * config.num_stages, "outputs")
    tp.OutputTilePipeline.init_barriers(storage, 1, 128)
    tmem = tp.TmemAllocation(ctx, 32, cta_group=1)
    outputs = tp.OutputTilePipeline(storage, tmem, config=config)
    assert outputs.get_pipeline() is outputs.pipeline
    assert outputs.tmem is tmem
    assert outputs.mma_complete_mask is None
    assert (outputs.cta_group, outputs.num_stages, outputs.stage_stride_cols) == (1, 2, N)
    dealloc, published = tp.TmemDeallocBarrier(ctx), ctx.named_barrier(128 + 32, "published")
    tiles = out.shape[0] // M

    ctx.role("load", warps=1)(lambda: load_all(ctx, inputs, a, b, tiles))

    @ctx.role("mma", warps=1)
    def mma() -> None:
        life = tp.MmaWarp.create(tmem, dealloc, published)
        for _ in ctx.range(0, tiles, 2):
            stage = outputs.acquire_for_mma()
            multiply_at(ctx, inputs, stage.tmem.offset())
            outputs.release_from_mma(stage)
            held = outputs.acquire_mma_linear()
            multiply_at(ctx, inputs, tp.TmemAddress(held.tmem_offset()))
            assert isinstance(held.index(), type(held.tmem_offset()))
            with ctx.elect_one():
                tp.mma_arrive(held.mbar())
            held.release()
        life.release()

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        life = tp.EpilogueWarp.create(tmem, dealloc, published)
        second = outputs.copy()  # of each two accumulators, the one behind what `outputs` is at
        second.pipeline.consumer_step()
        for tile in ctx.range(0, tiles, 2):
            stage = outputs.acquire_for_epilogue()
            halves = tp.TmemFragments(stage.tmem.load_upper(N), stage.tmem.load_lower(N))
            tp.AccumBarrier(1).arrive(stage.pipeline, stage.index)
            outputs.release_from_epilogue()
            for half, part in enumerate((halves.upper, halves.lower)):
                assert part is not None
                ctx.store_global(out, (tile * M + 64 * half, 0), part)
            held = second.acquire_epilogue_linear()
            raw = tp.OutputStage.from_raw(outputs.pipeline, held.index(), held.tmem_offset())
            part = raw.tmem.tensor((M, N)).load()
            assert held.tmem().tensor((M, N)).shape == raw.tmem.tensor((M, N)).shape
            held.release()
            outputs.pipeline.consumer_step()
            second.pipeline.consumer_step()
            ctx.store_global(out, ((tile + 1) * M, 0), part)
        life.release()


@tp.kernel()
def viewed_outputs(ctx: tp.Context, a: Any, b: Any, out: Any) -> None:
    """Tiles of A · Bᵀ by way of the views of the two sides."""
    inputs = tp.InputTilePipeline.allocate(ctx, TILES, num_group_stages=2)
    outputs = tp.OutputTilePipeline.allocate(ctx, CONFIG)
    tiles = out.shape[0] // M

    ctx.role("load", warps=1)(lambda: load_all(ctx, inputs, a, b, tiles))

    @ctx.role("mma", warps=1)
    def mma() -> None:
        with outputs.mma_warp():
            for _ in ctx.range(tiles):
                with outputs.producer() as stage:
                    multiply(ctx, inputs, stage.tmem.tensor((M, N)))

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        with outputs.epilogue_warp():
            for tile in ctx.range(tiles):
                with outputs.consumer() as stage:
                    part = stage.tmem.tensor((M, N)).load()
                ctx.store_global(out, (tile * M, 0), part)


@tp.kernel()
def per_k_outputs(ctx: tp.Context, a: Any, b: Any, out: Any) -> None:
    """Tiles of A · Bᵀ whose steps of K are added up in registers."""
    inputs = tp.InputTilePipeline.allocate(ctx, TILES, num_group_stages=2)
    outputs = tp.OutputTilePipeline.allocate(ctx, CONFIG)
    tiles = out.shape[0] // M

    ctx.role("load", warps=1)(lambda: load_all(ctx, inputs, a, b, tiles))

    @ctx.role("mma", warps=1)
    def mma() -> None:
        with outputs.mma_warp():
            for _ in ctx.range(tiles * STEPS):
                with (
                    outputs.per_k().produce() as step,
                    inputs.consumer().acquire() as stage,
                    ctx.elect_one(),
                ):
                    a_tile, b_tile = stage.tile()
                    ctx.mma(step.tmem.tensor((M, N)), a_tile, b_tile, accumulate=False)
                    ctx.mma_commit(stage.mbar())

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        total = ctx.fragment(shape=(M, N), layout="tmem")
        with outputs.epilogue_warp():
            for tile in ctx.range(tiles):
                total.fill(0)
                for _ in ctx.range(STEPS):
                    with outputs.per_k().consume() as step:
                        part = step.tmem.tensor((M, N)).load()
                        ctx.tmem_wait_load()
                        total.set(total + part)
                ctx.store_global(out, (tile * M, 0), total)


@tp.kernel()
def scaled_outputs(ctx: tp.Context, a: Any, b: Any, scales: Any, out: Any) -> None:
    """Tiles of A · Bᵀ whose steps of K have a scale for each row of A: blockwise fp8."""
    inputs = tp.InputTilePipeline.allocate(ctx, SCALED, num_group_stages=2)
    outputs = tp.OutputTilePipeline.allocate(ctx, CONFIG)
    tiles = out.shape[0] // M

    @ctx.role("load", warps=1)
    def load() -> None:
        for tile in ctx.range(tiles):
            for k in ctx.range(STEPS):
                with inputs.producer().acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    coordinates = (tile * M, k * 32), (0, k * 32), (k, tile * M)
                    for tensor, at, part in zip(
                        (a, b, scales), coordinates, stage.tile(), strict=True
                    ):
                        ctx.tma_load(tensor, at, part, stage.barrier())

    @ctx.role("mma", warps=1)
    def mma() -> None:
        with outputs.mma_warp():
            for _ in ctx.range(tiles * STEPS):
                step = outputs.per_k().acquire_k_stage_linear()
                with inputs.consumer().acquire() as stage, ctx.elect_one():
                    a_tile, b_tile, _ = stage.tile()
                    ctx.mma(step.tmem().tensor((M, N)), a_tile, b_tile, accumulate=False)
                    ctx.mma_commit(stage.mbar())
                step.release()

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        accum = tp.BlockwiseFP8Accumulator(ctx, (M, N))
        with outputs.epilogue_warp():
            for tile in ctx.range(tiles):
                accum.clear()
                for _ in ctx.range(STEPS):
                    with outputs.per_k_epilogue(inputs) as step:
                        assert step.input_pipeline is inputs.pipeline
                        assert isinstance(step.output_stage, tp.OutputStage)
                        accum.promote(
                            step,
                            inputs.payload.get_tile(step.input_stage_index, k_group_size=1)[2],
                            0.5,
                        )
                ctx.store_global(out, (tile * M, 0), accum.total)


@tp.kernel(grid=2, cluster=2)
def paired_outputs(ctx: tp.Context, a: Any, b: Any, out: Any) -> None:
    """Tiles of A · Bᵀ by a pair of CTAs: each loads its rows of A and of B, and stores its rows of
    the product.
    """
    inputs = tp.InputTilePipeline.allocate(ctx, TILES, num_group_stages=2, producer_arrivals=1)
    outputs = tp.OutputTilePipeline.allocate(
        ctx, tp.OutputPipelineConfig(num_stages=2, stage_stride_cols=2 * N, cta_group=2)
    )
    tiles = out.shape[0] // (2 * M)

    @ctx.role("load", warps=1)
    def load() -> None:
        for tile in ctx.range(tiles):
            for k in ctx.range(STEPS):
                with inputs.producer().acquire() as stage, ctx.elect_one():
                    with ctx.when(tp.elect_one_cta(ctx)):
                        stage.expect_bytes(2 * inputs.stage_bytes)
                    a_tile, b_tile = stage.tile()
                    ctx.tma_load(
                        a, ((2 * tile + ctx.cta_rank) * M, k * K), a_tile, stage.barrier().on(0)
                    )
                    ctx.tma_load(b, (ctx.cta_rank * N, k * K), b_tile, stage.barrier().on(0))
        inputs.drain_producer()

    def tile_of_both(acc: tp.TmemTensor) -> None:
        for k in ctx.range(STEPS):
            with inputs.consumer().acquire() as stage, ctx.elect_one():
                a_tile, b_tile = stage.tile()
                ctx.mma(acc, a_tile, b_tile, accumulate=k > 0)
                tp.mma_arrive_multicast(stage.mbar(), outputs.mma_complete_mask)

    @ctx.role("mma", warps=1)
    def mma() -> None:
        with outputs.mma_warp(), ctx.when(tp.elect_one_cta(ctx)):
            for _ in ctx.range(tiles):
                with outputs.producer() as stage:
                    tile_of_both(stage.tmem.tensor((M, 2 * N)))

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        with outputs.epilogue_warp():
            for tile in ctx.range(tiles):
                with outputs.consumer() as stage:
                    part = stage.tmem.tensor((M, 2 * N)).load()
                    ctx.tmem_wait_load()
                    ctx.tcgen05_fence_before()
                    tp.umma_arrive_leader_cta(stage.pipeline.consumer_mbar(stage.index))
                ctx.store_global(out, ((2 * tile + ctx.cta_rank) * M, 0), part)


def rows_of_halves() -> Array:
    """The rows of an accumulator in the order of its upper halves, then its lower ones."""
    rows = np.arange(M).reshape(4, 2, 16)
    return np.concatenate([rows[:, 0].reshape(-1), rows[:, 1].reshape(-1)])


def product(kernel: tp.KernelFunction, tiles: int = 6) -> Callable[[Rng], Made]:
    def make(rng: Rng) -> Made:
        a, b = (
            rng.integers(-3, 4, (rows, STEPS * K)).astype(tp.bfloat16.numpy)
            for rows in (tiles * M, N)
        )
        out = np.zeros((tiles * M, N), np.float32)
        want = a.astype(np.float32) @ b.astype(np.float32).T
        if kernel is flat_outputs:
            for tile in range(0, tiles, 2):
                want[tile * M : (tile + 1) * M] = want[tile * M + rows_of_halves()]
        return (
            kernel.bind(tp.tensor_map(a, box=(M, K)), tp.tensor_map(b, box=(N, K)), out),
            out,
            want,
            0,
        )

    return make


def paired_product(rng: Rng, tiles: int = 3) -> Made:
    a, b = (
        rng.integers(-3, 4, (rows, STEPS * K)).astype(tp.bfloat16.numpy)
        for rows in (tiles * 2 * M, 2 * N)
    )
    out = np.zeros((tiles * 2 * M, 2 * N), np.float32)
    maps = tp.tensor_map(a, box=(M, K)), tp.tensor_map(b, box=(N, K))
    return paired_outputs.bind(*maps, out), out, a.astype(np.float32) @ b.astype(np.float32).T, 0


def scaled_product(rng: Rng, tiles: int = 4) -> Made:
    a, b = (
        rng.integers(-3, 4, (rows, STEPS * 32)).astype(tp.float8_e4m3.numpy)
        for rows in (tiles * M, N)
    )
    scales = 2.0 ** rng.integers(-2, 3, (STEPS, tiles * M)).astype(np.float32)
    out, want = np.zeros((tiles * M, N), np.float32), np.zeros((tiles * M, N), np.float32)
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
    return scaled_outputs.bind(*maps, out), out, want, 0


CASES = [
    *(
        Case(kernel.name, product(kernel))
        for kernel in (flat_outputs, viewed_outputs, per_k_outputs)
    ),
    Case("scaled_outputs", scaled_product),
    Case("paired_outputs", paired_product),
]
