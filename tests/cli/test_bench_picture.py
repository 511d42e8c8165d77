"""`tilepipe bench gemm --picture`: what is measured is said, whatever becomes of the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.copying import Call
from tilepipe.bench import gemm
from tilepipe.bench.report import Check, Line
from tilepipe.bench.shapes import Suite
from tilepipe.cli import measure
from tilepipe.kernels.gemm.config import GemmConfig

GOOD = Check(0.001, 0.01, True)


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be measured on a GPU: cuBLAS takes 9 µs, and we 8."""

    def run(given: Sequence[Suite], *_: object) -> list[list[Line]]:
        return [
            [
                Line(x, GemmConfig(), "chosen", "burst", 9.0, 8.0, 0.0, 0.0, GOOD, GOOD)
                for x in suite.problems
            ]
            for suite in given
        ]

    monkeypatch.setattr(measure, "measuring", lambda *_: "H200")
    monkeypatch.setattr(gemm, "environment", lambda chip: "made up")
    monkeypatch.setattr(gemm, "run", run)


ARGS: list[Any] = ["bench", "gemm", "--shapes", "512,256,128", "--no-host", "--regime", "burst"]


def test_a_picture_that_cannot_be_written_costs_no_table(tmp_path: Path, tilepipe: Call) -> None:
    there = tmp_path / "dots.svg"
    there.mkdir()
    code, out, err = tilepipe(*ARGS, "--picture", there)
    assert code == 2
    assert "512×256×128" in out
    assert "1.125" in out
    assert f"BindError: cannot write {there}: Is a directory" in " ".join(err.split())
    assert "Traceback" not in err


def test_a_picture_is_written(tmp_path: Path, tilepipe: Call) -> None:
    there = tmp_path / "dots.svg"
    assert tilepipe(*ARGS, "--picture", there)[0] == 0
    assert "512×256×128: 1.125" in there.read_text(encoding="utf-8")
