"""Exploring states: every order of the steps that matter, equal states followed once.

Without partial-order reduction all steps matter that others can notice. With it, and in a kernel
that tests barriers, only those do whose order can change what a test says: tests, what completes
phases of barriers that are tested, and what takes from a common store. All others are taken at
once, in a fixed order: in every execution they are in their only possible order, which is found out
on the way (`causal_order`), and where they are not, the states found so are worth nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Sequence
from typing import Literal

from tilepipe.check.engine.execution import Execution, InFlightUnit
from tilepipe.check.engine.race_reversal import EXPECTED_RACES, Explorer, Schedule
from tilepipe.check.verdict import ScheduleStep
from tilepipe.machine.actors import Request
from tilepipe.machine.barriers.state import Mbarrier
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import CommitUnit, UnitQueue

End = Literal["decided", "many", "disorderly"]


class AllSteps:
    """All steps that others can notice."""

    def op(self, request: Request) -> bool:
        """Whether the op that an agent is about to perform matters."""
        site: Site = request[1][0]
        return site.noticed

    def flight(self, flight: InFlightUnit, others: Sequence[InFlightUnit]) -> bool:
        """Whether it matters when a unit acts, where `others` can act as well."""
        return True


class StepsOfTests(AllSteps):
    """Those that can change what a test says, or what is left to take."""

    def __init__(self, sites: Iterable[Site], waits: Container[int]) -> None:
        """`waits`: sites of the tests that count as waits, and change nothing."""
        self.waits = waits
        self.tested = {s.barrier for s in sites if s.kind == "mbar_try_wait" and s.id not in waits}

    def op(self, request: Request) -> bool:
        site: Site = request[1][0]
        counts = site.counts and site.barrier in self.tested
        return counts or (site.contends and site.id not in self.waits)

    def flight(self, flight: InFlightUnit, others: Sequence[InFlightUnit]) -> bool:
        unit = flight.unit
        if isinstance(unit, UnitQueue):
            first = unit.waiting[0]
            return isinstance(first, CommitUnit) and any(
                bar.array in self.tested for bar, _ in first.arrivals
            )
        # Of copies that one phase waits for, the last completes it: nobody learns of the others
        # before that.
        return unit.bar.array in self.tested and not any(
            f is not flight and _signals(f, unit.bar) for f in others
        )


def _signals(flight: InFlightUnit, bar: Mbarrier) -> bool:
    return not isinstance(flight.unit, UnitQueue) and flight.unit.bar is bar


def explore(
    explorer: Explorer, clusters: Sequence[int], steps: AllSteps, at_most: int = sys.maxsize
) -> End:
    """Explores every order of some steps, if that takes `at_most` so many executions; states are
    followed once, if `hashing` says so.

    Returns "decided"; "many" where it takes more; "disorderly" where the other steps are not in
    their only possible order, so that it decides nothing.
    """
    begun = 0
    stack: list[Schedule] = [()]
    seen: set[bytes] = set()
    while stack:
        if begun == at_most:
            return "many"
        begun += 1
        schedule = stack.pop()
        execution = explorer.begin(clusters, len(stack))
        execution.pause = steps.op

        def perform(execution: Execution = execution, schedule: Schedule = schedule) -> None:
            execution.follow(schedule)
            while not execution.over:
                settle(execution, steps)
                if not execution.machines:
                    return
                if explorer.reductions.hashing:
                    assert explorer.state_keys is not None
                    key = explorer.state_keys.of(execution)
                    if key in seen:
                        return
                    seen.add(key)
                explorer.found.states += 1
                _fork(execution, stack)

        if explorer.perform(execution, perform) or explorer.has_warp_fault(execution):
            return "decided"
        if type(steps) is not AllSteps and any(
            r.kind not in EXPECTED_RACES for r in execution.causal_order.races
        ):
            return "disorderly"
    return "decided"


def settle(execution: Execution, steps: AllSteps) -> None:
    """Takes all steps that do not matter."""
    while not execution.over:
        agents = [
            (c, a)
            for c, a in execution.ready()
            if (request := execution.next_of(a)) is None or not steps.op(request)
        ]
        if agents and type(steps) is not AllSteps:
            execution.run_agent(*agents[0], pause=True)
            continue
        pending = execution.in_flight
        in_flight = [f for f in pending if not steps.flight(f, pending)]
        if not in_flight:
            return
        execution.run_unit(in_flight[0])


def _fork(execution: Execution, stack: list[Schedule]) -> None:
    """Takes the first of the steps that can be taken, and leaves the others for later."""
    ready, in_flight = execution.ready(), execution.in_flight
    answers = tuple(execution.answers)
    here = (*answers, *execution.schedule)
    options = [ScheduleStep(c, a.uid, -1) for c, a in ready] + [
        ScheduleStep(*f.agent_id, unit=f.ordinal) for f in in_flight
    ]
    stack.extend((*here, option) for option in reversed(options[1:]))
    asked = len(execution.causal_order.steps)
    if ready:
        execution.run_agent(*ready[0], pause=True)
    else:
        execution.run_unit(in_flight[0])
    for step in execution.causal_order.steps[asked:]:
        if step.outcome == 1:
            stack.append(
                (
                    *answers,
                    ScheduleStep(*step.agent_id, step.ordinal, outcome=0),
                    *here[len(answers) :],
                    options[0],
                )
            )
