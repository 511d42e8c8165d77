"""Loops that wait for a flag in global memory: which loops count as waits, what they follow, and
how many executions decide.

To put the holes back on purpose: let `FlagHistory._could_pass` return False, or let
`sim.analysis.waiting_loops._only_computes` return True.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import tilepipe as tp
from tests.check.flag_campaign import both_ways
from tests.support.check.flag_programs import Do, Program, generate, launch
from tests.support.examples import share
from tilepipe.check import check
from tilepipe.check.engine import flag_waits
from tilepipe.check.engine.flag_waits import FlagHistory
from tilepipe.check.engine.traced_front_end import TracedFrontEnd

PUT, GET = Do("put", 0), Do("get", 0)
RAISE, WAIT = Do("set", 0, 1), Do("wait", 0, 1)


@pytest.mark.slow
@settings(deadline=None, max_examples=share(25), suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 40))
def test_waits_give_the_verdict_of_exploring_every_look(seed: int) -> None:
    quick, full = both_ways(generate(seed))
    assert full.verdict in ("undecided", quick.verdict), (quick.faults, full.faults)


def pairs(n: int, *, ctas: bool) -> Program:
    """n pairs of threads; each hands over one datum. (Data are shared by pairs that have one.)"""
    threads: list[tuple[Do, ...]] = []
    for i in range(n):
        threads.append((replace(PUT, at=i), replace(RAISE, at=i)))
        threads.append((replace(WAIT, at=i), replace(GET, at=i)))
    return Program(tuple(threads), ctas=ctas, resident=2 * n)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_independent_pairs_cost_nothing(n: int) -> None:
    one = check(launch(pairs(n, ctas=False)))
    assert (one.verdict, one.method, one.traces) == ("verified", "single-execution", 1)
    grid = check(launch(pairs(n, ctas=True)))  # all CTAs at once, and one at a time
    assert (grid.verdict, grid.method, grid.traces) == ("verified", "single-execution", 2)
    (first, second) = grid.facts
    assert "strong accesses to one element of memory have one order" in first
    assert second.startswith("the one wait" if n == 1 else f"each of {n} waits")


def test_a_cluster_that_waits_for_one_that_never_starts() -> None:
    """The one that waits comes first: with one CTA at once it waits for ever."""
    (fault,) = check(launch(Program(((WAIT, GET), (PUT, RAISE))))).faults
    assert fault.kind == "DeadlockError"
    assert "only 1 of 2 CTAs can be resident" in fault.message
    three = Program(((replace(WAIT, value=2),), (Do("add", 0, 1),), (Do("add", 0, 1),)), resident=3)
    (fault,) = check(launch(three)).faults
    assert "only 1 of 3 CTAs can be resident" in fault.message  # with two, the second makes room


WRONG: dict[str, tuple[str, tuple[tuple[Do, ...], ...], tuple[int, ...]]] = {
    "relaxed": ("RaceError", ((PUT, replace(RAISE, strong=False)), (WAIT, GET)), (0, 0, 0)),
    "relaxed wait": ("RaceError", ((PUT, RAISE), (replace(WAIT, strong=False), GET)), (0, 0, 0)),
    "another value": ("DeadlockError", ((PUT, replace(RAISE, value=2)), (WAIT, GET)), (0, 0, 0)),
    "never set": ("DeadlockError", ((PUT,), (WAIT, GET)), (0, 0, 0)),
    "raised before": ("RaceError", ((PUT, RAISE), (WAIT, GET)), (1, 0, 0)),
    # the wait may be over before the flag is lowered
    "lowered late": ("RaceError", ((replace(RAISE, value=0), PUT, RAISE), (WAIT, GET)), (1, 0, 0)),
    # or not before it is lowered again
    "lowered": ("DeadlockError", ((PUT, RAISE, replace(RAISE, value=0)), (WAIT, GET)), (0, 0, 0)),
    # either of two additions is enough
    "one of two": (
        "RaceError",
        ((PUT, Do("add", 0, 1)), (Do("add", 0, 1),), (replace(WAIT, compare="ge"), GET)),
        (0, 0, 0),
    ),
    # the flag passes through the value that ends the loop
    "in passing": (
        "RaceError",
        ((RAISE, replace(RAISE, value=2), PUT, replace(RAISE, value=3)),
         (replace(WAIT, compare="ne", value=0), GET)),
        (0, 0, 0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("ctas", [True, False])
@pytest.mark.parametrize("turned", [False, True])
def test_mistakes_are_found(name: str, ctas: bool, turned: bool) -> None:
    kind, threads, starts = WRONG[name]
    program = Program(threads[::-1] if turned else threads, ctas, len(threads), starts)
    quick, full = both_ways(program)
    assert kind in {fault.kind for fault in (*quick.faults, *full.faults)}
    assert quick.verdict == full.verdict == "fault"


def test_both_additions_are_needed() -> None:
    both = replace(WAIT, value=2)
    adds = (PUT, Do("add", 0, 1)), (Do("add", 0, 1),)
    verdict = check(launch(Program((*adds, (both, GET)), resident=3)))
    assert (verdict.verdict, verdict.method, verdict.traces) == ("verified", "single-execution", 2)


def test_without_its_history_a_wait_hides_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    _, threads, starts = WRONG["one of two"]
    program = Program(threads, False, 3, starts)
    assert check(launch(program)).verdict == "fault"
    monkeypatch.setattr(FlagHistory, "_could_pass", lambda *_: False)
    assert check(launch(program)).verdict == "verified"


def test_many_different_additions_are_not_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    adds = tuple((Do("add", 0, 1 << i),) for i in range(3))
    program = Program((*adds, (replace(WAIT, value=7),)), ctas=False)
    assert check(launch(program)).method == "single-execution"
    monkeypatch.setattr(flag_waits, "_MOST_SUMS", 3)
    assert check(launch(program)).method == "explored"


LOOPS: dict[str, tuple[Callable[..., None], bool]] = {}


def loop(counts: bool) -> Callable[[Callable[..., None]], None]:
    """A loop that polls `flags[0]`; `counts`: it is a wait."""

    def kept(function: Callable[..., None]) -> None:
        LOOPS[function.__name__.replace("_", " ").strip()] = function, counts

    return kept


@loop(True)
def wait_until(ctx: tp.Context, flags: Any) -> None:
    ctx.wait_until(flags[0], lambda value: (value >= 1) & (value < ctx.num_clusters + 5))


@loop(True)
def relaxed_and_then_a_fence(ctx: tp.Context, flags: Any) -> None:
    ctx.wait_until(flags[0], lambda value: value == 1, order="relaxed")
    ctx.fence()


@loop(True)
def by_hand(ctx: tp.Context, flags: Any) -> None:
    more = ctx.var(True)
    for _ in ctx.loop_while(more):
        more.set(ctx.load(flags[0], order="acquire") != 1)


@loop(False)
def counts_rounds(ctx: tp.Context, flags: Any) -> None:
    more, rounds = ctx.var(True), ctx.var(0)
    for _ in ctx.loop_while(more):
        found = ctx.load(flags[0], order="acquire")
        rounds.set(rounds.get() + 1)
        more.set((found != 1) & (rounds.get() < 4))


@loop(False)
def looks_elsewhere(ctx: tp.Context, flags: Any) -> None:
    more, at = ctx.var(True), ctx.var(0)
    for _ in ctx.loop_while(more):
        more.set(ctx.load(flags[at.get()], order="acquire") != 1)
        at.set(1 - at.get())


@loop(False)
def writes(ctx: tp.Context, flags: Any) -> None:
    more = ctx.var(True)
    for _ in ctx.loop_while(more):
        more.set(ctx.load(flags[0], order="acquire") != 1)
        ctx.store(flags[1], 5, order="relaxed")


@loop(False)
def adds_nothing(ctx: tp.Context, flags: Any) -> None:
    more = ctx.var(True)
    for _ in ctx.loop_while(more):
        more.set(ctx.atomic_add(flags[0], 0, order="acquire") != 1)


@loop(False)
def a_flag_that_is_also_written_plainly(ctx: tp.Context, flags: Any) -> None:
    ctx.store(flags[1], 0)
    ctx.wait_until(flags[0], lambda value: value == 1)


@pytest.mark.parametrize("name", LOOPS)
def test_which_loops_are_waits(name: str) -> None:
    polls, counts = LOOPS[name]

    @tp.kernel()
    def kernel(ctx: tp.Context, flags: Any) -> None:
        @ctx.role("raise", warps=1)
        def give() -> None:
            with ctx.elect_one():
                ctx.store(flags[0], 1, order="release")

        @ctx.role("wait", warps=1)
        def take() -> None:
            with ctx.elect_one():
                polls(ctx, flags)

    program = kernel.bind(np.zeros(2, np.int32))
    assert bool(TracedFrontEnd(program.launch_args, "practice").flag_looks) == counts
    verdict = program.check()
    assert verdict.ok, verdict.faults
    assert (verdict.method == "single-execution") == counts


def test_two_names_of_one_array_are_no_flag() -> None:
    @tp.kernel()
    def kernel(ctx: tp.Context, flags: Any, same: Any) -> None:
        @ctx.role("all", warps=1)
        def run() -> None:
            with ctx.elect_one():
                ctx.store(flags[0], 1, order="release")
                ctx.wait_until(flags[0], lambda value: value == 1)
                ctx.load(same[0])

    launched = kernel.bind(np.zeros(2, np.int32), np.zeros(2, np.int32)).launch_args
    assert len(TracedFrontEnd(launched, "practice").flag_looks) == 1
    alike = replace(
        launched, args={"flags": launched.args["flags"], "same": launched.args["flags"]}
    )
    assert not TracedFrontEnd(alike, "practice").flag_looks


def test_explore_takes_no_loop_for_a_wait() -> None:
    verdict = check(launch(pairs(1, ctas=False)), explore=True)
    assert verdict.ok
    assert verdict.method == "explored"
    assert verdict.traces > 1
    assert not verdict.facts


def test_a_counterexample_with_a_wait_is_found_again() -> None:
    _, threads, starts = WRONG["lowered late"]
    program = launch(Program(threads, False, 2, starts))
    (fault,) = check(program).faults
    again = tp.check.replay_with_steps(program, fault.schedule)
    assert again is not None
    assert (again.kind, again.message) == (fault.kind, fault.message)
