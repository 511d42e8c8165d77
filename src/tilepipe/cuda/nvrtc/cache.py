"""Compiled kernels on disk, so that a process compiles only what no process before it has.

An entry's name is the SHA-256 of all that decides what the compiler gives: source, options,
architecture, versions of the compiler and of tilepipe. Its contents begin with a SHA-256 over that
name and everything that follows, so a file that is cut short, altered, or put under another's name
is not used. Nothing is unpickled. A directory that others may write to is not used at all: whoever
can write there could have us launch their code.

    TILEPIPE_CACHE_DIR   the directory; `$XDG_CACHE_HOME/tilepipe` or `~/.cache/tilepipe` unless
    set; "off" for none
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from pathlib import Path

import tilepipe
from tilepipe import files

MAGIC = b"tilepipe cubin 1\n"
MAX_BYTES = 256 * 2**20  # of all entries; the least recently written go first
_SUFFIX = ".cubin"
_ABANDONED = 3600  # seconds after which nobody is still writing a temporary file


def directory() -> Path | None:
    """Where entries are kept; None when there is no place for them."""
    said = os.environ.get("TILEPIPE_CACHE_DIR")
    if said == "off":
        return None
    if said:
        return Path(said)
    return files.user_directory("XDG_CACHE_HOME", ".cache")


def key(*parts: str) -> str:
    """The name of the entry that these decide."""
    digest = hashlib.sha256()
    for part in (tilepipe.__version__, *parts):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def read(name: str) -> tuple[str, bytes] | None:
    """(compile log, cubin) of an entry; None where there is none that is whole and ours."""
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
    """Keeps an entry. Readers and other writers see all of it or nothing; where it cannot be kept,
    nothing happens.
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
        files.write_atomically(path, MAGIC + _digest(name, body) + body)
        _trim(where)


def _digest(name: str, body: bytes) -> bytes:
    return hashlib.sha256(name.encode() + body).digest()


def _private(where: Path) -> bool:
    """Whether only this user can have written there."""
    try:
        found = where.stat()
    except OSError:
        return False
    if not hasattr(os, "geteuid"):
        return stat.S_ISDIR(found.st_mode)
    writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not writable


def _trim(where: Path) -> None:
    """Removes the oldest entries beyond `MAX_BYTES`, and what writers left that were killed."""
    for path in where.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - _ABANDONED:
                path.unlink()
    entries = []
    for path in where.glob(f"*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            found = path.stat()
            entries.append((found.st_mtime, found.st_size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= MAX_BYTES:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size
