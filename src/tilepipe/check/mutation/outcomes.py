"""The judgement of a changed kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilepipe.check.verdict import Bounds, Verdict, steps_bound

Fate = Literal["refused", "fault", "undecided", "numbers", "redundant"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The judgement of a mutant.

    Attributes:
        fate: "refused": the simulator cannot start it. "fault": some interleaving ends in a fault.
            "numbers": no fault, but results that differ from the kernel's. "redundant": no
            interleaving has a fault, and the results are the kernel's. "undecided": a bound was
            hit.
        kind, loc, message: the class of the error, its line "gemm.py:31", and its message; for
            "undecided" the message is the bound, for "numbers" the tensor.
        advice: the advice that the checker gives on it.
        states, traces: the size of the exploration.
    """

    fate: Fate
    kind: str = ""
    loc: str = ""
    message: str = ""
    advice: tuple[str, ...] = ()
    states: int = 0
    traces: int = 0

    @property
    def caught(self) -> bool:
        """True if the mutant is distinguished from the kernel."""
        return self.fate in ("refused", "fault", "numbers")

    @property
    def headline(self) -> str:
        """The first line of the message."""
        return self.message.split("\n", 1)[0]


def outcome_of(verdict: Verdict, bounds: Bounds) -> Outcome:
    """The outcome for a changed kernel, by its verdict. An execution of more than `bounds.steps`
    steps counts as an endless loop, which is a fault.
    """
    advice, states, traces = tuple(verdict.advice), verdict.states, verdict.traces
    if verdict.faults:
        fault = verdict.faults[0]
        return Outcome("fault", fault.kind, fault.loc, fault.message, advice, states, traces)
    if verdict.ok:
        return Outcome("redundant", advice=advice, states=states, traces=traces)
    if verdict.bound.startswith(steps_bound(bounds.steps)):
        return Outcome(
            "fault",
            "Endless",
            "",
            f"still running after {bounds.steps:,} steps",
            advice,
            states,
            traces,
        )
    return Outcome("undecided", message=verdict.bound, advice=advice, states=states, traces=traces)
