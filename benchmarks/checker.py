"""What a check costs: executions, states, seconds and memory of the three-role GEMM (load, MMA,
epilogue), of warps that all do the same, and of the shipped kernels.

    python benchmarks/checker.py [--tables targets reductions alike growth kernels] [--runs N]
    [--limit EXECUTIONS] [--rows N]

Each row is measured in a process of its own; its time is that of one processor core, of all threads
together and the median of the runs, its memory what the checks added to the peak. A row that
reaches the limit of executions is undecided there, and its figures are lower bounds (`>`). Prints
Markdown.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import platform
import resource
import runpy
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from tilepipe.check import Bounds, Reductions, check
from tilepipe.registry import catalog as registry

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "tests" / "support" / "check"
MIB = 1 << 20
BASE = {
    "stages": 3,
    "accumulators": 2,
    "tiles": 2,
    "k_steps": 4,
    "cluster": 1,
    "consumers": 1,
    "tries": False,
}
REDUCTIONS = ("partial_order", "hashing", "symmetry")


@dataclass(frozen=True)
class Cell:
    """One check of a kernel of `tests/support/check`. `shape`: what differs from `BASE`; `without`:
    reductions that are turned off.
    """

    shape: dict[str, int] = field(default_factory=dict)
    explore: bool = True
    without: tuple[str, ...] = ()
    kernel: str = "three_roles"

    @property
    def name(self) -> str:
        """The shape in words."""
        words = [
            f"{noun.replace('_', ' ')} {count}"
            for noun, count in self.shape.items()
            if not isinstance(count, bool)
        ]
        return (
            ", ".join([*words, *(noun for noun, said in self.shape.items() if said is True)])
            or "the same"
        )

    @property
    def method(self) -> str:
        """How it is checked, in words."""
        if not self.explore:
            return "single-execution"
        off = [name.replace("_", " ") for name in self.without]
        return "explored" + (f" without {', '.join(off)}" if off else "")


def _each(*shapes: dict[str, int], kernel: str = "three_roles") -> list[Cell]:
    """Each shape with all reductions, and without."""
    off: tuple[tuple[str, ...], ...] = (
        (),
        ("hashing",),
        ("symmetry",),
        ("partial_order",),
        REDUCTIONS,
    )
    return [Cell(shape, without=without, kernel=kernel) for shape in shapes for without in off]


TABLES: dict[str, list[Cell]] = {
    "targets": [
        *(
            Cell({**BASE, "cluster": cluster}, explore)
            for cluster in (1, 2)
            for explore in (False, True)
        ),
        *(
            Cell({**BASE, "cluster": cluster, "tries": True}, explore)
            for cluster in (1, 2)
            for explore in (False, True)
        ),
    ],
    "reductions": _each(
        {"stages": 1, "accumulators": 1, "tiles": 1, "k_steps": 1},
        {"stages": 1, "accumulators": 1, "tiles": 2, "k_steps": 2},
        {"cluster": 1},
        {"tries": True},
        {"cluster": 2, "tries": True},
    ),
    "alike": _each({"warps": 2}, {"warps": 3}, {"warps": 4}, kernel="readers"),
    "growth": [
        Cell({name: value, "tries": tries})
        for name, values in {
            "stages": (1, 2, 3, 4),
            "tiles": (1, 2, 4, 8),
            "k_steps": (8, 16),
            "consumers": (2, 3),
            "cluster": (2, 4),
        }.items()
        for value in values
        for tries in (False, True)
    ],
}


@dataclass(frozen=True)
class Measurement:
    """What the checks of one cell took. `seconds`: one a run; `memory`: bytes that they added to
    the peak.
    """

    verdict: str
    executions: int
    states: int
    seconds: list[float]
    memory: int

    def row(self) -> tuple[str, ...]:
        """Verdict, executions, states, time with its spread, memory, as text."""
        more = "> " if self.verdict == "undecided" else ""
        spread = (
            f" ({min(self.seconds):.3g}..{max(self.seconds):.3g})" if len(self.seconds) > 1 else ""
        )
        time = f"{more}{statistics.median(self.seconds):.3g}{spread}"
        return (
            self.verdict,
            f"{more}{self.executions:,}",
            f"{more}{self.states:,}",
            time,
            f"{self.memory / MIB:,.0f}",
        )


def check_cell(cell: Cell, runs: int, limit: int) -> Measurement:
    """Checks a cell in this process."""
    kernel = runpy.run_path(str(KERNELS / f"{cell.kernel}.py"))
    launch = kernel["program"](kernel["Shape"](**cell.shape)).launch_args
    reductions = Reductions(**{name: name not in cell.without for name in REDUCTIONS})
    before = _peak()
    seconds: list[float] = []
    for _ in range(runs):
        started = time.process_time()
        verdict = check(
            launch,
            explore=cell.explore,
            bounds=Bounds(traces=limit, seconds=math.inf),
            reductions=reductions,
        )
        seconds.append(time.process_time() - started)
        if verdict.verdict == "undecided":
            break
    return Measurement(verdict.verdict, verdict.traces, verdict.states, seconds, _peak() - before)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def measure(cell: Cell, runs: int, limit: int) -> Measurement:
    """Checks a cell in a process of its own.

    Raises:
        SystemExit: it failed; its traceback has been printed.
    """
    request = json.dumps({"cell": asdict(cell), "runs": runs, "limit": limit})
    done = subprocess.run(
        [sys.executable, __file__, "--cell", request],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{cell.name}, {cell.method}: exit code {done.returncode}; the traceback is above")
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


def small(cells: list[Cell], runs: int, limit: int) -> Iterator[tuple[str, ...]]:
    """The rows of a table on a kernel of `tests/support/check`."""
    yield "shape", "method", "verdict", "executions", "states", "seconds", "MiB"
    for cell in cells:
        yield cell.name, cell.method, *measure(cell, runs, limit).row()


def shipped(names: list[str], limit: int) -> Iterator[tuple[str, ...]]:
    """The rows of the table on the shipped kernels: `tilepipe check`, as a user calls it, from the
    start of Python on.
    """
    yield "kernel", "method", "instances", "verdict", "executions", "states", "seconds"
    for name in names:
        for explore in ([], ["--explore"]):
            command = [
                sys.executable,
                "-m",
                "tilepipe",
                "check",
                name,
                "--json",
                "--traces",
                str(limit),
                *explore,
            ]
            before = _of_children()
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            seconds = _of_children() - before
            if done.returncode not in (0, 1, 2) or not done.stdout.strip():
                sys.exit(
                    f"{' '.join(command[1:])}: exit code {done.returncode}; what it said is above"
                )
            report: dict[str, Any] = json.loads(done.stdout)
            parts = report["instances"]
            more = "> " if report["verdict"] == "undecided" else ""
            figures = (sum(part[figure] for part in parts) for figure in ("traces", "states"))
            yield (
                name,
                report["method"],
                str(len(parts)),
                report["verdict"],
                *(f"{more}{figure:,}" for figure in figures),
                f"{more}{seconds:.3g}",
            )


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def machine() -> str:
    """Processor, Python and date."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        processor = next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        processor = platform.processor() or platform.machine()
    python = f"Python {platform.python_version()}"
    return f"{processor}, {os.cpu_count()} cores, {python}, {datetime.date.today()}"


def arguments(given: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="what a check costs")
    parser.add_argument(
        "--tables", nargs="+", choices=[*TABLES, "kernels"], default=[*TABLES, "kernels"]
    )
    parser.add_argument(
        "--runs", type=int, default=5, help="checks of each row, but of the shipped kernels"
    )
    parser.add_argument(
        "--limit", type=int, default=5000, help="executions after which a check is given up"
    )
    parser.add_argument("--rows", type=int, help="only so many rows of each table")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.runs < 1 or options.limit < 1 or (options.rows is not None and options.rows < 1):
        parser.error("--runs, --limit and --rows must be positive")
    return options


def main(given: list[str] | None = None) -> None:
    """Measures and prints the tables."""
    options = arguments(given)
    if options.cell is not None:
        request = json.loads(options.cell)
        print(
            json.dumps(
                asdict(check_cell(Cell(**request["cell"]), request["runs"], request["limit"]))
            )
        )
        return
    console = Console(stderr=True)
    for table in options.tables:
        if table == "kernels":
            rows = shipped(list(registry.KERNELS)[: options.rows], options.limit)
        else:
            rows = small(TABLES[table][: options.rows], options.runs, options.limit)
        print(f"\n{table}\n")
        with console.status(table):
            for number, row in enumerate(rows):
                print("|", " | ".join(row), "|", flush=True)
                if number == 0:
                    figures = len(row) - row.index("verdict") - 1
                    print("|" + "---|" * (len(row) - figures) + "---:|" * figures)
    print(f"\n{machine()}; a check is given up after {options.limit:,} executions")


if __name__ == "__main__":
    main()
