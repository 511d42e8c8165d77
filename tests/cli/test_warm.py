"""`tilepipe warm`, and launches that must not compile."""

from __future__ import annotations

import concurrent.futures
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cli.copying import Call, report
from tilepipe.cli import warm
from tilepipe.cuda.nvrtc import cache, compiler
from tilepipe.cuda.runtime import loading
from tilepipe.ir.chip import H200


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEPIPE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TILEPIPE_JIT", raising=False)
    return tmp_path / "cache"


@tp.kernel()
def one(ctx: tp.Context, out: tp.GlobalTensor) -> None:
    """Stores 1."""

    @ctx.role("store", warps=1)
    def store() -> None:
        ctx.store(out[ctx.lane], 1.0)


def a_program() -> tp.Program:
    return one.bind(np.zeros(32, np.float32))


@pytest.mark.slow
def test_a_file_with_several_programs(tilepipe: Call, file: Path, folder: Path) -> None:
    found = report(tilepipe("warm", "copying.py:both", "--workers", "1", "--json"), 0)
    assert (found["compiled"], found["programs"], found["failed"]) == (1, 2, 0)  # one kernel
    assert len(list(folder.iterdir())) == 1
    again = report(tilepipe("warm", "copying.py:both", "--workers", "1", "--json"), 0)
    assert (again["compiled"], again["programs"]) == (0, 2)
    assert again["cache"] == str(folder)
    _, said, _ = tilepipe("warm", "copying.py:both", "--workers", "1")
    assert re.search(r": the kernel was there already; \S+ s$", said.strip())


@pytest.mark.slow
def test_a_list_in_a_pool_of_processes(tilepipe: Call, file: Path, folder: Path) -> None:
    Path("list.txt").write_text(
        "# what we serve\ncopying.py:small early=true\n\nrms_norm n=1024  # small\ngemm depth=1\n"
    )
    code, said, error = tilepipe("warm", "--list", "list.txt", "--workers", "2")
    assert code == 2
    assert "2 of 2 kernels compiled in " in said
    assert "; 1 of 3 lines failed" in said
    assert "were there" not in said
    assert "gemm depth=1: BindError: kernel 'gemm' has no setting 'depth'" in error
    assert len(list(folder.iterdir())) == 2
    found = report(tilepipe("warm", "--list", "list.txt", "--workers", "1", "--json"), 2)
    assert (found["compiled"], found["programs"], found["failed"]) == (0, 2, 1)
    _, said, _ = tilepipe("warm", "--list", "list.txt", "--workers", "1")
    assert re.search(
        r": all 2 kernels were there already; \S+ s; 1 of 3 lines failed$", said.strip()
    )


class _NoPool:
    def __init__(self, *given: object, **named: object) -> None:
        raise AssertionError("processes were started")


@pytest.mark.slow
def test_processes_are_started_only_for_what_has_to_be_compiled(
    tilepipe: Call, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", _NoPool)
    monkeypatch.setattr(warm, "LOOKING", 1e9)
    line = "copying.py:small early=true\n"
    Path("list.txt").write_text(line + "gemm depth=1\n" + line)
    with pytest.raises(AssertionError, match="processes were started"):
        tilepipe("warm", "--list", "list.txt", "--workers", "2")
    Path("one.txt").write_text(line + "gemm depth=1\n")
    _, said, _ = tilepipe("warm", "--list", "one.txt", "--workers", "2")
    assert "1 of 1 kernels compiled in" in said
    found = report(tilepipe("warm", "--list", "list.txt", "--workers", "2", "--json"), 2)
    assert (found["compiled"], found["kernels"], found["programs"]) == (0, 1, 2)
    _, said, _ = tilepipe("warm", "--list", "list.txt", "--workers", "2")
    assert "the kernel was there already" in said
    Path("list.txt").write_text("gemm depth=1\ngemm depth=2\n")
    _, said, _ = tilepipe("warm", "--list", "list.txt", "--workers", "2")
    assert "no kernel compiled in" in said
    assert said.strip().endswith("; 2 of 2 lines failed")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "name a kernel, or FILE.py:NAME, or a text with --list FILE"),
        (["-s", "m=4"], "-s m=4 is a setting of a kernel: name the kernel"),
        (["--list", "none.txt"], "cannot read none.txt: No such file or directory"),
        (["--list", "bad.txt"], "bad.txt:2: gemm 'm=4: No closing quotation"),
        (["gemm", "--workers", "0"], "--workers"),
    ],
)
def test_what_is_refused(tilepipe: Call, args: list[str], said: str) -> None:
    Path("bad.txt").write_text("# what we serve\ngemm 'm=4\n")
    code, _, error = tilepipe("warm", *args)
    assert code == 2
    assert said in error


def test_there_must_be_a_cache(tilepipe: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEPIPE_CACHE_DIR", "off")
    code, _, error = tilepipe("warm", "gemm")
    assert code == 2
    assert "there is no cache to compile into: TILEPIPE_CACHE_DIR is off" in error


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a cubin does nothing."""
    made: Any = SimpleNamespace(
        chip=lambda _: H200, Function=lambda *given: SimpleNamespace(ordinal=0, given=given)
    )
    monkeypatch.setattr(loading, "driver", made)
    loading._functions.clear()


@pytest.mark.slow
@pytest.mark.usefixtures("no_gpu")
def test_a_launch_that_would_compile_is_an_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = a_program().kernel
    monkeypatch.setenv("TILEPIPE_JIT", "error")
    with pytest.raises(tp.CompileError) as error:
        loading.load(kernel, 0)
    assert str(error.value).startswith(
        "'one' for sm_90a would be compiled now, at its launch, which TILEPIPE_JIT=error refuses:"
        f" it is not in {folder}. Compile it ahead, with this version of tilepipe and NVRTC, by"
        " `tilepipe warm`, or load an export (tp.load_exported)."
    )
    assert "test_warm.py" in str(error.value)
    assert not compiler.is_cached(kernel)
    a_program().compile()  # asked for: no launch
    assert compiler.is_cached(kernel)
    compiled, _ = loading.load(kernel, 0)
    assert compiled.name == "one"


@pytest.mark.usefixtures("no_gpu")
def test_other_values_of_the_variable_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEPIPE_JIT", "never")
    with pytest.raises(tp.BindError, match="TILEPIPE_JIT is 'error', or not set; got 'never'"):
        loading.load(a_program().kernel, 0)


@pytest.mark.usefixtures("no_gpu")
def test_without_a_cache_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEPIPE_JIT", "error")
    monkeypatch.setenv("TILEPIPE_CACHE_DIR", "off")
    with pytest.raises(tp.CompileError, match=r"the cache is off \(TILEPIPE_CACHE_DIR\)\. Compile"):
        loading.load(a_program().kernel, 0)


def test_a_cache_that_cannot_be_written_is_said_at_once(
    tilepipe: Call, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write_text("a file")
    code, _, error = tilepipe("warm", "gemm")
    assert code == 2
    assert f"cannot write to the cache {folder}: File exists" in " ".join(error.split())
    folder.unlink()
    folder.mkdir()
    folder.chmod(0o777)
    code, _, error = tilepipe("warm", "gemm")
    assert code == 2
    assert "not of this user alone" in " ".join(error.split())


@pytest.mark.slow
def test_what_the_cache_did_not_keep_is_an_error(
    tilepipe: Call, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "write", lambda *given: None)  # as on a full disk
    code, _, error = tilepipe("warm", "copying.py:small", "--workers", "1")
    assert code == 2
    assert "the cache did not keep it" in " ".join(error.split())


@pytest.mark.slow
def test_lines_that_cannot_be_read_cost_no_other(tilepipe: Call, file: Path) -> None:
    Path("list.txt").write_text('"gemm m=1\ncopying.py:small early=true\ngemm m\n')
    code, said, error = tilepipe("warm", "--list", "list.txt", "--workers", "1")
    assert code == 2
    assert "1 of 1 kernels compiled" in said
    words = " ".join(error.split())
    assert 'list.txt:1: "gemm m=1: No closing quotation' in words
    assert "list.txt:3: gemm m: BindError: " in words


def test_a_list_of_nothing(tilepipe: Call) -> None:
    Path("list.txt").write_text("# later\n")
    code, _, error = tilepipe("warm", "--list", "list.txt")
    assert code == 2
    assert "list.txt lists no kernel" in " ".join(error.split())
