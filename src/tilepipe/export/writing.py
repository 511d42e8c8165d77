"""Writes the files of an exported kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tilepipe import files
from tilepipe.errors import ExportError
from tilepipe.export.c_code import check_names, header, source
from tilepipe.export.manifest import Manifest, Scalar, Tensor, parameter_fields, read

LAUNCHER = Path(__file__).parent / "launch"
_SHARED = ("tilepipe_launch.h", "tilepipe_launch.c")  # by all kernels of a directory
_CURE = (
    "Give this one a name of its own (name=, or --name), or replace {} (replace=True, --replace)."
)


def write(directory: Path, manifest: Manifest, cubin: bytes, *, replace: bool = False) -> Path:
    """Writes the files of a kernel: the manifest last, so that there is none where others are
    missing. Returns its path.

    Args:
        replace: files of that name may be there that are not of the same kernel.

    Raises:
        ExportError: a name that C cannot have, a file that is there and is not of the same kernel,
            or one that cannot be written.
    """
    check_names(manifest)
    if directory.is_file():
        raise ExportError(
            f"{directory} is a file; a kernel is exported into a directory, as several files: give"
            " one that is there, or that can be made"
        )
    path = directory / f"{manifest.name}.json"
    kernel = {
        directory / manifest.cubin_file: cubin,
        directory / f"{manifest.name}.h": header(manifest).encode(),
        directory / f"{manifest.name}.c": source(manifest).encode(),
    }
    if not replace:
        _refuse_others(path, manifest, kernel)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in _SHARED:
            _write(directory / name, (LAUNCHER / name).read_bytes())
        for file, data in kernel.items():
            _write(file, data)
        _write(path, manifest.to_text().encode())
    except OSError as error:
        raise ExportError(f"cannot write {error.filename or directory}: {error.strerror}") from None
    return path


def _write(path: Path, data: bytes) -> None:
    files.write_atomically(path, data, mode=0o644)


# -- what is there already ---------------------------------------------------------------


def _refuse_others(path: Path, manifest: Manifest, kernel: dict[Path, bytes]) -> None:
    """Raises ExportError where a file of a kernel's name is there that is not of this kernel."""
    if not path.exists():
        own = next((file for file in kernel if file.exists()), None)
        if own is not None:
            raise ExportError(
                f"{own} is there, and no {path.name} beside it says that it is of an exported"
                f" kernel. {_CURE.format('it')}"
            )
        return
    try:
        there = read(path)
    except ExportError as error:
        raise ExportError(f"{error}. {_CURE.format('it')}".replace("..", ".")) from None
    differs = next(_differences(there, manifest), "")
    if differs:
        raise ExportError(
            f"{path} is there, of another kernel: {differs}. {_CURE.format('that one')}"
        )


def _differences(there: Manifest, here: Manifest) -> Iterator[str]:
    """The differences of two kernels, in words: the ones that a user knows of first."""
    if there.kernel != here.kernel:
        yield f"of '{there.kernel}', and this is '{here.kernel}'"
    if there.arch != here.arch:
        yield f"for {there.arch}, and this is for {here.arch}"
    ours = {x.param.name: x for x in here.parameters}
    theirs = {x.param.name: x for x in there.parameters}
    for name in dict.fromkeys([*theirs, *ours]):
        old, new = theirs.get(name), ours.get(name)
        if old is None or new is None or parameter_fields(old) != parameter_fields(new):
            yield f"its {name} is {_shown(old)}, and of this one {_shown(new)}"
    if there.source_sha256 != here.source_sha256:
        yield "its arguments are the same and its code is not (another setting, or version)"


def _shown(x: Tensor | Scalar | None) -> str:
    match x:
        case None:
            return "none"
        case Scalar():
            return f"{x.param.dtype} {x.value} unless given"
    extents = ", ".join(map(str, x.extents))
    strides = "" if x.strides is None else f" with strides {x.strides}"
    return f"{x.param.dtype} ({extents}){strides}"
