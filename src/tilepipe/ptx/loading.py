"""Reading the kernels of a PTX file."""

from __future__ import annotations

from pathlib import Path

from tilepipe.errors import PtxError
from tilepipe.ptx.launch import Kernel
from tilepipe.ptx.syntax import parser


def load(source: str | Path) -> dict[str, Kernel]:
    """The kernels of a PTX file, or of a PTX text, by name.

    Raises:
        PtxError: the text cannot be read.
    """
    if isinstance(source, Path) or "\n" not in source:
        path = Path(source)
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise PtxError(f"{path}: {error.strerror}") from None
        try:
            module, file = parser.parse(text), str(path)
        except PtxError as error:
            raise PtxError(f"{path}: {error}") from None
    else:
        module, file = parser.parse(source), "<ptx>"
    return {f.name: Kernel(module, f, file) for f in module.entries}
