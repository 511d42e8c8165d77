"""A pytest plugin: instead of its tests, runs each mutant's test with the mutant's member taken
out. `tests.conformance.mutate` starts it.

`TILEPIPE_MUTANTS` names a file: a JSON list of [name, our name, tests, change]; the change is one
of `tests.conformance.subtle`, or
empty: the member does nothing. For each, a line of JSON is appended to `<file>.results`: the
name, whether the test passes as things are, whether it passes without the member, and what it says
then.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.conformance.replacing import forget_traces, replaced
from tests.conformance.table import resolve

FILE = "TILEPIPE_MUTANTS"
SECONDS = 30  # of one test; a kernel that does not end without a member has noticed that it is gone


class OutOfTimeError(BaseException):
    """Raised in a test that runs too long; no handler of errors takes it for one."""


def _interrupt(*_: object) -> None:
    raise OutOfTimeError(f"not ended after {SECONDS} s")


def complaint(items: list[pytest.Item]) -> str:
    """Runs tests until one fails; the first line of what it says, or nothing when all pass."""
    for item in items:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            reports = runtestprotocol(item, log=False, nextitem=None)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for report in reports:
            if not report.passed:
                crash = getattr(report.longrepr, "reprcrash", None)
                return (crash.message if crash else str(report.longrepr)).strip().splitlines()[
                    0
                ] or "failed"
    return ""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """The loop over the mutants."""
    source = Path(os.environ[FILE])
    signal.signal(signal.SIGALRM, _interrupt)
    healthy: dict[str, str] = {}
    for name, ours, tests, change in json.loads(source.read_text(encoding="utf-8")):
        items = []
        for test in tests:
            node = f"tests/{test}"
            own = [
                item
                for item in session.items
                if item.nodeid == node or item.nodeid.startswith(f"{node}[")
            ]
            if test not in healthy:
                forget_traces()
                healthy[test] = complaint(own) if own else "pytest finds no such test"
            items += own
        broken = next((healthy[test] for test in tests if healthy[test]), "")
        with replaced(resolve(ours), change):
            forget_traces()
            without = "" if broken else complaint(items)
        forget_traces()
        result: dict[str, Any] = {"name": name, "broken": broken, "without": without}
        with source.with_suffix(".results").open("a", encoding="utf-8") as out:
            out.write(json.dumps(result) + "\n")
    return True
