"""A release signals what the body has not: committed by hand, arrived by hand, neither, on some
paths only, twice, in a loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.ring_kernels import Side, counts_of, laps, multiply_all, product, summary
from tests.support.tracing import refused


def stages(body: Any, lag: int = 0) -> Side:
    """A consumer that does `body(ctx, stage, acc)` with each stage."""

    def consumer(ctx: tp.Context, inputs: Any, acc: Any, n: Any) -> None:
        with inputs.consumer(lag=lag) as view:
            for _ in ctx.range(n):
                with view.acquire() as stage:
                    body(ctx, stage, acc)

    return consumer


def multiply(ctx: tp.Context, stage: Any, acc: Any) -> None:
    ctx.mma(acc, *stage.tile())


def multiply_and_commit(ctx: tp.Context, stage: Any, acc: Any) -> None:
    ctx.mma(acc, *stage.tile())
    ctx.mma_commit(stage.mbar())


def multiply_wait_arrive(ctx: tp.Context, stage: Any, acc: Any) -> None:
    ctx.mma(acc, *stage.tile())
    ctx.wgmma_commit()
    ctx.wgmma_wait(0)
    with ctx.elect_one("warpgroup"):
        stage.mbar().arrive()


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("body", [multiply, multiply_and_commit])
def test_mmas_committed_by_hand_or_by_the_release_are_the_same(body: Any, lag: int) -> None:
    program, out, want = product(stages(body, lag), n=5, stages=3)
    assert counts_of(program) == {"inputs.full": 1, "inputs.empty": 1}
    assert summary(program, 1).count("commit") == 1
    run = program.run(seed=2)
    assert np.array_equal(out, want)
    assert run.completions["inputs.empty"] == [laps(5, 3)]


def test_arrived_by_hand_after_a_wait() -> None:
    program, out, want = product(stages(multiply_wait_arrive), n=5)
    assert counts_of(program)["inputs.empty"] == 1
    assert summary(program, 1).count("arrive empty") == 1
    program.run(seed=1)
    assert np.array_equal(out, want)


def test_neither_and_no_mma_arrives_by_every_thread() -> None:
    program, _, _ = product(stages(lambda ctx, stage, acc: None), n=5)
    assert counts_of(program)["inputs.empty"] == 128
    assert program.run(seed=1).completions["inputs.empty"] == [laps(5, 3)]


def test_release_without_signal_never_signals() -> None:
    def consumer(ctx: tp.Context, inputs: Any, acc: Any, n: Any) -> None:
        for _ in ctx.range(n):
            inputs.acquire_consumer().release_without_signal()

    program, _, _ = product(consumer, n=2, consumer_arrivals=1)
    assert "arrive empty" not in summary(program, 1)
    with refused(
        tp.DeadlockError, "role 'load'", "inputs.empty[0]", "nothing in the kernel arrives on it"
    ):
        program.run()


def on_some_paths(ctx: tp.Context, stage: Any, acc: Any) -> None:
    with ctx.when(ctx.block_id == 0), ctx.elect_one():
        stage.mbar().arrive()


def on_both_paths(ctx: tp.Context, stage: Any, acc: Any) -> None:
    with ctx.when(ctx.block_id == 0), ctx.elect_one():
        stage.mbar().arrive()
    with ctx.otherwise(), ctx.elect_one():
        stage.mbar().arrive()


def differently(ctx: tp.Context, stage: Any, acc: Any) -> None:
    with ctx.when(ctx.block_id == 0), ctx.elect_one():
        stage.mbar().arrive()
    with ctx.otherwise():
        stage.mbar().arrive()


def in_a_loop(ctx: tp.Context, stage: Any, acc: Any) -> None:
    for _ in ctx.range(ctx.num_clusters):
        with ctx.elect_one():
            stage.mbar().arrive()


def committed_twice(ctx: tp.Context, stage: Any, acc: Any) -> None:
    multiply_and_commit(ctx, stage, acc)
    ctx.mma_commit(stage.mbar())


def arrived_twice(ctx: tp.Context, stage: Any, acc: Any) -> None:
    stage.mbar().arrive()
    with ctx.elect_one():
        stage.mbar().arrive()


def committed_in_a_branch(ctx: tp.Context, stage: Any, acc: Any) -> None:
    with ctx.when(ctx.block_id == 0):
        multiply_and_commit(ctx, stage, acc)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            on_some_paths,
            ("signalled on some paths only", "every path", "ctx.when(ctx.block_id == 0)"),
        ),
        (differently, ("signalled on some paths only", "differently")),
        (in_a_loop, ("signalled inside a loop", "once an iteration, not once a stage")),
        (
            committed_twice,
            ("committed twice", "complete twice", "first at test_input_stages.py:"),
        ),
        (
            committed_in_a_branch,
            ("committed in a nested branch block", "Commit in the block that acquired it"),
        ),
        (arrived_twice, ("signalled twice", "it already arrives at test_input_stages.py:")),
    ],
)
@pytest.mark.parametrize("lag", [0, 1])
def test_signals_that_do_not_add_up(body: Any, words: tuple[str, ...], lag: int) -> None:
    with refused(
        tp.HandleError,
        "the consumer stage of 'inputs' acquired at test_input_stages.py:",
        *words,
    ):
        product(stages(body, lag))


@pytest.mark.parametrize("typed", [None, 4])
def test_signalled_on_both_paths(typed: int | None) -> None:
    program, _, _ = product(stages(on_both_paths), n=4, consumer_arrivals=typed)
    assert counts_of(program)["inputs.empty"] == 4  # one lane of each warp
    assert program.run().completions["inputs.empty"] == [laps(4, 3)]


def test_a_loop_of_known_length_counts() -> None:
    def body(ctx: tp.Context, stage: Any, acc: Any) -> None:
        for _ in ctx.range(3):
            with ctx.elect_one("role"):
                stage.mbar().arrive()

    program, _, _ = product(stages(body), n=4)
    assert counts_of(program)["inputs.empty"] == 3
    assert program.run().completions["inputs.empty"] == [laps(4, 3)]


def test_arrived_and_committed_adds_up() -> None:
    """A slot that both the MMA and an ordinary reader must leave."""

    def body(ctx: tp.Context, stage: Any, acc: Any) -> None:
        multiply_and_commit(ctx, stage, acc)
        stage.mbar().arrive()

    program, out, want = product(stages(body, 1), n=5)
    assert counts_of(program)["inputs.empty"] == 129
    program.run(seed=3)
    assert np.array_equal(out, want)


def test_an_unannounced_producer_stage_is_refused() -> None:
    def load(ctx: tp.Context, inputs: Any, a: Any, b: Any, n: Any) -> None:
        for _ in ctx.range(n):
            with inputs.producer().acquire() as stage:
                stage.tile()

    with refused(
        tp.HandleError,
        "the producer stage of 'inputs'",
        "nothing has arrived on its full barrier",
        "forever",
        "expect_bytes(n)",
    ):
        product(multiply_all(), load)


def test_expect_bytes_twice_is_refused() -> None:
    def load(ctx: tp.Context, inputs: Any, a: Any, b: Any, n: Any) -> None:
        for _ in ctx.range(n):
            with inputs.producer().acquire() as stage, ctx.elect_one():
                stage.expect_bytes(0)
                stage.expect_bytes(0)

    with refused(
        tp.HandleError,
        "producer stage of 'inputs'",
        "signalled twice",
        "expects bytes at test_input_stages.py:",
    ):
        product(stages(multiply), load, producer_arrivals=1)


def test_a_commit_without_a_wait_in_its_block() -> None:
    def consumer(ctx: tp.Context, inputs: Any, acc: Any, n: Any) -> None:
        for _ in ctx.range(n):
            inputs.pipeline.wait_producer()
            ctx.mma(acc, *inputs.payload.get_tile(inputs.consumer_stage(), k_group_size=1))
            ctx.mma_commit(inputs.consumer_mbar(inputs.consumer_stage()))
            inputs.pipeline.consumer_step()

    with refused(
        tp.TraceError,
        "mma_commit binds inputs.empty[",
        "no ctx.wgmma_wait in the same block",
        "inputs.consumer(lag=n)",
    ):
        product(consumer, consumer_arrivals=1)
