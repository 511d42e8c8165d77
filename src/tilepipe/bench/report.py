"""What a benchmark prints: tables, for a terminal, as Markdown and as JSON. Pure functions of the
figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tilepipe.bench.shapes import Suite, Target
from tilepipe.kernels.common.settings import Settings
from tilepipe.kernels.common.tiling import Sm90Tiling
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig

Config = GemmConfig | BlockwiseGemmConfig
CONFIG_LEGEND = (
    "config: BM×BN×BK s stages; w MMA warpgroups, unless 2; pp ping-pong; T transposed tiles; c"
    " cluster M×N; k CTAs that split K; o output slots, unless 2; g group of the raster; / columns"
    " of one wgmma"
)


@dataclass(frozen=True)
class Check:
    """How far a result is from the float32 one. `rel_error`: Frobenius. `max_error`: of one
    element, over the root mean square of all.
    """

    rel_error: float
    max_error: float
    right: bool


def worse(one: Check, other: Check) -> Check:
    """The check with the larger error, a wrong one before any other."""
    return max(one, other, key=lambda check: (not check.right, check.rel_error))


@dataclass(frozen=True)
class Side:
    """A further peer in a line: its median in microseconds, the relative spread, its check."""

    us: float
    spread: float
    check: Check


@dataclass(frozen=True)
class Line:
    """One problem in one regime: medians in microseconds, the spreads beside them relative.
    `others`: further peers, by name. `missing`: those that could not solve the problem, and why.
    """

    problem: Problem
    config: Config
    origin: str
    regime: str
    peer_us: float
    ours_us: float
    peer_spread: float
    ours_spread: float
    peer_check: Check
    ours_check: Check
    others: Mapping[str, Side] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """The peer's time over ours: above 1 we are faster."""
        return self.peer_us / self.ours_us

    @property
    def right(self) -> bool:
        """All results are what they should be."""
        return all(check.right for check in self.checks("peer").values())

    def ratio_to(self, other: str) -> float:
        """The time of a further peer over ours."""
        return self.others[other].us / self.ours_us

    def checks(self, peer: str) -> dict[str, Check]:
        """By name; `peer`: the first peer's."""
        others = {name: side.check for name, side in self.others.items()}
        return {peer: self.peer_check, "ours": self.ours_check} | others


@dataclass(frozen=True)
class Table:
    """A table and what is said below it. The first `texts` columns are text, the others figures, in
    `groups` of so many that belong together; each by itself, unless given.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    texts: int = 1
    groups: tuple[int, ...] = ()


def flop(problem: Problem) -> float:
    """Multiplications and additions of a product."""
    return 2.0 * problem.batch * problem.m * problem.n * problem.k


def tflops(problem: Problem, us: float) -> float:
    """TFLOP/s."""
    return flop(problem) / us * 1e-6


def shape_text(problem: Problem) -> str:
    """M×N×K, and what is not the default."""
    rest = [
        f"{f.name}={getattr(problem, f.name)}"
        for f in fields(problem)
        if f.name not in ("m", "n", "k", "dtype", "out_dtype", "scales")
        and getattr(problem, f.name) != f.default
    ]
    return " ".join([f"{problem.m}×{problem.n}×{problem.k}", *rest])


def config_text(config: Sm90Tiling) -> str:
    """A configuration in few letters; `CONFIG_LEGEND` explains them."""
    default = GemmConfig()
    marks = {
        f"w{config.consumers}": config.consumers != default.consumers,
        "pp": config.schedule == "pingpong",
        "T": config.swap != default.swap,
        f"c{config.cluster}×{config.cluster_n}": config.cluster * config.cluster_n > 1,
        f"k{config.split_k}": config.split_k > 1,
        f"o{config.store_slots}": config.store_slots != default.store_slots,
        f"g{config.group}": config.group != default.group and config.raster == "grouped",
        config.raster: config.raster != default.raster,
    }
    rest = {
        f"{name}={getattr(config, name)}": getattr(config, name) != getattr(default, name)
        for name in ("k_group_size", "accumulate", "activation")
    }
    last = {}
    if isinstance(config, BlockwiseGemmConfig):
        last = {f"/{config.piece_cols}": config.splits > 1}
    shown = [mark for mark, unusual in (marks | rest | last).items() if unusual]
    return " ".join([f"{config.bm}×{config.bn}×{config.bk} s{config.stages}", *shown])


def settings_text(config: Settings) -> str:
    """Any configuration: that of a product in few letters, of another kernel the settings that are
    not at their defaults.
    """
    if isinstance(config, Sm90Tiling):
        return config_text(config)
    default = type(config)().as_dict()
    found = [f"{name}={x}" for name, x in config.as_dict().items() if x != default[name]]
    return " ".join(found) or "the defaults"


def legend(configs: Iterable[Settings]) -> str:
    """What explains `settings_text` of these: nothing where it spells all settings out."""
    return CONFIG_LEGEND if any(isinstance(x, Sm90Tiling) for x in configs) else ""


def geometric_mean(values: Iterable[float]) -> float:
    """NaN of nothing."""
    logs = [math.log(x) for x in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def regime_table(suite: Suite, regime: str, lines: Sequence[Line], peer: str) -> Table:
    """The table of a suite in one regime."""
    mine = [line for line in lines if line.regime == regime]
    others = list(dict.fromkeys(name for line in mine for name in line.others))
    rows = tuple(
        (
            shape_text(line.problem),
            config_text(line.config)
            + ("" if line.origin in ("chosen", "given") else f" ({line.origin})"),
            f"{line.peer_us:.1f}",
            f"{tflops(line.problem, line.peer_us):.0f}",
            f"{line.ours_us:.1f}",
            f"{tflops(line.problem, line.ours_us):.0f}",
            f"{line.ratio:.3f}",
            *(text for name in others for text in _beside(line, name)),
            f"{line.ours_check.rel_error:.1e}" if line.right else "WRONG",
        )
        for line in mine
    )
    more = [text for name in others for text in (f"{name} µs", f"{name} / ours")]
    columns = (
        "M×N×K",
        "config",
        *(f"{peer} µs", f"{peer} TFLOP/s", "ours µs", "ours TFLOP/s"),
        f"{peer} / ours",
        *more,
        "error",
    )
    notes = [
        *verdicts(mine, suite.target),
        *(_against(mine, name) for name in others),
        *absences([(shape_text(line.problem), line.missing) for line in mine]),
        *wrong(mine, peer),
    ]
    title, groups = f"{suite.title}, {regime}", (2, 2, 1, *(2 for _ in others), 1)
    return Table(title, columns, rows, tuple(notes), texts=2, groups=groups)


def verdicts(lines: Sequence[Line], target: Target) -> list[str]:
    """The geometric mean and the worst of the ratios, beside what is aimed at; and how steady the
    figures were.
    """
    if not lines:
        return []
    mean = geometric_mean(line.ratio for line in lines)
    worst = min(lines, key=lambda line: line.ratio)
    spread = max(max(line.peer_spread, line.ours_spread) for line in lines)
    return [
        f"geometric mean of the ratios {mean:.3f}{_verdict(mean, target.mean)}; "
        f"worst {worst.ratio:.3f} at {shape_text(worst.problem)}"
        f"{_verdict(worst.ratio, target.worst)}",
        f"half the interquartile range of a figure is at most {spread:.1%} of it",
    ]


def _beside(line: Line, other: str) -> tuple[str, str]:
    """The cells of a further peer, empty where it could not solve the problem."""
    if other not in line.others:
        return "", ""
    return f"{line.others[other].us:.1f}", f"{line.ratio_to(other):.3f}"


def _against(lines: Sequence[Line], other: str) -> str:
    mine = [line for line in lines if other in line.others]
    worst = min(mine, key=lambda line: line.ratio_to(other))
    mean = geometric_mean(line.ratio_to(other) for line in mine)
    return (
        f"{other} / ours: geometric mean {mean:.3f}; worst {worst.ratio_to(other):.3f} at"
        f" {shape_text(worst.problem)}"
    )


def absences(missing: Sequence[tuple[str, Mapping[str, str]]]) -> Iterator[str]:
    """A sentence for each reason why peers are missing, with the problems unless those are all.

    `missing`: of each problem, the peers and why.
    """
    where: dict[tuple[str, str], list[str]] = {}
    for problem, peers in missing:
        for peer, reason in peers.items():
            where.setdefault((peer, reason), []).append(problem)
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (peer, reason), problems in where.items():
        alike.setdefault((reason, tuple(problems)), []).append(peer)
    for (reason, there), names in alike.items():
        at = "" if len(there) == len(missing) else f" at {'; '.join(there)}"
        yield f"no {', '.join(names)}{at}: {reason}"


def _verdict(value: float, wanted: float | None) -> str:
    if wanted is None:
        return ""
    return f" (at least {wanted:.2f}: {'met' if value >= wanted else 'MISSED'})"


def wrong(lines: Sequence[Line], peer: str) -> list[str]:
    """A sentence for each wrong result."""
    return [
        f"WRONG: {who} at {shape_text(line.problem)}: relative error {check.rel_error:.1e}, worst"
        f" element {check.max_error:.1e} of the rms"
        for line in lines
        for who, check in line.checks(peer).items()
        if not check.right
    ]


def limit_text(value: float, limit: float | None) -> str:
    """Whether a time that should stay below `limit` does."""
    return "" if limit is None else f"below {limit:g}: {'met' if value < limit else 'MISSED'}"


def to_markdown(table: Table) -> str:
    """As a Markdown table, its title above and its notes below."""
    rule = ["---" if i < table.texts else "---:" for i in range(len(table.columns))]
    lines = [f"**{table.title}**", ""]
    lines += [
        "| " + " | ".join(cells).strip() + " |" for cells in (table.columns, rule, *table.rows)
    ]
    if table.notes:
        lines += ["", *(f"{note}  " for note in table.notes[:-1]), table.notes[-1]]
    return "\n".join(lines) + "\n"


def as_json(line: Line) -> dict[str, Any]:
    """A line for `--json`."""
    return {
        "problem": problem_json(line.problem),
        "config": line.config.as_dict(),
        "origin": line.origin,
        "regime": line.regime,
        "peer_us": line.peer_us,
        "ours_us": line.ours_us,
        "ratio": line.ratio,
        "peer_spread": line.peer_spread,
        "ours_spread": line.ours_spread,
        "peer_error": asdict(line.peer_check),
        "ours_error": asdict(line.ours_check),
        "others": {name: asdict(side) for name, side in line.others.items()},
        "missing": dict(line.missing),
    }


def problem_json(problem: Problem) -> dict[str, Any]:
    """A problem for `--json`, dtypes by name."""
    values = {f.name: getattr(problem, f.name) for f in fields(problem)}
    return {
        name: value if isinstance(value, int | str) else str(value)
        for name, value in values.items()
    }
