"""The shape of a program: handles, trip counts, the order in which pipelines are taken (after
TileLang's schedule verifier).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, clean, faults, matrix, refuses, zeros


def where(mark: str) -> str:
    return at(__file__, mark)


def ring_of(
    producer: Callable[[tp.Context, tp.ProducerConsumerPipeline], None],
    consumer: Callable[[tp.Context, tp.ProducerConsumerPipeline], None],
    stages: int = 2,
    counts: tuple[int | None, int | None] = (None, None),
) -> tp.Program:
    """A ring between two one-warp roles."""

    @tp.kernel()
    def shape(ctx: tp.Context) -> None:
        ring = tp.ProducerConsumerPipeline.allocate(
            ctx, stages, producer_arrivals=counts[0], consumer_arrivals=counts[1], name="ring"
        )

        @ctx.role("producer", warps=1)
        def _() -> None:
            producer(ctx, ring)

        @ctx.role("consumer", warps=1)
        def _() -> None:
            consumer(ctx, ring)

    return shape.bind()


def produce(n: int) -> Callable[[tp.Context, tp.ProducerConsumerPipeline], None]:
    def body(ctx: tp.Context, ring: tp.ProducerConsumerPipeline) -> None:
        for _ in ctx.range(n):
            with ring.produce() as stage:  # <produce waits>
                stage.mbar().arrive()  # <produce arrives>

    return body


def consume(n: int) -> Callable[[tp.Context, tp.ProducerConsumerPipeline], None]:
    def body(ctx: tp.Context, ring: tp.ProducerConsumerPipeline) -> None:
        for _ in ctx.range(n):
            with ring.consume():  # <consume waits>
                ctx.syncwarp()

    return body


# -- handles ---------------------------------------------------------------------------


def no_commit(ctx: tp.Context, ring: tp.ProducerConsumerPipeline) -> None:
    with ring.produce():  # <no commit>
        ctx.syncwarp()


def never_released(ctx: tp.Context, ring: tp.ProducerConsumerPipeline) -> None:
    stage = ring.acquire_producer()  # <never released>
    stage.mbar().arrive()


def released_twice(ctx: tp.Context, ring: tp.ProducerConsumerPipeline) -> None:
    stage = ring.acquire_producer()  # <acquired once>
    stage.mbar().arrive()
    stage.release()  # <first release>
    stage.release()  # <second release>


def used_after_release(ctx: tp.Context, ring: tp.ProducerConsumerPipeline) -> None:
    stage = ring.acquire_producer()
    stage.mbar().arrive()
    stage.release()  # <release>
    stage.mbar().arrive()  # <use after release>


def released_before_use(ctx: tp.Context, ring: tp.ProducerConsumerPipeline) -> None:
    stage = ring.acquire_producer()  # <early acquire>
    stage.release()  # <release before use>
    stage.mbar().arrive()


def released_in_a_branch(ctx: tp.Context, ring: tp.ProducerConsumerPipeline) -> None:
    stage = ring.acquire_producer()  # <branch acquire>
    stage.mbar().arrive()
    with ctx.when(ctx.block_id == 0):
        stage.release()  # <branch release>


def signalled_in_a_branch(ctx: tp.Context, ring: tp.ProducerConsumerPipeline) -> None:
    with ring.produce() as stage, ctx.when(ctx.block_id == 0):  # <branch signal>
        stage.mbar().arrive()


def acquired_twice(ctx: tp.Context, ring: tp.ProducerConsumerPipeline) -> None:
    first, second = ring.acquire_producer(), ring.acquire_producer()
    for stage in (first, second):
        stage.mbar().arrive()
        stage.release()


def never_entered(ctx: tp.Context, ring: tp.ProducerConsumerPipeline) -> None:
    ring.produce()  # <never entered>


def kept_round_the_loop(ctx: tp.Context, ring: tp.ProducerConsumerPipeline) -> None:
    stage = ring.acquire_producer()  # <outside the loop>
    for _ in ctx.range(ctx.num_clusters):  # <the loop>
        stage.mbar().arrive()
    stage.release()


@pytest.mark.parametrize(
    ("body", "words", "marks"),
    [
        (no_commit, ("nothing has arrived on its full barrier", "ring.full"), ("no commit",)),
        (never_released, ("producer stage of 'ring'", "release"), ("never released",)),
        (
            released_twice,
            ("released twice", "One acquire, one release"),
            ("acquired once", "first release", "second release"),
        ),
        (used_after_release, ("after its release",), ("release", "use after release")),
        (
            released_before_use,
            ("nothing has arrived on its full barrier",),
            ("early acquire", "release before use"),
        ),
        (released_in_a_branch, ("nested branch block",), ("branch acquire", "branch release")),
        (signalled_in_a_branch, ("on some paths only",), ("branch signal",)),
        (never_entered, ("produce() context", "Enter it"), ("never entered",)),
        (
            kept_round_the_loop,
            ("signalled inside a loop", "once an iteration"),
            ("outside the loop", "the loop"),
        ),
    ],
    ids=lambda x: x.__name__ if callable(x) else "",
)
def test_handles(
    body: Callable[[tp.Context, tp.ProducerConsumerPipeline], None],
    words: tuple[str, ...],
    marks: tuple[str, ...],
) -> None:
    refuses(lambda: ring_of(body, consume(1)), tp.HandleError, *words, *map(where, marks))


def test_one_stage_is_acquired_twice() -> None:
    """The cursor steps at a release: both handles would be of one stage, which would then be
    signalled twice.
    """
    words = ("producer stage of 'ring'", "still held", "same stage", "Release the first")
    refuses(lambda: ring_of(acquired_twice, consume(2)), tp.HandleError, *words)


def test_missing_commit_with_a_typed_count() -> None:
    words = (
        "role 'consumer'",
        "ring.full[0]",
        "32 of 32 arrivals",
        "nothing in the kernel arrives on it",
    )
    faults(
        ring_of(no_commit, consume(1), counts=(32, 32)),
        tp.DeadlockError,
        *words,
        where("consume waits"),
    )


def test_missing_release_of_the_consumer() -> None:
    def silent(ctx: tp.Context, ring: tp.ProducerConsumerPipeline) -> None:
        for _ in ctx.range(5):
            with ring.consume_explicit():  # <silent consumer>
                ctx.syncwarp()

    refuses(
        lambda: ring_of(produce(5), silent),
        tp.CountError,
        "no role arrives on 'ring.empty'",
        "Its consumer must release",
    )
    words = (
        "role 'producer'",
        "ring.empty[0]",
        "32 of 32 arrivals",
        "nothing in the kernel arrives on it",
        "role 'consumer'",
    )
    faults(
        ring_of(produce(5), silent, counts=(32, 32)),
        tp.DeadlockError,
        *words,
        where("produce waits"),
        where("silent consumer"),
    )


# -- trip counts -----------------------------------------------------------------------


@pytest.mark.parametrize(("stages", "n"), [(1, 1), (1, 5), (2, 2), (3, 2), (3, 10)])
def test_balanced_trip_counts(stages: int, n: int) -> None:
    per_stage = [len(range(s, n, stages)) for s in range(stages)]
    for run in clean(ring_of(produce(n), consume(n), stages)):
        assert run.completions == {"ring.full": [per_stage], "ring.empty": [per_stage]}


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_the_consumer_wants_one_stage_more(n: int) -> None:
    words = (
        "1 of 2 agents",
        "role 'consumer'",
        f"ring.full[{n % 2}]",
        "32 of 32 arrivals",
        "role 'producer' has returned",
        "trip counts",
    )
    faults(
        ring_of(produce(n), consume(n + 1)),
        tp.DeadlockError,
        *words,
        where("consume waits"),
        where("produce arrives"),
    )


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_producer_makes_more_stages_than_the_ring_can_hold(n: int) -> None:
    words = (
        "1 of 2 agents",
        "role 'producer'",
        "ring.empty[",
        "32 of 32 arrivals",
        "role 'consumer' has returned",
        "trip counts",
    )
    faults(ring_of(produce(n + 3), consume(n)), tp.DeadlockError, *words, where("produce waits"))


@tp.kernel()
def tiles_of_a_stream(
    ctx: tp.Context, a: Any, out: Any, tiles: int, steps: int, *, stages: int
) -> None:
    """Persistent tiles, each of `steps` TMA copies whose first column is summed; the ring goes on
    across tiles.
    """
    slots = ctx.smem((8, 16), a.dtype, count=stages, name="slots")
    ring = tp.ProducerConsumerPipeline.allocate(ctx, stages, name="ring")

    @ctx.role("load", warps=1)
    def load() -> None:
        for tile in ctx.range(tiles):
            for k in ctx.range(steps):
                with ring.produce() as stage, ctx.elect_one():
                    stage.mbar().expect_bytes(256)
                    ctx.tma_load(a, (8 * tile, 16 * k), slots[stage.index()], stage.mbar())
        ring.drain_producer()

    @ctx.role("sum", warps=1)
    def reduce() -> None:
        for tile in ctx.range(tiles):
            acc = ctx.var(ctx.lane.to("float32") * 0.0)
            for _ in ctx.range(steps):
                with ring.consume() as stage:
                    acc.set(
                        acc.get() + ctx.load(slots[stage.index()][ctx.lane % 8, 0]).to("float32")
                    )
            with ctx.when(ctx.lane < 8):
                ctx.store(out[8 * tile + ctx.lane], acc.get())


@pytest.mark.parametrize(
    ("stages", "steps", "tiles"),
    [(2, 1, 5), (2, 3, 4), (3, 4, 3), (3, 7, 3), (4, 6, 3), (4, 8, 2), (5, 2, 7)],
)
def test_trip_counts_that_end_a_tile_in_the_middle_of_the_ring(
    stages: int, steps: int, tiles: int
) -> None:
    a, out = matrix(8 * tiles, 16 * steps), zeros(8 * tiles)
    program = tiles_of_a_stream.bind(
        tp.tensor_map(a, box=(8, 16)), out, tiles, steps, stages=stages
    )
    per_stage = [len(range(s, steps * tiles, stages)) for s in range(stages)]
    for run in clean(program):
        assert run.completions == {"ring.full": [per_stage], "ring.empty": [per_stage]}
        np.testing.assert_array_equal(out, a[:, ::16].astype(np.float32).sum(axis=1))
        out[:] = 0


# -- several pipelines -----------------------------------------------------------------


def two_rings(crossed: bool) -> tp.Program:
    @tp.kernel()
    def pair(ctx: tp.Context) -> None:
        a = tp.ProducerConsumerPipeline.allocate(ctx, 1, name="a")
        b = tp.ProducerConsumerPipeline.allocate(ctx, 1, name="b")

        @ctx.role("producer", warps=1)
        def producer() -> None:
            for _ in ctx.range(3):
                with a.produce() as stage:  # <fills a>
                    stage.mbar().arrive()
                a.wait_consumer()  # <until a is free>
                with b.produce() as stage:
                    stage.mbar().arrive()  # <fills b>

        @ctx.role("consumer", warps=1)
        def consumer() -> None:
            for _ in ctx.range(3):
                for ring in (b, a) if crossed else (a, b):
                    with ring.consume():  # <takes in order>
                        ctx.syncwarp()

    return pair.bind()


def test_two_pipelines_taken_in_crossed_order() -> None:
    words = (
        "2 of 2 agents",
        "a.empty",
        "b.full",
        "32 of 32 arrivals",
        "cycle: role 'producer' -> role 'consumer' -> role 'producer'",
    )
    faults(
        two_rings(True),
        tp.DeadlockError,
        *words,
        where("until a is free"),
        where("takes in order"),
        where("fills b"),
    )


def test_two_pipelines_taken_in_one_order() -> None:
    for run in clean(two_rings(False)):
        assert run.completions == {
            name: [[3]] for name in ("a.full", "a.empty", "b.full", "b.empty")
        }


def both_sides(order: str, stages: int) -> tp.Program:
    """One role on both sides of a ring: `p` fills a stage, `c` takes one."""

    @tp.kernel()
    def alone(ctx: tp.Context) -> None:
        ring = tp.ProducerConsumerPipeline.allocate(ctx, stages, name="ring")

        @ctx.role("both", warps=1)
        def both() -> None:
            for _ in ctx.range(3):
                for step in order:
                    if step == "p":
                        with ring.produce() as stage:  # <own empty>
                            stage.mbar().arrive()
                    else:
                        with ring.consume():  # <own full>
                            ctx.syncwarp()

    return alone.bind()


@pytest.mark.parametrize(
    ("order", "stages"), [("pc", 1), ("pc", 2), ("ppcc", 2), ("ppcc", 3), ("ppcpcc", 2)]
)
def test_one_role_is_producer_and_consumer(order: str, stages: int) -> None:
    for run in clean(both_sides(order, stages)):
        assert sum(run.completions["ring.full"][0]) == 3 * order.count("p")


@pytest.mark.parametrize(
    ("order", "stages", "barrier", "mark"),
    [("cp", 1, "ring.full", "own full"), ("ppc", 1, "ring.empty", "own empty")],
)
def test_one_role_waits_for_itself(order: str, stages: int, barrier: str, mark: str) -> None:
    words = ("1 of 1 agents", "role 'both'", barrier, "32 of 32 arrivals")
    faults(both_sides(order, stages), tp.DeadlockError, *words, where(mark))


def test_a_role_that_handles_no_pipeline() -> None:
    out = np.zeros(32, np.int32)

    @tp.kernel()
    def bystander(ctx: tp.Context, out: Any) -> None:
        ring = tp.ProducerConsumerPipeline.allocate(ctx, 2, name="ring")

        @ctx.role("producer", warps=1)
        def producer() -> None:
            produce(4)(ctx, ring)

        @ctx.role("bystander", warps=1)
        def other() -> None:
            ctx.store(out[ctx.lane], ctx.lane + 5)

        @ctx.role("consumer", warps=1)
        def consumer() -> None:
            consume(4)(ctx, ring)

    for run in clean(bystander.bind(out)):
        assert run.completions == {"ring.full": [[2, 2]], "ring.empty": [[2, 2]]}
        assert out.tolist() == list(range(5, 37))
        out[:] = 0
