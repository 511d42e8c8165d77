"""How long `import tilepipe` takes in a fresh interpreter, and what of it numpy and ml_dtypes take: best and median."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

CODE = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def seconds(modules: str, runs: int) -> list[float]:
    """The seconds of each import, in an interpreter of its own."""
    command = [sys.executable, "-c", CODE.format(modules)]
    return [float(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(runs)]


def main() -> None:
    """Prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    runs = max(parser.parse_args().runs, 1)
    for modules in ("numpy, ml_dtypes", "tilepipe"):
        found = seconds(modules, runs)
        print(f"import {modules:20} best {min(found) * 1e3:6.0f} ms, median {statistics.median(found) * 1e3:6.0f} ms of {runs} runs")


if __name__ == "__main__":
    main()
