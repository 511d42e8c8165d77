"""Times of the GEMM's configurations beside cuBLAS, on the shapes of `gemm_shapes.py`, appended to
a file of one line for each shape. Needs a Hopper GPU and PyTorch.

    PYTHONPATH=src python benchmarks/gemm_measure.py benchmarks/gemm_times.jsonl --seconds 100

It goes on where the file ends, writes each line as soon as it has it, and stops by itself. Of each
shape it measures the first configurations by the model, and some others; bursts of all of them, and
the steady state of the fastest. Several processes prepare shapes, and take turns at the GPU, so
that it never waits for a kernel to be compiled or read. Blocks and pauses are shorter than those of
`tilepipe bench`; `--check N` measures N shapes in its way, too, and prints how far apart the two
are.

A line: {"shape": [m, n, k], "kind": ..., "card": ..., "cublas": [burst, steady], "times":
[[config, burst, steady or null], ...]}, in microseconds, and configs as `gemm_configs` writes them.
Those with "kernel": "before" are of one whose launches took 0.1 to 0.3 µs longer: they say how
configurations compare, and nothing of cuBLAS where others do.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import random
import statistics
import time
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch

import tilepipe as tp
from gemm_configs import config, text, worth_a_try
from gemm_shapes import Shape, shapes
from gemm_worker import SEED, Seconds, Worker, bound
from tilepipe.cuda.runtime import driver
from tilepipe.errors import TilepipeError
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem, ranked as ranked_by_model

WELL_KNOWN = "standard", "named"
# Where the model knows least: more is measured, which takes little time.
FEW_ROWS, MORE = 256, (8, 6)


def compile_one(cfg: GemmConfig, chip: tp.Chip) -> str | None:
    """Compiles a configuration into the cache on disk; what is wrong with it, or None."""
    try:
        views = [torch.empty(x, dtype=torch.bfloat16) for x in ((64, 64), (64, 64), (64, 64))]
        bound(views, cfg, chip).compile()
    except TilepipeError as error:
        return str(error).splitlines()[0]
    return None


def chosen(shape: Shape, chip: tp.Chip, first: int, others: int) -> list[GemmConfig]:
    """What is measured of a shape; the same in every run."""
    rng = random.Random(zlib.crc32(repr(shape).encode()) + SEED)
    if min(shape[:2]) <= FEW_ROWS:
        first, others = max(first, MORE[0]), max(others, MORE[1])
    return worth_a_try(Problem(*shape), chip, first, others, rng)


class Compiling:
    """Configurations that other processes compile into the cache on disk, in their order."""

    def __init__(self, wanted: Sequence[GemmConfig], chip: tp.Chip, processes: int) -> None:
        context = multiprocessing.get_context("fork")  # NVRTC alone runs in the children
        self._pool = ProcessPoolExecutor(processes, context)
        self._results = {cfg: self._pool.submit(compile_one, cfg, chip) for cfg in wanted}

    def ready(self, configs: Iterable[GemmConfig]) -> bool:
        """True if configurations are there."""
        return all(self._results[cfg].done() for cfg in configs)

    def done(self, configs: Iterable[GemmConfig]) -> list[GemmConfig]:
        """Waits for configurations, and returns those that can be compiled."""
        found = []
        for cfg in configs:
            problem = self._results[cfg].result()
            if problem is None:
                found.append(cfg)
            else:
                print(f"{text(cfg)}: {problem}")
        return found

    def stop(self) -> None:
        """Forgets what has not been compiled."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def done(path: Path) -> dict[Shape, dict[str, float]]:
    """What a file knows of each shape: the burst of each configuration."""
    found: dict[Shape, dict[str, float]] = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        read = json.loads(line)
        m, n, k = read["shape"]
        found.setdefault((m, n, k), {}).update({word: us for word, us, _ in read["times"]})
    return found


def unknown(shape: Shape, known: dict[str, float], chip: tp.Chip, most: int) -> list[GemmConfig]:
    """What is measured again of a shape whose first configuration by the model is not known: the
    first ones that are not, and the fastest one that is, to which the others are compared.
    """
    first = [cfg for cfg, _ in ranked_by_model(Problem(*shape), chip)[:most]]
    if not first or text(first[0]) in known:
        return []
    found = [cfg for cfg in first if text(cfg) not in known]
    return [*found, config(min(known, key=known.__getitem__), chip)]


def planned(path: Path) -> dict[Shape, tuple[str, list[GemmConfig]]]:
    """What a file of `gemm_plan.py` says, in its order."""
    found: dict[Shape, tuple[str, list[GemmConfig]]] = {}
    for read in path.read_text("utf-8").splitlines():
        line = json.loads(read)
        m, n, k = line["shape"]
        found[m, n, k] = line["kind"], [config(word) for word in line["configs"]]
    return found


def selected(given: argparse.Namespace, chip: tp.Chip) -> dict[Shape, tuple[str, list[GemmConfig]]]:
    """The shapes that are left to do, each with its kind and what is measured of it."""
    if given.plan:
        return planned(given.plan)
    known = done(given.file)
    every = shapes(given.count)
    new = [
        (shape, kind, chosen(shape, chip, given.first, given.others))
        for kind, shape in every
        if shape not in known
    ]
    new.sort(key=lambda x: x[1] not in WELL_KNOWN)
    again = [
        (shape, kind, found)
        for kind, shape in every
        if shape in known and (found := unknown(shape, known[shape], chip, given.again))
    ]
    part, parts = map(int, given.part.split("/"))
    return {
        shape: (kind, configs)
        for shape, kind, configs in [*new[: given.most], *again][part - 1 :: parts]
    }


class Run:
    """Workers that measure shapes, and the file that their lines are written to."""

    def __init__(self, file: Path, chip: tp.Chip, workers: int) -> None:
        self.chip, self.file = chip, file
        context = multiprocessing.get_context("spawn")  # each has a CUDA context of its own
        self.room = workers + 1  # one more waits, so that no worker does
        self.workers = ProcessPoolExecutor(
            workers, context, initializer=Worker.begin, initargs=(context.Lock(), chip)
        )
        self.running: dict[Future[tuple[dict[str, Any], Seconds]], tuple[Shape, str]] = {}
        self.ratios: list[tuple[float, float]] = []
        self.spent: Seconds = collections.defaultdict(float)
        self.failed = False

    def begin(self, shape: Shape, kind: str, configs: Sequence[GemmConfig], long: bool) -> None:
        """Lets a worker measure a shape when it has time."""
        self.running[self.workers.submit(Worker.line, shape, configs, long)] = shape, kind

    def collect(self) -> None:
        """Waits a little, and writes the lines that there are."""
        ended, _ = wait(self.running, 0.02, return_when=FIRST_COMPLETED)
        for job in ended:
            shape, kind = self.running.pop(job)
            try:
                line, took = job.result()
            except (TilepipeError, ArithmeticError) as error:
                print(f"{shape}: {error}", flush=True)
                self.failed = True
                continue
            for what, seconds in took.items():
                self.spent[what] += seconds
            head = {"shape": shape, "kind": kind, "card": self.chip.name}
            with self.file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(head | line, separators=(",", ":")) + "\n")
            best = [min(x[i] for x in line["times"] if x[i] is not None) for i in (1, 2)]
            self.ratios.append((line["cublas"][0] / best[0], line["cublas"][1] / best[1]))


def main() -> None:
    """Reads the arguments, compiles, and measures until the time is over."""
    start = time.perf_counter()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--plan", type=Path, help="a file of gemm_plan.py, of what is measured")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--count", type=int, default=441, help="of the shapes of all runs")
    parser.add_argument("--most", type=int, default=441, help="new shapes in this run")
    parser.add_argument("--part", default="1/1", help="of the shapes left to do: the I-th of N")
    parser.add_argument("--first", type=int, default=5)
    parser.add_argument("--others", type=int, default=4)
    parser.add_argument(
        "--again", type=int, default=0, help="of known shapes, so many of the model's firsts"
    )
    parser.add_argument("--check", type=int, default=0)
    parser.add_argument("--processes", type=int, default=11, help="that compile")
    parser.add_argument("--workers", type=int, default=4, help="that prepare and measure")
    parser.add_argument("--compile", action="store_true", help="only compile; needs no GPU")
    given = parser.parse_args()
    chip = tp.H200 if given.compile else driver.chip(0)
    todo = selected(given, chip)
    wanted = list(dict.fromkeys(cfg for _, configs in todo.values() for cfg in configs))
    print(f"{len(todo)} shapes of {given.count}, {len(wanted)} kernels; {chip.name}", flush=True)
    compiling = Compiling(wanted, chip, given.processes)
    if given.compile:
        compiling.done(wanted)
        return
    by_flops = sorted(list(todo)[:60], key=lambda x: x[0] * x[1] * x[2])
    checked = by_flops[1 : 1 + 8 * given.check : 8]
    run = Run(given.file, chip, given.workers)
    while todo or run.running:
        if time.perf_counter() - start > given.seconds:
            todo.clear()
        ready = [x for x, (_, configs) in todo.items() if compiling.ready(configs)]
        for shape in ready[: run.room - len(run.running)]:
            kind, configs = todo.pop(shape)
            run.begin(shape, kind, compiling.done(configs), shape in checked)
        run.collect()
    compiling.stop()
    run.workers.shutdown()
    print(
        f"{len(run.ratios)} shapes measured, {time.perf_counter() - start:.1f} s in all;", end=" "
    )
    print(", ".join(f"{what} {x:.1f} s" for what, x in run.spent.items()))
    for regime, mine in zip(("burst", "steady"), zip(*run.ratios, strict=True), strict=True):
        print(f"{regime}: cuBLAS / best, geometric mean {statistics.geometric_mean(mine):.4f}")
    if run.failed:
        raise SystemExit("some shapes have no line: see above")


if __name__ == "__main__":
    main()
