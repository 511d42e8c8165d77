"""The command line as scripts see it: stdout, stderr, exit codes, JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def tilepipe(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tilepipe", *args], capture_output=True, text=True, timeout=120, check=False)


def run_json(*args: str) -> dict[str, Any]:
    done = tilepipe("run", *args, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_kernels_lists_every_setting() -> None:
    report = json.loads(tilepipe("kernels", "--json").stdout)
    gemm = next(k for k in report["kernels"] if k["name"] == "gemm")
    wanted = {"m", "n", "k", "bm", "bn", "bk", "stages", "k_group_size", "consumers", "cluster", "raster", "dtype", "out_dtype"}
    assert wanted <= set(gemm["settings"])
    assert gemm["archs"] == ["sm_90a"]
    assert gemm["summary"]


def test_kernels_table_names_them() -> None:
    done = tilepipe("kernels")
    assert done.returncode == 0
    assert "gemm" in done.stdout


def test_run_reports_a_ragged_gemm() -> None:
    report = run_json("gemm", "-s", "m=1000", "-s", "n=328", "-s", "k=776")
    assert set(report) == {"kernel", "config", "device", "ok", "rel_error", "wall_s", "simulated_us", "tiles", "seed"}
    assert report["ok"] is True
    assert report["tiles"] == 8 * 3
    assert 0 < report["rel_error"] < 4e-3
    assert report["config"]["k"] == 776
    assert report["device"] == "sim"
    assert report["wall_s"] > 0
    assert report["simulated_us"] > 0


def test_the_seed_changes_data_and_order_but_not_the_verdict() -> None:
    small = ["gemm", "-s", "m=200", "-s", "n=136", "-s", "k=264"]
    first, second, again = (run_json(*small, "--seed", seed) for seed in ("1", "2", "1"))
    assert first["ok"]
    assert second["ok"]
    assert first["rel_error"] != second["rel_error"]
    assert first["rel_error"] == again["rel_error"]


def test_run_says_what_it_did() -> None:
    done = tilepipe("run", "gemm", "-s", "m=64", "-s", "n=64", "-s", "k=64")
    assert done.returncode == 0
    assert "bm=128" in done.stdout
    assert "right" in done.stdout
    assert done.stderr == ""


def test_demo_shows_what_each_role_did() -> None:
    done = tilepipe("demo")
    assert done.returncode == 0
    for word in ("load", "mma", "TMA copies", "MMAs", "inputs.full", "inputs.empty", "right"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "gem"], ["no kernel 'gem'", "gemm"]),
        (["run", "gemm", "-s", "m"], ["name=value", "'m'"]),
        (["run", "gemm", "-s", "m="], ["name=value"]),
        (["run", "gemm", "-s", "depth=3"], ["no setting 'depth'", "stages"]),
        (["run", "gemm", "-s", "m=ten"], ["setting m", "'ten'", "not an integer"]),
        (["run", "gemm", "-s", "m=0"], ["m must be at least 1", "got 0"]),
        (["run", "gemm", "-s", "m=-5"], ["got -5"]),
        (["run", "gemm", "-s", "m=99999999999"], ["more than a simulated run takes"]),
        (["run", "gemm", "-s", "k=777"], ["multiples of 16 bytes", "1554 bytes"]),
        (["run", "gemm", "-s", "bm=100"], ["bm must be 64 or 128 rows", "bm=100"]),
        (["run", "gemm", "-s", "stages=50"], ["shared memory", "232,448 available", "inputs_a"]),
        (["run", "gemm", "-s", "stages=1"], ["stages must be at least 2"]),
        (["run", "gemm", "-s", "consumers=9"], ["consumers must be 1 or 2"]),
        (["run", "gemm", "-s", "cluster=3"], ["cluster must be 1 or 2"]),
        (["run", "gemm", "-s", "raster=spiral"], ["raster", "spiral", "grouped"]),
        (["run", "gemm", "-s", "dtype=float64"], ["bfloat16 or float16", "float64"]),
        (["run", "gemm", "-s", "dtype=bf17"], ["unknown dtype 'bf17'"]),
        (["run", "gemm", "-s", "a_order=diagonal"], ["a_order must be row or col"]),
        (["run", "gemm", "--device", "tpu"], ["tpu"]),
        (["run", "gemm", "--device", "cuda"], ["not in this version"]),
        (["run", "gemm", "--seed", "-1"], ["--seed", "greater than or equal to 0"]),
        (["compile", "gemm"], ["-o FILE"]),
        (["compile", "gemm", "--arch", "sm_100a", "--emit", "cuda"], ["sm_90a", "not sm_100a"]),
        (["compile", "gemm", "--arch", "sm_75"], ["sm_75"]),
        (["compile", "gemm", "--emit", "ptx", "-o", "/no/such/folder/x.ptx"], ["cannot write", "/no/such/folder/x.ptx"]),
        (["dance"], ["dance"]),
    ],
)
def test_bad_usage_is_one_message_and_exit_2(args: list[str], words: list[str]) -> None:
    done = tilepipe(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_compile_prints_the_source() -> None:
    done = tilepipe("compile", "gemm", "--emit", "cuda")
    assert done.returncode == 0
    assert 'extern "C" __global__' in done.stdout
    assert "setmaxnreg_inc<232>" in done.stdout


def test_compile_writes_a_cubin(tmp_path: Path) -> None:
    target = tmp_path / "gemm.cubin"
    done = tilepipe("compile", "gemm", "-s", "cluster=2", "-o", str(target))
    assert done.returncode == 0, done.stderr
    assert target.read_bytes()[:4] == b"\x7fELF"
    assert "no spills" in done.stderr


@pytest.mark.parametrize("args", [["kernels"], ["kernels", "--json"], ["compile", "gemm", "--emit", "cuda"]])
def test_a_full_disk_is_one_message(args: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tilepipe", *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    assert done.returncode == 2
    assert "cannot write the output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_terminal_without_the_letters() -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    command = [sys.executable, "-m", "tilepipe", "run", "gemm", "-s", "m=64", "-s", "n=64", "-s", "k=64"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0
    assert "right" in done.stdout
