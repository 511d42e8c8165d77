"""ClcScheduler and AtomicScheduler: every tile exactly once whoever takes it, counts, and what
tracing refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tilepipe as tp
from tests.scenarios.support import refuses
from tests.support.examples import share
from tests.support.scheduler_orders import Dealt
from tilepipe.ir import ops
from tilepipe.ir.program import Kernel, walk

SHAPES: dict[int, list[tuple[int, int] | None]] = {
    1: [None],
    2: [None, (2, 1), (1, 2), (1, 1)],
    4: [(4, 1), (1, 4), (2, 2), (2, 1)],
    8: [(4, 2)],
}
KINDS = ("clc", "atomic", "static")
SMALL = tp.Chip(name="small", sms=8, clusters=((2, 3), (4, 1), (8, 1)))


@pytest.mark.slow
@given(
    data=st.data(),
    kind=st.sampled_from(KINDS),
    batches=st.integers(1, 2),
    m=st.integers(1, 7),
    n=st.integers(1, 6),
    clusters=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=share(20))
def test_every_tile_exactly_once(
    data: st.DataObject, kind: str, batches: int, m: int, n: int, clusters: int, seed: int
) -> None:
    size = data.draw(st.sampled_from([1, 2, 4]), "cluster size")
    shape = data.draw(st.sampled_from(SHAPES[size]), "scheduler's cluster")
    raster = data.draw(st.sampled_from(["rows", "columns", "grouped"]), "raster")
    stages, warpgroups = (
        data.draw(st.integers(1, 4), "stages"),
        data.draw(st.integers(1, 2), "warpgroups"),
    )
    room = data.draw(st.sampled_from([0, 200]), "room")
    problem = Dealt(
        kind, batches, m, n, clusters, size, shape, raster, 2, stages, warpgroups, room, SMALL
    )
    program = problem.bind()
    for s in (seed, 0):
        assert program.run(seed=s).advice == []
        problem.check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [0, 1])
def test_no_tiles(kind: str, m: int) -> None:
    problem = Dealt(kind, 1, m, 1 - m, 3)
    problem.bind().run(seed=1)
    problem.check()


@pytest.mark.parametrize("seed", range(4))
def test_a_grid_larger_than_there_are_tiles(seed: int) -> None:
    problem = Dealt("clc", 1, 2, 2, 0)
    problem.clusters, problem.taken = 9, np.zeros(9, np.int32)
    problem.bind().run(seed=seed)
    problem.check()
    problem = Dealt("atomic", 1, 2, 2, 9)
    problem.bind().run(seed=seed)
    problem.check()


# -- counts ----------------------------------------------------------------------------


def counts(kernel: Kernel) -> dict[str, int | None]:
    return {array.name: array.count for array in kernel.barriers}


@pytest.mark.parametrize("kind", ["clc", "atomic"])
@pytest.mark.parametrize(("size", "shape"), [(1, (1, 1)), (2, (2, 1)), (8, (4, 2))])
@pytest.mark.parametrize("warpgroups", [1, 2])
def test_counts(kind: str, size: int, shape: tuple[int, int], warpgroups: int) -> None:
    """The formula of the kernels of this family: the scheduler warp, and in each CTA every thread
    of each role that handles tiles.
    """
    kernel = Dealt(kind, 1, 8, 8, 2, size, shape, warpgroups=warpgroups).bind().kernel
    assert counts(kernel) == {
        "work.full": 1,
        "work.empty": 32 + size * (32 + 128 * warpgroups),
        "work_throttle.full": 32,
        "work_throttle.empty": 32,
    }


@tp.kernel(grid=8, cluster=2)
def pairs(ctx: tp.Context, m: Any, *, both: bool) -> None:
    """A kernel whose MMAs are issued by the even CTA; the MMA warps of `both` iterate, or the even
    CTA's only.
    """
    work = tp.ClcScheduler(ctx, (m, 1), cluster=(2, 1))

    @ctx.role("schedule", warps=1)
    def schedule() -> None:
        work.schedule()

    @ctx.role("load", warps=1)
    def load() -> None:
        for _ in work:
            work.throttle_signal()

    @ctx.role("mma", warps=1)
    def mma() -> None:
        if both:
            for _ in work:
                with ctx.when(ctx.cta_rank == 0):
                    ctx.syncwarp()
        else:
            with ctx.when(ctx.cta_rank == 0):
                for _ in work:
                    ctx.syncwarp()

    @ctx.role("epilogue", warpgroups=1)
    def epilogue() -> None:
        for _ in work:
            pass


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("seed", [1, 5])
def test_counts_and_completions_of_a_pair(both: bool, seed: int) -> None:
    program = pairs.bind(8, both=both)
    assert counts(program.kernel)["work.empty"] == 32 + 2 * (32 + 128) + (64 if both else 32)
    run = program.run(seed=seed)
    for block, (full, empty) in enumerate(
        zip(run.completions["work.full"], run.completions["work.empty"], strict=True)
    ):
        assert empty == (full if block % 2 == 0 else [0] * len(full)), (
            "answers are handed back to CTA 0 of the cluster"
        )
    assert sum(sum(full) for full in run.completions["work.full"][::2]) == 4, (
        "a request for each step"
    )


# -- one interface ---------------------------------------------------------------------


def test_the_static_scheduler_takes_the_same_calls() -> None:
    kernel = Dealt("static", 1, 4, 4, 2).bind().kernel
    assert [role.name for role in kernel.roles] == ["load", "use"]
    assert not kernel.barriers


def test_the_scheduler_works_out_no_tiles() -> None:
    """The scheduler warp walks the steps, not what they stand for."""
    kernel = Dealt("clc", 2, 9, 9, 1, raster="grouped").bind().kernel
    (schedule,) = (role for role in kernel.roles if role.name == "schedule")
    named = {op.local.name for op in walk(schedule.body) if isinstance(op, ops.Let)}
    assert named == {"steps"}


def test_one_request_for_each_tile() -> None:
    problem = Dealt("clc", 1, 5, 5, 0, chip=SMALL, room=200)
    run = problem.bind().run()
    (schedule,) = (role for role in run.roles if role.name == "schedule")
    assert schedule.ops["clc_try_cancel"] == problem.steps
    problem = Dealt("atomic", 1, 5, 5, 4)
    (schedule,) = (role for role in problem.bind().run().roles if role.name == "schedule")
    assert schedule.ops["atomic_add"] == problem.steps + 1, (
        "one ticket a tile, and the counter is put back"
    )


# -- what is refused -------------------------------------------------------------------


def bound(body: Callable[[tp.Context, Any], object], *args: Any, grid: int = 4) -> tp.Program:
    """A kernel whose function calls `body`."""

    @tp.kernel(grid=grid)
    def wrong(ctx: tp.Context, counter: Any) -> None:
        body(ctx, counter)

    return wrong.bind(*(args or (np.zeros(1, np.int32),)))


def test_a_role_that_iterates_twice() -> None:
    def twice(ctx: tp.Context, counter: Any) -> None:
        work = tp.AtomicScheduler(ctx, counter, (2, 2))

        @ctx.role("load", warps=1)
        def load() -> None:
            for _ in work:
                pass
            for _ in work:
                pass

    refuses(lambda: bound(twice), tp.TraceError, "role 'load' iterates a dynamic schedule twice")


def test_a_scheduler_role_of_several_warps() -> None:
    def wide(ctx: tp.Context, counter: Any) -> None:
        work = tp.ClcScheduler(ctx, (2, 2))
        ctx.role("schedule", warps=2)(work.schedule)

    refuses(
        lambda: bound(wide),
        tp.TraceError,
        "the role that runs schedule() is one warp; 'schedule' has 2",
    )


@pytest.mark.parametrize(
    "counter", [np.zeros(1, np.int64), np.zeros((1, 1), np.int32)], ids=["int64", "matrix"]
)
def test_what_is_no_counter(counter: Any) -> None:
    refuses(
        lambda: bound(lambda ctx, c: tp.AtomicScheduler(ctx, c, (2, 2)), counter),
        tp.TraceError,
        "is an int32 tensor of one element",
    )


@pytest.mark.parametrize("left_out", ["schedule", "throttle_signal"])
def test_a_part_that_is_left_out(left_out: str) -> None:
    def part(ctx: tp.Context, counter: Any) -> None:
        work = tp.AtomicScheduler(ctx, counter, (2, 2))
        if left_out != "schedule":
            ctx.role("schedule", warps=1)(work.schedule)

        @ctx.role("load", warps=1)
        def load() -> None:
            for _ in work:
                if left_out != "throttle_signal":
                    work.throttle_signal()

    barrier = "work.full" if left_out == "schedule" else "work_throttle.full"
    refuses(
        lambda: bound(part),
        tp.CountError,
        f"no role arrives on '{barrier}'",
        "Its producer must announce",
    )


@pytest.mark.parametrize("kind", ["clc", "atomic"])
def test_what_a_role_does_not_say(kind: str) -> None:
    def part(ctx: tp.Context, counter: Any, say: Callable[[Any], object]) -> None:
        work = (
            tp.ClcScheduler(ctx, (2, 2))
            if kind == "clc"
            else tp.AtomicScheduler(ctx, counter, (2, 2))
        )
        ctx.role("schedule", warps=1)(work.schedule)

        @ctx.role("load", warps=1)
        def load() -> None:
            for tile in work:
                with ctx.when(tile.m > 0):
                    work.throttle_signal()
                with ctx.otherwise():
                    work.throttle_signal()  # the other case: once a tile all the same
            say(work)

    def twice(work: Any) -> None:
        work.throttle_signal()
        work.throttle_signal()

    def refused(say: Callable[[Any], object], *words: str) -> None:
        refuses(lambda: bound(lambda ctx, counter: part(ctx, counter, say)), tp.TraceError, *words)

    bound(lambda ctx, counter: part(ctx, counter, lambda work: None)).run(seed=1)
    refused(twice, "throttle_signal() is called twice for one tile", "test_dynamic.py")
    refused(lambda work: work.share(0, 2), "Scheduler has no share()", "Take a StaticScheduler")
    refused(lambda work: work.ahead(), "Scheduler has no ahead()", "Take a StaticScheduler")


def test_two_schedules_of_one_counter() -> None:
    def two(ctx: tp.Context, counter: Any) -> None:
        for _ in range(2):
            tp.AtomicScheduler(ctx, counter, (2, 2))

    refuses(
        lambda: bound(two),
        tp.TraceError,
        "another AtomicScheduler of this kernel draws from 'counter'",
    )


def test_a_grid_too_small_for_cluster_launch_control() -> None:
    problem = Dealt("clc", 2, 3, 4, 0)
    problem.clusters = 23
    refuses(
        problem.bind,
        tp.BindError,
        "every cluster of the grid its own tiles first: 23 clusters for 24 steps",
        "scheduler_orders.py",
    )
    problem.clusters, problem.taken = 24, np.zeros(24, np.int32)
    problem.bind().run()
    problem.check()


@pytest.mark.parametrize("run", [tp.Program.run, tp.Program.launch], ids=["run", "launch"])
def test_a_counter_that_is_not_zero(run: Callable[[tp.Program], object]) -> None:
    problem = Dealt("atomic", 1, 3, 3, 4)
    program = problem.bind()
    problem.counter[0] = 3
    refuses(
        lambda: run(program),
        tp.BindError,
        "the counter 'counter' of an AtomicScheduler holds 3; it must be 0 when the kernel starts",
    )
