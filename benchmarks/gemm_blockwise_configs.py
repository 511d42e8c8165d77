"""Configurations of the blockwise fp8 GEMM, measured beside PyTorch's `scaled_mm` in one run.

    PYTHONPATH=src python benchmarks/gemm_blockwise_configs.py [--shapes M,N,K ...] [--configs
    "bn=160 cluster=2" ...]

All are screened in a few bursts; the fastest are timed again, in bursts and in steady state, beside
the peer. Every result is compared with a float64 product. Needs a Hopper GPU and PyTorch. --append
FILE adds a line for each shape to the data of `gemm_blockwise_fit.py`, beside DeepGEMM, which must
be installed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import tilepipe as tp
from screening import compiled, measured, settings_of
from tilepipe.bench import deep_gemm, timing
from tilepipe.bench.operands import BlockwiseOperands, build
from tilepipe.bench.report import Check, tflops
from tilepipe.errors import TilepipeError
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.heuristics import filled

SHAPES = ("4096,4096,4096", "8192,8192,8192", "4096,7168,2048")
CONFIGS = (
    "",
    "cluster_n=2",
    "bn=160 store_slots=5",
    "bn=192 store_slots=3",
    "bn=192 store_slots=3 cluster=2",
    "splits=2",
    "bm=256 store_slots=4",
    "bm=256 store_slots=4 cluster=2",
    "bm=256 store_slots=4 cluster_n=2",
    "bm=256 store_slots=1 cluster_n=2",
    "bm=256 store_slots=4 cluster_n=2 group=16",
    "bm=256 store_slots=4 cluster_n=2 group=16 unroll=4",
    "bm=256 store_slots=4 cluster_n=2 unroll=4",
    "bm=256 store_slots=4 cluster_n=2 raster=rows",
    "bn=256 splits=2 store_slots=4",
    "bn=256 splits=2 store_slots=4 cluster=2",
    "bm=192 consumers=3",
    "bm=192 consumers=3 cluster_n=2",
    "bm=192 consumers=3 cluster_n=2 group=16",
    "bm=192 consumers=3 cluster_n=2 unroll=4",
    "bn=64 unroll=4",
    "bm=64 bn=64 takes=k unroll=4",
    "bm=64 bn=64 takes=k cluster=2 unroll=4",
)
FINALISTS, SHOWN = 5, 10


def parse(text: str, out: tp.DType) -> BlockwiseGemmConfig:
    """A configuration from `name=value` words; as many stages as fit, unless they are given."""
    settings = settings_of(text)
    config = BlockwiseGemmConfig(**settings)
    return config if "stages" in settings else filled(config, out)


def verified(operands: Any, launch: timing.Launch, got: Sequence[Any]) -> Check:
    """Of one launch."""
    got[0].fill_(torch.nan)
    launch(0)
    torch.cuda.synchronize()
    return operands.check(got)  # type: ignore[no-any-return]


def measure(
    problem: Problem, configs: dict[str, Any], repeats: int, seed: int, append: Path | None
) -> None:
    """Prints the table of one shape, and appends its line to a file."""
    operands = BlockwiseOperands(problem, seed)
    blocks, notes, largest = {}, [], 0.0
    for name, launcher in configs.items():
        if isinstance(launcher, TilepipeError):
            notes.append(f"  {name}: {str(launcher).splitlines()[0]}")
            continue
        check = verified(operands, operands.launches(launcher), operands.c)
        largest = max(largest, check.rel_error)
        if check.right:
            blocks[name] = timing.block(operands.launches(launcher), operands.sets)
        else:
            notes.append(f"  {name}: WRONG, {check}")
    peer_check = None
    try:
        operands.peer(0)
        torch.cuda.synchronize()
        peer_check = operands.check(operands.peer_c)
        blocks["torch"] = timing.block(operands.peer, operands.sets)
    except Exception as error:  # ours are measured all the same
        notes.append(f"  torch: {type(error).__name__}: {error}")
    peers = ["torch"]
    if append is not None:
        others, _ = operands.other_peers()
        for name, (launch, got) in others.items():
            if verified(operands, launch, got).right:
                blocks[name] = timing.block(launch, operands.sets)
                peers.append(name)
    found = measured(blocks, peers, FINALISTS, repeats, seed)
    screened, ranked, burst, steady = found.screened, found.ranked, found.burst, found.steady
    print(
        f"{problem.m}×{problem.n}×{problem.k} -> {problem.out_dtype}; TFLOP/s (torch's time / ours)"
    )
    for name in ranked[:SHOWN]:
        line = f"  {name or 'default':44} {tflops(problem, screened[name]):5.0f}"
        if name in burst:
            for what, times in (("burst", burst), ("steady", steady)):
                ratio = times["torch"].us / times[name].us if "torch" in times else float("nan")
                line += f"  {what} {tflops(problem, times[name].us):5.0f} ({ratio:.3f})"
        print(line)
    print(
        "  slower:",
        ", ".join(f"{name} {tflops(problem, screened[name]):.0f}" for name in ranked[SHOWN:]),
    )
    if peer_check is not None and "torch" in burst:
        figures = [f"{tflops(problem, x['torch'].us):.0f}" for x in (burst, steady)]
        print(
            f"  torch: burst {figures[0]}, steady {figures[1]}; relative error"
            f" {peer_check.rel_error:.2e}, ours {largest:.2e} at most"
        )
    print(*notes, sep="\n", flush=True)
    if append is not None and deep_gemm.NAME in burst:
        entry = {
            "shape": [problem.m, problem.n, problem.k],
            "card": torch.cuda.get_device_name(),
            "deepgemm": [screened[deep_gemm.NAME], steady[deep_gemm.NAME].us],
            "times": [[name, screened[name]] for name in ranked],
        }
        with append.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")


def main() -> None:
    """Compiles all configurations for all shapes, and measures shape by shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=SHAPES)
    parser.add_argument("--configs", nargs="*", default=CONFIGS)
    parser.add_argument("--out", default="bfloat16")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--append", type=Path)
    options = parser.parse_args()
    start = time.perf_counter()
    problems = []
    for text in options.shapes:
        m, n, k = map(int, text.split(","))
        problems.append(
            Problem(m, n, k, dtype=tp.float8_e4m3, out_dtype=tp.dtype(options.out), scales="block")
        )

    wanted = [(problem, text) for problem in problems for text in options.configs]
    launchers = compiled(lambda job: build(job[0], parse(job[1], job[0].out_dtype)), wanted)
    print(f"{len(wanted)} kernels compiled in {time.perf_counter() - start:.0f} s", flush=True)
    count = len(options.configs)
    for i, problem in enumerate(problems):
        torch.cuda.empty_cache()
        measure(
            problem,
            dict(zip(options.configs, launchers[i * count : (i + 1) * count], strict=True)),
            options.repeats,
            options.seed,
            options.append,
        )
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
