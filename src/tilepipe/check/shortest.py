"""The shortest story of a fault: the schedule without what does not matter, and a table of who does what."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tilepipe.check import siblings
from tilepipe.check.execution import Execution, StepsError
from tilepipe.check.scene import Scene
from tilepipe.check.verdict import Fault, Pick, Step
from tilepipe.errors import DeadlockError, SimFault
from tilepipe.sim.agents import Agent
from tilepipe.sim.sites import Site

Schedule = tuple[Pick, ...]
_SECONDS = 2.0  # of looking for a shorter schedule
_ROWS = 30  # of the table


@dataclass(eq=False, slots=True)
class _Recorder:
    """Who performed what, in order."""

    rows: list[tuple[Agent, Site]] = field(default_factory=list)

    def __call__(self, agent: Agent, site: Site, args: tuple[object, ...]) -> None:
        self.rows.append((agent, site))


def replayed(
    scene: Scene, schedule: Schedule, watcher: _Recorder | None = None, go_on: bool = True
) -> tuple[SimFault | None, Execution]:
    """Executes a schedule on the clusters that it is about, and with `go_on` what is left: the fault, and the execution."""
    clusters = range(scene.clusters) if scene.shares_work or not schedule else sorted({pick.cluster for pick in schedule})
    execution = Execution(scene, clusters, watcher=watcher)
    try:
        execution.follow(schedule)
        if go_on:
            execution.go_on()
    except SimFault as error:
        return error, execution
    except StepsError:
        pass
    return siblings.fault(execution), execution


def same(a: SimFault | None, b: SimFault) -> bool:
    """Whether two executions end in one fault: of one kind, at one line."""
    return a is not None and type(a) is type(b) and a.loc == b.loc


def tell(scene: Scene, error: SimFault, schedule: Schedule) -> Fault:
    """A fault, with the shortest schedule that was found for it."""
    shortest = _shorter(scene, error, schedule)
    recorder = _Recorder()
    again, execution = replayed(scene, shortest, recorder)
    return Fault.of(again if again is not None and same(again, error) else error, shortest, _table(recorder, execution), 0)


def _shorter(scene: Scene, error: SimFault, schedule: Schedule) -> Schedule:
    """The schedule without the picks that the fault does not need."""
    until = time.perf_counter() + _SECONDS

    def works(candidate: Schedule) -> bool:
        return time.perf_counter() < until and same(replayed(scene, candidate, go_on=False)[0], error)

    if isinstance(error, DeadlockError) or not works(schedule):
        return schedule
    step = max(len(schedule) // 2, 1)
    while True:
        at = len(schedule)
        while at > 0:
            candidate = schedule[: max(at - step, 0)] + schedule[at:]
            if len(candidate) < len(schedule) and works(candidate):
                schedule = candidate
            at -= step
        if step == 1:
            return schedule
        step = max(step // 2, 1)


def _table(recorder: _Recorder, execution: Execution) -> tuple[Step, ...]:
    return tuple(Step(str(agent), site.what, site.loc.short) for agent, site in recorder.rows[-_ROWS:])
