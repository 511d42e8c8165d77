"""Asynchronous units that act in the order in which they were issued: wgmma groups, the tcgen05 ops
of one thread.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tilepipe.machine.machine import Machine


class Unit(Protocol):
    """What acts once, some time after its issue."""

    def run(self, m: Machine) -> None:
        """Acts."""


class UnitQueue:
    """Stands among the machine's pending units once for each unit in it: whichever is picked, the
    oldest acts.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: deque[Unit] = deque()

    def issue(self, m: Machine, unit: Unit) -> None:
        """The unit may act from now on, after those before it."""
        self.waiting.append(unit)
        m.pending.append(self)

    def run(self, m: Machine) -> None:
        """The oldest unit acts."""
        self.waiting.popleft().run(m)
