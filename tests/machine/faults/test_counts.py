"""A barrier that counts fewer arrivals than come is blamed by name, with who arrives, instead of
what goes wrong because of it.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.check import Fault

X = np.ones((2, 32), np.float32)
OUT = np.zeros_like(X)


def fault(program: tp.Program) -> Fault:
    verdict = program.check()
    assert verdict.faults
    return verdict.faults[0]


@tp.kernel(grid=2, cluster=2)
def push(ctx: tp.Context, x: tp.GlobalTensor, out: tp.GlobalTensor, *, count: int) -> None:
    """Each CTA stores into both, arrives on the barrier of both, and reads what came."""
    part = ctx.smem((1, 32), tp.float32, count=2, swizzle=0, name="part")
    bar = tp.SharedMemBarrier.allocate(ctx, count=count, name="bar")

    @ctx.role("sum", warps=1)
    def sums() -> None:
        for rank in range(2):
            ctx.store(part[ctx.cta_rank].on(rank)[0, ctx.lane], ctx.load(x[0, ctx.lane]))
        ctx.syncwarp()
        with ctx.elect_one():
            for rank in range(2):
                bar.on(rank).arrive()
        bar.wait(0)
        both = ctx.load(part[0][0, ctx.lane]) + ctx.load(part[1][0, ctx.lane])
        ctx.store(out[ctx.block_id, ctx.lane], both)
        ctx.cluster_arrive()
        ctx.cluster_wait()


@tp.kernel(grid=1)
def rounds(
    ctx: tp.Context, x: tp.GlobalTensor, out: tp.GlobalTensor, *, full_count: int, empty_count: int
) -> None:
    """Two warps store a row each, two read both rows, for three rounds."""
    part = ctx.smem((1, 32), tp.float32, count=2, swizzle=0, name="part")
    full = tp.SharedMemBarrier.allocate(ctx, count=full_count, name="full")
    empty = tp.SharedMemBarrier.allocate(ctx, count=empty_count, name="empty")

    def producer(k: int) -> None:
        @ctx.role(f"p{k}", warps=1)
        def produce() -> None:
            for r in range(3):
                empty.wait((r + 1) % 2)
                ctx.store(part[k][0, ctx.lane], ctx.load(x[k, ctx.lane]))
                ctx.syncwarp()
                with ctx.elect_one():
                    full.arrive()

    def consumer(k: int) -> None:
        @ctx.role(f"c{k}", warps=1)
        def consume() -> None:
            for r in range(3):
                full.wait(r % 2)
                both = ctx.load(part[0][0, ctx.lane]) + ctx.load(part[1][0, ctx.lane])
                ctx.store(out[k, ctx.lane], both)
                ctx.syncwarp()
                with ctx.elect_one():
                    empty.arrive()

    producer(0)
    producer(1)
    consumer(0)
    consumer(1)


@tp.kernel(grid=1)
def four_warps(ctx: tp.Context, x: tp.GlobalTensor, out: tp.GlobalTensor, *, count: int) -> None:
    """Each warp of a warpgroup stores a row and arrives; another warp reads the last row."""
    part = ctx.smem((4, 32), tp.float32, count=1, swizzle=0, name="part")
    full = tp.SharedMemBarrier.allocate(ctx, count=count, name="full")

    @ctx.role("p", warpgroups=1)
    def produce() -> None:
        with ctx.per_warp() as w:
            ctx.store(part[0][w, ctx.lane], ctx.load(x[0, ctx.lane]))
            ctx.syncwarp()
            with ctx.elect_one():
                full.arrive()

    @ctx.role("c", warps=1)
    def consume() -> None:
        full.wait(0)
        ctx.store(out[0, ctx.lane], ctx.load(part[0][3, ctx.lane]))


@tp.kernel(grid=1)
def copies(ctx: tp.Context, x: tp.GlobalTensor, out: tp.GlobalTensor, *, count: int) -> None:
    """Two warps copy a row each, for one phase."""
    part = ctx.smem((1, 32), tp.float32, count=2, swizzle=0, name="part")
    full = tp.SharedMemBarrier.allocate(ctx, count=count, name="full")

    def producer(k: int) -> None:
        @ctx.role(f"p{k}", warps=1)
        def produce() -> None:
            with ctx.elect_one():
                full.expect_bytes(128)
                ctx.tma_load(x, (k, 0), part[k], full)

    producer(0)
    producer(1)

    @ctx.role("c", warps=1)
    def consume() -> None:
        full.wait(0)
        ctx.store(out[0, ctx.lane], ctx.load(part[0][0, ctx.lane]) + ctx.load(part[1][0, ctx.lane]))


@tp.kernel(grid=1)
def through_global(
    ctx: tp.Context, x: tp.GlobalTensor, out: tp.GlobalTensor, *, count: int
) -> None:
    """One warp stores to global memory and arrives, another only arrives, a third reads."""
    full = tp.SharedMemBarrier.allocate(ctx, count=count, name="full")
    late = tp.SharedMemBarrier.allocate(ctx, count=1, name="late")

    @ctx.role("c", warps=1)
    def consume() -> None:
        full.wait(0)
        ctx.store(out[0, ctx.lane], ctx.load(x[0, ctx.lane]))

    @ctx.role("p0", warps=1)
    def first() -> None:
        late.wait(0)
        ctx.store(x[0, ctx.lane], 1.0)
        ctx.syncwarp()
        with ctx.elect_one():
            full.arrive()

    @ctx.role("p1", warps=1)
    def second() -> None:
        with ctx.elect_one():
            full.arrive()
            late.arrive()


@pytest.mark.parametrize(
    "program",
    [
        push.bind(X, OUT, count=2),
        rounds.bind(X, OUT, full_count=2, empty_count=2),
        four_warps.bind(X, OUT, count=4),
        through_global.bind(X.copy(), OUT, count=2),
    ],
    ids=["push", "rounds", "four_warps", "through_global"],
)
def test_the_right_counts_are_verified(program: tp.Program) -> None:
    assert program.check().ok


def test_a_race_in_a_cluster() -> None:
    error = fault(push.bind(X, OUT, count=1))
    assert error.kind == "RaceError"
    assert (
        "Phase 0 of bar of CTA 1, on which role 'sum' of CTA 1 waits, was complete without role"
        " 'sum' of CTA 0. bar of CTA 1 counts 1 arrival a phase, and 2 come: 1 by role 'sum' of"
        " CTA 1 (test_counts.py:"
    ) in error.message
    assert "Unless they take turns, its count must be 2." in error.message


def test_a_lapped_wait() -> None:
    error = fault(rounds.bind(X, OUT, full_count=1, empty_count=2))
    assert error.kind == "BarrierError"
    assert "full counts 1 arrival a phase, and 2 come: 1 by role 'p0'" in error.message
    assert "Unless they take turns, its count must be 2. Or the arriving role ran" in error.message


def test_another_barrier_than_the_one_that_is_lapped() -> None:
    error = fault(rounds.bind(X, OUT, full_count=2, empty_count=1))
    assert "waits for phase 0 of full" in error.message
    assert "empty counts 1 arrival a phase, and 2 come: 1 by role 'c0'" in error.message
    assert "the count of 2 is too low" not in error.message


@pytest.mark.parametrize(("count", "come", "must"), [(1, 2, "at least 2"), (2, 4, "4")])
def test_the_warps_of_one_role(count: int, come: int, must: str) -> None:
    """They are no agent that arrives twice."""
    error = fault(four_warps.bind(X, OUT, count=count))
    plural = "s" * (count > 1)
    assert f"full counts {count} arrival{plural} a phase, and {come} come: {come} by role 'p'" in (
        error.message
    )
    assert f"its count must be {must}." in error.message
    assert "meant for the phase after" not in error.message


def test_an_over_arrival_while_bytes_are_to_come() -> None:
    error = fault(copies.bind(tp.tensor_map(X, box=(1, 32), swizzle=0), OUT, count=1))
    assert "over-arrival on full: role 'p1' arrives 1 time(s)" in error.message
    assert "full counts 1 arrival a phase, and 2 come: 1 by role 'p0'" in error.message


def test_a_race_on_global_memory() -> None:
    error = fault(through_global.bind(X.copy(), OUT, count=1))
    assert error.kind == "RaceError"
    assert (
        "Phase 0 of full, on which role 'c' waits, was complete without role 'p0'." in error.message
    )
    assert "its count must be 2." in error.message


def test_a_count_that_is_too_high_is_no_first_wait_too_late() -> None:
    """The producers' second wait is in a line of its own op, for they unroll their rounds."""
    error = fault(rounds.bind(X, OUT, full_count=3, empty_count=2))
    assert error.kind == "DeadlockError"
    assert "full got 2 of 3 arrivals: its count is too high, or one side does not" in error.message
    assert "before it has filled anything" not in error.message


@tp.kernel(grid=1)
def after_another(ctx: tp.Context, x: tp.GlobalTensor) -> None:
    """A barrier of two arrivals is used and ended; then a warp arrives twice on another one."""
    gone = tp.SharedMemBarrier.allocate(ctx, count=2, name="gone")
    go, full = (tp.SharedMemBarrier.allocate(ctx, count=1, name=name) for name in ("go", "full"))

    @ctx.role("c", warps=1)
    def consume() -> None:
        gone.wait(0)
        with ctx.elect_one():
            gone.inval()
            go.arrive()
        ctx.syncwarp()
        full.wait(0)

    def producer(k: int) -> None:
        @ctx.role(f"p{k}", warps=1)
        def produce() -> None:
            with ctx.elect_one():
                gone.arrive()
            if k == 0:
                go.wait(0)
                with ctx.elect_one():
                    full.arrive()
                    full.arrive()

    producer(0)
    producer(1)


def test_a_barrier_that_has_ended_is_not_blamed() -> None:
    error = fault(after_another.bind(X))
    assert "waits for phase 0 of full" in error.message
    assert "gone counts" not in error.message
