"""Lines of a kernel that an instance never reaches: a verdict says nothing about them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

_MOST = 8  # places that are listed for people


class Line(NamedTuple):
    """A line of source that holds ops of a role; the role "" is the set-up."""

    file: str
    number: int
    role: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the executions of one instance, or of several, have reached.

    Attributes:
        reached: the lines with an op that was performed, or a loop or a branch that was come to.
        unreached: all others that hold ops, each with the reason.
    """

    reached: frozenset[Line] = frozenset()
    unreached: dict[Line, str] = field(default_factory=dict)

    def __or__(self, other: Coverage) -> Coverage:
        """What instances of one kernel, or of several, have reached together."""
        reached = self.reached | other.reached
        every = {**self.unreached, **other.unreached}  # the reasons of the later, larger instance
        return Coverage(reached, {line: why for line, why in every.items() if line not in reached})

    def places(self) -> list[Unreached]:
        """The lines that nothing has reached, as ranges."""
        found: list[Unreached] = []
        among = {(line.file, line.number) for line in self.reached}
        for line, why in sorted(self.unreached.items()):
            last = found[-1] if found else None
            if (
                last is not None
                and (last.file, last.role, last.why) == (line.file, line.role, why)
                and not any((line.file, n) in among for n in range(last.last, line.number))
            ):
                found[-1] = last._replace(last=line.number)
            else:
                found.append(Unreached(line.file, line.number, line.number, line.role, why))
        return found


class Unreached(NamedTuple):
    """Lines of one role that nothing has reached, from `first` to `last`, and why."""

    file: str
    first: int
    last: int
    role: str
    why: str

    @property
    def lines(self) -> str:
        """`gemm.py:41-44`."""
        more = f"-{self.last}" if self.last > self.first else ""
        return f"{os.path.basename(self.file)}:{self.first}{more}"

    def __str__(self) -> str:
        of = f"role '{self.role}'" if self.role else "the set-up"
        return f"{self.lines} ({of}): {self.why}"


def listed(places: Sequence[Unreached]) -> list[str]:
    """A line of text for each place, for people: the first ones where there are many."""
    more = len(places) - _MOST
    texts: Iterable[str] = map(str, places[: _MOST if more > 1 else None])
    return [*texts, *([f"and {more} more places: --json lists all"] if more > 1 else [])]
