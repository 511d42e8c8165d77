"""The standard streams of a command: closed ones, those whose reader has gone, and terminals that
lack a letter.
"""

from __future__ import annotations

import io
import os
from typing import Any, TextIO


class ReaderGone(BaseException):
    """The reader of the output has stopped reading. It is no `OSError`: for one, typer and rich
    exit with 1, as for a faulty kernel.
    """


class CannotWriteError(OSError):
    """The output cannot be written, for another reason: a full disk, say."""


class _Pipe(io.FileIO):
    """A file descriptor, written to until its reader goes."""

    def write(self, data: Any, /) -> int:
        """Writes, as `FileIO` does.

        Raises:
            ReaderGone: the reader has closed its end.
            CannotWriteError: whatever else the system says.
        """
        try:
            return super().write(data)
        except BrokenPipeError:
            raise ReaderGone from None
        except OSError as error:
            raise CannotWriteError(error.errno, error.strerror) from None


def guarded(stream: TextIO | None) -> TextIO:
    """A standard stream as a command writes to it.

    One that the process was started without (`>&-`) leads nowhere. A letter that its encoding lacks
    becomes "?".
    """
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream  # of a test, or of whoever calls `main` from Python
    stream.reconfigure(errors="replace")
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return stream
    stream.flush()
    raw = io.BufferedWriter(_Pipe(descriptor, "w", closefd=False))
    lines = stream.line_buffering or stream.write_through or stream.isatty()
    return io.TextIOWrapper(raw, encoding=stream.encoding, errors="replace", line_buffering=lines)
