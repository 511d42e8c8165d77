"""Configurations of attention, measured beside PyTorch's `scaled_dot_product_attention` (cuDNN,
FlashAttention 2) in one run.

    PYTHONPATH=src python benchmarks/attention_configs.py [--quick] [--configs "" "bn=160 stages=2"
    ...] [--problems "d=64 causal=true s=8192" ...]

Without --configs: what the library picks. 16 heads and 16384 tokens unless a problem says
otherwise. In bursts, and in steady state unless --quick; each result is compared with float64 on a
sample of its rows. Needs a Hopper GPU and PyTorch.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import torch

from tilepipe.bench import attention, timing
from tilepipe.bench.gemm import environment
from tilepipe.cuda.runtime import driver
from tilepipe.errors import TilepipeError
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.registry.attention import ATTENTION, extents

PROBLEMS = [
    f"d={d} causal={causal} s={s}"
    for d in (128, 64)
    for causal in ("false", "true")
    for s in (4096, 8192, 16384)
]
QUICK = [text for text in PROBLEMS if text.endswith("s=8192")]
PICKED = "as picked"


def settings_of(text: str) -> dict[str, Any]:
    """All settings of the problem `text`, words name=value; s is s_q and s_kv, the batch makes
    16384 tokens.
    """
    words = [
        word
        for part in text.split()
        for word in ([f"s_q={part[2:]}", f"s_kv={part[2:]}"] if part.startswith("s=") else [part])
    ]
    given = ATTENTION.parse(words)
    s = int(given.get("s_q", 4096))
    standard = {
        "batch": max(1, attention.TOKENS // s),
        "heads": attention.HEADS,
        "kv_heads": given.get("heads", attention.HEADS),
    }
    return standard | given


def measure(text: str, configs: list[str], repeats: int, steady: bool, seed: int) -> float:
    """Prints the table of one problem; the best of ours beside cuDNN in bursts, as a ratio of
    times.
    """
    torch.cuda.empty_cache()
    problem, chip = settings_of(text), driver.chip(0)
    base = ATTENTION.settings | problem
    found, causal = extents(base), bool(base["causal"])
    operands = attention.Operands(found, causal, seed)
    launches, notes = {}, []
    for words in configs:
        try:
            chosen, _ = ATTENTION.configure(problem | ATTENTION.parse(words.split()), chip)
            cfg = ATTENTION.config(chosen)
            assert isinstance(cfg, AttentionConfig)
            name = f"{words or PICKED}: {attention.config_text(cfg)}"
            launches[name] = operands.ours(cfg, name)
        except TilepipeError as error:
            notes.append(f"  {words}: {str(error).splitlines()[0]}")
    peers, missing = operands.peers()
    notes += [f"  no {name}: {reason}" for name, reason in missing.items()]
    blocks = {
        name: timing.block(launch, operands.sets) for name, launch in (launches | peers).items()
    }
    operands.wipe()
    burst = timing.burst(blocks, repeats, seed)
    regimes = {"burst": burst} | ({"steady": timing.steady(blocks)} if steady else {})
    checks = {name: operands.check(name, 0) for name in blocks}
    flop = attention.flop(found, causal)
    print(f"{attention.problem_text(found, causal)}; TFLOP/s (cuDNN's time / ours)")
    for name in sorted(blocks, key=lambda name: burst[name].us):
        line = f"  {name:52}"
        for regime, samples in regimes.items():
            ratio = samples["cuDNN"].us / samples[name].us if "cuDNN" in samples else math.nan
            line += f"  {regime} {flop / samples[name].us * 1e-6:5.0f} ({ratio:.3f})"
        print(
            line
            + (
                f"  error {checks[name].rel_error:.1e}"
                if checks[name].right
                else f"  WRONG: {checks[name]}"
            )
        )
    print(*notes, sep="\n" if notes else "", flush=True)
    ours = [burst[name].us for name in launches]
    return burst["cuDNN"].us / min(ours) if ours and "cuDNN" in burst else math.nan


def main() -> None:
    """Measures problem by problem."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="S = 8192 alone, in short bursts")
    parser.add_argument("--problems", nargs="*")
    parser.add_argument("--configs", nargs="*", default=[""])
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    print(environment(driver.chip(0)))
    repeats = options.repeats or (5 if options.quick else 11)
    texts = options.problems or (QUICK if options.quick else PROBLEMS)
    ratios = [
        measure(text, options.configs, repeats, not options.quick, options.seed) for text in texts
    ]
    known = [ratio for ratio in ratios if not math.isnan(ratio)]
    if known:
        mean = math.exp(sum(map(math.log, known)) / len(known))
        print(
            f"best of ours in bursts, cuDNN's time / ours: geometric mean {mean:.3f}, worst"
            f" {min(known):.3f}"
        )
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
