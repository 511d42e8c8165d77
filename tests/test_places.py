"""Where things are found: what the root holds; tests of a folder of src/tilepipe in the folder of
the same path.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ROOT = TESTS.parent
SRC = ROOT / "src" / "tilepipe"
# What is kept under version control at the root. Something else there was written by a test that
# ran in it.
KEPT = {
    ".ci", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md",
    "SECURITY.md", "benchmarks", "docs", "examples", "pyproject.toml", "src", "tests", "tools",
}  # fmt: skip


def test_each_folder_has_its_folder_of_tests() -> None:
    folders = {
        str(path.parent.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if path.stem != "__init__" and path.parent != SRC
    }
    without = {name for name in folders if not any((TESTS / name).rglob("test_*.py"))}
    assert not without, "a test of a folder stands in the same folder of tests"


@pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(), reason="no checkout of git"
)
def test_the_root_holds_what_it_should() -> None:
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {name.split("/")[0] for name in listed.split("\0") if name} == KEPT
