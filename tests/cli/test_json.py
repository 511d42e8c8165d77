"""docs/reference/command-line.md says what each command prints with --json."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.copying import Call, report
from tests.cli.own import OWN
from tests.cli.test_bench_file import gpu as gpu  # a fixture

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command-line.md"
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (float, int),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
NO_CHILDREN = (
    *("config", "settings", "outputs", "us", "spread", "ratio", "roles", "directives"),
    *("instructions", "entries", "moved", "fault", "saved"),
)
ENTRY = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry one(.param .u64 out)
.maxntid 32, 1, 1
{
    .reg .b32 %r<3>;
    tex.1d.v4.u32.s32 {%r1, %r1, %r1, %r1}, [%r2, {%r2}];
    ret;
}
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN, encoding="utf-8")
    Path("one.ptx").write_text(ENTRY, encoding="utf-8")
    monkeypatch.setenv("TILEPIPE_TUNED", str(tmp_path / "tuned.json"))


def described(heading: str) -> dict[str, tuple[type, ...]]:
    """The fields under a heading, each with its types."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([\w.\[\]]+)` \| ([\w ]+) \|", section, re.MULTILINE)
    assert rows
    return {
        name: tuple(x for word in types.split(" or ") for x in TYPES[word]) for name, types in rows
    }


def fields(value: dict[str, Any], path: str = "") -> dict[str, list[Any]]:
    """The values of each field, as the page writes its name."""
    found: dict[str, list[Any]] = {}
    for name, x in value.items():
        found.setdefault(f"{path}{name}", []).append(x)
        inner: list[tuple[dict[str, Any], str]] = []
        if isinstance(x, dict) and name not in NO_CHILDREN:
            inner = [(x, f"{path}{name}.")]
        if isinstance(x, list):
            inner = [(y, f"{path}{name}[].") for y in x if isinstance(y, dict)]
        for y, below in inner:
            for key, values in fields(y, below).items():
                found.setdefault(key, []).extend(values)
    return found


def as_described(value: dict[str, Any], heading: str) -> None:
    page, found = described(heading), fields(value)
    assert set(found) == set(page)
    for name, values in found.items():
        assert {type(x) for x in values} <= set(page[name]), (name, values)


SMALL = ["-s", "m=64", "-s", "n=64", "-s", "k=64"]


@pytest.mark.parametrize(
    ("heading", "args", "code"),
    [
        ("An error", ["run", "conv"], 2),
        ("An error", ["run", "gemm", "-s", "stages=50"], 2),
        ("An error", ["run", "gemm", "--loud"], 2),
        ("tilepipe kernels", ["kernels"], 0),
        ("tilepipe run KERNEL", ["run", "gemm", *SMALL], 0),
        ("tilepipe run FILE.py:NAME", ["run", "own.py:several"], 0),
        ("tilepipe run FILE.py:NAME", ["run", "own.py:program", "--against", "own.py:wrong"], 1),
        ("tilepipe compile", ["compile", "own.py:program", "--emit", "cuda"], 0),
        ("tilepipe compile", ["compile", "own.py:program", "--emit", "ptx", "-o", "own.ptx"], 0),
        ("tilepipe export", ["export", "own.py:program", "-o", "out"], 0),
        ("tilepipe warm", ["warm", "own.py:program", "--workers", "1"], 0),
        ("tilepipe demo", ["demo"], 0),
        ("tilepipe show", ["show", "attention"], 0),
        ("tilepipe timeline", ["timeline", "gemm", *SMALL, "--more-stages", "-o", "t.json"], 0),
        ("tilepipe ptx", ["ptx", "one.ptx"], 1),
        ("tilepipe tune --list", ["tune", "--list"], 0),
    ],
    ids=lambda x: x if isinstance(x, str) else None,
)
def test_the_page_has_the_fields(heading: str, args: list[str], code: int, tilepipe: Call) -> None:
    as_described(report(tilepipe(*args, "--json"), code), heading)


@pytest.mark.parametrize("peer", ["right", "wrong"])
def test_the_page_has_the_fields_of_a_measurement(
    peer: str, gpu: list[str], tilepipe: Call
) -> None:
    done = tilepipe("bench", "own.py:program", "--against", f"own.py:{peer}", "--json")
    found = report(done, int(peer == "wrong"))
    as_described(found, "tilepipe bench FILE.py:NAME")
    as_described(found["results"][0]["outputs"][f"own.py:{peer}"]["out"], "An agreement")


@pytest.mark.slow
def test_the_page_has_the_fields_of_a_replay(tilepipe: Call) -> None:
    racing = OWN.replace("ctx.range(ctx.block_id, a.shape[0], 2)", "ctx.range(a.shape[0])")
    Path("own.py").write_text(racing, encoding="utf-8")
    report(tilepipe("check", "own.py:program", "--small", "--save", "race.json", "--json"), 1)
    as_described(report(tilepipe("replay", "race.json", "--json"), 1), "tilepipe replay")
