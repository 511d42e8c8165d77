"""Writes the files of an exported kernel."""

from __future__ import annotations

from pathlib import Path

from tilepipe import files
from tilepipe.errors import ExportError
from tilepipe.export.c_code import check_names, header, source
from tilepipe.export.manifest import Manifest

LAUNCHER = Path(__file__).parent / "launch"
_SHARED = ("tilepipe_launch.h", "tilepipe_launch.c")  # by all kernels of a directory


def write(directory: Path, manifest: Manifest, cubin: bytes) -> Path:
    """Writes the files of a kernel: the manifest last, so that there is none where others are
    missing. Returns its path.

    Raises:
        ExportError: a name that C cannot have, or a file cannot be written.
    """
    check_names(manifest)
    if directory.is_file():
        raise ExportError(
            f"{directory} is a file; a kernel is exported into a directory, as several files: give"
            " one that is there, or that can be made"
        )
    path = directory / f"{manifest.name}.json"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in _SHARED:
            _write(directory / name, (LAUNCHER / name).read_bytes())
        _write(directory / manifest.cubin_file, cubin)
        _write(directory / f"{manifest.name}.h", header(manifest).encode())
        _write(directory / f"{manifest.name}.c", source(manifest).encode())
        _write(path, manifest.to_text().encode())
    except OSError as error:
        raise ExportError(f"cannot write {error.filename or directory}: {error.strerror}") from None
    return path


def _write(path: Path, data: bytes) -> None:
    files.write_atomically(path, data, mode=0o644)
