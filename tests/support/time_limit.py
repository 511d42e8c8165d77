"""A limit on the wall-clock time of a piece of a test."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TimeLimitExceeded(BaseException):
    """Raised wherever the code is when the limit expires; no `except Exception` swallows it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeLimitExceeded in code that takes longer. Only in the main thread of a process."""

    def expire(_number: int, _frame: FrameType | None) -> None:
        raise TimeLimitExceeded(f"it has not ended after {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
