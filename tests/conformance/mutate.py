"""The mutation job: takes the body of each member of the table out, and sees that its own test
fails; then changes each member a little (`tests.conformance.subtle`), and sees that a test of its
rows fails.

    python -m tests.conformance.mutate [--all] [--only bodies|subtle] [NAME ...]     (make
    conformance-mutants)

A NAME is a page, a member, or `page.member`. `--all` also lists what noticed each mutant. Exits
with 1 when a test passes without its member or with the change, or fails with the member as it is.
Changes that nobody can notice are in `tests.conformance.equivalent`, each with the reason.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.conformance import subtle
from tests.conformance.equivalent import ALSO, EQUIVALENT
from tests.conformance.mutants import FILE
from tests.conformance.table import resolve, rows

ROOT = Path(__file__).parents[2]
# kinds of targets that can be taken out
BODIES = ("method", "property", "attribute", "alias", "function")


@dataclass(frozen=True)
class Mutant:
    """A member to take out, or to change, and the tests to run then. `name`: `page.member`, and the
    change.
    """

    name: str
    ours: str
    test: str
    change: str = ""
    more: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """`broken`: what the test says as things are; `without`: what it says without the member.
    Nothing said: it passed.
    """

    mutant: Mutant
    broken: str
    without: str

    @property
    def noticed(self) -> bool:
        return bool(self.without) and not self.broken


def mutants(names: Sequence[str] = ()) -> list[Mutant]:
    """What can be taken out: every member of the pages, or those named.

    Raises:
        SystemExit: nothing has one of the names.
    """
    found, unknown = [], set(names)
    for page, row in rows():
        called = {page.name, row.name, f"{page.name}.{row.name}"} & set(names)
        unknown -= called
        if (called or not names) and not row.kept and resolve(page.ours(row)).kind in BODIES:
            found.append(Mutant(f"{page.name}.{row.name}", page.ours(row), row.test))
    if unknown:
        raise SystemExit(f"no page and no member is called {', '.join(sorted(unknown))}")
    return found


def subtle_mutants(names: Sequence[str] = ()) -> list[Mutant]:
    """Every small change of every member, or of those named. A function that several rows name is
    changed once; the tests of all its rows run, each in all its cases, since a small change of a
    member shows in another case than its absence.
    """
    found: dict[tuple[object, str], Mutant] = {}
    for page, row in rows():
        ours = page.ours(row)
        target = resolve(ours)
        if names and not {page.name, row.name, f"{page.name}.{row.name}"} & set(names):
            continue
        for mutant in subtle.mutants(target):
            key = inspect.unwrap(target.value), mutant.operator
            wanted = row.test.partition("[")[0], *ALSO.get(ours, ())
            present = found.setdefault(
                key,
                Mutant(
                    f"{page.name}.{row.name}: {mutant.operator}", ours, wanted[0], mutant.operator
                ),
            )
            more = dict.fromkeys((*present.more, *wanted))
            found[key] = replace(present, more=tuple(test for test in more if test != present.test))
    return [m for m in found.values() if (m.ours, m.change) not in EQUIVALENT]


def outcomes(
    todo: Sequence[Mutant], workers: int = 0, seen: Callable[[int], None] = lambda n: None
) -> list[Outcome]:
    """Runs the mutants in `workers` processes (one for each core); `seen(n)` is told now and then
    how many are done.
    """
    count = min(workers or os.cpu_count() or 1, len(todo))
    with tempfile.TemporaryDirectory() as folder:
        batches = [(Path(folder) / f"{i}.json", todo[i::count]) for i in range(count)]
        processes = [_start(file, batch) for file, batch in batches]
        while any(p.poll() is None for p in processes):
            seen(sum(len(_results(file)) for file, _ in batches))
            time.sleep(0.1)
        found = {r["name"]: r for file, _ in batches for r in _results(file)}
        for process in processes:
            process.communicate()
        said = " ".join(
            file.with_suffix(".log").read_text(encoding="utf-8")[-400:]
            for file, _ in batches
            if len(found) < len(todo)
        )
    seen(len(found))
    lost = {"broken": f"no result; pytest said: {said}", "without": ""}
    return [
        Outcome(m, **{key: found.get(m.name, lost)[key] for key in ("broken", "without")})
        for m in todo
    ]


def _start(file: Path, batch: Sequence[Mutant]) -> subprocess.Popen[bytes]:
    file.write_text(
        json.dumps([(m.name, m.ours, [m.test, *m.more], m.change) for m in batch]), encoding="utf-8"
    )
    tests = sorted({f"tests/{test}" for m in batch for test in (m.test, *m.more)})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conformance.mutants",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *tests,
    ]
    with file.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {FILE: str(file)},
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )


def _results(file: Path) -> list[dict[str, str]]:
    results = file.with_suffix(".results")
    lines = (
        results.read_text(encoding="utf-8").splitlines(keepends=True) if results.exists() else []
    )
    return [json.loads(line) for line in lines if line.endswith("\n")]


def report(found: Sequence[Outcome], everything: bool) -> Table:
    """The mutants that no test noticed, the tests that fail anyway; with `everything`, what noticed
    the others.
    """
    table = Table("member", "test", "without the member")
    for outcome in found:
        if everything or not outcome.noticed:
            said = (
                f"[red]fails anyway:[/] {escape(outcome.broken)}"
                if outcome.broken
                else escape(outcome.without) or "[red]passes[/]"
            )
            table.add_row(outcome.mutant.name, escape(outcome.mutant.test), said)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the job; 0 when every mutant was noticed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.mutate", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true", help="also list what noticed each mutant")
    parser.add_argument(
        "--only",
        choices=("bodies", "subtle"),
        help="only take bodies out, or only make small changes",
    )
    options = parser.parse_args(arguments)
    todo = [] if options.only == "subtle" else mutants(options.names)
    bodies, begun = len(todo), time.monotonic()
    todo += [] if options.only == "bodies" else subtle_mutants(options.names)
    console = Console(width=None if sys.stdout.isatty() else 200)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("members taken out or changed", total=len(todo))
        found = outcomes(todo, seen=lambda n: progress.update(task, completed=n))
    survivors = [o for o in found if not o.noticed]
    if survivors or options.all:
        console.print(report(found, options.all))
    console.print(
        f"{bodies} members taken out, {len(found) - bodies} small changes: "
        f"{len(found) - len(survivors)} noticed by their tests,"
        f" {len(survivors)} not ({time.monotonic() - begun:.0f} s)"
    )
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
