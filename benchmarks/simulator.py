"""tilepipe's simulator beside Triton's interpreter: the same bfloat16 matmul, the same tiles, in
one run.

    python benchmarks/simulator.py [--triton-python PATH] [--runs N] [--sizes 1024 2048]

Triton and PyTorch need not be in the environment that has tilepipe: `--triton-python` (or the
variable TRITON_PYTHON) names another interpreter that has them. Each side runs in a process of its
own and verifies its result against float64; it is timed after one run that warms it up.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from simulator_problem import TILE, TOLERANCE, write_problem

HERE = Path(__file__).resolve().parent
MIB = 1 << 20


@dataclass(frozen=True)
class Measurement:
    """What one side did with one size. `seconds`: one a run; `memory_bytes`: what the runs added to
    the peak.
    """

    seconds: list[float]
    rel_error: float
    memory_bytes: int
    versions: dict[str, str]

    @property
    def median(self) -> float:
        """Median time of a run, seconds."""
        return statistics.median(self.seconds)

    def cells(self) -> tuple[str, str, str]:
        """Median with the spread, memory, and error, as text."""
        spread = f"{min(self.seconds) * 1e3:,.0f}..{max(self.seconds) * 1e3:,.0f}"
        verified = "" if self.rel_error <= TOLERANCE else " WRONG"
        time = f"{self.median * 1e3:,.0f} ms ({spread})"
        return time, f"{self.memory_bytes / MIB:,.0f} MiB", f"{self.rel_error:.1e}{verified}"


def measure(python: str, script: str, folder: Path, runs: int) -> Measurement:
    """Runs one side in `python`.

    Raises:
        SystemExit: the side failed; its output has been printed.
    """
    command = [python, str(HERE / script), str(folder), "--runs", str(runs)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{script} failed with exit code {done.returncode}; its traceback is above")
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def missing_for_triton(python: str) -> str | None:
    """One sentence on why `python` cannot run the Triton side, None if it can."""
    probe = (
        "import importlib.util as u; "
        "print(*(p for p in ('triton', 'torch', 'numpy') if u.find_spec(p) is None))"
    )
    try:
        done = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"Triton is left out: {python} does not run ({error})."
    if missing := done.stdout.split():
        names = " and ".join(missing)
        return (
            f"Triton is left out: {python} has no {names}; pip install them there or name another"
            " with --triton-python."
        )
    return None


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="tilepipe's simulator beside Triton's interpreter")
    parser.add_argument(
        "--triton-python", default=os.environ.get("TRITON_PYTHON", sys.executable), metavar="PATH"
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=5,
        help="timed runs of tilepipe a size; Triton gets three at most",
    )
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1024, 2048], metavar="N", help="M = N = K"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.runs < 1 or min(options.sizes) < 1:
        parser.error("--runs and --sizes must be at least 1")
    return options


def main() -> int:
    """Measures, prints the table; 1 if a result was wrong."""
    options = arguments()
    console = Console(width=max(110, Console().width))
    missing = missing_for_triton(options.triton_python)
    table = Table(
        title=(
            "bfloat16 size³ matmul, tiles {}×{}×{}, one MMA warpgroup; median (fastest..slowest),"
            " error against float64"
        ).format(*TILE)
    )
    for column in ("size", "", "time", "memory", "error", "ratio"):
        table.add_column(column, justify="left" if column == "" else "right", no_wrap=True)
    ours: dict[int, Measurement] = {}
    everything: list[Measurement] = []
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as name, console.status(f"{size}: tilepipe") as status:
            folder = Path(name)
            write_problem(folder, size, options.seed)
            ours[size] = measure(sys.executable, "simulator_side_tilepipe.py", folder, options.runs)
            everything.append(ours[size])
            table.add_row(str(size), "tilepipe", *ours[size].cells(), "")
            if missing is None:
                status.update(f"{size}: Triton's interpreter")
                theirs = measure(
                    options.triton_python, "simulator_side_triton.py", folder, min(options.runs, 3)
                )
                everything.append(theirs)
                table.add_row(
                    "",
                    "Triton interpreter",
                    *theirs.cells(),
                    f"{theirs.median / ours[size].median:.1f}×",
                )
    console.print(table)
    first, last = min(options.sizes), max(options.sizes)
    if first != last:
        grown = ours[last].median / ours[first].median
        work = (last / first) ** 3
        console.print(
            f"tilepipe, {last}³ against {first}³: {grown:.1f} times the time for {work:.1f} times"
            " the work"
        )
    if missing is not None:
        console.print(missing, soft_wrap=True)
    versions = {name: text for m in everything for name, text in m.versions.items()}
    console.print(", ".join(f"{name} {text}" for name, text in versions.items()), style="dim")
    return 0 if all(m.rel_error <= TOLERANCE for m in everything) else 1


if __name__ == "__main__":
    sys.exit(main())
