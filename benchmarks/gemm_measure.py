"""Times of the GEMM's configurations beside cuBLAS, on the shapes of `gemm_shapes.py`, appended to
a file of one line for each shape. Needs a Hopper GPU and PyTorch.

    PYTHONPATH=src python benchmarks/gemm_measure.py benchmarks/gemm_times.jsonl --seconds 100

It goes on where the file ends, writes each line as soon as it has it, and stops by itself. Of each
shape it measures the first configurations by the model, and some others; bursts of all of them, and
the steady state of the fastest. Blocks and pauses are shorter than those of `tilepipe bench`;
`--check N` measures N shapes in its way, too, and prints how far apart the two are.

A line: {"shape": [m, n, k], "kind": ..., "card": ..., "cublas": [burst, steady], "times":
[[config, burst, steady or null], ...]}, in microseconds, and configs as `gemm_configs` writes them.
"""

from __future__ import annotations

import argparse
import collections
import gc
import json
import multiprocessing
import random
import statistics
import time
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

import tilepipe as tp
from gemm_configs import config, text, worth_a_try
from gemm_shapes import Shape, shapes
from tilepipe.bench import timing
from tilepipe.bench.operands import ALIGNMENT, in_turn
from tilepipe.cuda.runtime import driver
from tilepipe.errors import TilepipeError
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem, ranked as ranked_by_model
from tilepipe.ops.torch.tensors import TensorView

INPUTS, RESULTS = 2 * 10**9, 10**9  # bytes of memory that operands and results are cut from
MOST_SETS, MOST_LAUNCHES = 256, 400
BLOCK_US, IDLE_S, REPEATS = 1000.0, 3e-3, 2
# Where the tensor cores do this much, the power limit lowers the clock, which takes a while.
HOT_TFLOPS, HOT, COOL = 300.0, (0.015, 0.03), (0.003, 0.012)  # seconds to settle, and timed
FINALISTS = 2
WRONG = 3.5e-3  # relative error that no bfloat16 product with float32 sums has
SEED = 1
WELL_KNOWN, MORE = ("standard", "named"), (6, 4)  # kinds of shapes that are searched more widely

spent: dict[str, float] = collections.defaultdict(float)  # seconds, by what was done


class Memory:
    """Memory of a GPU that holds normal values, and as much for results."""

    def __init__(self) -> None:
        self.inputs = torch.empty(INPUTS // 2, device="cuda", dtype=torch.bfloat16)
        for part in self.inputs.split(1 << 27):
            part.normal_()
        self.results = torch.empty(RESULTS // 2, device="cuda", dtype=torch.bfloat16)

    def operands(self, shape: Shape) -> tuple[list[Any], list[Any], list[Any]]:
        """Matrices A, B and C, in sets through which a block of launches rotates."""
        m, n, k = shape
        sizes = [-(-x * 2 // ALIGNMENT) * ALIGNMENT // 2 for x in (m * k, n * k, m * n)]
        sets = min(
            timing.sets_for(2 * sum(sizes)),
            self.inputs.numel() // (sizes[0] + sizes[1]),
            self.results.numel() // sizes[2],
            MOST_SETS,
        )
        step = sizes[0] + sizes[1]
        a = [self.inputs[i * step :][: m * k].view(m, k) for i in range(sets)]
        b = [self.inputs[i * step + sizes[0] :][: n * k].view(n, k) for i in range(sets)]
        c = [self.results[i * sizes[2] :][: m * n].view(m, n) for i in range(sets)]
        return a, b, c


def bound(views: Sequence[Any], cfg: GemmConfig, chip: tp.Chip) -> tp.Program:
    """The GEMM for tensors."""
    a, b, c = map(TensorView, views)
    return gemm.bind(a, b, c, cfg, chip=chip)


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
    return worth_a_try(Problem(*shape), chip, first, others, rng)


def measure(
    shape: Shape, configs: Sequence[GemmConfig], memory: Memory, chip: tp.Chip, long: bool
) -> dict[str, Any]:
    """The line of a shape.

    Raises:
        SystemExit: a result is wrong.
    """
    began = time.perf_counter()
    m, n, k = shape
    a, b, c = memory.operands(shape)
    sets = len(a)
    bts = [x.t() for x in b]
    launches: dict[str, timing.Launch] = {"cublas": lambda i: torch.mm(a[i], bts[i], out=c[i])}
    for cfg in configs:
        try:
            launcher = bound((a[0], b[0], c[0]), cfg, chip).launcher()
        except TilepipeError as error:
            print(f"{shape}, {text(cfg)}: {str(error).splitlines()[0]}")
            continue
        launches[text(cfg)] = in_turn(launcher, {"a": a, "b": b, "c": c})
    launches["cublas"](0)
    want = c[0].clone()
    errors = []
    for name in list(launches)[1:]:
        c[0].fill_(torch.nan)
        launches[name](0)
        errors.append(torch.linalg.vector_norm((c[0] - want).float()))
    found = (torch.stack(errors) / torch.linalg.vector_norm(want.float())).tolist()
    for name, off in zip(list(launches)[1:], found, strict=True):
        if not off < WRONG:
            raise SystemExit(f"{shape}, {name}: relative error {off:.2g} beside cuBLAS")
    del want
    spent["binding and verifying"] += time.perf_counter() - began
    began = time.perf_counter()
    expected = dict(ranked_by_model(Problem(*shape), chip))
    least = min(expected.values())
    known = {text(cfg): expected.get(cfg, least) for cfg in configs}
    guesses = {name: known.get(name, least) for name in launches}
    blocks = {
        name: timing.Block(
            launch, min(max(2, round(BLOCK_US / guesses[name])), MOST_LAUNCHES), sets
        )
        for name, launch in launches.items()
    }
    for block in blocks.values():
        block.run()
    spent["capturing"] += time.perf_counter() - began
    began = time.perf_counter()
    burst = {x: s.us for x, s in timing.burst(blocks, REPEATS, SEED, IDLE_S).items()}
    spent["bursts"] += time.perf_counter() - began
    began = time.perf_counter()
    ranked = sorted((x for x in burst if x != "cublas"), key=burst.__getitem__)
    last = list(dict.fromkeys([*ranked[:FINALISTS], list(launches)[1], "cublas"]))
    hot = 2 * m * n * k / burst[ranked[0]] * 1e-6 > HOT_TFLOPS
    settle, timed = HOT if hot else COOL
    random.Random(SEED).shuffle(last)
    if hot:
        timing.steady({"": blocks[last[-1]]}, 1, settle, settle)
    steady = {
        x: s.us for x, s in timing.steady({x: blocks[x] for x in last}, 1, settle, timed).items()
    }
    spent["steady"] += time.perf_counter() - began
    line: dict[str, Any] = {
        "cublas": [_digits(burst["cublas"]), _digits(steady["cublas"])],
        "times": [
            [x, _digits(burst[x]), _digits(steady[x]) if x in steady else None] for x in ranked
        ],
    }
    if long:
        full = {x: timing.block(launches[x], sets) for x in (ranked[0], "cublas")}
        later = timing.burst(full, 5), timing.steady(full, 1)
        for what, short, long_ones in zip(("burst", "steady"), (burst, steady), later, strict=True):
            pairs = ", ".join(
                f"{x} {short[x]:.2f} µs by {blocks[x].count}, {y.us:.2f} by {full[x].count}"
                for x, y in long_ones.items()
            )
            print(f"{shape} {what}, short and long blocks: {pairs}")
    return line


def _digits(us: float) -> float:
    """Four digits: more are noise."""
    return float(f"{us:.4g}")


class Compiling:
    """Configurations that other processes compile into the cache on disk, in their order."""

    def __init__(self, wanted: Sequence[GemmConfig], chip: tp.Chip, processes: int) -> None:
        context = multiprocessing.get_context("fork")  # NVRTC alone runs in the children
        self._pool = ProcessPoolExecutor(processes, context)
        self._results = {cfg: self._pool.submit(compile_one, cfg, chip) for cfg in wanted}

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


def main() -> None:
    """Reads the arguments, compiles, and measures until the time is over."""
    start = time.perf_counter()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--count", type=int, default=441, help="of the shapes of all runs")
    parser.add_argument("--most", type=int, default=441, help="shapes in this run")
    parser.add_argument("--first", type=int, default=6)
    parser.add_argument("--others", type=int, default=5)
    parser.add_argument(
        "--again", type=int, default=0, help="first, of known shapes, so many of the model's firsts"
    )
    parser.add_argument("--check", type=int, default=0)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--compile", action="store_true", help="only compile; needs no GPU")
    given = parser.parse_args()
    chip = tp.H200 if given.compile else driver.chip(0)
    known = done(given.file)
    every = shapes(given.count)
    configs = {
        shape: chosen(shape, chip, *(MORE if kind in WELL_KNOWN else (given.first, given.others)))
        for kind, shape in every
        if shape not in known
    }
    again = {
        shape: found
        for _, shape in every
        if shape in known and (found := unknown(shape, known[shape], chip, given.again))
    }
    new = [x for x in every if x[1] in configs]
    new.sort(key=lambda x: x[0] not in WELL_KNOWN)
    todo = new[: given.most] + [x for x in every if x[1] in again]
    configs = {shape: (again | configs)[shape] for _, shape in todo}
    wanted = list(dict.fromkeys(cfg for found in configs.values() for cfg in found))
    print(
        f"{len(todo)} shapes of {given.count}, {len(again)} of them again, {len(wanted)} kernels;"
        f" {chip.name}",
        flush=True,
    )
    compiling = Compiling(wanted, chip, given.processes)
    if given.compile:
        compiling.done(wanted)
        return
    flops = {shape: shape[0] * shape[1] * shape[2] for _, shape in todo[:60]}
    checked = sorted(flops, key=flops.__getitem__)[1 : 1 + 8 * given.check : 8]
    memory = Memory()
    gc.collect()
    gc.freeze()
    ratios: list[tuple[float, float]] = []
    with given.file.open("a", encoding="utf-8") as out:
        for kind, shape in todo:
            if time.perf_counter() - start > given.seconds:
                break
            try:
                began = time.perf_counter()
                ready = compiling.done(configs[shape])
                spent["waiting for compilers"] += time.perf_counter() - began
                line = measure(shape, ready, memory, chip, shape in checked)
            except TilepipeError as error:
                print(f"{shape}: {error}", flush=True)
                continue
            head = {"shape": shape, "kind": kind, "card": chip.name}
            out.write(json.dumps(head | line, separators=(",", ":")) + "\n")
            out.flush()
            best = [min(x[i] for x in line["times"] if x[i] is not None) for i in (1, 2)]
            ratios.append((line["cublas"][0] / best[0], line["cublas"][1] / best[1]))
    compiling.stop()
    print(f"{len(ratios)} shapes measured, {time.perf_counter() - start:.1f} s in all;", end=" ")
    print(", ".join(f"{what} {x:.1f} s" for what, x in spent.items()))
    for regime, mine in zip(("burst", "steady"), zip(*ratios, strict=True), strict=True):
        print(f"{regime}: cuBLAS / best, geometric mean {statistics.geometric_mean(mine):.4f}")


if __name__ == "__main__":
    main()
