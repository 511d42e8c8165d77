"""`tilepipe export`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tilepipe as tp
from tests.cli.copying import Call, report
from tilepipe.cli.free_extents import free_extents

FILE = """import numpy as np

import tilepipe as tp


@tp.kernel(grid=lambda a, chip: min(-(-a.shape[0] // 4), chip.sms))
def doubled(ctx, a, out, counts, *, wide):
    @ctx.role("all", warps=1)
    def work():
        for i in ctx.range(ctx.block_id, a.shape[0], ctx.num_clusters):
            for part in range(wide):
                at = i, part * 32 + ctx.lane
                ctx.store(out[at], 2.0 * ctx.load(a[at]))
        with ctx.elect_one():
            ctx.atomic_add(counts[0], 1)


def program(rows: int = 40, wide: int = 2, even: int = 4) -> tp.Program:
    if rows % even:
        raise tp.BindError("rows must be even")
    a, out = (np.zeros((rows, 32 * wide), np.float32) for _ in range(2))
    return doubled.bind(a, out, np.zeros(even, np.int32), wide=wide)


def halves(rows: int = 40) -> tp.Program:
    a, out = np.zeros((rows, 64), np.float32), np.zeros((rows // 2 * 2, 64), np.float32)
    return doubled.bind(a, out, np.zeros(rows // 2, np.int32), wide=2)
"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(FILE, encoding="utf-8")


def extents_of(path: str) -> dict[str, tuple[int | str, ...]]:
    return {x.param.name: x.extents for x in tp.load_exported(path).manifest.tensors}


@pytest.mark.slow
def test_a_program_of_a_file(tilepipe: Call) -> None:
    found = report(
        tilepipe("export", "own.py:program", "-s", "rows=8", "--zero", "counts", "-o", "out",
                 "--name", "twice", "--json"),
        0,
    )  # fmt: skip
    assert found["free"] == ["rows"]
    assert found["zero"] == ["counts"]
    assert found["manifest"] == "out/twice.json"
    # `wide` makes another kernel; `even` is an extent, but where it is 12, rows are refused
    assert extents_of("out") == {"a": ("rows", 64), "out": ("rows", 64), "counts": (4,)}
    assert Path("out/twice.c").exists()


@pytest.mark.slow
def test_every_extent_can_be_fixed(tilepipe: Call) -> None:
    code, said, _ = tilepipe("export", "own.py:program", "--fixed", "-o", "out")
    assert code == 0
    assert "every extent fixed" in said
    assert extents_of("out")["a"] == (40, 64)


@pytest.mark.slow
def test_an_extent_that_is_no_setting_keeps_the_setting_fixed(tilepipe: Call) -> None:
    done = tilepipe("export", "own.py:halves", "-o", "out", "--json")
    assert report(done, 0)["free"] == []


@pytest.mark.slow
@pytest.mark.sampled(suite=5, classes=lambda kernel, free, zero: [tuple(zero)])
@pytest.mark.parametrize(
    ("kernel", "free", "zero"),
    [
        ("gemm", ["m", "n", "k"], []),
        ("attention", ["batch", "heads", "s_q", "s_kv"], ["counter"]),
        ("attention_backward", ["batch", "heads"], []),
        ("gemm_stream_k", ["m", "n", "k"], ["flags"]),
        ("rms_norm", ["m"], []),
    ],
)
def test_shipped_kernels(tilepipe: Call, kernel: str, free: list[str], zero: list[str]) -> None:
    _, said, _ = tilepipe("export", kernel, "-o", "out")
    assert f"{', '.join(free)} chosen at each launch" in said
    found = json.loads(Path(f"out/{kernel}.json").read_text())
    assert [x["name"] for x in found["parameters"] if x.get("zero")] == zero
    for name in zero:
        assert f"  {name}: int32" in said
        assert "all 0 before the first launch" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "given", "free"),
    [
        ("gemm", ["-s", "k_parts=2"], "; k chosen at each launch"),
        ("attention_decode", ["--fixed"], "; every extent fixed"),
    ],
)
def test_tickets_hold_zeros_where_parts_meet(
    tilepipe: Call, kernel: str, given: list[str], free: str
) -> None:
    _, said, _ = tilepipe("export", kernel, *given, "-o", "out")
    assert free in said
    found = json.loads(Path(f"out/{kernel}.json").read_text())
    assert [x["name"] for x in found["parameters"] if x.get("zero")] == ["tickets"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["gemm", "--zero", "d", "-o", "out"], "zero= of 'gemm' names 'd'; its tensors are a, b"),
        (
            ["gemm", "--name", "a b", "-o", "out"],
            "'a b' is no name in C: give name= (--name) to export it",
        ),
        (["gemm", "-s", "depth=3", "-o", "out"], "kernel 'gemm' has no setting 'depth'"),
        (["attention", "--arch", "sm_75", "-o", "out"], "sm_75"),
        (["gemm"], "Missing option"),
    ],
)
def test_what_is_refused(tilepipe: Call, args: list[str], said: str) -> None:
    code, _, error = tilepipe("export", *args)
    assert code == 2
    assert said in error
    assert not Path("out").exists()


def test_a_setting_is_tried_at_small_values_first() -> None:
    """So that the arrays of a large problem are made once."""
    from tests.export.test_manifest import a_gemm

    tried: list[int] = []

    def make(m: int = 100_000) -> tp.Program:
        tried.append(m)
        return a_gemm(m)

    program = a_gemm(1024)
    found = free_extents(program, make, {"m": 100_000, "name": "x", "flag": True})
    assert (found.free, tried) == (["m"], [256, 512, 768])
    assert found.of == {"a": ("m", 256), "b": (384, 256), "c": ("m", 384)}
    assert found.fixed == {}


@pytest.mark.slow
def test_why_settings_are_fixed(tilepipe: Call) -> None:
    """An extent that is no setting's value, another kernel, and one that there is none of."""
    code, said, _ = tilepipe("export", "append_kv", "-s", "page=16", "-o", "out")
    assert code == 0
    assert "  batch is fixed: k_cache.shape[0] is 64, 128 and 192 with batch=4, 8 and 12" in said
    assert "  page is fixed: page=32 is another kernel" in said
    found = report(tilepipe("export", "own.py:program", "-s", "rows=9", "-s", "even=3", "-o",
                            "other", "--json"), 0)  # fmt: skip
    assert found["fixed"]["even"].startswith("even=6: rows must be even")
    assert found["fixed"]["wide"] == "wide=4 is another kernel"


@pytest.mark.slow
def test_another_kernel_of_that_name_is_not_replaced(tilepipe: Call) -> None:
    def export(*more: str) -> tuple[int, str]:
        code, _, error = tilepipe("export", "own.py:program", *more, "-o", "out")
        return code, " ".join(error.split())

    assert export()[0] == export()[0] == 0  # the same one once more
    there = Path("out/doubled.json").read_bytes()
    code, error = export("-s", "wide=1")
    assert code == 2
    assert (
        "doubled.json is there, of another kernel: its a is float32 (rows, 64), and of this one"
        " float32 (rows, 32). Give this one a name of its own (name=, or --name), or replace that"
        " one (replace=True, --replace)."
    ) in error
    assert Path("out/doubled.json").read_bytes() == there
    assert export("-s", "wide=1", "--name", "narrow")[0] == 0
    assert export("-s", "wide=1", "--replace")[0] == 0
    assert Path("out/doubled.json").read_bytes() != there
    Path("out/mine.c").touch()
    code, error = export("--name", "mine")
    assert code == 2
    assert "mine.c is there, and no mine.json beside it says that it is of an exported" in error
    Path("out/list.json").write_text("{}", encoding="utf-8")
    code, error = export("--name", "list")
    assert code == 2
    assert "list.json is no manifest of an exported kernel. Give this one a name of its" in error
    assert export("--name", "list", "--replace")[0] == 0
