"""benchmarks/checker.py: its smallest rows, and what it prints of a row that was given up."""

from __future__ import annotations

import functools
import runpy
from typing import Any

import pytest

from tools.docs.readme import ROOT


@functools.cache
def checker() -> dict[str, Any]:
    """What the file defines."""
    return runpy.run_path(str(ROOT / "benchmarks" / "checker.py"))


@pytest.mark.slow
def test_the_smallest_rows(capsys: pytest.CaptureFixture[str]) -> None:
    checker()["main"](["--tables", "targets", "--rows", "2", "--runs", "1"])
    heads, single, explored = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("| ")
    )
    assert heads == ["shape", "method", "verdict", "executions", "states", "seconds", "MiB"]
    assert single[:3] == [
        "stages 3, accumulators 2, tiles 2, k steps 4, cluster 1, consumers 1",
        "single-execution",
        "verified",
    ]
    assert explored[1:3] == ["explored", "verified"]
    for row in (single, explored):
        executions, states = (int(figure.replace(",", "")) for figure in row[3:5])
        assert executions >= 1
        assert states > 50
        assert float(row[5]) > 0


@pytest.mark.slow
def test_reductions_are_turned_off() -> None:
    first, *others = checker()["TABLES"]["reductions"][:5]
    assert [cell.method for cell in (first, *others)] == [
        "explored",
        "explored without hashing",
        "explored without symmetry",
        "explored without partial order",
        "explored without partial order, hashing, symmetry",
    ]
    figures = [checker()["check_cell"](cell, runs=1, limit=50) for cell in (first, others[2])]
    assert [(x.verdict, x.executions) for x in figures] == [("verified", 1), ("undecided", 50)]


def test_a_row_that_was_given_up() -> None:
    measurement = checker()["Measurement"]
    assert measurement("undecided", 1234, 56789, [10.02], 3 << 20).row() == (
        "undecided",
        "> 1,234",
        "> 56,789",
        "> 10",
        "3",
    )
    assert measurement("verified", 1, 100, [0.2, 0.1, 0.4], 0).row() == (
        "verified",
        "1",
        "100",
        "0.2 (0.1..0.4)",
        "0",
    )
