"""`tilepipe run` and `compile` of FILE.py:NAME."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.copying import Call, report
from tests.cli.own import OWN
from tests.conftest import missing_gpu


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN, encoding="utf-8")


def test_a_program_runs_on_its_own_arrays(tilepipe: Call) -> None:
    code, out, err = tilepipe("run", "own.py:program", "-s", "rows=4")
    assert (code, err) == (0, "")
    assert out.startswith("own.py:program: rows=4 factor=2.0\n")
    assert "a (4, 32), out (4, 32), factor 2.0, 2 CTAs: " in out
    assert "modelled time" in out
    assert "compared with nothing: --against FILE.py:NAME does" in out


def test_the_report_of_a_run(tilepipe: Call) -> None:
    found = report(tilepipe("run", "own.py:several", "--json", "--seed", "2"))
    assert {**found, "runs": len(found["runs"])} == {
        "kernel": "own.py:several",
        "config": {},
        "device": "sim",
        "from": "program",
        "seed": 2,
        "against": None,
        "ok": None,
        "runs": 2,
    }
    one = found["runs"][1]
    assert one["instance"].startswith("2: a (3, 32)")
    assert one["steps"] > 0
    assert one["simulated_us"] > 0
    assert (one["ok"], one["outputs"]) == (None, {})


@pytest.mark.slow
def test_what_a_kernel_prints_and_what_it_should_do_otherwise(tilepipe: Call) -> None:
    for source in ("program", "ptx"):
        code, out, _ = tilepipe("run", "own.py:to_advise", "--from", source)
        assert code == 0
        assert out.startswith("row 0\nown.py:to_advise:")
        (advice,) = (x for x in out.split("\nAdvice:\n")[1].splitlines() if x.startswith("  "))
        assert "mbarrier-init" in advice
        code, out, _ = tilepipe("run", "own.py:to_advise", "--from", source, "--json")
        (ran,) = json.loads(out)["runs"]
        assert [x.strip() for x in ran["printed"]] == ["row 0"]
        assert [x.strip() for x in ran["advice"]] == [advice.strip()]


@pytest.mark.parametrize("peer", ["right", "by_name", "in_place", "program"])
def test_results_that_agree(peer: str, tilepipe: Call) -> None:
    found = report(tilepipe("run", "own.py:program", "--against", f"own.py:{peer}", "--json"))
    assert found["ok"] is True
    (ran,) = found["runs"]
    assert ran["outputs"] == {"out": {"ok": True, "rel_error": 0.0, "allowed": 0.002, "wrong": 0}}


@pytest.mark.parametrize("peer", ["wrong", "tripled"])
def test_results_that_differ(peer: str, tilepipe: Call) -> None:
    code, out, _ = tilepipe("run", "own.py:program", "--against", f"own.py:{peer}")
    assert code == 1
    assert "DIFFERS" in out
    found = report(tilepipe("run", "own.py:program", "--against", f"own.py:{peer}", "--json"), 1)
    assert found["ok"] is False


def test_one_wrong_element_is_named(tilepipe: Call) -> None:
    _, out, _ = tilepipe("run", "own.py:program", "--against", "own.py:wrong")
    assert "out: relative difference" in out
    assert "DIFFERS, 1 elements, most at (3, 7)" in out


def test_each_of_several_programs_has_its_peer(tilepipe: Call) -> None:
    found = report(tilepipe("run", "own.py:several", "--against", "own.py:right", "--json"))
    assert [x["ok"] for x in found["runs"]] == [True, True]
    found = report(tilepipe("run", "own.py:several", "--against", "own.py:others", "--json"), 1)
    assert [x["ok"] for x in found["runs"]] == [True, False]


def test_a_peer_sees_the_outputs_as_they_were(tilepipe: Call) -> None:
    found = report(tilepipe("run", "own.py:adds", "--against", "own.py:added", "--json"))
    assert found["ok"] is True


@pytest.mark.parametrize(
    ("peer", "words"),
    [
        ("own.py:nope", "own.py has no 'nope'; it has program, several"),
        ("gemm", "--against takes FILE.py:NAME, got 'gemm'"),
        ("own.py:longer", "'a' is (7, 32) float32 there and (5, 32) float32 here"),
        ("own.py:several", "'a' is (2, 32) float32 there"),
        ("own.py:narrow", "output 'out' has shape (5, 32), and what it is compared with (5, 4)"),
        ("own.py:misnamed", "own.py:misnamed returns result; kernel 'scaled' writes out"),
        ("own.py:nothing_new", "own.py:nothing_new returns nothing; kernel 'scaled' writes out"),
    ],
)
def test_a_peer_that_does_not_fit(peer: str, words: str, tilepipe: Call) -> None:
    code, out, err = tilepipe("run", "own.py:program", "--against", peer)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err


def test_a_peer_that_fails_is_named_with_its_line(tilepipe: Call) -> None:
    code, _, err = tilepipe("run", "own.py:program", "--against", "own.py:fails")
    line = OWN.splitlines().index('    raise ValueError("planted")') + 1
    assert code == 2
    assert f"own.py:{line}: calling own.py:fails raised ValueError" in err


def test_what_does_not_go_together(tilepipe: Call) -> None:
    code, _, err = tilepipe("run", "gemm", "--against", "own.py:right")
    assert code == 2
    assert "'gemm' is verified against float64; --against is for FILE.py:NAME" in err
    code, _, err = tilepipe("run", "own.py:program", "-s", "columns=3")
    assert code == 2
    assert "own.py:program has no setting 'columns'; it has rows, factor" in err


@pytest.mark.slow
def test_from_its_ptx(tilepipe: Call) -> None:
    found = report(tilepipe("run", "own.py:program", "--from", "ptx", "--json"))
    assert found["from"] == "ptx"
    (ran,) = found["runs"]
    assert ran["steps"] > 0
    assert ran["simulated_us"] is None
    code, out, _ = tilepipe("run", "own.py:program", "--from", "ptx")
    assert code == 0
    assert out.endswith("compared with nothing: --against FILE.py:NAME does\n")


@pytest.mark.slow
@pytest.mark.parametrize("peer", ["right", "program"])
def test_results_of_its_ptx_that_agree(peer: str, tilepipe: Call) -> None:
    """The peer sees the arguments before the PTX writes into them, and is a program as ever."""
    call = ("run", "own.py:program", "--from", "ptx", "--against", f"own.py:{peer}", "--json")
    found = report(tilepipe(*call))
    assert (found["from"], found["ok"]) == ("ptx", True)
    (ran,) = found["runs"]
    assert ran["simulated_us"] is None  # PTX has run, and not the program
    assert ran["outputs"]["out"] == {"ok": True, "rel_error": 0.0, "allowed": 0.002, "wrong": 0}


@pytest.mark.slow
def test_results_of_its_ptx_that_differ(tilepipe: Call) -> None:
    code, out, _ = tilepipe("run", "own.py:program", "--from", "ptx", "--against", "own.py:wrong")
    assert code == 1
    assert "DIFFERS, 1 elements, most at (3, 7)" in out


@pytest.mark.slow
def test_arguments_of_a_launch_have_no_names_to_compare_by(tilepipe: Call) -> None:
    call = ("run", "own.py:of_ptx", "--against", "own.py:right")
    for more in ((), ("--from", "ptx")):
        code, out, err = tilepipe(*call, *more)
        assert (code, out) == (2, "")
        said = " ".join(err.split())
        assert "a launch of PTX, whose arguments have positions: scaled of" in said
        assert "launch.run(), then numpy.testing.assert_allclose(out, expected)" in said
    # nothing is recommended that would be refused
    code, out, _ = tilepipe("run", "own.py:of_ptx")
    assert code == 0
    assert out.endswith("ran without a fault; compared with nothing\n")


@pytest.mark.skipif(not missing_gpu(), reason="this machine has a GPU")
def test_without_a_gpu(tilepipe: Call) -> None:
    code, out, err = tilepipe("run", "own.py:program", "--device", "cuda")
    assert (code, out) == (2, "")
    assert "UnavailableError" in err


def test_compile_prints_cuda(tilepipe: Call) -> None:
    code, out, _ = tilepipe("compile", "own.py:program", "--emit", "cuda", "--arch", "sm_100a")
    assert code == 0
    assert "__global__" in out
    assert "scaled" in out
    found = report(tilepipe("compile", "own.py:program", "--emit", "cuda", "--json"))
    assert (found["arch"], found["emit"], found["output"]) == ("sm_90a", "cuda", None)
    assert found["bytes"] == len(found["text"].encode())
    assert found["config"] == {"rows": 5, "factor": 2.0}


@pytest.mark.slow
def test_compile_writes_a_cubin(tilepipe: Call) -> None:
    found = report(tilepipe("compile", "own.py:program", "-o", "own.cubin", "--json"))
    assert found["registers"] > 0
    assert found["text"] is None
    assert Path("own.cubin").stat().st_size == found["bytes"]


def test_compile_takes_one_program(tilepipe: Call) -> None:
    code, _, err = tilepipe("compile", "own.py:several", "--emit", "cuda")
    assert code == 2
    assert "own.py:several makes 2 programs; name a function that makes the one" in err
    code, _, err = tilepipe("compile", "own.py:program", "--emit", "ptx", "--json", "-o", "-")
    assert code == 2
    assert "--json is what goes to stdout" in err
