"""Configurations of the GEMM of quantised weights, measured beside our 16-bit GEMM and cuBLAS in
one run.

    PYTHONPATH=src python benchmarks/gemm_quantised_configs.py [--shapes M,N,K ...] [--bits 4]
    [--configs "bm=256 split_k=4" ...]

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
from tilepipe.bench import operands as products, shapes, timing
from tilepipe.bench.beside import OURS
from tilepipe.bench.quantised import QuantisedOperands, build
from tilepipe.errors import TilepipeError
from tilepipe.kernels.gemm import heuristics as gemm_choice
from tilepipe.kernels.gemm.model import Problem
from tilepipe.kernels.gemm_quantised.config import QuantisedGemmConfig
from tilepipe.kernels.gemm_quantised.heuristics import best, filled

SHAPES = ("16,8192,8192", "64,8192,8192", "64,4096,14336", "64,14336,4096")
CONFIGS = (
    "bm=64 consumers=1",
    "bm=64 consumers=1 split_k=2",
    "bm=128 consumers=1",
    "bm=128 consumers=1 split_k=2",
    "bm=128 consumers=2",
    "bm=128 consumers=2 split_k=2",
    "bm=128 consumers=2 split_k=4",
    "bm=256 consumers=2 split_k=2",
    "bm=192 consumers=3",
)
GROUPS = (1, 2, 4)
FINALISTS, SHOWN, SCALES = 4, 12, 128


def parsed(text: str, problem: Problem, bits: int) -> dict[str, QuantisedGemmConfig]:
    """The configurations that `name=value` words leave open: of 1, 2 or 4 K tiles a stage, unless
    they are given, and of as many stages as fit.
    """
    settings = {"bn": -(-problem.m // 16) * 16} | settings_of(text)
    groups = (settings.pop("k_group_size"),) if "k_group_size" in settings else GROUPS
    found = {}
    for group in groups:
        try:
            config = QuantisedGemmConfig(**settings, k_group_size=group, store_slots=1)
        except TilepipeError as error:
            print(f"{text}: {error}")
            continue
        fits = filled(config, bits, tp.H200)
        if fits is not None:
            found[f"{text} k_group_size={group} stages={fits.stages}"] = fits
    return found


def measure(
    problem: Problem, bits: int, launchers: dict[str, Any], repeats: int, seed: int
) -> None:
    """Prints the table of one shape."""
    operands = QuantisedOperands(problem, bits, SCALES, seed)
    blocks: dict[str, timing.Block] = {}
    notes = []
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
    sides = operands.sides(first, "", products.build(problem, gemm_choice.best(problem)))
    peers = {name: launch for name, launch in sides.launches.items() if name != OURS}
    for name, launch in peers.items():
        blocks[name] = timing.block(launch, operands.sets)
    found = measured(blocks, peers, FINALISTS, repeats, seed, also=["chosen"])
    print(
        f"{problem.m}×{problem.n}×{problem.k}, {bits} bits; µs (time of {', '.join(peers)} / ours)"
    )
    for name in dict.fromkeys([*found.ranked[:SHOWN], "chosen", *peers]):
        if name not in found.screened:
            continue
        text = f"  {name:58} {found.screened[name]:6.1f}"
        for what, times in (("burst", found.burst), ("steady", found.steady)):
            if name in times:
                ratios = ", ".join(f"{times[peer].us / times[name].us:.3f}" for peer in peers)
                text += f"  {what} {times[name].us:6.1f} ({ratios})"
        print(text)
    print("  slower:", ", ".join(f"{x} {found.screened[x]:.1f}" for x in found.ranked[SHOWN:]))
    print(*notes, sep="\n", flush=True)


def main() -> None:
    """Compiles all configurations for all shapes, and measures shape by shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=SHAPES)
    parser.add_argument("--configs", nargs="*", default=CONFIGS)
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start, bits = time.perf_counter(), options.bits
    wanted = []
    for text in options.shapes:
        problem = Problem(*shapes.extents("gemm_quantised", text))
        configs = {"chosen": best(problem.m, problem.n, problem.k, bits)}
        print(f"chosen for {text}: {configs['chosen']}")
        for words in options.configs:
            configs |= parsed(words, problem, bits)
        wanted.append((problem, configs))
    jobs = [(problem, config) for problem, configs in wanted for config in configs.values()]
    launchers = iter(compiled(lambda job: build(job[0], bits, SCALES, job[1]), jobs))
    print(f"{len(jobs)} kernels compiled in {time.perf_counter() - start:.0f} s", flush=True)
    for problem, configs in wanted:
        torch.cuda.empty_cache()
        named = {name: next(launchers) for name in configs}
        measure(problem, bits, named, options.repeats, options.seed)
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
