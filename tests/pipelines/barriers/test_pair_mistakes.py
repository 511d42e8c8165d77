"""Pairs of CTAs with parts that do not fit together: refused while the kernel is traced."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import refused
from tilepipe.kernels.gemm_blockwise.config import Sm100BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.sm100 import bind

BM, BN, BK = 128, 32, 64


def tiles(rows: int) -> tp.StandardTilePayload:
    return tp.StandardTilePayload(
        a_type="bfloat16", b_type="bfloat16", a_shape=(BM, BK), b_shape=(rows, BK)
    )


def maps() -> tuple[tp.TensorMap, tp.TensorMap]:
    a, b = np.zeros((2 * BM, BK), ml_dtypes.bfloat16), np.zeros((BN, BK), ml_dtypes.bfloat16)
    return tp.tensor_map(a, box=(BM, BK)), tp.tensor_map(b, box=(BN // 2, BK))


def pair(cluster: tuple[int, int]) -> tp.KernelFunction:
    @tp.kernel(grid=2, cluster=2)
    def k(ctx: tp.Context, a: Any, b: Any) -> None:
        inputs = tp.InputTilePipeline.allocate(
            ctx,
            tiles(BN // 2),
            num_group_stages=2,
            cta_group=2,
            producer_arrivals=1,
            consumer_arrivals=1,
        )
        outputs = tp.OutputTilePipeline.allocate(
            ctx, tp.OutputPipelineConfig(1, BN, cta_group=2), consumer_arrivals=256
        )
        work = tp.StaticScheduler(ctx, tiles=(2, 1), cluster=cluster)

        @ctx.role("mma", warps=1)
        def mma() -> None:
            with outputs.mma_warp():
                for _ in work:
                    with (
                        ctx.when(tp.elect_one_cta(ctx)),
                        outputs.producer() as output,
                        inputs.consumer().acquire() as stage,
                        ctx.elect_one(),
                    ):
                        ctx.mma(output.tmem.tensor((BM, BN)), *stage.tile(), accumulate=False)

    return k


def test_a_pair_across_columns() -> None:
    with refused(
        tp.TraceError,
        "the scheduler's cluster is 1×2 tiles",
        "neighbours along M",
        "first extent must be even",
    ):
        pair((1, 2)).bind(*maps())


@pytest.mark.parametrize("cluster", [1, 2])
def test_an_input_part_freed_twice(cluster: int) -> None:
    @tp.kernel(grid=cluster, cluster=cluster)
    def k(ctx: tp.Context) -> None:
        inputs = tp.InputTilePipeline.allocate(ctx, tiles(BN), num_group_stages=2)
        outputs = tp.OutputTilePipeline.allocate(ctx, tp.OutputPipelineConfig(1, BN))

        @ctx.role("epilogue", warpgroups=1)
        def epilogue() -> None:
            with outputs.epilogue_warp(), outputs.per_k_epilogue(inputs) as stage:
                stage.arrive_input()
                stage.arrive_input()

    with refused(tp.HandleError, "signalled twice"):
        k.bind()


def test_columns_from_a_place_that_may_be_odd() -> None:
    @tp.kernel()
    def k(ctx: tp.Context) -> None:
        tmem = tp.TmemAllocation(ctx, 64)

        @ctx.role("one", warpgroups=1)
        def one() -> None:
            tmem.from_shared()
            for i in ctx.range(4):
                tmem.tensor((128, 64)).cols(i * 16, 16)
                tmem.tensor((128, 64)).cols(i * 4, 16)

    with refused(tp.TraceError, "columns [i * 4, i * 4 + 16)", "`i * 8`"):
        k.bind()


def waits(**settings: Any) -> set[str]:
    """The waits for an accumulator in the printed blockwise kernel's epilogue."""
    k = 256
    a, scales = np.zeros((256, k), ml_dtypes.float8_e4m3fn), np.ones((2, 256), np.float32)
    b, c = np.zeros((128, k), ml_dtypes.float8_e4m3fn), np.zeros((256, 128), np.float32)
    text = bind(
        a, b, scales, np.ones((1, 2), np.float32), c, Sm100BlockwiseGemmConfig(**settings)
    ).source()
    return {
        line.split("(")[0].strip()
        for line in text.splitlines()
        if "(outputs_full(" in line and "wait" in line
    }


def test_what_a_peers_commit_says_is_acquired_from_the_cluster() -> None:
    """In a pair the epilogue of the odd CTA reads scales that only the even one has waited for."""
    assert waits() == {"wait"}
    assert waits(cta_group=2, cluster=2) == {"wait_cluster"}
