"""Exploring every order of the steps that others can notice: without partial-order reduction, to see what that is worth, and that it
changes no verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.check.execution import Execution
from tilepipe.check.explorer import Explorer, Schedule
from tilepipe.check.verdict import Pick


def explore(explorer: Explorer, clusters: Sequence[int]) -> None:
    """Explores every order of the steps that others can notice; equal states are followed once, if `hashing` says so."""
    stack: list[Schedule] = [()]
    seen: set[int] = set()
    while stack:
        schedule = stack.pop()
        execution = explorer.begin(clusters, len(stack))

        def perform(execution: Execution = execution, schedule: Schedule = schedule) -> None:
            execution.follow(schedule)
            while not execution.over:
                if explorer.reductions.hashing:
                    assert explorer.fingerprints is not None
                    key = explorer.fingerprints.of(execution)
                    if key in seen:
                        return
                    seen.add(key)
                explorer.found.states += 1
                _fork(execution, stack)

        if explorer.perform(execution, perform) or explorer.sibling(execution):
            return


def _fork(execution: Execution, stack: list[Schedule]) -> None:
    """Takes the first of the steps that can be taken, and leaves the others for later."""
    ready, flights = execution.ready(), execution.flights
    answers = tuple(execution.answers)
    here = (*answers, *execution.picks)
    options = [Pick(c, a.uid, -1) for c, a in ready] + [Pick(*f.who, unit=f.ordinal) for f in flights]
    stack.extend((*here, option) for option in reversed(options[1:]))
    asked = len(execution.causality.nodes)
    if ready:
        execution.run_agent(*ready[0], visible=True)
    else:
        execution.run_unit(flights[0])
    for node in execution.causality.nodes[asked:]:
        if node.outcome == 1:
            stack.append((*answers, Pick(*node.who, node.ordinal, outcome=0), *here[len(answers) :], options[0]))
