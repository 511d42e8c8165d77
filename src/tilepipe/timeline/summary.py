"""What a timeline says in a few numbers: how long roles wait and for what, how busy units are, how
many stages of a ring are filled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilepipe.timeline.events import Event, Phase

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Waited:
    """The waits of a role for one thing. `on`: as of `Wait`. `own`: for copies or MMAs that the
    agent had issued itself. `us`: of all its agents together. `part`: of the agents' time.
    """

    on: str
    own: bool
    count: int
    us: float
    part: float


@dataclass(frozen=True, slots=True)
class RoleSummary:
    """What the agents of a role do, over the CTAs of a timeline.

    Attributes:
        agents: of all CTAs, that did something which takes time.
        busy: the part of their time in which they have a copy or an MMA in flight.
        waiting: the part in which they wait, which may be for those copies and MMAs.
        waits: for what, longest first.
    """

    role: str
    agents: int
    busy: float
    waiting: float
    waits: tuple[Waited, ...]


@dataclass(frozen=True, slots=True)
class UnitSummary:
    """The copies or MMAs of one kind. `mean_us`: from issue to completion. `busy`: the part of the
    CTAs' time in which one is in flight.
    """

    op: str
    count: int
    mean_us: float
    busy: float


@dataclass(frozen=True, slots=True)
class Utilisation:
    """When the TMA unit and the tensor cores of a CTA are occupied, without the latency of copies.

    Attributes:
        cta: its number. us: from its start to its last completion.
        tensor, tma: intervals, in order, which do not overlap.
    """

    cta: int
    us: float
    tensor: tuple[Interval, ...]
    tma: tuple[Interval, ...]

    @property
    def tensor_busy(self) -> float:
        """The part of the CTA's time in which its tensor cores are occupied."""
        return _length(self.tensor) / self.us if self.us else 0.0

    @property
    def tma_busy(self) -> float:
        """The part of the CTA's time in which its TMA unit is occupied."""
        return _length(self.tma) / self.us if self.us else 0.0


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How many stages of a ring are filled: their data are there, and not yet released.

    Attributes:
        steps: (time in µs, filled stages from then on), in order.
    """

    cta: int
    ring: str
    stages: int
    steps: tuple[tuple[float, int], ...]


def durations(events: Iterable[Event]) -> dict[int, float]:
    """For each CTA the microseconds from its start to its last completion."""
    ends: dict[int, float] = {}
    for e in events:
        ends[e.cta] = max(ends.get(e.cta, 0.0), e.end_us)
    return dict(sorted(ends.items()))


def roles(events: Sequence[Event]) -> list[RoleSummary]:
    """One for each role, in the order of their first events."""
    ends = durations(events)
    mine: dict[str, dict[tuple[int, str], list[Event]]] = {}
    for e in events:
        mine.setdefault(e.role, {}).setdefault((e.cta, e.part), []).append(e)
    found = []
    for role, agents in mine.items():
        total = sum(ends[cta] for cta, _ in agents) or 1.0
        busy = waiting = 0.0
        on: dict[tuple[str, bool], tuple[int, float]] = {}
        for own in agents.values():
            busy += _length(union((e.begin_us, e.end_us) for e in own if e.wait is None))
            for e in own:
                if e.wait is not None:
                    key = e.wait.on, e.wait.own
                    count, us = on.get(key, (0, 0.0))
                    on[key] = count + 1, us + e.us
                    waiting += e.us
        waits = [Waited(*key, count, us, us / total) for key, (count, us) in on.items()]
        waits.sort(key=lambda x: (-x.us, x.on))
        found.append(RoleSummary(role, len(agents), busy / total, waiting / total, tuple(waits)))
    return found


def units(events: Sequence[Event]) -> list[UnitSummary]:
    """One for each kind of copy or MMA."""
    ends = durations(events)
    total = sum(ends.values()) or 1.0
    found = []
    for op in dict.fromkeys(e.op for e in events if e.wait is None):
        mine = [e for e in events if e.op == op and e.wait is None]
        by_cta: dict[int, list[Interval]] = {}
        for e in mine:
            by_cta.setdefault(e.cta, []).append((e.begin_us, e.end_us))
        busy = sum(_length(union(intervals)) for intervals in by_cta.values())
        mean = sum(e.us for e in mine) / len(mine)
        found.append(UnitSummary(op, len(mine), mean, busy / total))
    return found


def utilisation(events: Sequence[Event]) -> list[Utilisation]:
    """One for each CTA."""
    ends = durations(events)
    tensor: dict[int, list[Interval]] = {cta: [] for cta in ends}
    tma: dict[int, list[Interval]] = {cta: [] for cta in ends}
    for e in events:
        for cta in e.unit_ctas:
            if cta in ends:
                (tensor if e.kind == "mma" else tma)[cta].append(e.unit_us)
    return [
        Utilisation(cta, us, tuple(union(tensor[cta])), tuple(union(tma[cta])))
        for cta, us in ends.items()
    ]


def occupancy(phases: Sequence[Phase]) -> list[Occupancy]:
    """One for each CTA and ring."""
    rings: dict[tuple[int, str], list[Phase]] = {}
    for phase in phases:
        if phase.ring:
            rings.setdefault((phase.cta, phase.ring), []).append(phase)
    found = []
    for (cta, ring), mine in sorted(rings.items(), key=lambda x: x[0][0]):
        filled: set[int] = set()
        steps: list[tuple[float, int]] = []
        for phase in sorted(mine, key=lambda x: (x.time_us, x.fills)):
            if phase.fills:
                filled.add(phase.stage)
            else:
                filled.discard(phase.stage)
            if steps and steps[-1][0] == phase.time_us:
                steps.pop()
            if not steps or steps[-1][1] != len(filled):
                steps.append((phase.time_us, len(filled)))
        if any(phase.fills for phase in mine):
            found.append(Occupancy(cta, ring, mine[0].stages, tuple(steps)))
    return found


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The time that intervals cover, as intervals in order that do not overlap."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - begin for begin, end in intervals)
