"""Source locations: which line of the user's kernel an op comes from."""

from __future__ import annotations

import dis
import linecache
import os
import sys
from dataclasses import dataclass
from itertools import dropwhile, islice
from types import CodeType, FrameType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
# Frames of these subpackages are the library's; every other frame (kernels/ and ops/ included) is a
# user's.
_LIBRARY = tuple(os.path.join(_PACKAGE, part) for part in ("lang", "pipelines", "ir", "program"))


@dataclass(frozen=True, slots=True)
class Loc:
    """A line of source: `file` as Python reports it, `line` from 1, `function` the enclosing
    def. `inside`: where a compiler has inlined what the line calls, the line in the called
    function that is meant; it may be a call, too.
    """

    file: str
    line: int
    function: str = ""
    inside: Loc | None = None

    def __str__(self) -> str:
        text = f": {self.source}" if self.source else ""
        calls = f" (inlined: {self.inside.short})" if self.inside is not None else ""
        return f"{self.file}:{self.line}{text}{calls}"

    @property
    def short(self) -> str:
        """`gemm.py:41`, for tables and comments; `gemm.cu:41 > tma.h:7` where line 7 is inlined in
        line 41, with the last two where there are many.
        """
        places = [self]
        while (inside := places[-1].inside) is not None:
            places.append(inside)
        names = [f"{os.path.basename(p.file)}:{p.line}" for p in places]
        return " > ".join(names if len(names) < 4 else [names[0], "...", *names[-2:]])

    @property
    def source(self) -> str:
        """The text of the line, stripped; empty where Python does not have it."""
        return linecache.getline(self.file, self.line).strip()


def call_text(frame: FrameType) -> str:
    """The call that a frame of a file outside this package is in the middle of, as its source says;
    empty where that is longer than a line, or Python does not have it.
    """
    code = frame.f_code
    if code.co_filename.startswith(_PACKAGE):
        return ""
    positions = next(islice(code.co_positions(), frame.f_lasti // 2, None), None)
    if positions is None:
        return ""
    first, last, start, stop = positions
    if first is None or first != last or start is None or stop is None:
        return ""
    line = linecache.getline(code.co_filename, first).encode()  # columns count bytes
    return line[start:stop].decode(errors="replace").strip()


def assigned_to() -> str:
    """The variable to which the user's line assigns what the call that it is in gives; empty where
    it does something else with it. Of `a, b = f(), g()` the last is known, where it is one of three
    or fewer.
    """
    frame = users_frame()
    if frame is None:
        return ""
    code, at = frame.f_code, frame.f_lasti
    key = code, at
    if key not in _assigned:
        _assigned[key] = _stored(code, at)
    return _assigned[key]


def _stored(code: CodeType, at: int) -> str:
    after = dropwhile(lambda one: one.offset <= at, dis.get_instructions(code))
    names: list[str] = []
    wanted = 1
    for one in after:
        if one.opname == "SWAP" and not names:
            wanted = max(wanted, one.arg or 1)
        elif one.opname in ("STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_GLOBAL"):
            names.append(str(one.argval))
            if len(names) == wanted:
                return names[-1]
        elif one.opname != "COPY":  # of `a = b = f()`
            break
    return ""


_assigned: dict[tuple[CodeType, int], str] = {}


def is_library_file(filename: str) -> bool:
    """True if a code file belongs to tilepipe's own tracing machinery."""
    return filename.startswith(_LIBRARY)


_is_library: dict[str, bool] = {}


def _generated(code: CodeType) -> bool:
    """True if `dataclasses` has written a function: it compiles them as `<string>`, as which a
    user's own `exec` and `python -c` run, too, but each inside a function of this name.
    """
    return code.co_filename == "<string>" and code.co_qualname.startswith("__create_fn__.")


def caller() -> Loc:
    """The nearest frame outside the library: the user's line that caused what is being traced."""
    frame = users_frame()
    if frame is None:
        return Loc("<unknown>", 0)
    return Loc(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def users_frame() -> FrameType | None:
    """The nearest frame outside the library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        library = _is_library.get(filename)
        if library is None:
            library = _is_library[filename] = is_library_file(filename) or filename.endswith(
                "contextlib.py"
            )
        if not library and not _generated(frame.f_code):
            return frame
        frame = frame.f_back
    return None
