"""The model by which the GEMM's configuration is chosen: what it is fitted to, how well it picks,
and the fit.

    python benchmarks/gemm_model.py measure times.jsonl --shapes 60 --seed 1     on a GPU, beside
    cuBLAS, about 2 s a shape python benchmarks/gemm_model.py judge times.jsonl ...
    what the model's picks cost python benchmarks/gemm_model.py fit times.jsonl ...
    constants that pick better (needs scipy; minutes)

A line of the file is one shape: {"shape": [m, n, k], "cublas": us, "times": [[{config}, us], ...]}.
Shapes are log-uniform in 64..8192, and with --standard also the eight of `tilepipe bench gemm`. Of
each, the first configurations by the model are measured, and some others that it does not think
more than twice as slow; bursts, as `tilepipe.bench.timing` says. Results are verified.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.bench.shapes import HIGHEST, LOWEST, MULTIPLE, STANDARD
from tilepipe.kernels.gemm import model_data
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import candidates
from tilepipe.kernels.gemm.model import H200_MODEL, Model, Problem, predicted_us

WRONG = 3.5e-3  # relative error that no bfloat16 product with float32 sums has
SHARP = 30.0  # of the soft choice that is fitted: how much the fastest by the model counts
Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Times:
    """What was measured of one shape, microseconds."""

    problem: Problem
    cublas: float
    configs: list[GemmConfig]
    us: npt.NDArray[np.float64]


def read(paths: Sequence[Path]) -> Iterator[Times]:
    """The lines of files that `measure` has written."""
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            configs, us = zip(*found["times"], strict=True)
            yield Times(
                Problem(*found["shape"]),
                found["cublas"],
                [GemmConfig(**c) for c in configs],
                np.array(us),
            )


# -- measuring -------------------------------------------------------------------------


def shapes(count: int, rng: random.Random) -> Iterator[Shape]:
    """Extents log-uniform between the bounds of the random suite."""

    def extent() -> int:
        return max(
            LOWEST,
            round(math.exp(rng.uniform(math.log(LOWEST), math.log(HIGHEST))) / MULTIPLE) * MULTIPLE,
        )

    for _ in range(count):
        yield extent(), extent(), extent()


def measure(
    out: Path, wanted: Sequence[Shape], first: int, others: int, rng: random.Random
) -> None:
    """Measures shapes and appends a line for each."""
    import torch

    from tilepipe.bench import timing
    from tilepipe.cuda.runtime.driver import chip
    from tilepipe.kernels.gemm import sm90 as gemm

    def operands(m: int, n: int, k: int) -> tuple[Any, Any, Any]:
        a, b = (
            torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in ((m, k), (n, k))
        )
        return a, b, torch.empty(m, n, device="cuda", dtype=torch.bfloat16)

    gpu = chip(0)
    for shape in wanted:
        problem = Problem(*shape)
        ranked = candidates(problem, gpu)
        limit = 2 * predicted_us(problem, ranked[0], gpu)
        rest = [cfg for cfg in ranked[first:] if predicted_us(problem, cfg, gpu) < limit]
        chosen = ranked[:first] + rng.sample(rest, min(others, len(rest)))
        m, n, k = shape
        sets = min(timing.sets_for(2 * (m * k + n * k + m * n)), 400)
        data = [operands(*shape) for _ in range(sets)]
        programs = [gemm.bind(*data[0], cfg) for cfg in chosen]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda p: p.compile(), programs))  # NVRTC lets go of the interpreter
        a, b, c = data[0]
        want = a.float() @ b.float().T
        launches: dict[str, Any] = {
            "cublas": lambda i, data=data: torch.mm(data[i][0], data[i][1].T, out=data[i][2])
        }
        for number, program in enumerate(programs):
            launcher = program.launcher()
            places = [
                tuple(
                    dict(zip("abc", x, strict=True))[name].data_ptr() for name in launcher.tensors
                )
                for x in data
            ]
            launches[str(number)] = lambda i, f=launcher, places=places: f(
                places[i], torch.cuda.current_stream().cuda_stream
            )
            c.zero_()
            launches[str(number)](0)
            error = float((c.float() - want).norm() / want.norm())
            if not error < WRONG:
                raise SystemExit(f"{shape}, {chosen[number]}: relative error {error:.2g}")
        found = timing.burst(
            {name: timing.block(launch, sets) for name, launch in launches.items()}, repeats=4
        )
        times = [(asdict(cfg), found[str(number)].us) for number, cfg in enumerate(chosen)]
        with out.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps({"shape": shape, "cublas": found["cublas"].us, "times": times}) + "\n"
            )
        best, picked = (found["cublas"].us / us for us in (min(us for _, us in times), times[0][1]))
        print(
            f"{m}×{n}×{k}: cuBLAS / best of {len(times)} {best:.3f}, / the model's first"
            f" {picked:.3f}"
        )


# -- judging and fitting ---------------------------------------------------------------


def predictions(data: Sequence[Times], model: Model) -> list[npt.NDArray[np.float64]]:
    """The model's time of everything that was measured."""
    return [
        np.array([predicted_us(t.problem, cfg, model=model) for cfg in t.configs]) for t in data
    ]


def judge(data: Sequence[Times], model: Model) -> None:
    """Prints what the model's picks, among what was measured, cost."""
    picks = [int(p.argmin()) for p in predictions(data, model)]
    regrets = np.array([t.us[i] / t.us.min() for t, i in zip(data, picks, strict=True)])
    ratios = np.array([t.cublas / t.us[i] for t, i in zip(data, picks, strict=True)])
    for name, x, worst in (
        ("picked / best", regrets, regrets.argmax()),
        ("cuBLAS / picked", ratios, ratios.argmin()),
    ):
        p = data[int(worst)].problem
        print(
            f"{name}: geometric mean {np.exp(np.log(x).mean()):.4f}, worst {x[worst]:.3f} at"
            f" {p.m}×{p.n}×{p.k}, {len(data)} shapes"
        )


def loss(data: Sequence[Times], model: Model) -> float:
    """Mean regret of a soft choice, large ones counted more; and a little of how far off the times
    are.
    """
    total = off = 0.0
    for t, p in zip(data, predictions(data, model), strict=True):
        regret = np.log(t.us / t.us.min())
        weight = np.exp(-SHARP * np.log(p / p.min()))
        total += float((weight * (regret + 5 * regret**2)).sum() / weight.sum())
        off += float(np.abs(np.log(p / t.us)).mean())
    return (total + 0.1 * off) / len(data)


def numbers(model: Model) -> list[float]:
    """The constants, flat."""
    return [x for f in fields(model) for x in np.atleast_1d(getattr(model, f.name))]


def model_of(flat: Sequence[float], like: Model) -> Model:
    """The model of flat constants."""
    left = list(map(float, flat))
    values: dict[str, Any] = {}
    for f in fields(like):
        old = getattr(like, f.name)
        values[f.name] = tuple(left.pop(0) for _ in old) if isinstance(old, tuple) else left.pop(0)
    return replace(like, **values)


def fit(data: Sequence[Times], evaluations: int) -> Model:
    """Nelder and Mead from the constants that there are; each is kept positive."""
    from scipy.optimize import minimize  # type: ignore[import-untyped]

    start = np.array(numbers(H200_MODEL))
    scale = np.where(start == 0, 0.1, start)
    found = minimize(
        lambda x: loss(data, model_of(np.abs(x) * scale, H200_MODEL)),
        start / scale,
        method="Nelder-Mead",
        options={"maxfev": evaluations, "adaptive": True},
    )
    return model_of(np.abs(found.x) * scale, H200_MODEL)


def write(model: Model, chip: str) -> None:
    """Puts the constants of a chip in the place of those in `model_data`.

    Raises:
        SystemExit: there is no such chip in the file.
    """
    path = Path(model_data.__file__)
    lines = [f'    "{f.name}": {_rounded(getattr(model, f.name))},\n' for f in fields(model)]
    text, count = re.subn(
        rf"^({chip}: .* = \{{\n)(?:    .*\n)*",
        lambda match: match[1] + "".join(lines),
        path.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    if not count:
        raise SystemExit(f"{path} has no constants of {chip}")
    path.write_text(text, encoding="utf-8")


def _rounded(value: float | tuple[float, ...]) -> float | tuple[float, ...]:
    """Four digits: more are noise."""
    if isinstance(value, tuple):
        return tuple(float(f"{x:.4g}") for x in value)
    return float(f"{value:.4g}")


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("measure", "judge", "fit"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--shapes", type=int, default=60)
    parser.add_argument("--standard", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=18)
    parser.add_argument("--others", type=int, default=8)
    parser.add_argument("--evaluations", type=int, default=2000)
    parser.add_argument("--write", metavar="CHIP", help="replace the constants of this chip")
    given = parser.parse_args()
    if given.what == "measure":
        rng = random.Random(given.seed)
        wanted = [*(STANDARD if given.standard else ()), *shapes(given.shapes, rng)]
        measure(given.files[0], wanted, given.first, given.others, rng)
        return
    data = list(read(given.files))
    judge(data, H200_MODEL)
    if given.what == "fit":
        model = fit(data, given.evaluations)
        judge(data, model)
        print(model)
        if given.write:
            write(model, given.write)


if __name__ == "__main__":
    main()
