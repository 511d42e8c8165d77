"""Performing a schedule again on the simulated machine."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from tilepipe.check.choose_front_end import AnyLaunch, front_end_of
from tilepipe.check.counterexamples.relevant_steps import relevant_steps
from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.front_end import FrontEnd
from tilepipe.check.engine.recording import Recorder
from tilepipe.check.verdict import ExecutionLimitError, Fault, ScheduleStep, Step
from tilepipe.errors import SimFault
from tilepipe.machine.clusters import quiet_numbers
from tilepipe.machine.recorder import Recorder as RunRecorder
from tilepipe.machine.rules import Rules

Schedule = tuple[ScheduleStep, ...]
_MAX_STEPS = 1_000_000  # since it was saved, the kernel may have got an endless loop
_MAX_SECONDS = 600.0


def replay(
    launch: AnyLaunch, schedule: Sequence[ScheduleStep], *, rules: Rules = "practice"
) -> SimFault | None:
    """Performs a schedule on the simulated machine, and then the rest of the kernel in a fixed
    order: the fault in which that ends, or None.
    """
    with quiet_numbers():
        return perform(front_end_of(launch, rules), tuple(schedule))[0]


def replay_with_steps(
    launch: AnyLaunch,
    schedule: Sequence[ScheduleStep],
    *,
    rules: Rules = "practice",
    records: RunRecorder | None = None,
) -> Fault | None:
    """The fault in which `check.replay` of a schedule ends, with the steps of this execution that
    lead to it; None if it ends in no fault.

    Args:
        schedule: that of a fault which `check` found in this kernel or in an earlier version of it.
            Steps that cannot be performed any more are skipped.
        rules: "practice", what shipped compilers rely on, or "strict", the PTX ISA to the letter:
            docs/reference/rules.md.
        records: is told when things happen, by the cost model.

    Raises:
        BindError: the arguments do not fit the kernel.
    """
    with quiet_numbers():
        front_end = front_end_of(launch, rules)
        return perform_with_steps(front_end, tuple(schedule), records=records)[1]


def perform(
    front_end: FrontEnd,
    schedule: Schedule,
    watcher: Recorder | None = None,
    run_to_end: bool = True,
    deadline: float = math.inf,
    records: RunRecorder | None = None,
) -> tuple[SimFault | None, Execution]:
    """Performs a schedule on the clusters that it names, and with `run_to_end` the rest of the
    kernel: the fault and the execution. An execution that the deadline cuts off has no fault.
    """
    chosen = {step.outcome: step.agent for step in schedule}
    front_end.elected = chosen.get(2, front_end.lanes[0])
    front_end.resident = chosen.get(3, front_end.residents[0])
    named = {step.cluster for step in schedule} & set(range(front_end.clusters))
    clusters = range(front_end.clusters) if front_end.shares_work or not named else sorted(named)
    until = min(deadline, time.perf_counter() + _MAX_SECONDS)
    execution = Execution(front_end, clusters, limit=_MAX_STEPS, deadline=until, watcher=watcher)
    execution.world.recorder = records
    try:
        execution.follow(schedule)
        if run_to_end:
            execution.run_to_end()
    except SimFault as error:
        return error, execution
    except ExecutionLimitError:
        pass
    return execution.causal_order.fault(), execution


def perform_with_steps(
    front_end: FrontEnd,
    schedule: Schedule,
    deadline: float = math.inf,
    records: RunRecorder | None = None,
) -> tuple[SimFault | None, Fault | None]:
    """The fault in which a schedule ends, with the table of the steps that lead to it; (None, None)
    if it ends in none.
    """
    recorder = Recorder()
    error, _ = perform(front_end, schedule, recorder, deadline=deadline, records=records)
    if error is None:
        return None, None
    steps, left_out = relevant_steps(recorder.steps, error)
    if front_end.lanes != (0,):
        elected = Step(
            "every warp",
            f"elect.sync: lane {front_end.elected}",
            "",
            "the elected lane is unspecified; in this execution it is this one",
        )
        steps = (elected, *steps)
    if len(front_end.residents) > 1:
        at_once = Step(
            "the GPU",
            f"{front_end.resident} of {front_end.clusters} clusters run at once",
            "",
            "the others start, in order, as these end",
        )
        steps = (at_once, *steps)
    return error, Fault.of(error, schedule, steps, left_out)


def same_fault(a: SimFault | None, b: SimFault) -> bool:
    """True if two executions end in one fault: of the same kind, at the same line."""
    return a is not None and type(a) is type(b) and a.loc == b.loc
