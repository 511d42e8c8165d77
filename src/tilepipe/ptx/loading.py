"""Reading the kernels of a PTX file."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from tilepipe.errors import PtxError
from tilepipe.ptx.launch import Kernel
from tilepipe.ptx.limits import chip_of
from tilepipe.ptx.syntax import parser

_MOST_NAMED = 12  # entry points in a message
_LENGTH = re.compile(r"[0-9]{1,4}")


class Kernels(dict[str, Kernel]):
    """The entry points of a PTX text, by name. A part of a name stands for the only entry point
    that has it: `kernels["gemm"]` finds `_Z4gemmPKfS0_Pf`.

    Attributes:
        file: the path of the text, or "<ptx>".
    """

    def __init__(self, kernels: dict[str, Kernel], file: str) -> None:
        super().__init__(kernels)
        self.file = file

    def __missing__(self, part: str) -> Kernel:
        found = [name for name in self if part in name or part in readable_name(name)]
        if len(found) == 1:
            return self[found[0]]
        if found:
            raise PtxError(f"{self.file}: '{part}' is in the names of {_named(found)}")
        near = difflib.get_close_matches(part, self, 1)
        hint = f"; did you mean '{near[0]}'?" if near else "."
        raise PtxError(f"{self.file}: no entry point '{part}'{hint} It has {_named(list(self))}")

    def only(self) -> Kernel:
        """The only entry point.

        Raises:
            PtxError: there is none, or more than one.
        """
        if len(self) != 1:
            raise PtxError(
                f"{self.file}: expected one entry point, and it has {_named(list(self))}"
            )
        return next(iter(self.values()))


def load(source: str | bytes | Path) -> Kernels:
    """The kernels of a PTX file, or of a PTX text, by name.

    Raises:
        PtxError: the text cannot be read, or is for a GPU that is not simulated.
    """
    if isinstance(source, bytes):
        source = source.rstrip(b"\0").decode("utf-8", "replace") + "\n"
    if isinstance(source, Path) or "\n" not in source:
        path = Path(source)
        try:
            with path.open("rb") as file:
                text = file.read(parser.MOST_BYTES + 1).decode("utf-8", "replace")
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else error
            raise PtxError(f"{shown_name(str(path))}: {said}") from None
        try:
            return _kernels(text, str(path))
        except PtxError as error:
            raise PtxError(f"{path}: {error}") from None
    return _kernels(source, "<ptx>")


def _kernels(text: str, file: str) -> Kernels:
    module = parser.parse(text)
    chip_of(module.targets)
    return Kernels({f.name: Kernel(module, f, file) for f in module.entries}, file)


def readable_name(name: str) -> str:
    """The name of a C++ function without its types: `cutlass::device_kernel` of
    `_ZN7cutlass13device_kernelI...` (Itanium C++ ABI, "Mangling"); any other name as it is.
    """
    if not name.startswith("_Z"):
        return name
    nested = name[2:3] == "N"
    at = 3 if nested else 2
    if name[at : at + 1] == "L":  # of internal linkage
        at += 1
    parts: list[str] = []
    while (length := _LENGTH.match(name, at)) and (nested or not parts):
        end = length.end() + int(length[0])
        if end > len(name):
            break
        parts.append(name[length.end() : end])
        at = end
    return "::".join(parts) or name


def shown_name(name: str) -> str:
    """A name in a message: cut in the middle where it is as long as those of templates."""
    return name if len(name) <= 120 else f"{name[:80]}...{name[-37:]}"


def _named(names: list[str]) -> str:
    """`2 entry points: f (_Z1fv), g`"""
    listed = []
    for name in names[:_MOST_NAMED]:
        readable = readable_name(name)
        listed.append(shown_name(name) if readable == name else f"{readable} ({shown_name(name)})")
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    count = f"{len(names) or 'no'} entry point{'' if len(names) == 1 else 's'}"
    return f"{count}{': ' if listed else ''}{', '.join(listed)}{more}"
