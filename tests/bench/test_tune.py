"""The search of `tilepipe tune` with PyTorch's CPU in place of the GPU: what is measured, refused,
found wrong and said.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import pytest

import tilepipe as tp
from tilepipe.kernels.gemm import heuristics as gemm_choice

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.support.bench.emulated import PROBLEM, Machine, machine, one_element  # noqa: E402
from tilepipe.bench import gemm, timing, tune  # noqa: E402

__all__ = ["machine"]


def searched(limit: int, regimes: tuple[str, ...], machine: Machine) -> tune.Search:
    return tune.search(
        gemm_choice.TUNABLE,
        PROBLEM,
        functools.partial(gemm.GemmOperands, PROBLEM, 0),
        tp.H200,
        limit,
        regimes,
        machine.steps.append,
    )


@pytest.mark.slow
def test_a_search_ranks_refuses_and_finds_the_wrong(machine: Machine) -> None:
    candidates = gemm_choice.candidates(PROBLEM, tp.H200, 12)
    fast, refused, wrong = candidates[7], candidates[1], candidates[2]
    machine.us = lambda config: 4.0 if config == fast else 8.0 + candidates.index(config) / 10
    machine.refuses = lambda config: config == refused
    machine.broken = lambda config, c: one_element(config, c) if config == wrong else None
    found = searched(12, ("burst", "steady"), machine)
    assert (found.trials[0].config, found.trials[0].rank) == (fast, 8)
    assert found.trials[1].config == candidates[0]
    assert found.trials[0].us == {"burst": 4.0, "steady": 4.0}
    assert found.refused == ((refused, "too large"),)
    assert found.wrong == (wrong,)
    assert found.screened == 10
    assert found.gain(found.trials[0]) == pytest.approx(2.0)
    assert len(machine.steps) == tune.steps(12, ("burst", "steady"))
    table = tune.result_table(found)
    assert table.rows[0][1] == "8."
    assert table.rows[0][-1] == "2.000"
    notes = "\n".join(table.notes)
    for word in (
        "10 candidates measured",
        "1 could not be built or launched",
        "too large",
        "WRONG result",
    ):
        assert word in notes


@pytest.mark.slow
def test_a_launch_that_the_driver_refuses_ends_no_search(machine: Machine) -> None:
    candidates = gemm_choice.candidates(PROBLEM, tp.H200, 4)

    class Refusing(gemm.GemmOperands):
        def ours(self, config: Any) -> timing.Launch:
            launch = super().ours(config)

            def refused(i: int) -> object:
                raise tp.LaunchError("cuLaunchKernelEx failed: CUDA_ERROR_INVALID_VALUE\nin detail")

            return refused if config in candidates[1:3] else launch

    made = functools.partial(Refusing, PROBLEM, 0)
    step = machine.steps.append
    found = tune.search(gemm_choice.TUNABLE, PROBLEM, made, tp.H200, 4, ("burst",), step)
    why = "cuLaunchKernelEx failed: CUDA_ERROR_INVALID_VALUE"
    assert found.refused == ((candidates[1], why), (candidates[2], why))
    assert {trial.rank for trial in found.trials} == {1, 4}
    assert len(machine.steps) == tune.steps(4, ("burst",))
    assert any("2 could not be built or launched" in x for x in tune.result_table(found).notes)


@pytest.mark.slow
def test_the_heuristics_choice_is_always_among_the_finalists(machine: Machine) -> None:
    candidates = gemm_choice.candidates(PROBLEM, tp.H200, 20)
    machine.us = lambda config: 100.0 if config == candidates[0] else 5.0
    found = searched(20, ("burst",), machine)
    assert found.trials[-1].rank == 1
    assert len(found.trials) == tune.FINALISTS + 1


def test_the_first_candidate_is_built_before_the_others(machine: Machine) -> None:
    """It allocates the results that all write to; the others are built in threads."""
    built: list[Any] = []

    class Lazy(gemm.GemmOperands):
        def ours(self, config: Any) -> timing.Launch:
            built.append(config)
            if len(built) == 1:
                time.sleep(0.05)
                assert len(built) == 1
            return super().ours(config)

    made = functools.partial(Lazy, PROBLEM, 0)
    step = machine.steps.append
    tune.search(gemm_choice.TUNABLE, PROBLEM, made, tp.H200, 6, ("burst",), step)
    assert built[0] == gemm_choice.best(PROBLEM)
    assert len(built) == 6


def test_nothing_that_runs_is_an_error(machine: Machine) -> None:
    machine.refuses = lambda config: True
    with pytest.raises(
        tp.LaunchError,
        match="none of the 4 candidates for m=72 n=136 k=264 can be used; the first: too large",
    ):
        searched(4, ("burst",), machine)
