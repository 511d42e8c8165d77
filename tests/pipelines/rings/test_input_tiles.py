"""Every member of InputTilePipeline, its views and its stages, ProducerTiles included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.ring_kernels import (
    PAYLOAD,
    counts_of,
    laps,
    load_stage,
    multiply_all,
    product,
    ring,
    summary,
)
from tests.support.tracing import from_text, refused


def inputs_role(
    text: str,
    *,
    size: str = "warps=1",
    p: int | None = 1,
    c: int | None = 1,
    stages: int = 3,
    k_group_size: int = 1,
    **names: Any,
) -> tp.Program:
    """A kernel whose only role does `text` with `inputs`."""
    head = (
        f"inputs = tp.InputTilePipeline.allocate(ctx, PAYLOAD, num_group_stages={stages}, "
        f"k_group_size={k_group_size}, "
        f"producer_arrivals={p}, consumer_arrivals={c})"
    )
    body = "\n".join(f"    {line}" for line in text.strip().splitlines())
    k = from_text(f"{head}\n@ctx.role('one', {size})\ndef one():\n{body}", PAYLOAD=PAYLOAD, **names)
    return k.bind(np.zeros(64, np.int32))


EXPECT = "with ctx.elect_one():\n        stage.expect_bytes(64)"
FILL = ["wait empty", "elect", "expect full 64", "step producer"]
TRAFFIC: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "try_acquire_producer asks for a free slot": (
        "inputs.try_acquire_producer()",
        {},
        ["try empty"],
    ),
    "try_acquire_consumer asks for data": ("inputs.try_acquire_consumer()", {}, ["try full"]),
    "wait_producer_if_needed is the consumer's": (
        "inputs.wait_producer_if_needed(inputs.try_acquire_consumer())",
        {},
        ["try full", "if", "wait full"],
    ),
    "wait_consumer_if_needed is the producer's": (
        "inputs.wait_consumer_if_needed(inputs.try_acquire_producer())",
        {},
        ["try empty", "if", "wait empty"],
    ),
    "acquire_producer": (
        (
            "stage = inputs.acquire_producer()\n"
            "with ctx.elect_one():\n"
            "    stage.expect_bytes(64)\n"
            "stage.release()"
        ),
        {},
        FILL,
    ),
    "acquire_consumer": (
        "stage = inputs.acquire_consumer()\nstage.release()",
        {"c": 32},
        ["wait full", "arrive empty", "step consumer"],
    ),
    "acquire_consumer, by hand": (
        (
            "stage = inputs.acquire_consumer()\n"
            "with ctx.elect_one():\n"
            "    stage.mbar().arrive()\n"
            "stage.release()"
        ),
        {},
        ["wait full", "elect", "arrive empty", "step consumer"],
    ),
    "release_without_signal": (
        "stage = inputs.acquire_consumer()\nstage.release_without_signal()",
        {},
        ["wait full", "step consumer"],
    ),
    "producer().acquire: ProducerTiles": (
        f"with inputs.producer() as p:\n  with p.acquire() as stage:\n    {EXPECT}",
        {},
        FILL,
    ),
    "producer().acquire_stage": (
        (
            "p = inputs.producer()\n"
            "stage = p.acquire_stage()\n"
            "with ctx.elect_one():\n"
            "    stage.expect_bytes(64)\n"
            "stage.release()"
        ),
        {},
        FILL,
    ),
    "producer().try_acquire, acquire_if_needed": (
        f"p = inputs.producer()\nwith p.acquire_if_needed(p.try_acquire()) as stage:\n    {EXPECT}",
        {},
        ["try empty", "if", "wait empty", "elect", "expect full 64", "step producer"],
    ),
    "leaving the producer view does not drain": ("with inputs.producer() as p:\n    pass", {}, []),
    "producer().drain": ("inputs.producer().drain()", {}, ["for 3", "wait empty", "step producer"]),
    "drain_producer": ("inputs.drain_producer()", {}, ["for 3", "wait empty", "step producer"]),
    "consumer().acquire: ConsumerTiles": (
        "with inputs.consumer() as c:\n  with c.acquire() as stage:\n    pass",
        {"c": 32},
        ["wait full", "arrive empty", "step consumer"],
    ),
    "consumer().acquire_stage": (
        "c = inputs.consumer()\nstage = c.acquire_stage()\nstage.release()",
        {"c": 32},
        ["wait full", "arrive empty", "step consumer"],
    ),
    "consumer().try_acquire, acquire_if_needed": (
        "c = inputs.consumer()\nwith c.acquire_if_needed(c.try_acquire()) as stage:\n    pass",
        {"c": 32},
        ["try full", "if", "wait full", "arrive empty", "step consumer"],
    ),
}


@pytest.mark.parametrize("member", TRAFFIC)
def test_barrier_traffic(member: str) -> None:
    text, counts, want = TRAFFIC[member]
    assert summary(inputs_role(text, **counts)) == want


def test_producer_tiles_waits_when_acquired_not_when_entered() -> None:
    text = (
        "tiles = inputs.producer().acquire()\n"
        "ctx.print('before entering')\n"
        "with tiles as stage:\n"
        "    with ctx.elect_one():\n"
        "        stage.expect_bytes(64)"
    )
    lines = str(inputs_role(text)).splitlines()
    at = {
        word: next(i for i, line in enumerate(lines) if word in line)
        for word in ("mbar_wait", "before entering", "mbar_expect")
    }
    assert at["mbar_wait"] < at["before entering"] < at["mbar_expect"]


def test_members_of_the_stages() -> None:
    """Types, tiles, stage numbers and barriers: the producer's is full[stage], the consumer's
    empty[stage].
    """
    found: dict[str, Any] = {}
    text = """
with inputs.producer().acquire() as p:
    found['producer'] = [type(p), p.payload() is inputs.payload, repr(p.barrier()), repr(p.mbar()),
        [t.shape for t in p.tile(1)], repr(p.stage())]
    with ctx.elect_one():
        p.expect_bytes(inputs.stage_bytes)
with inputs.consumer().acquire() as c:
    found['consumer'] = [type(c), c.payload() is inputs.payload, repr(c.mbar()),
        [t.shape for t in c.tile(0)]]
flat = inputs.acquire_producer(), inputs.acquire_consumer()
found['flat'] = [type(x) for x in flat]
with ctx.elect_one():
    flat[0].expect_bytes(inputs.stage_bytes)
flat[0].release()
flat[1].release()
found['sizes'] = [inputs.num_group_stages, inputs.k_group_size, inputs.stage_bytes,
    len(inputs.payload.a_tiles), len(inputs.payload.b_tiles)]
found['types'] = [type(inputs.pipeline), inputs.Pipeline, inputs.BarrierArray,
    type(inputs.producer()), type(inputs.consumer())]
found['mbars'] = [repr(inputs.producer_mbar(2)), repr(inputs.consumer_mbar(2))]
"""
    inputs_role(text, c=32, k_group_size=2, found=found)
    assert found["producer"][:2] == [tp.ProducerTiles, True]
    assert found["producer"][2] == found["producer"][3] == "<mbarrier inputs.full[stage]>"
    assert found["producer"][4:] == [[(64, 16), (8, 16)], "<traced int32 stage>"]
    assert found["consumer"][:2] == [tp.ConsumerTiles, True]
    assert found["consumer"][2].startswith("<mbarrier inputs.empty[stage")
    assert found["flat"] == [tp.InputProducerStage, tp.InputConsumerStage]
    assert found["sizes"] == [3, 2, 2 * (64 * 16 + 8 * 16) * 2, 6, 6]
    assert found["types"] == [
        tp.ProducerConsumerPipeline,
        tp.ProducerConsumerPipeline,
        tp.SMemArray,
        tp.InputProducer,
        tp.InputConsumer,
    ]
    assert found["mbars"] == ["<mbarrier inputs.full[2]>", "<mbarrier inputs.empty[2]>"]


def test_tiles_of_a_group_are_numbered_stage_times_group_plus_k() -> None:
    found: list[str] = []
    text = (
        "stage = inputs.acquire_consumer()\n"
        "found.extend(repr(t.ir('x').index) for t in stage.tile(2))\n"
        "found.append(str(ctx.let(stage.stage() * 3 + 2)))\n"
        "ctx.load(stage.tile(2)[0][0, 0])\n"
        "stage.release()"
    )
    program = inputs_role(text, c=32, k_group_size=3, found=found)
    assert "inputs_a[(stage * 3) + 2](0, 0)" in str(program)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "stage = inputs.acquire_consumer()\nstage.tile(2)",
            ("tile 2 of a stage of 2", "k_group_size"),
        ),
        (
            "stage = inputs.acquire_consumer()\nstage.tile(ctx.block_id)",
            ("tile", "of a stage of 2"),
        ),
        ("inputs.consumer(lag=3)", ("lag=3", "less than the 3 stages of 'inputs'")),
        ("inputs.consumer(lag=-1)", ("lag=-1", "at least 0")),
        ("inputs.consumer(lag=1).acquire()", ("lag", "with inputs.consumer(lag=...) as consumer:")),
        (
            "inputs.wait_producer_if_needed(inputs.producer_stage())",
            ("already_ready is the result of a try_wait",),
        ),
        (
            (
                "tp.StandardTilePayload(a_type='bfloat16', b_type='bfloat16', a_shape=(8, "
                "64), b_shape=(8, 64)).tile_bytes"
            ),
            ("no shared memory yet",),
        ),
    ],
)
def test_refused(text: str, words: tuple[str, ...]) -> None:
    with refused(tp.TraceError, *words):
        inputs_role(text, k_group_size=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("num_group_stages=0", "at least 1"),
        ("num_group_stages=2, k_group_size=0", "at least 1"),
        ("num_group_stages=2, k_group_size=1.5", "an int, 1 or more"),
    ],
)
def test_refused_sizes(arguments: str, words: str) -> None:
    with refused(tp.TraceError, words, "got"):
        from_text(
            f"tp.InputTilePipeline.allocate(ctx, PAYLOAD, {arguments})", PAYLOAD=PAYLOAD
        ).bind(np.zeros(4, np.int32))


@pytest.mark.parametrize(
    ("group", "words"),
    [(3, "cta_group is 1, or 2 for a pair of CTAs; got 3"), (2, "a cluster of 1 has no pairs")],
)
def test_refused_groups(group: int, words: str) -> None:
    with refused(tp.TraceError, words):
        from_text(
            f"tp.InputTilePipeline.allocate(ctx, PAYLOAD, num_group_stages=2, cta_group={group})",
            PAYLOAD=PAYLOAD,
        ).bind(np.zeros(4, np.int32))


def test_both_forms_of_construction() -> None:
    """The page's: barriers, init_barriers, an allocated payload, the constructor."""
    text = """
    barriers = tp.SMemArray.stack_allocation(ctx, tp.SharedMemBarrier, 6)
    tp.InputTilePipeline.init_barriers(barriers, 1, 32, name='inputs')
    inputs = tp.InputTilePipeline(barriers, PAYLOAD.allocate(ctx, 3, 'inputs'), 3)
    @ctx.role('load', warps=1)
    def load():
        for i in ctx.range(5):
            with inputs.producer().acquire() as stage, ctx.elect_one():
                stage.expect_bytes(0)
    @ctx.role('use', warps=1)
    def use():
        for i in ctx.range(5):
            stage = inputs.acquire_consumer()
            stage.release()
    """
    program = from_text(text, PAYLOAD=PAYLOAD).bind(np.zeros(4, np.int32))
    assert list(counts_of(program).values()) == [1, 32]
    assert list(program.run().completions.values()) == [[laps(5, 3)], [laps(5, 3)]]


@pytest.mark.parametrize("k_group_size", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_groups_of_k_tiles(k_group_size: int, n: int) -> None:
    """One expect_bytes and one commit for each group; the numbers are right."""
    program, out, want = product(multiply_all(lag=1), n=n, stages=2, k_group_size=k_group_size)
    run = program.run(seed=n)
    assert np.array_equal(out, want)
    assert run.completions == {"inputs.full": [laps(n, 2)], "inputs.empty": [laps(n, 2)]}
    assert run.roles[0].ops["tma_load"] == 2 * n * k_group_size


# -- the try forms: the pages' examples cross the two waits ----------------------------


def load_trying(crossed: bool) -> Any:
    def body(ctx: tp.Context, inputs: Any, a: Any, b: Any, n: Any) -> None:
        for k in ctx.range(n):
            ready = inputs.try_acquire_producer()
            if crossed:
                inputs.wait_producer_if_needed(ready)  # as the page's example has it
            else:
                inputs.wait_consumer_if_needed(ready)
            at = inputs.producer_stage()
            with ctx.elect_one():
                barrier = inputs.producer_mbar(at)
                barrier.expect_bytes(inputs.stage_bytes)
                a_tile, b_tile = inputs.payload.get_tile(at, k_group_size=1)
                ctx.tma_load(a, (0, k * 16), a_tile, barrier)
                ctx.tma_load(b, (0, k * 16), b_tile, barrier)
            inputs.pipeline.producer_step()

    return body


def multiply_trying(crossed: bool) -> Any:
    def body(ctx: tp.Context, inputs: Any, acc: Any, n: Any) -> None:
        for _ in ctx.range(n):
            ready = inputs.try_acquire_consumer()
            if crossed:
                inputs.wait_consumer_if_needed(ready)  # as the page's example has it
            else:
                inputs.wait_producer_if_needed(ready)
            at = inputs.consumer_stage()
            ctx.mma(acc, *inputs.payload.get_tile(at, k_group_size=1))
            ctx.mma_commit(inputs.consumer_mbar(at))
            ctx.wgmma_wait(0)
            inputs.pipeline.consumer_step()

    return body


@pytest.mark.parametrize("seed", range(4))
def test_the_try_forms_as_they_should_be(seed: int) -> None:
    program, out, want = product(
        multiply_trying(False),
        load_trying(False),
        n=7,
        stages=2,
        producer_arrivals=1,
        consumer_arrivals=1,
    )
    run = program.run(seed=seed)
    assert np.array_equal(out, want)
    assert run.completions == {"inputs.full": [[4, 3]], "inputs.empty": [[4, 3]]}


def crossed_ring(ready: Any) -> Any:
    """The page's example under try_acquire_producer, over a ring that only signals; `ready(pipe)`
    is what the try gave.
    """

    def producer(ctx: tp.Context, pipe: Any, slots: Any, n: Any) -> None:
        for _ in ctx.range(n):
            pipe.wait_producer_if_needed(ready(pipe))
            with ctx.elect_one():
                pipe.producer_mbar(pipe.producer_stage()).arrive()
            pipe.producer_step()

    def consumer(ctx: tp.Context, pipe: Any, slots: Any, out: Any, n: Any) -> None:
        for _ in ctx.range(n):
            with pipe.consume():
                pass

    return ring(producer, consumer, n=8, stages=2, producer_arrivals=1)[0]


@pytest.mark.parametrize("seed", range(4))
def test_the_crossed_example_waits_for_a_phase_that_never_comes_again(seed: int) -> None:
    words = (
        "role 'producer' waits for phase 0 of pipe.full[0]",
        "it was lapped",
        "this wait may never end",
        "pipe.wait_producer_if_needed(ready(pipe))",
    )
    with refused(tp.BarrierError, *words):
        crossed_ring(lambda pipe: pipe.try_wait_consumer()).run(seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_a_crossed_producer_that_is_not_ready_waits_for_itself(seed: int) -> None:
    words = (
        "role 'producer'",
        "pipe.full[0]",
        "1 of 1 arrivals",
        "arrive",
        "role 'producer' waits at test_input_tiles.py",
        "wait_producer_if_needed",
    )
    with refused(tp.DeadlockError, *words):
        crossed_ring(lambda pipe: False).run(seed=seed)


def test_a_crossed_load_warp_overwrites_what_is_being_read() -> None:
    program, _, _ = product(multiply_all(), load_trying(True), n=7, stages=2, producer_arrivals=1)
    with refused(
        tp.RaceError, "inputs_a[0]", "role 'mma' reads", "role 'load' writes", "wgmma", "tma_load"
    ):
        program.run()


def test_the_crossed_consumer_reads_what_is_not_there() -> None:
    program, _, _ = product(multiply_trying(True), n=7, stages=2, consumer_arrivals=1)
    with pytest.raises((tp.DeadlockError, tp.RaceError, tp.PoisonError, tp.BarrierError)) as caught:
        program.run()
    assert "role 'mma'" in str(caught.value)
    assert "inputs" in str(caught.value)


@pytest.mark.parametrize("seed", range(3))
def test_acquire_if_needed_on_both_sides(seed: int) -> None:
    def load(ctx: tp.Context, inputs: Any, a: Any, b: Any, n: Any) -> None:
        with inputs.producer() as producer:
            for k in ctx.range(n):
                ready = producer.try_acquire()
                with producer.acquire_if_needed(ready) as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    load_stage(ctx, inputs, stage, a, b, k)

    def multiply(ctx: tp.Context, inputs: Any, acc: Any, n: Any) -> None:
        with inputs.consumer(lag=1) as consumer:
            for _ in ctx.range(n):
                ready = consumer.try_acquire()
                with consumer.acquire_if_needed(ready) as stage:
                    ctx.mma(acc, *stage.tile())

    program, out, want = product(multiply, load, n=6, stages=3)
    program.run(seed=seed)
    assert np.array_equal(out, want)
