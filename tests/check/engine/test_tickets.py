# ruff: noqa: PT009 (ctx.assert_ is an op of the kernel)
"""Clusters that draw their work from a counter, explored one at a time, compared with the
exploration of all orders.

To put bugs in on purpose, patch in `tilepipe.check.engine.tickets`: `_Alone.apart` to return True,
`_forget` to clear without poison, or `counter_of` to accept other kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.check import Bounds, Verdict, check, replay
from tilepipe.check.engine import tickets
from tilepipe.check.engine.causal_order import CausalOrder
from tilepipe.machine.journal import Journal

# campaigns; other files of this folder have a quick test for each of their rules
pytestmark = pytest.mark.slow

KINDS = (
    "right",
    "shares a row",
    "first two",
    "three of one",
    "skips one",
    "block first",
    "reads back",
    "remembers",
    "late store",
    "each ends",
    "own row",
    "two in a row of mine",
    "stuck after two",
)
FAULTS = {
    "shares a row",
    "three of one",
    "skips one",
    "reads back",
    "two in a row of mine",
    "stuck after two",
    "first two",
}


@tp.kernel(grid=lambda ctas: ctas)
def drawn(
    ctx: tp.Context, counter: Any, out: Any, ends: Any, *, ctas: int, n: int, kind: str
) -> None:
    """Rows of `out` go to whoever draws their numbers; `kind` says what is special about it."""
    told = tp.ProducerConsumerPipeline.allocate(ctx, 1, name="told")
    word = ctx.smem((1, 32), tp.int32, swizzle=0, name="word")[0]
    kept = ctx.smem((1, 32), tp.int32, swizzle=0, name="kept")[0]
    never = tp.SharedMemBarrier.allocate(ctx, 1, "never")

    @ctx.role("draw", warps=1)
    def draw() -> None:
        more = ctx.var(True)
        for _ in ctx.loop_while(more):
            with told.produce() as stage:
                with ctx.elect_one():
                    ctx.store(word[0, 0], ctx.atomic_add(counter[0], 1))
                ctx.syncwarp()
                more.set(ctx.load(word[0, 0]) < n)
                stage.mbar().arrive()

    @ctx.role("use", warps=1)
    def use() -> None:
        more, many, before = ctx.var(True), ctx.var(0), ctx.var(0)
        ctx.store(kept[0, ctx.lane], 0)
        if kind == "block first":
            ctx.store(out[n + ctx.block_id, ctx.lane], 1)
        for _ in ctx.loop_while(more):
            with told.consume():
                number = ctx.let(ctx.load(word[0, 0]), "number")
            more.set(number < n)
            with ctx.when(number < n):
                match kind:
                    case "shares a row":
                        ctx.store(out[number // 2, ctx.lane], number)
                    case "first two":  # only the numbers 0 and 1 meet
                        ctx.store(out[ctx.max(number, 1), ctx.lane], number)
                    case "three of one":
                        many += 1
                        ctx.assert_(many.get() < 3, "three of one")
                        ctx.store(out[number, ctx.lane], number)
                    case "skips one":
                        ctx.assert_((number - before.get() != 2) | (before.get() == 0), "skips one")
                        before.set(number)
                        ctx.store(out[number, ctx.lane], number)
                    case "two in a row of mine":
                        ctx.assert_(
                            (number - before.get() != 1) | (before.get() != 1),
                            "one after the other",
                        )
                        before.set(number)
                        ctx.store(out[number, ctx.lane], number)
                    case "reads back":  # what another may write
                        ctx.store(out[number, ctx.lane], number)
                        ctx.load(out[ctx.max(number - 1, 0), ctx.lane])
                    case "remembers":  # the number before, in shared memory
                        ctx.store(kept[0, ctx.lane], ctx.load(kept[0, ctx.lane]) + number)
                        ctx.assert_(ctx.load(kept[0, ctx.lane]) < n * n, "too large")
                        ctx.store(out[number, ctx.lane], number)
                    case "late store":  # the row of the number before
                        with ctx.when(many.get() > 0):
                            ctx.store(out[before.get(), ctx.lane], number)
                        many.set(1)
                        before.set(number)
                    case "stuck after two":
                        many += 1
                        with ctx.when(many.get() == 3):
                            never.wait(0)
                        ctx.store(out[number, ctx.lane], number)
                    case _:
                        ctx.store(out[number, ctx.lane], number)
        if kind == "each ends":
            ctx.store(ends[ctx.block_id, ctx.lane], 1)
        if kind == "own row":
            ctx.store(ends[ctx.block_id, ctx.lane], ctx.load(ends[ctx.block_id, ctx.lane]) + 1)


def program(kind: str, ctas: int, n: int) -> tp.Program:
    counter, ends = np.zeros(1, np.int32), np.zeros((ctas, 32), np.int32)
    return drawn.bind(counter, np.zeros((n + ctas, 32), np.int32), ends, ctas=ctas, n=n, kind=kind)


def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the clusters of each check were decided so."""
    told: list[bool] = []
    explore = tickets.explore

    def noted(*args: Any) -> bool:
        told.append(explore(*args))
        return told[-1]

    monkeypatch.setattr(tickets, "explore", noted)
    return told


def in_all_orders(kind: str, ctas: int, n: int, monkeypatch: pytest.MonkeyPatch) -> Verdict:
    with monkeypatch.context() as patch:
        patch.setattr(tickets, "explore", lambda *args: False)
        return check(program(kind, ctas, n).launch_args, bounds=Bounds(traces=3000), shorten=False)


# With three clusters `make test` has a way in which clusters meet; the other kinds differ in what
# one cluster does, which two clusters show.
WITH_THREE = {"first two"}
SIZES = [
    *((kind, 2, n) for n in (2, 4) for kind in KINDS),
    *(
        pytest.param(kind, 3, 3, marks=() if kind in WITH_THREE else pytest.mark.thorough)
        for kind in KINDS
    ),
]


@pytest.mark.sampled(suite=1000, classes=lambda kind, ctas, n: [kind, (ctas, n)])
@pytest.mark.parametrize(("kind", "ctas", "n"), SIZES)
def test_one_at_a_time_and_in_all_orders_agree(
    kind: str, ctas: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = one_at_a_time(monkeypatch)
    made = program(kind, ctas, n).launch_args
    verdict = check(made)
    every = in_all_orders(kind, ctas, n, monkeypatch)
    assert verdict.verdict == every.verdict
    assert [f.kind for f in verdict.faults] == [f.kind for f in every.faults]
    for fault in verdict.faults:
        error = replay(made, fault.schedule)
        assert error is not None
        assert type(error).__name__ == fault.kind
    assert kind not in ("right", "remembers", "block first", "each ends") or told == [True]


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_what_is_wrong_is_found(kind: str) -> None:
    assert program(kind, 2, 4).check().verdict == "fault"


def test_eight_clusters_and_sixteen_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are more than 8**16 orders; states of one cluster are the pairs of numbers drawn by all
    and by it.
    """
    told = one_at_a_time(monkeypatch)
    verdict = program("right", 8, 16).check()
    assert verdict.ok
    assert told == [True]
    assert verdict.traces < 600


def test_rows_of_two_clusters_that_meet_are_noticed_by_their_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the comparison of who touches what, clusters that write one row would be verified."""
    monkeypatch.setattr(tickets._Alone, "apart", lambda self: True)
    assert program("shares a row", 3, 4).check().verdict == "verified"
    monkeypatch.undo()
    assert program("shares a row", 3, 4).check().verdict == "fault"


def test_a_draw_compares_itself_with_the_last_ones_only() -> None:
    """`in_turn` is linear: of many draws each looks at the group before it."""

    class Site:
        id = -1

    causal_order = CausalOrder()
    journal: Journal = causal_order
    looked = 0
    opened = causal_order._add_race

    def counted(*args: Any) -> None:
        nonlocal looked
        looked += 1
        opened(*args)

    causal_order._add_race = counted  # type: ignore[method-assign, assignment]
    draws = 400
    for number in range(draws):
        causal_order.step((number % 8, 0), number, Site(), 1)  # type: ignore[arg-type]
        journal.in_turn((0, 0), 1, changes=True)
    assert looked <= draws
    assert len(causal_order.races) == draws - 1


# -- the library's scheduler -----------------------------------------------------------


@tp.kernel(grid=lambda clusters, size: clusters * size, cluster=lambda size: size)
def scheduled(
    ctx: tp.Context,
    counter: Any,
    out: Any,
    m: Any,
    n: Any,
    *,
    clusters: int,
    size: int,
    overlap: int,
) -> None:
    """Tiles by an `AtomicScheduler`, which puts its counter back; `overlap`: two tiles write one
    row.
    """
    work = tp.AtomicScheduler(ctx, counter, (1, m, n), cluster=(size, 1))
    full = tp.ProducerConsumerPipeline.allocate(ctx, 2, name="full")

    @ctx.role("schedule", warps=1)
    def schedule() -> None:
        work.schedule()

    @ctx.role("load", warps=1)
    def load() -> None:
        for _ in work:
            work.throttle_signal()
            with full.produce() as stage:
                stage.mbar().arrive()

    @ctx.role("use", warps=1)
    def use() -> None:
        for tile in work:
            with full.consume():
                row = tile.m * n + tile.n
                ctx.store(out[ctx.select(row == overlap, row - 1, row), ctx.lane], row)


def by_scheduler(clusters: int, tiles: int, size: int = 1, overlap: int = -1) -> tp.Program:
    out = np.zeros((tiles * size, 32), np.int32)
    return scheduled.bind(
        np.zeros(1, np.int32), out, size, tiles, clusters=clusters, size=size, overlap=overlap
    )


@pytest.mark.parametrize(
    ("clusters", "tiles", "size"),
    [(2, 4, 1), (2, 3, 2), (4, 8, 1), pytest.param(8, 16, 1, marks=pytest.mark.thorough)],
)
def test_the_scheduler_of_the_library(
    clusters: int, tiles: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = one_at_a_time(monkeypatch)
    verdict = by_scheduler(clusters, tiles, size).check()
    assert verdict.ok
    assert told == [True]
    assert verdict.traces < 2000


def test_tiles_of_the_scheduler_that_meet() -> None:
    (fault,) = by_scheduler(2, 4, overlap=3).check().faults
    assert fault.kind == "RaceError"
