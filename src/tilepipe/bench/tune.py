"""Searching the fastest configuration of a kernel for a problem: the likeliest candidates, each
compiled, verified and measured on the same operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import tilepipe as tp
from tilepipe.bench import timing
from tilepipe.bench.beside import OURS, OurOperands
from tilepipe.bench.operands import in_threads
from tilepipe.bench.report import Table, geometric_mean, settings_text
from tilepipe.bench.timing import Step
from tilepipe.errors import LaunchError, TilepipeError
from tilepipe.kernels.common.settings import Settings
from tilepipe.kernels.common.tunable import Tunable

FINALISTS = 8  # measured again beside the heuristic's choice
SCREENING, FINAL = 3, 15  # blocks of each candidate


@dataclass(frozen=True)
class Trial:
    """One configuration: `rank` among the candidates, from 1, which is the heuristic's pick;
    microseconds by regime, of its last measurement.
    """

    config: Settings
    rank: int
    us: Mapping[str, float]

    @property
    def score(self) -> float:
        """Geometric mean over the regimes, microseconds."""
        return geometric_mean(self.us.values())


@dataclass(frozen=True)
class Search:
    """What a search found. `trials`: finalists, the fastest first. `screened`: how many ran.
    `refused`: those that do not compile, load or launch, and why; `wrong`: those whose result is
    wrong.
    """

    text: str
    trials: tuple[Trial, ...]
    screened: int
    refused: tuple[tuple[Settings, str], ...] = ()
    wrong: tuple[Settings, ...] = ()

    def gain(self, trial: Trial) -> float:
        """The time of the heuristic's pick over that of a trial; NaN where it did not run."""
        picked = [x.score for x in self.trials if x.rank == 1]
        return picked[0] / trial.score if picked else math.nan


def steps(limit: int, regimes: Sequence[str]) -> int:
    """How often a search calls its `step`, at most."""
    return 2 * limit + 1 + len(regimes)


def seconds(limit: int, regimes: Sequence[str]) -> float:
    """About how long a search takes."""
    screening = timing.seconds(limit, ["burst"], SCREENING)
    final = timing.seconds(min(limit, FINALISTS) + 1, regimes, FINAL)
    return 3 + limit * 0.15 + screening + final


def search(
    tunable: Tunable[Any, Any],
    problem: Any,
    made: Callable[[], OurOperands],
    chip: tp.Chip,
    limit: int | None,
    regimes: Sequence[str],
    step: Step,
) -> Search:
    """Measures the first `limit` candidates for a problem, on the operands that `made` allocates.

    Each is compiled, run once and verified, and timed in a few bursts; the fastest are timed again,
    beside the heuristic's choice, in `regimes`.

    Raises:
        LaunchError: none of them runs.
    """
    candidates: list[Settings] = [*tunable.candidates(problem, chip)[:limit]]
    operands, text = made(), tunable.text(problem)

    def built(config: Settings) -> timing.Launch | TilepipeError:
        try:
            return operands.ours(config)
        except TilepipeError as error:
            return error
        finally:
            step("compiling")

    def refuse(i: int, error: TilepipeError) -> None:
        refused.append((candidates[i], str(error).splitlines()[0]))

    blocks: dict[int, timing.Block] = {}
    refused: list[tuple[Settings, str]] = []
    wrong: list[Settings] = []
    # The first one allocates what all write to.
    launches = [*map(built, candidates[:1]), *in_threads(built, candidates[1:])]
    for i, launch in enumerate(launches):
        step("verifying")
        if isinstance(launch, TilepipeError):
            refuse(i, launch)
            continue
        operands.wipe()
        try:
            launch(0)
        except LaunchError as error:  # a kernel that fails later takes the context with it
            refuse(i, error)
            continue
        torch.cuda.synchronize()
        if not operands.check(OURS, 0).right:
            wrong.append(candidates[i])
            continue
        blocks[i] = timing.block(launch, operands.sets)
    if not blocks:
        reason = refused[0][1] if refused else "its result is wrong"
        raise LaunchError(
            f"none of the {len(candidates)} candidates for {text} can be used; the first: {reason}"
        )
    times = timing.burst({str(i): block for i, block in blocks.items()}, SCREENING)
    step("the fastest again")
    ranked = sorted(blocks, key=lambda i: times[str(i)].us)
    finalists = dict.fromkeys([*ranked[:FINALISTS], *([0] if 0 in blocks else [])])
    us: dict[int, dict[str, float]] = {i: {} for i in finalists}
    for regime in regimes:
        found = timing.timed({str(i): blocks[i] for i in finalists}, regime, FINAL)
        for i in finalists:
            us[i][regime] = found[str(i)].us
        step(f"timed, {regime}")
    trials = (Trial(candidates[i], i + 1, us[i]) for i in finalists)
    fastest = tuple(sorted(trials, key=lambda trial: trial.score))
    return Search(text, fastest, len(blocks), tuple(refused), tuple(wrong))


def result_table(found: Search, count: int = 10) -> Table:
    """The best configurations of a search."""
    regimes = tuple(found.trials[0].us)
    columns = "config", "choice", *(f"{regime} µs" for regime in regimes), "gain"
    rows = tuple(
        (
            settings_text(trial.config),
            f"{trial.rank}.",
            *(f"{trial.us[regime]:.1f}" for regime in regimes),
            f"{found.gain(trial):.3f}",
        )
        for trial in found.trials[:count]
    )
    notes = [
        f"{found.screened} candidates measured; choice: their order by the heuristic, whose pick"
        " is the first; gain: the time of that over this one's",
        *(
            f"{len(found.refused)} could not be built or launched, for example"
            f" {settings_text(config)}: {reason}"
            for config, reason in found.refused[:1]
        ),
        *(f"WRONG result, not timed: {settings_text(config)}" for config in found.wrong),
    ]
    return Table(found.text, columns, rows, tuple(notes))
