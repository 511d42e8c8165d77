"""A check ends when its time is over: in the first execution, in code that performs no op, in the
middle of a spin, while it shortens the story of a fault.

To put the holes back, patch `tilepipe.sim.runtime._timed` to yield from its numbers, or
`tilepipe.check.engine.race_reversal.Explorer.check_deadline` to return.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.time_limit import time_limit
from tilepipe.check import Bounds, Verdict, check, decide
from tilepipe.check.counterexamples import shortening
from tilepipe.check.counterexamples.replaying import perform
from tilepipe.check.counterexamples.shortening import shortened
from tilepipe.ir.program import Launch
from tilepipe.sim.codegen.module import source

SECONDS = 0.5
# Without a bound each of the cases would take hours; a check that honours its bound takes SECONDS,
# even where other processes take most of the machine.
HANGS = 60.0
MORE_LOOKS = 20  # at the clock, after the deadline


@tp.kernel()
def arithmetic(ctx: tp.Context, out: Any, *, rounds: int, nested: bool, loads: bool) -> None:
    """A loop that performs no op, or one load in each round."""

    @ctx.role("counts", warps=1)
    def counts() -> None:
        total = ctx.var(0)
        for i in ctx.range(rounds):
            if nested:
                for _ in ctx.range(rounds):
                    total.set((total.get() + i) % 1000)
            if loads:
                ctx.load(out[0])
            total.set((total.get() + i) % 1000)
        ctx.store(out[ctx.lane], total.get())


@tp.kernel()
def whiles(ctx: tp.Context, out: Any, *, rounds: int) -> None:
    """A `while` loop inside another that perform no op."""

    @ctx.role("counts", warps=1)
    def counts() -> None:
        total, outer = ctx.var(0), ctx.var(True)
        for _ in ctx.loop_while(outer):
            inner = ctx.var(True)
            for _ in ctx.loop_while(inner):
                total.set((total.get() + 1) % rounds)
                inner.set(total.get() != 0)
            outer.set(total.get() >= 0)
        ctx.store(out[ctx.lane], total.get())


@tp.kernel(grid=lambda ctas: ctas)
def draws(ctx: tp.Context, counter: Any, out: Any, *, ctas: int, n: int) -> None:
    """CTAs that draw numbers, each from a counter of another's choosing, so that nearly every order
    differs.
    """

    @ctx.role("draw", warps=1)
    def draw() -> None:
        for i in ctx.range(n):
            with ctx.elect_one():
                drawn = ctx.atomic_add(counter[i % 2], 1 + ctx.block_id)
                ctx.store(out[ctx.block_id, i], drawn)
                ctx.assert_(drawn >= 0)  # noqa: PT009  # so that numbers decide


def out() -> np.ndarray:
    return np.zeros(32, np.int32)


CASES = {
    "a loop of arithmetic": lambda: arithmetic.bind(out(), rounds=10**9, nested=False, loads=False),
    "a loop in a loop": lambda: arithmetic.bind(out(), rounds=10**5, nested=True, loads=False),
    "a loop with an op": lambda: arithmetic.bind(out(), rounds=10**9, nested=False, loads=True),
    "while loops": lambda: whiles.bind(out(), rounds=100_000),
    "draws": lambda: draws.bind(np.zeros(2, np.int32), np.zeros((4, 8), np.int32), ctas=4, n=8),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_check_ends_with_its_time(name: str) -> None:
    made: Launch = CASES[name]().launch_args
    with time_limit(HANGS):
        verdict = check(made, bounds=Bounds(seconds=SECONDS))
    assert verdict.verdict == "undecided"
    assert verdict.bound.startswith("0.5 seconds (Bounds(seconds=), 600 by default)")
    if name == "a loop with an op":
        assert "Still going: role 'counts' in the loop at test_bounds.py:" in verdict.bound


def test_only_loops_without_an_op_look_at_the_clock() -> None:
    """A run has no deadline and pays one call for each such loop; loops with ops are as they
    were.
    """
    with_op = source(arithmetic.bind(out(), rounds=10, nested=False, loads=True).launch_args.kernel)
    without = source(
        arithmetic.bind(out(), rounds=10, nested=False, loads=False).launch_args.kernel
    )
    assert "trips(" not in with_op
    assert "in trips(m, range(0, 10, 1)):" in without
    assert (
        arithmetic.bind(out(), rounds=10, nested=False, loads=False)
        .check(bounds=Bounds(seconds=60))
        .ok
    )


@tp.kernel()
def late(ctx: tp.Context, a: Any, *, rounds: int) -> None:
    """A race that follows `rounds` loads."""

    @ctx.role("first", warps=1)
    def first() -> None:
        for _ in ctx.range(rounds):
            ctx.load(a[1])
        ctx.store(a[0], 1)

    @ctx.role("second", warps=1)
    def second() -> None:
        ctx.load(a[0])


class CountingClock:
    """A clock that advances by a second each time it is read: it counts how often a check looks
    whether its time is over, whatever the machine does meanwhile.
    """

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> float:
        self.now += 1
        return float(self.now)


@pytest.mark.slow
def test_a_fault_is_reported_within_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortening and recording a fault at the end of a long execution perform that execution again
    and again: they stop soon after the deadline.
    """
    clock = CountingClock()

    def counted(seconds: float, shorten: bool) -> tuple[Verdict, int]:
        before = clock.now
        with monkeypatch.context() as patched:
            patched.setattr(time, "perf_counter", clock)
            made = late.bind(out(), rounds=1500).launch_args
            verdict = check(made, bounds=Bounds(seconds=seconds), shorten=shorten)
        return verdict, clock.now - before

    _, once = counted(10**6, shorten=False)
    unhurried, all_steps = counted(10**6, shorten=True)
    verdict, looks = counted(1.5 * once, shorten=True)
    assert looks < 1.5 * once + MORE_LOOKS < all_steps
    assert [f.kind for f in verdict.faults] == [f.kind for f in unhurried.faults] == ["RaceError"]


@pytest.mark.slow
def test_a_fault_found_at_the_deadline_is_not_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortening performs the kernel again and again; no time is left for that."""

    def too_late(front_end: Any, error: Any, schedule: Any, shorten: bool, _: float) -> Any:
        return shortened(front_end, error, schedule, shorten, deadline=0.0)

    performed = []

    def counted(*args: Any, **options: Any) -> Any:
        performed.append(args)
        return perform(*args, **options)

    monkeypatch.setattr(shortening, "perform", counted)
    made = late.bind(out(), rounds=40).launch_args
    verdict = check(made)
    assert performed
    performed.clear()
    monkeypatch.setattr(decide, "shortened", too_late)
    cut_off = check(made)
    assert not performed
    assert [f.kind for f in verdict.faults] == [f.kind for f in cut_off.faults] == ["RaceError"]
    assert verdict.faults[0].steps
