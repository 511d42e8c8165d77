"""What an exported kernel's files say, and what is said of files that are not as they were."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.attention import sm90_bind as attention
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig

BF16 = np.dtype(ml_dtypes.bfloat16)
MNK = {"a": ("m", "k"), "b": ("n", "k"), "c": ("m", "n")}


def a_gemm(m: int = 512, n: int = 384, k: int = 256) -> tp.Program:
    a, b, c = (np.zeros(shape, BF16) for shape in ((m, k), (n, k), (m, n)))
    return gemm.bind(a, b, c, GemmConfig(cluster=2), alpha=0.5)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_gemm().export(tmp_path_factory.mktemp("out"), extents=MNK)


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    for file in exported.parent.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path / exported.name


@pytest.mark.slow
def test_the_files(exported: Path) -> None:
    assert sorted(x.name for x in exported.parent.iterdir()) == [
        "gemm.c",
        "gemm.cubin",
        "gemm.h",
        "gemm.json",
        "tilepipe_launch.c",
        "tilepipe_launch.h",
    ]


@pytest.mark.slow
def test_the_manifest_of_a_gemm(exported: Path) -> None:
    program = a_gemm()
    made = program.compile()
    found = json.loads(exported.read_text())
    body = {name: x for name, x in found.items() if name != "sha256"}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    assert found["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    tiles = [
        "mul",
        ["neg", ["floordiv", ["neg", "m"], 256]],
        ["neg", ["floordiv", ["neg", "n"], 128]],
    ]
    box = {"a": [128, 64], "b": [64, 64], "c": [64, 64]}
    assert body == {
        "format": 2,
        "tilepipe": tp.__version__,
        "name": "gemm",
        "kernel": "gemm",
        "entry": made.name,
        "arch": "sm_90a",
        "sms": 132,
        "threads": made.threads,
        "cluster": 2,
        "smem_bytes": made.smem_bytes,
        "cooperative": False,
        "parameters": [
            {
                "name": name,
                "kind": "tensor",
                "dtype": "bfloat16",
                "rank": 2,
                "extents": list(MNK[name]),
                "memory": [0, 1],
                "strides": None,
                "order": "row",
                "box": box[name],
                "swizzle": 128,
                "ragged": False,
                "loaded": False,
                "written": name == "c",
                "zero": False,
            }
            for name in "abc"
        ]
        + [{"name": "alpha", "kind": "scalar", "dtype": "float32", "value": 0.5}],
        "arguments": [
            {"kind": "map", "parameter": "a"},
            {"kind": "shape", "parameter": "a", "axis": 1},
            {"kind": "map", "parameter": "b"},
            {"kind": "map", "parameter": "c"},
            {"kind": "shape", "parameter": "c", "axis": 0},
            {"kind": "shape", "parameter": "c", "axis": 1},
            {"kind": "scalar", "parameter": "alpha"},
        ],
        "grid": ["select", ["gt", tiles, 66], 132, ["mul", tiles, 2]],
        "conditions": [],
        "cubin": {
            "file": "gemm.cubin",
            "bytes": len(made.data),
            "sha256": hashlib.sha256(made.data).hexdigest(),
        },
        "source_sha256": hashlib.sha256(program.source().encode()).hexdigest(),
    }


@pytest.mark.slow
def test_the_manifest_of_attention_says_that_the_counter_is_zero_at_first(tmp_path: Path) -> None:
    def zeros(*shape: int) -> np.ndarray[Any, Any]:
        return np.zeros(shape, BF16)

    program = attention.bind(
        zeros(2, 300, 8, 64), zeros(2, 200, 2, 64), zeros(2, 200, 2, 64), zeros(2, 300, 8, 64),
        cfg=AttentionConfig(schedule="dynamic"), causal=True,
    )  # fmt: skip
    path = program.export(
        tmp_path, name="served", extents={"q": ("b", 8, "s", 64), "out": ("b", 8, "s", 64)}
    )
    assert path == tmp_path / "served.json"
    found = json.loads(path.read_text())
    by_name = {x["name"]: x for x in found["parameters"]}
    assert {n for n, x in by_name.items() if x.get("zero")} == {"counter"}
    assert {n for n, x in by_name.items() if x.get("written")} == {"out", "counter"}
    assert by_name["q"]["memory"] == [0, 2, 1, 3]
    assert by_name["v"]["extents"] == [2, 2, 64, 200]
    assert by_name["v"]["memory"] == [0, 3, 1, 2]
    tiles = ["mul", ["mul", "b", 8], ["neg", ["floordiv", ["neg", "s"], 128]]]
    assert found["grid"] == ["select", ["gt", tiles, 132], 132, tiles]
    header = (tmp_path / "served.h").read_text()
    assert "tilepipe_tensor counter; /* int32 (1), all 0 before the first launch, written */" in (
        header
    )
    assert "tilepipe_tensor q; /* bfloat16 (b, 8, s, 64), in memory (b, s, 8, 64) */" in header


def test_what_is_said_of_files_that_are_not_as_they_were(copied: Path) -> None:
    text, cubin = copied.read_text(), copied.with_suffix(".cubin")
    data = cubin.read_bytes()

    def said() -> str:
        with pytest.raises(tp.ExportError) as error:
            tp.load_exported(copied)
        return str(error.value)

    assert "gemm(a, b, c, alpha) for sm_90a" in repr(tp.load_exported(copied))
    assert "gemm(a, b, c, alpha) for sm_90a" in repr(tp.load_exported(copied.parent))
    for at in (0, 1000, len(data) - 1):
        cubin.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        assert f"{cubin} is not what was exported: its SHA-256 is " in said()
    cubin.unlink()
    assert said() == f"cannot read {cubin}: No such file or directory"
    cubin.write_bytes(data)
    copied.write_text(text.replace('"threads": 384', '"threads": 256'))
    assert said() == (
        f"{copied} is not as it was exported: its SHA-256 is another. Export again, all files"
        " together."
    )
    copied.write_text(text.replace('"format": 2', '"format": 3'))
    assert said() == (
        f"{copied} is of format 3, written by tilepipe {tp.__version__}; this is tilepipe"
        f" {tp.__version__}, which reads format 2. Export it again."
    )
    for other in ("", "[]", "{}", "nothing"):
        copied.write_text(other)
        assert said().startswith(f"{copied} is no manifest of an exported kernel")
    copied.unlink()
    assert said() == f"cannot read the manifest {copied}: No such file or directory"
    with pytest.raises(tp.ExportError, match=r"has no \.json: name the manifest"):
        tp.load_exported(copied.parent)


@pytest.mark.parametrize(
    ("extents", "said"),
    [
        ({"d": ("m",)}, "extents= of 'gemm' names 'd'; its tensors are a, b, c"),
        (
            {"a": ("m",)},
            "extents= of 'a' are 2, names or numbers, for its shape (512, 256); got ('m',)",
        ),
        (
            {"a": (500, "k")},
            "extents= says 500 of a.shape[0], which is 512 in the program; a name leaves it to each"
            " launch",
        ),
        (
            {"a": ("m", "k"), "b": ("m", "k")},
            "extents= calls a.shape[0] and b.shape[0] 'm', but they are 512 and 384 in the program",
        ),
        ({"a": ("alpha", "k")}, "'alpha' names an extent and a parameter of 'gemm': name the"),
        ({"a": ("int", "k")}, "'int' is no name in C: name it otherwise to export it"),
        ({"a": ("m m", "k")}, "'m m' is no name in C: name it otherwise to export it"),
    ],
)
def test_wrong_extents(extents: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(tp.ExportError) as error:
        a_gemm().export(tmp_path / "out", extents=extents)
    assert str(error.value).startswith(said)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"directory": 3}, "directory is the path of a directory; got 3"),
        ({"directory": ""}, "directory is the path of a directory; got ''"),
        ({"name": 3}, "name= is the name of the files and functions; got 3"),
        (
            {"extents": ["a"]},
            """extents= has the extents of tensors by name, as {"a": ("m", 64)}; got ['a']""",
        ),
        ({"extents": {"a": 3}}, "extents= has the extents of tensors by name"),
        ({"zero": "c"}, """zero= has names of tensors, as ("partial",); got 'c'"""),
    ],
    ids=str,
)
def test_arguments_of_another_kind(given: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(tp.ExportError) as error:
        a_gemm().export(**({"directory": tmp_path / "out"} | given))
    assert str(error.value).startswith(said)
    assert not (tmp_path / "out").exists()


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(
        tp.ExportError, match=r"out is a file; a kernel is exported into a directory"
    ):
        a_gemm().export(tmp_path / "out")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"sha256": "", "format": 2, "grid": ' + "[" * 900 + "]" * 900 + "}",
        '{"sha256": "", "format": 2, "grid": ' + "[" * 5_000 + "]" * 5_000 + "}",
    ],
)
def test_a_manifest_that_is_nested_deeply(text: str, tmp_path: Path) -> None:
    """Python's JSON reads what its writer and readers of the parts may not follow."""
    path = tmp_path / "k.json"
    path.write_text(text)
    with pytest.raises(tp.ExportError) as error:
        tp.load_exported(path)
    assert str(path) in str(error.value)
    if text.startswith(("[", '{"a"')):
        assert str(error.value) == (
            f"{path} is no manifest of an exported kernel: it is nested too deeply"
        )
