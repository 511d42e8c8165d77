"""What all commands have: the version, errors as JSON, completion of words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tilepipe as tp
from tests.cli.copying import Call, report
from tests.cli.own import OWN
from tilepipe.cli import common


def test_version(tilepipe: Call) -> None:
    assert tilepipe("--version") == (0, f"tilepipe {tp.__version__}\n", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "kind", "message"),
    [
        (["run", "conv"], "BindError", "there is no kernel 'conv'"),
        (["show", "gem"], "BindError", "Did you mean gemm? A kernel of your own is FILE"),
        (["check", "gone.py:program"], "BindError", "cannot read gone.py"),
        (["compile", "gemm"], "BindError", "a cubin is binary"),
        (["run", "gemm", "-s", "bm=100"], "BindError", "bm=100"),
        (["bench", "conv"], "BindError", "there is no kernel 'conv'"),
        (["replay", "gone.json"], "BindError", "gone.json"),
        (["run", "gemm", "--loud"], "NoSuchOption", "--loud"),
        (["run"], "MissingParameter", "KERNEL"),
        (["run", "gemm", "--seed", "-1"], "BadParameter", "--seed"),
    ],
)
def test_errors_are_json(args: list[str], kind: str, message: str, tilepipe: Call) -> None:
    done = tilepipe(*args, "--json")
    error = report(done, 2)["error"]
    assert set(error) == {"type", "message", "at", "notes"}
    assert error["type"] == kind
    assert message in error["message"]
    assert done[2].strip()  # and a person reads it on stderr
    assert tilepipe(*args)[1] == ""


def test_an_error_of_a_kernel_has_its_line(
    tilepipe: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = "        ctx.smem((8, 8), a.dtype)"
    text = OWN.replace("work():\n", f"work():\n{line}\n", 1)
    Path("own.py").write_text(text, encoding="utf-8")
    error = report(tilepipe("run", "own.py:program", "--json"), 2)["error"]
    assert error["type"] == "TraceError"
    number = text.splitlines().index(line) + 1
    assert error["at"] == f"{tmp_path / 'own.py'}:{number}"


def test_a_fault_of_a_run_is_exit_1(
    tilepipe: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = OWN.replace("ctx.range(ctx.block_id, a.shape[0], 2)", "ctx.range(a.shape[0])")
    Path("own.py").write_text(text, encoding="utf-8")
    assert report(tilepipe("run", "own.py:program", "--json"), 1)["error"]["type"] == "RaceError"


def complete(tilepipe: Call, monkeypatch: pytest.MonkeyPatch, line: str) -> list[str]:
    """What bash offers at the end of a line."""
    words = line.split(" ")
    with monkeypatch.context() as patch:
        patch.setenv("_TILEPIPE_COMPLETE", "complete_bash")
        patch.setenv("COMP_WORDS", line)
        patch.setenv("COMP_CWORD", str(len(words) - 1))
        code, out, err = tilepipe()
    assert (code, err) == (0, "")
    return out.split()


@pytest.mark.slow
def test_completion(tilepipe: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN + "\nraise SystemExit\n", encoding="utf-8")  # never run
    Path("broken.py").write_text("def (", encoding="utf-8")
    Path("kernels").mkdir()

    def offered(line: str) -> list[str]:
        return complete(tilepipe, monkeypatch, line)

    assert "check" in offered("tilepipe ch")
    assert offered("tilepipe run gemm_b") == ["gemm_blockwise", "gemm_block_scaled"]
    assert offered("tilepipe check o") == ["own.py:"]
    assert offered("tilepipe check ker") == ["kernels/"]
    assert offered("tilepipe run own.py:s") == ["own.py:several"]
    assert offered("tilepipe run broken.py:") == []
    assert offered("tilepipe run gone/") == []
    assert offered("tilepipe run gemm -s sta") == ["stages="]
    assert offered("tilepipe run own.py:program -s rows=3 -s ") == ["rows=", "factor="]
    assert offered("tilepipe run own.py:program --against own.py:ri") == ["own.py:right"]
    assert "attention" in offered("tilepipe bench att")


def test_the_script_that_a_shell_needs(tilepipe: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    # found among the processes above this one, where there may be none under a runner of tests
    monkeypatch.setattr("shellingham.detect_shell", lambda: ("bash", "/bin/bash"))
    code, out, _ = tilepipe("--show-completion", "bash")
    assert code == 0
    assert "_TILEPIPE_COMPLETE=complete_bash" in out


def test_json_is_one_object_where_a_word_is_after_two_dashes(tilepipe: Call) -> None:
    code, out, _ = tilepipe("run", "conv", "--", "--json")
    assert code == 2
    assert out == ""
    assert json.loads(tilepipe("run", "conv", "--json")[1])


def test_what_takes_long_is_announced_where_no_progress_bar_is(
    tilepipe: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["run", "gemm", "-s", "m=256", "-s", "n=256", "-s", "k=64"]
    assert "simulating" not in tilepipe(*small)[2]
    for name in ("LONG", "SETTLED", "HEARTBEAT"):
        monkeypatch.setattr(common, name, 0.0)
    _, _, err = tilepipe(*small)
    assert "simulating CTAs: 1 of " in err
    assert " s to go" in err
    assert "simulating" not in tilepipe(*small, "--json")[2]


def test_it_is_announced_once_it_is_known_and_then_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 2))
    monkeypatch.setattr("tilepipe.cli.common.time.perf_counter", lambda: float(next(clock)))
    slow, quick = common._beats("simulating CTAs"), common._beats("simulating CTAs")
    for done in range(1, 31):
        slow(done, 30)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "simulating CTAs: 2 of 30, about 56 s to go"  # after the first: 2 s each
    assert len(said) == 3
    quick(30, 30)
    assert capsys.readouterr().err == ""
