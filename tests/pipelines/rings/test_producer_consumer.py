"""Every member of ProducerConsumerPipeline: the exact barrier traffic, and what it does in a
run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.ring_kernels import consume, counts_of, laps, one_role, produce, ring, summary
from tests.support.tracing import from_text, refused

ARRIVE = "with ctx.elect_one():\n        stage.mbar().arrive()"
TRAFFIC: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "wait_producer: the consumer waits on full": ("pipe.wait_producer()", {}, ["wait full"]),
    "wait_consumer: the producer waits on empty": ("pipe.wait_consumer()", {}, ["wait empty"]),
    "try_wait_producer": ("pipe.try_wait_producer()", {}, ["try full"]),
    "try_wait_consumer": ("pipe.try_wait_consumer()", {}, ["try empty"]),
    "wait_producer_if_needed": (
        "pipe.wait_producer_if_needed(pipe.try_wait_producer())",
        {},
        ["try full", "if", "wait full"],
    ),
    "wait_consumer_if_needed": (
        "pipe.wait_consumer_if_needed(pipe.try_wait_consumer())",
        {},
        ["try empty", "if", "wait empty"],
    ),
    "producer_step: no barrier traffic": ("pipe.producer_step()", {}, ["step producer"]),
    "consumer_step: no barrier traffic": ("pipe.consumer_step()", {}, ["step consumer"]),
    "producer_signal_and_step": (
        "pipe.producer_signal_and_step()",
        {"p": 32},
        ["wait empty", "arrive full", "step producer"],
    ),
    "consumer_signal_and_step": (
        "pipe.consumer_signal_and_step()",
        {"c": 32},
        ["wait full", "arrive empty", "step consumer"],
    ),
    "produce: waits, steps": (
        f"with pipe.produce() as stage:\n    {ARRIVE}",
        {},
        ["wait empty", "elect", "arrive full", "step producer"],
    ),
    "consume: waits, arrives, steps": (
        "with pipe.consume() as stage:\n    pass",
        {"c": 32},
        ["wait full", "arrive empty", "step consumer"],
    ),
    "consume_explicit: waits, steps": (
        "with pipe.consume_explicit() as stage:\n    pass",
        {},
        ["wait full", "step consumer"],
    ),
    "consume_explicit, arrive by lane": (
        (
            "with pipe.consume_explicit() as stage:\n"
            "    with ctx.when(ctx.lane < 4):\n"
            "        stage.arrive()"
        ),
        {"c": 4},
        ["wait full", "if", "arrive empty", "step consumer"],
    ),
    "acquire_producer, release": (
        (
            "stage = pipe.acquire_producer()\n"
            "with ctx.elect_one():\n"
            "    stage.mbar().arrive()\n"
            "stage.release()"
        ),
        {},
        ["wait empty", "elect", "arrive full", "step producer"],
    ),
    "acquire_consumer, release": (
        "stage = pipe.acquire_consumer()\nstage.release()",
        {"c": 32},
        ["wait full", "arrive empty", "step consumer"],
    ),
    "acquire_consumer, release_without_signal": (
        "stage = pipe.acquire_consumer()\nstage.release_without_signal()",
        {},
        ["wait full", "step consumer"],
    ),
    "drain_producer": ("pipe.drain_producer()", {}, ["for 3", "wait empty", "step producer"]),
    "producer_mbar is full": (
        "with ctx.elect_one():\n    pipe.producer_mbar(1).arrive()",
        {},
        ["elect", "arrive full [1]"],
    ),
    "consumer_mbar is empty": (
        "with ctx.elect_one():\n    pipe.consumer_mbar(1).arrive()",
        {},
        ["elect", "arrive empty [1]"],
    ),
}


@pytest.mark.parametrize("member", TRAFFIC)
def test_barrier_traffic(member: str) -> None:
    text, counts, want = TRAFFIC[member]
    assert summary(one_role(text, **counts)) == want


def test_layout_and_bytes() -> None:
    """All full barriers, then all empty ones; 8 bytes each."""
    program = one_role("pass", stages=5)
    full, empty = program.kernel.barriers
    assert (full.name, full.size, empty.name, empty.size) == ("pipe.full", 5, "pipe.empty", 5)
    assert empty.offset == full.offset + 5 * 8
    assert (
        tp.ProducerConsumerPipeline.smem_bytes_for(5)
        == tp.ProducerConsumerPipeline.smem_bytes(5)
        == 80
    )
    found: list[Any] = []
    text = (
        "pipe = tp.ProducerConsumerPipeline.allocate(ctx, 5, producer_arrivals=1,"
        " consumer_arrivals=1)\nfound.append(pipe.smem_bytes())\n"
    )
    from_text(text + "ctx.role('r', warps=1)(lambda: None)", found=found).bind(
        np.zeros(4, np.int32)
    )
    assert found == [80]


@pytest.mark.parametrize("form", ["allocate", "page", "init_barriers"])
def test_both_forms_of_construction(form: str) -> None:
    """`allocate`, or the page's constructor over an array and its init_mbars."""
    out = np.full(64, -1, np.int32)

    @tp.kernel()
    def k(ctx: tp.Context, out: Any) -> None:
        if form == "allocate":
            pipe = tp.ProducerConsumerPipeline.allocate(ctx, 3, name="pipe")
        else:
            storage = tp.SMemArray.stack_allocation(ctx, tp.SharedMemBarrier, 6)
            pipe = tp.ProducerConsumerPipeline(storage, 3, name="pipe")
            if form == "page":
                pipe.init_mbars(1, 32)
            else:
                tp.InputTilePipeline.init_barriers(storage, 1, 32, name="pipe")
        slots = tp.SMemArray(ctx, "int32", 3)
        ctx.role("producer", warps=1)(lambda: produce(ctx, pipe, slots, 7))
        ctx.role("consumer", warps=1)(lambda: consume(ctx, pipe, slots, out, 7))

    program = k.bind(out)
    run = program.run()
    assert list(counts_of(program).values()) == [1, 32]
    assert list(run.completions.values()) == [[laps(7, 3)], [laps(7, 3)]]
    assert out[:8].tolist() == [1, 4, 7, 10, 13, 16, 19, -1]


def produce_flat(ctx: tp.Context, pipe: Any, slots: Any, n: Any) -> None:
    for i in ctx.range(n):
        stage = pipe.acquire_producer()
        with ctx.elect_one():
            ctx.store(slots[stage.index()], i * 3 + 1)
            stage.mbar().arrive()
        stage.release()


def produce_by_hand(ctx: tp.Context, pipe: Any, slots: Any, n: Any) -> None:
    for i in ctx.range(n):
        pipe.wait_consumer()
        at = pipe.producer_stage()
        with ctx.elect_one():
            ctx.store(slots[at], i * 3 + 1)
            pipe.producer_mbar(at).arrive()
        pipe.producer_step()


def produce_trying(ctx: tp.Context, pipe: Any, slots: Any, n: Any) -> None:
    for i in ctx.range(n):
        ready = pipe.try_wait_consumer()
        pipe.wait_consumer_if_needed(ready)
        at = pipe.producer_stage()
        with ctx.elect_one():
            ctx.store(slots[at], i * 3 + 1)
            pipe.producer_mbar(at).arrive()
        pipe.producer_step()


def consume_flat(ctx: tp.Context, pipe: Any, slots: Any, out: Any, n: Any) -> None:
    for i in ctx.range(n):
        stage = pipe.acquire_consumer()
        with ctx.elect_one():
            ctx.store(out[i], ctx.load(slots[stage.index()]))
        stage.release()


def consume_explicit(ctx: tp.Context, pipe: Any, slots: Any, out: Any, n: Any) -> None:
    for i in ctx.range(n):
        with pipe.consume_explicit() as stage, ctx.elect_one():
            ctx.store(out[i], ctx.load(slots[stage.index()]))
            stage.arrive()


def consume_without_signal(ctx: tp.Context, pipe: Any, slots: Any, out: Any, n: Any) -> None:
    for i in ctx.range(n):
        stage = pipe.acquire_consumer()
        with ctx.elect_one():
            ctx.store(out[i], ctx.load(slots[stage.index()]))
            stage.mbar().arrive()
        stage.release_without_signal()


def consume_trying(ctx: tp.Context, pipe: Any, slots: Any, out: Any, n: Any) -> None:
    for i in ctx.range(n):
        pipe.wait_producer_if_needed(pipe.try_wait_producer())
        at = pipe.consumer_stage()
        with ctx.elect_one():
            ctx.store(out[i], ctx.load(slots[at]))
            pipe.consumer_mbar(at).arrive()
        pipe.consumer_step()


def consume_signalling(ctx: tp.Context, pipe: Any, slots: Any, out: Any, n: Any) -> None:
    for i in ctx.range(n):
        pipe.wait_producer()
        with ctx.elect_one():
            ctx.store(out[i], ctx.load(slots[pipe.consumer_stage()]))
        pipe.consumer_signal_and_step()


PRODUCERS = {
    "produce": (produce, None),
    "flat": (produce_flat, None),
    "by hand": (produce_by_hand, 1),
    "trying": (produce_trying, 1),
}
CONSUMERS = {
    "consume": (consume, None, 32),
    "flat": (consume_flat, None, 32),
    "explicit": (consume_explicit, None, 1),
    "without signal": (consume_without_signal, None, 1),
    "trying": (consume_trying, 1, 1),
    "signal and step": (consume_signalling, None, 32),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_every_form_passes_the_same_items(producer: str, consumer: str, seed: int) -> None:
    (p, typed_p), (c, typed_c, count) = PRODUCERS[producer], CONSUMERS[consumer]
    program, out = ring(p, c, n=8, stages=3, producer_arrivals=typed_p, consumer_arrivals=typed_c)
    run = program.run(seed=seed)
    assert counts_of(program) == {"pipe.full": 1, "pipe.empty": count}
    assert out[:8].tolist() == [3 * i + 1 for i in range(8)]
    assert run.completions == {"pipe.full": [laps(8, 3)], "pipe.empty": [laps(8, 3)]}


def test_throttle_as_in_a_scheduler() -> None:
    """Two warps that only signal and step: neither runs more than the ring ahead."""

    def signal(ctx: tp.Context, pipe: Any, *rest: Any) -> None:
        for _ in ctx.range(rest[-1]):
            pipe.producer_signal_and_step()
        pipe.drain_producer()

    def take(ctx: tp.Context, pipe: Any, *rest: Any) -> None:
        for _ in ctx.range(rest[-1]):
            pipe.consumer_signal_and_step()

    program, _ = ring(signal, take, n=9, stages=2)
    assert counts_of(program) == {"pipe.full": 32, "pipe.empty": 32}
    assert program.run(seed=5).completions == {"pipe.full": [[5, 4]], "pipe.empty": [[5, 4]]}


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
def test_drain_waits_until_all_is_free(n: int) -> None:
    def draining(ctx: tp.Context, pipe: Any, slots: Any, n: Any) -> None:
        produce(ctx, pipe, slots, n)
        pipe.drain_producer()

    program, _ = ring(draining, n=n, stages=3)
    run = program.run(seed=1)
    assert run.completions["pipe.empty"] == [laps(n, 3)]
    assert run.roles[0].waits == n + 3


def test_views_are_borrows_an_alias_is_the_pipeline_and_a_copy_has_its_own_cursors() -> None:
    out = np.zeros(4, np.int32)
    text = """
    pipe = tp.ProducerConsumerPipeline.allocate(ctx, 4, producer_arrivals=1, consumer_arrivals=1)
    @ctx.role('one', warps=1)
    def one():
        alias, other = pipe, pipe.copy()
        alias.producer_step()
        alias.consumer_step()
        pipe.consumer_step()
        with ctx.elect_one():
            for i, stage in enumerate([pipe.producer_stage(), pipe.consumer_stage(),
                other.producer_stage(), other.consumer_stage()]):
                ctx.store(out[i], stage)
    """
    from_text(text).bind(out).run()
    assert out.tolist() == [1, 2, 0, 0]


def test_a_copy_shares_the_barriers() -> None:
    """A second reader of every stage, with a copy, which is the one that frees it."""

    def twice(ctx: tp.Context, pipe: Any, slots: Any, out: Any, n: Any) -> None:
        other = pipe.copy()
        for i in ctx.range(n):
            with pipe.consume_explicit() as stage, ctx.elect_one():
                ctx.store(out[i], ctx.load(slots[stage.index()]))
            with other.consume_explicit() as stage, ctx.elect_one():
                stage.arrive()

    program, out = ring(consumer=twice, n=6, stages=2)
    run = program.run(seed=4)
    assert counts_of(program) == {"pipe.full": 1, "pipe.empty": 1}
    assert run.completions["pipe.empty"] == [[3, 3]]
    assert out[:6].tolist() == [1, 4, 7, 10, 13, 16]


def test_the_first_lap_of_the_producer_does_not_block() -> None:
    """The producer's phase starts at 1, the consumer's at 0."""
    program = one_role(
        "for i in ctx.range(3):\n    pipe.wait_consumer()\n    pipe.producer_step()", stages=3
    )
    assert program.run().roles[0].waits_blocked == 0
    with refused(
        tp.DeadlockError, "pipe.empty[0]", "role 'one'", "nothing in the kernel arrives on it"
    ):
        one_role(
            "for i in ctx.range(4):\n    pipe.wait_consumer()\n    pipe.producer_step()", stages=3
        ).run()
    with refused(tp.DeadlockError, "pipe.full[0]", "phase", "role 'one'"):
        one_role("pipe.wait_producer()").run()
