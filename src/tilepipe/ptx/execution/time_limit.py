"""The time limit of a run, and the search for loops that make no request and change nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilepipe.machine.machine import World

SEGMENTS = 256  # run between two readings of the time: some milliseconds
_LOOKS = 8  # readings of the time without a request, after which states are compared


@dataclass(eq=False, slots=True)
class TimeLimit:
    """The time limit of a run, which its warps share.

    Attributes:
        seconds: the limit, in processor time. deadline: the same in `time.thread_time`. left:
            segments that may run before the time is read again. world: has the deadline of a check.
    """

    seconds: float
    deadline: float
    left: int = SEGMENTS
    world: World | None = None

    @classmethod
    def of(cls, seconds: float | None) -> TimeLimit:
        """A limit that starts now; none if `seconds` is None."""
        if seconds is None:
            return cls(math.inf, math.inf)
        return cls(seconds, time.thread_time() + seconds)


class RepeatedState:
    """Finds out whether a warp that makes no request returns to an earlier state: then it loops for
    ever. It compares states at growing intervals (Brent's algorithm).
    """

    __slots__ = ("_looks", "_state", "_until")

    def __init__(self) -> None:
        self._looks = 0
        self._until = _LOOKS
        self._state: Any = None

    def is_back(self, state: Callable[[], Any]) -> bool:
        """True if the state equals the one that was kept; after a few calls only."""
        self._looks += 1
        if self._looks < _LOOKS:
            return False
        now = state()
        if now == self._state:
            return True
        if self._looks >= self._until:
            self._state = now
            self._until *= 2
        return False
