"""The campaign on printed PTX: judges mutants of some printed kernels, and writes
docs/generated/ptx-mutants.md.

    python -m tests.mutation.ptx.run [--jobs 2] [--sample N] [--out docs/generated/ptx-mutants.md]
    (make ptx-mutants)

Exits with 1 where the reader ends in anything but one of its own errors.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.mutation.ptx.judging import Result, judge
from tests.mutation.ptx.mutants import mutants
from tests.mutation.ptx.page import page
from tests.mutation.ptx.subjects import EVERY, SUBJECTS, subject
from tests.support.processes import map_in_processes

PARTS = 24  # tasks of a kernel


@dataclass(frozen=True)
class Task:
    """Every `sample`-th mutant of a kernel (see `EVERY`, too); of these every PARTS-th, from
    `part` on.
    """

    subject: str
    part: int
    sample: int


def perform(task: Task) -> list[Result]:
    """Judges the mutants of a task."""
    step = task.sample * EVERY.get(task.subject, 1)
    chosen = list(mutants(subject(task.subject).printed.text))[::step]
    return [judge(task.subject, mutant) for mutant in chosen[task.part :: PARTS]]


def campaign(
    subjects: Sequence[str] = (),
    jobs: int = 1,
    sample: int = 1,
    seen: Callable[[int, int], None] = lambda done, of: None,
) -> list[Result]:
    """Judges mutants of some subjects, all if none is named. `seen`: is called with (tasks done,
    all tasks).
    """
    tasks = [Task(name, part, sample) for name in subjects or SUBJECTS for part in range(PARTS)]
    results: list[Result] = []
    for done, found in enumerate(map_in_processes(perform, tasks, jobs), 1):
        results += found
        seen(done, len(tasks))
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the campaign, and writes the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.ptx.run")
    parser.add_argument("--kernels", nargs="+", default=[], choices=list(SUBJECTS))
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="every N-th mutant only")
    parser.add_argument("--out", type=Path, help="the page to write")
    parser.add_argument("--save", type=Path, help="all results, as JSON lines (gzip)")
    parser.add_argument("--load", type=Path, help="what --save wrote, instead of running")
    options = parser.parse_args(arguments)
    console, begun = Console(width=None if sys.stdout.isatty() else 160), time.monotonic()
    if options.load is not None:
        with gzip.open(options.load, "rt", encoding="utf-8") as file:
            found = [Result(**json.loads(line)) for line in file]
    else:
        found = _shown(console, options)
    if options.save is not None:
        with gzip.open(options.save, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(result)) + "\n" for result in found)
    if options.out is not None:
        options.out.write_text(page(found, options.sample), encoding="utf-8")
    errors = [r for r in found if r.fate == "error"]
    for r in errors[:40]:
        console.print(
            f"{r.subject}, line {r.line}: {r.instruction} {r.what}: {r.kind}: {r.message}",
            markup=False,
        )
    console.print(
        f"{len(found):,} mutants: {sum(r.fate == 'survived' for r in found):,} survived,"
        f" {len(errors)} ended in an error of the reader ({time.monotonic() - begun:.0f} s)"
    )
    return 1 if errors else 0


def _shown(console: Console, options: argparse.Namespace) -> list[Result]:
    """The campaign, with a bar."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("parts of kernels", total=None)
        return campaign(
            options.kernels,
            options.jobs,
            options.sample,
            lambda done, of: progress.update(bar, completed=done, total=of),
        )


if __name__ == "__main__":
    sys.exit(main())
