"""Fits the constants of `kernels.gemm_blockwise.times` to `gemm_blockwise_times.jsonl`, and says
what the choice by them loses.

    PYTHONPATH=src python benchmarks/gemm_blockwise_fit.py [--tries 3000]

A line of the file: {"shape": [m, n, k], "card": ..., "deepgemm": [burst, steady], "times":
[[config, burst], ...]}, microseconds, and configurations as `gemm_blockwise_configs.py` takes them.

Tries are random changes of one to three constants, kept where the loss falls: what a soft choice
among the configurations of each shape loses, how far off the times are, and how far the constants
are from where they began, so that what the data do not say stays as it is. A third of the shapes,
by a hash of their extents, is held out of a first fit, which is judged by them.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import zlib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

import tilepipe as tp
from screening import settings_of
from tilepipe.kernels.gemm.model import Problem
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.times import Constants, Floats, Table

DATA = Path(__file__).with_name("gemm_blockwise_times.jsonl")
EVERY = 3  # one shape in so many is held out
SHARP, SPREAD, BIAS = 60.0, 0.12, 0.03  # of the soft choice; weights of how far off times are
STIFF = 2e-3  # weight of the distance from where the constants began
STIFFER = {"pair_m": 50, "pair_n": 50, "pair_k": 100, "three": 50, "twice": 50, "select": 20}
STIFFER |= {"dram": 20, "mma": 5, "shared": 5, "filled": 5, "chain": 5, "loaded": 5, "turn": 3}
# What a data sheet and single comparisons suggest.
BEGIN = Constants(
    start=2.6,
    mma=1450.0,
    shared=1750.0,
    filled=1800.0,
    chain=1800.0,
    loaded=14e6,
    turn=190.0,
    select=1.15,
    pair_m=1.01,
    pair_n=1.01,
    pair_k=0.96,
    three=1.0,
    twice=1.02,
    spared=0.3,
    epilogue=0.3,
    store=1.0,
    slice=0.05,
    joined=0.3,
    halves=0.3,
    dram=4.2e6,
    idle=0.5,
)
Shape: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Measured:
    """The times of one shape."""

    problem: Problem
    configs: list[BlockwiseGemmConfig]
    us: Floats
    deepgemm_us: float

    def predicted(self, model: Constants) -> Floats:
        """The times by the model."""
        return Table(self.configs, self.problem.out_dtype, model).us(self.problem)

    def lost(self, model: Constants) -> float:
        """What the choice by a model takes more than the fastest."""
        chosen = int(self.predicted(model).argmin())
        return float(self.us[chosen] / self.us.min() - 1)

    def ratio(self, model: Constants) -> float:
        """DeepGEMM's time over that of the choice."""
        return float(self.deepgemm_us / self.us[int(self.predicted(model).argmin())])


def read(path: Path) -> dict[Shape, Measured]:
    """What a file knows; of several lines of a shape all times, scaled to the last DeepGEMM's."""
    found: dict[Shape, Measured] = {}
    for line in path.read_text("utf-8").splitlines():
        entry = json.loads(line)
        m, n, k = entry["shape"]
        peer = entry["deepgemm"][0]
        times = {BlockwiseGemmConfig(**settings_of(text)): us for text, us in entry["times"]}
        if before := found.get((m, n, k)):
            scaled = before.us * (peer / before.deepgemm_us)
            times = dict(zip(before.configs, scaled.tolist(), strict=True)) | times
        problem = Problem(m, n, k, dtype=tp.float8_e4m3, scales="block")
        us = np.array(list(times.values()), dtype=np.float64)
        found[m, n, k] = Measured(problem, list(times), us, peer)
    return found


def held_out(shape: Shape) -> bool:
    """True if a shape is for judging alone."""
    return zlib.crc32("x".join(map(str, shape)).encode()) % EVERY == 0


def loss(model: Constants, shapes: list[Measured]) -> float:
    """What the fit makes small."""
    total = 0.0
    for x in shapes:
        predicted = x.predicted(model)
        weights = (predicted / predicted.min()) ** -SHARP
        off = np.log(predicted / x.us)
        total += float((weights * (x.us / x.us.min() - 1)).sum() / weights.sum())
        total += SPREAD * float(off.std()) + BIAS * abs(float(off.mean()))
    far = sum(
        STIFFER.get(f.name, 1) * math.log(getattr(model, f.name) / getattr(BEGIN, f.name)) ** 2
        for f in fields(Constants)
    )
    return total / len(shapes) + STIFF * far


def fit(shapes: list[Measured], tries: int, seed: int = 0) -> Constants:
    """The constants of the smallest loss that was found."""
    rng, names = random.Random(seed), [f.name for f in fields(Constants)]
    best, least = BEGIN, loss(BEGIN, shapes)
    for i in range(tries):
        step = 0.2 * (1 - i / tries) + 0.01
        changed = {
            name: getattr(best, name) * math.exp(rng.gauss(0, step))
            for name in rng.sample(names, rng.randint(1, 3))
        }
        tried = replace(best, **changed)
        if tried.spared <= 1 and (found := loss(tried, shapes)) < least:
            best, least = tried, found
    return best


def judged(model: Constants, shapes: list[Measured]) -> str:
    """What the choice by a model loses, in words."""
    lost = [x.lost(model) for x in shapes]
    ratio = statistics.geometric_mean([x.ratio(model) for x in shapes])
    return (
        f"{len(shapes)} shapes: {statistics.mean(lost):.2%} lost of the best measured,"
        f" {max(lost):.1%} at most; DeepGEMM / ours {ratio:.3f}"
    )


def main() -> None:
    """Fits to all shapes, and to those that are not held out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, default=DATA)
    parser.add_argument("--tries", type=int, default=3000)
    given = parser.parse_args()
    every = read(given.file)
    fitted = [x for shape, x in every.items() if not held_out(shape)]
    others = [x for shape, x in every.items() if held_out(shape)]
    part = fit(fitted, given.tries)
    print("fitted ", judged(part, fitted))
    print("held out", judged(part, others))
    model = fit(list(every.values()), given.tries)
    print("fitted to all:", judged(model, list(every.values())))
    for f in fields(Constants):
        print(f"    {f.name}={getattr(model, f.name):.4g},")


if __name__ == "__main__":
    main()
