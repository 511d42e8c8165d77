"""The command line, in this process."""

from __future__ import annotations

import functools
import io
import linecache
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import typer

from tilepipe import cli
from tilepipe.cli import common
from tools.docs.shown import TERMINAL

# Typer reads the signatures of all commands anew for each command that is called.
get_command = functools.cache(typer.main.get_command)


def tilepipe(*args: str) -> subprocess.CompletedProcess[str]:
    """The command in this process, which has imported everything already."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    argv, path = sys.argv, sys.path
    sys.argv, sys.path = ["tilepipe", *args], list(sys.path)
    code: object = 0
    try:
        with (
            redirect_stdout(out),
            redirect_stderr(err),
            warnings.catch_warnings(),
            mock.patch("typer.main.get_command", get_command),
        ):
            warnings.simplefilter("default")  # printed, as in a process without this suite's rules
            cli.main()
    except SystemExit as left:
        code = left.code or 0
    finally:
        sys.argv, sys.path = argv, path
    assert isinstance(code, int)
    return subprocess.CompletedProcess(args, code, _text(out), _text(err))


def tilepipe_in(words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """As `shown.process`, in this process: of a folder whose files may have changed, or be called
    as those of another folder.
    """
    linecache.clearcache()
    before = set(sys.modules)
    with (
        chdir(folder),
        mock.patch.dict(os.environ, TERMINAL),
        # what the consoles read when they were made
        mock.patch.object(common.out, "_width", int(TERMINAL["COLUMNS"])),
        mock.patch.object(common.err, "_width", int(TERMINAL["COLUMNS"])),
        mock.patch.object(sys, "path", [str(folder), *sys.path]),
    ):
        try:
            return tilepipe(*words)
        finally:
            for name in set(sys.modules) - before:
                if (getattr(sys.modules[name], "__file__", None) or "").startswith(f"{folder}/"):
                    del sys.modules[name]


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
