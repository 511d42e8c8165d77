"""One exploration in several processes: the same verdict as in one, and the same way to it every
time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import pytest

import tilepipe as tp
from tests.support.check import recipes
from tilepipe.check import Bounds, Reductions, Verdict
from tilepipe.check.parallel import InstanceError, check_all

APART = Reductions(hashing=False)  # where states are merged, one process does the work


def verdict_of(recipe: Callable[[], tp.Program], jobs: int, **options: object) -> Verdict:
    (verdict,) = check_all([("asks", recipe)], jobs=jobs, **options)  # type: ignore[arg-type]
    return replace(verdict, seconds=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("hashing", [True, False])
def test_several_processes_find_every_answer_and_tell_their_progress(hashing: bool) -> None:
    recipe, reductions = functools.partial(recipes.asks, 6), Reductions(hashing=hashing)
    told: list[tuple[str, int]] = []
    alone = verdict_of(recipe, 1, reductions=reductions)
    shared = verdict_of(
        recipe,
        3,
        reductions=reductions,
        progress=lambda name, done, left: told.append((name, done)),
    )
    assert alone.ok
    assert alone.traces >= 64
    assert (shared.verdict, shared.method, shared.completions) == (
        alone.verdict,
        alone.method,
        alone.completions,
    )
    assert alone.traces <= shared.traces <= alone.traces * 2
    assert {name for name, _ in told} == {"asks"}
    assert [done for _, done in told] == sorted(done for _, done in told)
    assert told[-1][1] >= 60


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [0b010101, pytest.param(0b111111, marks=pytest.mark.thorough)])
def test_a_fault_is_the_same_every_time(wrong: int) -> None:
    recipe = functools.partial(recipes.asks, 6, wrong)
    alone, shared, again = (verdict_of(recipe, jobs, reductions=APART) for jobs in (1, 2, 2))
    assert alone.verdict == shared.verdict == "fault"
    assert shared == again
    (mine,), (theirs,) = alone.faults, shared.faults
    assert (mine.kind, mine.loc) == (theirs.kind, theirs.loc)
    assert mine.kind == "KernelAssertError"
    assert "not this answer" in theirs.message
    assert theirs.schedule


@pytest.mark.slow
def test_bounds_count_all_processes() -> None:
    verdict = verdict_of(
        functools.partial(recipes.asks, 7), 2, bounds=Bounds(traces=40), reductions=APART
    )
    assert (verdict.verdict, verdict.bound, verdict.traces) == ("undecided", "40 executions", 40)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (
            recipes.ends_elsewhere,
            (
                "instance 'asks': WorkerError: the process that explored it with others ended with"
                " exit code 7"
            ),
        ),
        (
            recipes.raises_elsewhere,
            (
                "WorkerError: a process cannot make the instance that it is to explore: BindError:"
                " not here"
            ),
        ),
    ],
)
def test_a_process_that_is_lost(recipe: Callable[[int], tp.Program], said: str) -> None:
    with pytest.raises(InstanceError) as caught:
        check_all(
            [("asks", functools.partial(recipe, 6)), ("few", functools.partial(recipes.asks, 2))],
            jobs=3,
            reductions=APART,
        )
    assert said.removeprefix("instance 'asks': ") in str(caught.value)
    assert [v and v.verdict for v in caught.value.verdicts] == [None, "verified"]
