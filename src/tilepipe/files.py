"""Files that a user or an environment variable names, and stores that several processes share."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Opening a FIFO would wait for a writer without O_NONBLOCK. Windows has no such flag, and
# translates line ends without O_BINARY.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def read(path: Path) -> bytes:
    """The bytes of an ordinary file. A pipe or a device may never end, and is not read.

    Raises:
        OSError: there is no such file, it is no ordinary one, or it may not be read.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, no ordinary file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def parsed_json(data: bytes | str, once: Callable[..., Any] | None = None) -> Any:
    """What JSON says. `once`: the `object_pairs_hook` of `json.loads`.

    Raises:
        ValueError: it is no JSON (`json.JSONDecodeError`), no UTF-8, or nested too deeply.
    """
    import json  # `import tilepipe` reads no file and pays for none

    try:
        return json.loads(data, object_pairs_hook=once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def user_directory(variable: str, default: str) -> Path | None:
    """Where tilepipe keeps files of one kind for this user; None where there is no home directory.

    Args:
        variable: of the environment, which names the parent, such as XDG_CACHE_HOME. default: the
            parent under the home directory unless it is set.
    """
    base = os.environ.get(variable)
    try:
        return (Path(base) if base else Path.home() / default) / "tilepipe"
    except RuntimeError:  # no home directory
        return None


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Writes a file of which readers and other writers see the old contents or the new, never a
    part.

    Raises:
        OSError: it cannot be written; what was there is left as it was.
    """
    import tempfile

    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock of a file, which one process has at a time; it ends with the process that
    holds it. There are no locks where Python has none (Windows).

    Raises:
        OSError: the file cannot be opened.
    """
    with open(path, "a") as file:
        try:
            import fcntl
        except ImportError:
            yield
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
