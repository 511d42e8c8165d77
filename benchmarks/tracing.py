"""How long a user waits before anything runs: importing tilepipe, choosing a configuration for a
shape, tracing a kernel, printing it, compiling it.

python benchmarks/tracing.py [--runs N]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from rich.console import Console
from rich.table import Table

T = TypeVar("T")

IMPORT_LIMIT = 0.3
"""Seconds that `import tilepipe` may take."""

HEAVY = ("torch", "cuda")
"""What a plain `import tilepipe` must not import."""

IMPORT_LINE = re.compile(r"import time:\s*(\d+) \|\s*(\d+) \|\s*([\w.]+)$")


def import_seconds(runs: int) -> list[float]:
    """Time of `import tilepipe` in a fresh interpreter, without the interpreter's own start; one
    entry a run.
    """
    code = (
        "import time; start = time.perf_counter(); import tilepipe; "
        "print(time.perf_counter() - start)"
    )
    outputs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(runs)
    ]
    return [float(done.stdout) for done in outputs]


def imported_modules(statement: str) -> dict[str, float]:
    """Each module that a fresh interpreter loads for `statement`, and the seconds it took itself
    (`-X importtime`).
    """
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", statement],
        capture_output=True,
        text=True,
        check=True,
    )
    matches = (IMPORT_LINE.match(line) for line in done.stderr.splitlines())
    return {m[3]: int(m[1]) * 1e-6 for m in matches if m is not None}


def by_package(modules: dict[str, float]) -> list[tuple[str, float]]:
    """Seconds by top-level package, the slowest first."""
    totals: dict[str, float] = {}
    for name, seconds in modules.items():
        package = name.split(".", 1)[0]
        totals[package] = totals.get(package, 0.0) + seconds
    return sorted(totals.items(), key=lambda item: -item[1])


def choice_seconds(count: int) -> list[tuple[str, float, float]]:
    """(what is chosen for, seconds of the first choice, median of the others): the GEMM's
    configuration for shapes that are all new, by the model alone.
    """
    from tilepipe.kernels.gemm.heuristics import SMALL, Problem, best

    draw, small = random.Random(0), SMALL[-1][0]
    times: dict[bool, list[float]] = {False: [], True: []}
    while min(map(len, times.values())) < count:
        m, n, k = (8 * int(2 ** draw.uniform(0, 11)) for _ in range(3))
        start = time.perf_counter()
        best(Problem(m, n, k))
        times[m * n < small].append(time.perf_counter() - start)
    names = {False: f"C of {small:,} elements or more", True: "smaller C, so small tiles only"}
    return [(names[x], of_size[0], statistics.median(of_size)) for x, of_size in times.items()]


def kernel_seconds(runs: int) -> list[tuple[str, float, float]]:
    """(step, seconds of the first time, median of the others) for the shipped GEMM, from tracing to
    a cubin.
    """
    import ml_dtypes
    import numpy as np

    os.environ["TILEPIPE_CACHE_DIR"] = "off"  # or the compiler would run once at most
    from tilepipe import cuda
    from tilepipe.errors import UnavailableError
    from tilepipe.kernels.gemm import sm90 as gemm
    from tilepipe.kernels.gemm.config import GemmConfig

    a, b, c = (np.zeros((4096, 4096), ml_dtypes.bfloat16) for _ in range(3))
    config = GemmConfig(bn=256, cluster=2)
    steps: dict[str, list[float]] = {}

    def timed(step: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = work()
        steps.setdefault(step, []).append(time.perf_counter() - start)
        return result

    for _ in range(runs):
        gemm.gemm.forget()
        program = timed("trace", lambda: gemm.bind(a, b, c, config))
        timed("print the program", lambda: str(program))  # noqa: B023
        timed("print CUDA C++", program.source)
        try:
            timed("NVRTC to a cubin", lambda: cuda.compile(program.kernel))  # noqa: B023
        except UnavailableError as error:
            print(f"not compiled: {error}")
    return [
        (step, times[0], statistics.median(times[1:] or times)) for step, times in steps.items()
    ]


def main() -> int:
    """Measures and prints the table; 1 if the limit is exceeded or a heavy package is imported."""
    parser = argparse.ArgumentParser(description="import time of tilepipe")
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    if options.runs < 1:
        parser.error("--runs must be at least 1")
    console = Console()
    seconds = import_seconds(options.runs)
    median = statistics.median(seconds)
    started = imported_modules("pass")
    loaded = imported_modules("import tilepipe")
    packages = by_package({name: own for name, own in loaded.items() if name not in started})
    table = Table(
        title=(
            f"import tilepipe: {median * 1e3:.0f} ms, the median of {options.runs}; at most"
            f" {IMPORT_LIMIT * 1e3:.0f}"
        )
    )
    table.add_column("package")
    table.add_column("its own modules, ms", justify="right")
    for package, own in packages[:8]:
        table.add_row(package, f"{own * 1e3:.1f}")
    console.print(table)
    steps = Table(
        "step",
        "first, ms",
        "median of the others, ms",
        title="the shipped GEMM, 128×256×64, cluster of 2",
    )
    for step, first, others in kernel_seconds(options.runs):
        steps.add_row(step, f"{first * 1e3:.2f}", f"{others * 1e3:.2f}")
    console.print(steps)
    choices = Table("configuration for", "first, ms", "median of others, µs", title="choosing")
    for size, first, others in choice_seconds(1000):
        choices.add_row(size, f"{first * 1e3:.1f}", f"{others * 1e6:.1f}")
    console.print(choices)
    heavy = [package for package, _ in packages if package in HEAVY]
    if heavy:
        console.print(f"imported, and should not be: {', '.join(heavy)}")
    return 1 if heavy or median > IMPORT_LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
