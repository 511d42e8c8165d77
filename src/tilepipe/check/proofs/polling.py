"""Loops that poll.

An agent that tests a barrier, or looks at memory by a strong access, in a loop waits for another
agent as soon as a round of the loop changes nothing: neither the place where it stands, nor a live
value that can come to decide something (`engine.front_end`), nor the memory that it writes. Then it
is parked until the barrier or the memory changes. So is an agent that goes round a `while` loop for
long without a visible op.

A loop that does change such a value in each round, say a count of its attempts, is followed for
`MAX_FAILED_LOOKS` polls; after that, the launch is undecided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

from tilepipe.machine.barriers.state import Mbarrier

# polls without success, one after another in different states, that are followed
MAX_FAILED_LOOKS = 32
# ops in a row that are not visible, after which a loop is watched for rounds that change nothing
SILENT_OPS = 512
Cell = tuple[int, ...]  # a tensor's number, and an element of it


class Kind(IntEnum):
    """The effect of an op on a loop that polls."""

    OTHER = 0
    TEST = 1  # try_wait
    NOTICED = 2  # another visible op: a round with one has an effect
    SILENT = 3  # in a `while` loop, and not visible
    # an access to memory that others may change; it only reads if it finds what it found
    STRONG = 4


@dataclass(eq=False, slots=True)
class Poll:
    """The polls of an agent since its last op with a visible effect.

    Attributes:
        seen: digests of the states in which it has polled.
        bars, cells: the barriers and elements that it has polled.
        site, mark, left, span: the state with which silent rounds are compared: its op, its digest,
            for how many more rounds it is kept, and for how many it is kept in all (Brent's
            algorithm: the span doubles, so that a cycle of any length is found).
        strange: ops at other sites since that state was last compared.
    """

    seen: set[bytes] = field(default_factory=set)
    bars: list[Mbarrier] = field(default_factory=list)
    cells: set[Cell] = field(default_factory=set)
    site: int = -1
    mark: bytes = b""
    left: int = 0
    span: int = 1
    strange: int = 0

    def again(self, state: bytes) -> bool:
        """True if the agent has polled in this state before; records the state."""
        if state in self.seen:
            return True
        self.seen.add(state)
        return False

    def repeats(self, site: int, state: Callable[[], bytes]) -> bool:
        """True if a silent round has come back to the kept state."""
        if self.site != site and self.site >= 0 and self.strange < SILENT_OPS:
            self.strange += 1
            return False
        now = state()
        if self.site == site and self.mark == now:
            return True
        self.left -= 1
        if self.site != site or self.left < 0:
            self.site, self.mark = site, now
            self.span = min(2 * self.span, 1 << 30)
            self.left = self.span
        self.strange = 0
        return False
