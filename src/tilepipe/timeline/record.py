"""What is recorded of a run, and its sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tilepipe.timeline import summary
from tilepipe.timeline.events import Event, Phase


@dataclass(frozen=True, repr=False)
class Record:
    """What is recorded of a simulated run, in microseconds since each CTA started.

    Times are those of the cost model (`machine.cost`): copies and MMAs take time, and so do round
    trips of atomic operations; arithmetic in registers, and instructions between waits, take none.

    Attributes:
        name: of the kernel. grid: CTAs of the launch, of which `ctas` are recorded, the first ones.
        events: copies, MMAs, and waits that blocked; in the order of their beginnings, CTA by CTA.
        phases: the phases of mbarriers that completed, in the order of their times, CTA by CTA.
        simulated_us: of the whole launch.
    """

    name: str
    grid: int
    ctas: int
    events: tuple[Event, ...]
    phases: tuple[Phase, ...]
    simulated_us: float

    @classmethod
    def of(
        cls,
        name: str,
        grid: int,
        ctas: int,
        events: list[Event],
        phases: list[Phase],
        simulated_us: float,
    ) -> Self:
        """A timeline of events and phases in any order."""
        events = sorted(events, key=lambda e: (e.cta, e.begin_us, e.end_us))
        phases = sorted(phases, key=lambda p: (p.cta, p.time_us))
        return cls(name, grid, ctas, tuple(events), tuple(phases), simulated_us)

    def __repr__(self) -> str:
        return f"<Timeline of {self.name}: {self.ctas} CTAs, {len(self.events):,} events>"

    def roles(self) -> list[summary.RoleSummary]:
        """How long each role has copies and MMAs in flight, and waits, and for what."""
        return summary.roles(self.events)

    def units(self) -> list[summary.UnitSummary]:
        """How many copies and MMAs of each kind there are, and how long they take."""
        return summary.units(self.events)

    def utilisation(self) -> list[summary.Utilisation]:
        """When the TMA unit and the tensor cores of each CTA are occupied."""
        return summary.utilisation(self.events)

    def occupancy(self) -> list[summary.Occupancy]:
        """How many stages of each ring are filled, over time."""
        return summary.occupancy(self.phases)
