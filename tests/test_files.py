"""Stores that several processes share: `tilepipe.files`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilepipe import files

COUNT = """
import pathlib, sys
from tilepipe import files
path = pathlib.Path(sys.argv[1])
for _ in range(40):
    with files.locked(path.with_name("lock")):
        number = int(path.read_text())
        files.write_atomically(path, str(number + 1).encode())
"""


@pytest.mark.parametrize("text", ["[" * 100_000, b'{"a":' * 100_000])
def test_json_that_is_nested_deeply_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"^it is nested too deeply$"):
        files.parsed_json(text)


def test_a_write_that_fails_leaves_the_old_contents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    files.write_atomically(path, b"old")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="No space left"):
        files.write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [x.name for x in tmp_path.iterdir()] == ["store"]


@pytest.mark.skipif(os.name == "nt", reason="no file modes")
def test_the_mode_of_a_written_file(tmp_path: Path) -> None:
    for mode in (0o600, 0o644):
        files.write_atomically(tmp_path / "store", b"x", mode)
        assert (tmp_path / "store").stat().st_mode & 0o777 == mode


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no locks of files")
def test_processes_that_lock_a_file_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_text("0")
    command = [sys.executable, "-c", COUNT, str(path)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert path.read_text() == "120"


def test_the_directory_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.user_directory("XDG_CACHE_HOME", ".cache") == tmp_path / "tilepipe"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.user_directory("XDG_CACHE_HOME", ".cache") == tmp_path / ".cache" / "tilepipe"
