"""Where tests are found: those of a folder of src/tilepipe in the folder of the same path."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
SRC = TESTS.parent / "src" / "tilepipe"
# Folders without one -> the file that tests what is in them.
ELSEWHERE = {
    "lang/asynchronous": "lang/context/test_mma.py",
}


def test_each_folder_has_its_folder_of_tests() -> None:
    folders = {
        str(path.parent.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if path.stem != "__init__" and path.parent != SRC
    }
    without = {name for name in folders if not any((TESTS / name).rglob("test_*.py"))}
    assert without == ELSEWHERE.keys(), "a test of a folder stands in the same folder of tests"
    assert [path for path in ELSEWHERE.values() if not (TESTS / path).exists()] == []
