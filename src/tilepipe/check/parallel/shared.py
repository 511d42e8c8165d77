"""One exploration shared among processes: the workers perform executions, and this process decides
which ones are left to perform.

A request is the schedule of an execution and a reply is its outcome; both are small. Requests are
assigned to processes, and replies are read, in an order that depends only on the number of
processes and not on their speed, so that the same number of processes finds the same verdict in the
same way. The search over states (`state_search`) is not shared: one process performs it.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection

from tilepipe.check.choose_front_end import front_end_of
from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.front_end import FrontEnd
from tilepipe.check.engine.race_reversal import Alternative, BoundError, Explorer, Outcome
from tilepipe.check.parallel.recipes import (
    CheckResult,
    Failure,
    Options,
    Postponed,
    Recipe,
    decided,
    launch_of,
    pickled,
)
from tilepipe.check.parallel.workers import Worker, WorkerError, started
from tilepipe.check.proofs.guards import NotAWaitError
from tilepipe.check.verdict import Bounds
from tilepipe.machine.advice import add
from tilepipe.machine.clusters import quiet_numbers

# executions performed in this process first: they take less time than starting a worker
UNSHARED = 24
QUEUED = 2  # executions requested of each worker at once
# an outcome, advice, and the requests that were never made; a bound; ...
_Reply = tuple[Outcome, tuple[str, ...], frozenset[int]] | str | Failure


class SharedExplorer(Explorer):
    """An explorer that shares its executions with workers once there are many."""

    def __init__(
        self,
        front_end: FrontEnd,
        options: Options,
        progress: Callable[[int, int], None] | None,
        recipe: bytes,
        jobs: int,
    ) -> None:
        super().__init__(front_end, options.bounds, options.reductions, progress)
        self._options = options
        self._recipe = recipe
        self._jobs = jobs
        self._workers: list[Worker] = []

    def close(self) -> None:
        """Ends the workers."""
        while self._workers:
            self._workers.pop().stop()

    def restart(self) -> None:
        """Starts the search again. The workers end: they may still owe replies to old requests."""
        super().restart()
        self.close()

    def outcomes(
        self, clusters: Sequence[int], work: list[Alternative], first: Execution | None
    ) -> Iterator[Outcome]:
        """The outcomes of the executions, in an order that depends only on the number of
        processes.
        """
        signatures: set[bytes] = set()
        done = 0
        while work and (done < UNSHARED or len(work) < self._jobs):
            done += 1
            yield self.outcome(clusters, work.pop(), len(work), signatures, first)
            first = None
        if work:
            yield from self._shared(tuple(clusters), work, signatures)

    def _shared(
        self, clusters: tuple[int, ...], work: list[Alternative], signatures: set[bytes]
    ) -> Iterator[Outcome]:
        if not self._workers:
            self._workers.extend(
                Worker.start(_perform, self._recipe, self._options) for _ in range(self._jobs)
            )
            for worker in self._workers:
                worker.wait_until_started()
        requested: deque[tuple[int, Alternative]] = deque()
        turn = 0
        while work or requested:
            while work and len(requested) < QUEUED * self._jobs:
                alternative = work.pop()
                self.count_execution(len(work) + len(requested))
                number = turn % self._jobs
                turn += 1
                begin = (
                    self.front_end.elected,
                    self.front_end.resident,
                    self.front_end.guards,
                    self.front_end.waits_for_flags,
                )
                self._workers[number].send(
                    (begin, clusters, alternative, self.deadline - time.perf_counter())
                )
                requested.append((number, alternative))
            number, alternative = requested.popleft()
            outcome = self._received(self._workers[number])
            if outcome.fault:  # performed again here, for its error
                self.found.traces -= 1
                outcome = self.outcome(clusters, alternative, len(work), set())
                assert outcome.fault
            elif outcome.signature in signatures:
                outcome = Outcome(outcome.states, outcome.signature)
            signatures.add(outcome.signature)
            yield outcome

    def _received(self, worker: Worker) -> Outcome:
        message: _Reply = worker.receive("explored it with others")
        if isinstance(message, Failure):
            raise WorkerError(
                f"a process cannot make the instance that it is to explore: {message.text}"
            )
        if isinstance(message, str):
            raise BoundError(message)
        outcome, advice, unmade = message
        self.unmade &= unmade
        add(self.found.advice, advice)
        return outcome


def check_shared(
    name: str,
    recipe: Recipe,
    options: Options,
    jobs: int,
    progress: Callable[[int, int], None] | None,
) -> CheckResult | Postponed:
    """As `recipes.check_instance`, with `jobs` processes for the executions of the one instance.

    Raises:
        BindError: the recipe cannot be sent to another process.
    """
    sent = pickled(name, recipe)
    try:
        explorer = SharedExplorer(
            front_end_of(launch_of(recipe()), options.rules), options, progress, sent, jobs
        )
        try:
            return decided(explorer, name, options)
        finally:
            explorer.close()
    except Exception as error:
        return Failure.of(error)


# -- in the worker ---------------------------------------------------------------------


def _perform(pipe: Connection, recipe: bytes, options: Options) -> None:
    """Performs the executions that are requested through the pipe."""
    started(pipe)
    try:
        front_end = front_end_of(launch_of(pickle.loads(recipe)()), options.rules)
    except Exception as error:  # a recipe may raise anything
        pipe.send(Failure.of(error))
        return
    seconds = options.bounds.seconds
    # the parent counts the executions
    bounds = Bounds(traces=sys.maxsize, seconds=seconds, steps=options.bounds.steps)
    explorer = Explorer(front_end, bounds, options.reductions, None)
    with quiet_numbers(), contextlib.suppress(EOFError):
        while True:
            begin, clusters, alternative, left = pipe.recv()
            (
                front_end.elected,
                front_end.resident,
                front_end.guards,
                front_end.waits_for_flags,
            ) = begin
            if seconds < math.inf:
                explorer.started = time.perf_counter() - (
                    seconds - left
                )  # by the clock of the parent
            try:
                outcome = explorer.outcome(clusters, alternative, 0, set())
            except NotAWaitError:  # replied as a fault, so that the parent performs it
                outcome = Outcome(fault=True)
            except BoundError as bound:
                pipe.send(str(bound))
                continue
            explorer.note_requests()
            pipe.send((outcome, tuple(explorer.found.advice), explorer.unmade))
