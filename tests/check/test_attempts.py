"""An attempt to decide a launch: what it may treat as a wait, what it says of one that fails, and
for which lanes and numbers of clusters it goes on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.check.engine.test_why_explored import program as lowered_flag
from tests.check.test_decide import EVERY_ORDER, items_tested, racing_late, straddling
from tests.support.check.flag_programs import Do, Program, launch as flag_launch
from tilepipe.check import Bounds, check
from tilepipe.check.choose_front_end import front_end_of
from tilepipe.check.decide import decide
from tilepipe.check.engine.race_reversal import Explorer
from tilepipe.check.unreached import Coverage
from tilepipe.check.verdict import Reductions
from tilepipe.ir.program import Launch

PUT, GET = Do("put", 0), Do("get", 0)
RAISE, WAIT = Do("set", 0, 1), Do("wait", 0, 1)


def after_deciding(
    launch: Launch, reductions: Reductions, explore: bool = False
) -> tuple[int, bool]:
    """How many tests counted as waits in the end, and whether loops did."""
    explorer = Explorer(front_end_of(launch, "practice"), Bounds(), reductions, None)
    assert decide(explorer, explore, "").ok
    return len(explorer.front_end.guards.tests), explorer.front_end.waits_for_flags


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launch", "usually"),
    [
        (items_tested(2), (2, True)),
        (flag_launch(Program(((PUT, RAISE), (WAIT, GET)), ctas=False)), (0, True)),
    ],
    ids=["tests", "a loop"],
)
def test_trying_every_order_takes_nothing_for_a_wait(
    launch: Launch, usually: tuple[int, bool]
) -> None:
    assert after_deciding(launch, Reductions()) == usually
    assert after_deciding(launch, EVERY_ORDER) == (0, False)
    assert after_deciding(launch, Reductions(), explore=True) == (0, False)


@pytest.mark.slow
def test_trying_every_order_is_exploring() -> None:
    verdict = check(straddling(first_waits=True), reductions=EVERY_ORDER)
    assert (verdict.verdict, verdict.method, verdict.facts) == ("verified", "explored", [])


def test_lines_are_reached_by_what_is_verified() -> None:
    assert check(straddling(first_waits=True)).coverage != Coverage()
    for bad in (check(racing_late()), check(straddling(True), bounds=Bounds(steps=1))):
        assert bad.verdict in ("fault", "undecided")
        assert bad.coverage == Coverage()


def test_a_bound_in_the_first_execution_keeps_the_reason_of_the_text() -> None:
    verdict = check(lowered_flag().launch_args, bounds=Bounds(steps=1))
    assert (verdict.verdict, verdict.method) == ("undecided", "single-execution")
    assert "which an ordinary store at" in verdict.explored_because


def test_a_fault_with_all_clusters_at_once_is_not_sought_with_fewer() -> None:
    threads = ((PUT, replace(RAISE, value=2)), (WAIT, GET))
    (fault,) = check(flag_launch(Program(threads, resident=2))).faults
    assert fault.kind == "DeadlockError"
    assert "can be resident" not in fault.message


@tp.kernel()
def racing_after_tests(ctx: tp.Context, out: Any) -> None:
    """A ring whose consumer tests before each wait; in the end both roles write."""
    full = tp.SharedMemBarrier.allocate(ctx, 1, "full")
    back = tp.SharedMemBarrier.allocate(ctx, 1, "back")

    @ctx.role("fill", warps=1)
    def fill() -> None:
        for i in ctx.range(3):
            with ctx.elect_one():
                full.arrive()
            back.wait(i % 2)
        with ctx.elect_one():
            ctx.store(out[0], 1)

    @ctx.role("use", warps=1)
    def use() -> None:
        for i in ctx.range(3):
            ready = full.try_wait(i % 2)
            with ctx.when(~ready):
                full.wait(i % 2)
            with ctx.elect_one():
                back.arrive()
        with ctx.elect_one():
            ctx.store(out[0], 2)


def test_a_fault_with_waits_in_the_place_of_tests_is_sought_again_with_tests() -> None:
    """What the first execution has counted is forgotten."""
    launch = racing_after_tests.bind(np.zeros(1, np.int32)).launch_args
    front_end = front_end_of(launch, "practice")
    assert len(front_end.possible_guards().tests) == 1
    explorer = Explorer(front_end, Bounds(), Reductions(), None)
    verdict = decide(explorer, False, "", shorten=False)
    assert not front_end.guards.tests
    assert (verdict.verdict, verdict.traces, verdict.states) == ("fault", 2, 20)


@tp.kernel()
def numbered(ctx: tp.Context, out: Any, *, least: int) -> None:
    """The elected lane stores its number, which is to be below some, after the other role or before
    it.
    """

    def store() -> None:
        with ctx.elect_one():
            ctx.atomic_max(out[0], ctx.lane + 1)
            ctx.assert_(ctx.lane < least)  # noqa: PT009

    ctx.role("one", warps=1)(store)
    ctx.role("other", warps=1)(store)


def test_a_fault_for_one_elected_lane_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes are tried from the last to the first."""
    launch = numbered.bind(np.zeros(1, np.int32), least=30).launch_args
    assert front_end_of(launch, "practice").lanes == tuple(range(31, -1, -1))
    begun: list[int] = []
    begin = Explorer.begin

    def counted(explorer: Explorer, *given: Any) -> Any:
        begun.append(explorer.front_end.elected)
        return begin(explorer, *given)

    monkeypatch.setattr(Explorer, "begin", counted)
    verdict = check(launch, shorten=False)
    assert (verdict.verdict, begun) == ("fault", [31])
    assert "thread 31 of role 'one'" in verdict.faults[0].message


def test_exploring_for_each_elected_lane_establishes_no_fact() -> None:
    verdict = check(numbered.bind(np.zeros(1, np.int32), least=32).launch_args, explore=True)
    assert (verdict.verdict, verdict.facts) == ("verified", [])
