"""Rules of all `with` blocks of `ctx`: each must be entered, and none may be left by a jump."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from types import FrameType, TracebackType
from typing import TypeVar

from tilepipe.errors import TraceError
from tilepipe.ir.location import caller, is_library_file
from tilepipe.lang.tracing import python_source
from tilepipe.lang.tracing.tracer import Tracer

T = TypeVar("T")


class MustEnter(AbstractContextManager[T]):
    """A block that must be entered: `ctx.when(...)` that stands alone is an error."""

    def __init__(self, tracer: Tracer, what: str, block: AbstractContextManager[T]) -> None:
        self._tracer = tracer
        self._block = block
        self._used = tracer.unused(f"{what} is not entered: write `with {what}(...):`")

    def __enter__(self) -> T:
        self._tracer.require_running()
        self._used()
        return self._block.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)


def refuse_jumps(what: str, consequence: str) -> None:
    """Raises TraceError where `break`, `continue` or `return` leaves the `with` block of `what`
    that the user's frame is entering.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        is_library_file(frame.f_code.co_filename)
        or frame.f_code.co_filename.endswith("contextlib.py")
    ):
        frame = frame.f_back
    jump = python_source.leaves_block(frame) if frame is not None else None
    if jump is not None:
        raise TraceError(
            f"`{jump[0]}` at line {jump[1]} leaves a `with {what}(...)` block: {consequence}."
            " Put the rest of the body under `with ctx.otherwise():`.",
            caller(),
        )
