"""Searching the fastest configuration for a problem: the heuristic's candidates, each verified and
measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

import tilepipe as tp
from tilepipe.bench import timing
from tilepipe.bench.operands import build_all, operands as operands_of
from tilepipe.bench.report import Config, Table, config_text, geometric_mean, shape_text, tflops
from tilepipe.bench.timing import Step
from tilepipe.errors import LaunchError, TilepipeError
from tilepipe.kernels.gemm import heuristics as gemm_choice
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise import heuristics as blockwise_fp8_choice

FINALISTS = 8  # measured again beside cuBLAS and the heuristic's choice
SCREENING, FINAL = 3, 15  # blocks of each candidate


@dataclass(frozen=True)
class Trial:
    """One configuration: `rank` by the heuristic, from 1; microseconds by regime, of its last
    measurement.
    """

    config: Config
    rank: int
    us: Mapping[str, float]

    @property
    def score(self) -> float:
        """Geometric mean over the regimes, microseconds."""
        return geometric_mean(self.us.values())


@dataclass(frozen=True)
class Search:
    """What a search found. `trials`: finalists, the fastest first. `peer`: cuBLAS in the same run.
    `screened`: how many ran. `refused`: those that do not compile or load; `wrong`: those whose
    result is wrong.
    """

    problem: Problem
    trials: tuple[Trial, ...]
    peer: Trial | None
    screened: int
    refused: tuple[tuple[Config, str], ...] = ()
    wrong: tuple[Config, ...] = ()


def steps(limit: int, regimes: Sequence[str]) -> int:
    """How often a search calls its `step`, about."""
    return 2 * limit + 1 + len(regimes)


def seconds(limit: int, regimes: Sequence[str]) -> float:
    """About how long a search takes."""
    screening = timing.seconds(limit, ["burst"], SCREENING)
    final = timing.seconds(min(limit, FINALISTS) + 2, regimes, FINAL)
    return 1 + limit * 0.15 + screening + final


def search(
    problem: Problem,
    chip: tp.Chip,
    limit: int | None,
    regimes: Sequence[str],
    seed: int,
    step: Step,
) -> Search:
    """Measures the heuristic's first `limit` candidates.

    Each is compiled, run once and verified, and timed in a few bursts; the fastest are timed again,
    beside cuBLAS and the heuristic's choice, in `regimes`.

    Raises:
        LaunchError: none of them runs.
    """
    family = blockwise_fp8_choice if problem.scales == "block" else gemm_choice
    candidates: list[Config] = [*family.candidates(problem, chip, limit)]
    launchers = build_all([(problem, config) for config in candidates], step)
    operands = operands_of(problem, seed)
    blocks: dict[str, timing.Block] = {}
    refused: list[tuple[Config, str]] = []
    wrong: list[Config] = []
    for i, (config, launcher) in enumerate(zip(candidates, launchers, strict=True)):
        step("verifying")
        if isinstance(launcher, TilepipeError):
            refused.append((config, str(launcher).splitlines()[0]))
            continue
        launch = operands.launches(launcher)
        operands.c[0].fill_(torch.nan)
        launch(0)
        torch.cuda.synchronize()
        if not operands.check(operands.c).right:
            wrong.append(config)
            continue
        blocks[str(i)] = timing.block(launch, operands.sets)
    if not blocks:
        reason = refused[0][1] if refused else "its result is wrong"
        raise LaunchError(
            f"none of the {len(candidates)} candidates for {shape_text(problem)} can be used; the"
            f" first: {reason}"
        )
    times = {name: sample.us for name, sample in timing.burst(blocks, SCREENING).items()}
    step("the fastest again")
    ranked = sorted(times, key=lambda name: times[name])
    finalists = {
        name: blocks[name]
        for name in dict.fromkeys([*ranked[:FINALISTS], *(["0"] if "0" in blocks else [])])
    }
    finalists["peer"] = timing.block(operands.peer, operands.sets)
    us: dict[str, dict[str, float]] = {name: {} for name in finalists}
    for regime in regimes:
        for name, sample in timing.timed(finalists, regime, FINAL).items():
            us[name][regime] = sample.us
        step(f"timed, {regime}")
    peer = Trial(GemmConfig(), 0, us.pop("peer"))
    trials = sorted(
        (Trial(candidates[int(name)], int(name) + 1, found) for name, found in us.items()),
        key=lambda trial: trial.score,
    )
    return Search(problem, tuple(trials), peer, len(blocks), tuple(refused), tuple(wrong))


def result_table(found: Search, count: int = 10) -> Table:
    """The best configurations of a search."""
    regimes = tuple(found.trials[0].us)
    columns = (
        "config",
        "choice",
        *(f"{regime} µs" for regime in regimes),
        "TFLOP/s",
        "cuBLAS / ours",
    )
    peer = found.peer
    rows = tuple(
        (
            config_text(trial.config),
            f"{trial.rank}.",
            *(f"{trial.us[regime]:.1f}" for regime in regimes),
            f"{tflops(found.problem, trial.score):.0f}",
            f"{peer.score / trial.score if peer is not None else math.nan:.3f}",
        )
        for trial in found.trials[:count]
    )
    times = [] if peer is None else [f"{us:.1f} µs {regime}" for regime, us in peer.us.items()]
    notes = [
        f"{found.screened} candidates measured; choice: their order by the heuristic",
        *([f"cuBLAS: {', '.join(times)}"] if times else []),
        *(
            f"{len(found.refused)} could not be built, for example {config_text(config)}: {reason}"
            for config, reason in found.refused[:1]
        ),
        *(f"WRONG result, not timed: {config_text(config)}" for config in found.wrong),
    ]
    return Table(shape_text(found.problem), columns, rows, tuple(notes))
