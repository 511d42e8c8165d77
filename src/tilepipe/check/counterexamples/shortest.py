"""The shortest schedule that leads to a fault, as far as a fixed number of attempts finds it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator

from tilepipe.check.counterexamples.recording import Recorder
from tilepipe.check.engine import warps_together as siblings
from tilepipe.check.engine.execution import Execution, StepsError, schedule_of
from tilepipe.check.engine.launch_state import Scene
from tilepipe.check.engine.steps import Node, Who
from tilepipe.check.verdict import Fault, Pick, Step
from tilepipe.errors import DeadlockError, PoisonError, SimFault

Schedule = tuple[Pick, ...]
_STEPS = 1_000_000  # of a replay: the kernel may have come to have an endless loop
_ATTEMPTS = 120  # executions that look for a shorter schedule
_SECONDS = 600.0  # of a replay
_GRACE = 0.5  # seconds for the story of a fault that was found when the time was nearly over


def replayed(
    scene: Scene,
    schedule: Schedule,
    watcher: Recorder | None = None,
    go_on: bool = True,
    deadline: float = math.inf,
) -> tuple[SimFault | None, Execution]:
    """Executes a schedule on the clusters that it is about, and with `go_on` what is left: the
    fault, and the execution. What has not come to an end by the deadline has no fault.
    """
    scene.elected = next((pick.agent for pick in schedule if pick.outcome == 2), scene.lanes[0])
    picked = {pick.cluster for pick in schedule} & set(range(scene.clusters))
    clusters = range(scene.clusters) if scene.shares_work or not picked else sorted(picked)
    until = min(deadline, time.perf_counter() + _SECONDS)
    execution = Execution(scene, clusters, limit=_STEPS, deadline=until, watcher=watcher)
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


def tell(
    scene: Scene, error: SimFault, schedule: Schedule, shorten: bool, deadline: float = math.inf
) -> Fault:
    """A fault, with the shortest schedule that was found for it by the deadline, and the table of
    its steps; without the table where there is no time for one more execution.
    """
    if not shorten:
        return Fault.of(error, schedule)
    deadline = max(deadline, time.perf_counter() + _GRACE)
    shortest = _Shortening(scene, error, schedule, deadline - _GRACE).found()
    again, fault = retold(scene, shortest, deadline)
    return Fault.of(error, schedule) if fault is None or not same(again, error) else fault


def retold(
    scene: Scene, schedule: Schedule, deadline: float = math.inf
) -> tuple[SimFault | None, Fault | None]:
    """The fault that a schedule ends in, with the table of the steps that lead to it; (None, None)
    where it ends in none.
    """
    recorder = Recorder()
    error, execution = replayed(scene, schedule, recorder, deadline=deadline)
    if error is None:
        return None, None
    steps, left_out = recorder.table(execution, error)
    if scene.lanes != (0,):
        steps = (
            Step(
                "every warp",
                f"elect.sync: lane {scene.elected}",
                "",
                "which lane is elected is not known; in this execution it is this one",
            ),
            *steps,
        )
    return error, Fault.of(error, schedule, steps, left_out)


class _Shortening:
    """Looks for shorter schedules that end in the same fault before anything else is executed."""

    def __init__(self, scene: Scene, error: SimFault, schedule: Schedule, deadline: float) -> None:
        self.deadline = deadline
        self.scene = scene
        self.error = error
        self.schedule = schedule
        self.left = _ATTEMPTS

    def works(self, candidate: Schedule) -> bool:
        if self.left <= 0 or time.perf_counter() > self.deadline:
            return False
        self.left -= 1
        return same(
            replayed(self.scene, candidate, go_on=False, deadline=self.deadline)[0], self.error
        )

    def found(self) -> Schedule:
        """The shortest schedule."""
        if isinstance(self.error, DeadlockError | PoisonError) or not self.works(self.schedule):
            return self.schedule  # it takes the whole execution to say so
        return self._without(self._past())

    def _past(self) -> Schedule:
        """What the last step comes after in any execution; and, where that does not do, what
        somebody else's step comes after.
        """
        _, execution = replayed(self.scene, self.schedule, go_on=False, deadline=self.deadline)
        nodes = execution.causality.nodes
        last = self.schedule[-1]
        who = (last.cluster, last.agent)
        past = execution.causality.past(who)
        answers = tuple(p for p in self.schedule if p.outcome >= 0)
        alone = _performing(nodes, past, answers, last)
        if len(alone) < len(self.schedule) and self.works(alone):
            return alone
        for extra in _extras(nodes, past, who):
            candidate = _performing(
                nodes, past | extra.after | extra.mark, answers, *_up_to_next(nodes, extra), last
            )
            if self.works(candidate):
                return candidate
        return self.schedule

    def _without(self, schedule: Schedule) -> Schedule:
        """The schedule without the picks that can be left out, one at a time, the last ones
        first.
        """
        for at in range(len(schedule) - 2, -1, -1):
            if self.left <= 0 or time.perf_counter() > self.deadline:
                break
            candidate = schedule[:at] + schedule[at + 1 :]
            if self.works(candidate):
                schedule = candidate
        return schedule


def _performing(nodes: list[Node], wanted: int, answers: Schedule, *then: Pick) -> Schedule:
    return (*answers, *schedule_of(n for n in nodes if n.mark & wanted), *then)


def _extras(nodes: list[Node], past: int, who: Who) -> Iterator[Node]:
    """Steps of other agents that the last one does not come after, the earliest first."""
    return (n for n in nodes if not n.mark & past and n.who != who)


def _up_to_next(nodes: Iterable[Node], node: Node) -> Schedule:
    """The pick that takes an agent from one of its steps up to the next that others can notice."""
    if node.unit:
        return ()
    later = [
        n.ordinal for n in nodes if n.who == node.who and not n.unit and n.ordinal > node.ordinal
    ]
    return (Pick(*node.who, min(later)),) if later else (Pick(*node.who, 1 << 30),)
