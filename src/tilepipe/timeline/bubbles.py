"""When the tensor cores have nothing to do, and what those who feed them wait for then."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tilepipe.timeline.events import Event
from tilepipe.timeline.summary import Interval, durations, union


@dataclass(frozen=True, slots=True)
class Bubbles:
    """The idle time of the tensor cores of a CTA.

    Attributes:
        before, between, after: the parts of the CTA's time before the first MMA, between MMAs, and
            after the last one.
        longest: the longest between two MMAs.
        waits: what the agents that issue MMAs wait for between MMAs, and in which part of the CTA's
            time, longest first; (on, own, part). Agents that wait at the same time count once.
    """

    cta: int
    before: float
    between: float
    after: float
    longest: Interval
    waits: tuple[tuple[str, bool, float], ...]


def bubbles(events: Sequence[Event]) -> list[Bubbles]:
    """One for each CTA that has MMAs."""
    found = []
    for cta, us in durations(events).items():
        mine = [e for e in events if e.cta == cta]
        busy = union(e.unit_us for e in events if e.kind == "mma" and cta in e.unit_ctas)
        if not busy or not us:
            continue
        gaps = [(a[1], b[0]) for a, b in itertools.pairwise(busy)]
        roles = {e.role for e in mine if e.kind == "mma"}
        on: dict[tuple[str, bool], list[Interval]] = {}
        for e in mine:
            if e.wait is not None and e.role in roles:
                on.setdefault((e.wait.on, e.wait.own), []).append((e.begin_us, e.end_us))
        waits = [(*key, _common(union(times), gaps) / us) for key, times in on.items()]
        found.append(
            Bubbles(
                cta,
                busy[0][0] / us,
                sum(end - begin for begin, end in gaps) / us,
                max(us - busy[-1][1], 0.0) / us,
                max(gaps, key=lambda gap: gap[1] - gap[0], default=(0.0, 0.0)),
                tuple(sorted((w for w in waits if w[2] > 0), key=lambda w: -w[2])),
            )
        )
    return found


def _common(one: Sequence[Interval], other: Sequence[Interval]) -> float:
    """How long two lists of intervals in order have in common."""
    total, i, j = 0.0, 0, 0
    while i < len(one) and j < len(other):
        total += max(min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]), 0.0)
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return total
