"""Writes docs/generated/ptx-corpus.md: `python -m tests.check.corpus.write`."""

from __future__ import annotations

import platform
import time
from pathlib import Path

from tests.check.corpus.bugs import BUGS, Bug
from tilepipe.check import check
from tilepipe.check.verdict import Verdict

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "generated" / "ptx-corpus.md"
COMMAND = "python -m tests.check.corpus.write"

HEAD = """# Synchronisation bugs of public kernels

Each row is a bug that was reported in public, as a small kernel of our own in CUDA C++ (in
`tests/check/corpus`): once as the report describes it, and once fixed. NVRTC compiles both to PTX,
and `tilepipe.check.check` decides both over all interleavings: a fault at the first, verified at
the second. `{command}` writes this page; a test compares the kind of fault, words of the message
and the line that it names.

No code is copied. The kernels keep what makes the bug and leave out the rest: they say that the
checker knows the mistake, not that it would decide the kernel in which the mistake was made. Where
the strict rules are named, [practice](../reference/rules.md) has only advice, since compilers ship
code that relies on it.

{count} bugs. Seconds are of one core ({machine}), of the check alone: bug, fix.

| bug | reported in | fault | at | what the checker says | seconds |
|---|---|---|---|---|---|
"""


def cell(bug: Bug) -> str:
    """The first cell of the row of a bug."""
    return f"[{bug.title}](../../{bug.file.relative_to(ROOT).as_posix()})"


def rows(page: str) -> list[str]:
    """The rows of the table of a page."""
    return [line for line in page.splitlines() if line.startswith("| [")]


def _row(bug: Bug) -> str:
    found, seconds = _timed(bug, True)
    fixed, more = _timed(bug, False)
    assert (found.verdict, fixed.verdict) == ("fault", "verified"), bug.name
    (fault,) = found.faults
    links = ", ".join(
        f"[{repository} #{number}](https://github.com/{repository}/issues/{number})"
        for repository, numbers in bug.reported
        for number in numbers
    )
    links = links or "(classic)"
    kind = fault.kind + (" (strict)" if bug.rules == "strict" else "")
    says = bug.told(fault.message).replace("|", "\\|")
    place = fault.loc.split(" > ")[0]
    return f"| {cell(bug)} | {links} | {kind} | {place} | {says} | {seconds:.2f}, {more:.2f} |"


def _timed(bug: Bug, with_bug: bool) -> tuple[Verdict, float]:
    launch = bug.launch(with_bug)
    start = time.process_time()
    verdict = check(launch, rules=bug.rules)
    return verdict, time.process_time() - start


def main() -> None:
    head = HEAD.format(command=COMMAND, count=len(BUGS), machine=platform.machine())
    PAGE.write_text(head + "\n".join(map(_row, BUGS)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
