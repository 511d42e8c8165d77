"""Faults that need an order which seeds rarely take, found by the checker; and what is right in
every order, proved.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.scenarios.support import at, refuted, verified


def where(mark: str) -> str:
    return at(__file__, mark)


def no_run_shows(program: tp.Program, seeds: Iterable[int]) -> None:
    """These runs end well."""
    for seed in seeds:
        program.run(seed=seed)


# -- a leader and its siblings ---------------------------------------------------------


@tp.kernel()
def led(ctx: tp.Context, n: int, *, meet: bool) -> None:
    """Two warps wait for a stage of a ring, and one lane frees it for both."""
    ring = tp.ProducerConsumerPipeline.allocate(ctx, 1, name="ring")

    @ctx.role("producer", warps=1)
    def producer() -> None:
        for _ in ctx.range(n):
            with ring.produce() as stage:
                stage.mbar().arrive()  # <fills again>

    @ctx.role("consumer", warps=2)
    def consumer() -> None:
        for _ in ctx.range(n):
            with ring.consume_explicit() as stage:  # <both wait>
                if meet:
                    ctx.sync_role()
                with ctx.elect_one("role"):
                    stage.mbar().arrive()


def test_a_leader_signals_before_its_sibling_has_left_its_wait() -> None:
    no_run_shows(led.bind(6, meet=False), range(8))
    words = (
        "role 'consumer' warp 1 waits for phase",
        "of ring.full",
        "it was lapped",
        "32 by role 'producer'",
        "The arriving role ran ahead",
    )
    refuted(
        led.bind(6, meet=False), tp.BarrierError, *words, where("both wait"), where("fills again")
    )


def test_a_leader_signals_after_all_have_met() -> None:
    assert verified(led.bind(6, meet=True)).completions == {"ring.full": [[6]], "ring.empty": [[6]]}


# -- tests of barriers -----------------------------------------------------------------


@tp.kernel()
def woken(ctx: tp.Context, *, asks: bool) -> None:
    """A sleeper looks whether the work is there, and else asks to be woken; the worker looks
    whether anybody has asked, once.
    """
    done, asked, wake = (
        tp.SharedMemBarrier.allocate(ctx, 1, name) for name in ("done", "asked", "wake")
    )

    @ctx.role("sleeper", warps=1)
    def sleeper() -> None:
        there = done.try_wait(0)
        with ctx.when(~there):
            if asks:
                with ctx.elect_one():
                    asked.arrive()
                wake.wait(0)  # <sleeps>
            else:
                done.wait(0)

    @ctx.role("worker", warps=1)
    def worker() -> None:
        with ctx.elect_one():
            done.arrive()
        if asks:
            wanted = asked.try_wait(0)
            with ctx.when(wanted), ctx.elect_one():
                wake.arrive()  # <wakes>


def test_a_wake_up_is_lost() -> None:
    """The worker looks after the sleeper has looked, and before it has asked."""
    words = (
        "deadlock: 1 of 2 agents",
        "role 'sleeper'",
        "wake",
        "1 of 1 arrivals",
        "role 'worker' has returned",
        "was never executed",
    )
    refuted(woken.bind(asks=True), tp.DeadlockError, *words, where("sleeps"), where("wakes"))


def test_a_sleeper_that_waits_for_the_work_itself() -> None:
    verified(woken.bind(asks=False))


@tp.kernel()
def polled(ctx: tp.Context, out: Any, n: int, *, how: str) -> None:
    """A ring whose consumer tests before it takes: it waits, spins, or skips the item, where the
    test says no.
    """
    ring = tp.ProducerConsumerPipeline.allocate(
        ctx, 2, producer_arrivals=32, consumer_arrivals=32, name="ring"
    )
    words = ctx.smem((1, 32), "int32", count=2, swizzle=0, name="words")

    @ctx.role("producer", warps=1)
    def producer() -> None:
        for i in ctx.range(n):
            free = ring.try_wait_consumer()
            ring.wait_consumer_if_needed(free)
            stage = ring.producer_stage()
            ctx.store(words[stage][0, ctx.lane], i)
            ring.producer_mbar(stage).arrive()
            ring.producer_step()

    @ctx.role("consumer", warps=1)
    def consumer() -> None:
        for i in ctx.range(n):
            ready = ring.try_wait_producer()  # <tests>
            stage = ring.consumer_stage()
            if how == "waits":
                ring.wait_producer_if_needed(ready)
            elif how == "spins":
                late = ctx.var(~ready)
                for _ in ctx.loop_while(late):
                    late.set(~ring.try_wait_producer())
            with ctx.when(ready) if how == "skips" else ctx.when(i >= 0):
                ctx.store(out[i, ctx.lane], ctx.load(words[stage][0, ctx.lane]))
            ring.consumer_mbar(stage).arrive()  # <frees>
            ring.consumer_step()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["waits", "spins"])
def test_a_consumer_that_tests_first(how: str) -> None:
    program = polled.bind(np.zeros((3, 32), np.int32), 3, how=how)
    assert verified(program).completions == {"ring.full": [[2, 1]], "ring.empty": [[2, 1]]}


def test_a_consumer_that_frees_what_it_has_not_waited_for() -> None:
    words = (
        "role 'consumer'",
        "Released out of turn",
        "ring.empty[0]",
        "filled 0 times",
        "a release without its wait",
    )
    refuted(
        polled.bind(np.zeros((3, 32), np.int32), 3, how="skips"),
        tp.BarrierError,
        *words,
        where("frees"),
    )


# -- phases that straddle --------------------------------------------------------------


@tp.kernel()
def straddling(ctx: tp.Context, out: Any, *, told: bool) -> None:
    """Two warps write a word each and arrive on one barrier of count 2; the second arrival of the
    quick one waits for a third role, which (`told`) has heard of both words, or of nothing.
    """
    words = ctx.smem((1, 32), "int32", swizzle=0, name="words")
    both, go = (
        tp.SharedMemBarrier.allocate(ctx, 2, "both"),
        tp.SharedMemBarrier.allocate(ctx, 1, "go"),
    )

    @ctx.role("slow", warps=1)
    def slow() -> None:
        with ctx.elect_one():
            ctx.store(words[0][0, 0], 1)  # <slow writes>
            both.arrive()

    @ctx.role("starter", warps=1)
    def starter() -> None:
        if told:
            both.wait(0)
        with ctx.elect_one():
            go.arrive()

    @ctx.role("quick", warps=1)
    def quick() -> None:
        with ctx.elect_one():
            ctx.store(words[0][0, 1], 2)
            both.arrive()  # <first>
        go.wait(0)
        with ctx.elect_one():
            both.arrive()  # <second>

    @ctx.role("reader", warps=1)
    def reader() -> None:
        both.wait(0)
        with ctx.elect_one():
            ctx.store(out[0], ctx.load(words[0][0, 0]) + ctx.load(words[0][0, 1]))  # <reads both>


def test_a_phase_completes_with_two_arrivals_of_one_agent() -> None:
    no_run_shows(straddling.bind(np.zeros(1, np.int32), told=False), [0])
    refuted(
        straddling.bind(np.zeros(1, np.int32), told=False),
        tp.SimFault,
        "role 'reader'",
        "words",
        where("reads both"),
    )


def test_an_arrival_of_the_next_phase_by_who_knows_that_this_one_is_over() -> None:
    verified(straddling.bind(np.zeros(1, np.int32), told=True))


# -- work that is shared out -----------------------------------------------------------


@tp.kernel(grid=lambda ctas: ctas)
def ticketed(ctx: tp.Context, counter: Any, out: Any, n: int, *, ctas: int, apart: bool) -> None:
    """The tiles below `n` go to whoever draws them from a counter; `apart`: both roles of a CTA
    draw for themselves.
    """
    ring = tp.ProducerConsumerPipeline.allocate(ctx, 1, name="ring")
    drawn = ctx.smem((1, 32), "int32", swizzle=0, name="drawn")
    told = tp.ProducerConsumerPipeline.allocate(ctx, 1, name="told")

    @ctx.role("load", warps=1)
    def load() -> None:
        more = ctx.var(True)
        for _ in ctx.loop_while(more):
            if apart:
                with ctx.elect_one():
                    ctx.store(drawn[0][0, 0], ctx.atomic_add(counter[0], 1))
                ctx.syncwarp()
                tile = ctx.load(drawn[0][0, 0])
            else:
                with told.produce() as stage:
                    with ctx.elect_one():
                        ctx.store(drawn[0][0, 0], ctx.atomic_add(counter[0], 1))
                    ctx.syncwarp()
                    stage.mbar().arrive()
                tile = ctx.load(drawn[0][0, 0])
            more.set(tile < n)
            ctx.syncwarp()
            with ctx.when(tile < n), ring.produce() as stage:  # <loads>
                stage.mbar().arrive()

    @ctx.role("mma", warps=1)
    def mma() -> None:
        more = ctx.var(True)
        for _ in ctx.loop_while(more):
            if apart:
                with ctx.elect_one():
                    ctx.store(drawn[0][0, 1], ctx.atomic_add(counter[0], 1))
                ctx.syncwarp()
                tile = ctx.load(drawn[0][0, 1])
            else:
                with told.consume():
                    tile = ctx.load(drawn[0][0, 0])
            more.set(tile < n)
            ctx.syncwarp()
            with ctx.when(tile < n), ring.consume(), ctx.elect_one():  # <multiplies>
                ctx.store(out[tile], 1)


def bind_ticketed(ctas: int, apart: bool, n: int = 3) -> tp.Program:
    return ticketed.bind(np.zeros(1, np.int32), np.zeros(n, np.int32), n, ctas=ctas, apart=apart)


def test_two_roles_that_draw_tiles_for_themselves() -> None:
    """Of three tiles one role gets more than the other."""
    words = (
        "deadlock",
        "role 'mma'",
        "ring.full",
        "32 of 32 arrivals",
        "role 'load' has returned",
        "trip counts of the roles differ",
    )
    refuted(bind_ticketed(1, apart=True), tp.DeadlockError, *words, where("multiplies"))


@pytest.mark.parametrize("ctas", [1, 2])
def test_one_role_draws_and_tells_the_other(ctas: int) -> None:
    verified(bind_ticketed(ctas, apart=False, n=2))


# -- columns of tensor memory ----------------------------------------------------------


@tp.kernel()
def contended(ctx: tp.Context, *, holder_first: bool, frees: bool) -> None:
    """Two roles of which each takes all columns; the holder keeps its own (unless `frees`) until
    the other has had some.
    """
    left, right = tp.TmemAllocation(ctx, 512), tp.TmemAllocation(ctx, 512)
    go = tp.SharedMemBarrier.allocate(ctx, 1, "go")

    def hold() -> None:
        left.allocate()  # <holds>
        if frees:
            left.deallocate()
        go.wait(0)  # <waits while it holds>
        if not frees:
            left.deallocate()

    def start() -> None:
        right.allocate()  # <wants columns>
        with ctx.elect_one():
            go.arrive()
        right.deallocate()

    roles = [("holder", hold), ("starter", start)]
    for name, body in roles if holder_first else roles[::-1]:
        ctx.role(name, warps=1)(body)


@pytest.mark.parametrize("holder_first", [True, False])
def test_columns_are_taken_in_an_order_that_locks(holder_first: bool) -> None:
    """Only where the holder comes first."""
    program = contended.bind(holder_first=holder_first, frees=False)
    no_run_shows(program, [0, 1] if holder_first else [2, 3])
    words = (
        "deadlock: 2 of 2 agents",
        "role 'holder' holds 512 columns",
        "before it frees them",
        "allocate once for both",
    )
    refuted(
        program,
        tp.DeadlockError,
        *words,
        where("holds"),
        where("waits while it holds"),
        where("wants columns"),
    )


@pytest.mark.parametrize("holder_first", [True, False])
def test_columns_are_freed_before_the_wait(holder_first: bool) -> None:
    verified(contended.bind(holder_first=holder_first, frees=True))


# -- named barriers --------------------------------------------------------------------


@tp.kernel()
def met(ctx: tp.Context, out: Any, *, how: str) -> None:
    """A writer hands two words to a reader at one named barrier, one after the other."""
    words = ctx.smem((1, 32), "int32", count=2, swizzle=0, name="words")
    handed = ctx.named_barrier(64, "handed")

    @ctx.role("writer", warps=1)
    def writer() -> None:
        for i in range(2):
            ctx.store(words[i][0, ctx.lane], i)  # <writes>
            if how == "writer arrives":
                handed.arrive()  # <arrives>
            else:
                handed.sync()

    @ctx.role("reader", warps=1)
    def reader() -> None:
        for i in range(2):
            if how == "reader arrives":
                handed.arrive()  # <does not wait>
            else:
                handed.sync()
            ctx.store(out[i, ctx.lane], ctx.load(words[i][0, ctx.lane]))  # <reads>


def test_a_named_barrier_is_arrived_at_again_before_it_was_reset() -> None:
    program = met.bind(np.zeros((2, 32), np.int32), how="writer arrives")
    no_run_shows(program, range(1, 8))
    words = (
        "role 'writer' arrives at named barrier 'handed' again before it was reset",
        "32 of 64 threads",
        "Sync instead",
    )
    refuted(program, tp.BarrierError, *words, where("arrives"))


def test_an_arrive_where_a_sync_was_meant() -> None:
    words = (
        "words[0]",
        "role 'reader'",
        "does not wait",
        "Use .sync()",
        where("does not wait"),
        where("reads"),
    )
    refuted(met.bind(np.zeros((2, 32), np.int32), how="reader arrives"), tp.SimFault, *words)


def test_both_sync() -> None:
    verified(met.bind(np.zeros((2, 32), np.int32), how="both sync"))
