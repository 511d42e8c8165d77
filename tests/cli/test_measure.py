"""bench, tune and run --device cuda: wrong arguments, a machine without a GPU, and what is
remembered.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tilepipe as tp
from tests.conftest import missing_gpu
from tests.support.command import tilepipe
from tilepipe.kernels.common import tuned
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import TUNABLE, Problem

SHAPE = ["-s", "m=512", "-s", "n=256", "-s", "k=128"]


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tuned.json"
    monkeypatch.setenv("TILEPIPE_TUNED", str(path))
    monkeypatch.setenv("COLUMNS", "200")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["bench", "conv"], ["no kernel 'conv'", "gemm"]),
        (
            ["bench", "gemm", "--shapes", "odd"],
            ["standard, random, fp8, deepgemm or M,N,K", "'odd'"],
        ),
        (["bench", "gemm", "--shapes", "64,64"], ["M,N,K", "'64,64'"]),
        (["bench", "gemm", "--shapes", "64,0,64"], ["at least 1"]),
        (["bench", "gemm", "--config", "worst"], ["chosen, tuned or best-of-N", "'worst'"]),
        (["bench", "gemm", "--config", "best-of-0"], ["best-of-8"]),
        (
            ["bench", "gemm", "--config", "tuned", "-s", "bm=128"],
            ["--config tuned and bm=128 contradict"],
        ),
        (["bench", "gemm_blockwise", "-s", "splits=0"], ["splits must be at least 1"]),
        (
            ["bench", "gemm_block_scaled"],
            ["no benchmark for 'gemm_block_scaled'; there is one for: gemm, gemm_blockwise"],
        ),
        (
            ["bench", "attention", "--config", "best-of-4"],
            ["--config best-of-4 is for GEMMs; 'attention' takes chosen or tuned, or its tile"],
        ),
        (
            ["tune", "gemm_block_scaled", *SHAPE],
            [
                "no search of configurations for 'gemm_block_scaled'; there is one for: gemm,"
                " gemm_blockwise, gemm_grouped",
                "--simulate ranks tiles of any kernel that has some",
            ],
        ),
        (
            ["tune", "attention"],
            ["tune needs the shape: -s s_q=S_Q -s s_kv=S_KV, or -s lengths=..."],
        ),
        (["tune", "gemm_grouped", *SHAPE], ["-s m=M -s n=N -s k=K -s experts=EXPERTS"]),
        (["bench", "gemm", "-s", "stages=1"], ["stages must be at least 2"]),
        (["bench", "gemm", "-s", "activation=relu"], ["activation is not measured"]),
        (["bench", "gemm", "-s", "bias=row"], ["bias is not measured"]),
        (
            ["bench", "gemm", "-s", "source=yes", "-s", "dtype=float8_e4m3"],
            ["source is not measured of float8_e4m3: `scaled_mm`"],
        ),
        (["bench", "gemm", "-s", "m=0"], ["m must be at least 1, got 0"]),
        (["bench", "gemm", "-s", "depth=1"], ["no setting 'depth'"]),
        (["bench", "gemm", "--regime", "calm"], ["calm"]),
        (["bench", "gemm", "--picture", "dots.png"], ["as SVG, --picture dots.svg"]),
        (["bench", "gemm", "--picture", "no/dots.svg"], ["there is no folder no"]),
        (["bench", "attention", "--picture", "dots.svg"], ["of products, and 'attention' is none"]),
        (["bench", "gemm", "--repeats", "0"], ["--repeats"]),
        (["tune", "gemm"], ["tune needs the shape", "-s m=M -s n=N -s k=K"]),
        (["tune", "gemm", "-s", "m=8", "-s", "n=8"], ["tune needs the shape"]),
        (["tune", "gemm", *SHAPE, "-s", "bm=64"], ["tune searches bm"]),
        (["tune", "gemm", *SHAPE, "--limit", "0"], ["--limit"]),
        (
            ["tune", "--forget", "-s", "m=512"],
            ["forgets one shape", "-s m=M -s n=N -s k=K", "all of this chip"],
        ),
        (["tune", "--list", "--forget"], ["one of --list, --forget and --merge"]),
        (
            ["tune", "--merge", "x.json", "-s", "m=64", "--seed", "3"],
            ["--merge takes all entries of the file, and measures nothing: leave out -s, --seed"],
        ),
        (
            ["tune", "--list", "--regime", "burst", "--limit", "3", "-s", "m=64"],
            ["--list lists what is remembered, and measures nothing: leave out -s, --limit"],
        ),
        (
            ["tune", "--forget", "--chip", "H200", "--seed", "0"],
            ["--forget removes entries, and measures nothing: leave out --seed"],
        ),
        (["tune", "--merge", "no-such.json"], ["no-such.json: No such file"]),
        (["tune", "--forget", "-s", "dtype=float16"], ["forgets one shape"]),
        (["tune", "gemm", *SHAPE, "-s", "dtype=bf17"], ["unknown dtype 'bf17'"]),
    ],
)
def test_bad_usage_is_one_message_and_exit_2(args: list[str], words: list[str]) -> None:
    done = tilepipe(*args)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not missing_gpu(), reason="this machine has a GPU")
@pytest.mark.parametrize(
    "args",
    [
        ["run", "gemm", "--device", "cuda"],
        ["bench", "gemm_blockwise"],
        ["bench", "gemm"],
        ["bench", "gemm", "--json"],
        ["tune", "gemm", *SHAPE],
        ["tune", "rms_norm", "-s", "m=64", "-s", "n=1024"],
    ],
)
def test_without_a_gpu_it_is_one_sentence(args: list[str]) -> None:
    done = tilepipe(*args)
    assert done.returncode == 2
    assert done.stdout.count("\n") == ("--json" in args)
    assert done.stderr.count("\n") == 1
    assert "UnavailableError" in done.stderr
    assert "which this machine does not have" in done.stderr or "finds no GPU" in done.stderr


@pytest.mark.slow
def test_list_and_forget(file: Path) -> None:
    assert "nothing is remembered" in tilepipe("tune", "--list").stdout
    assert (
        "nothing is remembered of a chip 'H200'"
        in tilepipe("tune", "--forget", "--chip", "H200").stderr
    )
    assert not file.exists()
    for k in (64, 128):
        tuned.remember(
            TUNABLE,
            Problem(512, 256, k),
            tp.H200,
            GemmConfig(bn=64, cluster=2),
            {"us": {"burst": 3.25}, "date": "2026-11-21"},
        )
    listed = tilepipe("tune", "--list").stdout
    for word in (
        "H200: m=512 n=256 k=64",
        "m=512 n=256 k=128",
        "128×64×64 s4 c2×1",
        "burst: 3.25",
        "2026-11-21",
        str(file),
    ):
        assert word in listed
    entries = json.loads(tilepipe("tune", "--list", "--json").stdout)["entries"]
    assert entries["H200: m=512 n=256 k=64"]["config"]["bn"] == 64
    assert entries["H200: m=512 n=256 k=64"]["us"] == {"burst": 3.25}


@pytest.mark.slow
def test_a_chip_with_other_capitals_is_asked_about(file: Path) -> None:
    tuned.remember(TUNABLE, Problem(512, 256, 64), tp.H200, GemmConfig(), {})
    assert "Did you mean H200?" in tilepipe("tune", "--forget", "--chip", "h200").stderr


@pytest.mark.slow
def test_a_broken_file_is_said_once(file: Path) -> None:
    file.write_text("{\n")
    for asked in (["--list"], ["gemm", "--list"]):
        done = tilepipe("tune", *asked)
        assert (done.stdout + done.stderr).count(f"{file}:2: it is not JSON") == 1
    for asked in (["--merge", str(file)], ["--forget", "--chip", "H200"]):
        done = tilepipe("tune", *asked)
        assert done.returncode == 2
        assert f"{file}:2: it is not JSON" in done.stderr
        assert "ignored" not in done.stderr


@pytest.mark.slow
def test_list_of_one_kernel_says_what_is_wrong_with_its_entries(file: Path) -> None:
    file.write_text('{"H200: softmax m=8": {"config": {}}, "H200: attention d=8": {"config": {}}}')
    listed = tilepipe("tune", "attention", "--list").stdout
    assert "softmax" not in listed
    example = "batch=4 heads=16 kv_heads=16 s_q=4096 s_kv=4096 d=128"
    assert f"an entry is named as 'H200: attention {example}'" in listed


@pytest.mark.slow
def test_merging_nothing_is_an_error(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "theirs.json"
    other.write_text('{"H200: m=8 n=8 k=8": {"config": {"bn": 7}}}')
    done = tilepipe("tune", "--merge", str(other))
    assert done.returncode == 2
    assert "took 0 entries" in done.stdout
    assert f"{other}:1: 'H200: m=8 n=8 k=8' is ignored" in " ".join(done.stdout.split())
    other.write_text("{}")
    assert tilepipe("tune", "--merge", str(other)).returncode == 0


@pytest.mark.slow
def test_forget_one(file: Path) -> None:
    for k in (64, 128):
        tuned.remember(TUNABLE, Problem(512, 256, k), tp.H200, GemmConfig(), {})
    assert "forgot 1 entry of H200" in tilepipe("tune", "--forget", "--chip", "H200", *SHAPE).stdout
    assert list(json.loads(file.read_text())) == ["H200: m=512 n=256 k=64"]


@pytest.mark.slow
def test_a_bad_file_is_one_line_on_stderr(file: Path) -> None:
    file.write_text("{\n")
    done = tilepipe("compile", "gemm", "--emit", "cuda")
    assert done.returncode == 0
    assert done.stderr.startswith(f"warning: {file}:2: it is not JSON")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("what", ["--list", "--forget"])
def test_no_file_of_tuned_configurations(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEPIPE_TUNED", "off")
    done = tilepipe("tune", what)
    assert (done.returncode, done.stdout) == (2, "")
    assert "TILEPIPE_TUNED is off" in done.stderr


@pytest.mark.slow
def test_names_in_the_file_are_no_markup(file: Path) -> None:
    file.write_text('{"[bold]mine: m=8 n=8 k=8": {"config": {}}}')
    assert "[bold]mine" in tilepipe("tune", "--list").stdout


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["0", "", "30"])
def test_a_terminal_of_unknown_width(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert "cluster" in tilepipe("kernels").stdout
