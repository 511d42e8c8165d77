"""Reading the kernels of a PTX file."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Protocol

from tilepipe.errors import PtxError
from tilepipe.host_arguments import shown
from tilepipe.ptx.launch import Kernel
from tilepipe.ptx.limits import chip_of
from tilepipe.ptx.names import readable_name, shown_name
from tilepipe.ptx.syntax import parser

_MOST_NAMED = 12  # entry points in a message
# How cubins (ELF) and fat binaries begin
_MACHINE_CODE = (b"\x7fELF", b"\x50\xed\x55\xba")


class Kernels(dict[str, Kernel]):
    """The entry points of a PTX text, by name. A part of a name stands for the only entry point
    that has it: `kernels["gemm"]` finds `_Z4gemmPKfS0_Pf`.

    Attributes:
        file: the path of the text, or "<ptx>".
    """

    def __init__(self, kernels: dict[str, Kernel], file: str) -> None:
        super().__init__(kernels)
        self.file = file

    def __missing__(self, part: object) -> Kernel:
        if not isinstance(part, str) or not part:
            raise PtxError(
                f"{self.file}: an entry point is named by a part of its name, not {shown(part)}."
                f" It has {_named(list(self))}"
            )
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


class Compiled(Protocol):
    """A compiler's output that says what it is: an `ObjectCode` of cuda.core."""

    @property
    def code(self) -> str | bytes: ...  # a path, or the text
    @property
    def code_type(self) -> str: ...


def load(source: str | bytes | Path | Compiled) -> Kernels:
    """The kernels of a PTX file, or of a PTX text, by name.

    Args:
        source: a text, or its bytes as NVRTC gives them; the path of a file that nvcc has written;
            or an `ObjectCode` of cuda.core with code type "ptx".

    Raises:
        PtxError: the text cannot be read, or is for a GPU that is not simulated.
    """
    if not isinstance(source, str | bytes | Path):
        kind = getattr(source, "code_type", None)
        if kind is None:
            raise PtxError(
                "load takes a text of PTX, its bytes, the path of a file, or an ObjectCode of"
                f" cuda.core; got {type(source).__name__}"
            )
        if kind != "ptx":
            raise PtxError(f"this ObjectCode is {kind}, not PTX: compile the program to 'ptx'")
        source = source.code
    if isinstance(source, bytes):
        if source.startswith(_MACHINE_CODE):
            raise PtxError("these bytes are machine code (a cubin, or a fat binary), not PTX")
        source = _decoded(source) + "\n"
    if not source or str(source).isspace():
        raise PtxError("the text is empty")
    if isinstance(source, Path) or "\n" not in source:
        path = Path(source)
        try:
            with path.open("rb") as file:
                text = _decoded(file.read(parser.MOST_BYTES + 1))
        except (OSError, ValueError) as error:
            said = error.strerror if isinstance(error, OSError) else error
            raise PtxError(f"{shown_name(str(path))}: {said}") from None
        try:
            return _kernels(text, str(path))
        except PtxError as error:
            raise PtxError(f"{path}: {error}") from None
    return _kernels(source, "<ptx>")


def _decoded(text: bytes) -> str:
    """A text without the zero bytes that NVRTC puts at its end."""
    return text.rstrip(b"\0").decode("utf-8", "replace")


def _kernels(text: str, file: str) -> Kernels:
    module = parser.parse(text)
    chip_of(module.targets)
    return Kernels({f.name: Kernel(module, f, file) for f in module.entries}, file)


def _named(names: list[str]) -> str:
    """`2 entry points: f (_Z1fv), g`"""
    listed = []
    for name in names[:_MOST_NAMED]:
        readable = readable_name(name)
        listed.append(shown_name(name) if readable == name else f"{readable} ({shown_name(name)})")
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    count = f"{len(names) or 'no'} entry point{'' if len(names) == 1 else 's'}"
    return f"{count}{': ' if listed else ''}{', '.join(listed)}{more}"
