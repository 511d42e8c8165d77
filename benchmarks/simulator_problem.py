"""What the two sides of `simulator.py` share: operands on disk, timing, verification, the JSON a
side answers with.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

TILE = (128, 128, 64)
"""Tile of both sides: (bm, bn, bk)."""

TOLERANCE = 5e-3
"""Largest Frobenius error against float64: a bfloat16 result that is truncated, not rounded, has
3.3e-3.
"""


@dataclass(frozen=True)
class Operands:
    """A (n, n) and B (n, n), row-major, as the int16 bit patterns of their bfloat16 values; the
    problem is A · Bᵀ.
    """

    a_bits: npt.NDArray[np.int16]
    b_bits: npt.NDArray[np.int16]
    tile: tuple[int, int, int] = TILE


Side = Callable[[Operands], npt.NDArray[np.float32]]


def write_problem(folder: Path, size: int, seed: int) -> None:
    """Writes operands drawn from a standard normal, and their product in float64, to `folder`."""
    rng = np.random.default_rng(seed)
    exact = []
    for name in ("a", "b"):
        # truncation to bfloat16
        bits = rng.standard_normal((size, size), dtype=np.float32).view(np.uint32) >> 16
        np.save(folder / f"{name}.npy", bits.astype(np.uint16).view(np.int16))
        exact.append((bits << 16).view(np.float32).astype(np.float64))
    np.save(folder / "want.npy", exact[0] @ exact[1].T)


def peak_bytes() -> int:
    """Peak resident memory of this process so far.

    Linux's ru_maxrss starts at the peak of the process that spawned this one, so VmHWM is read
    where there is one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(fields["VmHWM"].split()[0]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def worker(side: Side, versions: Mapping[str, str]) -> None:
    """Runs `side` as told on the command line and prints {"seconds", "rel_error", "memory_bytes",
    "versions"}.

    `memory_bytes` is how far the runs raised the process's peak above what importing and holding
    the operands took. A first run, which pays for tracing and caches, is not timed.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, required=True)
    options = parser.parse_args()
    operands = Operands(*(np.load(options.folder / f"{name}.npy") for name in ("a", "b")))
    before = peak_bytes()
    seconds = []
    for _ in range(options.runs + 1):
        start = time.perf_counter()
        got = side(operands)
        seconds.append(time.perf_counter() - start)
    memory = peak_bytes() - before
    want = np.load(options.folder / "want.npy")
    error = float(np.linalg.norm(got - want) / np.linalg.norm(want))
    answer = {
        "seconds": seconds[1:],
        "rel_error": error,
        "memory_bytes": memory,
        "versions": dict(versions),
    }
    print(json.dumps(answer))
