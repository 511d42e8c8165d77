"""The explorer: which executions it looks at, what it says of them, and that it leaves things as
they were.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.support.build import Builder, special
from tests.support.check.three_roles import Shape, program
from tilepipe.check import Bounds, Reductions, Verdict, check, decide, replay
from tilepipe.check.counterexamples.relevant_steps import as_text
from tilepipe.ir import ops
from tilepipe.ir.dtypes import boolean
from tilepipe.ir.expressions import const
from tilepipe.ir.program import Launch

EVERY_ORDER = Reductions(partial_order=False, hashing=True, symmetry=False)


def launch(b: Builder, grid: int = 1, **args: Any) -> Launch:
    return Launch(b.finished(), grid, args)


def straddling(first_waits: bool) -> Launch:
    """Two producers, count 2; each arrives twice. Unless the first waits in between, its second
    arrival may complete a phase alone.
    """
    b = Builder()
    bar, back = b.barriers("full", count=2), b.barriers("empty", count=1)
    b.setup_done()
    with b.role("a", warps=1), b.elect():
        b.arrive(b.bar(bar))
        if first_waits:
            b.wait(b.bar(back), 0)
        b.arrive(b.bar(bar))
    with b.role("b", warps=1), b.elect():
        b.arrive(b.bar(bar))
        if first_waits:
            b.wait(b.bar(back), 0)
        b.arrive(b.bar(bar))
    with b.role("c", warps=1):
        b.wait(b.bar(bar), 0)
        if first_waits:
            with b.elect():
                b.arrive(b.bar(back))
        b.wait(b.bar(bar), 1)
    return launch(b)


def test_two_arrivals_of_one_producer_in_one_phase() -> None:
    for explore, method in (
        (False, "single-execution"),
        (True, "explored"),
    ):  # the first order shows it
        verdict = check(straddling(first_waits=False), explore=explore)
        assert (verdict.verdict, verdict.method, verdict.traces) == ("fault", method, 1)
        assert verdict.faults[0].kind == "BarrierError"
        assert "lapped" in verdict.faults[0].message
    assert check(straddling(first_waits=True)).ok


def test_the_facts_that_one_execution_establishes() -> None:
    verdict = check(straddling(first_waits=True))
    assert (verdict.method, verdict.traces) == ("single-execution", 1)
    assert (
        verdict.facts[0]
        == "no op of the kernel depends on which agent comes first: no try_wait, atomic add or"
        " request"
        " for work"
    )
    assert "each of 8 arrivals" in verdict.facts[1]
    assert "knows the phase before to be complete" in verdict.facts[1]
    assert "the one wait is over" in verdict.facts[2]
    assert "no wait can be lapped" in verdict.facts[2]


def test_forced_exploration_says_so_and_establishes_no_facts() -> None:
    verdict = check(straddling(first_waits=True), explore=True)
    assert (verdict.verdict, verdict.method, verdict.facts) == ("verified", "explored", [])


@pytest.mark.parametrize("explore", [False, True])
def test_the_three_role_gemm_takes_one_execution(explore: bool) -> None:
    verdict = check(program(Shape()).launch_args, explore=explore)
    assert (verdict.verdict, verdict.traces) == ("verified", 1)


@pytest.mark.slow
def test_every_order_of_a_small_kernel_agrees() -> None:
    made = program(Shape(stages=1, accumulators=1, tiles=1, k_steps=1)).launch_args
    verdict = check(made, explore=True, reductions=EVERY_ORDER)
    assert verdict.ok
    assert verdict.traces > 100


def racing_late() -> Launch:
    """`b` reads what `a` writes, and has waited for `a` only where its test came too early."""
    b = Builder()
    bar, word = b.barriers("full", count=1), b.smem("word", 1, 32)
    b.setup_done()
    with b.role("a", warps=1), b.elect():
        b.arrive(b.bar(bar))
        b.store(b.element(b.tile(word), 0, 0), 1.0)
    with b.role("b", warps=1):
        ready = b.local("ready", boolean)
        b.add(ops.MbarTryWait(b.kernel.loc, b.bar(bar), b.phase(0), ready))
        with b.when(ready), b.elect():
            b.store(b.element(b.tile(word), 0, 0), 2.0)
    return launch(b)


def test_both_outcomes_of_a_test_are_explored() -> None:
    verdict = check(racing_late())
    assert verdict.method == "explored"
    assert verdict.faults[0].kind == "RaceError"
    assert "race on word" in verdict.faults[0].message


def items_tested(items: int) -> Launch:
    """A ring of one slot whose consumer tests before each wait."""
    b = Builder()
    full, empty = b.barriers("full", count=1), b.barriers("empty", count=1)
    b.setup_done()
    with b.role("producer", warps=1), b.elect():
        for i in range(items):
            b.wait(b.bar(empty), i - 1)
            b.arrive(b.bar(full))
    with b.role("consumer", warps=1):
        for i in range(items):
            ready = b.local("ready", boolean)
            b.add(ops.MbarTryWait(b.kernel.loc, b.bar(full), b.phase(i), ready))
            with b.when(ready) as branch:
                pass
            with b.into(branch.orelse):
                b.wait(b.bar(full), i)
            with b.elect():
                b.arrive(b.bar(empty))
    return launch(b)


@pytest.mark.slow
def test_states_are_merged_where_a_kernel_tests() -> None:
    verdict = check(items_tested(14), explore=True)
    assert verdict.ok
    assert verdict.traces < 100, "2^14 combinations of outcomes are followed one by one"
    alone = check(
        items_tested(14),
        explore=True,
        reductions=Reductions(hashing=False),
        bounds=Bounds(traces=500),
    )
    assert (alone.verdict, alone.bound) == ("undecided", "500 executions")


@pytest.mark.slow
def test_where_states_are_many_executions_may_be_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "STATE_SEARCH_FIRST", 20)
    shape = Shape(tiles=1, tries=True, cluster=2)
    verdict = check(program(shape).launch_args, explore=True)
    assert verdict.ok
    assert 20 < verdict.traces < 60, "the search of states alone takes 448 executions"


def spinning(arrives: bool) -> Launch:
    """A role that tests until a phase is complete."""
    b = Builder()
    bar = b.barriers("full", count=1)
    b.setup_done()
    with b.role("spins", warps=1):
        more = b.var(const(True))
        body = ops.Block()
        b.add(ops.While(b.kernel.loc, more, body))
        with b.into(body):
            ready = b.local("ready", boolean)
            b.add(ops.MbarTryWait(b.kernel.loc, b.bar(bar), b.phase(0), ready))
            with b.when(ready):
                b.add(ops.Assign(b.kernel.loc, more, const(False)))
    with b.role("arrives", warps=1), b.elect():
        if arrives:
            b.arrive(b.bar(bar))
    return launch(b)


@pytest.mark.parametrize("reductions", [Reductions(), EVERY_ORDER], ids=["reduced", "every order"])
def test_a_loop_of_tests(reductions: Reductions) -> None:
    assert check(spinning(arrives=True), reductions=reductions).ok
    verdict = check(spinning(arrives=False), reductions=reductions)
    assert verdict.faults[0].kind == "DeadlockError"
    assert "role 'spins'" in verdict.faults[0].message


def alike(agents: int, reads_warp: bool) -> Launch:
    """Warps of one role that test one barrier, and all do the same with what they learn."""
    b = Builder()
    bar, done = b.barriers("full", count=1), b.barriers("done", count=agents)
    b.setup_done()
    with b.role("go", warps=1), b.elect():
        b.arrive(b.bar(bar))
    with b.role("same", warps=agents):
        if reads_warp:
            b.let(special("warp"))
        ready = b.local("ready", boolean)
        b.add(ops.MbarTryWait(b.kernel.loc, b.bar(bar), b.phase(0), ready))
        with b.when(ready) as branch:
            pass
        with b.into(branch.orelse):
            b.wait(b.bar(bar), 0)
        with b.elect():
            b.arrive(b.bar(done))
    return launch(b)


@pytest.mark.slow
def test_states_that_differ_by_the_names_of_warps_are_one() -> None:
    every = Reductions(partial_order=False)
    with_, without = (
        check(alike(2, False), reductions=every),
        check(alike(2, False), reductions=replace(every, symmetry=False)),
    )
    assert with_.ok
    assert without.ok
    assert with_.states < 0.95 * without.states
    told_apart = check(alike(2, True), reductions=every)
    assert told_apart.states > 1.05 * with_.states


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        (Bounds(traces=3), "3 executions"),
        (Bounds(traces=1), "1 execution"),
        (Bounds(seconds=0), "0 seconds (Bounds(seconds=), 600 by default)"),
        (Bounds(steps=10), "10 steps of one execution (Bounds(steps=))"),
        (Bounds(steps=1), "1 step of one execution (Bounds(steps=))"),
    ],
    ids=["executions", "execution", "seconds", "steps", "step"],
)
def test_a_bound_that_is_hit_decides_nothing(bounds: Bounds, words: str) -> None:
    verdict = check(items_tested(6), bounds=bounds, reductions=EVERY_ORDER)
    assert (verdict.verdict, verdict.bound, verdict.faults) == ("undecided", words, [])


def timeless(verdict: Verdict) -> Verdict:
    return replace(verdict, seconds=0.0)


@pytest.mark.parametrize(
    "make",
    [lambda: straddling(False), racing_late, lambda: spinning(False), lambda: items_tested(5)],
)
def test_the_same_input_gives_the_same_verdict_and_counterexample(
    make: Callable[[], Launch],
) -> None:
    made = make()
    first, again = check(made), check(made)
    assert timeless(first) == timeless(again)
    for fault in first.faults:
        error = replay(made, fault.schedule)
        assert error is not None
        assert (type(error).__name__, str(error)) == (fault.kind, fault.message)
        assert as_text(fault)


def test_arrays_are_left_as_they_were(capsys: pytest.CaptureFixture[str]) -> None:
    @tp.kernel()
    def adds(ctx: tp.Context, a: Any) -> None:
        @ctx.role("one", warps=1)
        def one() -> None:
            ctx.print("adding to {}", ctx.load(a[ctx.lane]))
            ctx.store(a[ctx.lane], ctx.load(a[ctx.lane]) + 1)

    a = np.arange(32, dtype=np.float32)
    assert adds.bind(a).check().ok
    assert (a == np.arange(32)).all()
    assert capsys.readouterr().out == ""


def overtaking_warps(meet: bool) -> tp.Program:
    """One warp of a warpgroup frees the slot for all four, each of which waits for it to be
    filled.
    """

    @tp.kernel()
    def ring(ctx: tp.Context, n: Any) -> None:
        full = tp.SharedMemBarrier.allocate(ctx, count=1, name="full")
        empty = tp.SharedMemBarrier.allocate(ctx, count=1, name="empty")

        @ctx.role("fill", warps=1)
        def fill() -> None:
            for i in ctx.range(n):
                empty.wait((i + 1) % 2)
                with ctx.elect_one():
                    full.arrive()

        @ctx.role("use", warpgroups=1)
        def use() -> None:
            for i in ctx.range(n):
                full.wait(i % 2)
                if meet:
                    ctx.sync_warpgroup()
                with ctx.elect_one("warpgroup"):
                    empty.arrive()

    return ring.bind(4)


def test_a_warp_that_the_other_warps_have_overtaken() -> None:
    verdict = overtaking_warps(meet=False).check()
    (fault,) = verdict.faults
    assert fault.kind == "BarrierError"
    for words in (
        "full: warps 1, 2, 3 of role 'use' can be lapped by the other warps: mbar_arrive full at",
        (
            "completes phase 1, and does not follow the wait of warps 1, 2, 3 of role 'use' for"
            " phase 0"
        ),
        "ctx.sync_warpgroup()",
    ):
        assert words in fault.message
    assert overtaking_warps(meet=True).check().ok


@pytest.mark.parametrize(("phase", "advised"), [(0, False), (1, True)])
def test_a_completion_that_nobody_observed_is_advice(phase: int, advised: bool) -> None:
    b = Builder()
    tick, go = b.barriers("tick", count=1), b.barriers("go", count=1)
    b.setup_done()
    with b.role("ticker", warps=1), b.elect():
        b.arrive(b.bar(tick))
        if advised:
            b.arrive(b.bar(tick))
        b.arrive(b.bar(go))
    with b.role("observer", warps=1):
        b.wait(b.bar(go), 0)
        b.wait(b.bar(tick), phase)
    verdict = check(launch(b))
    assert verdict.ok
    assert [a.split(" completed")[0] for a in verdict.advice] == (
        ["phase 0 of tick"] if advised else []
    )
