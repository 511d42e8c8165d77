"""The GEMM beside cuBLAS: the same operands, in the same run, both results verified."""

from __future__ import annotations

import contextlib
import datetime
import functools
import subprocess
from collections.abc import Sequence
from typing import Any

import torch

import tilepipe as tp
from tilepipe.bench import beside, quack, timing, tune
from tilepipe.bench.operands import build, build_all, operands
from tilepipe.bench.report import Check, Config, Line, Side, config_text, flop, problem_json
from tilepipe.bench.shapes import Choice, Suite
from tilepipe.bench.timing import Step
from tilepipe.cuda.nvrtc.compiler import nvrtc_version
from tilepipe.errors import TilepipeError
from tilepipe.kernels.common import tuned
from tilepipe.kernels.common.tunable import Tunable
from tilepipe.kernels.gemm import heuristics as gemm_choice
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise import heuristics as blockwise_fp8_choice
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig

REGIMES_TEXT = (
    f"burst: {timing.IDLE_S * 1e3:.0f} ms idle, then one CUDA graph of about"
    f" {timing.BLOCK_S * 1e3:.0f} ms, kernels in random order, median; steady: one kernel alone,"
    f" {timing.SETTLE_S:.1f} s to settle and {timing.TIMED_S:.1f} s timed, in turns, median of 3"
)
DATA_TEXT = (
    f"standard normal operands, rotated through at least {timing.ROTATE_BYTES / 1e6:.0f} MB; ratio:"
    " peer's time / ours; error: ours, relative Frobenius, against float32 torch.matmul of the same"
    " values; both results of the timed launches are verified"
)


class GemmOperands:
    """The operands of a product, as `tilepipe tune` tries configurations on them."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._problem, self._of = problem, operands(problem, seed)
        self.sets = self._of.sets

    def ours(self, config: Config) -> timing.Launch:
        """Our kernel with a configuration. Raises TilepipeError where there is none."""
        return self._of.launches(build(self._problem, config))

    def wipe(self) -> None:
        """Makes our results NaN."""
        for matrix in self._of.c:
            matrix.fill_(torch.nan)

    def check(self, side: str, i: int) -> Check:
        """How far our result of set `i` is from the float32 one."""
        return self._of.check(self._of.c, i)


def peer(problem: Problem) -> str:
    """What stands beside our kernel, for the head of a column."""
    return "scaled_mm" if problem.scales == "block" else "cuBLAS"


def environment(chip: tp.Chip) -> str:
    """Card, driver, versions and date, in one line."""
    limit, version = _nvidia_smi()
    return (
        f"NVIDIA {chip.name} ({chip.sms} SMs{limit}){version}, CUDA {torch.version.cuda}, NVRTC"
        f" {nvrtc_version()}, torch {torch.__version__}, tilepipe {tp.__version__},"
        f" {datetime.date.today().isoformat()}"
    )


def _nvidia_smi() -> tuple[str, str]:
    """Power limit and driver version as nvidia-smi has them; empty where it is not there."""
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        command = [
            "nvidia-smi",
            "--id=0",
            "--query-gpu=power.limit,driver_version",
            "--format=csv,noheader,nounits",
        ]
        limit, version = (
            subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
            .stdout.strip()
            .split(", ")
        )
        return f", {float(limit):.0f} W", f", driver {version}"
    return "", ""


def steps(suites: Sequence[Suite], choice: Choice, regimes: Sequence[str]) -> int:
    """How often a run calls its `step`."""
    count = sum(len(suite.problems) for suite in suites)
    searching = (tune.steps(choice.count, regimes) if choice.how == "best" else 0) * count
    return searching + 1 + count * (1 + len(regimes))


def seconds(suites: Sequence[Suite], choice: Choice, regimes: Sequence[str], repeats: int) -> float:
    """About how long a run takes."""
    count = sum(len(suite.problems) for suite in suites)
    each = 0.7 + timing.seconds(2, regimes, repeats)
    each += tune.seconds(choice.count, regimes) if choice.how == "best" else 0
    other = timing.seconds(1, regimes, repeats)
    tuned = [quack.seconds(problem) for suite in suites for problem in suite.problems]
    return count * each + sum(x + other for x in tuned if x)


def run(
    suites: Sequence[Suite],
    choice: Choice,
    regimes: Sequence[str],
    repeats: int,
    seed: int,
    chip: tp.Chip,
    step: Step,
) -> list[list[Line]]:
    """Measures every problem of every suite; the lines of each suite.

    Raises:
        TilepipeError: a configuration cannot be built.
    """
    problems = [problem for suite in suites for problem in suite.problems]
    configs = [configuration(problem, choice, regimes, chip, seed, step) for problem in problems]
    step("compiling")
    launchers = build_all(
        [(problem, config) for problem, (config, _) in zip(problems, configs, strict=True)], step
    )
    lines: dict[Problem, list[Line]] = {}
    for problem, (config, origin), launcher in zip(problems, configs, launchers, strict=True):
        if isinstance(launcher, TilepipeError):
            raise launcher
        lines[problem] = measure(problem, config, origin, launcher, regimes, repeats, seed, step)
    return [[line for problem in suite.problems for line in lines[problem]] for suite in suites]


def configuration(
    problem: Problem, choice: Choice, regimes: Sequence[str], chip: tp.Chip, seed: int, step: Step
) -> tuple[Config, str]:
    """The configuration for a problem, and where it comes from."""
    if choice.config is not None:
        return choice.config, "given"
    blocks = problem.scales == "block"
    tunable: Tunable[Problem, Any] = (blockwise_fp8_choice if blocks else gemm_choice).TUNABLE
    if choice.how == "best":
        made = functools.partial(GemmOperands, problem, seed)
        found = tune.search(tunable, problem, made, chip, choice.count, regimes, step)
        best = found.trials[0].config
        assert isinstance(best, GemmConfig | BlockwiseGemmConfig)
        return best, "best"
    remembered = tuned.lookup(tunable, problem, chip) if choice.how == "tuned" else None
    if remembered is not None:
        return remembered, "tuned"
    return tunable.best(problem, chip), "chosen"


def measure(
    problem: Problem,
    config: Config,
    origin: str,
    launcher: Any,
    regimes: Sequence[str],
    repeats: int,
    seed: int,
    step: Step,
) -> list[Line]:
    """One line for each regime. What the timed launches wrote is what is verified."""
    made = operands(problem, seed)
    others, missing = made.other_peers()
    results = {"peer": made.peer_c, "ours": made.c} | {name: c for name, (_, c) in others.items()}

    def wipe() -> None:
        for matrices in results.values():
            for matrix in matrices:
                matrix.fill_(torch.nan)

    sides = beside.Sides(
        config_text(config),
        made.sets,
        {"peer": made.peer, "ours": made.launches(launcher)}
        | {name: launch for name, (launch, _) in others.items()},
        wipe,
        lambda side, i: made.check(results[side], i),
        missing,
    )
    name = f"{problem.m}×{problem.n}×{problem.k}"
    contest = beside.Contest(name, problem_json(problem), flop(problem), lambda: sides)
    return [
        Line(
            problem,
            config,
            origin,
            line.regime,
            line.us["peer"],
            line.us["ours"],
            line.spreads["peer"],
            line.spreads["ours"],
            line.checks["peer"],
            line.checks["ours"],
            {name: Side(line.us[name], line.spreads[name], line.checks[name]) for name in others},
            line.missing,
        )
        for line in beside.measure(contest, regimes, repeats, step)
    ]
