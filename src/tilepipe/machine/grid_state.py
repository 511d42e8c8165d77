"""What the clusters of a launch share out among them, and what one of them asks of the grid."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random

from tilepipe.machine.agents import Agent
from tilepipe.machine.sites import Site

_REFUSES = 1 / 8  # how often a try_cancel says no although clusters are left, where a seed picks


class Clusters:
    """The clusters of a launch that have neither started nor been cancelled, in the order in which
    they would start.

    `random`: None for seed 0, which never refuses. `decide`: whether a request that could be
    granted is, where someone chooses; then agents also perform what they ask for as soon as they
    are picked. `resident`: how many run at once, where that is known.
    """

    def __init__(self, order: list[int], random: Random | None) -> None:
        self.waiting = deque(order)
        self.random = random
        self.cancelled = 0
        self.resident = 0
        self.decide: Callable[[], bool] | None = None

    def cancel(self) -> int | None:
        """A cluster that now never starts; None: the request is refused, as it is when all have
        started.
        """
        if not self.waiting or (self.random is not None and self.random.random() < _REFUSES):
            return None
        if self.decide is not None and not self.decide():
            return None
        self.cancelled += 1
        return self.waiting.popleft()


class GridRequests:
    """What one running cluster has to do with the grid.

    Attributes:
        asking: agents that wait until the grid lets them perform an op. granted: the one that now
            may.
        haste: how likely an agent performs it without asking.
        refused: a bit that whoever has learnt of a response "no" knows; 0 before the first.
            refused_at: who asked then.
        waited: a bit that whoever comes after a grid_dependency_wait knows; 0 before the first.
    """

    __slots__ = ("asking", "granted", "haste", "refused", "refused_at", "waited")

    def __init__(self) -> None:
        self.asking: list[Agent] = []
        self.granted: Agent | None = None
        self.haste = 0.0
        self.refused = self.waited = 0
        self.refused_at: Site | None = None
