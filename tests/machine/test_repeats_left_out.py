"""Launches of which no cluster is repeated, and what ends a repetition."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.machine.test_repeats import Spy, spy
from tilepipe import ptx
from tilepipe.machine import repeats
from tilepipe.machine.actors import BLOCKED
from tilepipe.machine.barriers import rendezvous
from tilepipe.machine.repeats import Record, Recording, Step

__all__ = ["spy"]

PTX = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry meets()
{
    bar.sync 0;
    ret;
}
"""


def test_a_launch_of_ptx(spy: Spy) -> None:
    ptx.load(PTX).only().bind([], grid=4, block=64).run()
    assert (spy.repeated, spy.differed) == (0, 0)


@tp.kernel(grid=3)
def odd_one(ctx: tp.Context) -> None:
    """The last CTA orders what it does among what others do."""

    @ctx.role("work", warps=1)
    def work() -> None:
        ctx.syncwarp()
        with ctx.when(ctx.block_id == 2), ctx.elect_one():
            ctx.fence()


def test_a_kernel_of_which_one_cta_orders_clusters(spy: Spy) -> None:
    odd_one.bind().run()
    assert (spy.repeated, spy.differed) == (0, 0)


@tp.kernel(grid=3)
def waits(ctx: tp.Context, out: Any, *, early: bool) -> None:
    """Each CTA writes after it has waited for the launch before; if `early`, all but the last."""

    @ctx.role("work", warpgroups=1)
    def work() -> None:
        ones = ctx.fragment(shape=(64, 64))
        ones.fill(1)
        with ctx.when((ctx.block_id < 2) if early else True):
            ctx.grid_dependency_wait()
        ctx.store_global(out, (ctx.block_id * 64, 0), ones)


def test_a_cta_that_writes_before_it_waits_is_no_repetition(spy: Spy) -> None:
    out = np.zeros((192, 64), np.float32)
    waits.bind(out, early=False).run()
    assert (spy.repeated, spy.differed) == (2, 0)
    assert (out == 1).all()
    with pytest.raises(tp.RaceError, match="grid_dependency_wait"):
        waits.bind(out, early=True).run()
    assert (spy.repeated, spy.differed) == (3, 1)


@tp.kernel(grid=3)
def numbered(ctx: tp.Context, out: Any) -> None:
    """Each CTA stores its number, by an op of which nothing says how it is repeated."""

    @ctx.role("work", warps=1)
    def work() -> None:
        ctx.store(out[ctx.block_id, ctx.lane], ctx.block_id)


def test_a_cluster_with_an_op_that_is_not_named(spy: Spy) -> None:
    out = np.full((3, 32), -1, np.int32)
    numbered.bind(out).run()
    assert (out == np.arange(3)[:, None]).all()
    assert (spy.repeated, spy.differed) == (0, 0)


@tp.kernel(grid=3)
def fenced_by_one(ctx: tp.Context, out: Any) -> None:
    """Each CTA stores a tile by TMA that all its threads have written, after a fence of one."""
    tile = ctx.smem((64, 64), out.dtype, name="tile")[0]

    @ctx.role("work", warpgroups=1)
    def work() -> None:
        ones = ctx.fragment(shape=(64, 64))
        ones.fill(1)
        ctx.store(tile, ones)
        ctx.sync_warpgroup()
        with ctx.elect_one("warpgroup"):
            ctx.fence_proxy_async()
            ctx.tma_store(out, (ctx.block_id * 64, 0), tile)
            ctx.tma_store_commit()
            ctx.tma_store_wait(0)


def test_a_cluster_of_which_something_is_advised(spy: Spy) -> None:
    run = fenced_by_one.bind(tp.tensor_map(np.zeros((192, 64), np.float16), box=(64, 64))).run()
    assert [text.split(" (")[0] for text in run.advice] == ["reader-side fence"]
    assert (spy.repeated, spy.differed) == (0, 0)


@tp.kernel(grid=3)
def scaled(ctx: tp.Context, factors: Any, out: Any) -> None:
    """Each CTA writes rows of its own factor, which an op has read."""

    @ctx.role("work", warpgroups=1)
    def work() -> None:
        factor = ctx.let(ctx.load(factors[ctx.block_id]), "factor")
        rows = ctx.fragment(shape=(64, 64))
        rows.fill(1)
        ctx.store_global(out, (ctx.block_id * 64, 0), rows * factor)


def test_a_repeated_cluster_has_values_of_its_own(spy: Spy) -> None:
    out = np.zeros((192, 64), np.float32)
    scaled.bind(np.array([2, 3, 5], np.float32), out).run()
    assert out[::64, 0].tolist() == [2, 3, 5]
    assert (spy.repeated, spy.differed) == (2, 0)


@tp.kernel(grid=3)
def shorter(ctx: tp.Context, out: Any) -> None:
    """The last CTA ends before it has stored."""

    @ctx.role("work", warpgroups=1)
    def work() -> None:
        ones = ctx.fragment(shape=(64, 64))
        ones.fill(1)
        with ctx.when(ctx.block_id < 2):
            ctx.store_global(out, (ctx.block_id * 64, 0), ones)


def test_a_cluster_that_ends_earlier(spy: Spy) -> None:
    out = np.zeros((192, 64), np.float32)
    shorter.bind(out).run()
    assert out[::64, 0].tolist() == [1, 1, 0]
    assert (spy.repeated, spy.differed) == (1, 1)


def test_a_record_that_is_given_up_stays_empty() -> None:
    world: Any = SimpleNamespace(counts=[], blocked=[])
    agent: Any = SimpleNamespace(uid=0)
    made = Recording(world)
    made.acts()
    made.performed(agent, rendezvous.syncwarp, (), None)
    assert len(made.steps) == 2
    made.performed(agent, print, (), None)
    assert (made.complete, made.steps) == (False, [])
    made.acts()
    made.performed(agent, rendezvous.syncwarp, (), None)
    assert made.steps == []


def _blocks(*given: Any) -> Any:
    return BLOCKED


def _record(*steps: Step | None) -> Record:
    return Record([*steps], len(steps), 0.0, [], [], [])


@pytest.mark.parametrize(
    ("record", "requests", "pending"),
    [
        (_record(Step(0, _blocks, [1], (), None, _blocks)), [(_blocks, (1,))], []),
        (_record(None), [], []),
        (_record(), [], ["a unit"]),
    ],
    ids=["an op that would wait", "no unit in flight", "a unit in flight at the end"],
)
def test_what_no_record_has_ends_a_repetition(
    record: Record, requests: list[Any], pending: list[Any]
) -> None:
    """The machine would have to differ from itself."""
    body = (request for request in requests)
    agent = SimpleNamespace(body=body)
    machine: Any = SimpleNamespace(agents=[agent], pending=deque(pending))
    with pytest.raises(repeats._DiffersError):
        repeats._repeat(machine, record)


def test_a_mistake_in_repeating_is_not_taken_for_a_difference(
    spy: Spy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(*given: Any) -> None:
        raise AttributeError("of the simulator itself")

    monkeypatch.setattr(repeats, "_repeat", mistaken)
    with pytest.raises(AttributeError, match="of the simulator itself"):
        scaled.bind(np.ones(3, np.float32), np.zeros((192, 64), np.float32)).run()
