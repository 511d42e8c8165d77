"""Kernels that are no GEMM beside their peers: contests, each solved by all sides on the same
operands, every result verified.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import tilepipe as tp
from tilepipe.bench import timing
from tilepipe.bench.report import Check, Table, absences, geometric_mean, worse
from tilepipe.bench.timing import Step
from tilepipe.registry.spec import KernelSpec

OURS = "tilepipe"


@dataclass(frozen=True)
class Sides:
    """Who solves a problem, with operands in the memory of the GPU.

    Attributes:
        config: our configuration in few letters. sets: of operands, through which launches rotate.
        launches: by name, ours as `OURS`; each writes results of its own. missing: peers that
            cannot solve it, and why.
        wipe: makes all results NaN. check: (name, set) -> how far that side's result is from a
            float64 one.
    """

    config: str
    sets: int
    launches: Mapping[str, timing.Launch]
    wipe: Callable[[], None]
    check: Callable[[str, int], Check]
    missing: Mapping[str, str]


class Operands(Protocol):
    """Operands of a problem in the memory of the GPU, and who works on them."""

    sets: int  # through which launches rotate

    def wipe(self) -> None:
        """Makes all results NaN."""

    def check(self, side: str, i: int, /) -> Check:
        """How far what a side has written for set `i` is from a float64 result."""


class OurOperands(Operands, Protocol):
    """Operands that our kernel works on with any configuration; all write the same results."""

    def ours(self, config: Any, /) -> timing.Launch:
        """Our kernel, compiled and loaded, as `OURS`.

        Raises:
            TilepipeError: the configuration is impossible, or does not compile.
        """


@dataclass(frozen=True)
class Contest:
    """One problem: as text, as settings for JSON, and its multiplications and additions; or, where
    memory bounds it, `moves`, the bytes that it reads and writes once. `open` allocates, compiles
    and loads. `operands` allocates, without peers: what `tilepipe tune` tries configurations on.
    """

    problem: str
    settings: Mapping[str, Any]
    flop: float
    open: Callable[[], Sides]
    moves: float = 0.0
    operands: Callable[[], OurOperands] | None = None


@dataclass(frozen=True)
class Line:
    """One contest in one regime. `us`: medians in microseconds by side, ours first. `spreads`:
    relative. `missing`: as of `Sides`.
    """

    contest: Contest
    config: str
    regime: str
    us: Mapping[str, float]
    spreads: Mapping[str, float]
    checks: Mapping[str, Check]
    missing: Mapping[str, str]

    def ratio(self, peer: str) -> float:
        """The peer's time over ours: above 1 we are faster; NaN where it is missing."""
        return self.us[peer] / self.us[OURS] if peer in self.us else float("nan")

    @property
    def unit(self) -> str:
        """The unit of the rate."""
        return "TB/s" if self.contest.moves else "TFLOP/s"

    def rate(self, side: str) -> float:
        """TFLOP/s, or TB/s."""
        return (self.contest.moves or self.contest.flop) / self.us[side] * 1e-6

    @property
    def right(self) -> bool:
        """Every result is what it should be."""
        return all(check.right for check in self.checks.values())


def contests(
    spec: KernelSpec,
    given: Mapping[str, Any],
    shapes: Sequence[str],
    chip: tp.Chip,
    seed: int,
) -> list[Contest]:
    """What `tilepipe bench` measures of a kernel that is no GEMM."""
    module, _, kernel = spec.bench.partition(":")
    named = importlib.import_module(module)
    made = named.contests_of(kernel) if kernel else named.contests
    found: list[Contest] = made(given, shapes, chip, seed)
    return found


def seconds(contests: int, sides: int, regimes: Sequence[str], repeats: int) -> float:
    """About how long a run takes."""
    return contests * (1.0 + timing.seconds(sides, regimes, repeats))


def run(
    contests: Sequence[Contest], regimes: Sequence[str], repeats: int, step: Step
) -> list[Line]:
    """Measures every contest, one after another: a line for each and each regime.

    Raises:
        TilepipeError: our kernel cannot be built.
    """
    return [line for contest in contests for line in measure(contest, regimes, repeats, step)]


def measure(contest: Contest, regimes: Sequence[str], repeats: int, step: Step) -> list[Line]:
    """One line for each regime. What the timed launches wrote is what is verified: the first set,
    and the last that was used.
    """
    sides = contest.open()
    blocks = {name: timing.block(launch, sides.sets) for name, launch in sides.launches.items()}
    sides.wipe()
    lines = []
    for regime in regimes:
        samples = timing.timed(blocks, regime, repeats)
        us, spreads = (
            {name: of(sample) for name, sample in samples.items()}
            for of in (lambda x: x.us, timing.Sample.spread)
        )
        checks = {name: sides.check(name, 0) for name in blocks}
        lines.append(Line(contest, sides.config, regime, us, spreads, checks, sides.missing))
        step(f"{contest.problem}, {regime}")
    last = {
        name: sides.check(name, min(sides.sets, block.count) - 1) for name, block in blocks.items()
    }
    return [
        replace(line, checks={name: worse(line.checks[name], last[name]) for name in last})
        for line in lines
    ]


def table(lines: Sequence[Line], regime: str) -> Table:
    """All lines of one regime."""
    mine = [line for line in lines if line.regime == regime]
    peers = list(dict.fromkeys(name for line in mine for name in line.us if name != OURS))
    unit = mine[0].unit if mine else "TFLOP/s"
    columns = ["problem", "config", "ours µs", f"ours {unit}", "error"]
    for peer in peers:
        columns += [f"{peer} µs", f"{peer} {unit}", f"{peer} / ours"]

    def figures(line: Line, side: str) -> list[str]:
        if side not in line.us:
            return ["", "", ""]
        if side == OURS:
            last = f"{line.checks[OURS].rel_error:.1e}" if line.right else "WRONG"
        else:
            last = f"{line.ratio(side):.3f}"
        digits = 2 if line.contest.moves else 0
        return [f"{line.us[side]:.1f}", f"{line.rate(side):.{digits}f}", last]

    rows = tuple(
        (
            line.contest.problem,
            line.config,
            *(text for side in (OURS, *peers) for text in figures(line, side)),
        )
        for line in mine
    )
    notes, groups = tuple(_notes(mine, peers)), (3,) * (1 + len(peers))
    return Table(regime, tuple(columns), rows, notes, texts=2, groups=groups)


def _notes(lines: Sequence[Line], peers: Sequence[str]) -> Iterator[str]:
    for peer in peers:
        met = {line.contest.problem: line.ratio(peer) for line in lines if peer in line.us}
        if met:
            worst = min(met, key=lambda problem: met[problem])
            yield (
                f"{peer} / ours: geometric mean {geometric_mean(met.values()):.3f}, worst"
                f" {met[worst]:.3f} at {worst}"
            )
    yield from absences([(line.contest.problem, line.missing) for line in lines])
    if lines:
        spread = max(max(line.spreads.values()) for line in lines)
        yield f"spread (half the interquartile range): at most {spread:.1%}"
    for line in lines:
        for name, check in line.checks.items():
            if not check.right:
                text = f"relative error {check.rel_error:.1e}, largest {check.max_error:.1e}"
                yield f"WRONG: {name} at {line.contest.problem}: {text}"


def as_json(line: Line) -> dict[str, Any]:
    """A line for `--json`."""
    return {
        "problem": dict(line.contest.settings),
        "config": line.config,
        "regime": line.regime,
        "us": dict(line.us),
        "tbps" if line.contest.moves else "tflops": {name: line.rate(name) for name in line.us},
        "ratio": {name: line.ratio(name) for name in line.us if name != OURS},
        "spread": dict(line.spreads),
        "error": {name: asdict(check) for name, check in line.checks.items()},
        "missing": dict(line.missing),
    }
