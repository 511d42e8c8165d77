"""What the campaign found of one mutant, as it travels between processes and to the page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """One mutant.

    Attributes:
        kernel, family: the case. operator, what, loc: the mutant. fate, kind, message: `Outcome`'s.
            reason: why it is redundant.
        states, traces: of its exploration. seconds: all it took.
    """

    kernel: str
    family: str
    operator: str
    what: str
    loc: str
    fate: str
    kind: str
    message: str
    reason: str
    states: int
    traces: int
    seconds: float
