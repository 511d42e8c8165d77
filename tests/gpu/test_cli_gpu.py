"""On the GPU: run --device cuda, bench and tune as scripts see them."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu
measured = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)
SMALL = ["-s", "m=512", "-s", "n=384", "-s", "k=256"]


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tuned.json"
    monkeypatch.setenv("TILEPIPE_TUNED", str(path))
    return path


def tilepipe(*args: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tilepipe", *args],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def as_json(*args: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(tilepipe(*args, "--json"))
    return report


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["-s", "m=1000", "-s", "n=328", "-s", "k=776"],
        ["-s", "m=64", "-s", "n=64", "-s", "k=64"],
        ["-s", "dtype=float16", "-s", "out_dtype=float32", "-s", "a_order=col"],
        ["-s", "dtype=float8_e4m3", "-s", "m=512"],
        ["-s", "dtype=float32", "-s", "out_dtype=float32", "-s", "m=256"],
        ["-s", "activation=gelu", "-s", "m=256"],
        ["-s", "bn=256", "-s", "cluster=2", "-s", "m=512"],
        ["-s", "schedule=pingpong", "-s", "bm=64", "-s", "m=500"],
    ],
    ids=" ".join,
)
def test_run_on_the_gpu_is_right(settings: list[str]) -> None:
    report = as_json("run", "gemm", "--device", "cuda", "--seed", "3", *settings)
    assert set(report) == {
        "kernel",
        "config",
        "device",
        "ok",
        "rel_error",
        "wall_s",
        "simulated_us",
        "tiles",
        "seed",
    }
    assert report["ok"] is True
    assert report["device"] == "cuda"
    assert report["simulated_us"] is None
    assert 0 < report["wall_s"] < 0.1
    assert 0 < report["rel_error"] < 6e-3


def test_the_simulator_and_the_gpu_agree() -> None:
    settings = [
        "run",
        "gemm",
        "-s",
        "m=200",
        "-s",
        "n=136",
        "-s",
        "k=264",
        "-s",
        "stages=4",
        "--seed",
        "1",
    ]
    here, there = as_json(*settings), as_json(*settings, "--device", "cuda")
    assert here["config"] == there["config"]
    assert here["tiles"] == there["tiles"]
    assert here["rel_error"] == pytest.approx(there["rel_error"], rel=0.02)


def test_run_says_where_its_tiles_come_from() -> None:
    assert "tiles: chosen for the shape" in tilepipe("run", "gemm", "--device", "cuda", *SMALL)


@measured
@pytest.mark.parametrize(
    ("kernel", "shape", "lines"),
    [("gemm_quantised", "16,512,1024", 2), ("gemm_stream_k", "256,384,2048", 1)],
)
def test_bench_a_kernel_beside_our_gemm(kernel: str, shape: str, lines: int) -> None:
    given = "--shapes", shape, "--repeats", "4", "--regime", "burst", "--seed", "5"
    report = as_json("bench", kernel, *given)
    assert len(report["results"]) == lines
    for line in report["results"]:
        assert len(line["us"]) == len(line["error"]) == 3
        assert all(x["right"] for x in line["error"].values())
        assert line["missing"] == {}
        assert all(0 < x < 1000 for x in line["us"].values())


@measured
def test_bench_one_shape() -> None:
    report = as_json("bench", "gemm", *SMALL, "--repeats", "4", "--seed", "5")
    assert [line["regime"] for line in report["results"]] == ["burst", "steady"]
    for line in report["results"]:
        assert line["problem"]["n"] == 384
        assert line["ours_error"]["right"]
        assert line["peer_error"]["right"]
        assert 0 < line["ours_us"] < 1000
        assert line["ratio"] == pytest.approx(line["peer_us"] / line["ours_us"])
    assert set(report["cold_start_s"]) == {"import", "trace", "print", "compile"}
    assert report["host_us"]["program.launch()"] > 0
    assert "H" in report["environment"][0]
    assert "torch" in report["environment"][0]


@measured
@pytest.mark.parametrize(
    "settings",
    [
        ["-s", "dtype=float16", "-s", "out_dtype=float32"],
        ["-s", "a_order=col", "-s", "b_order=col"],
        ["-s", "dtype=float32", "-s", "out_dtype=float32"],
        ["-s", "dtype=float8_e4m3"],
        ["-s", "bn=256", "-s", "cluster=2"],
        ["--config", "best-of-3"],
    ],
    ids=" ".join,
)
def test_bench_is_right_for_every_kind(settings: list[str]) -> None:
    report = as_json(
        "bench", "gemm", *SMALL, *settings, "--repeats", "2", "--regime", "burst", "--no-host"
    )
    (line,) = report["results"]
    assert line["ours_error"]["right"]
    assert line["peer_error"]["right"]


@measured
def test_bench_tables() -> None:
    text = tilepipe(
        "bench",
        "gemm",
        "--shapes",
        "512,384,256",
        "--repeats",
        "2",
        "--regime",
        "burst",
        "--no-host",
    )
    for word in (
        "NVIDIA",
        "driver",
        "burst: 30 ms idle",
        "standard normal",
        "512×384×256",
        "cuBLAS µs",
        "geometric mean",
        "worst",
    ):
        assert word in text
    markdown = tilepipe(
        "bench",
        "gemm",
        "--shapes",
        "512,384,256",
        "--repeats",
        "2",
        "--regime",
        "burst",
        "--no-host",
        "--markdown",
    )
    assert "| 512×384×256 |" in markdown


@measured
def test_tune_remembers_and_run_and_bench_use_it(file: Path) -> None:
    report = as_json("tune", "gemm", *SMALL, "--limit", "6")
    assert report["file"] == str(file)
    best = report["trials"][0]["config"]
    ((name, entry),) = json.loads(file.read_text()).items()
    assert name.endswith(": m=512 n=384 k=256")
    assert entry["config"] == best
    assert "512" in tilepipe("tune", "--list")
    ran = as_json("run", "gemm", "--device", "cuda", *SMALL)
    assert {k: ran["config"][k] for k in best} == best
    assert "tiles: tuned for the shape" in tilepipe("run", "gemm", "--device", "cuda", *SMALL)
    (line,) = as_json(
        "bench",
        "gemm",
        *SMALL,
        "--config",
        "tuned",
        "--repeats",
        "2",
        "--regime",
        "burst",
        "--no-host",
    )["results"]
    assert (line["config"], line["origin"]) == (best, "tuned")
    assert "forgot 1 entry" in tilepipe("tune", "--forget")
    assert json.loads(file.read_text()) == {}


OWN = '''import numpy as np
import torch

import tilepipe as tp
from tilepipe.kernels.gemm import sm90
from tilepipe.kernels.gemm.config import GemmConfig


@tp.kernel(grid=lambda a: a.shape[0])
def scaled(ctx, a, out, factor):
    """out = factor · a, for a (rows, 32)"""

    @ctx.role("all", warps=1)
    def work():
        i = ctx.block_id
        ctx.store(out[i, ctx.lane], factor * ctx.load(a[i, ctx.lane]))


def program(rows: int = 4096, factor: float = 2.0):
    a = np.random.default_rng(0).standard_normal((rows, 32)).astype(np.float32)
    return scaled.bind(a, np.zeros_like(a), factor)


def right(a, factor):
    return factor * a


def wrong(a):
    return 3 * a


def waits(a):
    return float(a.sum()) * 0 + 2 * a


def product(m: int = 512, n: int = 256, k: int = 384):
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(s, generator=draw).bfloat16() for s in ((m, k), (n, k)))
    return sm90.bind(a, b, torch.zeros(m, n, dtype=torch.bfloat16), GemmConfig())


def by_torch(a, b):
    return a @ b.t()


def in_place(a, b, c):
    torch.mm(a, b.t(), out=c)
'''


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    return str(tmp_path / "own.py")


@measured
def test_run_of_a_file_on_the_gpu(own: str) -> None:
    found = as_json("run", f"{own}:program", "--device", "cuda", "--against", f"{own}:right")
    assert found["ok"] is True
    assert found["device"] == "cuda"
    (ran,) = found["runs"]
    assert ran["outputs"]["out"]["rel_error"] < 1e-6
    tilepipe("run", f"{own}:program", "--device", "cuda", "--against", f"{own}:wrong", code=1)


@measured
def test_bench_of_a_file_beside_functions_and_a_program(own: str) -> None:
    peers = [f"{own}:{name}" for name in ("by_torch", "in_place", "product")]
    against = [word for peer in peers for word in ("--against", peer)]
    found = as_json("bench", f"{own}:product", "--repeats", "4", *against)
    assert found["ok"] is True
    assert [x["regime"] for x in found["results"]] == ["burst", "steady"]
    for line in found["results"]:
        assert set(line["us"]) == {"tilepipe", *peers}
        assert all(1 < us < 1000 for us in line["us"].values())
        # the same program on both sides
        assert line["ratio"][peers[2]] == pytest.approx(1, abs=0.15)
        assert all(x["c"]["ok"] for x in line["outputs"].values())


@measured
def test_bench_of_a_file_times_nothing_that_differs(own: str) -> None:
    args = ["bench", f"{own}:program", "--repeats", "2", "--against", f"{own}:wrong"]
    assert "DIFFERS" in tilepipe(*args, code=1)
    differing = json.loads(tilepipe(*args, "--json", code=1))
    assert [line["us"] for line in differing["results"]] == [{}, {}]
    args[-1] = f"{own}:waits"
    done = subprocess.run(
        [sys.executable, "-m", "tilepipe", *args],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2
    assert "cannot be captured in a CUDA graph" in done.stderr
    assert "Traceback" not in done.stderr
