"""The command line: `tilepipe kernels | show | run | check | replay | compile | export | warm |
timeline | ptx | demo | bench | tune`.

Exit codes: 0 fine, 1 a fault or a wrong result, 2 bad usage or something that this machine does not
have, 130 interrupted, 141 the reader of the output has stopped (128 + SIGPIPE, as of a
program that the signal ends). With --json one object goes to stdout and nothing else there, of an
error as well: docs/reference/command-line.md has its fields.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import Protocol, runtime_checkable

import typer

from tilepipe.cli import (
    check as check,
    export as export,
    measure as measure,
    ptx as ptx,
    replay as replay,
    run as run,
    show as show,
    streams,
    timeline as timeline,
    tune as tune,
    warm as warm,
)
from tilepipe.cli.common import InterruptedCommand, app, err, notes, print_json_error, wants_json
from tilepipe.errors import SimFault, TilepipeError

__all__ = ["app", "main"]
BROKEN_PIPE = 141
INTERRUPTED = 130


def main() -> None:
    """Entry point. Exits 1 for a fault and 2 for any other error, with one message on stderr."""
    sys.stdout, sys.stderr = streams.guarded(sys.stdout), streams.guarded(sys.stderr)
    warnings.showwarning = _warn
    try:
        try:
            raise SystemExit(_parsed())
        finally:
            # here, where a full disk is still reported; not while the interpreter ends
            sys.stdout.flush()
    except streams.ReaderGone:
        os._exit(BROKEN_PIPE)  # what is still buffered cannot be written either
    except streams.CannotWriteError as error:
        with contextlib.suppress(OSError):
            print(f"error: cannot write the output: {error.strerror}", file=sys.stderr)
        os._exit(2)
    except OSError as error:  # of a file, which it names
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


@runtime_checkable
class _UsageError(Protocol):
    """click's `ClickException`: older versions of typer have it from click, newer ones have a copy
    of their own.
    """

    exit_code: int

    def show(self) -> None: ...
    def format_message(self) -> str: ...


def _parsed() -> int:
    """Runs the command that the arguments of the process name: the exit code."""
    try:
        code = app(prog_name="tilepipe", standalone_mode=False)
    except typer.Abort:  # which older versions of typer make of Ctrl-C
        return _interrupted(KeyboardInterrupt())
    except InterruptedCommand as stopped:
        return _interrupted(stopped.error)
    except TilepipeError as error:
        err.print(f"error: {type(error).__name__}: {error}", style="red")
        notes(error)
        if wants_json():
            print_json_error(error, str(error))
        return 1 if isinstance(error, SimFault) else 2
    except Exception as error:
        if not isinstance(error, _UsageError):
            raise
        if hasattr(error, "message"):  # of newer versions of typer, with a word of pydantic's
            error.message = str(error.message).removeprefix("Value error, ")
        error.show()
        if wants_json():
            print_json_error(error, error.format_message())
        return error.exit_code
    if code == INTERRUPTED:  # newer ones
        return _interrupted(KeyboardInterrupt())
    return code if isinstance(code, int) else 0


def _interrupted(error: KeyboardInterrupt) -> int:
    """Says what was interrupted: the exit code."""
    if getattr(error, "__notes__", []):
        notes(error)
    else:
        err.print("interrupted")
    if wants_json():
        print_json_error(error, "interrupted")
    return INTERRUPTED


def _warn(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    """Prints a warning as one line, without the line of Python that raised it: a user of a command
    did not write that line.
    """
    err.print(f"warning: {message}", style="yellow")
