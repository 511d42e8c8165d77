"""The command line as scripts see it: stdout, stderr, exit codes, JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import tilepipe as tp
from tests.support.command import tilepipe
from tilepipe import cli
from tilepipe.kernels.common import tuned
from tilepipe.kernels.gemm import heuristics as gemm_choice
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import TUNABLE, Problem


@pytest.fixture(autouse=True)
def nothing_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEPIPE_TUNED", str(tmp_path / "tuned.json"))


def run_json(*args: str) -> dict[str, Any]:
    done = tilepipe("run", *args, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.slow
def test_kernels_lists_every_setting() -> None:
    report = json.loads(tilepipe("kernels", "--json").stdout)
    gemm = next(k for k in report["kernels"] if k["name"] == "gemm")
    wanted = {
        "m",
        "n",
        "k",
        "bm",
        "bn",
        "bk",
        "stages",
        "k_group_size",
        "consumers",
        "cluster",
        "raster",
        "dtype",
        "out_dtype",
    }
    assert wanted <= set(gemm["settings"])
    assert gemm["archs"] == ["sm_90a", "sm_100a"]
    assert gemm["summary"]


@pytest.mark.slow
def test_kernels_fits_a_terminal_and_names_every_setting() -> None:
    done = tilepipe("kernels")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
    said = " ".join(done.stdout.split())
    assert (
        "`tilepipe tune` searches configurations of all but gemm_block_scaled, gemm_stream_k and"
        " append_kv." in said
    )
    settings = json.loads(tilepipe("kernels", "--json").stdout)["kernels"][0]["settings"]
    assert [name for name, value in settings.items() if f"{name}={value}" not in done.stdout] == []


@pytest.mark.slow
def test_run_reports_a_ragged_gemm() -> None:
    report = run_json("gemm", "-s", "m=1000", "-s", "n=328", "-s", "k=776")
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
        "advice",
    }
    assert report["ok"] is True
    assert report["advice"] == []
    assert report["tiles"] == 8 * 3
    assert 0 < report["rel_error"] < 4e-3
    assert report["config"]["k"] == 776
    assert report["device"] == "sim"
    assert report["wall_s"] > 0
    assert report["simulated_us"] > 0


@pytest.mark.slow
def test_the_seed_changes_data_and_order_but_not_the_verdict() -> None:
    small = ["gemm", "-s", "m=200", "-s", "n=136", "-s", "k=264"]
    first, second, again = (run_json(*small, "--seed", seed) for seed in ("1", "2", "1"))
    assert first["ok"]
    assert second["ok"]
    assert first["rel_error"] != second["rel_error"]
    assert first["rel_error"] == again["rel_error"]


@pytest.mark.slow
def test_run_says_what_it_did() -> None:
    done = tilepipe("run", "gemm", "-s", "m=64", "-s", "n=64", "-s", "k=64")
    assert done.returncode == 0
    assert "bm=128" in done.stdout
    assert "tiles: the defaults" in done.stdout
    assert "right" in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "bk"),
    [
        (["dtype=float16", "out_dtype=float32"], 64),
        (["dtype=float8_e4m3"], 128),
        (["dtype=float32", "out_dtype=float32"], 32),
        (["activation=gelu"], 64),
        (["bk=128", "stages=3"], 128),
    ],
    ids=str,
)
def test_run_verifies_dtypes_and_activations(settings: list[str], bk: int) -> None:
    report = run_json(
        "gemm",
        "-s",
        "m=72",
        "-s",
        "n=136",
        "-s",
        "k=272",
        *(x for s in settings for x in ("-s", s)),
    )
    assert report["ok"]
    assert report["config"]["bk"] == bk


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "tiles"),
    [
        (["s_q=130", "s_kv=70", "causal=true"], 4),
        (["s_q=70", "d=64", "dtype=float16", "lse=no", "heads=4", "kv_heads=2"], 4),
        (["s_q=300", "s_kv=130", "arch=sm100", "causal=yes"], 4),
    ],
    ids=str,
)
def test_run_verifies_attention(settings: list[str], tiles: int) -> None:
    report = run_json("attention", *(x for s in settings for x in ("-s", s)))
    assert report["ok"]
    assert report["tiles"] == tiles
    assert report["config"]["causal"] is any(s.startswith("causal") for s in settings)


@pytest.mark.slow
def test_settings_of_the_other_architecture_are_not_printed() -> None:
    done = tilepipe("run", "attention", "-s", "arch=sm100", "-s", "s_q=64", "-s", "s_kv=64")
    assert done.returncode == 0, done.stderr
    assert "rescale_above=8" in done.stdout
    assert "consumers=" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "arch",
    # tests/kernels/attention/test_sm100_code.py compiles that kernel
    ["sm_90a", pytest.param("sm_100a", marks=pytest.mark.thorough)],
)
def test_attention_compiles_for_both_architectures(arch: str, tmp_path: Path) -> None:
    done = tilepipe("compile", "attention", "--arch", arch, "-o", str(tmp_path / "attention.cubin"))
    assert done.returncode == 0, done.stderr
    assert "no spills" in done.stderr


@pytest.mark.slow
def test_demo_shows_what_each_role_did(tmp_path: Path) -> None:
    page = tmp_path / "demo.html"
    done = tilepipe("demo", "--timeline", str(page))
    assert done.returncode == 0
    assert f"Where its time goes: {page} shows its first CTAs" in done.stdout
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    for word in ("load", "mma", "TMA copies", "MMAs", "inputs.full", "inputs.empty", "right"):
        assert word in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "gem"], ["no kernel 'gem'", "gemm"]),
        (["run", "gemm", "-s", "m"], ["name=value", "'m'"]),
        (["run", "gemm", "-s", "m="], ["name=value"]),
        (
            ["run", "gemm", "-s", "m=64", "-s", "m=128"],
            ["setting m is given twice: m=64 and m=128"],
        ),
        (["run", "gemm", "-s", "depth=3"], ["no setting 'depth'", "stages"]),
        (["run", "gemm", "-s", "m=ten"], ["setting m", "'ten'", "not an integer"]),
        (["run", "gemm", "-s", "m=0"], ["m must be at least 1", "got 0"]),
        (["run", "gemm", "-s", "m=-5"], ["got -5"]),
        (["run", "gemm", "-s", "m=99999999999"], ["more than a run takes"]),
        (["run", "gemm", "-s", "k=777"], ["multiples of 16 bytes", "1554 bytes"]),
        (["run", "gemm", "-s", "bm=100"], ["bm must be 64, 128 or 192 rows", "bm=100"]),
        (["run", "gemm", "-s", "stages=50"], ["shared memory", "232,448 available", "inputs_a"]),
        (["run", "gemm", "-s", "stages=1"], ["stages must be at least 2"]),
        (["run", "gemm", "-s", "consumers=9"], ["consumers must be 1, 2 or 3"]),
        (["run", "gemm", "-s", "cluster=3"], ["cluster", "2, 4 or 8"]),
        (["run", "gemm", "-s", "raster=spiral"], ["raster", "spiral", "grouped"]),
        (["run", "gemm", "-s", "dtype=float64"], ["bfloat16, float16 or float32", "float64"]),
        (["run", "gemm", "-s", "dtype=bf17"], ["unknown dtype 'bf17'"]),
        (["run", "gemm", "-s", "a_order=diagonal"], ["a_order must be row or col"]),
        (["run", "gemm", "--device", "tpu"], ["tpu"]),
        (["run", "gemm", "--seed", "-1"], ["--seed", "greater than or equal to 0"]),
        (["compile", "gemm"], ["-o FILE"]),
        (
            ["compile", "gemm_grouped", "--arch", "sm_100a", "--emit", "cuda"],
            ["sm_90a", "not sm_100a"],
        ),
        (
            ["compile", "gemm_blockwise", "-s", "arch=sm90", "--arch", "sm_100a"],
            ["arch=sm90", "is for sm_90a, not sm_100a"],
        ),
        (
            ["compile", "gemm_blockwise", "-s", "arch=x", "--emit", "cuda"],
            ["arch must be sm90 or sm100"],
        ),
        (
            ["run", "attention", "-s", "causal=perhaps"],
            ["setting causal: 'perhaps' is neither true nor false"],
        ),
        (
            ["run", "attention", "-s", "heads=3", "-s", "kv_heads=2"],
            ["heads=3 must be a multiple of kv_heads=2"],
        ),
        (["run", "attention", "-s", "d=100"], ["d must be a multiple of 8 up to 256, got 100"]),
        (["run", "attention", "-s", "s_q=0"], ["s_q must be at least 1, got 0"]),
        (
            ["run", "attention", "-s", "dtype=float32"],
            ["dtype must be bfloat16 or float16 or float8_e4m3, got float32"],
        ),
        (["run", "attention", "-s", "batch=9999999"], ["more than a run takes"]),
        (
            ["run", "attention", "-s", "rescale_above=3"],
            ["arch=sm90 has no setting rescale_above; it has bn"],
        ),
        (["compile", "gemm", "--arch", "sm_75"], ["sm_75"]),
        (
            ["compile", "gemm", "--emit", "ptx", "-o", "/no/such/folder/x.ptx"],
            ["cannot write", "/no/such/folder/x.ptx"],
        ),
        (["dance"], ["dance"]),
        (["bench", "gemm", "--regime", "foo"], ["Invalid value for '--regime': 'foo' is not one"]),
    ],
)
def test_bad_usage_is_one_message_and_exit_2(args: list[str], words: list[str]) -> None:
    done = tilepipe(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


@pytest.mark.slow
def test_compile_prints_the_source() -> None:
    done = tilepipe("compile", "gemm", "--emit", "cuda")
    assert done.returncode == 0
    assert 'extern "C" __global__' in done.stdout
    assert "setmaxnreg_" in done.stdout


@pytest.mark.parametrize(
    "args",
    [
        ["-s", "arch=sm100"],
        ["--arch", "sm_100a"],
        ["--arch", "sm_100a", "-s", "arch=sm100"],
    ],
)
@pytest.mark.slow
def test_the_architecture_says_what_it_is_compiled_for(args: list[str]) -> None:
    done = tilepipe("compile", "gemm_blockwise", "--emit", "cuda", *args)
    assert done.returncode == 0, done.stderr
    assert "tcgen05.mma" in done.stdout


@pytest.mark.slow
def test_what_is_compiled_is_what_is_chosen_for_the_shape_or_tuned(tmp_path: Path) -> None:
    def source(*args: str) -> str:
        done = tilepipe(
            "compile",
            "gemm",
            "--emit",
            "cuda",
            "-s",
            "m=8192",
            "-s",
            "n=8192",
            "-s",
            "k=512",
            *args,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    problem = Problem(8192, 8192, 512)
    chosen = gemm_choice.best(problem)
    assert source() == source(
        *(x for name, value in asdict(chosen).items() for x in ("-s", f"{name}={value}"))
    )
    tuned.remember(TUNABLE, problem, tp.H200, GemmConfig(bn=64, stages=3), {})
    assert source() == source("-s", "bn=64", "-s", "stages=3")


@pytest.mark.slow
def test_compile_writes_a_cubin(tmp_path: Path) -> None:
    target = tmp_path / "gemm.cubin"
    done = tilepipe("compile", "gemm", "-s", "cluster=2", "-o", str(target))
    assert done.returncode == 0, done.stderr
    assert target.read_bytes()[:4] == b"\x7fELF"
    assert "no spills" in done.stderr


@pytest.mark.slow
def test_compile_writes_to_stdout(tmp_path: Path) -> None:
    compile_to = ["compile", "gemm", "-o", "-", "--emit"]
    command = [sys.executable, "-m", "tilepipe", *compile_to, "cubin"]
    done = subprocess.run(command, capture_output=True, cwd=tmp_path, timeout=120, check=True)
    assert done.stdout.startswith(b"\x7fELF")
    assert not list(tmp_path.iterdir())
    assert tilepipe(*compile_to, "cuda").stdout.startswith("// gemm")


@pytest.mark.parametrize(
    "args",
    [
        ["kernels"],
        pytest.param(["kernels", "--json"], marks=pytest.mark.thorough),
        pytest.param(["compile", "gemm", "--emit", "cuda"], marks=pytest.mark.thorough),
    ],
)
@pytest.mark.slow
def test_a_full_disk_is_one_message(args: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tilepipe", *args],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 2
    assert "cannot write the output: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_cannot_be_read_is_not_the_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> int:
        raise FileNotFoundError(2, "No such file or directory", "weights.npy")

    monkeypatch.setattr(cli, "_parsed", missing)
    with pytest.raises(SystemExit) as done:
        cli.main()
    assert done.value.code == 2
    assert capsys.readouterr().err == (
        "error: [Errno 2] No such file or directory: 'weights.npy'\n"
    )


@pytest.mark.slow
def test_a_terminal_without_the_letters() -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    command = [
        sys.executable,
        "-m",
        "tilepipe",
        "run",
        "gemm",
        "-s",
        "m=64",
        "-s",
        "n=64",
        "-s",
        "k=64",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert done.returncode == 0
    assert "right" in done.stdout
