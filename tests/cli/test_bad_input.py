"""What a command is given that is no file, writes where nobody reads, and prints that looks like
markup.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tilepipe as tp
from tests.cli.copying import Call
from tests.conftest import missing_gpu
from tilepipe import files
from tilepipe.kernels.common import tuned
from tilepipe.kernels.gemm.heuristics import TUNABLE, Problem

COMMAND = [sys.executable, "-m", "tilepipe"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        ["kernels"],
        pytest.param(["kernels", "--json"], marks=pytest.mark.thorough),
        pytest.param(["compile", "gemm", "--emit", "cuda"], marks=pytest.mark.thorough),
        ["check", "--help"],
    ],
)
def test_a_reader_that_has_gone_is_no_fault(args: list[str]) -> None:
    """Exit 141, as of a program that SIGPIPE ends, and not 1: that says that a kernel is wrong."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, *args], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.slow
def test_a_reader_of_errors_that_has_gone() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*COMMAND, "nosuch"], stdout=subprocess.PIPE, stderr=write, timeout=60, check=False
    )
    os.close(write)
    assert (done.returncode, done.stdout) == (141, b"")


@pytest.mark.slow
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_closed_streams(closed: str) -> None:
    command = f'"{sys.executable}" -m tilepipe kernels {closed}'
    assert subprocess.run(["sh", "-c", command], timeout=60, check=False).returncode == 0


@pytest.fixture(params=["fifo", "device"])
def endless(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file that is never read to its end."""
    path = tmp_path / "endless.py"
    if request.param == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.slow
def test_what_never_ends_is_not_read(
    endless: Path, tilepipe: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for args in (["check", f"{endless}:k"], ["replay", endless]):
        code, out, err = tilepipe(*args)
        assert (code, out) == (2, "")
        assert f"cannot read {endless}: it is a pipe or a device, no ordinary file" in err
    monkeypatch.setenv("TILEPIPE_TUNED", str(endless))
    found, (problem,) = tuned.entries([])
    assert found == {}
    assert "it is a pipe or a device" in problem
    with pytest.warns(tuned.TunedFileWarning, match="it is a pipe or a device"):
        assert tuned.lookup(TUNABLE, Problem(64, 64, 64), tp.H200) is None
    with pytest.raises(IsADirectoryError):
        files.read(endless.parent)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("raise SystemExit(0)", ":1: importing it raised SystemExit: 0"),
        (
            "class Stop(KeyboardInterrupt): pass\nraise Stop('now')",
            ":2: importing it raised Stop: now",
        ),
        ("class Stop(BaseException): pass\nraise Stop('now')", ":2: importing it raised Stop: now"),
        ("def k():\n    raise GeneratorExit", ":2: k() raised GeneratorExit: "),
    ],
)
def test_a_file_that_ends_the_process_is_bad_usage(
    text: str, words: str, tilepipe: Call, tmp_path: Path
) -> None:
    file = tmp_path / "ends.py"
    file.write_text(text)
    code, out, err = tilepipe("check", f"{file}:k")
    assert (code, out) == (2, "")
    assert f"error: BindError: {file}{words}" in err


def test_save_takes_no_dash(tilepipe: Call, file: Path) -> None:
    code, _, err = tilepipe("check", f"{file}:small", "--save", "-")
    assert code == 2
    assert (
        "--save takes the name of a file, and - is none; --json has the counterexample on stdout"
        in err
    )
    assert not Path("-").exists()


FAULTY = """
import numpy as np
import tilepipe as tp

@tp.kernel()
def k(ctx, out):
    s = ctx.smem((8, 8), "int32", swizzle=0)[0]

    @ctx.role("[red]a:b:", warps=1)
    def a():
        b, names = 2, [0, 1, 2]
        ctx.store(out[0, ctx.lane % 8], ctx.load(s[0, names[0:b:2][0]]))  # :b: and [/] are text

p = k.bind(np.zeros((8, 8), np.int32))
"""


@pytest.mark.slow
def test_nothing_printed_is_markup(
    tilepipe: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a[b]:b:.py").write_text(FAULTY)
    code, out, err = tilepipe("check", "a[b]:b:.py:p", "--small", "--save", "[x]:b:.json")
    assert code == 1, err
    for words in (
        "a[b]:b:.py:p",
        "[red]a:b:",
        "names[0:b:2]",
        "# :b: and [/] are text",
        "Saved in [x]:b:.json",
    ):
        assert words in out
    code, out, err = tilepipe("compile", "gemm", "--emit", "cuda", "-o", "out[b]:b:.cu")
    assert (code, out) == (0, "")
    assert err.startswith("out[b]:b:.cu: ")


@pytest.mark.slow
@pytest.mark.skipif(not missing_gpu(), reason="this machine has a GPU, whose entries are meant")
def test_forgetting_without_a_gpu_names_the_chip(
    tilepipe: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tuned.json"
    monkeypatch.setenv("TILEPIPE_TUNED", str(path))
    text = '{"B200: m=8 n=8 k=8": {"config": {}}, "H200: m=8 n=8 k=8": {"config": {}}}'
    path.write_text(text)
    code, _, err = tilepipe("tune", "--forget")
    assert (code, path.read_text()) == (2, text)
    for words in (
        "about the chip of this machine",
        "Name one with --chip NAME",
        "has entries of: B200, H200",
    ):
        assert words in err
    code, _, err = tilepipe("tune", "--forget", "--chip", "A100")
    assert (code, path.read_text()) == (2, text)
    assert "nothing is remembered of a chip 'A100'" in err
    code, out, _ = tilepipe("tune", "--forget", "--chip", "H200")
    assert code == 0
    assert out.startswith("forgot 1 entry of H200")
    assert "H200" not in path.read_text()
    assert "B200" in path.read_text()
    assert "--chip says whose" in tilepipe("tune", "--chip", "H200")[2]
