"""Two groups of warps at one named barrier, with nothing that keeps them apart.

A named barrier counts warps, whoever they are. Where a warp arrives in one generation, took no part
in the one before, and does not know of every arrival there, it could have been one of those that
completed it: then warps of one group go on that have met those of the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilepipe.errors import BarrierError
from tilepipe.machine.barriers.state import Arrival, NamedState


@dataclass(eq=False, slots=True)
class MixedGroups:
    """Two groups that have met at a named barrier in turn, in this execution.

    Attributes:
        first: those that met in generation `number`. late: one that arrived in the next, and could
            have come before. second: those that met there, `late` among them; it alone until then.
    """

    barrier: NamedState
    number: int
    first: list[Arrival]
    late: Arrival
    second: list[Arrival]

    def meet(self, generation: int) -> None:
        """A generation of the barrier completes."""
        if generation == self.number + 1:
            self.second = list(self.barrier.last)

    def fault(self) -> BarrierError:
        """The fault, at the arrival that could have come before."""
        who, _, site = self.late
        return BarrierError(
            f"{site.what}: two groups of warps use {self.barrier.name} at once, which is for"
            f" {self.barrier.threads} threads.\n"
            f"  first:  {_listed(self.first)} meet there\n"
            f"  second: {_listed(self.second)} meet there\n"
            f"  Nothing orders the arrival of {who} after those of the first: where it comes before"
            " one of them, it is counted in its place, and others meet. Give each group a barrier"
            " number of its own; or let the second wait, at another barrier, until the first has"
            " met.",
            site.loc,
        )


def mixed_groups(barrier: NamedState, uid: int) -> MixedGroups | None:
    """The mixed groups that an arrival shows whose agent does not know of all arrivals in the
    generation before; None where the agent took part in that itself.
    """
    if any(arrival.agent.uid == uid for arrival in barrier.last):
        return None
    late = barrier.arrived[-1]
    return MixedGroups(barrier, barrier.generation - 1, list(barrier.last), late, [late])


def _listed(arrivals: Iterable[Arrival]) -> str:
    """`warp 0 and warp 1 at kernel.cu:12; warp 2 at kernel.cu:20`."""
    places: dict[str, list[str]] = {}
    for agent, _, site in arrivals:
        names = places.setdefault(site.loc.short, [])
        if str(agent) not in names:
            names.append(str(agent))
    return "; ".join(f"{' and '.join(names)} at {place}" for place, names in places.items())
