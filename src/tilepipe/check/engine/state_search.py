"""The search over states: every order of the steps to branch on; equal states are followed once.

Without partial-order reduction, the search branches on all visible steps. With it, and in a kernel
that tests barriers, it branches only on steps whose order can change the outcome of a test: tests,
steps that complete phases of tested barriers, and steps that draw from a common store. All other
steps are performed at once, in a fixed order. That is correct only if they have no race in any
execution, which the causal order shows on the way; if one has, the search decides nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable, Sequence
from typing import Literal

from tilepipe.check.engine.execution import Execution, InFlightUnit
from tilepipe.check.engine.race_reversal import EXPECTED_RACES, Explorer, Schedule
from tilepipe.check.engine.steps import CLUSTER_END
from tilepipe.check.verdict import ScheduleStep
from tilepipe.ir.facts import COUNTS, Sync
from tilepipe.machine.actors import Request
from tilepipe.machine.barriers.state import Mbarrier, TmaLoadUnit
from tilepipe.machine.sites import Site
from tilepipe.machine.units.acting import signals
from tilepipe.machine.units.in_flight import TmaStoreUnit, UnitQueue
from tilepipe.machine.units.remote_stores import RemoteStoreUnit
from tilepipe.machine.units.tma_by_address import CopyIn

End = Literal["decided", "many", "disorderly"]


class BranchOnVisible:
    """Branch on all visible steps."""

    def op(self, request: Request) -> bool:
        """True to branch on the op that an agent is about to perform."""
        site: Site = request[1][0]
        return site.facts.noticed

    def in_flight_unit(self, flight: InFlightUnit, others: Sequence[InFlightUnit]) -> bool:
        """True to branch on the action of a unit, when `others` can act as well."""
        return True


class BranchOnTests(BranchOnVisible):
    """Branch on steps that can change the outcome of a test, or what is left in a common store."""

    def __init__(self, sites: Iterable[Site], waits: Container[int], strong: Iterable[int]) -> None:
        """
        Args:
            waits: the sites of tests that are treated as waits, which need no branch.
            strong: the sites of accesses to memory that others may change.
        """
        tests = [s for s in sites if Sync.TEST in s.sync and s.id not in waits]
        self._tested = {s.barrier for s in tests}
        contending = [s for s in sites if s.facts.takes or s.facts.gives]
        counting = [s for s in sites if s.facts.unit is None and s.sync & COUNTS and not s.named]
        self._branches = {s.id for s in (*tests, *contending)} | {*strong}
        self._branches |= {s.id for s in counting if s.barrier in self._tested}

    def op(self, request: Request) -> bool:
        site: Site = request[1][0]
        return site.id in self._branches

    def _is_tested(self, bar: Mbarrier) -> bool:
        """True if a test may be of this barrier; of one that is named by address, any."""
        return bar.array in self._tested or "" in self._tested

    def in_flight_unit(self, flight: InFlightUnit, others: Sequence[InFlightUnit]) -> bool:
        unit = flight.unit
        if isinstance(unit, UnitQueue):
            return any(map(self._is_tested, signals(unit.waiting[0])))
        if isinstance(unit, TmaStoreUnit) or _reduces(unit):
            return True
        # Of the copies that one phase waits for, the last one completes it. No agent can observe
        # the others before that.
        return self._is_tested(unit.bar) and not any(
            f is not flight and isinstance(f.unit, TmaLoadUnit) and f.unit.bar is unit.bar
            for f in others
        )


def _reduces(unit: TmaLoadUnit) -> bool:
    """True if strong accesses may find what it does."""
    if isinstance(unit, CopyIn):
        return unit.reduction is not None
    return isinstance(unit, RemoteStoreUnit) and unit.combine is not None


def explore(
    explorer: Explorer, clusters: Sequence[int], steps: BranchOnVisible, at_most: int = sys.maxsize
) -> End:
    """Explores every order of some steps; with `Reductions.hashing`, equal states are followed
    once.

    Returns "decided"; "many" if that takes more than `at_most` executions; "disorderly" if other
    steps have races, so that the search decides nothing.
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
                if not execution.machines and not execution.ending:
                    return
                if explorer.reductions.hashing:
                    assert explorer.state_keys is not None
                    key = explorer.state_keys.of(execution)
                    if key in seen:
                        return
                    seen.add(key)
                explorer.found.states += 1
                _fork(execution, stack)

        if explorer.perform(execution, perform) or explorer.has_fault_of_order(execution):
            return "decided"
        if type(steps) is not BranchOnVisible and any(
            r.kind not in EXPECTED_RACES for r in execution.causal_order.races
        ):
            return "disorderly"
    return "decided"


def settle(execution: Execution, steps: BranchOnVisible) -> None:
    """Performs all steps that need no branch."""
    while not execution.over:
        agents = [
            (c, a)
            for c, a in execution.ready()
            if (request := execution.next_of(a)) is None
            or not steps.op(request)
            or execution.waits_for_flag(a)
        ]
        if agents and type(steps) is not BranchOnVisible:
            execution.run_agent(*agents[0], pause=True)
            continue
        pending = execution.in_flight
        in_flight = [f for f in pending if not steps.in_flight_unit(f, pending)]
        if not in_flight:
            return
        execution.run_unit(in_flight[0])


def _fork(execution: Execution, stack: list[Schedule]) -> None:
    """Performs the first of the possible steps, and leaves the others on the stack."""
    ready, in_flight = execution.ready(), execution.in_flight
    refusals = tuple(execution.refusals)
    here = (*refusals, *execution.schedule)
    options = [ScheduleStep(c, a.uid, -1) for c, a in ready] + [
        ScheduleStep(*f.agent_id, unit=f.ordinal) for f in in_flight
    ]
    options += [ScheduleStep(cluster, CLUSTER_END) for cluster in execution.ending]
    stack.extend((*here, option) for option in reversed(options[1:]))
    asked = len(execution.causal_order.steps)
    if ready:
        execution.run_agent(*ready[0], pause=True)
    elif in_flight:
        execution.run_unit(in_flight[0])
    else:
        execution.end_cluster(execution.ending[0])
    for step in execution.causal_order.steps[asked:]:
        if step.outcome == 1:
            stack.append(
                (
                    *refusals,
                    ScheduleStep(*step.agent_id, step.ordinal, outcome=0),
                    *here[len(refusals) :],
                    options[0],
                )
            )
