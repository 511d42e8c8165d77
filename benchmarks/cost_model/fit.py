"""Fits the costs of a chip (`src/tilepipe/machine/chips`) to `times.jsonl` and `demands.jsonl`, and
says how far predicted times are from measured ones.

    PYTHONPATH=src python benchmarks/cost_model/fit.py

Errors are of kernels that were held out: problems, with all choices of tiles, are split in four,
and each part is predicted with the costs fitted to the other three.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from tilepipe.machine.calibration import Costs, Demand

HERE = Path(__file__).parent
FOLDS, TRIES = 4, 12_000
_TILES = re.compile(r" ?(bm|bn|stages|consumers|cluster)=\d+")


@dataclass(frozen=True)
class Kernel:
    """A measured kernel. `problem`: without the choice of tiles."""

    name: str
    settings: str
    us: float
    demand: Demand

    @property
    def problem(self) -> str:
        """The kernel and its extents."""
        return f"{self.name} {_TILES.sub('', self.settings)}"


def kernels() -> list[Kernel]:
    """Those that are measured and have been simulated."""
    asked = {}
    for line in (HERE / "demands.jsonl").read_text().splitlines():
        x = json.loads(line)
        about = x.pop("kernel"), x.pop("settings")
        asked[about] = Demand(**x)
    found = []
    for line in (HERE / "times.jsonl").read_text().splitlines():
        x = json.loads(line)
        demand = asked.get((x["kernel"], x["settings"]))
        if demand is not None:
            found.append(Kernel(x["kernel"], x["settings"], x["us"], demand))
    return found


def fitted(known: Sequence[Kernel]) -> Costs:
    """The costs with the smallest mean error, in the logarithm, that a random search finds."""
    random = np.random.default_rng(0)

    def error(costs: Costs) -> float:
        return statistics.mean(
            abs(float(np.log(costs.predicted_us(x.demand) / x.us))) for x in known
        )

    best = Costs(2.0, 1.0, 0.9, 10.0, 5.0)
    least, step = error(best), 0.3
    for i in range(TRIES):
        given = np.array(list(asdict(best).values()))
        changed = given * np.exp(
            random.normal(0, step, given.size) * (random.random(given.size) < 0.4)
        )
        trial = Costs(*map(float, changed))
        if (found := error(trial)) < least:
            best, least = trial, found
        if i % 2000 == 1999:
            step *= 0.6
    return best


def main() -> None:
    """See the head of the file."""
    every = kernels()
    problems = sorted({x.problem for x in every})
    predicted: dict[int, float] = {}
    for fold in range(FOLDS):
        held = {i for i, x in enumerate(every) if problems.index(x.problem) % FOLDS == fold}
        costs = fitted([x for i, x in enumerate(every) if i not in held])
        predicted |= {i: costs.predicted_us(every[i].demand) for i in held}
    errors = np.array([abs(predicted[i] / x.us - 1) for i, x in enumerate(every)])
    quarters = ", ".join(f"{q:.0%}: {np.quantile(errors, q):.1%}" for q in (0.5, 0.75, 0.9, 1.0))
    print(f"{len(every)} kernels, {len(problems)} problems; errors of held-out ones, {quarters}")
    for name in dict.fromkeys(x.name for x in every):
        mine = [i for i, x in enumerate(every) if x.name == name]
        print(
            f"| `{name}` | {len(mine)} | {np.median(errors[mine]):.1%} | {errors[mine].max():.1%} |"
        )
    for problem in problems:
        mine = [i for i, x in enumerate(every) if x.problem == problem]
        if len(mine) < 2:
            continue
        said = np.array([predicted[i] for i in mine])
        took = np.array([every[i].us for i in mine])
        order = np.corrcoef(np.argsort(np.argsort(said)), np.argsort(np.argsort(took)))[0, 1]
        loss = took[int(said.argmin())] / took.min() - 1
        print(f"| {problem} | {len(mine)} | {order:.2f} | {loss:.1%} |")
    costs = fitted(every)
    print({field.name: round(getattr(costs, field.name), 3) for field in fields(costs)})


if __name__ == "__main__":
    main()
