"""The fit of the model by which the GEMM's configuration is chosen: first the constants of what it
says, then the corrections of what that leaves; and the tiles that it is chosen from, which are
those that were near the fastest on one of the fitted shapes.

    PYTHONPATH=src python benchmarks/gemm_fit.py benchmarks/gemm_times.jsonl --write H200

It takes a few minutes. `gemm_model.py` says what the choices are worth then.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from gemm_configs import config, text
from gemm_model import REGIMES, Ints, Measured, read
from gemm_shapes import judged
from tilepipe.kernels.gemm import tiles_data, times_data
from tilepipe.kernels.gemm.times_constants import H200, Constants
from tilepipe.kernels.gemm.times_facts import PRODUCT_TRAITS, Floats, alike

SHARP = 30.0  # of the soft choice that is fitted: how much the fastest by the model counts
NEAR = 6.0  # how much more the times of fast configurations count than those of slow ones
HELD = 0.03  # how much constants are held where they were
FOLDS, SEEDS = 5, 3  # parts of which each is left out in turn, and how often
POINTS = 128  # of the corrections
CLOSE = 0.04  # a configuration is a candidate if it was so close to the fastest of some shape
NOTHING = 1e-4  # what keeps equations solvable
RIDGES = (1.0, 2.0, 4.0)  # of the corrections, of which the best is taken


def fit(measured: Measured, start: Constants, steps: int) -> Constants:
    """Constants and corrections that pick better."""
    found = Fit(measured, replace(start, corrections={})).run(steps)
    return Corrections(measured, found).fit()


class Fit:
    """Constants that pick better, found by following the slope of `loss`."""

    def __init__(self, measured: Measured, start: Constants) -> None:
        self.measured, self.start = measured, start
        first = [
            x for f in fields(Constants) if f.name != "corrections" for x in _flat(start, f.name)
        ]
        self.first = np.log(first)
        self.logs = np.log(measured.us)
        fastest = np.minimum.reduceat(measured.filled, measured.starts, axis=1)
        self.lost = np.log(measured.filled / fastest[:, measured.of])
        self.weights = np.where(np.isnan(measured.us), 0.0, np.exp(-NEAR * self.lost))
        sums = np.add.reduceat(self.weights, measured.starts, axis=1)
        self.all_weights = np.maximum(sums, NOTHING)

    def model(self, x: Floats) -> Constants:
        """The model of logarithms of its constants."""
        values = [float(v) for v in np.exp(x)]
        left = values
        given: dict[str, Any] = {}
        for f in fields(Constants):
            old = getattr(self.start, f.name)
            if f.name == "corrections":
                given[f.name] = {}
            elif isinstance(old, tuple):
                given[f.name] = tuple(left.pop(0) for _ in old)
            else:
                given[f.name] = left.pop(0)
        return Constants(**given)

    def loss(self, x: Floats) -> float:
        """The mean of what a soft choice loses, large losses counted more, in both regimes; how far
        off the times are, among those of a shape and as such; and how far the constants are from
        those they began with.
        """
        starts, of = self.measured.starts, self.measured.of
        times = np.log(self.measured.predicted(self.model(x)))
        score = times.sum(axis=0) / 2
        soft = np.exp(-SHARP * (score - np.minimum.reduceat(score, starts)[of]))
        total = 0.0
        for i in range(len(REGIMES)):
            known = self.weights[i] > 0
            regret = np.add.reduceat(soft * (self.lost[i] + 5 * self.lost[i] ** 2), starts)
            total += float((regret / np.add.reduceat(soft, starts)).mean())
            weights = self.weights[i]
            off = np.where(known, times[i] - self.logs[i], 0.0)
            among = off - (np.add.reduceat(weights * off, starts) / self.all_weights[i])[of]
            total += float((weights * (2 * np.abs(among) + 3 * off**2)).sum() / weights.sum()) / 4
        return total + HELD * float(((x - self.first) ** 2).mean())

    def run(self, steps: int) -> Constants:
        """Adam with slopes by differences: a loss takes a millisecond."""
        x, size = self.first.copy(), 1e-4
        mean, square = np.zeros_like(x), np.zeros_like(x)
        best = x, self.loss(x)
        for step in range(1, steps + 1):
            here = self.loss(x)
            if here < best[1]:
                best = x.copy(), here
            slope = np.array(
                [(self.loss(x + size * unit) - here) / size for unit in np.eye(len(x))]
            )
            mean = 0.9 * mean + 0.1 * slope
            square = 0.99 * square + 0.01 * slope**2
            rate = 0.03 * min(1.0, 2 * (1 - step / (steps + 1)))
            x = x - rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
            if step % 50 == 0:
                print(f"step {step}: {here:.5f}", flush=True)
        return self.model(best[0])


def _flat(model: Constants, name: str) -> list[float]:
    value = getattr(model, name)
    return list(value) if isinstance(value, tuple) else [value]


class Corrections:
    """Corrections of what a model's times are off among the configurations of a shape; what all of
    them are off counts as nothing. A Gaussian process: configurations that are alike are off alike,
    in proportion to the traits of the product; by its values at `POINTS` of the places that were
    measured.
    """

    def __init__(self, measured: Measured, model: Constants) -> None:
        self.measured, self.model = measured, model
        self.points = spread(np.array(measured.settings.places), POINTS)
        near = alike(measured.settings.places, self.points)
        product = measured.facts.traits.T
        self.inputs = (near[:, :, None] * product[:, None, :]).reshape(len(near), -1)
        held = alike(self.points, self.points) + NOTHING * np.eye(len(self.points))
        self.held = np.kron(held, np.eye(PRODUCT_TRAITS))
        off = np.sqrt((measured.filled / measured.predicted(model)).prod(axis=0)) - 1
        fastest = np.minimum.reduceat(measured.filled.prod(axis=0), measured.starts)
        lost = np.log(measured.filled.prod(axis=0) / fastest[measured.of]) / 2
        self.weights = np.exp(-NEAR * lost)
        self.off = self._among(off[:, None])[:, 0]
        self.inputs = self._among(self.inputs)

    def _among(self, x: Floats) -> Floats:
        """What differs from the weighted mean of the shape."""
        starts, of = self.measured.starts, self.measured.of
        sums = np.add.reduceat(x * self.weights[:, None], starts)
        return x - (sums / np.add.reduceat(self.weights, starts)[:, None])[of]

    def weights_for(self, rows: Ints, ridges: Sequence[float]) -> list[Floats]:
        """The weights that the measurements of some rows give, for each ridge."""
        x, w = self.inputs[rows], self.weights[rows]
        normal, right = (x * w[:, None]).T @ x, (x * w[:, None]).T @ self.off[rows]
        return [np.linalg.solve(normal + ridge * self.held, right) for ridge in ridges]

    def fit(self) -> Constants:
        """The model with the corrections whose ridge is best where a part of the shapes is left out
        and judged.
        """
        costs = np.zeros(len(RIDGES))
        for seed in range(SEEDS):
            order = np.random.default_rng(seed).permutation(len(self.measured.times))
            found = np.zeros((len(RIDGES), len(self.off)))
            for i in range(FOLDS):
                out = (order % FOLDS == i)[self.measured.of]
                weights = self.weights_for(np.flatnonzero(~out), RIDGES)
                found[:, out] = [self.inputs[out] @ each for each in weights]
            costs += [self.cost(each) / SEEDS for each in found]
        for ridge, cost in zip(RIDGES, costs, strict=True):
            print(f"ridge {ridge:g}: loses {cost:.4f} on shapes that are left out")
        print(f"without corrections: {self.cost(np.zeros(len(self.off))):.4f}")
        best = RIDGES[int(np.argmin(costs))]
        (kept,) = self.weights_for(np.arange(len(self.off)), [best])
        return self.model_with(kept)

    def model_with(self, weights: Floats) -> Constants:
        """The model with corrections of such weights."""
        rows = weights.reshape(len(self.points), PRODUCT_TRAITS)
        places = (tuple(map(float, point)) for point in self.points)
        given = {place: tuple(map(float, row)) for place, row in zip(places, rows, strict=True)}
        return replace(self.model, corrections=given)

    def cost(self, correction: Floats) -> float:
        """The mean of what is lost with a correction, in both regimes, and a part of the largest
        losses.
        """
        measured = self.measured
        score = measured.predicted(self.model).prod(axis=0) * (1 + correction) ** 2
        ends = [*measured.starts[1:], len(score)]
        picks = [s + int(score[s:e].argmin()) for s, e in zip(measured.starts, ends, strict=True)]
        best = np.minimum.reduceat(measured.filled, measured.starts, axis=1)
        lost = np.log(measured.filled[:, picks] / best)
        return float((lost + 5 * lost**2).mean())


def spread(places: Floats, count: int) -> Floats:
    """So many of some places, each the one that is least known from those before it: the pivots of
    a Cholesky decomposition of how alike they are.
    """
    every = np.unique(places, axis=0)
    left, rows = np.ones(len(every)), np.zeros((0, len(every)))
    found: list[int] = []
    for _ in range(min(count, len(every))):
        pivot = int(left.argmax())
        row = alike(every[pivot : pivot + 1], every)[0] - rows[:, pivot] @ rows
        row /= np.sqrt(left[pivot])
        rows = np.vstack([rows, row])
        left = np.maximum(left - row**2, 0.0)
        found.append(pivot)
    return every[found]


Clusters: TypeAlias = tuple[int, int, int, int]
Tiles: TypeAlias = dict[tuple[str, int, int], dict[Clusters, tuple[set[int], set[int]]]]


def candidates(measured: Measured) -> Tiles:
    """bn of C, and of Cᵀ, of the tiles that were close to the fastest of a shape: by schedule,
    consumers and bm, and by cluster, cluster_n, split_k and k_parts.
    """
    times = measured.filled.prod(axis=0) ** 0.5
    close = times / np.minimum.reduceat(times, measured.starts)[measured.of] < 1 + CLOSE
    words = [word for t in measured.times for word in t.words]
    chosen = {config(word) for word, near in zip(words, close, strict=True) if near}
    found: Tiles = {}
    for cfg in sorted(chosen, key=lambda cfg: (text(cfg), cfg.bn)):
        if cfg.raster != "grouped" or cfg.group != 8:
            continue
        shared = found.setdefault((cfg.schedule, cfg.consumers, cfg.bm), {})
        key = cfg.cluster, cfg.cluster_n, cfg.split_k, cfg.k_parts
        shared.setdefault(key, (set(), set()))[cfg.swap == "ab"].add(cfg.bn)
    return found


def write_tiles(tiles: Tiles) -> None:
    """Puts the tiles in the place of those in `tiles_data`."""
    path = Path(tiles_data.__file__)
    lines = []
    for kind, shared in sorted(tiles.items()):
        lines.append(f"    {_quoted(kind)}: {{\n")
        for clusters, widths in sorted(shared.items(), key=lambda item: item[0][::-1]):
            words = f"{clusters}: {tuple(tuple(sorted(each)) for each in widths)},"
            wrapped = textwrap.wrap(words, 90, subsequent_indent="    ")
            lines += (f"        {line}\n" for line in wrapped)
        lines.append("    },\n")
    text, count = re.subn(
        r"^(TILES: .* = \{\n)(?:    .*\n)*",
        lambda match: match[1] + "".join(lines),
        path.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    assert count == 1
    path.write_text(text, encoding="utf-8")


def _quoted(kind: tuple[str, int, int]) -> str:
    return str(kind).replace("'", '"')


def write(model: Constants, chip: str) -> None:
    """Puts the constants of a chip in the place of those in `times_data`.

    Raises:
        SystemExit: there is no such chip in the file.
    """
    path = Path(times_data.__file__)
    lines = [
        f'    "{f.name}": {_rounded(getattr(model, f.name), 4)},\n'
        for f in fields(model)
        if f.name != "corrections"
    ]
    lines.append('    "corrections": {\n')
    for place, weights in model.corrections.items():
        words = f"{place}: {_rounded(weights, 4)},"
        lines += (
            f"        {line}\n" for line in textwrap.wrap(words, 92, subsequent_indent="    ")
        )
    lines.append("    },\n")
    text, count = re.subn(
        rf"^({chip}: .* = \{{\n)(?:    .*\n)*",
        lambda match: match[1] + "".join(lines),
        path.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    if not count:
        raise SystemExit(f"{path} has no constants of {chip}")
    path.write_text(text, encoding="utf-8")


def _rounded(value: Any, digits: int) -> Any:
    """So many digits: more are noise."""
    if isinstance(value, tuple):
        return tuple(_rounded(x, digits) for x in value)
    return 0.0 if abs(value) < NOTHING else float(f"{value:.{digits}g}")


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--write", metavar="CHIP", help="replace the constants of this chip")
    given = parser.parse_args()
    measured = Measured([t for t in read(given.file) if not judged(t.shape)])
    model = fit(measured, H200, given.steps)
    if given.write:
        write(model, given.write)
        write_tiles(candidates(measured))


if __name__ == "__main__":
    main()
