"""ProducerAhead: operands of the next stages that are loaded before the others."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tilepipe.check.mutation.judging import judge, outputs
from tilepipe.check.mutation.mutants import mutants

STEPS = 7


@tp.kernel(grid=1)
def product(
    ctx: tp.Context, a: Any, b: Any, out: Any, *, stages: int, early: int, plant: str
) -> None:
    """out = A · Bᵀ; the first `early` tiles of B are loaded before the kernel before has ended."""
    operands = {"a": tp.TileOperand(a.dtype, a.box), "b": tp.TileOperand(b.dtype, b.box)}
    inputs = tp.InputTilePipeline.allocate(
        ctx, tp.OperandTilePayload(**operands), num_group_stages=stages
    )

    @ctx.role("load", warps=1)
    def load() -> None:
        ahead = tp.ProducerAhead(inputs)
        for step in ctx.range(early):
            with ahead.acquire() as stage, ctx.elect_one():
                if plant == "armed":
                    stage.expect_bytes(inputs.stage_bytes)
                if plant == "signalled":
                    stage.mbar().arrive()
                ctx.tma_load(b, (0, step * b.box[1]), stage.tile()[1], stage.barrier())
        ctx.grid_dependency_wait()
        with inputs.producer() as producer:
            for step in ctx.range(STEPS):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    a_tile, b_tile = stage.tile()
                    ctx.tma_load(a, (0, step * a.box[1]), a_tile, stage.barrier())
                    with ctx.when(step >= (0 if plant == "twice" else early)):
                        ctx.tma_load(b, (0, step * b.box[1]), b_tile, stage.barrier())
            producer.drain()

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        acc = ctx.accumulator((a.box[0], b.box[0]))
        with inputs.consumer(lag=1) as consumer:
            for step in ctx.range(STEPS):
                with consumer.acquire() as stage:
                    ctx.mma(acc, *stage.tile(), accumulate=step > 0)
        ctx.store_global(out, (0, 0), acc)


def made(stages: int = 3, early: int = 3, plant: str = "") -> tuple[tp.Program, Any, Any]:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (rows, STEPS * 32)).astype(ml_dtypes.bfloat16) for rows in (64, 16))
    out = np.zeros((64, 16), np.float32)
    maps = [tp.tensor_map(x, box=(len(x), 32)) for x in (a, b)]
    program = product.bind(*maps, out, stages=stages, early=early, plant=plant)
    return program, out, a.astype(np.float32) @ b.astype(np.float32).T


@pytest.mark.slow
@pytest.mark.parametrize(("stages", "early"), [(2, 0), (2, 1), (2, 2), (3, 3), (5, 4)])
def test_some_operands_of_the_first_stages_come_before_the_wait(stages: int, early: int) -> None:
    program, out, want = made(stages, early)
    for seed in range(3):
        out[...] = np.nan
        program.run(seed=seed)
        assert (out == want).all()
    assert program.check().ok
    out[...] = np.nan
    program.ptx().run()
    assert (out == want).all()
    before, wait, after = str(program).partition("grid_dependency_wait")
    assert wait
    assert "tma_load tensor=a" not in before
    assert "tma_load tensor=b" in before
    assert "tma_load tensor=a" in after


def test_more_stages_ahead_than_the_ring_has_are_a_deadlock() -> None:
    verdict = made(stages=3, early=4)[0].check()
    assert verdict.verdict == "fault"
    assert "deadlock" in verdict.faults[0].message


def test_an_operand_that_is_loaded_twice_is_a_fault() -> None:
    (fault,) = made(plant="twice")[0].check().faults
    assert "more bytes arrive than were expected" in fault.message or "race" in fault.message


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (
            "armed",
            "is acquired ahead of the producer, and armed here. The producer arms it when it"
            " acquires it in turn",
        ),
        ("signalled", "is acquired ahead of the producer, and signalled: its phase could be over"),
    ],
)
def test_a_stage_ahead_is_not_announced(plant: str, words: str) -> None:
    with pytest.raises(tp.HandleError, match=words):
        made(plant=plant)


def test_a_stage_ahead_that_is_never_entered() -> None:
    @tp.kernel(grid=1)
    def forgotten(ctx: tp.Context, b: Any) -> None:
        payload = tp.OperandTilePayload(b=tp.TileOperand(b.dtype, b.box))
        inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=2)

        @ctx.role("load", warps=1)
        def load() -> None:
            tp.ProducerAhead(inputs).acquire()

    with pytest.raises(tp.HandleError, match=r"use it as `with ahead\.acquire\(\) as tiles:`"):
        forgotten.bind(tp.tensor_map(np.zeros((64, 64), np.float16), box=(64, 64)))


@pytest.mark.slow
def test_every_mistake_about_the_stages_is_caught_or_harmless() -> None:
    """A missing wait of the place ahead is none on the first lap: its stages are free."""
    program = made(stages=2, early=2)[0]
    launch = program.launch_args
    reference = outputs(launch)
    fates: dict[str, set[str]] = {}
    for mutant in mutants(launch.kernel):
        if "role 'load'" in mutant.what:
            fates.setdefault(mutant.operator, set()).add(judge(mutant, launch, reference).fate)
    assert "undecided" not in set.union(*fates.values())
    assert fates["drop expect"] == fates["expect bytes"] == {"fault"}
    assert "fault" in fates["drop wait"]
    assert fates["cursor first phase"] == {"fault"}


def planted(role: str, before: str = "", after: str = "") -> None:
    """A kernel whose load role, or whose consumer, runs ahead."""

    @tp.kernel(grid=1)
    def misused(ctx: tp.Context, b: Any) -> None:
        payload = tp.OperandTilePayload(b=tp.TileOperand(b.dtype, b.box))
        inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=2, name="ring")

        def ahead(when: str) -> None:
            if when == "twice":
                tp.ProducerAhead(inputs)
            if when == "waits":
                ctx.grid_dependency_wait()
            if when:
                loads = tp.ProducerAhead(inputs)
                with loads.acquire() as stage, ctx.elect_one("role"):
                    ctx.tma_load(b, (0, 0), stage.tile()[0], stage.barrier())

        if role == "set-up":
            ahead(before)

        @ctx.role("load", warps=1)
        def load() -> None:
            if role == "load":
                ahead(before)
            with inputs.producer() as producer, producer.acquire() as stage, ctx.elect_one():
                stage.expect_bytes(inputs.stage_bytes)
                if role != "load":
                    ctx.tma_load(b, (0, 0), stage.tile()[0], stage.barrier())

        @ctx.role("read", warpgroups=1)
        def read() -> None:
            if role == "read":
                ahead(before)
            with inputs.consumer() as consumer, consumer.acquire():
                pass

        @ctx.role("other", warps=1)
        def other() -> None:
            if role == "other":
                ahead(before)

    b = np.zeros((16, 32), ml_dtypes.bfloat16)
    misused.bind(tp.tensor_map(b, box=b.shape))


def test_the_load_role_runs_ahead() -> None:
    planted("load", "ahead")


@pytest.mark.parametrize(
    ("role", "when", "words"),
    [
        (
            "read",
            "ahead",
            r"role 'read' acquires stages of 'ring.*' ahead of its producer, but",
        ),
        ("other", "ahead", r"role 'other' acquires .* ProducerAhead belongs to the role that has"),
        ("load", "twice", r"has a ProducerAhead of 'ring.*', made at test_ahead.py:\d+: a second"),
        ("load", "waits", r"after ctx.grid_dependency_wait\(\) at test_ahead.py:\d+: the kernels"),
        ("set-up", "ahead", r"role"),
    ],
)
def test_who_runs_ahead_where_it_cannot_is_told_so(role: str, when: str, words: str) -> None:
    with pytest.raises(tp.TraceError, match=words) as caught:
        planted(role, when)
    assert "test_ahead.py:" in str(caught.value)
