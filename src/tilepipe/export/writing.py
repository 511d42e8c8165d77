"""Writes the files of an exported kernel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tilepipe import files
from tilepipe.errors import ExportError
from tilepipe.export.c_code import check_names, header, source
from tilepipe.export.manifest import FORMAT, Manifest, Scalar, Tensor, parameter_fields, read

LAUNCHER = Path(__file__).parent / "launch"
_SHARED = ("tilepipe_launch.h", "tilepipe_launch.c")  # by all kernels of a directory
_MARK = "/* Loads and launches kernels that `tilepipe export` has written"  # how both begin
# fields of a manifest by which launches of the same code differ
_LAUNCH = "sms", "threads", "cluster", "smem_bytes", "cooperative", "grid", "conditions"
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
        _refuse_other_launchers(directory)
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


def _refuse_other_launchers(directory: Path) -> None:
    """Raises ExportError where the launcher's files are somebody's own, or those of a version of
    tilepipe whose kernels, which may lie beside them, need that launcher.
    """
    for name in _SHARED:
        path = directory / name
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            text = None
        if not path.exists() or text == (LAUNCHER / name).read_text(encoding="utf-8"):
            continue
        if text is None or not text.startswith(_MARK):
            raise ExportError(
                f"{path} is there, and is not the launcher that tilepipe writes. Export into"
                " another directory, or replace it (replace=True, --replace)."
            )
        found = re.search(r"#define TILEPIPE_FORMAT (\d+)", text)
        if found is not None and int(found[1]) != FORMAT:
            raise ExportError(
                f"{path} is the launcher of format {found[1]}, and this version of tilepipe writes"
                f" format {FORMAT}: kernels that were exported there need theirs. Export those"
                " again and replace it (replace=True, --replace), or take another directory."
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
    old_fields, new_fields = json.loads(there.to_text()), json.loads(here.to_text())
    for name in _LAUNCH:
        was, now = old_fields[name], new_fields[name]
        if was != now:
            plain = not isinstance(was, dict | list)
            yield f"its {name} is {was}, and of this one {now}" if plain else f"its {name} differs"


def _shown(x: Tensor | Scalar | None) -> str:
    match x:
        case None:
            return "none"
        case Scalar():
            return f"{x.param.dtype} {x.value} unless given"
    extents = ", ".join(map(str, x.extents))
    strides = "" if x.strides is None else f" with strides {x.strides}"
    zeros = ", zeros at the start" if x.zero else ""
    return f"{x.param.dtype} ({extents}){strides}{zeros}"
