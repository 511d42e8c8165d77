"""Exploring the executions that differ by reversing races: dynamic partial-order reduction
(Flanagan and Godefroid 2005), without a stack of states.

Every execution is performed from the start, and its races are found (`causal_order`). For each race
an execution is begun in which the second step comes first: the steps that neither of the two
follows, then the second step, then everything else in a fixed order. Executions that differ only in
the order of independent steps have one signature, and only one of them has its races reversed.
docs/decisions/0010-executions-are-performed-again.md says why states are not copied.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tilepipe.check.engine.execution import Execution, schedule_of
from tilepipe.check.engine.front_end import FrontEnd
from tilepipe.check.engine.state_key import StateKeys
from tilepipe.check.verdict import (
    NOT_MODELLED,
    Bounds,
    ExecutionLimitError,
    Reductions,
    ScheduleStep,
)
from tilepipe.errors import NotModelledError, PtxError, SimFault
from tilepipe.machine.advice import add

Progress = Callable[[int, int], None]  # (executions done, executions that are known to be left)
Schedule = tuple[ScheduleStep, ...]
# how an execution begins, and how many of its visible steps an earlier execution has had
Alternative = tuple[Schedule, int]
# the races of every kernel that tests barriers or draws from a common store: they are branched on
EXPECTED_RACES = ("test", "turn")


def _s(number: float) -> str:
    """The plural ending of a noun after a number."""
    return "" if number == 1 else "s"


class BoundError(Exception):
    """One of the `Bounds` was hit: the message says which."""


@dataclass(eq=False, slots=True)
class Findings:
    """The results of an exploration so far. `schedule`: leads to `fault`."""

    states: int = 0
    traces: int = 0
    fault: SimFault | None = None
    schedule: Schedule = ()
    advice: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one execution.

    Attributes:
        states: how many of its states no earlier execution had.
        signature: equal for executions that differ only in the order of independent steps.
        alternatives: executions in which one of its races is reversed, or one of its requests is
            refused; none if its signature was known.
        fault: whether it ended in a fault.
    """

    states: int = 0
    signature: bytes = b""
    alternatives: tuple[Alternative, ...] = ()
    fault: bool = False


class Explorer:
    """Explores one launch, within bounds.

    Attributes:
        started: the time at which the check began, by `time.perf_counter`.
        found: the results so far.
        state_keys: makes the keys of states; None before the first execution.
        unmade: of the front end's requests, those that no execution has performed that is over.
    """

    def __init__(
        self,
        front_end: FrontEnd,
        bounds: Bounds,
        reductions: Reductions,
        progress: Progress | None,
    ) -> None:
        self.front_end = front_end
        self.bounds = bounds
        self.reductions = reductions
        self.progress = progress
        self.started = time.perf_counter()
        self.found = Findings()
        self.state_keys: StateKeys | None = None
        self.unmade: frozenset[int] = front_end.requests
        self._counts: list[int] = []

    # -- executions --------------------------------------------------------------------

    def count_execution(self, left: int) -> None:
        """Counts an execution that is about to begin.

        Raises:
            BoundError: the bounds allow no more.
        """
        if self.found.traces >= self.bounds.traces:
            raise BoundError(f"{self.bounds.traces:,} execution{_s(self.bounds.traces)}")
        self.check_deadline()
        if self.progress is not None:
            self.progress(self.found.traces, left)
        self.found.traces += 1

    @property
    def deadline(self) -> float:
        """The time by which the check must have ended, by `time.perf_counter`."""
        return self.started + self.bounds.seconds

    @property
    def time_bound(self) -> str:
        """The time limit in words, for a verdict."""
        given = f"{self.bounds.seconds:g} second{_s(self.bounds.seconds)}"
        return f"{given} (Bounds(seconds=), {Bounds().seconds:g} by default)"

    def exceeded(self, error: ExecutionLimitError, execution: Execution) -> BoundError:
        """The bound that an execution has hit, and what kept it going."""
        bound = str(error) or self.time_bound
        going = execution.kept_going()
        return BoundError(f"{bound}. Still going: {going}" if going else bound)

    def check_deadline(self) -> None:
        """Raises BoundError after the deadline."""
        if time.perf_counter() > self.deadline:
            raise BoundError(self.time_bound)

    def begin(self, clusters: Sequence[int], left: int) -> Execution:
        """A new execution, if the bounds allow one."""
        self.count_execution(left)
        self.note_requests()
        execution = Execution(self.front_end, clusters, self.bounds.steps, self.deadline)
        if self.state_keys is None:
            self.state_keys = StateKeys(self.front_end, self.reductions.symmetry)
        self._counts = execution.world.counts
        return execution

    def note_requests(self) -> None:
        """Takes note of the requests that the last execution has made."""
        counts, self._counts = self._counts, []
        if counts:
            self.unmade = frozenset(n for n in self.unmade if not counts[n])

    def perform(self, execution: Execution, work: Callable[[], object]) -> bool:
        """Performs `work`, a part of an execution. Returns whether that ended in a fault, which is
        kept in `found`.
        """
        try:
            work()
        except NotModelledError as error:
            raise BoundError(str(error)) from None
        except PtxError as error:
            raise BoundError(f"{NOT_MODELLED}{error}") from None
        except SimFault as error:
            self.found.fault, self.found.schedule = error, tuple(execution.schedule)
            self.found.states += len(execution.causal_order.steps)
        except ExecutionLimitError as error:
            raise self.exceeded(error, execution) from None
        if execution.world.incomplete and self.found.fault is None:
            raise BoundError(execution.world.incomplete)
        add(self.found.advice, execution.world.advice)
        return self.found.fault is not None

    def restart(self) -> None:
        """Starts the search again, with what the bounds still allow."""
        self.found = Findings(traces=self.found.traces)

    # -- reversing races ---------------------------------------------------------------

    def explore_executions(
        self, clusters: Sequence[int], first: Execution | None = None, at_most: int = sys.maxsize
    ) -> bool:
        """Explores all executions up to the order of independent steps. Returns False if that takes
        more than `at_most` executions.
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
        """Performs the executions in `work`, to which the caller adds in the meantime. `first`: the
        first of them, if it was performed already.
        """
        signatures: set[bytes] = set()
        while work:
            yield self.outcome(clusters, work.pop(), len(work), signatures, first)
            first = None

    def outcome(
        self,
        clusters: Sequence[int],
        alternative: Alternative,
        left: int,
        signatures: set[bytes],
        done: Execution | None = None,
    ) -> Outcome:
        """Performs one execution, or takes it from `done`. A fault is kept in `found`.

        Args:
            left: how many executions are known to be left, for the progress report.
            signatures: those of earlier executions; the one of this execution is added.
        """
        schedule, shared = alternative
        execution = self.begin(clusters, left) if done is None else done

        def perform() -> None:
            execution.follow(schedule)
            execution.run_to_end()

        if done is None and self.perform(execution, perform):
            return Outcome(fault=True)
        if self.has_fault_of_order(execution):
            return Outcome(fault=True)
        states = max(len(execution.causal_order.steps) - shared, 0)
        signature = execution.causal_order.signature()
        if signature in signatures:
            return Outcome(states, signature)
        signatures.add(signature)
        return Outcome(states, signature, tuple(self._alternatives(execution, shared)))

    def _alternatives(self, execution: Execution, shared: int) -> list[Alternative]:
        """Schedules in which a race is reversed or a request is refused; each with the number of
        steps that it shares with this execution.

        The first `shared` steps are those of an earlier execution, which has had the same races and
        requests among them: they need no alternative again.
        """
        steps = execution.causal_order.steps
        refused = [s for s in steps if s.outcome == 0]
        out: list[Alternative] = []
        for race in execution.causal_order.races:
            if race.second.index < shared:
                continue
            self.check_deadline()  # there may be very many races, each with a long schedule
            between = [  # those that can precede the first step
                s
                for s in steps[race.first.index + 1 : race.second.index]
                if not race.first.bit & s.trace_past
            ]
            before = steps[: race.first.index]
            kept = {(s.agent_id, s.ordinal) for s in (*before, *between)}
            answers = tuple(
                ScheduleStep(*s.agent_id, s.ordinal, outcome=0)
                for s in refused
                if (s.agent_id, s.ordinal) in kept
            )
            out.append(
                ((*answers, *schedule_of([*before, *between, race.second])), race.first.index)
            )
        for step in steps[shared:]:
            if step.outcome == 1:
                self.check_deadline()
                answers = tuple(
                    ScheduleStep(*s.agent_id, s.ordinal, outcome=0)
                    for s in (*refused, step)
                    if s.index <= step.index
                )
                out.append(((*answers, *schedule_of(steps[: step.index])), step.index))
        return out

    def has_fault_of_order(self, execution: Execution) -> bool:
        """True if its steps can come in another order in a way that is a fault, which is kept in
        `found`: one warp of an agent ahead of another, two groups mixed at a named barrier.
        """
        error = execution.causal_order.fault()
        if error is not None:
            self.found.fault, self.found.schedule = error, tuple(execution.schedule)
        return error is not None
