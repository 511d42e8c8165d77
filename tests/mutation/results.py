"""The result of one mutant, as it is sent between processes and printed on the page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one mutant.

    Attributes:
        kernel, family: the case. operator, what, loc: the mutant.
        fate, kind, message: those of its `Outcome`. reason: why it is redundant.
        states, traces: the size of its exploration. seconds: the time that it took.
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
