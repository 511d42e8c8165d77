"""Shortening a counterexample: a bounded search for a shorter schedule with the same fault.

The search first keeps only the steps on which the last step depends, by the causal order of the
execution; then it tries to leave out single scheduling decisions, the last ones first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator

from tilepipe.check.counterexamples.replaying import (
    Schedule,
    perform,
    perform_with_steps,
    same_fault,
)
from tilepipe.check.engine.execution import schedule_of
from tilepipe.check.engine.launch_state import Scene
from tilepipe.check.engine.steps import Node, Who
from tilepipe.check.verdict import Fault, ScheduleStep
from tilepipe.errors import DeadlockError, PoisonError, SimFault

_ATTEMPTS = 120  # executions that the search may perform
# seconds reserved to perform the shortest schedule once more, for the table of its steps, if the
# fault was found shortly before the deadline
_RESERVED = 0.5


def shortened(
    scene: Scene, error: SimFault, schedule: Schedule, shorten: bool, deadline: float = math.inf
) -> Fault:
    """A fault with the shortest schedule found for it by the deadline, and the table of its steps;
    without the table if no time is left for one more execution.
    """
    if not shorten:
        return Fault.of(error, schedule)
    deadline = max(deadline, time.perf_counter() + _RESERVED)
    shortest = _Search(scene, error, schedule, deadline - _RESERVED).shortest()
    again, fault = perform_with_steps(scene, shortest, deadline)
    if fault is None or not same_fault(again, error):
        return Fault.of(error, schedule)
    return fault


class _Search:
    """Looks for shorter schedules that end in the same fault with no step after them."""

    def __init__(self, scene: Scene, error: SimFault, schedule: Schedule, deadline: float) -> None:
        self.deadline = deadline
        self.scene = scene
        self.error = error
        self.schedule = schedule
        self.left = _ATTEMPTS

    @property
    def exhausted(self) -> bool:
        return self.left <= 0 or time.perf_counter() > self.deadline

    def works(self, candidate: Schedule) -> bool:
        """Whether a schedule ends in the fault; False if the search may perform nothing more."""
        if self.exhausted:
            return False
        self.left -= 1
        found, _ = perform(self.scene, candidate, go_on=False, deadline=self.deadline)
        return same_fault(found, self.error)

    def shortest(self) -> Schedule:
        # a deadlock and a read of poison are faults of the whole execution, not of its last step
        if isinstance(self.error, DeadlockError | PoisonError) or not self.works(self.schedule):
            return self.schedule
        return self._without_single_steps(self._causal_past())

    def _causal_past(self) -> Schedule:
        """The steps that precede the last step in every execution; and, if they alone do not lead
        to the fault, also those that precede one step of another agent.
        """
        _, execution = perform(self.scene, self.schedule, go_on=False, deadline=self.deadline)
        nodes = execution.causality.nodes
        last = self.schedule[-1]
        who = (last.cluster, last.agent)
        past = execution.causality.past(who)
        outcomes = tuple(step for step in self.schedule if step.outcome >= 0)
        alone = _performing(nodes, past, outcomes, last)
        if len(alone) < len(self.schedule) and self.works(alone):
            return alone
        for extra in _independent(nodes, past, who):
            candidate = _performing(
                nodes, past | extra.after | extra.mark, outcomes, *_up_to_next(nodes, extra), last
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
    nodes: list[Node], wanted: int, outcomes: Schedule, *then: ScheduleStep
) -> Schedule:
    return (*outcomes, *schedule_of(n for n in nodes if n.mark & wanted), *then)


def _independent(nodes: list[Node], past: int, who: Who) -> Iterator[Node]:
    """Steps of other agents that do not precede the last step, the earliest first."""
    return (n for n in nodes if not n.mark & past and n.who != who)


def _up_to_next(nodes: Iterable[Node], node: Node) -> Schedule:
    """The scheduling decision that takes an agent from one of its visible steps to the next."""
    if node.unit:
        return ()
    later = [
        n.ordinal for n in nodes if n.who == node.who and not n.unit and n.ordinal > node.ordinal
    ]
    return (ScheduleStep(*node.who, min(later)),) if later else (ScheduleStep(*node.who, 1 << 30),)
