"""Configurations of the kernels of rows, measured beside PyTorch's compiler, and beside QuACK where
it is installed, in one process.

    PYTHONPATH=src python benchmarks/rows_configs.py [--kernels cross_entropy layer_norm ...]
    [--shapes M,N ...] [--directions forward backward] [--configs "t32 w1 p4 s6" ...]
    [--seconds 150] [--peers torch.compile QuACK]

All are compiled before anything is timed, as many at once as there are processors. Every result is
compared with a float64 computation of all rows, that of the peers, too. All configurations are
screened in three bursts; the fastest, what the heuristic chooses and the peers are timed again in
seven. A table at the end has, for each shape, the best configuration and its speed relative to the
fastest peer. Shapes for which no time is left are named. Needs a Hopper GPU and PyTorch.

A configuration is written as t: threads of a row, w: warpgroups of a CTA, p: parts, c: cluster, b:
blocks, s: CTAs of an SM, a: rows ahead.
"""

from __future__ import annotations

import argparse
import functools
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import tilepipe as tp
from screening import compiled
from tilepipe.bench import rows, timing
from tilepipe.bench.beside import OURS
from tilepipe.errors import TilepipeError
from tilepipe.kernels.rows.config import RowConfig

SCREENING, FINAL, FINALISTS, SHOWN = 3, 7, 3, 6
FEW = 4096  # rows, when all is compiled
NAMES = {
    "t": "threads",
    "w": "warpgroups",
    "p": "parts",
    "c": "cluster",
    "b": "blocks",
    "s": "ctas",
    "a": "ahead",
}
# (kernel, backward): columns: configurations
CONFIGS: dict[tuple[str, bool], dict[int, str]] = {
    ("cross_entropy", False): {
        16384: "t128 w1, t32 w1 p4 s4, t32 w1 p4 s6, t32 w2 p8 s3, t32 w2 p8 s4, t32 w4 p16 s2",
        8192: "t128 w1, t32 w1 p4 s6, t32 w1 p4 s8, t32 w2 p8 s5, t32 w2 p8 s6, t32 w4 p16 s3",
        4096: "t128 w1, t32 w1 p4 s8, t32 w1 p4 s10, t32 w1 p4 s12, t32 w2 p8 s6",
        1024: "t32 w1, t32 w1 s8, t32 w1 s10, t32 w1 p2 s10, t64 w1 s12, t32 w2 s5",
    },
    ("layer_norm", False): {
        16384: "t32 w2 p8 s2, t32 w2 p8 s3, t32 w4 p16 s2, t32 w1 p4 s3, t32 w8 p32 s1",
        8192: "t128 w1, t32 w1 p4 s6, t32 w2 p8 s3, t32 w2 p8 s4, t32 w4 p16 s2, t32 w4 p16 s3",
        4096: "t128 w1, t32 w1 p4 s8, t32 w2 p4 s4, t32 w2 p8 s4, t32 w2 p8 s5",
        1024: "t64 w1 s10, t64 w1 s12, t32 w1 s6, t32 w1 p2 s10, t128 w1 s10, t64 w2 s5",
    },
    ("rms_norm", True): {
        16384: "t32 w2 p8 c2 a2, t32 w4 p16 c2 a2, t32 w2 p8 c4 s2 a2, t32 w1 p4 c4 s2 a2",
        8192: "t32 w4 p16 a2, t32 w2 p8 a2, t32 w1 p4 c2 s2 a2",
        4096: "t128 w1 s2 a2, t32 w1 p4 s2 a2, t32 w2 p8 s2 a2",
        1024: "t32 w1 s2 a2, t32 w1 p2 s3 a2, t32 w1 p4 s6 a2, t32 w1 p4 s5 a2",
    },
    ("rms_norm", False): {
        8192: "t128 w4, t32 w1 p4 s6, t32 w2 p8 s3, t32 w2 p8 s5, t32 w4 p16 s2, t32 w4 p16 s3",
        16384: "t32 w2 p8 s2, t32 w2 p8 s3, t32 w4 p16 s2, t32 w1 p4 s3, t32 w8 p32 s1",
        4096: "t128 w2, t128 w2 s5, t32 w1 p4 s8, t32 w2 p8 s6, t32 w2 p4 s4",
        1024: "t64 w1, t32 w1 s10, t128 w1 s12, t128 w1 s16, t64 w2 s6, t64 w2 s5",
    },
    ("softmax", False): {
        16384: "t128 w1, t32 w2 p8 s2, t32 w1 p4 s3, t32 w4 p16 s2",
        8192: "t128 w2, t32 w2 p8 s3, t32 w2 p8 s4, t32 w4 p16 s2",
        4096: "t128 w2, t32 w1 p4 s8, t32 w2 p8 s5",
        1024: "t64 w1, t32 w1 s8, t32 w1 p2 s12",
    },
    ("layer_norm", True): {
        16384: "t32 w2 p8 c2, t32 w4 p16 c2",
        8192: "t32 w2 p8, t32 w4 p16",
        4096: "t32 w2 p8 a2, t32 w1 p4 a2, t32 w1 p4 s2",
        1024: "t64 w1 s3 a2, t32 w1 p2 s3 a2, t32 w1 p4 s4 a2",
    },
}


def parse(text: str) -> RowConfig:
    """A configuration from letters and numbers."""
    words = re.findall(r"([twpcbsa])(\d+)", text)
    if " ".join(letter + number for letter, number in words) != text:
        raise tp.BindError(f"a configuration is such as 't32 w1 p4 s6'; got {text!r}")
    return RowConfig(**{NAMES[letter]: int(number) for letter, number in words})


@dataclass
class Contest:
    """A kernel on a shape. `configs`: by name; errors where they do not compile."""

    kernel: str
    backward: bool
    m: int
    n: int
    configs: dict[str, RowConfig | TilepipeError]

    @property
    def title(self) -> str:
        """What the tables say."""
        direction = "backward" if self.backward else "forward"
        return f"{self.kernel} {direction} {self.m}×{self.n}"

    def settings(self, m: int) -> dict[str, Any]:
        """Those of the problem with `m` rows."""
        given = {"m": m, "n": self.n, "backward": self.backward}
        return rows.SPECS[self.kernel].configure(given, tp.H200)[0]

    def open(self, m: int, seed: int) -> rows.RowOperands:
        """Operands of it, with `m` rows."""
        return rows.RowOperands(self.kernel, self.settings(m), seed)


@dataclass
class Result:
    """A contest's result: microseconds by name, and what was not measured."""

    contest: Contest
    us: dict[str, float]
    peers: list[str]
    notes: list[str]

    def lines(self) -> Iterator[str]:
        """The fastest configurations, the one chosen and the peers."""
        moved = rows.moved(self.contest.kernel, self.contest.settings(self.contest.m))
        yield self.contest.title
        best = min((self.us[name] for name in self.peers), default=float("nan"))
        ours = sorted((n for n in self.us if n not in self.peers), key=lambda n: self.us[n])
        names = dict.fromkeys([*ours[:SHOWN], *(n for n in ours if n == "chosen"), *self.peers])
        for name in names:
            us = self.us[name]
            yield f"  {name:22} {us:8.1f} µs {moved / us * 1e-6:6.2f} TB/s {best / us:6.3f}"
        yield from self.notes

    def summary(self) -> str:
        """One line for the last table."""
        ours = {name: us for name, us in self.us.items() if name not in self.peers}
        best = min(ours, key=lambda name: ours[name])
        ratios = ", ".join(f"{self.us[p] / ours[best]:.3f} of {p}" for p in self.peers)
        chosen = ours.get("chosen", float("nan"))
        return f"{self.contest.title:36} {best:22} {ratios}; chosen {ours[best] / chosen:.3f} of it"


def contests(options: argparse.Namespace) -> list[Contest]:
    """What the options ask for, in the order of `CONFIGS`, each with the heuristic's choice."""
    found = []
    shapes = [rows.parse("rows", text) for text in options.shapes] or list(rows.STANDARD)
    for (kernel, backward), by_columns in CONFIGS.items():
        if kernel not in options.kernels or ("forward", "backward")[backward] not in (
            options.directions
        ):
            continue
        for m, n in sorted(shapes, key=lambda shape: -shape[1]):
            texts = options.configs or [x.strip() for x in by_columns.get(n, "").split(",") if x]
            contest = Contest(kernel, backward, m, n, {})
            contest.configs["chosen"] = rows.SPECS[kernel].config(contest.settings(m))
            for text in texts:
                try:
                    contest.configs[text] = parse(text)
                except TilepipeError as error:
                    contest.configs[text] = error
            found.append(contest)
    return found


def compile_all(wanted: list[Contest], seed: int) -> int:
    """Compiles every configuration, on a few rows; puts errors in the place of those that cannot be
    compiled.
    """
    jobs = []
    for contest in wanted:
        operands = contest.open(FEW, seed)
        for name, cfg in contest.configs.items():
            if isinstance(cfg, RowConfig):
                jobs.append((contest, name, operands, cfg))
    done = compiled(lambda job: job[2].ours(job[3]), jobs)
    for (contest, name, _, _), result in zip(jobs, done, strict=True):
        if isinstance(result, TilepipeError):
            contest.configs[name] = result
    return len(jobs)


def measure(contest: Contest, options: argparse.Namespace) -> Result:
    """Verifies and times a contest."""
    operands = contest.open(contest.m, options.seed)
    blocks: dict[str, timing.Block] = {}
    notes: list[str] = []

    def add(name: str, side: str, make: Callable[[], timing.Launch]) -> bool:
        try:
            if side != OURS:
                operands.results[side] = [()] * operands.sets
            launch = make()
            launch(0)
            torch.cuda.synchronize()
            operands.wipe()
            launch(0)
            torch.cuda.synchronize()
            check = operands.check(side)
            if check.right:
                for i in range(operands.sets):
                    launch(i)
                blocks[name] = timing.block(launch, operands.sets)
            else:
                notes.append(f"  {name}: WRONG, {check}")
            return check.right
        except Exception as error:  # the others are measured all the same
            notes.append(f"  {name}: {type(error).__name__}: {str(error).splitlines()[0]}")
            return False

    makers = {rows.COMPILED: operands.compiled, rows.QUACK: operands.quack}
    for name, cfg in contest.configs.items():
        if isinstance(cfg, RowConfig):
            add(name, OURS, functools.partial(operands.ours, cfg))
        else:
            notes.append(f"  {name}: {' '.join(str(cfg).split())[:150]}")
    peers = [name for name in options.peers if add(name, name, makers[name])]
    screened = {
        name: sample.us for name, sample in timing.burst(blocks, SCREENING, options.seed).items()
    }
    ranked = sorted((x for x in screened if x not in peers), key=lambda x: screened[x])
    last = dict.fromkeys([*ranked[:FINALISTS], *(x for x in ranked if x == "chosen"), *peers])
    final = timing.burst({x: blocks[x] for x in last}, FINAL, options.seed)
    us = screened | {name: sample.us for name, sample in final.items()}
    return Result(contest, us, peers, notes)


def main() -> None:
    """Compiles all, measures shape by shape, and prints a table of the best."""
    parser = argparse.ArgumentParser(description=__doc__)
    kernels = list(dict.fromkeys(kernel for kernel, _ in CONFIGS))
    parser.add_argument("--kernels", nargs="*", default=kernels, choices=kernels)
    parser.add_argument("--directions", nargs="*", default=["forward", "backward"])
    parser.add_argument("--shapes", nargs="*", default=[])
    parser.add_argument("--configs", nargs="*", default=[])
    parser.add_argument("--peers", nargs="*", default=[rows.COMPILED, rows.QUACK])
    parser.add_argument("--seconds", type=float, default=150, help="for all, compiling included")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    wanted = contests(options)
    count = compile_all(wanted, options.seed)
    device = torch.cuda.get_device_name()
    print(f"{device}, PyTorch {torch.__version__}; {count} kernels compiled in", end=" ")
    print(f"{time.perf_counter() - start:.0f} s", flush=True)
    results: list[Result] = []
    for contest in wanted:
        if time.perf_counter() - start > options.seconds:
            print(f"no time left for {contest.title}")
            continue
        torch.cuda.empty_cache()
        torch.compiler.reset()  # which would give up after eight shapes
        result = measure(contest, options)
        print(*result.lines(), sep="\n", flush=True)
        results.append(result)
    print(*(x.summary() for x in results if len(x.us) > len(x.peers)), sep="\n")
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
