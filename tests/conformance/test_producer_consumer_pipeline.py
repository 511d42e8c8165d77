"""ProducerConsumerPipeline: the members that the tests of its traffic cannot tell from their
absence.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tests.support.tracing import from_text, refused

SIDES = {"producer": "full", "consumer": "empty"}  # the barriers that each side signals


@pytest.mark.parametrize("side", SIDES)
def test_cursors(side: str) -> None:
    """The stage is read as it is then: 0, and after each of six steps in a ring of three; the other
    side's stays at 0.
    """
    other = "consumer" if side == "producer" else "producer"
    out = np.full(8, -1, np.int32)
    text = f"""
    pipe = tp.ProducerConsumerPipeline.allocate(ctx, 3, producer_arrivals=1, consumer_arrivals=1)
    @ctx.role('one', warps=1)
    def one():
        for i in ctx.range(6):
            with ctx.elect_one():
                ctx.store(out[i], pipe.{side}_stage())
            pipe.{side}_step()
        with ctx.elect_one():
            ctx.store(out[6], pipe.{other}_stage())
    """
    from_text(text).bind(out).run()
    assert out.tolist() == [0, 1, 2, 0, 1, 2, 0, -1]


@pytest.mark.parametrize("side", SIDES)
def test_members_of_a_stage(side: str) -> None:
    """`index()` and `mbar()` are those of the stage acquired: the second of three, whose barrier
    alone completes.
    """
    out = np.full(4, -1, np.int32)
    text = f"""
    pipe = tp.ProducerConsumerPipeline.allocate(ctx, 3, producer_arrivals=1, consumer_arrivals=1,
        name='pipe')
    @ctx.role('one', warps=1)
    def one():
        if {side == "consumer"}:
            with ctx.elect_one():
                pipe.producer_mbar(1).arrive()
        pipe.{side}_step()
        stage = pipe.acquire_{side}()
        with ctx.elect_one():
            ctx.store(out[0], stage.index())
            stage.mbar().arrive()
        stage.release()
        with ctx.elect_one():
            ctx.store(out[1], pipe.{side}_stage())
    """
    run = from_text(text).bind(out).run()
    assert out.tolist() == [1, 2, -1, -1]
    filled = [[0, 1, 0]]
    assert run.completions == {
        "pipe.full": filled,
        "pipe.empty": filled if side == "consumer" else [[0, 0, 0]],
    }


@pytest.mark.parametrize("count", [0, 2**20])
@pytest.mark.parametrize("side", SIDES)
def test_counts_that_no_barrier_has(side: str, count: int) -> None:
    counts = (count, 1) if side == "producer" else (1, count)
    with refused(tp.TraceError, f"{side}_arrivals: an mbarrier's count is 1..1048575, got {count}"):
        from_text(f"tp.ProducerConsumerPipeline.allocate(ctx, 3).init_mbars(*{counts})").bind(
            np.zeros(4, np.int32)
        )


def test_the_largest_and_the_smallest_count() -> None:
    ring = (
        "tp.ProducerConsumerPipeline.allocate(ctx, 1, producer_arrivals=1, "
        f"consumer_arrivals={2**20 - 1})"
    )
    text = f"{ring}\nctx.role('one', warps=1)(lambda: None)"
    assert [a.count for a in from_text(text).bind(np.zeros(4, np.int32)).kernel.barriers] == [
        1,
        2**20 - 1,
    ]


@pytest.mark.parametrize("stages", [0, -1, 2.0])
def test_numbers_of_stages_that_no_ring_has(stages: object) -> None:
    text = (
        f"tp.ProducerConsumerPipeline(tp.SMemArray(ctx, tp.SharedMemBarrier, 2, 'bars'), {stages})"
    )
    with refused(tp.TraceError, f"a pipeline has at least one stage, got {stages}"):
        from_text(text).bind(np.zeros(4, np.int32))


def test_a_ring_of_one_stage_takes_two_barriers() -> None:
    for text in (
        "tp.SMemArray(ctx, tp.SharedMemBarrier, 2, 'bars')",
        "tp.SMemArray(ctx, tp.SharedMemBarrier, 2, 'bars'), 1",
    ):
        program = from_text(
            f"tp.ProducerConsumerPipeline({text}).init_mbars(1, 1)\nctx.role('one',"
            " warps=1)(lambda: None)"
        )
        assert [a.size for a in program.bind(np.zeros(4, np.int32)).kernel.barriers] == [1, 1]
