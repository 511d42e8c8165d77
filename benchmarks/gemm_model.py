"""How well the model picks by which the GEMM's configuration is chosen.

    PYTHONPATH=src python benchmarks/gemm_model.py benchmarks/gemm_times.jsonl

The file is that of `gemm_measure.py`. Two thirds of its shapes are fitted, by `gemm_fit.py`; the
others, by a hash of their extents, are held out, and no constant has seen them.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from gemm_configs import config, text
from gemm_shapes import Shape, judged
from tilepipe.kernels.gemm.heuristics import ranked
from tilepipe.kernels.gemm.model import Problem
from tilepipe.kernels.gemm.times import Table
from tilepipe.kernels.gemm.times_constants import H200, Constants
from tilepipe.kernels.gemm.times_facts import Facts, Floats, Settings

REGIMES = "burst", "steady"
Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Times:
    """What was measured of one shape, microseconds; NaN where it was not.

    Attributes:
        cublas: by regime. us: regimes × configurations.
    """

    shape: Shape
    kind: str
    card: str
    cublas: Floats
    words: list[str]
    us: Floats


def read(path: Path) -> list[Times]:
    """The lines of a file of `gemm_measure.py`; of a shape that was measured again, together."""
    lines: dict[Shape, list[dict[str, Any]]] = {}
    for read in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(read)
        m, n, k = line["shape"]
        lines.setdefault((m, n, k), []).append(line)
    found = []
    for shape, mine in lines.items():
        words, us = _together(
            [{"cublas": line["cublas"]} | {x[0]: x[1:] for x in line["times"]} for line in mine]
        )
        found.append(Times(shape, mine[0]["kind"], mine[0]["card"], us[:, 0], words[1:], us[:, 1:]))
    return found


def _together(runs: Sequence[dict[str, list[float | None]]]) -> tuple[list[str], Floats]:
    """The times of several runs, regimes × what was measured: averages, of runs that are scaled so
    that configurations that the first one measured, too, take as long as they did there; cuBLAS
    stands for them where there are none. A card's clock differs between runs by more than
    configurations do, and what starting a kernel of cuBLAS takes by something else.
    """
    words = list(dict.fromkeys(word for run in runs for word in run))
    us = np.full((len(runs), len(REGIMES), len(words)), np.nan)
    for of_run, run in zip(us, runs, strict=True):
        for word, times in run.items():
            of_run[:, words.index(word)] = [np.nan if x is None else x for x in times]
    logs = np.log(us)
    known = ~np.isnan(logs)
    common = known & known[0]
    ours = common.copy()
    ours[:, :, words.index("cublas")] = False
    common = np.where(ours.any(axis=2, keepdims=True), ours, common)
    slower = np.where(common, logs - logs[0], 0.0).sum(axis=2, keepdims=True)
    logs -= slower / np.maximum(common.sum(axis=2, keepdims=True), 1)
    sums = np.where(known, logs, 0.0).sum(axis=0)
    counts = known.sum(axis=0)
    return words, np.exp(np.where(counts, sums / np.maximum(counts, 1), np.nan))


class Measured:
    """Times of many shapes, one after the other: an element for each configuration of each."""

    def __init__(self, times: Sequence[Times]) -> None:
        self.times = times
        configs = [config(word) for t in times for word in t.words]
        self.settings = Settings(configs, tp.bfloat16, tp.bfloat16, tp.H200)
        of_shape = [Facts.of(Problem(*t.shape)) for t in times]
        counts = [len(t.words) for t in times]
        self.starts: Ints = np.cumsum([0, *counts[:-1]])
        self.of: Ints = np.repeat(np.arange(len(times)), counts)
        self.facts = Facts(*(np.array(x).T[..., self.of] for x in zip(*of_shape, strict=True)))
        self.us = np.concatenate([t.us for t in times], axis=1)
        longer = np.log(self.us[1] / self.us[0])
        known = ~np.isnan(longer)
        sums = np.add.reduceat(np.where(known, longer, 0.0), self.starts)
        usual = np.exp(sums / np.maximum(np.add.reduceat(known, self.starts), 1))[self.of]
        self.filled = np.array([self.us[0], np.where(known, self.us[1], self.us[0] * usual)])
        self.cublas = np.array([t.cublas for t in times]).T

    def predicted(self, model: Constants) -> Floats:
        """Regimes × configurations, microseconds."""
        return np.array(Table(self.settings, model).times(self.facts))

    def picks(self, model: Constants) -> tuple[Ints, int]:
        """For each shape the place of what the model picks among all configurations, or, where that
        was not measured, among those that were; and how often it was not.
        """
        score = self.predicted(model).prod(axis=0)
        ends = [*self.starts[1:], len(score)]
        every, words = all_configs()
        table = Table(every, model)
        places, others = [], 0
        for t, start, end in zip(self.times, self.starts, ends, strict=True):
            first = words[int(table.scores(Problem(*t.shape)).argmin())]
            if first in t.words:
                places.append(int(start) + t.words.index(first))
            else:
                others += 1
                places.append(int(start) + int(score[start:end].argmin()))
        return np.array(places), others


@functools.cache
def all_configs() -> tuple[Settings, tuple[str, ...]]:
    """Every configuration from which the GEMM's is chosen."""
    found = [cfg for cfg, _ in ranked(Problem(4096, 4096, 4096))]
    return Settings(found, tp.bfloat16, tp.bfloat16, tp.H200), tuple(map(text, found))


def judge(measured: Measured, model: Constants, what: str) -> None:
    """Prints what the model's picks, among what was measured, are worth. The steady state of one
    that was measured in bursts only is taken for as much longer as that of the others.
    """
    picks, others = measured.picks(model)
    us = measured.filled
    for i, regime in enumerate(REGIMES):
        best = np.minimum.reduceat(us[i], measured.starts)
        lost, ratios = us[i][picks] / best - 1, measured.cublas[i] / us[i][picks]
        ideal = measured.cublas[i] / best
        worst = measured.times[int(ratios.argmin())].shape
        print(
            f"{what}, {regime}: cuBLAS / picked {_mean(ratios):.4f}, worst {ratios.min():.3f} at"
            f" {'×'.join(map(str, worst))}, below 0.98: {(ratios < 0.98).mean():.1%};"
            f" cuBLAS / best {_mean(ideal):.4f}, worst {ideal.min():.3f}; lost {lost.mean():.2%},"
            f" 95th percentile {np.quantile(lost, 0.95):.2%}; {len(picks)} shapes, of"
            f" {others} of which the first configuration was not measured"
        )


def _mean(x: Floats) -> float:
    return float(np.exp(np.log(x).mean()))


def judge_all(path: Path, model: Constants = H200) -> None:
    """Judges a model on the shapes that are fitted, and on the others."""
    times = read(path)
    for what, wanted in (("fitted", False), ("held out", True)):
        judge(Measured([t for t in times if judged(t.shape) is wanted]), model, what)


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    judge_all(parser.parse_args().file)


if __name__ == "__main__":
    main()
