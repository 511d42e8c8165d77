"""`tilepipe show`."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.cli.copying import LOAD, Call, report


def test_a_file_as_tables(file: Path, tilepipe: Call) -> None:
    code, out, _ = tilepipe("show", f"{file}:small", "-s", "stages=3")
    assert code == 0
    assert "copy: 2 CTAs of 64 threads, " in out
    assert "ring: ring of 3 stages, 1,536 bytes in tiles" in out
    assert "1 arrival + 512 bytes of a" in out
    assert f"load copies {LOAD}" in out
    assert "3 × 16×16 float16" in out


def test_a_picture_and_a_page(file: Path, tilepipe: Call) -> None:
    code, out, err = tilepipe("show", f"{file}:small", "-o", "copy.svg")
    assert (code, out, err) == (0, "", "copy.svg: 2 roles, 1 ring\n")
    assert ET.parse("copy.svg").getroot().tag.endswith("svg")
    assert tilepipe("show", f"{file}:small", "-o", "capitals.SVG")[0] == 0
    assert Path("capitals.SVG").read_bytes() == Path("copy.svg").read_bytes()
    assert tilepipe("show", f"{file}:small", "-o", "copy.html")[0] == 0
    page = Path("copy.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "<svg" in page
    assert "who, and in which lines" in page


def test_json_and_a_picture(file: Path, tilepipe: Call) -> None:
    found = report(tilepipe("show", f"{file}:small", "-s", "stages=3", "-o", "x.svg", "--json"))
    assert (found["output"], found["program"]["rings"][0]["stages"]) == ("x.svg", 3)
    assert found["config"]["stages"] == 3
    assert Path("x.svg").exists()


def test_a_shipped_kernel_has_the_settings_that_are_given(tilepipe: Call) -> None:
    small = ["-s", "m=256", "-s", "n=256", "-s", "k=256", "-s", "stages=3"]
    found = report(tilepipe("show", "gemm", *small, "--json"))["program"]
    assert [(ring["name"], ring["stages"]) for ring in found["rings"]] == [("inputs", 3)]


@pytest.mark.slow
def test_another_file_is_refused_before_anything_is_traced(tilepipe: Call) -> None:
    code, _, err = tilepipe("show", "absent.py:kernel", "-o", "gemm.png")
    assert code == 2
    assert "-o gemm.png: a kernel is drawn as a picture, -o gemm.svg, or a page" in err


def test_a_folder_that_is_not_there(file: Path, tilepipe: Call) -> None:
    code, _, err = tilepipe("show", f"{file}:small", "-o", "absent/copy.svg")
    assert code == 2
    assert "cannot write absent/copy.svg: No such file or directory" in err


def test_several_programs_are_too_many(file: Path, tilepipe: Call) -> None:
    code, _, err = tilepipe("show", f"{file}:both")
    assert code == 2
    assert "makes 2 programs; name a function that makes the one that is meant" in err


def test_a_kernel_without_shared_memory_has_no_table_of_it(
    tilepipe: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain.py").write_text("""
import numpy as np
import tilepipe as tp

@tp.kernel()
def plain(ctx, out):
    @ctx.role("all", warps=1)
    def all_():
        ctx.store(out[ctx.lane], ctx.lane)

program = plain.bind(np.zeros(32, np.int32))
""")
    code, out, _ = tilepipe("show", "plain.py:program")
    assert code == 0
    assert "Roles" in out
    assert "Shared memory" not in out
    assert "Barriers" not in out
