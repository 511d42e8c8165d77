"""The mutation campaign: judges every mutant of every shipped kernel and example, and writes
docs/generated/mutants.md.

    python -m tests.mutation.run [--kernels gemm examples] [--jobs 2] \\
        [--out docs/generated/mutants.md] [--save FILE] [--load FILE ...]
    (make mutants)

The page is about all kernels: where --kernels or --sample chooses some of the mutants it is left as
it is. To write one kernel's results anew, keep those of all (--save all.gz) and of the one
(--kernels gemm --save gemm.gz), and --load all.gz gemm.gz --out the page.

Exits with 1 when a mutant survives without an explanation, or is undecided.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.mutation.cases import Case, cases
from tests.mutation.page import page
from tests.mutation.results import Result
from tests.support.processes import map_in_processes
from tests.support.time_limit import TimeLimitExceeded, time_limit
from tilepipe.check.mutation.judging import judge, outputs
from tilepipe.check.mutation.mutants import Mutant, mutants
from tilepipe.check.mutation.observations import Observations
from tilepipe.check.mutation.outcomes import Outcome
from tilepipe.check.mutation.redundancy import ADVISED, explain
from tilepipe.check.verdict import Bounds
from tilepipe.ir.program import Kernel, Launch

BOUNDS = Bounds(traces=20_000, seconds=80.0, steps=6_000)
LIMIT = 90  # seconds for one mutant, whatever it does
PARTS = 4  # tasks of a case


@dataclass(frozen=True)
class Task:
    """Mutants `part`, `part` + PARTS, ... of case number `case`; of those every `sample`-th."""

    case: int
    part: int
    sample: int = 1


def perform(task: Task) -> list[Result]:
    """Judges the mutants of a task."""
    subject = Subject.of(cases()[task.case])
    chosen = islice(mutants(subject.kernel), task.part * task.sample, None, PARTS * task.sample)
    return [result_of(subject, mutant) for mutant in chosen]


@dataclass(frozen=True)
class Subject:
    """A case with its instances, what they write, and the observations of their runs."""

    case: Case
    launches: list[tuple[Launch, dict[str, bytes]]]
    observations: Observations

    @classmethod
    def of(cls, case: Case) -> Subject:
        launches = case.launches()
        return cls(case, [(launch, outputs(launch)) for launch in launches], Observations(launches))

    @property
    def kernel(self) -> Kernel:
        return self.launches[0][0].kernel


def result_of(subject: Subject, mutant: Mutant) -> Result:
    """The result of a mutant on the instances of a case: caught if one of them catches it,
    redundant if all are explored without a fault.
    """
    outcomes: list[Outcome] = []
    begun = time.monotonic()
    try:
        with time_limit(LIMIT):
            for launch, reference in subject.launches:
                outcomes.append(judge(mutant, launch, reference, bounds=BOUNDS))
                if outcomes[-1].caught:
                    break
    # a bug of the checker, or a mutant that takes too long: the campaign goes on, and ends with 1
    except (Exception, TimeLimitExceeded) as error:
        outcomes.append(
            Outcome("undecided", type(error).__name__, message=f"{type(error).__name__}: {error}")
        )
    outcome = next(
        (o for o in outcomes if o.caught),
        next((o for o in outcomes if o.fate == "undecided"), outcomes[0]),
    )
    advised = any(o.advice for o in outcomes)
    reason = (
        explain(mutant, subject.kernel, subject.observations, advised)
        if outcome.fate == "redundant"
        else ""
    )
    case = subject.case
    return Result(
        case.kernel,
        case.name,
        mutant.operator,
        mutant.what,
        mutant.loc.short,
        outcome.fate,
        outcome.kind,
        outcome.headline,
        reason,
        outcome.states,
        outcome.traces,
        round(time.monotonic() - begun, 2),
    )


def campaign(
    kernels: Sequence[str] = (),
    jobs: int = 1,
    sample: int = 1,
    seen: Callable[[int, int], None] = lambda done, of: None,
) -> list[Result]:
    """Judges the mutants of some kernels.

    Args:
        kernels: names of kernels or of families; all if empty.
        sample: judge only every `sample`-th mutant.
        seen: called with (tasks done, total).
    """
    chosen = [
        i
        for i, case in enumerate(cases())
        if not kernels or case.kernel in kernels or case.name in kernels
    ]
    tasks = [Task(i, part, sample) for i in chosen for part in range(PARTS)]
    results: list[Result] = []
    for done, found in enumerate(map_in_processes(perform, tasks, jobs), 1):
        results += found
        seen(done, len(tasks))
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the campaign, writes the page; 0 where every survivor is explained."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation.run", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--kernels",
        nargs="+",
        default=[],
        metavar="NAME",
        help="kernels, or families of them; all unless given",
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="every N-th mutant only")
    parser.add_argument("--out", type=Path, help="the page to write")
    parser.add_argument("--save", type=Path, help="all results, as JSON lines (gzip)")
    parser.add_argument(
        "--load",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="what --save wrote, instead of running",
    )
    options = parser.parse_args(arguments)
    console, begun = Console(width=None if sys.stdout.isatty() else 160), time.monotonic()
    found = loaded(options.load) if options.load else _shown(console, options)
    if options.save is not None:
        with gzip.open(options.save, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(result)) + "\n" for result in found)
    partial = bool(options.kernels) or options.sample > 1
    if options.out is not None and (options.load or not partial):
        options.out.write_text(page(found), encoding="utf-8")
    wanting = [
        r for r in found if r.fate == "undecided" or (r.fate == "redundant" and not r.reason)
    ]
    for r in wanting[:40]:
        console.print(
            f"{r.kernel}, {r.family}: {r.fate}: {r.operator}: {r.what} at {r.loc} {r.message}",
            markup=False,
        )
    survivors = sum(r.fate == "redundant" for r in found)
    console.print(
        f"{len(found):,} mutants: {len(found) - survivors:,} caught, {survivors:,} redundant,"
        f" {len(wanting)} of them unexplained or undecided ({time.monotonic() - begun:.0f} s)"
    )
    if options.out is not None and partial and not options.load:
        console.print(f"{options.out} is not written: it is about all mutants, these are some")
    return 1 if wanting else 0


def loaded(files: Sequence[Path]) -> list[Result]:
    """The results in files of `--save`, in the order of the cases; of a case in several files, the
    last.
    """
    of: dict[tuple[str, str], list[Result]] = {}
    for path in files:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            found = [Result(**json.loads(line)) for line in file]
        of |= {
            case: [r for r in found if (r.kernel, r.family) == case]
            for case in {(r.kernel, r.family) for r in found}
        }
    return [
        result
        for case in cases()
        for result in _explained(case, of.get((case.kernel, case.name), []))
    ]


def _explained(case: Case, results: Sequence[Result]) -> list[Result]:
    """The results with the reasons that today's rules give."""
    if not any(r.fate == "redundant" for r in results):
        return list(results)
    subject = Subject.of(case)
    of: dict[tuple[str, str, str], list[Mutant]] = {}
    for m in mutants(subject.kernel):
        of.setdefault((m.operator, m.what, m.loc.short), []).append(m)

    def reason(r: Result) -> str:
        if r.fate != "redundant":
            return ""
        advised = r.reason == ADVISED
        reasons = (
            explain(m, subject.kernel, subject.observations, advised)
            for m in of[r.operator, r.what, r.loc]
        )
        return next((text for text in reasons if text), "")

    return [replace(r, reason=reason(r)) for r in results]


def _shown(console: Console, options: argparse.Namespace) -> list[Result]:
    """The campaign, with a bar."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("quarters of kernels", total=None)
        return campaign(
            options.kernels,
            options.jobs,
            options.sample,
            lambda done, of: progress.update(bar, completed=done, total=of),
        )


if __name__ == "__main__":
    sys.exit(main())
