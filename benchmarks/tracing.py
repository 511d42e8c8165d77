"""How long a user waits before anything runs: importing tilepipe, with the modules that cost most.

python benchmarks/tracing.py [--runs N]
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys

from rich.console import Console
from rich.table import Table

IMPORT_LIMIT = 0.3
"""Seconds that `import tilepipe` may take."""

HEAVY = ("torch", "cuda")
"""What a plain `import tilepipe` must not import."""

IMPORT_LINE = re.compile(r"import time:\s*(\d+) \|\s*(\d+) \|\s*([\w.]+)$")


def import_seconds(runs: int) -> list[float]:
    """Time of `import tilepipe` in a fresh interpreter, without the interpreter's own start; one entry a run."""
    code = "import time; start = time.perf_counter(); import tilepipe; print(time.perf_counter() - start)"
    outputs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(runs)
    ]
    return [float(done.stdout) for done in outputs]


def imported_modules(statement: str) -> dict[str, float]:
    """Each module that a fresh interpreter loads for `statement`, and the seconds it took itself (`-X importtime`)."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", statement], capture_output=True, text=True, check=True
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
        title=f"import tilepipe: {median * 1e3:.0f} ms, the median of {options.runs}; at most {IMPORT_LIMIT * 1e3:.0f}"
    )
    table.add_column("package")
    table.add_column("its own modules, ms", justify="right")
    for package, own in packages[:8]:
        table.add_row(package, f"{own * 1e3:.1f}")
    console.print(table)
    heavy = [package for package, _ in packages if package in HEAVY]
    if heavy:
        console.print(f"imported, and should not be: {', '.join(heavy)}")
    return 1 if heavy or median > IMPORT_LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
