"""inputs.consumer(lag=n): which groups are waited for, which stages are freed, and that every stage
is freed exactly once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.ring_kernels import counts_of, laps, load_all, multiply_all, product
from tests.support.tracing import of_kind, refused
from tilepipe.ir import ops


@pytest.mark.sampled(2)
@pytest.mark.parametrize("lag", [0, 1, 2, 3])
@pytest.mark.parametrize("n", range(7))
def test_every_stage_is_freed_once(lag: int, n: int) -> None:
    program, out, want = product(multiply_all(lag), n=n, stages=4)
    run = program.run(seed=n)
    assert np.array_equal(out, want)
    assert run.completions == {"inputs.full": [laps(n, 4)], "inputs.empty": [laps(n, 4)]}


@pytest.mark.parametrize("lag", [0, 1, 2])
@pytest.mark.parametrize("n", [0, 1, 3, 5])
@pytest.mark.parametrize("rounds", [2, 3])
def test_rounds_whose_length_is_no_multiple_of_the_ring(lag: int, n: int, rounds: int) -> None:
    """Leaving the view frees what is held; the cursors go on where they were."""
    program, out, want = product(multiply_all(lag), n=n, stages=3, rounds=rounds)
    run = program.run(seed=7)
    assert np.array_equal(out, want)
    assert run.completions == {
        "inputs.full": [laps(n * rounds, 3)],
        "inputs.empty": [laps(n * rounds, 3)],
    }


def test_a_drain_between_rounds_is_a_lap_that_nobody_fills() -> None:
    """Draining moves the producer on without filling: it is for behind the last stage only."""

    def draining(ctx: tp.Context, inputs: Any, a: Any, b: Any, n: Any) -> None:
        load_all(ctx, inputs, a, b, n)
        inputs.drain_producer()

    program, _, _ = product(multiply_all(), draining, n=3, stages=3, rounds=2)
    with refused(
        tp.DeadlockError, "role 'load'", "role 'mma'", "inputs.empty[0]", "inputs.full[0]", "cycle"
    ):
        program.run()


@pytest.mark.parametrize("lag", [0, 1, 2, 3])
def test_what_is_waited_for(lag: int) -> None:
    """All but `lag` groups in the loop, all of them when the view is left."""
    program, _, _ = product(multiply_all(lag), stages=4)
    assert [op.pending for op in of_kind(program, ops.WgmmaWait, 1)] == ([lag, 0] if lag else [0])


@pytest.mark.parametrize("warpgroups", [1, 2])
@pytest.mark.parametrize("lag", [1, 2])
def test_each_warpgroup_frees_its_own(warpgroups: int, lag: int) -> None:
    program, out, want = product(multiply_all(lag), n=6, stages=3, warpgroups=warpgroups)
    assert counts_of(program)["inputs.empty"] == warpgroups
    run = program.run(seed=3)
    assert np.array_equal(out, want)
    assert run.completions["inputs.empty"] == [laps(6, 3)]


def test_flush_frees_early_and_again_is_harmless() -> None:
    def consumer(ctx: tp.Context, inputs: Any, acc: Any, n: Any) -> None:
        with inputs.consumer(lag=1) as view:
            for _ in ctx.range(n):
                with view.acquire() as stage:
                    ctx.mma(acc, *stage.tile())
            view.flush()
            view.flush()

    program, out, want = product(consumer, n=5, stages=2)
    assert program.run(seed=2).completions["inputs.empty"] == [laps(5, 2)]
    assert np.array_equal(out, want)


def test_the_lag_must_leave_a_stage() -> None:
    with refused(tp.TraceError, "lag=2", "less than the 2 stages of 'inputs'"):
        product(multiply_all(2), stages=2)


def test_one_view_one_mask() -> None:
    def consumer(ctx: tp.Context, inputs: Any, acc: Any, n: Any) -> None:
        with inputs.consumer(lag=1) as view:
            for mask in (None, 1):
                with view.acquire() as stage:
                    ctx.mma(acc, *stage.tile())
                    ctx.mma_commit(stage.mbar(), mask=mask)

    with refused(tp.TraceError, "mask 1 here and None", "one view, one mask"):
        product(consumer)


@pytest.mark.slow
def test_freeing_before_the_mmas_have_read_is_a_race() -> None:
    """The lag done by hand and wrongly: the arrival before the wait."""

    def consumer(ctx: tp.Context, inputs: Any, acc: Any, n: Any) -> None:
        with inputs.consumer() as view:
            for _ in ctx.range(n):
                with view.acquire() as stage:
                    ctx.mma(acc, *stage.tile())
                    with ctx.elect_one("warpgroup"):
                        stage.mbar().arrive()
                    ctx.wgmma_commit()
                    ctx.wgmma_wait(0)

    program, _, _ = product(consumer, n=6, stages=2)
    with refused(
        tp.RaceError,
        "inputs_",
        "role 'mma' reads",
        "role 'load' writes",
        "until its group has been waited for",
    ):
        program.run()


def test_ping_pong_warpgroups_take_turns() -> None:
    """shared=False: warpgroup r takes the stages r, r + 2, ...; each frees what it took."""

    def consumer(ctx: tp.Context, inputs: Any, acc: Any, n: Any) -> None:
        with ctx.when(ctx.warpgroup_rank == 1):
            inputs.pipeline.consumer_step()
        with inputs.consumer(lag=1, shared=False) as view:
            for _ in ctx.range(n // 2):
                with view.acquire() as stage:
                    ctx.mma(acc, *stage.tile())
                inputs.pipeline.consumer_step()

    program, _, _ = product(consumer, n=6, stages=4, warpgroups=2)
    assert counts_of(program)["inputs.empty"] == 1
    assert program.run(seed=5).completions["inputs.empty"] == [laps(6, 4)]
