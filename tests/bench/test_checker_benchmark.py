"""benchmarks/checker.py: its smallest rows, and what it prints of a row that was given up."""

from __future__ import annotations

import runpy
import subprocess
import sys

import pytest

from tools.docs.readme import ROOT

PATH = ROOT / "benchmarks" / "checker.py"


def table(*options: str) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, str(PATH), *options], capture_output=True, text=True, check=True
    )
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in done.stdout.splitlines()
        if line.startswith("| ")
    ]


@pytest.mark.slow
def test_the_smallest_rows() -> None:
    heads, single, explored = table("--tables", "targets", "--rows", "2", "--runs", "1")
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
    rows = table("--tables", "reductions", "--rows", "2", "--runs", "1")
    assert [row[1] for row in rows[1:]] == ["explored", "explored without hashing"]


def test_a_row_that_was_given_up() -> None:
    measurement = runpy.run_path(str(PATH))["Measurement"]
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
