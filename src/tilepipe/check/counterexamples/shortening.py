"""Shortening a counterexample: a bounded search for a shorter schedule with the same fault.

The search first keeps only the steps on which the last step depends, by the causal order of the
execution; then it tries to leave out single scheduling decisions, the last ones first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable

from tilepipe.check.counterexamples.replaying import (
    Schedule,
    perform,
    perform_with_steps,
    same_fault,
)
from tilepipe.check.engine.execution import schedule_of
from tilepipe.check.engine.front_end import FrontEnd
from tilepipe.check.engine.steps import VisibleStep
from tilepipe.check.verdict import Fault, ScheduleStep
from tilepipe.errors import DeadlockError, PoisonError, SimFault

_ATTEMPTS = 120  # executions that the search may perform
# seconds reserved to perform the shortest schedule once more, for the table of its steps, if the
# fault was found shortly before the deadline
_RESERVED = 0.5


def shortened(
    front_end: FrontEnd,
    error: SimFault,
    schedule: Schedule,
    shorten: bool,
    deadline: float = math.inf,
) -> Fault:
    """A fault with the shortest schedule found for it by the deadline, and the table of its steps;
    without the table if no time is left for one more execution.
    """
    if not shorten:
        return Fault.of(error, schedule)
    deadline = max(deadline, time.perf_counter() + _RESERVED)
    shortest = _Search(front_end, error, schedule, deadline - _RESERVED).shortest()
    again, fault = perform_with_steps(front_end, shortest, deadline)
    if fault is None or not same_fault(again, error):
        return Fault.of(error, schedule)
    return fault


class _Search:
    """Looks for shorter schedules that end in the same fault with no step after them."""

    def __init__(
        self, front_end: FrontEnd, error: SimFault, schedule: Schedule, deadline: float
    ) -> None:
        self.deadline = deadline
        self.front_end = front_end
        self.error = error
        self.schedule = schedule
        self.left = _ATTEMPTS

    @property
    def exhausted(self) -> bool:
        return self.left <= 0 or time.perf_counter() > self.deadline

    def works(self, candidate: Schedule) -> bool:
        """True if a schedule ends in the fault; False if the search may perform nothing more."""
        if self.exhausted:
            return False
        self.left -= 1
        found, execution = perform(
            self.front_end, candidate, run_to_end=False, deadline=self.deadline
        )
        if not same_fault(found, self.error):
            return False
        # the groups that mix at a named barrier are best told apart where they have not mixed
        return execution.causal_order.mixed is None or str(found) == str(self.error)

    def shortest(self) -> Schedule:
        # a deadlock and a read of poison are faults of the whole execution, not of its last step
        if isinstance(self.error, DeadlockError | PoisonError) or not self.works(self.schedule):
            return self.schedule
        return self._without_single_steps(self._causal_past())

    def _causal_past(self) -> Schedule:
        """The steps that precede the last step in every execution; and, if they alone do not lead
        to the fault, also those that precede one step of another agent.
        """
        _, execution = perform(
            self.front_end, self.schedule, run_to_end=False, deadline=self.deadline
        )
        steps = execution.causal_order.steps
        last = self.schedule[-1]
        agent_id = (last.cluster, last.agent)
        past = execution.causal_order.clocks[agent_id].past
        outcomes = tuple(step for step in self.schedule if step.outcome >= 0)
        alone = _performing(steps, past, outcomes, last)
        if len(alone) < len(self.schedule) and self.works(alone):
            return alone
        # steps of other agents that do not precede the last step, the earliest first
        for extra in (s for s in steps if not s.bit & past and s.agent_id != agent_id):
            candidate = _performing(
                steps, past | extra.past | extra.bit, outcomes, *_up_to_next(steps, extra), last
            )
            if self.works(candidate):
                return candidate
        return self.schedule

    def _without_single_steps(self, schedule: Schedule) -> Schedule:
        """The schedule without the steps that can be left out one at a time, the last ones
        first.
        """
        for at in range(len(schedule) - 2, -1, -1):
            if self.exhausted:
                break
            candidate = schedule[:at] + schedule[at + 1 :]
            if self.works(candidate):
                schedule = candidate
        return schedule


def _performing(
    steps: list[VisibleStep], wanted: int, outcomes: Schedule, *then: ScheduleStep
) -> Schedule:
    return (*outcomes, *schedule_of(s for s in steps if s.bit & wanted), *then)


def _up_to_next(steps: Iterable[VisibleStep], step: VisibleStep) -> Schedule:
    """The scheduling decision that takes an agent from one of its visible steps to the next."""
    if step.is_unit:
        return ()
    later = [
        s.ordinal
        for s in steps
        if s.agent_id == step.agent_id and not s.is_unit and s.ordinal > step.ordinal
    ]
    return (
        (ScheduleStep(*step.agent_id, min(later)),)
        if later
        else (ScheduleStep(*step.agent_id, 1 << 30),)
    )
