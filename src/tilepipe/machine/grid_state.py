"""The clusters of a launch that have not started, and the requests of one cluster to the grid."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tilepipe.machine.agents import Agent
from tilepipe.machine.sites import Site

_REFUSES = 1 / 8  # probability that a seed refuses a try_cancel although clusters are left
REPEATED = -1  # of `GridRequests.waited`


class Clusters:
    """The clusters of a launch that have neither started nor been cancelled, in the order in which
    they would start.

    Attributes:
        random: None for seed 0, which never refuses a request.
        decide: in an exploration, whether to grant a request that can be granted; agents then
            perform the ops that they ask for without waiting for the grid.
        resident: how many run at once, where that is known.
    """

    def __init__(self, order: list[int], random: Random | None) -> None:
        self.waiting = deque(order)
        self.random = random
        self.cancelled = 0
        self.resident = 0
        self.decide: Callable[[], bool] | None = None

    def cancel(self) -> int | None:
        """Takes a cluster off the list, so that it never starts. None: the request is refused, as
        it always is once all have started.
        """
        if not self.waiting or (self.random is not None and self.random.random() < _REFUSES):
            return None
        if self.decide is not None and not self.decide():
            return None
        self.cancelled += 1
        return self.waiting.popleft()


@dataclass(eq=False, slots=True)
class GridRequests:
    """The requests of one running cluster to the grid.

    Attributes:
        asking: agents that wait for permission to perform an op. granted: the one that has it.
        haste: the probability that an agent performs such an op without asking.
        refused: the bit of the first response that refused a request; 0 before it. refused_at: the
            site of that request.
        waited: the bit of the first grid_dependency_wait; 0 before it. REPEATED: the cluster
            repeats another, in which all writes came after it.
    """

    asking: list[Agent] = field(default_factory=list)
    granted: Agent | None = None
    haste: float = 0.0
    refused: int = 0
    refused_at: Site | None = None
    waited: int = 0
