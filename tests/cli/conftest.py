"""The commands in this process, and a file to give them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.copying import KERNEL, Call
from tests.support.command import get_command
from tilepipe import cli


@pytest.fixture
def tilepipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command, in this process: (exit code, stdout, stderr)."""

    def call(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tilepipe", *map(str, args)])
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.setattr("typer.main.get_command", get_command)
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        done = capsys.readouterr()
        return int(left.value.code or 0), done.out, done.err

    return call


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a kernel in the present folder, named as one types it."""
    monkeypatch.chdir(tmp_path)
    Path("copying.py").write_text(KERNEL, encoding="utf-8")
    return Path("copying.py")
