"""Every rung of the ladder runs, verifies itself against NumPy, says so, and compiles for Hopper,
two of them for Blackwell.
"""

from __future__ import annotations

import runpy
import subprocess
import sys

import numpy as np
import pytest

import tilepipe as tp
from tests.examples.ladder import EXAMPLES, NAMES, arch, load
from tilepipe.machine import scheduler
from tools.docs import excerpts


def test_the_rungs_are_numbered() -> None:
    assert [name[:2] for name in NAMES] == [f"{i:02}" for i in range(1, 14)]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", NAMES)
def test_runs_and_says_that_it_is_right(
    name: str, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    program = load(EXAMPLES / f"{name}.py")(seed)
    said = capsys.readouterr().out
    assert "right" in said.splitlines()[0]
    if seed == 0:
        page = dict(excerpts.PRINTED.findall(excerpts.LADDER.read_text(encoding="utf-8")))
        assert said == page[name], "docs/tutorial/ladder.md: python -m tools.docs.excerpts"
    assert isinstance(program, tp.Program)


@pytest.mark.parametrize("name", NAMES)
def test_every_phase_that_is_filled_is_freed(name: str) -> None:
    run = load(EXAMPLES / f"{name}.py")(1).run(seed=7)
    sides = [
        run.completions[barriers]
        for barriers in run.completions
        if barriers.endswith((".full", ".empty"))
    ]
    if not sides:
        assert set(run.completions) in ({"ready"}, {"full", "free"}, set())
        return
    # the full barriers of inputs, and the empty ones of outputs, are the even CTA's
    paired = name.startswith("09")
    for full, empty in zip(sides[::2], sides[1::2], strict=True):
        for cta, (filled, freed) in enumerate(zip(full, empty, strict=True)):
            assert filled == freed or (paired and cta % 2 and 0 in (sum(filled), sum(freed)))
        assert np.sum(full[::2]) == np.sum(empty[::2]) > 0


@pytest.mark.slow
def test_as_a_script() -> None:
    path = EXAMPLES / "01_two_warps_one_barrier.py"
    said = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    assert said.stdout == "32 numbers through shared memory: right. 'ready' completed 1 phase.\n"


@pytest.mark.slow
def test_tests_that_guard_waits_are_checked_in_one_execution() -> None:
    verdict = load(EXAMPLES / "10_asking_before_waiting.py")(0).check()
    assert (verdict.verdict, verdict.method, verdict.traces) == ("verified", "single-execution", 1)
    assert "tests (try_wait) only decides whether the wait" in verdict.facts[0]


def test_tests_that_fail_while_copies_are_on_their_way_are_no_endless_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that a seed stays what it was: rounds of those that poll are steps out of turn."""

    def rounds(_: object) -> int:
        raise AssertionError

    monkeypatch.setattr(scheduler, "_go_round", rounds)
    load(EXAMPLES / "10_asking_before_waiting.py")(2)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_compiles_without_a_loss(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    compiled = load(EXAMPLES / f"{name}.py")(0).compile(arch(name))
    assert compiled.data[:4] == b"\x7fELF"
    assert compiled.spill_bytes == 0
    assert "C7508" not in compiled.log
    assert "C7510" not in compiled.log


@pytest.mark.parametrize("name", NAMES)
def test_says_what_is_new_and_what_is_missing(name: str) -> None:
    doc = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="example")["__doc__"]
    assert doc.startswith(f"Rung {int(name[:2])}:")
    assert "\nNew: " in doc
    assert ("\nStill slow: " in doc) or ("\nStill missing: " in doc)
