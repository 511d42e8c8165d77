"""Configurations of the grouped GEMM, measured beside PyTorch's `grouped_mm` and a loop of cuBLAS
over the groups, in one run.

    PYTHONPATH=src python benchmarks/gemm_grouped_configs.py [--shapes M,N,K,GROUPS,SPLIT ...]
    [--configs "bn=256 cluster=2" ...] [--best N]

All are screened in a few bursts; the fastest are timed again, in bursts and in steady state, beside
the peers. Every result is compared with a float32 product. Needs a Hopper GPU and PyTorch.
`tilepipe bench gemm_grouped` measures what the library chooses.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

import tilepipe as tp
from screening import compiled, measured, settings_of
from tilepipe.bench import grouped, timing
from tilepipe.bench.beside import OURS
from tilepipe.bench.grouped import GroupedOperands
from tilepipe.bench.groups import parse as parse_shape
from tilepipe.errors import TilepipeError
from tilepipe.kernels.gemm.heuristics import MAX_STAGES, stages_for
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.heuristics import GroupedProblem, best, candidates

CONFIGS = (
    "bn=256 store_slots=2",
    "bn=256 cluster=2",
    "bn=256 cluster_n=2",
    "bn=256 cluster_n=2 raster=rows",
    "bn=256 raster=columns",
    "bn=192",
    "bm=256 bn=128",
    "bm=256 bn=128 cluster=2",
    "bm=256 bn=128 cluster_n=2",
    "bm=256 bn=128 cluster_n=2 group=16",
    "bn=128",
    "bn=128 cluster_n=2",
    "bn=160 schedule=pingpong",
    "bn=128 schedule=pingpong",
    "bn=128 schedule=pingpong cluster_n=2",
    "bn=192 schedule=pingpong",
    "bm=64 bn=256 schedule=pingpong",
    "bm=64 bn=256 schedule=pingpong cluster_n=2",
    "bm=64 consumers=1 bn=128",
    "bm=64 consumers=1 bn=256",
    "bm=64 consumers=1 bn=64",
)
FINALISTS, SHOWN = 4, 12


def parse(text: str, dtype: tp.DType) -> GroupedGemmConfig:
    """A configuration from `name=value` words; as many stages as fit, unless they are given."""
    settings = settings_of(text)
    config = GroupedGemmConfig(**settings)
    if "stages" in settings:
        return config
    stages = stages_for(config, dtype, tp.H200)
    if stages < 2:
        raise tp.LimitError(f"two stages of {config} do not fit the shared memory of a CTA")
    return config.changed(stages=min(stages, MAX_STAGES))


def measure(
    problem: GroupedProblem,
    split: str,
    launchers: dict[str, Any],
    chosen: str,
    repeats: int,
    seed: int,
) -> None:
    """Prints the table of one shape."""
    operands = GroupedOperands(problem, split, seed)
    blocks: dict[str, timing.Block] = {}
    notes, largest, flop = [], 0.0, 2.0 * problem.m * problem.n * problem.k
    for name, launcher in launchers.items():
        if isinstance(launcher, TilepipeError):
            notes.append(f"  {name}: {str(launcher).splitlines()[0]}")
            continue
        launch = operands.launches(launcher)
        operands.wipe()
        launch(0)
        torch.cuda.synchronize()
        check = operands.check(OURS)
        largest = max(largest, check.rel_error)
        if check.right:
            blocks[name] = timing.block(launch, operands.sets)
        else:
            notes.append(f"  {name}: WRONG, {check}")
    sides = operands.sides(
        next(x for x in launchers.values() if not isinstance(x, TilepipeError)), ""
    )
    peers = {name: launch for name, launch in sides.launches.items() if name != OURS}
    notes += [f"  no {name}: {why}" for name, why in sides.missing.items()]
    for name, launch in peers.items():
        launch(0)
        torch.cuda.synchronize()
        check = operands.check(name)
        notes += [] if check.right else [f"  {name}: WRONG, {check}"]
        blocks[name] = timing.block(launch, operands.sets)
    found = measured(blocks, peers, FINALISTS, repeats, seed, also=[chosen])
    screened, ranked, burst, steady = found.screened, found.ranked, found.burst, found.steady

    def line(name: str) -> str:
        said = f"{name} (chosen)" if name == chosen else name
        text = f"  {said:58} {flop / screened[name] * 1e-6:5.0f}"
        for what, times in (("burst", burst), ("steady", steady)) if name in burst else ():
            ratios = ", ".join(f"{times[peer].us / times[name].us:.3f}" for peer in peers)
            text += (
                f"  {what} {flop / times[name].us * 1e-6:5.0f} ({times[name].us:.1f} µs; {ratios})"
            )
        return text

    print(
        f"{problem.m}×{problem.n}×{problem.k}, {problem.groups} groups, {split} ->"
        f" {problem.out_dtype}; TFLOP/s"
        f" (time of {' and '.join(peers)} / this one's); relative error {largest:.2e} at most"
    )
    for name in [
        *dict.fromkeys([*ranked[:SHOWN], *([chosen] if chosen in ranked else [])]),
        *peers,
    ]:
        print(line(name))
    print(
        "  slower:",
        ", ".join(f"{name} {flop / screened[name] * 1e-6:.0f}" for name in ranked[SHOWN:]),
    )
    print(*notes, sep="\n", flush=True)


def main() -> None:
    """Compiles all configurations for all shapes, and measures shape by shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=[])
    parser.add_argument("--configs", nargs="*", default=CONFIGS)
    parser.add_argument("--best", type=int, default=0, help="also the first N of the heuristic")
    parser.add_argument("--b-order", default="row")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    wanted: list[tuple[GroupedProblem, str, dict[str, GroupedGemmConfig]]] = []
    for m, n, k, groups, split in [
        parse_shape(text, "gemm_grouped") for text in options.shapes
    ] or grouped.STANDARD:
        problem = GroupedProblem(m, n, k, groups, b_order=options.b_order)
        configs: dict[str, GroupedGemmConfig] = {}
        for text in options.configs:
            try:
                configs[text] = parse(text, problem.dtype)
            except TilepipeError as error:
                print(f"{text}: {error}")
        for config in [best(problem), *candidates(problem)[: options.best]]:
            if config not in configs.values():
                changed = {
                    x: y for x, y in vars(config).items() if y != vars(GroupedGemmConfig())[x]
                }
                configs[" ".join(f"{x}={y}" for x, y in changed.items()) or "default"] = config
        wanted.append((problem, split, configs))

    jobs = [(problem, config) for problem, _, configs in wanted for config in configs.values()]
    launchers = iter(compiled(lambda job: grouped.build(*job), jobs))
    print(f"{len(jobs)} kernels compiled in {time.perf_counter() - start:.0f} s", flush=True)
    for problem, split, configs in wanted:
        torch.cuda.empty_cache()
        named = {name: next(launchers) for name in configs}
        chosen = next(name for name, config in configs.items() if config == best(problem))
        measure(problem, split, named, chosen, options.repeats, options.seed)
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
