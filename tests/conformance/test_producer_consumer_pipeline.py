"""ProducerConsumerPipeline: the members that the tests of its traffic cannot tell from their absence."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lang.tracing import from_text

SIDES = {"producer": "full", "consumer": "empty"}  # the barriers that each side signals


@pytest.mark.parametrize("side", SIDES)
def test_cursors(side: str) -> None:
    """The stage is read as it is then: 0, and after each of six steps in a ring of three; the other side's stays at 0."""
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
    """`index()` and `mbar()` are those of the stage acquired: the second of three, whose barrier alone completes."""
    out = np.full(4, -1, np.int32)
    text = f"""
    pipe = tp.ProducerConsumerPipeline.allocate(ctx, 3, producer_arrivals=1, consumer_arrivals=1, name='pipe')
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
    assert run.completions[f"pipe.{SIDES[side]}"] == [[0, 1, 0]]
