"""A fault that a check has found, and the counterexample that leads to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tilepipe.errors import SimFault


class ScheduleStep(NamedTuple):
    """One scheduling decision: `agent` runs until it has performed `until` ops in all; or, if
    `unit` >= 0, the `unit`-th asynchronous unit that it issued acts.

    Attributes:
        cluster: its index in the grid.
        agent: its index in the cluster.
        outcome: the answer to a request that can be refused: 1 granted, 0 refused; -1 for any other
            step. Two values mark a choice for the whole execution instead of a step: 2: elect.sync
            elects lane `agent` wherever that lane is active; 3: `agent` clusters run at once.
    """

    cluster: int
    agent: int
    until: int = 0
    unit: int = -1
    outcome: int = -1

    @classmethod
    def elect_lane(cls, lane: int) -> ScheduleStep:
        """The choice of the lane that elect.sync elects."""
        return cls(-1, lane, outcome=2)

    @classmethod
    def run_at_once(cls, clusters: int) -> ScheduleStep:
        """The choice of how many clusters run at once."""
        return cls(-1, clusters, outcome=3)


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a counterexample.

    Attributes:
        agent: who performs it: "role 'load' of CTA 0", or "a copy of role 'load' of CTA 0".
        op: the op with its operands.
        loc: its source line, "gemm.py:31".
        effect: its effect on a barrier, "inputs.full[1]: phase 0 complete"; "" if it has none.
    """

    agent: str
    op: str
    loc: str
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, with the schedule that leads to it.

    Attributes:
        kind: the class of the error, "RaceError".
        message: the whole message of the error.
        loc: its source line, "gemm.py:31"; "" if it has none.
        schedule: the scheduling decisions that a replay performs, in order; the rest of the kernel
            runs afterwards in a fixed order.
        steps: the counterexample for a reader: only the steps that the fault depends on.
        left_out: how many steps of the execution the fault does not depend on.
    """

    kind: str
    message: str
    loc: str
    schedule: tuple[ScheduleStep, ...] = ()
    steps: tuple[Step, ...] = ()
    left_out: int = 0

    @classmethod
    def of(
        cls,
        error: SimFault,
        schedule: tuple[ScheduleStep, ...] = (),
        steps: tuple[Step, ...] = (),
        left_out: int = 0,
    ) -> Fault:
        """The fault that an error reports."""
        return cls(
            type(error).__name__,
            str(error),
            error.loc.short if error.loc is not None else "",
            schedule,
            steps,
            left_out,
        )
