"""The command line, in this process."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout

from tilepipe import cli


def tilepipe(*args: str) -> subprocess.CompletedProcess[str]:
    """The command in this process, which has imported everything already."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    argv, path = sys.argv, sys.path
    sys.argv, sys.path = ["tilepipe", *args], list(sys.path)
    code: object = 0
    try:
        with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("default")  # printed, as in a process without this suite's rules
            cli.main()
    except SystemExit as left:
        code = left.code or 0
    finally:
        sys.argv, sys.path = argv, path
    assert isinstance(code, int)
    return subprocess.CompletedProcess(args, code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
