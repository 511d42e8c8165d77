"""`tilepipe bench FILE.py:NAME`: what is missing without a GPU; and all but the times, with CPU
tensors in the place of a GPU's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cli.copying import Call, report
from tests.cli.own import OWN
from tests.conftest import missing_gpu
from tests.support.ops.memory import at
from tilepipe.program import Program


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN, encoding="utf-8")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["own.py:nope"], "own.py has no 'nope'"),
        (["own.py:program", "--against", "own.py:longer"], "'a' is (7, 32) float32 there"),
        (["own.py:program", "--against", "right"], "--against takes FILE.py:NAME, got 'right'"),
        (["own.py:program", "--shapes", "1,2,3"], "--shapes, --config and --picture are for"),
        (["own.py:program", "--config", "tuned"], "--shapes, --config and --picture are for"),
        (["own.py:program", "--picture", "k.svg"], "--shapes, --config and --picture are for"),
        (["own.py:program", "-s", "columns=1"], "own.py:program has no setting 'columns'"),
        (["gemm", "--against", "own.py:right"], "'gemm' is measured beside its own peers"),
    ],
)
def test_what_does_not_fit_is_said_before_a_gpu_is_looked_for(
    args: list[str], words: str, tilepipe: Call
) -> None:
    code, out, err = tilepipe("bench", *args)
    assert (code, out) == (2, "")
    assert words in err


@pytest.mark.skipif(not missing_gpu(), reason="this machine has a GPU")
def test_without_a_gpu_it_says_what_is_missing(tilepipe: Call) -> None:
    done = tilepipe("bench", "own.py:program", "--against", "own.py:right", "--json")
    error = report(done, 2)["error"]
    assert error["type"] == "UnavailableError"
    assert "which this machine does not have" in error["message"] or "GPU" in error["message"]


class _Launcher:
    """A program that is simulated on the memory at the addresses that it is launched with."""

    def __init__(self, program: Program) -> None:
        self.program = program
        args = program.launch_args.args
        self.tensors = tuple(n for n, x in args.items() if hasattr(x, "array"))

    def __call__(self, addresses: tuple[int, ...], stream: int = 0) -> None:
        arrays = {n: getattr(self.program.launch_args.args[n], "array") for n in self.tensors}  # noqa: B009
        places = {n: at(x, arrays[n]) for n, x in zip(self.tensors, addresses, strict=True)}
        kept = {name: array.copy() for name, array in arrays.items()}
        for name, array in arrays.items():
            array[...] = places[name]
        self.program.run()
        for name, array in arrays.items():
            places[name][...] = array
            array[...] = kept[name]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """CPU tensors are taken for a GPU's. Returns the sides that are timed."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from tilepipe.bench import gemm, own, timing
    from tilepipe.cli import bench_file
    from tilepipe.cuda.runtime import driver

    timed_sides: list[str] = []

    class Block:
        def __init__(self, launch: Callable[[int], object], sets: int) -> None:
            for i in range(sets):
                launch(i)

    def timed(blocks: Mapping[str, Any], regime: str, repeats: int) -> dict[str, timing.Sample]:
        timed_sides.extend(blocks)
        return {
            name: timing.Sample((2.0 * i + 2, 2.0 * i + 2, 2.0 * i + 2.5, 2.0 * i + 2, 2.0 * i + 2))
            for i, name in enumerate(blocks)
        }

    monkeypatch.setattr(Program, "launcher", lambda self: _Launcher(self))
    monkeypatch.setattr(driver, "chip", lambda ordinal: tp.H200)
    monkeypatch.setattr(bench_file, "require_torch", lambda: None)
    monkeypatch.setattr(gemm, "environment", lambda chip: f"emulated {chip.name}")
    monkeypatch.setattr(own, "DEVICE", "cpu")
    monkeypatch.setattr(own, "MAX_SETS", 2)
    monkeypatch.setattr(own, "stream", lambda: 0)
    monkeypatch.setattr(own, "wait", lambda: None)
    monkeypatch.setattr(timing, "block", Block)
    monkeypatch.setattr(timing, "timed", timed)
    return timed_sides


@pytest.mark.slow
def test_a_program_beside_two_peers(gpu: list[str], tilepipe: Call) -> None:
    peers = ["--against", "own.py:right", "--against", "own.py:program"]
    found = report(tilepipe("bench", "own.py:program", *peers, "--json"))
    assert found["ok"] is True
    assert found["against"] == ["own.py:right", "own.py:program"]
    assert [x["regime"] for x in found["results"]] == ["burst", "steady"]
    for line in found["results"]:
        assert line["us"] == {"tilepipe": 2.0, "own.py:right": 4.0, "own.py:program": 6.0}
        assert line["ratio"] == {"own.py:right": 2.0, "own.py:program": 3.0}
        assert line["gbytes_per_s"] == pytest.approx(2 * 5 * 32 * 4 / 2e-6 * 1e-9)
        assert line["outputs"]["own.py:right"]["out"]["ok"]


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["wrong", "tripled"])
def test_results_that_differ_are_not_timed(peer: str, gpu: list[str], tilepipe: Call) -> None:
    args = ["bench", "own.py:program", "--against", f"own.py:{peer}"]
    code, out, _ = tilepipe(*args)
    assert (code, gpu) == (1, [])
    assert "not timed" in out
    assert f"own.py:{peer}, out: relative difference" in out
    assert "WRONG: " in out
    found = report(tilepipe(*args, "--json"), 1)
    assert (found["ok"], found["results"][0]["us"]) == (False, {})


@pytest.mark.slow
def test_the_tables(gpu: list[str], tilepipe: Call) -> None:
    args = ["bench", "own.py:several", "--regime", "burst", "--against", "own.py:right"]
    code, out, err = tilepipe(*args)
    assert code == 0
    words = " ".join(out.split())
    for said in ("emulated H200", "own.py:right", "/ ours", " 2.0 ", " 2.000 ", "agrees"):
        assert said in words
    assert "2: a (3, 32)" in words
    assert "this takes about" in err
    assert "| peer / ours |" in tilepipe(*args, "--markdown")[1]


@pytest.mark.slow
def test_a_program_alone_is_compared_with_nothing(gpu: list[str], tilepipe: Call) -> None:
    code, out, _ = tilepipe("bench", "own.py:program")
    assert code == 0
    assert "compared with nothing: --against FILE.py:NAME" in out
    assert report(tilepipe("bench", "own.py:program", "--json"))["ok"] is None


def test_floats_may_be_accumulated(gpu: list[str], tilepipe: Call) -> None:
    assert report(tilepipe("bench", "own.py:adds", "--against", "own.py:added", "--json"))["ok"]


def test_a_counter_that_a_launch_moves_is_refused(gpu: list[str], tilepipe: Call) -> None:
    text = OWN + (
        "\n\ndef counter():\n"
        "    return summed.bind(np.ones((2, 32), np.int32), np.zeros((2, 32), np.int32))\n"
    )
    Path("own.py").write_text(text, encoding="utf-8")
    code, _, err = tilepipe("bench", "own.py:counter")
    assert (code, gpu) == (2, [])
    assert "a launch changes the integers of 'out', which the next one reads" in err


def test_the_arguments_keep_their_strides_and_values(gpu: list[str]) -> None:
    from tilepipe.bench.own import Arguments
    from tilepipe.cli.programs import value_of

    scaled = value_of("own.py:scaled")
    wide = np.arange(6 * 48, dtype=np.float32).reshape(6, 48)
    out = np.zeros((6, 32), np.float32)
    found = Arguments(scaled.bind(wide[:, 8:40], out, 2.0))
    assert found.tensors["a"][1].stride() == (48, 1)
    assert np.array_equal(found.tensors["a"][1].numpy(), wide[:, 8:40])
    assert found.of(0)["factor"] == 2.0
    found.tensors["out"][0].fill_(3)
    found.reset(0)
    assert not found.tensors["out"][0].any()
