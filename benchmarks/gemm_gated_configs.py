"""Configurations of the gated GEMM, measured beside two products of cuBLAS with one or two
elementwise kernels, and beside two products of our own, in one run.

    PYTHONPATH=src python benchmarks/gemm_gated_configs.py [--shapes M,N,K ...]
    [--configs "bn=256 cluster=2" ...] [--best N] [--activation silu]

All are screened in a few bursts; the fastest are timed again, in bursts and in steady state, beside
the peers. Every result is compared with a float32 product. Needs a Hopper GPU and PyTorch.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

import tilepipe as tp
from screening import compiled, measured, settings_of
from tilepipe.bench import gated, shapes, timing
from tilepipe.bench.beside import OURS
from tilepipe.errors import TilepipeError
from tilepipe.kernels.gemm.heuristics import MAX_STAGES, stages_for
from tilepipe.kernels.gemm.model import Problem
from tilepipe.kernels.gemm_gated.config import GatedGemmConfig
from tilepipe.kernels.gemm_gated.heuristics import best, candidates

CONFIGS = (
    "bn=256",
    "bn=256 cluster=2",
    "bn=256 cluster=2 store_slots=1",
    "bn=256 cluster_n=2",
    "bn=256 cluster=2 raster=columns",
    "bn=256 cluster=2 group=16",
    "bm=256 bn=128 cluster=2",
    "bm=256 bn=128 cluster_n=2",
    "bm=256 bn=192 cluster=2 store_slots=1",
    "bn=128 schedule=pingpong cluster=2",
    "bn=128 schedule=pingpong cluster_n=2",
    "bn=192 schedule=pingpong cluster=2",
    "bm=64 bn=256 schedule=pingpong cluster=2",
    "bm=64 bn=256 schedule=pingpong cluster=4",
)
FINALISTS, SHOWN = 4, 12


def parse(text: str, activation: str) -> GatedGemmConfig:
    """A configuration from `name=value` words; as many stages as fit, unless they are given."""
    settings = settings_of(text)
    config = GatedGemmConfig(**settings, activation=activation)
    if "stages" in settings:
        return config
    stages = stages_for(config, tp.bfloat16, tp.H200)
    if stages < 2:
        raise tp.LimitError(f"two stages of {config} do not fit the shared memory of a CTA")
    return config.changed(stages=min(stages, MAX_STAGES))


def measure(
    problem: Problem, launchers: dict[str, Any], activation: str, repeats: int, seed: int
) -> None:
    """Prints the table of one shape."""
    operands = gated.GatedOperands(problem, activation, seed)
    blocks: dict[str, timing.Block] = {}
    notes, flop = [], 4.0 * problem.m * problem.n * problem.k
    for name, launcher in launchers.items():
        if isinstance(launcher, TilepipeError):
            notes.append(f"  {name}: {str(launcher).splitlines()[0]}")
            continue
        launch = operands.launches(launcher)
        operands.wipe()
        launch(0)
        torch.cuda.synchronize()
        check = operands.check(OURS)
        if check.right:
            blocks[name] = timing.block(launch, operands.sets)
        else:
            notes.append(f"  {name}: WRONG, {check}")
    first = next(x for x in launchers.values() if not isinstance(x, TilepipeError))
    sides = operands.sides(first, "")
    peers = {name: launch for name, launch in sides.launches.items() if name != OURS}
    notes += [f"  no {name}: {why}" for name, why in sides.missing.items()]
    for name, launch in peers.items():
        launch(0)
        torch.cuda.synchronize()
        check = operands.check(name)
        notes += [] if check.right else [f"  {name}: WRONG, {check}"]
        blocks[name] = timing.block(launch, operands.sets)
    found = measured(blocks, peers, FINALISTS, repeats, seed, also=["chosen"])
    screened, burst, steady = found.screened, found.burst, found.steady

    def line(name: str) -> str:
        text = f"  {name:45} {flop / screened[name] * 1e-6:5.0f}"
        for what, times in (("burst", burst), ("steady", steady)) if name in burst else ():
            ratios = ", ".join(f"{times[peer].us / times[name].us:.3f}" for peer in peers)
            us = times[name].us
            text += f"  {what} {flop / us * 1e-6:5.0f} ({us:.1f} µs; {ratios})"
        return text

    print(
        f"{problem.m}×{problem.n}×{problem.k}, {activation}; TFLOP/s (time of"
        f" {', '.join(peers)} / this one's)"
    )
    for name in dict.fromkeys([*found.ranked[:SHOWN], "chosen", *peers]):
        if name in screened:
            print(line(name))
    print(*notes, sep="\n", flush=True)


def main() -> None:
    """Compiles all configurations for all shapes, and measures shape by shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=["4096,14336,4096"])
    parser.add_argument("--configs", nargs="*", default=CONFIGS)
    parser.add_argument("--best", type=int, default=4, help="also the first N of the heuristic")
    parser.add_argument("--activation", default="silu")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    wanted: list[tuple[Problem, dict[str, GatedGemmConfig]]] = []
    for text in options.shapes:
        problem = Problem(*shapes.extents("gemm_gated", text))
        configs = {"chosen": best(problem).changed(activation=options.activation)}
        print(f"chosen for {text}: {configs['chosen']}")
        for words in options.configs:
            try:
                configs[words] = parse(words, options.activation)
            except TilepipeError as error:
                print(f"{words}: {error}")
        for i, config in enumerate(candidates(problem, limit=options.best)):
            configs[f"candidate {i}"] = config.changed(activation=options.activation)
        wanted.append((problem, configs))

    jobs = [(problem, config) for problem, configs in wanted for config in configs.values()]
    launchers = iter(compiled(lambda job: gated.build(*job), jobs))
    print(f"{len(jobs)} kernels compiled in {time.perf_counter() - start:.0f} s", flush=True)
    for problem, configs in wanted:
        torch.cuda.empty_cache()
        named = {name: next(launchers) for name in configs}
        measure(problem, named, options.activation, options.repeats, options.seed)
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
