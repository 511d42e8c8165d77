"""InputTilePipeline and ProducerTiles: the members that the tests of their traffic cannot tell from their absence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.lang.tracing import from_text, refused
from tests.pipelines.rings import PAYLOAD, counts_of, product, summary

SIDES = {"producer": "full", "consumer": "empty"}  # the barriers that each side signals
HEAD = """
inputs = tp.InputTilePipeline.allocate(ctx, PAYLOAD, num_group_stages=3, k_group_size=2, producer_arrivals={p}, consumer_arrivals={c})
@ctx.role('one', warps=1)
def one():
"""


def one_role(text: str, out: Any = None, p: int = 1, c: int = 1, **names: Any) -> tp.Program:
    """A kernel whose only role does `text` with `inputs`: three stages of two tiles."""
    body = "\n".join(f"    {line}" for line in text.strip().splitlines())
    k = from_text(HEAD.format(p=p, c=c) + body, PAYLOAD=PAYLOAD, **names)
    return k.bind(np.zeros(64, np.int32) if out is None else out)


@pytest.mark.parametrize("side", SIDES)
def test_cursors(side: str) -> None:
    """The stage is a group's, read as it is then; the other side's stays at 0."""
    other = "consumer" if side == "producer" else "producer"
    out = np.full(8, -1, np.int32)
    text = (
        f"for i in ctx.range(6):\n    with ctx.elect_one():\n        ctx.store(out[i], inputs.{side}_stage())\n"
        f"    inputs.pipeline.{side}_step()\nwith ctx.elect_one():\n    ctx.store(out[6], inputs.{other}_stage())"
    )
    one_role(text, out).run()
    assert out.tolist() == [0, 1, 2, 0, 1, 2, 0, -1]


@pytest.mark.parametrize("side", SIDES)
def test_barriers_of_a_stage(side: str) -> None:
    """The barrier of the stage asked for, on the side asked for, completes, and no other."""
    run = one_role(f"with ctx.elect_one():\n    inputs.{side}_mbar(2).arrive()").run()
    assert run.completions == {"inputs.full": [[0, 0, int(side == "producer")]], "inputs.empty": [[0, 0, int(side == "consumer")]]}


def test_a_copy_has_cursors_of_its_own() -> None:
    out = np.full(4, -1, np.int32)
    text = """
other = inputs.copy()
inputs.pipeline.consumer_step()
with ctx.elect_one():
    for i, pipe in enumerate((inputs, other)):
        ctx.store(out[i], pipe.consumer_stage())
        pipe.consumer_mbar(pipe.consumer_stage()).arrive()
"""
    run = one_role(text, out).run()
    assert out.tolist() == [1, 0, -1, -1]
    assert run.completions["inputs.empty"] == [[1, 1, 0]]


HANDLES = {  # how each is acquired, and the side it signals
    "InputProducerStage": ("inputs.acquire_producer()", "producer"),
    "ProducerTiles": ("inputs.producer().acquire()", "producer"),
    "InputConsumerStage": ("inputs.acquire_consumer()", "consumer"),
    "ConsumerTiles": ("inputs.consumer().acquire()", "consumer"),
}


@pytest.mark.parametrize("handle", HANDLES)
def test_members_of_a_stage(handle: str) -> None:
    """Stage, barrier, payload and pipeline of the second of three stages; its barrier alone completes; then the cursor has stepped."""
    acquire, side = HANDLES[handle]
    out, found = np.full(4, -1, np.int32), list[Any]()
    text = f"""
if {side == "consumer"}:
    with ctx.elect_one():
        inputs.producer_mbar(1).arrive()
inputs.pipeline.{side}_step()
stage = {acquire}
found.extend([type(stage), stage.payload() is inputs.payload, stage.pipeline_ptr is inputs, stage.PipelineType])
with ctx.elect_one():
    ctx.store(out[0], stage.stage())
    stage.{"barrier" if side == "producer" else "mbar"}().arrive()
stage.release()
with ctx.elect_one():
    ctx.store(out[1], inputs.{side}_stage())
"""
    run = one_role(text, out, found=found).run()
    assert found == [getattr(tp, handle), True, True, tp.InputTilePipeline]
    assert out.tolist() == [1, 2, -1, -1]
    assert run.completions[f"inputs.{SIDES[side]}"] == [[0, 1, 0]]


BY_CONSTRUCTOR = """
inputs.pipeline.producer_step()
inputs.pipeline.wait_consumer()
stage = inputs.producer_stage()
with tp.ProducerTiles(inputs, stage, {barrier}) as tiles:
    with ctx.elect_one():
        tiles.expect_bytes(48)
        tiles.barrier().complete_transaction(None, 48)
"""


def test_tiles_by_the_constructor_of_the_page() -> None:
    """Pipeline, stage, barrier: what `acquire` gives; the barrier is full[stage]."""
    for barrier in ("inputs.producer_mbar(stage)", "inputs.pipeline.full[stage]", "None"):
        run = one_role(BY_CONSTRUCTOR.format(barrier=barrier)).run()
        assert run.completions == {"inputs.full": [[0, 1, 0]], "inputs.empty": [[0, 0, 0]]}
    for barrier in ("inputs.consumer_mbar(stage)", "inputs.producer_mbar(0)", "inputs.pipeline.full", "7"):
        with refused(tp.TraceError, "the barrier of a producer stage is full[stage] of 'inputs'", "inputs.producer_mbar(stage)"):
            one_role(BY_CONSTRUCTOR.format(barrier=barrier))


@pytest.mark.parametrize("handle", ["InputProducerStage", "ProducerTiles"])
def test_expect_bytes_is_the_one_arrival(handle: str) -> None:
    """The phase needs the bytes, and no other arrival than this: it completes once they have come."""
    acquire, _ = HANDLES[handle]
    fill = "    stage.expect_bytes(48)\n    stage.barrier().complete_transaction(None, {})"
    text = f"stage = {acquire}\nwith ctx.elect_one():\n{fill}\nstage.release()"
    program = one_role(text.format(48))
    assert summary(program) == ["wait empty", "elect", "expect full 48", "step producer"]
    assert program.run().completions["inputs.full"] == [[1, 0, 0]]
    assert one_role(text.format(40)).run().completions["inputs.full"] == [[0, 0, 0]]
    with refused(tp.DeadlockError, "inputs.full[0]", "8 bytes (48 expected"):
        one_role(text.format(40) + "\ninputs.pipeline.wait_producer()").run()


def test_leaving_the_consumers_view_frees_the_last_stages() -> None:
    """With a lag of two, the last two of five stages are still held when the loop ends."""

    def multiply(ctx: tp.Context, inputs: Any, acc: Any, n: Any) -> None:
        with inputs.consumer(lag=2) as view:
            for _ in ctx.range(n):
                with view.acquire() as stage:
                    ctx.mma(acc, *stage.tile())

    program, out, want = product(multiply, n=5, stages=3)
    run = program.run(seed=1)
    assert counts_of(program) == {"inputs.full": 1, "inputs.empty": 1}
    assert run.completions["inputs.empty"] == [[2, 2, 1]]
    assert np.array_equal(out, want)


@pytest.mark.parametrize(
    ("entered", "signal"),
    [
        ("inputs.producer()", "pass"),
        ("inputs.producer().acquire()", "view.expect_bytes(0)"),
        ("inputs.consumer()", "pass"),
        ("inputs.consumer().acquire()", "view.mbar().arrive()"),
    ],
)
def test_entering_gives_the_thing_itself(entered: str, signal: str) -> None:
    found: list[bool] = []
    one_role(
        f"view = {entered}\nwith view as inside:\n    found.append(inside is view)\n    with ctx.elect_one():\n        {signal}",
        found=found,
    )
    assert found == [True]
