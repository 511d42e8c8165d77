"""What goes wrong in pairs of CTAs that share an MMA: each mistake planted, and rejected with a
message that helps.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilepipe as tp
from tests.scenarios.support import at, faults, refuses
from tests.support.accumulators import K, M, Parts, epilogue, gemm, in_mma_warp, right


def where(mark: str) -> str:
    return at(__file__, mark)


def broken(
    kind: type[tp.TilepipeError], *words: str, seeds: Any = (0, 1, 2, 3), **settings: Any
) -> None:
    """Every seed ends in that fault."""
    faults(gemm(**settings)[0], kind, *words, seeds=seeds)


def every_cta(p: Parts) -> None:
    with p.outputs.mma_warp():
        for _ in p.ctx.range(p.tiles):
            with p.outputs.producer() as stage:
                p.multiply(p.accumulator(stage))


def test_the_odd_cta_issues_mmas() -> None:
    words = (
        "mma: of a pair of CTAs (cta_group 2) the even one issues it for both",
        "tp.elect_one_cta(ctx)",
    )
    refuses(lambda: gemm(mma=every_cta, group=2), tp.TraceError, *words)
    right(mma=every_cta, group=1)


def forgetting(p: Parts) -> None:
    with p.outputs.producer() as stage, p.inputs.consumer() as consumer:
        for k in p.ctx.range(p.steps):
            with consumer.acquire() as tiles, p.ctx.elect_one():
                p.ctx.mma(p.accumulator(stage), *tiles.tile(), accumulate=k > 0)
                p.ctx.mma_commit(tiles.mbar())


def forgetting_outputs(p: Parts) -> None:
    stage = p.outputs.acquire_mma_linear()
    p.multiply(stage.tmem().tensor((M, p.n)))
    with p.ctx.elect_one():
        tp.mma_arrive(stage.mbar())
    stage.release()


@pytest.mark.parametrize(
    ("each", "stage"),
    [
        (forgetting, "consumer stage of 'inputs'"),
        (forgetting_outputs, "producer stage of 'outputs'"),
    ],
)
@pytest.mark.parametrize("counted", [False, True])
def test_a_commit_that_forgets_the_peer(each: Any, stage: str, counted: bool) -> None:
    words = (
        stage,
        "in CTA rank 0 of the cluster and not in rank 1",
        "arrivals by rank: [1, 0]",
        "mask=outputs.mma_complete_mask",
    )
    counts: dict[str, Any] = {"consumer_arrivals": 1} if counted else {}
    refuses(lambda: gemm(mma=in_mma_warp(each), group=2, **counts), tp.CountError, *words)


def test_a_mask_of_one_cta() -> None:
    """The mask that the pipeline is given leaves the odd CTA out."""

    def alone(ctx: tp.Context, config: tp.OutputPipelineConfig) -> tp.OutputTilePipeline:
        made = tp.OutputTilePipeline.allocate(ctx, config)
        made.mma_complete_mask = 1 << ctx.cta_rank
        return made

    def fill(p: Parts) -> None:
        with p.outputs.producer() as stage, p.inputs.consumer() as consumer:
            for k in p.ctx.range(p.steps):
                with consumer.acquire() as tiles, p.ctx.elect_one():
                    p.ctx.mma(p.accumulator(stage), *tiles.tile(), accumulate=k > 0)

    words = ("producer stage of 'outputs'", "not in rank 1", "whose roles would wait for ever")
    refuses(lambda: gemm(mma=in_mma_warp(fill), outputs=alone, group=2), tp.CountError, *words)


def arming(arm: Any, drain: bool = True, own: bool = False) -> Any:
    def role(p: Parts) -> None:
        with p.inputs.producer() as producer:
            for tile in p.ctx.range(p.tiles):
                for k in p.ctx.range(p.steps):
                    with producer.acquire() as stage, p.ctx.elect_one():
                        arm(p, stage)
                        if own:
                            a_tile, b_tile = stage.tile()
                            at_a, at_b = (p.row(tile), k * K), (p.ctx.cta_rank * (p.n // 2), k * K)
                            p.ctx.tma_load(p.a, at_a, a_tile, stage.mbar())  # <own barrier>
                            p.ctx.tma_load(p.b, at_b, b_tile, stage.mbar())
                        else:
                            p.copy(stage, tile, k)
            if drain:
                producer.drain()

    return role


def whole(p: Parts, stage: Any) -> None:
    stage.expect_bytes(p.inputs.stage_bytes)


@pytest.mark.slow
def test_drain_left_out() -> None:
    words = (
        (
            "CTA 1 (rank 1 in its cluster) exits while role 'mma' of CTA 0 can still arrive "
            "on inputs.empty["
        ),
        "producer.drain()",
    )
    broken(tp.ExitError, *words, load=arming(whole, drain=False), group=2)
    right(load=arming(whole, drain=False), group=1)


@pytest.mark.slow
def test_bytes_of_one_cta_of_a_pair() -> None:
    def half(p: Parts, stage: Any) -> None:
        stage.expect_bytes(p.inputs.payload.tile_bytes)

    words = (
        "inputs.full[0] of CTA 0",
        "4,608 bytes expected, 4,608 delivered",
        "while 4,608 bytes of its copies are still to come",
        "Raise the number given to expect_bytes",
    )
    broken(tp.BarrierError, *words, load=arming(half), group=2, seeds=[0])
    broken(tp.SimFault, "inputs", load=arming(half), group=2, seeds=range(8))


@pytest.mark.slow
def test_both_ctas_arm_their_own_barrier() -> None:
    """Nobody waits for the odd CTA's full barrier, and no bytes come to it."""

    def both(p: Parts, stage: Any) -> None:
        stage.mbar().expect_bytes(p.inputs.stage_bytes)  # <both arm>

    words = (
        "over-arrival on inputs.full[0] of CTA 1",
        "18,432 bytes expected, 0 delivered",
        where("both arm"),
    )
    broken(tp.BarrierError, *words, load=arming(both), group=2)


def test_copies_that_signal_their_own_cta_s_barrier() -> None:
    words = (
        "role 'mma' of CTA 0",
        "inputs.full[0] of CTA 0",
        "4,608 bytes (9,216 expected, 4,608 delivered)",
        where("own barrier"),
        "a copy is missing",
    )
    broken(tp.DeadlockError, *words, load=arming(whole, own=True), group=2)


@pytest.mark.slow
def test_the_odd_epilogue_returns_early() -> None:
    def even_only(p: Parts) -> None:
        with p.ctx.when(p.ctx.cta_rank == 0):
            epilogue(p)

    words = (
        "role 'mma' of CTA 0 frees columns 0..63",
        "nothing says that the alloc of",
        "CTA 1",
        "TmemDeallocBarrier",
    )
    broken(tp.SimFault, *words, epilogue=even_only, group=2)


@pytest.mark.slow
def test_the_even_cta_alone_allocates() -> None:
    def even_only(p: Parts) -> None:
        with p.ctx.when(p.ctx.cta_rank == 0), p.outputs.mma_warp():
            for _ in p.ctx.range(p.tiles):
                with p.outputs.producer() as stage:
                    p.multiply(p.accumulator(stage))

    words = (
        "role 'mma' of CTA 0",
        "outputs_tmem_published",
        "32 of 160 threads",
        "role 'mma' of CTA 1 has returned",
    )
    broken(tp.DeadlockError, *words, mma=even_only, group=2)
