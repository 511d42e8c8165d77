"""The chain of what each CTA's end had to wait for, back to its start: the critical path.

From the end of what ends last it leads back to the wait before it of the same agent, from there to
the copy, the MMA or the agent that ended that wait, and so on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from tilepipe.timeline.events import Event

_SAME_US = 1e-6  # times that differ by less are one
_Agent = tuple[int, str, str]
_Ended = tuple[_Agent, str, str, float]  # who, op, line, end


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a critical path.

    Attributes:
        what: "tma_load: queued", "tma_load: moving" and "tma_load: latency" of a copy; the op of an
            MMA; "load at work" of what an agent of a role does between its waits; "signals", from
            an arrival to the end of the wait, on a GPU; "load waits", where nobody is known who
            ended a wait.
        cta, at: the CTA, and the line of the copy or the MMA, "" of an agent.
        begin_us, end_us: from when to when.
    """

    what: str
    cta: int
    at: str
    begin_us: float
    end_us: float

    @property
    def us(self) -> float:
        return self.end_us - self.begin_us


class _Index:
    """Finds events by who ended what, when."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.waits: dict[_Agent, list[Event]] = {}
        self.units: dict[_Ended, Event] = {}
        # CTA -> its MMAs by the time at which they end
        self.mmas: dict[tuple[int, float], Event] = {}
        for e in events:
            if e.wait is not None:
                self.waits.setdefault(_who(e), []).append(e)
                continue
            self.units[_who(e), e.op, e.at, _time(e.end_us)] = e
            if e.kind == "mma":
                self.mmas[e.cta, _time(e.end_us)] = e
        for waits in self.waits.values():
            waits.sort(key=lambda e: e.end_us)
        self._ends = {who: [e.end_us for e in waits] for who, waits in self.waits.items()}

    def wait_before(self, who: _Agent, us: float) -> Event | None:
        """The last wait of an agent that is over by then."""
        n = bisect_right(self._ends.get(who, []), us + _SAME_US)
        return self.waits[who][n - 1] if n else None


def critical_path(events: Sequence[Event], cta: int) -> list[Segment]:
    """The segments of a CTA's critical path, from its start on. Empty where nothing is known."""
    mine = [e for e in events if e.cta == cta]
    if not mine:
        return []
    index = _Index(events)
    last = max(mine, key=lambda e: e.end_us)
    found: list[Segment] = []
    who, us = _who(last), last.end_us
    if last.wait is None:
        who, us = _through(last, index, found)
    for _ in range(2 * len(events)):  # each step leads to an earlier time, or to another agent
        wait = index.wait_before(who, us)
        since = 0.0 if wait is None else wait.end_us
        if us - since > _SAME_US:
            found.append(Segment(f"{who[1]} at work", who[0], "", since, us))
        if wait is None or wait.wait is None:
            break
        by = wait.wait.released_by
        if by is None:  # who ended it is not known: the agent waited
            found.append(Segment(f"{who[1]} waits", who[0], wait.at, wait.begin_us, wait.end_us))
            us = wait.begin_us
            continue
        released = (by.cta, by.role, by.part), by.op, by.at, _time(by.time_us)
        unit = index.units.get(released)
        before = who, us
        if unit is None:
            who, us = released[0], min(by.time_us, wait.end_us)
            if wait.end_us - us > _SAME_US:
                found.append(Segment("signals", wait.cta, wait.at, us, wait.end_us))
        else:
            who, us = _through(unit, index, found)
        if (who, us) == before:
            break
        if us <= _SAME_US:
            break
    return found[::-1]


def _through(unit: Event, index: _Index, found: list[Segment]) -> tuple[_Agent, float]:
    """Adds a copy, or an MMA with those that it stood in line behind; returns who issued it, and
    when.
    """
    if unit.kind == "mma":
        while True:
            found.append(Segment(unit.op, unit.cta, unit.at, unit.begin_us, unit.end_us))
            before = index.mmas.get((unit.cta, _time(unit.begin_us)))
            if before is None or before.begin_us >= unit.begin_us:
                return _who(unit), unit.begin_us
            unit = before
    begins, moved = unit.unit_us
    if not unit.begin_us <= begins <= moved <= unit.end_us + _SAME_US:  # it occupies no unit
        found.append(Segment(f"{unit.op}: latency", unit.cta, unit.at, unit.begin_us, unit.end_us))
        return _who(unit), unit.begin_us
    for what, since, until in (
        ("latency", moved, unit.end_us),
        ("moving", begins, moved),
        ("queued", unit.begin_us, begins),
    ):
        if until - since > _SAME_US:
            found.append(Segment(f"{unit.op}: {what}", unit.cta, unit.at, since, until))
    return _who(unit), unit.begin_us


def _who(e: Event) -> _Agent:
    return e.cta, e.role, e.part


def _time(us: float) -> float:
    return round(us, 6)
