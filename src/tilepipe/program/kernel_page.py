"""What a notebook shows of a kernel that is not bound yet: what it takes, and how to bind it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path

from tilepipe import markup
from tilepipe.host_arguments import shown

Function = Callable[..., object]  # of a kernel


def bind_call(function: Function) -> str:
    """The call that binds a kernel: `double.bind(a, b, stages=...)`. A static parameter with a
    default is left out.
    """
    parameters = _parameters(function)
    arrays = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    needed = [
        f"{p.name}=..." for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty
    ]
    return f"{function.__name__}.bind({', '.join([*arrays, *needed])})"


def place(function: Function) -> str:
    """The line of a kernel's function: `gemm.py:31`."""
    code = function.__code__
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}"


def part(function: Function) -> str:
    """The page of a kernel, for a notebook."""
    doc = inspect.getdoc(function) or ""
    return markup.part(
        markup.text(f"kernel {function.__name__}, not bound yet ({place(function)})", "h4"),
        markup.text(doc, "pre") if doc else "",
        markup.table("", ("parameter", "takes"), _rows(function)),
        markup.text(
            f"{bind_call(function)} is a program: run() simulates it, check() tries all its"
            " interleavings, launch() needs a GPU."
        ),
    )


def _rows(function: Function) -> Iterable[tuple[str, str]]:
    for p in _parameters(function):
        if p.kind is not p.KEYWORD_ONLY:
            yield p.name, "an array, a tensor map, a number or None"
        elif p.default is p.empty:
            yield f"{p.name}=", "known while it is traced"
        else:
            yield f"{p.name}=", f"known while it is traced; {shown(p.default)} unless given"


def _parameters(function: Function) -> list[inspect.Parameter]:
    """Those of the function after ctx."""
    return list(inspect.signature(function).parameters.values())[1:]
