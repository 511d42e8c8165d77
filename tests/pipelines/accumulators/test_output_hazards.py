"""What goes wrong between MMA warps and epilogues: each mistake planted, and rejected with a
message that helps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, faults, refuses
from tests.support.accumulators import (
    K,
    M,
    Parts,
    epilogue,
    gemm,
    in_epilogue,
    in_mma_warp,
    load,
    mma,
    right,
)


def where(mark: str) -> str:
    return at(__file__, mark)


def broken(
    kind: type[tp.TilepipeError],
    *words: str,
    seeds: Any = (0, 1, 2, 3),
    rules: str = "practice",
    **settings: Any,
) -> None:
    """Every seed ends in that fault."""
    faults(gemm(**settings)[0], kind, *words, seeds=seeds, rules=rules)


# -- the epilogue frees an accumulator too early, or without the fences ----------------


def free(p: Parts, tile: Any, *, wait: bool = True, before: bool = True) -> None:
    with p.outputs.consumer() as stage:
        part = p.accumulator(stage).load()  # <load>
        if wait:
            p.ctx.tmem_wait_load()
        if before:
            p.ctx.tcgen05_fence_before()
        stage.pipeline.consumer_mbar(stage.index).arrive()
    p.ctx.tmem_wait_load()
    p.ctx.store_global(p.out, (p.row(tile), 0), part)


def test_freed_by_hand() -> None:
    right(epilogue=in_epilogue(free))


@pytest.mark.slow
@pytest.mark.parametrize("before", [True, False])
def test_freed_before_its_loads_are_waited_for(before: bool) -> None:
    words = (
        "race on tensor memory",
        "role 'epilogue' reads",
        "role 'mma' writes",
        "ctx.tmem_wait_load()",
        where("load"),
    )
    broken(
        tp.RaceError,
        *words,
        epilogue=in_epilogue(lambda p, tile: free(p, tile, wait=False, before=before)),
    )


@pytest.mark.slow
def test_freed_without_a_fence() -> None:
    words = (
        "no tcgen05.fence::before_thread_sync",
        "role 'epilogue'",
        "ctx.tcgen05_fence_before()",
        where("load"),
    )
    broken(
        tp.RaceError,
        *words,
        rules="strict",
        epilogue=in_epilogue(lambda p, tile: free(p, tile, before=False)),
    )
    program = gemm(epilogue=in_epilogue(lambda p, tile: free(p, tile, before=False)))[0]
    assert any(all(word in line for word in words) for line in program.run().advice)


def test_registers_used_before_the_wait() -> None:
    def hasty(p: Parts, tile: Any) -> None:
        with p.outputs.consumer() as stage:
            part = p.accumulator(stage).load()
            p.ctx.store_global(p.out, (p.row(tile), 0), part)  # <used>

    broken(
        tp.RaceError,
        "'part' (made at",
        "a load from tensor memory",
        "in flight",
        "ctx.tmem_wait_load()",
        where("used"),
        epilogue=in_epilogue(hasty),
    )


def raw_fill(p: Parts, fence: bool) -> None:
    pipe = p.outputs.pipeline
    pipe.wait_consumer()
    if fence:
        p.ctx.tcgen05_fence_after()
    index = pipe.producer_stage()
    p.multiply(tp.TmemStage(p.outputs.tmem, index, p.n).tensor((M, p.n)))
    with p.ctx.elect_one():
        tp.mma_arrive(pipe.producer_mbar(index))
    pipe.producer_step()


def raw_take(p: Parts, tile: Any, fence: bool) -> None:
    pipe = p.outputs.pipeline
    pipe.wait_producer()
    if fence:
        p.ctx.tcgen05_fence_after()
    index = pipe.consumer_stage()
    part = tp.TmemStage(p.outputs.tmem, index, p.n).tensor((M, p.n)).load()  # <raw load>
    tp.AccumBarrier(1).arrive(pipe, index)
    pipe.consumer_step()
    p.ctx.store_global(p.out, (p.row(tile), 0), part)


def typed(ctx: tp.Context, config: tp.OutputPipelineConfig) -> tp.OutputTilePipeline:
    return tp.OutputTilePipeline.allocate(
        ctx, config, producer_arrivals=1, consumer_arrivals=128 * config.cta_group
    )


@pytest.mark.slow
@pytest.mark.parametrize("side", ["none", "mma", "epilogue"])
def test_a_wait_without_a_fence(side: str) -> None:
    settings: dict[str, Any] = {
        "outputs": typed,
        "mma": in_mma_warp(lambda p: raw_fill(p, side != "mma")),
        "epilogue": in_epilogue(lambda p, tile: raw_take(p, tile, side != "epilogue")),
    }
    if side == "none":
        right(**settings)
        return
    words = (
        "no tcgen05.fence::after_thread_sync",
        f"role '{side}' must execute ctx.tcgen05_fence_after() after the wait",
        where("raw load"),
    )
    broken(tp.RaceError, *words, rules="strict", **settings)


# -- MMAs and commits ------------------------------------------------------------------


def other_lane(p: Parts) -> None:
    with p.outputs.producer() as stage, p.inputs.consumer() as consumer:
        for k in p.ctx.range(p.steps):
            with consumer.acquire() as tiles:
                with p.ctx.elect_one():
                    p.ctx.mma(p.accumulator(stage), *tiles.tile(), accumulate=k > 0)
                with p.ctx.when(p.ctx.lane == 7):
                    p.ctx.mma_commit(tiles.mbar(), mask=p.release_mask())  # <other lane>


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 2])
def test_committed_by_another_lane(group: int) -> None:
    words = (
        "race on inputs_",
        "was issued by lane ",
        "committed by lane 7 of role 'mma'",
        where("other lane"),
        "ctx.elect_one()",
    )
    broken(tp.RaceError, *words, mma=in_mma_warp(other_lane), group=group, seeds=[0])
    broken(
        tp.RaceError,
        "race on inputs_",
        "role 'mma'",
        mma=in_mma_warp(other_lane),
        group=group,
        seeds=[0],
    )  # another seed may elect lane 7


def test_the_first_mma_adds() -> None:
    def adds(p: Parts) -> None:
        with p.outputs.producer() as stage, p.inputs.consumer() as consumer:
            for _ in p.ctx.range(p.steps):
                with consumer.acquire() as tiles, p.ctx.elect_one():
                    p.ctx.mma(p.accumulator(stage), *tiles.tile())  # <adds>
                    p.ctx.mma_commit(tiles.mbar())

    words = (
        "role 'mma' reads tensor memory",
        "4096 of 4096 elements were never written",
        "accumulate=False",
        where("adds"),
    )
    broken(tp.PoisonError, *words, mma=in_mma_warp(adds))


@pytest.mark.parametrize("group", [1, 2])
def test_a_release_commits_what_the_body_has_not(group: int) -> None:
    """Input stages too, in a pair for both CTAs."""

    def silent(p: Parts) -> None:
        with p.outputs.producer() as stage, p.inputs.consumer() as consumer:
            for k in p.ctx.range(p.steps):
                with consumer.acquire() as tiles, p.ctx.elect_one():
                    p.ctx.mma(p.accumulator(stage), *tiles.tile(), accumulate=k > 0)

    for run in right(mma=in_mma_warp(silent), group=group):
        assert run.completions["inputs.empty"] == [[4, 3, 3]] * group


# -- orders of acquiring ---------------------------------------------------------------


def one_ahead(p: Parts) -> None:
    """The MMA warp waits for the next accumulator before it announces the last one."""
    pipe, ctx = p.outputs.pipeline, p.ctx
    with p.outputs.mma_warp():
        pipe.wait_consumer()
        ctx.tcgen05_fence_after()
        for tile in ctx.range(p.tiles):
            held = ctx.let(pipe.producer_stage(), "held")
            p.multiply(tp.TmemStage(p.outputs.tmem, held, p.n).tensor((M, p.n)))
            pipe.producer_step()
            with ctx.when(tile + 1 < p.tiles):
                pipe.wait_consumer()  # <next accumulator>
            ctx.tcgen05_fence_after()
            with ctx.elect_one():
                tp.mma_arrive(pipe.producer_mbar(held))


@pytest.mark.slow
def test_two_accumulators_needed() -> None:
    right(mma=one_ahead, stages=2, outputs=typed)
    words: tuple[str, ...] = (
        "role 'mma'",
        where("next accumulator"),
        "outputs.empty",
        "128 of 128 arrivals",
        "role 'epilogue'",
        "outputs.full",
    )
    words = (
        *words,
        "role 'load'",
        "inputs.empty",
        "cycle: role 'mma' -> role 'epilogue' -> role 'mma'",
    )
    broken(tp.DeadlockError, *words, mma=one_ahead, stages=1, outputs=typed)


def crossed_take(p: Parts) -> None:
    """The epilogue waits for the next accumulator while it keeps the one before."""
    pipe, ctx = p.outputs.pipeline, p.ctx
    with p.outputs.epilogue_warp():
        pipe.wait_producer()
        for tile in ctx.range(p.tiles):
            held = ctx.let(pipe.consumer_stage(), "held")
            pipe.consumer_step()
            with ctx.when(tile + 1 < p.tiles):
                pipe.wait_producer()  # <next, before the last is freed>
            ctx.tcgen05_fence_after()
            part = tp.TmemStage(p.outputs.tmem, held, p.n).tensor((M, p.n)).load()
            tp.AccumBarrier(1).arrive(pipe, held)
            ctx.store_global(p.out, (p.row(tile), 0), part)


@pytest.mark.slow
def test_crossed_orders_of_the_two_sides() -> None:
    right(epilogue=crossed_take, stages=2, outputs=typed)
    words = (
        "role 'epilogue'",
        where("next, before the last is freed"),
        "outputs.full",
        "role 'mma'",
        "outputs.empty",
        "128 of 128 arrivals",
    )
    broken(tp.DeadlockError, *words, epilogue=crossed_take, stages=1, outputs=typed)


# -- prefetched weights ----------------------------------------------------------------


def prefetching(ahead: int) -> Any:
    """B of the first `ahead` stages is loaded before anything of A is."""

    def role(p: Parts) -> None:
        pipe, ctx = p.inputs.pipeline, p.ctx
        for k in range(ahead):
            pipe.wait_consumer()  # <ring is full>
            stage = pipe.producer_stage()
            with ctx.elect_one():
                pipe.producer_mbar(stage).expect_bytes(p.inputs.stage_bytes)
                ctx.tma_load(
                    p.b,
                    (0, k * K),
                    p.inputs.payload.get_tile(stage, 0, k_group_size=1)[1],
                    pipe.producer_mbar(stage),
                )
            pipe.producer_step()
        for k in range(ahead):
            with ctx.elect_one():
                ctx.tma_load(
                    p.a,
                    (0, k * K),
                    p.inputs.payload.get_tile(k % 3, 0, k_group_size=1)[0],
                    pipe.producer_mbar(k % 3),
                )
        pipe.drain_producer()

    return role


@pytest.mark.slow
def test_prefetching_more_stages_than_the_ring_has() -> None:
    settings: dict[str, Any] = {"tiles": 1, "producer_arrivals": 1, "ring": 3}
    right(load=prefetching(3), steps=3, **settings)
    words: tuple[str, ...] = (
        "role 'load'",
        where("ring is full"),
        "inputs.empty[0]",
        "role 'mma'",
        "inputs.full[0]",
    )
    words = (
        *words,
        "4,096 bytes (5,120 expected, 1,024 delivered)",
        "cycle: role 'load' -> role 'mma' -> role 'load'",
    )
    broken(tp.DeadlockError, *words, load=prefetching(4), steps=4, **settings)


def test_prefetched_stages_held_by_handles() -> None:
    def kept(p: Parts) -> None:
        [p.inputs.acquire_producer() for _ in range(4)]

    refuses(
        lambda: gemm(load=kept),
        tp.HandleError,
        "the producer stage of 'inputs'",
        "still held",
        "wait for the same stage",
    )


# -- set-up and the end ----------------------------------------------------------------


def uninitialised(ctx: tp.Context, config: tp.OutputPipelineConfig) -> tp.OutputTilePipeline:
    storage = tp.SMemArray(ctx, tp.SharedMemBarrier, 2 * config.num_stages, "outputs")
    made = tp.OutputTilePipeline(
        storage, tp.TmemAllocation(ctx, config.columns, cta_group=config.cta_group), config=config
    )
    made._lifetime = (
        tp.TmemDeallocBarrier(ctx, config.cta_group),
        ctx.named_barrier(160, "published"),
    )
    return made


def late(p: Parts) -> None:
    with p.ctx.elect_one():
        p.outputs.pipeline.init_mbars(1, 128 * p.group)
    p.ctx.syncwarp()
    mma(p)


@pytest.mark.slow
def test_barriers_initialised_by_a_role() -> None:
    """In a pair the other CTA may be told of an accumulator before its barriers exist; set-up code
    cannot do that.
    """
    words = (
        "signals outputs.full[0] of CTA 1 in a peer CTA before that CTA's initialisation",
        "Initialise in set-up code",
    )
    broken(tp.BarrierError, *words, mma=late, outputs=uninitialised, group=2, seeds=[0])
    broken(
        tp.BarrierError,
        "uses outputs.",
        "before it was initialised",
        "Initialise it in set-up code",
        outputs=uninitialised,
    )


def ending(role: Any, sync: bool = True) -> Any:
    """A role that ends with a barrier of the cluster."""

    def last(p: Parts) -> None:
        role(p)
        if sync:
            p.ctx.cluster_arrive()
            p.ctx.cluster_wait()  # <end of the cluster>

    return last


@pytest.mark.slow
@pytest.mark.parametrize("early", ["none", "load", "mma", "epilogue"])
def test_roles_that_return_do_not_hold_up_a_terminal_barrier(early: str) -> None:
    """barrier.cluster counts threads that have not exited (PTX ISA)."""
    roles = {"load": load, "mma": mma, "epilogue": epilogue}
    right([0, 3], group=2, **{name: ending(role, name != early) for name, role in roles.items()})


def test_a_terminal_barrier_before_the_epilogue_is_done() -> None:
    """The MMA warp meets the cluster while it still has to free tensor memory, which its epilogue
    waits for nowhere: but the load warp drains behind the barrier, and the MMAs that it waits for
    come behind it too.
    """

    def meets_first(p: Parts) -> None:
        p.ctx.cluster_arrive()
        p.ctx.cluster_wait()  # <too early>
        mma(p)

    words = (
        "role 'mma' of CTA 0",
        where("too early"),
        "cluster",
        "role 'load' of CTA",
        "inputs.empty[0]",
        "role 'epilogue' of CTA",
    )
    broken(
        tp.DeadlockError,
        *words,
        mma=meets_first,
        load=ending(load),
        epilogue=ending(epilogue),
        group=2,
    )


@pytest.mark.slow
def test_the_results_do_not_depend_on_the_number_of_accumulators() -> None:
    outs = []
    for stages in (1, 2, 4):
        program, out, _ = gemm(stages=stages, tiles=6)
        program.run(seed=stages)
        outs.append(out)
    assert all(np.array_equal(out, outs[0]) for out in outs)
