"""Manifests that somebody else wrote, with a digest of their own: every field that is missing or of
another kind is one error that names it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.export.manifest import _digest

Place = tuple[str | int, ...]


@tp.kernel(grid=lambda a, out, factor: -(-a.shape[0] // 4))
def scaled(ctx: Any, a: Any, out: Any, factor: Any) -> None:
    """out = factor · a, a row for each lane of four."""

    @ctx.role("all", warps=1)  # type: ignore[untyped-decorator]
    def role() -> None:
        with ctx.when((ctx.lane < 4) & (ctx.block_id * 4 + ctx.lane < a.shape[0])):
            row = ctx.block_id * 4 + ctx.lane
            ctx.store(out[row, 0], factor * ctx.load(a[row, 0]))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x = np.zeros((8, 32), np.float32)
    program = scaled.bind(tp.tensor_map(x, box=(4, 32)), np.zeros_like(x), 2.0)
    folder = tmp_path_factory.mktemp("exported")
    extents = {"a": ("m", 32), "out": ("m", 32)}
    return program.export(folder, extents=extents, zero=("out",))


def forged(path: Path, body: dict[str, Any]) -> str:
    """What is said of a manifest with these fields."""
    body = {name: x for name, x in body.items() if name != "sha256"}
    path.write_text(json.dumps(body | {"sha256": _digest(body)}))
    with pytest.raises(tp.ExportError) as error:
        tp.load_exported(path)
    return str(error.value)


def places(found: Any, at: Place = ()) -> Iterator[Place]:
    """Of every field of all objects."""
    if isinstance(found, dict):
        for name, x in found.items():
            yield (*at, name)
            yield from places(x, (*at, name))
    elif isinstance(found, list):
        for i, x in enumerate(found):
            yield from places(x, (*at, i))


def text(place: Place) -> str:
    return "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in place).removeprefix(".")


UNREAD = ("format",), ("sha256",), ("tilepipe",), ("cubin", "file")  # said otherwise, or only shown


def test_every_field_that_is_missing_is_named(exported: Path, tmp_path: Path) -> None:
    good = json.loads(exported.read_text())
    path = tmp_path / exported.name
    found = [x for x in places(good) if x not in UNREAD]
    assert len(found) > 45
    for place in found:
        body = copy.deepcopy(good)
        holder: Any = body
        for step in place[:-1]:
            holder = holder[step]
        del holder[place[-1]]
        said = forged(path, body)
        assert said.startswith(f"{path} has no {text(place)}, where `export` writes ")
        assert said.endswith(". Export again, all files together.")


@pytest.mark.parametrize("value", [{"x": 1}, [[]], -7, 0.5, "[31m!", None], ids=repr)
def test_every_field_of_another_kind_is_named(value: Any, exported: Path, tmp_path: Path) -> None:
    good = json.loads(exported.read_text())
    path = tmp_path / exported.name
    free = {  # what takes any text, number or expression
        "kernel", "entry", "at", "sha256", "source_sha256", "value", "holds", "grid", "message",
        "box", "strides",
    }  # fmt: skip
    for place in places(good):
        if place in UNREAD or (place[-1] in free and not isinstance(value, dict)):
            continue
        body = copy.deepcopy(good)
        holder: Any = body
        for step in place[:-1]:
            holder = holder[step]
        holder[place[-1]] = value
        said = forged(path, body)
        assert said.isprintable()
        if place == ("name",) and isinstance(value, str):
            assert "which is no name that `export` gives" in said
            continue
        expected = f"{path} has {text(place)} = "
        if place == ("cubin",) and isinstance(value, dict):
            expected = f"{path} has no cubin.bytes"
        assert said.startswith(expected), said


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("parameters", 0, "memory"), [0, 0], "the dimensions 0 to 1 in an order"),
        (("parameters", 0, "extents"), ["m"], "2 extents, integers from 1 or names"),
        (("parameters", 0, "box"), [4], "2 integers from 1"),
        (("parameters", 0, "dtype"), "float7", "the name of a dtype"),
        (("arguments", 0, "parameter"), "z", "the name of a parameter, a, out, factor"),
        (("arch",), "ninety", "a target such as sm_90a"),
        (("grid",), ["floordiv", "k", 4], "an expression over m, factor"),
        (("grid",), [["add"], 1, 2], "an expression over extents"),
        (("grid",), ["add", 1], "an expression over extents"),
        (
            ("conditions",),
            [{"holds": 1, "message": "{} and {x}", "shows": [1], "at": "k.py:1"}],
            "a text with {} for each of 1 values",
        ),
    ],
    ids=str,
)
def test_what_does_not_fit_together_is_named(
    place: Place, value: Any, words: str, exported: Path, tmp_path: Path
) -> None:
    body = json.loads(exported.read_text())
    holder: Any = body
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = value
    assert f"where `export` writes {words}. " in forged(tmp_path / exported.name, body)
