"""The notebook runs, cell by cell, and shows what its texts say."""

from __future__ import annotations

import ast
import json
import linecache
from pathlib import Path
from typing import Any

import pytest

import tilepipe as tp
from tilepipe.check import Verdict
from tilepipe.sim import Run

NOTEBOOK = Path(__file__).parents[1] / "docs" / "tutorial" / "notebook.ipynb"


def cells() -> list[str]:
    """The source of its cells of code."""
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    return ["".join(x["source"]) for x in book["cells"] if x["cell_type"] == "code"]


def shown(source: str, number: int, names: dict[str, Any]) -> Any:
    """What a cell shows: the value of the expression that it ends with, as IPython has it."""
    file = f"<ipython-input-{number}>"
    linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
    body = ast.parse(source).body
    last = body[-1].value if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body if last is None else body[:-1], []), file, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last), file, "eval"), names)


@pytest.mark.slow
def test_each_cell_runs_and_shows_what_the_text_says() -> None:
    names: dict[str, Any] = {}
    found = [shown(source, i, names) for i, source in enumerate(cells(), 1)]
    defined, program, run, verified, fault = found
    assert defined is None
    assert isinstance(program, tp.Program)
    assert isinstance(run, Run)
    assert isinstance(verified, Verdict)
    assert isinstance(fault, Verdict)
    assert (verified.verdict, fault.verdict) == ("verified", "fault")
    assert "RaceError" in repr(fault)
    page = program._repr_html_()
    assert "expects &lt;ipython-input-1&gt;:" in page
    assert "ring of 2 stages" in page
    assert "ring.full" in run._repr_html_()
    assert "ctx.tma_store(out, (row, j * TILE)" in fault._repr_html_()


def test_it_is_kept_without_outputs() -> None:
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert [x["outputs"] for x in book["cells"] if x.get("outputs")] == []
