"""The field's recurring bugs, one class after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import Array, at, clean, faults, matrix, refuses, refuted, zeros


def where(mark: str) -> str:
    return at(__file__, mark)


# -- arrive count ----------------------------------------------------------------------


@tp.kernel()
def four_warps(ctx: tp.Context, *, typed: int | None, raw: int) -> None:
    """One warp produces, the elected lanes of four warps release."""
    counts = {"producer_arrivals": 32, "consumer_arrivals": typed} if typed else {}
    ring = tp.ProducerConsumerPipeline.allocate(ctx, 1, name="ring", **counts)
    done = tp.SharedMemBarrier.allocate(ctx, raw, "done")

    @ctx.role("producer", warps=1)
    def producer() -> None:
        for _ in ctx.range(2):
            with ring.produce() as stage:
                stage.mbar().arrive()
        done.wait(0)  # <waits for all warps>

    @ctx.role("consumer", warps=4)
    def consumer() -> None:
        for _ in ctx.range(2):
            with ring.consume_explicit() as stage, ctx.elect_one():  # <four elected lanes>
                stage.mbar().arrive()
        with ctx.elect_one():
            done.arrive()  # <each warp's arrival>


@pytest.mark.parametrize(
    ("typed", "consequence"),
    [(128, "waits would never pass"), (1, "phases would complete before all have arrived")],
)
def test_a_typed_count_that_is_not_the_arrivals(typed: int, consequence: str) -> None:
    words = (
        f"'ring.empty' is given a count of {typed}",
        "each phase gets 4 arrivals",
        "1 × 4 warps = 4",
        "role 'consumer'",
        consequence,
    )
    refuses(
        lambda: four_warps.bind(typed=typed, raw=4),
        tp.CountError,
        *words,
        where("four elected lanes"),
    )


def test_a_raw_count_of_threads_where_warps_arrive() -> None:
    words = (
        "role 'producer'",
        "done",
        "124 of 128 arrivals",
        "every role that arrives on done has returned",
        "count is too high",
    )
    faults(
        four_warps.bind(typed=None, raw=128),
        tp.DeadlockError,
        *words,
        where("waits for all warps"),
        where("each warp's arrival"),
    )


def test_a_raw_count_below_the_arrivals() -> None:
    program = four_warps.bind(typed=None, raw=2)
    faults(
        program,
        tp.BarrierError,
        "done",
        "count",
        "role 'producer'",
        "phase 0",
        where("waits for all warps"),
        seeds=[0],
    )


def test_the_derived_count() -> None:
    for run in clean(four_warps.bind(typed=None, raw=4)):
        assert run.completions == {"ring.full": [[2]], "ring.empty": [[2]], "done": [[1]]}


# -- elect -----------------------------------------------------------------------------


@tp.kernel()
def elected_signal(ctx: tp.Context, out: Any, *, sync: str) -> None:
    words = ctx.smem((1, 64), "int32", swizzle=0, name="words")
    ready = tp.SharedMemBarrier.allocate(ctx, 1, "ready")

    @ctx.role("writer", warps=2)
    def writer() -> None:
        ctx.store(words[0][0, ctx.thread], 3 * ctx.thread)  # <every lane writes>
        if sync == "warp":
            ctx.syncwarp()
        elif sync == "role":
            ctx.sync_role()
        with ctx.elect_one("role"):
            ready.arrive()

    @ctx.role("reader", warps=1)
    def reader() -> None:
        ready.wait(0)
        ctx.store(out[ctx.lane], ctx.load(words[0][0, 63 - ctx.lane]))  # <reads the last words>


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["none", "warp"])
def test_one_elected_lane_signals_for_lanes_it_has_not_met(sync: str) -> None:
    program = elected_signal.bind(np.zeros(32, np.int32), sync=sync)
    words = (
        "race on words",
        "role 'writer'",
        "role 'reader'",
        where("reads the last words"),
        where("every lane writes"),
    )
    faults(program, tp.RaceError, *words, seeds=range(8))
    faults(program, tp.RaceError, "elected lane", "ctx.syncwarp()", "named barrier", seeds=[0])


def test_one_elected_lane_signals_for_all_that_have_met() -> None:
    out = np.zeros(32, np.int32)
    for _ in clean(elected_signal.bind(out, sync="role")):
        assert out.tolist() == [3 * (63 - lane) for lane in range(32)]
        out[:] = 0


# -- expect_tx, commit -----------------------------------------------------------------


@tp.kernel()
def announced(ctx: tp.Context, a: Any, out: Any, *, how: str) -> None:
    tile = ctx.smem((8, 16), a.dtype, name="tile")
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")

    @ctx.role("load", warps=1)
    def load() -> None:
        with ctx.elect_one():
            if how == "no arrive":
                full.expect_bytes_only(256)  # <no arrival>
            elif how == "arrive first":
                full.arrive()
                full.expect_bytes_only(256)
            elif how == "right":
                full.expect_bytes(256)
            ctx.tma_load(a, (0, 0), tile[0], full)  # <load>
            if how == "arrive after":
                full.arrive()  # <commit too early>

    @ctx.role("use", warps=1)
    def use() -> None:
        full.wait(0)  # <wait for the tile>
        with ctx.when(ctx.lane < 8):
            ctx.store(out[ctx.lane], ctx.load(tile[0][ctx.lane, 0]).to("float32"))  # <use>


def bind_announced(how: str) -> tuple[tp.Program, Array, Array]:
    a, out = matrix(8, 16), zeros(8)
    return announced.bind(tp.tensor_map(a, box=(8, 16)), out, how=how), a, out


def test_expect_tx_without_an_arrival() -> None:
    words = ("role 'use'", "full", "1 of 1 arrivals", "256 bytes, landed")
    faults(
        bind_announced("no arrive")[0],
        tp.DeadlockError,
        *words,
        where("wait for the tile"),
        where("no arrival"),
    )


def test_no_expect_at_all() -> None:
    words = ("role 'use'", "full", "1 of 1 arrivals", "no op calls expect_bytes", "256 bytes")
    faults(
        bind_announced("nothing")[0],
        tp.DeadlockError,
        *words,
        where("wait for the tile"),
        where("load"),
    )


def test_an_arrival_before_the_bytes_are_expected() -> None:
    faults(
        bind_announced("arrive first")[0],
        tp.RaceError,
        "tile",
        "role 'use'",
        "role 'load'",
        where("use"),
        where("load"),
    )


def test_a_commit_while_the_copy_is_in_flight() -> None:
    words = ("full", "phase 0", "256", "expect_bytes")
    faults(
        bind_announced("arrive after")[0],
        tp.BarrierError,
        *words,
        where("commit too early"),
        seeds=[0],
    )
    faults(bind_announced("arrive after")[0], tp.BarrierError, "full", "bytes", seeds=range(8))


def test_expect_then_copy() -> None:
    program, a, out = bind_announced("right")
    for run in clean(program):
        assert run.completions == {"full": [[1]]}
        np.testing.assert_array_equal(out, a[:, 0].astype(np.float32))
        out[:] = 0


# -- phases and trip counts ------------------------------------------------------------


@tp.kernel()
def phases_by_hand(
    ctx: tp.Context, out: Any, tiles: int, steps: int, *, stages: int, restart: bool
) -> None:
    """A consumer computes its phase from the step within the tile: right only while steps % (2 *
    stages) == 0.
    """
    slots = ctx.smem((1, 32), "int32", count=stages, swizzle=0, name="slots")
    ring = tp.ProducerConsumerPipeline.allocate(
        ctx, stages, producer_arrivals=32, consumer_arrivals=32, name="ring"
    )

    @ctx.role("producer", warps=1)
    def producer() -> None:
        for i in ctx.range(tiles * steps):
            with ring.produce() as stage:  # <producer acquires>
                ctx.store(slots[stage.index()][0, ctx.lane], i)
                stage.mbar().arrive()

    @ctx.role("consumer", warps=1)
    def consumer() -> None:
        for tile in ctx.range(tiles):
            for k in ctx.range(steps):
                i = ctx.let(k if restart else tile * steps + k, "i")
                ring.producer_mbar(i % stages).wait(i // stages % 2)  # <phase by hand>
                value = ctx.load(slots[i % stages][0, ctx.lane])  # <read by hand>
                ctx.store(out[tile * steps + k, ctx.lane], value)
                ring.consumer_mbar(i % stages).arrive()


@pytest.mark.parametrize(
    ("stages", "steps", "restart"),
    [(2, 4, True), (3, 6, True), (2, 8, True), (2, 3, False), (3, 4, False)],
)
def test_phase_arithmetic_that_holds(stages: int, steps: int, restart: bool) -> None:
    out = np.zeros((3 * steps, 32), np.int32)
    for _ in clean(phases_by_hand.bind(out, 3, steps, stages=stages, restart=restart)):
        np.testing.assert_array_equal(out[:, 7], np.arange(3 * steps))
        out[:] = 0


@pytest.mark.parametrize(("stages", "steps"), [(2, 1), (2, 2), (2, 3), (3, 4), (3, 5)])
def test_a_phase_lost_across_persistent_tiles(stages: int, steps: int) -> None:
    program = phases_by_hand.bind(
        np.zeros((3 * steps, 32), np.int32), 3, steps, stages=stages, restart=True
    )
    consumer = ("role 'consumer'", "phase by hand"), ("role 'consumer'", "read by hand")
    # the consumer passes a wait that it should not, and reads early or arrives too often
    for seed in range(6):
        with pytest.raises(tp.SimFault) as caught:
            program.run(seed=seed)
        message = str(caught.value)
        lapped = all(
            word in message
            for word in ("role 'producer'", "ring.empty[", "lapped", where("producer acquires"))
        )
        assert lapped or any(
            role in message and where(mark) in message for role, mark in consumer
        ), message
    refuted(program, tp.SimFault, "role 'consumer'")


@tp.kernel()
def disagreement(ctx: tp.Context, n: int, *, load_rounds_up: bool) -> None:
    """The two roles compute the number of steps differently."""
    ring = tp.ProducerConsumerPipeline.allocate(ctx, 2, name="ring")

    @ctx.role("load", warps=1)
    def load() -> None:
        for _ in ctx.range(ctx.ceil_div(n, 4) if load_rounds_up else n // 4):
            with ring.produce() as stage:  # <load waits>
                stage.mbar().arrive()
        ring.drain_producer()  # <load drains>

    @ctx.role("mma", warps=1)
    def mma() -> None:
        for _ in ctx.range(n // 4 if load_rounds_up else ctx.ceil_div(n, 4)):
            with ring.consume():  # <mma waits>
                ctx.syncwarp()


@pytest.mark.parametrize("n", [9, 14, 31])
def test_roles_disagree_on_the_iterations(n: int) -> None:
    faults(
        disagreement.bind(n, load_rounds_up=False),
        tp.DeadlockError,
        "role 'mma'",
        "ring.full[",
        "role 'load'",
        where("mma waits"),
    )
    words = ("role 'load'", "ring.empty[", "role 'mma' has returned", "trip counts")
    faults(
        disagreement.bind(n, load_rounds_up=True), tp.DeadlockError, *words, where("load drains")
    )


@pytest.mark.parametrize("n", [8, 32])
def test_roles_agree_by_luck(n: int) -> None:
    for run in clean(disagreement.bind(n, load_rounds_up=True)):
        assert sum(run.completions["ring.full"][0]) == n // 4


# -- leaders, named barriers -----------------------------------------------------------


@tp.kernel()
def leader(ctx: tp.Context, out: Any, n: int, *, meet: bool) -> None:
    """Two warps wait for a stage; one elected lane of the first frees it for both."""
    slots = ctx.smem((1, 32), "int32", count=1, swizzle=0, name="slots")
    ring = tp.ProducerConsumerPipeline.allocate(ctx, 1, name="ring")

    @ctx.role("producer", warps=1)
    def producer() -> None:
        for i in ctx.range(n):
            with ring.produce() as stage:
                ctx.store(slots[0][0, ctx.lane], i)  # <refill>
                stage.mbar().arrive()

    @ctx.role("consumer", warps=2)
    def consumer() -> None:
        for i in ctx.range(n):
            with ring.consume_explicit() as stage:  # <both wait>
                ctx.store(out[i, ctx.thread], ctx.load(slots[0][0, ctx.lane]))  # <both read>
                if meet:
                    ctx.sync_role()
                with ctx.elect_one("role"):
                    stage.mbar().arrive()


def test_the_leader_signals_before_its_sibling_has_left_its_wait() -> None:
    program = leader.bind(np.zeros((6, 64), np.int32), 6, meet=False)
    racing = ("race on slots", "role 'producer'", "role 'consumer'", where("refill"))
    lapped = ("role 'consumer'", "ring.full", "lapped", where("both wait"))
    for seed in range(12):
        with pytest.raises((tp.RaceError, tp.BarrierError)) as caught:
            program.run(seed=seed)
        words = racing if isinstance(caught.value, tp.RaceError) else lapped
        assert all(w in str(caught.value) for w in words), f"seed {seed}: {caught.value}"
    refuted(program, tp.SimFault, "role 'consumer'")


def test_the_leader_signals_after_all_have_met() -> None:
    out = np.zeros((6, 64), np.int32)
    for _ in clean(leader.bind(out, 6, meet=True)):
        np.testing.assert_array_equal(out, np.broadcast_to(np.arange(6)[:, None], (6, 64)))
        out[:] = 0


def test_a_named_barrier_that_some_warps_skip() -> None:
    @tp.kernel()
    def skipped(ctx: tp.Context) -> None:
        @ctx.role("pair", warps=2)
        def pair() -> None:
            with ctx.when(ctx.warp == 0):
                ctx.sync_role()  # <only warp 0>

    words = (
        "role 'pair' warp 0",
        "pair.role",
        "32 of 64 threads",
        "it counts 64, 32 have arrived (role 'pair' has 64).",
        where("only warp 0"),
    )
    faults(skipped.bind(), tp.DeadlockError, *words)


# -- proxies and the tensor core -------------------------------------------------------


@tp.kernel()
def written_operand(ctx: tp.Context, out: Any, *, fence: str) -> None:
    """A warpgroup writes the operands of its MMA with ordinary stores."""
    a_tile, b_tile = (
        ctx.smem((64, 16), "bfloat16", name="a_tile"),
        ctx.smem((8, 16), "bfloat16", name="b_tile"),
    )
    c_tile = ctx.smem((64, 8), "float32", swizzle=0, name="c_tile")

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        acc = ctx.accumulator((64, 8))
        acc.fill(0)
        with ctx.when(ctx.thread < 64):
            for k in range(16):
                ctx.store(a_tile[0][ctx.thread, k], ctx.thread % 5)  # <ordinary write>
        with ctx.when(ctx.thread < 8):
            for k in range(16):
                ctx.store(b_tile[0][ctx.thread, k], ctx.thread)
        if fence == "before":
            ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        ctx.mma(acc, a_tile[0], b_tile[0])  # <mma reads>
        if fence == "after":
            ctx.fence_proxy_async()
        ctx.wgmma_commit()
        ctx.wgmma_wait(0)
        ctx.store(c_tile[0], acc)
        ctx.sync_warpgroup()
        with ctx.when(ctx.thread < 64):
            for j in range(8):
                ctx.store(out[ctx.thread, j], ctx.load(c_tile[0][ctx.thread, j]))


@pytest.mark.slow
@pytest.mark.parametrize("fence", ["none", "after"])
def test_an_mma_reads_ordinary_writes_without_a_proxy_fence(fence: str) -> None:
    words = (
        "between proxies on a_tile",
        "role 'mma'",
        "fence_proxy_async",
        where("ordinary write"),
        where("mma reads"),
    )
    faults(written_operand.bind(zeros(64, 8), fence=fence), tp.RaceError, *words, seeds=(0, 1))


def test_an_mma_reads_ordinary_writes_after_a_proxy_fence() -> None:
    out = zeros(64, 8)
    for _ in clean(written_operand.bind(out, fence="before"), seeds=(0, 1)):
        np.testing.assert_array_equal(out, 16.0 * np.outer(np.arange(64) % 5, np.arange(8)))


# -- capacity --------------------------------------------------------------------------


@tp.kernel()
def two_at_once(ctx: tp.Context, n: int, *, stages: int) -> None:
    """The consumer needs two stages before it frees either."""
    ring = tp.ProducerConsumerPipeline.allocate(
        ctx, stages, producer_arrivals=1, consumer_arrivals=1, name="ring"
    )

    @ctx.role("producer", warps=1)
    def producer() -> None:
        for _ in ctx.range(2 * n):
            with ring.produce() as stage, ctx.elect_one():  # <one at a time>
                stage.mbar().arrive()

    @ctx.role("consumer", warps=1)
    def consumer() -> None:
        for _ in ctx.range(n):
            first = ring.consumer_stage()
            ring.wait_producer()
            ring.consumer_step()
            second = ring.consumer_stage()
            ring.wait_producer()  # <the second stage>
            ring.consumer_step()
            with ctx.elect_one():
                ring.consumer_mbar(first).arrive()
                ring.consumer_mbar(second).arrive()


def test_a_ring_too_small_for_what_is_held_at_once() -> None:
    words = (
        "ring.full",
        "ring.empty",
        "1 of 1 arrivals",
        "cycle: role 'producer' -> role 'consumer' -> role 'producer'",
    )
    faults(
        two_at_once.bind(3, stages=1),
        tp.DeadlockError,
        *words,
        where("one at a time"),
        where("the second stage"),
    )


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_a_ring_large_enough_for_what_is_held_at_once(stages: int) -> None:
    for run in clean(two_at_once.bind(3, stages=stages)):
        assert sum(run.completions["ring.full"][0]) == 6
        assert sum(run.completions["ring.empty"][0]) == 6
