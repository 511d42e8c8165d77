"""The per-K views: one accumulator for each step of K, which the epilogue adds up; scales that
share the input stage.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, faults
from tests.support.accumulators import (
    M,
    Parts,
    gemm,
    in_epilogue,
    in_mma_warp,
    load,
    right,
    who_arrives,
)
from tests.support.block_scaled_kernels import promoted, scaled_gemm
from tests.support.ring_kernels import counts_of, laps
from tests.support.tracing import refused
from tilepipe.ir import ops
from tilepipe.ir.program import walk
from tilepipe.sim import Run

SEEDS = (0, 3)


def scaled(seeds: Any = SEEDS, **settings: Any) -> list[Run]:
    """Runs with each seed; every result must be exact."""
    runs = []
    for seed in seeds:
        program, out, want = scaled_gemm(**settings)
        runs.append(program.run(seed=seed))
        assert np.array_equal(out, want), f"seed {seed}: {np.abs(out - want).max()}"
    return runs


# -- produce and consume ---------------------------------------------------------------


def each_step(p: Parts, linear: bool = False) -> None:
    view = p.outputs.per_k()
    with p.inputs.consumer() as consumer:
        for _ in p.ctx.range(p.steps):
            if linear:
                held = view.acquire_k_stage_linear()
                with consumer.acquire() as tiles, p.ctx.elect_one():
                    p.ctx.mma(held.tmem().tensor((M, p.n)), *tiles.tile(), accumulate=False)
                    p.ctx.mma_commit(tiles.mbar(), mask=p.release_mask())
                held.release()
                continue
            with view.produce() as stage, consumer.acquire() as tiles, p.ctx.elect_one():
                p.ctx.mma(p.accumulator(stage), *tiles.tile(), accumulate=False)
                p.ctx.mma_commit(tiles.mbar(), mask=p.release_mask())


def added_up(p: Parts) -> None:
    total = p.ctx.fragment(shape=(M, p.n), layout="tmem")
    with p.outputs.epilogue_warp():
        for tile in p.ctx.range(p.tiles):
            total.fill(0)
            for _ in p.ctx.range(p.steps):
                with p.outputs.per_k().consume() as stage:
                    part = p.accumulator(stage).load()
                    p.ctx.tmem_wait_load()
                    total.set(total + part)
            p.ctx.store_global(p.out, (p.row(tile), 0), total)


@pytest.mark.slow
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("group", [1, 2])
def test_one_phase_a_step(group: int, stages: int, linear: bool) -> None:
    role = in_mma_warp(lambda p: each_step(p, linear))
    for run in right(mma=role, epilogue=added_up, group=group, stages=stages, tiles=3, steps=3):
        assert run.completions["outputs.full"] == [laps(9, stages)] * group
        assert run.completions["outputs.empty"] == [laps(9, stages), [0] * stages][:group]


def test_consume_frees_the_accumulator() -> None:
    """By every epilogue thread, once a step, on the leader of a pair."""
    program, out, want = gemm(
        mma=in_mma_warp(each_step), epilogue=added_up, group=2, tiles=2, steps=3
    )
    found = who_arrives(program)
    assert np.array_equal(out, want)
    assert {k: n for k, n in found.items() if k[0] == "outputs.empty"} == {
        ("outputs.empty", 0, "epilogue", cta): 6 * 128 for cta in (0, 1)
    }


@pytest.mark.parametrize(
    ("role", "words"),
    [
        (
            {"mma": in_mma_warp(lambda p: p.outputs.per_k().produce())},
            ("per-K producer stage of 'outputs'", "Enter it"),
        ),
        (
            {"epilogue": in_epilogue(lambda p, tile: p.outputs.per_k().consume())},
            ("per-K consumer stage of 'outputs'", "Enter it"),
        ),
        (
            {"epilogue": in_epilogue(lambda p, tile: p.outputs.per_k_epilogue(p.inputs))},
            ("per-K epilogue of 'outputs'", "Enter it"),
        ),
        (
            {"mma": in_mma_warp(lambda p: p.outputs.per_k().acquire_k_stage_linear())},
            ("producer stage of 'outputs'", "still held"),
        ),
    ],
)
def test_obtained_and_never_ended(role: Any, words: tuple[str, ...]) -> None:
    with refused(tp.HandleError, *words):
        gemm(**role)


def test_entered_twice() -> None:
    def twice(p: Parts) -> None:
        view = p.outputs.per_k().produce()
        for _ in range(2):
            with view:
                pass

    with refused(tp.HandleError, "per-K producer stage of 'outputs'", "released twice"):
        gemm(mma=in_mma_warp(twice))


# -- the epilogue's step with scales ---------------------------------------------------


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("n", [16, 32, 48, 128])
def test_promote_against_numpy(n: int, columns: bool) -> None:
    scaled([0, 5], n=n, columns=columns)


@pytest.mark.parametrize("columns", [False, True])
def test_promote_takes_an_expression(columns: bool) -> None:
    def twice(ctx: tp.Context, accum: Any, stage: Any, scales: Any, b_scale: Any) -> None:
        accum.promote(stage, scales, b_scale * 2)

    program, out, want = scaled_gemm(step=twice, columns=columns)
    program.run()
    assert np.array_equal(out, 2 * want)


def test_promote_takes_a_scale_for_each_column() -> None:
    def narrow(ctx: tp.Context, accum: Any, stage: Any, scales: Any, b_scale: Any) -> None:
        accum.promote(stage, scales, b_scale.cols(0, 8))

    with refused(tp.TraceError, "b_scale has shape (1, 8)", "(1, 16)"):
        scaled_gemm(step=narrow, columns=True, n=16)


@pytest.mark.parametrize(
    "settings",
    [{"steps": 1}, {"steps": 4, "tiles": 3}, {"stages": 1}, {"ring": 3, "stages": 4}, {"tiles": 1}],
    ids=str,
)
def test_rings_and_trip_counts(settings: dict[str, int]) -> None:
    scaled(**settings)


@pytest.mark.parametrize(("group", "cluster"), [(1, 1), (1, 2), (2, 2), (1, 4), (2, 4)])
def test_who_frees_an_input_stage(group: int, cluster: int) -> None:
    """The MMAs of every CTA that issues some, and of every CTA's epilogue four warps with a lane
    for each CTA of the cluster.
    """
    program, out, want = scaled_gemm(group=group, cluster=cluster)
    issuers = cluster // group
    assert counts_of(program)["inputs.empty"] == issuers + 4 * cluster
    found = who_arrives(program, seed=1)
    assert np.array_equal(out, want)
    steps = 6
    empty = {k: n for k, n in found.items() if k[0] == "inputs.empty"}
    mmas = {
        ("inputs.empty", to, "mma", group * i): steps
        for to in range(cluster)
        for i in range(issuers)
    }
    assert empty == mmas | {
        ("inputs.empty", to, "epilogue", cta): 4 * steps
        for to in range(cluster)
        for cta in range(cluster)
    }
    scaled(group=group, cluster=cluster)


@pytest.mark.slow
def test_the_input_stage_is_freed_by_hand_or_when_the_step_is_left() -> None:
    def silent(ctx: tp.Context, accum: Any, stage: Any, scales: Any, b_scale: Any) -> None:
        """As `promote`, which frees the input stage early; here leaving the step does."""
        a = ctx.fragment(shape=(M, 1), layout="tmem")
        a.load(scales)
        part = stage.tmem.tensor((M, 32)).load()
        ctx.tmem_wait_load()
        accum.total.set(accum.total + part * (a * b_scale))

    def in_a_branch(ctx: tp.Context, accum: Any, stage: Any, scales: Any, b_scale: Any) -> None:
        """The arrival ends the body: leaving the step must see it."""
        silent(ctx, accum, stage, scales, b_scale)
        ctx.syncwarp()
        with ctx.when(ctx.lane == 3):
            stage.input_pipeline.consumer_mbar(stage.input_stage_index).arrive()

    for step in (promoted, silent, in_a_branch):
        program, _, _ = scaled_gemm(step)
        assert counts_of(program)["inputs.empty"] == 1 + 4
        scaled(step=step)


def exits(program: tp.Program) -> list[str]:
    """Arrivals and steps of the epilogue, in program order."""
    epilogue = program.kernel.roles[2]
    found = []
    for op in walk(epilogue.body):
        if isinstance(op, ops.MbarArrive):
            found.append(f"arrive {op.bar.array.name}")
        elif isinstance(op, ops.CursorStep):
            found.append(f"step {op.cursor.name}")
    return found


def test_the_order_of_leaving_a_step() -> None:
    """The input arrives (early, or at the end) and steps; then the accumulator is freed; then the
    output steps.
    """
    names = [x.split("_")[0] for x in exits(scaled_gemm()[0])]
    assert names[:4] == [
        "arrive inputs.empty",
        "step inputs",
        "arrive outputs.empty",
        "step outputs",
    ]


def test_the_warp_is_together_around_its_arrival() -> None:
    """Before: all lanes have read the scales; behind: none goes on to wait for a stage that another
    lane has not yet freed.
    """
    body = list(walk(scaled_gemm()[0].kernel.roles[2].body))
    at_input = [
        i
        for i, op in enumerate(body)
        if isinstance(op, ops.MbarArrive) and op.bar.array.name == "inputs.empty"
    ]
    assert len(at_input) == 1
    around = [type(op) for op in body[at_input[0] - 2 : at_input[0] + 2]]
    assert around == [ops.SyncWarp, ops.If, ops.MbarArrive, ops.SyncWarp]


def test_two_arrivals_of_one_step() -> None:
    def twice(ctx: tp.Context, accum: Any, stage: Any, scales: Any, b_scale: Any) -> None:
        stage.arrive_input()
        accum.promote(stage, scales, b_scale)

    with refused(tp.HandleError, "the consumer stage of 'inputs'", "signalled twice"):
        scaled_gemm(twice)


@pytest.mark.slow
def test_scales_read_after_they_are_given_back() -> None:
    def late(ctx: tp.Context, accum: Any, stage: Any, scales: Any, b_scale: Any) -> None:
        stage.arrive_input()
        a = ctx.fragment(shape=(M, 1), layout="tmem")
        a.load(scales)  # <late scales>
        part = stage.tmem.tensor((M, 32)).load()
        ctx.tmem_wait_load()
        accum.total.set(accum.total + part * (a * b_scale))

    words = (
        "race on inputs_",
        "role 'epilogue' reads",
        "role 'load' writes",
        at(__file__, "late scales"),
    )
    faults(scaled_gemm(late, steps=4, tiles=3)[0], tp.RaceError, *words)


@pytest.mark.parametrize("use", ["tmem", "tile", "index", "arrive_input"])
def test_a_step_dies_with_its_context(use: str) -> None:
    def after(p: Parts, tile: Any) -> None:
        with p.outputs.per_k_epilogue(p.inputs) as step:
            assert step.output_stage.pipeline is p.outputs.pipeline
        got = getattr(step, use)
        if callable(got):
            got = got()
        p.ctx.load(got[0][0, 0])

    with refused(tp.HandleError, "the consumer stage of '", "after its release"):
        gemm(epilogue=in_epilogue(after))


def test_one_tile_of_k_a_step() -> None:
    @tp.kernel()
    def k(ctx: tp.Context) -> None:
        payload = tp.StandardTilePayload(
            a_type="bfloat16", b_type="bfloat16", a_shape=(M, 16), b_shape=(16, 16)
        )
        inputs = tp.InputTilePipeline.allocate(
            ctx, payload, num_group_stages=2, k_group_size=2, name="groups"
        )
        outputs = tp.OutputTilePipeline.allocate(ctx, tp.OutputPipelineConfig(2, 16))

        @ctx.role("epilogue", warpgroups=1)
        def epilogue() -> None:
            with outputs.per_k_epilogue(inputs):
                pass

    words = (
        "one tile of K a step",
        "'groups' has k_group_size=2",
        "the scales of the others would never be read",
    )
    with refused(tp.TraceError, *words):
        k.bind()


def test_the_barriers_alone_know_no_tiles() -> None:
    def raw(p: Parts, tile: Any) -> None:
        with p.outputs.per_k_epilogue(p.inputs.pipeline) as step:
            step.tile()

    words = (
        "given the barriers 'inputs' alone, which have no tiles",
        "inputs.payload.get_tile(step.input_stage_index, k_group_size=1)",
    )
    with refused(tp.TraceError, *words):
        gemm(epilogue=in_epilogue(raw), load=load)


def test_what_it_does_not_take() -> None:
    def wrong(p: Parts, tile: Any) -> None:
        with p.outputs.per_k_epilogue(p.outputs):  # type: ignore[arg-type]
            pass

    with refused(
        tp.TraceError,
        "per_k_epilogue takes the InputTilePipeline whose stages hold the scales, or its "
        "ProducerConsumer",
    ):
        gemm(epilogue=in_epilogue(wrong), load=load)


# -- orders of acquiring ---------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ring", [1, 2])
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("order", [{}, {"input_first": True}, {"hand_over": False}], ids=str)
def test_either_order_of_the_two_acquires(order: dict[str, bool], stages: int, ring: int) -> None:
    """Neither holds what the other side needs: the epilogue frees its accumulator without waiting
    for another input stage.
    """
    scaled([0, 3], stages=stages, ring=ring, **order)


@pytest.mark.slow
def test_crossed_orders() -> None:
    """The epilogue gives a step's scales back when it holds the next step's accumulator: with one
    input stage that never comes.
    """

    def crossed(p: Parts) -> None:
        pipe, feed, ctx = p.outputs.pipeline, p.inputs.pipeline, p.ctx
        with p.outputs.epilogue_warp():
            pipe.wait_producer()
            for step in ctx.range(p.tiles * p.steps):
                held, freed = (
                    ctx.let(pipe.consumer_stage(), "held"),
                    ctx.let(feed.consumer_stage(), "freed"),
                )
                pipe.consumer_step()
                feed.consumer_step()
                with ctx.when(step + 1 < p.tiles * p.steps):
                    pipe.wait_producer()  # <next step>
                with ctx.elect_one("warpgroup"):
                    feed.consumer_mbar(freed).arrive()
                ctx.tcgen05_fence_after()
                part = tp.TmemStage(p.outputs.tmem, held, p.n).tensor((M, p.n)).load()
                tp.AccumBarrier(1).arrive(pipe, held)
                ctx.store_global(p.out, (p.row(step), 0), part)

    def typed(ctx: tp.Context, config: tp.OutputPipelineConfig) -> tp.OutputTilePipeline:
        return tp.OutputTilePipeline.allocate(
            ctx, config, producer_arrivals=1, consumer_arrivals=128
        )

    settings: dict[str, Any] = {
        "mma": in_mma_warp(each_step),
        "epilogue": crossed,
        "outputs": typed,
        "consumer_arrivals": 2,
        "steps": 1,
    }
    right(ring=2, **settings)
    words = (
        "role 'load'",
        "inputs.empty",
        "1 of 2 arrivals",
        "role 'mma'",
        "inputs.full",
        "role 'epilogue'",
        at(__file__, "next step"),
        "outputs.full",
    )
    faults(gemm(ring=1, **settings)[0], tp.DeadlockError, *words)
