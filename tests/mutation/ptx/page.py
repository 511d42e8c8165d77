"""docs/generated/ptx-mutants.md, from what the campaign found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tests.mutation.ptx.judging import Result
from tests.mutation.ptx.subjects import SEEDS

FATES = ("fault", "wrong result", "endless", "refused", "survived")
FAULTS = ("RaceError", "DeadlockError", "BarrierError", "PoisonError", "ExitError", "SimFault")
# Groups of instructions, in the order of the table; the first that matches counts.
GROUPS: dict[str, str] = {
    "waits and tests": r"mbarrier\.(try|test)_wait|\S*\.wait|\S*wait_group|bar\S*\.sync"
    r"|barrier\S*\.(sync|wait)",
    "fences": r"fence|membar|tcgen05\.fence|wgmma\.fence",
    "arrives, expects, commits": r"mbarrier|\S*\.commit|\S*commit_group|bar\S*arrive",
    "copies and stores": r"cp\.|stmatrix|st\.|red|tcgen05\.(cp|st)",
    "loads": r"ld|tcgen05\.ld|ldmatrix",
    "matrix instructions": r"tcgen05\.mma|wgmma\.mma|mma",
    "tensor memory allocation": r"tcgen05",
    "branches": r"bra|brx|ret|exit",
    "votes, elections, shuffles": r"vote|elect|shfl|match|redux|activemask",
    "hints": r"prefetch|setmaxnreg|griddepcontrol|nanosleep",
    "arithmetic and moves": r"",
}
UNEXPLAINED = "other bits and values that this problem does not depend on"

HEAD = """# Mutants of printed PTX

What the reader of PTX notices of a printed kernel with one mistake. `make ptx-mutants` writes this
page: it prints kernels, compiles them to PTX with NVRTC, deletes single instructions and flips
single bits of constants (two of each constant), and runs each changed text on the simulated
machine, with happens-before on: in {seeds} interleavings where the instruction loads, stores,
branches or synchronises, else in one. {sample}

{counts}

{summary}

A *fault* is an error that the machine raises: a race, a deadlock, a barrier used against its rules,
memory that nothing has written. *Refused*: the text cannot be read, or uses what is not modelled.
*Endless*: it had not ended when its time was over. A mutant that *survived* has the same result,
bit for bit, in each run.

## What notices which deletion

{deletions}

{fences}

## What is not noticed, and why

{reasons}
"""


def page(results: Sequence[Result], sample: int = 1) -> str:
    """The text of the page."""
    survived = [r for r in results if r.fate == "survived"]
    errors = sum(r.fate == "error" for r in results)
    counts = (
        f"**{len(results):,} mutants** of {len({r.subject for r in results})} kernels:"
        f" {len(results) - len(survived) - errors:,} noticed, {len(survived):,} not;"
        f" {errors} ended in an error of the reader itself."
    )
    deletions = [r for r in results if r.operator == "deletion"]
    return HEAD.format(
        seeds=len(SEEDS),
        sample="" if sample == 1 else f"This page shows every {sample}th mutant.",
        counts=counts,
        summary="\n".join(_summary(results)),
        deletions="\n".join(_by_group(deletions)),
        fences=_fences(deletions),
        reasons="\n".join(_reasons(survived)),
    )


def group_of(result: Result) -> str:
    """The group of a mutant's instruction."""
    return next(name for name, pattern in GROUPS.items() if re.match(pattern, result.opcode))


def _summary(results: Sequence[Result]) -> list[str]:
    rows = []
    for operator in ("deletion", "bit flip"):
        mine = [r for r in results if r.operator == operator]
        for subject in dict.fromkeys(r.subject for r in mine):
            rows.append((f"{subject}: {operator}s", [r for r in mine if r.subject == subject]))
    return _table("kernel", [*rows, ("all", results)], FATES, lambda r: r.fate)


def _by_group(deletions: Sequence[Result]) -> list[str]:
    rows = [(name, [r for r in deletions if group_of(r) == name]) for name in GROUPS]
    columns = ("race", "deadlock", "barrier", "poison", "exit", "other fault", *FATES[1:])

    def column(result: Result) -> str:
        if result.fate != "fault":
            return result.fate
        name = result.kind.removesuffix("Error").lower()
        return name if name in columns else "other fault"

    return _table("deleted", [row for row in rows if row[1]], columns, column)


def _fences(deletions: Sequence[Result]) -> str:
    found = [r for r in deletions if group_of(r) in ("fences", "waits and tests")]
    noticed = [r for r in found if r.fate in ("fault", "wrong result", "endless")]
    by_order = [r for r in noticed if r.fate == "fault"]
    return (
        f"Of {len(found)} deleted fences and waits {len(noticed)} are noticed, {len(by_order)} of"
        " them by a fault: happens-before reports what values alone do not show."
    )


def _reasons(survived: Sequence[Result]) -> list[str]:
    lines = ["| why | deletions | bit flips | opcodes |", "|---|---:|---:|---|"]
    named = [(r.reason or UNEXPLAINED, r) for r in survived]
    for reason, count in Counter(reason for reason, _ in named).most_common():
        mine = [r for name, r in named if name == reason]
        flips = sum(r.operator == "bit flip" for r in mine)
        opcodes = Counter(r.opcode for r in mine).most_common(4)
        names = ", ".join(f"`{opcode}`" for opcode, _ in opcodes)
        lines.append(f"| {reason} | {count - flips:,} | {flips:,} | {names} |")
    return lines


def _table(
    what: str,
    rows: Iterable[tuple[str, Sequence[Result]]],
    columns: Sequence[str],
    column: Callable[[Result], str],
) -> list[str]:
    lines = [
        f"| {what} | mutants | {' | '.join(columns)} |",
        "|---|" + "---:|" * (len(columns) + 1),
    ]
    for name, found in rows:
        counts = Counter(column(r) for r in found)
        figures = [len(found), *(counts[c] for c in columns)]
        lines.append(f"| {name} | " + " | ".join(f"{n:,}" if n else "" for n in figures) + " |")
    return lines
