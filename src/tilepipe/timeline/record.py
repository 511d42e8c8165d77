"""What is recorded of a run, and its sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from tilepipe.errors import BindError
from tilepipe.host_arguments import require_int
from tilepipe.timeline import summary
from tilepipe.timeline.bubbles import Bubbles, bubbles
from tilepipe.timeline.critical_path import Segment, critical_path
from tilepipe.timeline.events import Event, Phase


@dataclass(frozen=True, slots=True)
class Measured:
    """Where a timeline was measured.

    Attributes:
        device: its name. clock_ghz: of its SMs, in this run.
        us: from the begin of the first role to the end of the last one, of the recorded CTAs.
        lost: stamps for which there was no room: what would come after the last ones is missing.
    """

    device: str
    clock_ghz: float
    us: float
    lost: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The fault in which a recorded run ended.

    Attributes:
        message: of the fault.
        steps: those that lead to it, where a check has found them: (agent, op, line, effect).
    """

    message: str
    steps: tuple[tuple[str, str, str, str], ...] = ()


@dataclass(frozen=True, repr=False)
class Record:
    """What is recorded of a run, in microseconds since each CTA started.

    Times of a simulated run are those of the cost model (`machine.cost`): copies and MMAs take
    time, and so do round trips of atomic operations; arithmetic in registers, and instructions
    between waits, take none. Those of a run on a GPU are measured.

    Attributes:
        name: of the kernel. grid: CTAs of the launch, of which `ctas` are recorded, the first ones.
        events: copies, MMAs, and waits that blocked; in the order of their beginnings, CTA by CTA.
        phases: the phases of mbarriers that completed, in the order of their times, CTA by CTA.
        simulated_us: of the whole launch; None where it was not simulated.
        measured: where it was measured; None where it was simulated.
        fault: in which it ended; None where it ended well.
    """

    name: str
    grid: int
    ctas: int
    events: tuple[Event, ...]
    phases: tuple[Phase, ...]
    simulated_us: float | None
    measured: Measured | None = None
    fault: Stopped | None = None

    @classmethod
    def of(
        cls,
        name: str,
        grid: int,
        ctas: int,
        events: list[Event],
        phases: list[Phase],
        simulated_us: float | None,
        measured: Measured | None = None,
    ) -> Self:
        """A timeline of events and phases in any order."""
        events = sorted(events, key=lambda e: (e.cta, e.begin_us, e.end_us))
        phases = sorted(phases, key=lambda p: (p.cta, p.time_us))
        return cls(name, grid, ctas, tuple(events), tuple(phases), simulated_us, measured)

    def __repr__(self) -> str:
        where = "" if self.measured is None else f" on {self.measured.device}"
        return f"<Timeline of {self.name}{where}: {self.ctas} CTAs, {len(self.events):,} events>"

    def roles(self) -> list[summary.RoleSummary]:
        """How long each role has copies and MMAs in flight, and waits, and for what."""
        return summary.roles(self.events)

    def units(self) -> list[summary.UnitSummary]:
        """How many copies and MMAs of each kind there are, and how long they take."""
        return summary.units(self.events)

    def utilisation(self) -> list[summary.Utilisation]:
        """When the TMA unit and the tensor cores of each CTA are occupied."""
        return summary.utilisation(self.events)

    def bubbles(self) -> list[Bubbles]:
        """When the tensor cores of each CTA are idle, and what is waited for then."""
        return bubbles(self.events)

    def critical_path(self, cta: int = 0) -> list[Segment]:
        """What the end of a CTA had to wait for, one after another, from its start on.

        Raises:
            BindError: the CTA is not one of the `ctas` recorded ones, which count from 0.
        """
        cta = require_int(cta, f"cta, one of the {self.ctas} recorded of {self.name},", 0)
        if cta >= self.ctas:
            more = f"; record more with timeline={cta + 1}, or ctas={cta + 1} of program.record()"
            raise BindError(
                f"CTA {cta} of {self.name} was not recorded: the timeline has {self.ctas} of"
                f" {self.grid} CTAs, from 0 on{more if cta < self.grid else ''}"
            )
        return critical_path(self.events, cta)

    def occupancy(self) -> list[summary.Occupancy]:
        """How many stages of each ring are filled, over time."""
        return summary.occupancy(self.phases)
