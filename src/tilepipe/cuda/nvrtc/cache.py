"""The cache of compiled kernels on disk, which processes share.

The name of an entry is the SHA-256 of everything that determines the compiler's output: source,
options, architecture, versions of the compiler and of tilepipe. The content begins with a SHA-256
over that name and the rest of the file, so a file that is truncated, altered or renamed is not
used. Nothing is unpickled. A directory that other users may write to is not used at all, because
they could place code there that this process would launch.

    TILEPIPE_CACHE_DIR   the directory; `$XDG_CACHE_HOME/tilepipe` or `~/.cache/tilepipe` where it
                         is not set; "off" switches the cache off
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from pathlib import Path

from tilepipe import _version, files

MAGIC = b"tilepipe cubin 1\n"
MAX_BYTES = 256 * 2**20  # size of all entries; the least recently written are removed first
# A process looks at all entries when it first writes, and when it has written this part of
# MAX_BYTES again: for each write, thousands of entries would take longer than compiling one.
_TRIM_EVERY = 1 / 64
_SUFFIX = ".cubin"
_ABANDONED = 3600  # seconds after which no process is still writing a temporary file
_written: dict[Path, int] = {}  # bytes, by directory, since this process has last trimmed it


def directory() -> Path | None:
    """The directory of the entries; None when the cache is off or has no place."""
    chosen = os.environ.get("TILEPIPE_CACHE_DIR")
    if chosen == "off":
        return None
    if chosen:
        return Path(chosen)
    return files.user_directory("XDG_CACHE_HOME", ".cache")


def key(*parts: str) -> str:
    """The name of the entry for these texts, in their order."""
    digest = hashlib.sha256()
    for part in (_version.__version__, *parts):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def read(name: str) -> tuple[str, bytes] | None:
    """The (compile log, cubin) of an entry; None where there is no intact entry in a directory that
    only this user can write to.
    """
    where = directory()
    if where is None or not _private(where):
        return None
    try:
        data = files.read(where / (name + _SUFFIX))
    except OSError:
        return None
    head = len(MAGIC) + 32
    body = data[head:]
    if (
        len(body) < 8
        or data[: len(MAGIC)] != MAGIC
        or data[len(MAGIC) : head] != _digest(name, body)
    ):
        return None
    size = int.from_bytes(body[:8], "little")
    return body[8 : 8 + size].decode(), body[8 + size :]


def write(name: str, log: str, cubin: bytes) -> None:
    """Writes an entry atomically: other processes see all of it or nothing. Where it cannot be
    written, nothing happens.
    """
    where = directory()
    if where is None:
        return
    text = log.encode()
    body = len(text).to_bytes(8, "little") + text + cubin
    with contextlib.suppress(OSError):
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _private(where):
            return
        path = where / (name + _SUFFIX)
        data = MAGIC + _digest(name, body) + body
        files.write_atomically(path, data)
        written = _written.get(where)
        _written[where] = (written or 0) + len(data)
        if written is None or _written[where] > MAX_BYTES * _TRIM_EVERY:
            _written[where] = 0
            _trim(where)


def refused(where: Path) -> str:
    """Why no entry can be written to a directory, which is made where it is not there; "" where one
    can.
    """
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _private(where):
            return "it is not of this user alone: other users can write to it, or own it"
        with tempfile.TemporaryFile(dir=where):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _digest(name: str, body: bytes) -> bytes:
    return hashlib.sha256(name.encode() + body).digest()


def _private(where: Path) -> bool:
    """True if no other user can write to a directory."""
    try:
        found = where.stat()
    except OSError:
        return False
    if not hasattr(os, "geteuid"):
        return stat.S_ISDIR(found.st_mode)
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not writable


def _trim(where: Path) -> None:
    """Removes the oldest entries beyond `MAX_BYTES`, and temporary files of killed writers."""
    entries = []
    with os.scandir(where) as found:
        for entry in found:
            temporary = entry.name.startswith(".") and entry.name.endswith(".tmp")
            if not temporary and not entry.name.endswith(_SUFFIX):
                continue
            with contextlib.suppress(OSError):
                facts = entry.stat()
                if not temporary:
                    entries.append((facts.st_mtime, facts.st_size, entry.path))
                elif facts.st_mtime < time.time() - _ABANDONED:
                    os.unlink(entry.path)
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= MAX_BYTES:
            return
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size
