"""Loops that look at memory until another agent changes it.

An agent that looks again at the same bytes, by the same strong load or atomic operation, and finds
what it found before, lets the others go first. When every remaining agent of a cluster is polling,
each is run once around its loop: if its body is then where it was and no step could have changed
anything, it can only go on once something else changes what it looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.machine.sites import Site

Bytes = npt.NDArray[np.uint8]
Writers = frozenset[tuple[int, int, int]]  # (cluster, agent, site) of each write
_ROUNDS = 64  # states of a body that are kept, to find that it is back at one of them


@dataclass(eq=False, slots=True)
class Look:
    """The last look of an agent at some bytes by one op: which threads looked where, and what they
    found. `name`: of what it looks at. `writers`: what has written these bytes, where known.
    """

    mask: int
    where: npt.NDArray[np.int64]
    found: Bytes
    name: Callable[[], str]
    lane: int
    writers: Callable[[], Writers] | None = None

    @property
    def of_lanes(self) -> tuple[npt.NDArray[np.int64], Bytes]:
        """For each thread, where it looked and what it found."""
        return self.where, self.found

    @property
    def value(self) -> str:
        """The value that the first thread found, for messages."""
        row = self.found[self.lane]
        return str(int.from_bytes(row.tobytes(), "little")) if len(row) <= 8 else "what it held"


class Looks:
    """The looks of an agent.

    Attributes:
        last: site -> the last look there. polled: (site, look) of the latest look, where it found
            what an earlier one had found. rounds: the positions of the body at such looks since
            something has changed.
    """

    __slots__ = ("last", "polled", "rounds")

    def __init__(self) -> None:
        self.last: dict[int, Look] = {}
        self.rounds: list[Any] = []
        self.polled: tuple[Site, Look] | None = None

    def __str__(self) -> str:
        """`polls 'flags' + 128 at kernel.cu:12, which holds 0`; "" where it polls nothing."""
        if self.polled is None:
            return ""
        site, look = self.polled
        return f"polls {look.name()} at {site.loc.short}, which holds {look.value}"

    def again(
        self, site: Site, mask: int, lanes: list[int], where: Any, found: Bytes,
        name: Callable[[], str], writers: Callable[[], Writers] | None = None,
    ) -> bool:  # fmt: skip
        """True if threads find what they found by their last look at the same bytes."""
        before = self.last.get(site.id)
        at = np.asarray(where).astype(np.int64)
        same = (
            before is not None
            and mask & ~before.mask == 0
            and bool((before.where[lanes] == at[lanes]).all())
            and bool((before.found[lanes] == found[lanes]).all())
        )
        if same and before is not None:
            before.lane = lanes[0]
            self.polled = site, before
            return True
        self.polled = None
        self.last[site.id] = Look(mask, at, found, name, lanes[0], writers)
        return False

    def forget(self) -> None:
        """The next look at anything counts as the first, except in messages."""
        for look in self.last.values():
            look.mask = 0

    def back(self, state: Any) -> bool:
        """True if the body is where it was at an earlier such look; remembers this one."""
        if state in self.rounds:
            return True
        if len(self.rounds) >= _ROUNDS:
            self.rounds.clear()
        self.rounds.append(state)
        return False
