"""What a check costs: executions, states, seconds and memory of the three-role GEMM (load, MMA, epilogue) and of the shipped kernels.

    python benchmarks/checker.py [--tables targets reductions growth kernels] [--runs N] [--limit SECONDS] [--rows N]

Each row is measured in a process of its own, on one core; its time is the median of the runs, its memory what the checks added to the
peak. A row that reaches the limit is undecided there, and its figures are lower bounds (`>`). Prints Markdown.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import runpy
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from tilepipe.check import Bounds, Reductions, check
from tilepipe.kernels import registry

ROOT = Path(__file__).resolve().parent.parent
KERNEL = ROOT / "tests" / "check" / "three_roles.py"
MIB = 1 << 20
BASE = {"stages": 3, "accumulators": 2, "tiles": 2, "k_steps": 4, "cluster": 1, "consumers": 1}
EVERYTHING = {"partial_order": True, "hashing": True, "symmetry": True}


@dataclass(frozen=True)
class Cell:
    """One check of the three-role GEMM. `shape`: what differs from `BASE`; `without`: reductions that are turned off."""

    shape: dict[str, int] = field(default_factory=dict)
    explore: bool = True
    without: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The shape in words."""
        return ", ".join(f"{count} {noun.replace('_', ' ')}" for noun, count in self.shape.items()) or "as above"

    @property
    def method(self) -> str:
        """How it is checked, in words."""
        if not self.explore:
            return "greedy"
        off = [name.replace("_", " ") for name in self.without]
        return "explored" + (f" without {', '.join(off)}" if off else "")


ALL_OFF = tuple(EVERYTHING)
STAGES = [Cell({"stages": stages}) for stages in (1, 2, 3, 4)]
TABLES: dict[str, list[Cell]] = {
    "targets": [Cell({**BASE, "cluster": cluster}, explore) for cluster in (1, 2) for explore in (False, True)],
    "reductions": [
        Cell({"stages": 1, "accumulators": 1, "tiles": tiles, "k_steps": steps}, without=without)
        for tiles, steps in ((1, 1), (1, 2), (2, 2), (2, 4))
        for without in ((), ("partial_order",), ("hashing",), ("symmetry",), ALL_OFF)
    ],
    "growth": [
        *STAGES,
        *(Cell({"tiles": tiles}) for tiles in (1, 4, 8)),
        *(Cell({"k_steps": steps}) for steps in (8, 16)),
        *(Cell({"consumers": consumers}) for consumers in (2, 3)),
        *(Cell({"cluster": cluster}) for cluster in (2, 4)),
        Cell({"cluster": 2, "consumers": 2}),
    ],
}


@dataclass(frozen=True)
class Measurement:
    """What the checks of one cell took. `seconds`: one a run; `memory`: bytes that they added to the peak."""

    verdict: str
    executions: int
    states: int
    seconds: list[float]
    memory: int

    def row(self) -> tuple[str, ...]:
        """Verdict, executions, states, time with its spread, memory, as text."""
        more = "> " if self.verdict == "undecided" else ""
        spread = f" ({min(self.seconds):.3g}..{max(self.seconds):.3g})" if len(self.seconds) > 1 else ""
        time = f"{more}{statistics.median(self.seconds):.3g}{spread}"
        return self.verdict, f"{more}{self.executions:,}", f"{more}{self.states:,}", time, f"{self.memory / MIB:,.0f}"


def check_cell(cell: Cell, runs: int, limit: float) -> Measurement:
    """Checks a cell in this process."""
    kernel = runpy.run_path(str(KERNEL))
    launch = kernel["program"](kernel["Shape"](**(BASE | cell.shape))).launch_args
    reductions = Reductions(**{name: name not in cell.without for name in EVERYTHING})
    before = _peak()
    seconds: list[float] = []
    for _ in range(runs):
        verdict = check(launch, explore=cell.explore, bounds=Bounds(traces=10**9, seconds=limit), reductions=reductions)
        seconds.append(verdict.seconds)
        if verdict.verdict == "undecided":
            break
    return Measurement(verdict.verdict, verdict.traces, verdict.states, seconds, _peak() - before)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(cell: Cell, runs: int, limit: float) -> Measurement:
    """Checks a cell in a process of its own.

    Raises:
        SystemExit: it failed; its traceback has been printed.
    """
    request = json.dumps({"cell": asdict(cell), "runs": runs, "limit": limit})
    done = subprocess.run([sys.executable, __file__, "--cell", request], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{cell.name}, {cell.method}: exit code {done.returncode}; the traceback is above")
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def three_roles(cells: list[Cell], runs: int, limit: float) -> Iterator[tuple[str, ...]]:
    """The rows of a table on the three-role GEMM."""
    yield "shape", "method", "verdict", "executions", "states", "seconds", "MiB"
    for cell in cells:
        yield cell.name, cell.method, *measure(cell, runs, limit).row()


def shipped(names: list[str], limit: float) -> Iterator[tuple[str, ...]]:
    """The rows of the table on the shipped kernels: `tilepipe check`, as a user calls it, on their default instances."""
    yield "kernel", "method", "instances", "verdict", "executions", "states", "seconds"
    for name in names:
        for explore in ([], ["--explore"]):
            command = [sys.executable, "-m", "tilepipe", "check", name, "--json", "--seconds", str(limit), *explore]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            if done.returncode not in (0, 1, 2) or not done.stdout.strip():
                sys.exit(f"{' '.join(command[1:])}: exit code {done.returncode}; what it said is above")
            report: dict[str, Any] = json.loads(done.stdout)
            parts = report["instances"]
            more = "> " if report["verdict"] == "undecided" else ""
            figures = (sum(part[figure] for part in parts) for figure in ("traces", "states"))
            yield (
                name, report["method"], str(len(parts)), report["verdict"], *(f"{more}{figure:,}" for figure in figures),
                f"{more}{sum(part['seconds'] for part in parts):.3g}",
            )  # fmt: skip


def machine() -> str:
    """Processor, Python and date."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        processor = platform.processor() or platform.machine()
    return f"{processor}, one core of {os.cpu_count()}, Python {platform.python_version()}, {datetime.date.today()}"


def arguments(given: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="what a check costs")
    parser.add_argument("--tables", nargs="+", choices=[*TABLES, "kernels"], default=[*TABLES, "kernels"])
    parser.add_argument("--runs", type=int, default=5, help="checks of each cell of the three-role GEMM")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after which a check is given up")
    parser.add_argument("--rows", type=int, help="only so many rows of each table")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.runs < 1 or options.limit <= 0 or (options.rows is not None and options.rows < 1):
        parser.error("--runs, --limit and --rows must be positive")
    return options


def main(given: list[str] | None = None) -> None:
    """Measures and prints the tables."""
    options = arguments(given)
    if options.cell is not None:
        request = json.loads(options.cell)
        print(json.dumps(asdict(check_cell(Cell(**request["cell"]), request["runs"], request["limit"]))))
        return
    console = Console(stderr=True)
    for table in options.tables:
        if table == "kernels":
            rows = shipped(list(registry.KERNELS)[: options.rows], options.limit)
        else:
            rows = three_roles(TABLES[table][: options.rows], options.runs, options.limit)
        print(f"\n{table}\n")
        with console.status(table):
            for number, row in enumerate(rows):
                print("|", " | ".join(row), "|", flush=True)
                if number == 0:
                    figures = len(row) - row.index("verdict") - 1
                    print("|" + "---|" * (len(row) - figures) + "---:|" * figures)
    print(f"\n{machine()}; a check is given up after {options.limit:g} s")


if __name__ == "__main__":
    main()
