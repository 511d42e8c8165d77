"""A small kernel that uses every member of the block-scaled tiles and their tensor memory, with
what NumPy says of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Case, Made, Rng
from tilepipe.kernels.gemm_block_scaled.layout import to_blocked

M, N, K, BLOCK, STEPS = 128, 64, 128, 32, 3
PAYLOAD = tp.BlockScaledTilePayload(
    a_type="float8_e4m3",
    b_type="float8_e4m3",
    a_shape=(M, K),
    b_shape=(N, K),
    sfa_type="float8_e8m0",
    sfb_type="float8_e8m0",
    sfa_shape=(M, K // BLOCK),
    sfb_shape=(N, K // BLOCK),
)


@tp.kernel()
def block_scaled(ctx: tp.Context, a: Any, b: Any, sfa: Any, sfb: Any, out: Any) -> None:
    """One tile of C = (A · sfa) · (B · sfb)ᵀ."""
    inputs = tp.InputTilePipeline.allocate(ctx, PAYLOAD, num_group_stages=2)
    held: Any = inputs.payload
    assert (held.sfa_type, held.sfb_type, held.sfa_tiles.layout.blocks) == (
        "float8_e8m0",
        "float8_e8m0",
        held.sfa_shape[1],
    )
    assert isinstance(held.sfb_tiles, tp.SMemTileArrayWithLayout)
    assert held.sfb_tiles.layout.rows == held.sfb_shape[0]
    shape = tp.OutputPipelineConfig(1, N)
    tmem = tp.BlockScaledTmem(ctx, shape, PAYLOAD)
    outputs = tp.OutputTilePipeline.allocate(ctx, shape, tmem=tmem)

    @ctx.role("load", warps=1)
    def load() -> None:
        with inputs.producer() as producer:
            for step in ctx.range(STEPS):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    a_tile, b_tile, sfa_tile, sfb_tile = stage.tile()
                    ctx.tma_load(a, (0, step * K), a_tile, stage.barrier())
                    ctx.tma_load(b, (0, step * K), b_tile, stage.barrier())
                    ctx.tma_load(sfa, (0, 2 * step, 0), sfa_tile, stage.barrier())
                    ctx.tma_load(sfb, (0, 2 * step, 0), sfb_tile, stage.barrier())
            producer.drain()

    @ctx.role("mma", warps=1)
    def mma() -> None:
        with outputs.mma_warp(), inputs.consumer() as consumer, outputs.producer() as output:
            acc = output.tmem.tensor((M, N))
            for step in ctx.range(STEPS):
                with consumer.acquire() as stage, ctx.elect_one():
                    a_tile, b_tile, sfa_tile, sfb_tile = stage.tile()
                    ctx.tmem_copy(tmem.sfa(), sfa_tile)
                    ctx.tmem_copy(tmem.sfb(), sfb_tile)
                    tp.MmaOp(ctx).mma(
                        a_tile,
                        b_tile,
                        acc,
                        init_c=step == 0,
                        sfa=tmem.sfa(),
                        sfb=tmem.sfb().rows(0, N),
                    )
                    ctx.mma_commit(stage.mbar())

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        with outputs.epilogue_warp(), outputs.consumer() as output:
            x = output.tmem.tensor((M, N)).load()
            ctx.tmem_wait_load()
            ctx.store_global(out, (0, 0), x)


def made(rng: Rng) -> Made:
    """Small integers and scales that are powers of two: every sum is exact."""
    a, b = (rng.integers(-3, 4, (rows, STEPS * K)).astype(tp.float8_e4m3.numpy) for rows in (M, N))
    sfa, sfb = (
        np.exp2(rng.integers(-2, 3, (rows, STEPS * K // BLOCK))).astype(tp.float8_e8m0.numpy)
        for rows in (M, N)
    )
    left, right = (
        x.astype(np.float32) * s.astype(np.float32).repeat(BLOCK, 1)
        for x, s in ((a, sfa), (b, sfb))
    )
    scales = (
        tp.tensor_map(
            to_blocked(x).reshape(1, 2 * STEPS, 256), box=layout.box, swizzle=0, order="row"
        )
        for x, layout in (
            (sfa, tp.scale_factor_k_major(M, K // BLOCK)),
            (sfb, tp.scale_factor_k_major(N, K // BLOCK)),
        )
    )
    out = np.zeros((M, N), np.float32)
    return (
        block_scaled.bind(tp.tensor_map(a, box=(M, K)), tp.tensor_map(b, box=(N, K)), *scales, out),
        out,
        left @ right.T,
        0,
    )


CASES = [Case("block_scaled", made)]
