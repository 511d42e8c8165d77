"""InputTilePipeline and ProducerTiles: the members that the tests of their traffic cannot tell from
their absence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.ring_kernels import PAYLOAD, counts_of, product, summary
from tests.support.tracing import from_text, refused
from tilepipe.ir import ops
from tilepipe.ir.program import walk

SIDES = {"producer": "full", "consumer": "empty"}  # the barriers that each side signals
HEAD = """
inputs = tp.InputTilePipeline.allocate(ctx, PAYLOAD, num_group_stages=3, k_group_size=2,
    producer_arrivals={p}, consumer_arrivals={c})
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
        "for i in ctx.range(6):\n    with ctx.elect_one():\n        ctx.store(out[i],"
        f" inputs.{side}_stage())\n"
        f"    inputs.pipeline.{side}_step()\nwith ctx.elect_one():\n    ctx.store(out[6],"
        f" inputs.{other}_stage())"
    )
    one_role(text, out).run()
    assert out.tolist() == [0, 1, 2, 0, 1, 2, 0, -1]


@pytest.mark.parametrize("side", SIDES)
def test_barriers_of_a_stage(side: str) -> None:
    """The barrier of the stage asked for, on the side asked for, completes, and no other."""
    run = one_role(f"with ctx.elect_one():\n    inputs.{side}_mbar(2).arrive()").run()
    assert run.completions == {
        "inputs.full": [[0, 0, int(side == "producer")]],
        "inputs.empty": [[0, 0, int(side == "consumer")]],
    }


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
    """Stage, barrier, payload and pipeline of the second of three stages; its barrier alone
    completes; then the cursor has stepped.
    """
    acquire, side = HANDLES[handle]
    out, found = np.full(4, -1, np.int32), list[Any]()
    text = f"""
if {side == "consumer"}:
    with ctx.elect_one():
        inputs.producer_mbar(1).arrive()
inputs.pipeline.{side}_step()
stage = {acquire}
found.extend([type(stage), stage.payload() is inputs.payload, stage.pipeline_ptr is inputs,
    stage.PipelineType])
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
    for barrier in (
        "inputs.consumer_mbar(stage)",
        "inputs.producer_mbar(0)",
        "inputs.pipeline.full",
        "7",
    ):
        with refused(
            tp.TraceError,
            "the barrier of a producer stage is full[stage] of 'inputs'",
            "inputs.producer_mbar(stage)",
        ):
            one_role(BY_CONSTRUCTOR.format(barrier=barrier))


@pytest.mark.parametrize("handle", ["InputProducerStage", "ProducerTiles"])
def test_expect_bytes_is_the_one_arrival(handle: str) -> None:
    """The phase needs the bytes, and no other arrival than this: it completes once they have
    come.
    """
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
        f"view = {entered}\n"
        "with view as inside:\n"
        "    found.append(inside is view)\n"
        "    with ctx.elect_one():\n"
        f"        {signal}",
        found=found,
    )
    assert found == [True]


@pytest.mark.parametrize(
    "how", ["acquire()", "acquire_stage()", "acquire_if_needed(view.try_acquire())"]
)
def test_every_way_to_acquire_has_the_lag(how: str) -> None:
    """With a lag of two the release waits for all groups but two, and the stages that are freed are
    counted right.
    """

    def multiply(ctx: tp.Context, inputs: Any, acc: Any, n: Any) -> None:
        with inputs.consumer(lag=2) as view:
            for _ in ctx.range(n):
                stage = eval(f"view.{how}", {"view": view})
                ctx.mma(acc, *stage.tile())
                stage.release()

    program, out, want = product(multiply, n=5, stages=3, producer_arrivals=1, consumer_arrivals=1)
    pending = [
        op.pending for op in walk(program.kernel.roles[1].body) if isinstance(op, ops.WgmmaWait)
    ]
    assert pending == [2, 0]
    assert program.run(seed=1).completions["inputs.empty"] == [[2, 2, 1]]
    assert np.array_equal(out, want)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(
    "how", ["acquire()", "acquire_stage()", "acquire_if_needed(view.try_acquire())"]
)
def test_every_way_to_acquire_counts_who_takes_a_stage(how: str, shared: bool) -> None:
    """Two warpgroups: both take every stage, two arrivals, or they take turns, one."""
    text = f"""
    inputs = tp.InputTilePipeline.allocate(ctx, PAYLOAD, num_group_stages=2, producer_arrivals=1)
    @ctx.role('mma', warpgroups=2)
    def mma():
        acc = ctx.accumulator((64, 8))
        acc.fill(0)
        view = inputs.consumer(shared={shared})
        stage = view.{how}
        ctx.mma(acc, *stage.tile())
        stage.release()
    """
    program = from_text(text, PAYLOAD=PAYLOAD).bind(np.zeros(4, np.int32))
    assert counts_of(program)["inputs.empty"] == (2 if shared else 1)


@pytest.mark.parametrize("group", [1, 2])
def test_whose_barrier_gets_the_bytes(group: int) -> None:
    """In a cluster of two: each CTA's own; of a pair, those of both on the even one's."""
    text = f"""
    barriers = tp.SMemArray(ctx, tp.SharedMemBarrier, 4, 'inputs')
    tp.InputTilePipeline.init_barriers(barriers, 1, 1, name='inputs')
    inputs = tp.InputTilePipeline(barriers, PAYLOAD.allocate(ctx, 2, 'inputs'), 2,
        cta_group={group}, name='inputs')
    @ctx.role('load', warps=1)
    def load():
        with inputs.producer().acquire() as stage, ctx.elect_one():
            stage.expect_bytes(inputs.stage_bytes)
            for tensor, tile in zip((a, b), stage.tile()):
                ctx.tma_load(tensor, (0, 0), tile, stage.barrier())
        with ctx.when((ctx.cta_rank == 0) | ({group} == 1)):
            inputs.pipeline.full[0].wait(0)
        ctx.cluster_arrive()
        ctx.cluster_wait()
    """
    kernel = from_text(text, "def k(ctx, a, b):", PAYLOAD=PAYLOAD)
    kernel._grid = kernel._cluster = 2
    a, b = (
        tp.tensor_map(np.zeros(shape, tp.bfloat16.numpy), box=shape)
        for shape in ((64, 16), (8, 16))
    )
    assert kernel.bind(a, b).run().completions["inputs.full"] == (
        [[1, 0], [0, 0]] if group == 2 else [[1, 0], [1, 0]]
    )


def test_the_group_size_of_the_constructor() -> None:
    found: list[int] = []
    text = """
    barriers = tp.SMemArray(ctx, tp.SharedMemBarrier, 4, 'inputs')
    tp.InputTilePipeline.init_barriers(barriers, 1, 1, name='inputs')
    inputs = tp.InputTilePipeline(barriers, PAYLOAD.allocate(ctx, 6, 'inputs'), 2, 3, name='inputs')
    found.extend([inputs.k_group_size, inputs.stage_bytes, inputs.num_group_stages])
    ctx.role('one', warps=1)(lambda: None)
    """
    program = from_text(text, PAYLOAD=PAYLOAD, found=found).bind(np.zeros(4, np.int32))
    assert program.kernel.cta_group == 0, "nothing here says that the kernel has tensor memory"
    assert found == [3, 3 * 2 * (64 + 8) * 16, 2]
    for wrong in (0, -1):
        with refused(tp.TraceError, f"k_group_size is at least 1, got {wrong}"):
            from_text(
                text.replace("2, 3, name", f"2, {wrong}, name"), PAYLOAD=PAYLOAD, found=found
            ).bind(np.zeros(4, np.int32))


@pytest.mark.parametrize("group", [1, 2])
def test_whom_a_release_of_tiles_that_mmas_have_read_tells(group: int) -> None:
    """One commit: of a pair with the mask of both CTAs."""
    text = f"""
    inputs = tp.InputTilePipeline.allocate(ctx, ROWS, num_group_stages=2, cta_group={group},
        producer_arrivals=1, consumer_arrivals=1)
    tmem = tp.TmemAllocation(ctx, 32, cta_group={group})
    @ctx.role('mma', warps=1)
    def mma():
        tmem.allocate()
        with ctx.when(tp.elect_one_cta(ctx)):
            stage = inputs.acquire_consumer()
            with ctx.elect_one():
                ctx.mma(tmem.tensor((128, 16 * {group})), *stage.tile(), accumulate=False)
            stage.release()
        tmem.deallocate()
    """
    rows = tp.StandardTilePayload(
        a_type="bfloat16", b_type="bfloat16", a_shape=(128, 16), b_shape=(16, 16)
    )
    kernel = from_text(text, ROWS=rows)
    kernel._grid = kernel._cluster = 2
    (commit,) = (
        op
        for op in walk(kernel.bind(np.zeros(4, np.int32)).kernel.roles[0].body)
        if isinstance(op, ops.Tcgen05Commit)
    )
    assert (commit.mask is None) == (group == 1)
