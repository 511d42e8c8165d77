"""`tilepipe ptx` and `tilepipe run --from ptx`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command import tilepipe

TEXT = """
.version 9.0
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry copy(.param .u64 source, .param .align 8 .b8 sizes[24]) .reqntid 32
{
    .reg .b32 %r<3>;
    .shared .align 4 .b8 fixed[64];
    mov.u32 %r1, %tid.x;
    add.u32 %r2, %r1, 1;
    ADDED
    ret;
}
"""


def written(folder: Path, added: str = "") -> str:
    path = folder / "copy.ptx"
    path.write_text(TEXT.replace("ADDED", added))
    return str(path)


def test_a_file_that_is_modelled(tmp_path: Path) -> None:
    done = tilepipe("ptx", written(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "entry copy (.reqntid 32)" in done.stdout
    assert "shared memory: 64 bytes and what the launch gives" in done.stdout
    assert "sizes" in done.stdout
    assert "3 instructions of 3 kinds" in done.stdout
    assert "all are modelled" in done.stdout


@pytest.mark.slow
def test_parameters_have_their_offsets_and_names_of_cpp_are_readable(tmp_path: Path) -> None:
    path = written(tmp_path)
    text = Path(path).read_text().replace("copy(", "_Z4copyPf6Params(.param .u32 n, ")
    Path(path).write_text(text)
    shown = tilepipe("ptx", path).stdout
    assert "in C++: copy" in shown
    found = json.loads(tilepipe("ptx", path, "--json").stdout)["entries"][0]
    assert [(p["name"], p["offset"]) for p in found["parameters"]] == [
        ("n", 0), ("source", 8), ("sizes", 16),
    ]  # fmt: skip
    assert found["readable"] == "copy"


@pytest.mark.slow
def test_a_script_that_binds_an_entry_point_and_runs_it(tmp_path: Path) -> None:
    path = written(tmp_path)
    done = tilepipe("ptx", path, "--script", "cop")
    assert done.returncode == 0, done.stderr
    assert "ptx.Struct(24, {}),  # sizes" in done.stdout
    assert "grid=(1,), block=(32,), smem=0" in done.stdout
    exec(done.stdout, {})
    wrong = tilepipe("ptx", path, "--script", "nosuch")
    assert wrong.returncode == 2
    assert "no entry point 'nosuch'. It has 1 entry point: copy" in wrong.stderr


@pytest.mark.slow
def test_what_is_not_modelled_has_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, "tex.1d.v4.u32.s32 {%r1, %r1, %r1, %r1}, [%r2, {%r2}];")
    done = tilepipe("ptx", path, "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    (entry,) = report["entries"]
    assert not report["modelled"]
    assert report["target"] == "sm_90a"
    assert [(p["name"], p["nbytes"], p["align"]) for p in entry["parameters"]] == [
        ("source", 8, 8), ("sizes", 24, 8),
    ]  # fmt: skip
    (missing,) = entry["missing"]
    assert missing["line"] == 12
    assert "opcode 'tex'" in missing["reason"]
    shown = tilepipe("ptx", path).stdout
    assert "1 are not modelled:" in shown
    assert "line 12: tex.1d.v4.u32.s32: the opcode 'tex' is not modelled" in shown


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        ("garbage \x00\n", "expected '.version'"),
        (".version 9.0\n.target sm_90a\n", "no entry point"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "x.ptx"
    if content is not None:
        path.write_text(content)
    done = tilepipe("ptx", str(path))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: PtxError: ")
    assert said in done.stderr


@pytest.mark.slow
def test_a_kernel_runs_from_its_ptx() -> None:
    settings = "-s", "m=72", "-s", "n=136", "-s", "k=72"
    done = tilepipe("run", "gemm", *settings, "--from", "ptx", "--seed", "2", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ok"]
    assert report["from"] == "ptx"


@pytest.mark.slow
def test_a_run_of_ptx_has_a_time_limit() -> None:
    done = tilepipe("run", "gemm", "--from", "ptx", "--timeout", "0.01")
    assert done.returncode == 2
    assert "has not ended after 0.01 s" in done.stderr
    done = tilepipe("run", "gemm", "--timeout", "5")
    assert done.returncode == 2
    assert "it goes with --from ptx" in done.stderr


def test_ptx_is_not_run_on_a_gpu() -> None:
    done = tilepipe("run", "gemm", "--from", "ptx", "--device", "cuda")
    assert done.returncode == 2
    assert "--from ptx simulates" in done.stderr
