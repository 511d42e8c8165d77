"""A ring behaves as a queue: any stages, producers, consumers, trip counts, seeds, over several
tiles whose trip count is no multiple of the ring.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tilepipe as tp
from tests.support.examples import share

LARGEST = 41


def program(
    stages: int, producers: int, consumers: int, tiles: int, n: int
) -> tuple[tp.Program, Any]:
    """`producers` warps fill every stage between them, `consumers` warps each read all of it;
    `tiles` rounds of `n` stages.
    """
    out = np.full((2, 3 * LARGEST, 2), -1, np.int32)

    @tp.kernel()
    def k(ctx: tp.Context, out: Any, tiles: Any, n: Any) -> None:
        pipe = tp.ProducerConsumerPipeline.allocate(ctx, stages, name="pipe")
        slots = ctx.smem((stages, 2), "int32", swizzle=0, name="slots")[0]

        @ctx.role("producer", warps=producers)
        def producer() -> None:
            for t in ctx.range(tiles):
                for i in ctx.range(n):
                    with pipe.produce() as stage, ctx.elect_one():
                        for part in range(2 // producers):
                            ctx.store(
                                slots[stage.index(), ctx.warp * (2 // producers) + part],
                                (t * n + i) * 10 + ctx.warp * (2 // producers) + part,
                            )
                        stage.mbar().arrive()
            pipe.drain_producer()

        @ctx.role("consumer", warps=consumers)
        def consumer() -> None:
            for t in ctx.range(tiles):
                for i in ctx.range(n):
                    with pipe.consume_explicit() as stage, ctx.elect_one():
                        for part in range(2):
                            ctx.store(
                                out[ctx.warp, t * n + i, part], ctx.load(slots[stage.index(), part])
                            )
                        stage.arrive()

    return k.bind(out, tiles, n), out


def model(stages: int, items: int) -> tuple[list[int], list[int]]:
    """What arrives, and how often each stage's barriers complete, by a queue that holds at most
    `stages` items.
    """
    queue: deque[int] = deque(maxlen=stages)
    got, completions = [], [0] * stages
    for i in range(items):
        queue.append(i)
        completions[i % stages] += 1
        got.append(queue.popleft())
    return got, completions


@pytest.mark.slow
@given(
    stages=st.integers(1, 8),
    producers=st.integers(1, 2),
    consumers=st.integers(1, 2),
    tiles=st.integers(1, 3),
    n=st.integers(0, 40),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=share(60))
def test_a_ring_is_a_queue(
    stages: int, producers: int, consumers: int, tiles: int, n: int, seed: int
) -> None:
    k, out = program(stages, producers, consumers, tiles, n)
    run = k.run(seed=seed)
    got, completions = model(stages, tiles * n)
    for reader in range(consumers):
        assert out[reader, : len(got)].tolist() == [[10 * i, 10 * i + 1] for i in got]
        assert (out[reader, len(got) :] == -1).all()
    assert run.completions == {"pipe.full": [completions], "pipe.empty": [completions]}


@pytest.mark.slow
@given(
    stages=st.integers(1, 8),
    trips=st.lists(st.integers(0, 9), min_size=2, max_size=4),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=share(30))
def test_persistent_tiles_of_different_lengths(stages: int, trips: list[int], seed: int) -> None:
    """The trip count of each tile comes from memory; the phase must survive every boundary."""
    out = np.full(64, -1, np.int32)

    @tp.kernel()
    def k(ctx: tp.Context, lengths: Any, out: Any) -> None:
        pipe = tp.ProducerConsumerPipeline.allocate(ctx, stages, name="pipe")
        slots = tp.SMemArray(ctx, "int32", stages)

        @ctx.role("producer", warps=1)
        def producer() -> None:
            sent = ctx.var(0)
            for t in ctx.range(lengths.shape[0]):
                for _ in ctx.range(ctx.load(lengths[t])):
                    with pipe.produce() as stage, ctx.elect_one():
                        ctx.store(slots[stage.index()], sent.get() + 100)
                        stage.mbar().arrive()
                    sent += 1

        @ctx.role("consumer", warps=1)
        def consumer() -> None:
            got = ctx.var(0)
            for t in ctx.range(lengths.shape[0]):
                for _ in ctx.range(ctx.load(lengths[t])):
                    with pipe.consume() as stage, ctx.elect_one():
                        ctx.store(out[got.get()], ctx.load(slots[stage.index()]))
                    got += 1

    run = k.bind(np.array(trips, np.int32), out).run(seed=seed)
    got, completions = model(stages, sum(trips))
    assert out[: len(got)].tolist() == [100 + i for i in got]
    assert run.completions == {"pipe.full": [completions], "pipe.empty": [completions]}


@pytest.mark.slow
@given(advance=st.lists(st.integers(0, 20), min_size=1, max_size=5), stages=st.integers(1, 8))
@settings(max_examples=share(20))
def test_advancing_is_stepping(advance: list[int], stages: int) -> None:
    out = np.zeros(2, np.int32)

    @tp.kernel()
    def k(ctx: tp.Context, steps: Any, out: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            state = tp.PipelineState(ctx, stages)
            for i in ctx.range(steps.shape[0]):
                state.advance(ctx.load(steps[i]))
            index, phase = state.index(), state.phase()
            with ctx.elect_one():
                ctx.store(out[0], index)
                ctx.store(out[1], phase)

    k.bind(np.array(advance, np.int32), out).run()
    assert out.tolist() == [sum(advance) % stages, sum(advance) // stages & 1]
