"""Exploring the executions that differ.

This is dynamic partial-order reduction without a stack of states: every execution is performed from
the start, its races (`causality`) are found, and for each of them an execution is begun in which
the later step comes first. Executions that differ in the order of independent steps have one
signature and are analysed once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tilepipe.check.engine import warps_together as siblings
from tilepipe.check.engine.execution import Execution, StepsError, schedule_of
from tilepipe.check.engine.launch_state import Scene
from tilepipe.check.engine.state_key import Fingerprints
from tilepipe.check.engine.steps import Node, Race
from tilepipe.check.verdict import Bounds, Reductions, ScheduleStep
from tilepipe.errors import NotModelledError, SimFault

Progress = Callable[[int, int], None]  # (executions done, executions that are known to be left)
Schedule = tuple[ScheduleStep, ...]
# what an execution begins with; how many of its nodes another has had
Alternative = tuple[Schedule, int]
# reasons for a race that every kernel which tests or takes what is left has
ORDERLY = ("test", "turn")


def _s(number: float) -> str:
    """The ending of a noun in the plural, after `number`."""
    return "" if number == 1 else "s"


class BoundError(Exception):
    """A bound was hit."""


@dataclass(eq=False, slots=True)
class Found:
    """What exploring has come to. `fault`: with the schedule that leads to it."""

    states: int = 0
    traces: int = 0
    fault: SimFault | None = None
    schedule: Schedule = ()
    advice: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one execution has shown.

    Attributes:
        states: of it, which no execution before it had. signature: equal where only independent
            steps are ordered differently.
        alternatives: executions in which one of its races, or requests, goes the other way; none
            where the signature was known.
        fault: it ended in one.
    """

    states: int = 0
    signature: bytes = b""
    alternatives: tuple[Alternative, ...] = ()
    fault: bool = False


class Explorer:
    """Explores one launch."""

    def __init__(
        self, scene: Scene, bounds: Bounds, reductions: Reductions, progress: Progress | None
    ) -> None:
        self.scene = scene
        self.bounds = bounds
        self.reductions = reductions
        self.progress = progress
        self.started = time.perf_counter()
        self.found = Found()
        self.fingerprints: Fingerprints | None = None

    # -- executions --------------------------------------------------------------------

    def allow(self, left: int) -> None:
        """Counts an execution that is about to begin; raises if the bounds allow no more."""
        if self.found.traces >= self.bounds.traces:
            raise BoundError(f"{self.bounds.traces:,} execution{_s(self.bounds.traces)}")
        self.in_time()
        if self.progress is not None:
            self.progress(self.found.traces, left)
        self.found.traces += 1

    @property
    def deadline(self) -> float:
        """The moment by `time.perf_counter` at which the check must have ended."""
        return self.started + self.bounds.seconds

    @property
    def time_bound(self) -> str:
        """The bound on the time, as a verdict gives it."""
        return f"{self.bounds.seconds:g} second{_s(self.bounds.seconds)}"

    def in_time(self) -> None:
        """Raises BoundError where the time is over."""
        if time.perf_counter() > self.deadline:
            raise BoundError(self.time_bound)

    def begin(self, clusters: Sequence[int], left: int) -> Execution:
        """A new execution, if the bounds allow one."""
        self.allow(left)
        execution = Execution(self.scene, clusters, self.bounds.steps, self.deadline)
        if self.fingerprints is None:
            self.fingerprints = Fingerprints(
                self.scene.launch.kernel, self.scene.decisive, self.reductions.symmetry
            )
        return execution

    def perform(self, execution: Execution, work: Callable[[], object]) -> bool:
        """Does some work on an execution. Returns whether it ended in a fault, which is kept."""
        try:
            work()
        except NotModelledError as error:
            raise BoundError(str(error)) from None
        except SimFault as error:
            self.found.fault, self.found.schedule = error, tuple(execution.picks)
            self.found.states += len(execution.causality.nodes)
        except StepsError as error:
            raise BoundError(str(error) or self.time_bound) from None
        if execution.world.incomplete and self.found.fault is None:
            raise BoundError(execution.world.incomplete)
        for text in execution.world.advice:
            if text not in self.found.advice:
                self.found.advice.append(text)
        return self.found.fault is not None

    def forget(self) -> None:
        """Begins anew, with what the bounds still allow."""
        self.found = Found(traces=self.found.traces)

    # -- reversing races ---------------------------------------------------------------

    def reduced(
        self, clusters: Sequence[int], first: Execution | None = None, at_most: int = sys.maxsize
    ) -> bool:
        """Explores the executions that differ in more than the order of independent steps, if there
        are `at_most` so many; returns whether it came to an end.
        """
        work: list[Alternative] = [((), 0)]
        begun: set[Schedule] = {()}
        for number, outcome in enumerate(self.outcomes(clusters, work, first), 1):
            if outcome.fault:
                return True
            self.found.states += outcome.states
            for alternative in outcome.alternatives:
                if alternative[0] not in begun:
                    begun.add(alternative[0])
                    work.append(alternative)
            if number >= at_most and work:
                return False
        return True

    def outcomes(
        self, clusters: Sequence[int], work: list[Alternative], first: Execution | None
    ) -> Iterator[Outcome]:
        """Performs what is in `work`, to which the caller adds meanwhile. `first`: the execution of
        the first of it, if there was one.
        """
        signatures: set[bytes] = set()
        while work:
            yield self.outcome(clusters, work.pop(), len(work), signatures, first)
            first = None

    def outcome(
        self, clusters: Sequence[int], alternative: Alternative, left: int, signatures: set[bytes], done: Execution | None = None
    ) -> Outcome:  # fmt: skip
        """Performs one execution, unless it is done already. A fault is kept in `found`."""
        schedule, shared = alternative
        execution = self.begin(clusters, left) if done is None else done

        def perform() -> None:
            execution.follow(schedule)
            execution.go_on()

        if done is None and self.perform(execution, perform):
            return Outcome(fault=True)
        if self.sibling(execution):
            return Outcome(fault=True)
        states = max(len(execution.causality.nodes) - shared, 0)
        signature = execution.causality.signature()
        if signature in signatures:
            return Outcome(states, signature)
        signatures.add(signature)
        return Outcome(states, signature, tuple(self._alternatives(execution)))

    def _alternatives(self, execution: Execution) -> list[Alternative]:
        """Schedules in which a race, or a request, goes the other way; each with how many of its
        nodes are this execution's.
        """
        nodes = execution.causality.nodes
        refused = [n for n in nodes if n.outcome == 0]
        out: list[Alternative] = []
        for race in execution.causality.races:
            self.in_time()  # there may be very many, each with a long schedule
            between = [
                n for n in nodes[race.first.index : race.second.index] if not _follows(n, race)
            ]
            before = nodes[: race.first.index]
            kept = {(n.who, n.ordinal) for n in (*before, *between)}
            answers = tuple(
                ScheduleStep(*n.who, n.ordinal, outcome=0)
                for n in refused
                if (n.who, n.ordinal) in kept
            )
            out.append(
                ((*answers, *schedule_of([*before, *between, race.second])), race.first.index)
            )
        for node in nodes:
            if node.outcome == 1:
                self.in_time()
                answers = tuple(
                    ScheduleStep(*n.who, n.ordinal, outcome=0)
                    for n in (*refused, node)
                    if n.index <= node.index
                )
                out.append(((*answers, *schedule_of(nodes[: node.index])), node.index))
        return out

    def sibling(self, execution: Execution) -> bool:
        """Whether warps of one agent can get ahead of each other in a way that is a fault, which is
        kept.
        """
        error = siblings.fault(execution)
        if error is not None:
            self.found.fault, self.found.schedule = error, tuple(execution.picks)
        return error is not None


def _follows(node: Node, race: Race) -> bool:
    """Whether a node cannot come before the first of a race."""
    return node is race.first or bool(race.first.mark & node.behind)
