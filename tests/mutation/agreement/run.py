"""Compares the verdicts on traced programs with those on the PTX of their printed CUDA: of every
shipped kernel, its families, the examples, and mutants; and writes docs/generated/ptx-agreement.md.

    python -m tests.mutation.agreement.run [--rounds 20] [--seconds 180] \\
        [--results FILE [--again | --stored]] [--out docs/generated/ptx-agreement.md]
    (make ptx-agreement)

Results are appended to --results as they are found, and what it holds already is not done again;
with --again, what did not agree is, and with --stored nothing is: the page lists what is missing.
Exits with 1 where the two disagree without an explanation.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

from tests.mutation.agreement.judging import PRINTED, TRACED, Pair, printed, traced
from tests.mutation.agreement.page import page
from tests.mutation.agreement.reasons import reason
from tests.mutation.agreement.subjects import Subject, examples, families, mutated, shipped

GROUPS = ("shipped", "examples", "families", "mutants")
PATIENCE = 180.0  # seconds of a side for a kernel as it is


def judge(subject: Subject, patience: float = PATIENCE) -> Pair:
    """Both verdicts on a subject.

    Args:
        patience: the seconds that a side may take for a kernel as it is.
    """
    launch, m = subject.make(), subject.mutant
    if m is None:
        return Pair(
            subject.group, subject.subject, subject.instance,
            traced(launch, replace(TRACED, seconds=patience, steps=PRINTED.steps)),
            printed(launch, replace(PRINTED, seconds=patience)),
        )  # fmt: skip
    return Pair(
        subject.group, subject.subject, subject.instance, traced(launch), printed(launch),
        m.operator, m.what, m.loc.short, subject.number,
    )  # fmt: skip


def subjects(groups: Sequence[str], rounds: int, only: str) -> Iterator[Subject]:
    """What is to be decided."""
    every: dict[str, Callable[[], Iterator[Subject]]] = {
        "shipped": shipped,
        "examples": examples,
        "families": families,
        "mutants": lambda: mutated(rounds, only),
    }
    for subject in chain.from_iterable(every[name]() for name in groups):
        if only in subject.subject:
            yield subject


def stored(path: Path) -> dict[tuple[str, str, str, int], Pair]:
    """The results in a file, by their keys; none where there is no file."""
    if not path.exists():
        return {}
    with path.open(encoding="utf-8") as file:
        found = [Pair.of(json.loads(line)) for line in file]
    return {pair.key: pair for pair in found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares, and writes the page; 0 where each disagreement is explained."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation.agreement.run",
        description=(__doc__ or "").split(";", maxsplit=1)[0],
    )
    parser.add_argument("--groups", nargs="+", default=GROUPS, choices=GROUPS)
    parser.add_argument("--only", default="", metavar="TEXT", help="kernels whose name has it")
    parser.add_argument("--rounds", type=int, default=20, help="mutants of each kernel")
    parser.add_argument(
        "--seconds", type=float, default=PATIENCE, help="for each side of a kernel as it is"
    )
    parser.add_argument("--results", type=Path, help="a file of results, as JSON lines")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--again", action="store_true", help="judge again what did not agree")
    how.add_argument("--stored", action="store_true", help="judge nothing; use --results alone")
    parser.add_argument("--out", type=Path, help="the page to write")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    known = stored(options.results) if options.results is not None else {}
    found, missing = [], []
    for subject in subjects(options.groups, options.rounds, options.only):
        pair = known.get(subject.key)
        if pair is None and options.stored:
            missing.append(subject)
            continue
        if pair is None or (options.again and not pair.agrees):
            pair = judge(subject, options.seconds)
            if options.results is not None:
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(pair)) + "\n")
        found.append(pair)
        if not pair.agrees:
            print(*pair.key, pair.what, pair.loc)
            for name, side in (("program", pair.traced), ("PTX", pair.printed)):
                print(f"  {name}: {side.verdict} {side.kind} {side.message[:300]!r}")
            sys.stdout.flush()
    if options.out is not None:
        options.out.write_text(page(found, missing), encoding="utf-8")
    apart = [pair for pair in found if not pair.agrees]
    unexplained = [pair for pair in apart if not reason(pair)]
    print(
        f"{len(found):,} launches: {len(found) - len(apart):,} agree, {len(apart):,} do not,"
        f" {len(unexplained)} of them unexplained ({time.monotonic() - begun:.0f} s)"
    )
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
