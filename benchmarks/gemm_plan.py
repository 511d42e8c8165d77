"""What `gemm_measure.py` is to measure next: where fits to parts of the data would choose different
configurations, those that they would choose.

    PYTHONPATH=src python benchmarks/gemm_plan.py benchmarks/gemm_times.jsonl plan.jsonl \\
        --known 300 --new 100
    PYTHONPATH=src python benchmarks/gemm_measure.py benchmarks/gemm_times.jsonl --plan plan.jsonl

Of shapes that have been measured it adds the fastest known, to which others are compared; of new
ones it takes those on which the fits disagree most. It plans nothing for shapes that are held out:
what is chosen for those is measured by `gemm_measure.py --again`.

A line: {"shape": [m, n, k], "kind": ..., "configs": [...]}.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import tilepipe as tp
from gemm_configs import text
from gemm_fit import Corrections
from gemm_model import Measured, Times, read
from gemm_pool import pool
from gemm_shapes import Shape, judged, shapes
from tilepipe.kernels.gemm.model import Problem
from tilepipe.kernels.gemm.times import Table
from tilepipe.kernels.gemm.times_constants import H200, Constants
from tilepipe.kernels.gemm.times_facts import Floats, Settings

MEMBERS, PART, RIDGE = 6, 0.6, 1.0  # fits, the part of the shapes that each sees, their strength
MOST = 5  # configurations of a shape that has been measured


@dataclass(frozen=True)
class Plan:
    """What is measured of a shape. `gain`: by how much the fits disagree, or hope for."""

    shape: Shape
    kind: str
    configs: tuple[str, ...]
    gain: float


@functools.cache
def wide() -> tuple[Settings, tuple[str, ...]]:
    """Every configuration that may be worth measuring."""
    return Settings(pool(), tp.bfloat16, tp.bfloat16, tp.H200), tuple(map(text, pool()))


def committee(times: Sequence[Times]) -> list[Table]:
    """Models whose corrections are fitted to parts of the measurements."""
    measured = Measured(times)
    found = Corrections(measured, replace(H200, corrections={}))
    every, _ = wide()
    models: list[Constants] = []
    for seed in range(MEMBERS):
        seen = np.random.default_rng(seed).random(len(times)) < PART
        (weights,) = found.weights_for(np.flatnonzero(seen[measured.of]), [RIDGE])
        models.append(found.model_with(weights))
    return [Table(every, model) for model in models]


def predicted(tables: Iterable[Table], shape: Shape) -> Floats:
    """Of all configurations by each model, the geometric mean of both regimes, microseconds."""
    problem = Problem(*shape)
    return np.array([table.scores(problem) ** (1 / 8) for table in tables])


def of_shape(tables: Sequence[Table], shape: Shape, kind: str, most: int) -> Plan:
    """What the models choose, the likeliest first, and what the others think that it loses."""
    _, words = wide()
    times = predicted(tables, shape)
    lost = times / times.min(axis=1, keepdims=True) - 1
    firsts = np.unique(lost.argmin(axis=1))
    order = firsts[np.argsort(lost[:, firsts].mean(axis=0))]
    picks = tuple(words[i] for i in order[:most])
    return Plan(shape, kind, picks, float(lost[:, firsts].mean()))


def fastest(times: Times) -> str:
    """The configuration that was fastest in bursts."""
    return times.words[int(np.nanargmin(times.us[0]))]


def known(tables: Sequence[Table], times: Sequence[Times], most: int) -> list[Plan]:
    """Of shapes that were measured, those with choices that were not."""
    found = []
    for t in times:
        plan = of_shape(tables, t.shape, t.kind, MEMBERS)
        new = [x for x in plan.configs if x not in t.words]
        if new:
            configs = (*new[: MOST - 1], fastest(t))
            found.append(replace(plan, configs=configs))
    return sorted(found, key=lambda plan: -plan.gain)[:most]


def new(tables: Sequence[Table], seen: Iterable[Shape], count: int, most: int) -> list[Plan]:
    """Of shapes that were not measured, those on which the models disagree most."""
    old = set(seen)
    every = [
        of_shape(tables, shape, kind, MEMBERS)
        for kind, shape in shapes(count)
        if shape not in old and not judged(shape)
    ]
    return sorted(every, key=lambda plan: -plan.gain)[:most]


def write(path: Path, plans: Iterable[Plan]) -> None:
    """A line for each shape."""
    with path.open("w", encoding="utf-8") as out:
        for plan in plans:
            line = {"shape": plan.shape, "kind": plan.kind, "configs": plan.configs}
            out.write(json.dumps(line, separators=(",", ":")) + "\n")


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="the measurements that there are")
    parser.add_argument("plan", type=Path)
    parser.add_argument("--known", type=int, default=0, help="shapes that were measured before")
    parser.add_argument("--new", type=int, default=0, help="shapes that were not")
    parser.add_argument("--count", type=int, default=1200, help="of the shapes to choose from")
    given = parser.parse_args()
    every = read(given.file)
    fitted = [t for t in every if not judged(t.shape)]
    tables = committee(fitted)
    plans = [
        *new(tables, (t.shape for t in every), given.count, given.new),
        *known(tables, fitted, given.known),
    ]
    write(given.plan, plans)
    print(f"{len(plans)} shapes, {len({x for plan in plans for x in plan.configs})} kernels")


if __name__ == "__main__":
    main()
