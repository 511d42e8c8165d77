"""Files that a user or an environment variable names."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

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
