"""One exploration shared among processes: each performs executions, and this one keeps the account
of what has begun and what is left.

An execution is asked for by its schedule and answered by its outcome, both small. Which process
gets which, and in which order answers are taken, depends on the number of processes only and not on
who is faster, so that the same number comes to the same verdict by the same way. Where states are
merged (`states`), one process does the work.
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

from tilepipe.check.decide import decide
from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.explorer import Alternative, BoundError, Explorer, Outcome
from tilepipe.check.engine.launch_state import Scene
from tilepipe.check.parallel.instances import Answer, Failure, Options, Recipe, launch_of, pickled
from tilepipe.check.parallel.workers import Worker, WorkerError, stand_by
from tilepipe.check.proofs.guards import NotAWaitError
from tilepipe.check.verdict import Bounds, Verdict
from tilepipe.sim.run import quiet_numbers

# executions before others are asked to help: fewer take less time than to start a process
ALONE = 24
AHEAD = 2  # executions that a process has been asked for at once
_Message = tuple[Outcome, tuple[str, ...]] | str | Failure


class SharedExplorer(Explorer):
    """An explorer that has other processes perform executions, once there are many."""

    def __init__(
        self, scene: Scene, options: Options, progress: Callable[[int, int], None] | None, recipe: bytes, jobs: int
    ) -> None:  # fmt: skip
        super().__init__(scene, options.bounds, options.reductions, progress)
        self._options = options
        self._recipe = recipe
        self._jobs = jobs
        self._workers: list[Worker] = []

    def close(self) -> None:
        """Ends the other processes."""
        while self._workers:
            self._workers.pop().stop()

    def forget(self) -> None:
        """Begins anew. Processes may still have to answer what was asked for before: they end."""
        super().forget()
        self.close()

    def outcomes(
        self, clusters: Sequence[int], work: list[Alternative], first: Execution | None
    ) -> Iterator[Outcome]:
        """As of any explorer: in an order that depends on the number of processes only."""
        signatures: set[bytes] = set()
        done = 0
        while work and (done < ALONE or len(work) < self._jobs):
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
                worker.begin()
        asked: deque[tuple[int, Alternative]] = deque()
        turn = 0
        while work or asked:
            while work and len(asked) < AHEAD * self._jobs:
                alternative = work.pop()
                self.allow(len(work) + len(asked))
                number = turn % self._jobs
                turn += 1
                begin = (self.scene.elected, self.scene.guards)
                self._workers[number].send(
                    (begin, clusters, alternative, self.deadline - time.perf_counter())
                )
                asked.append((number, alternative))
            number, alternative = asked.popleft()
            outcome = self._received(self._workers[number])
            if outcome.fault:  # found again here, with its error
                self.found.traces -= 1
                outcome = self.outcome(clusters, alternative, len(work), set())
                assert outcome.fault
            elif outcome.signature in signatures:
                outcome = Outcome(outcome.states, outcome.signature)
            signatures.add(outcome.signature)
            yield outcome

    def _received(self, worker: Worker) -> Outcome:
        message: _Message = worker.receive("explored it with others")
        if isinstance(message, Failure):
            raise WorkerError(
                f"a process cannot make the instance that it is to explore: {message.text}"
            )
        if isinstance(message, str):
            raise BoundError(message)
        outcome, advice = message
        self.found.advice.extend(text for text in advice if text not in self.found.advice)
        return outcome


def answer_shared(
    name: str,
    recipe: Recipe,
    options: Options,
    jobs: int,
    progress: Callable[[int, int], None] | None,
) -> Answer:
    """As `campaign.answer`, with `jobs` processes for the executions of the one instance.

    Raises:
        BindError: the recipe cannot go to another process.
    """
    sent = pickled(name, recipe)
    try:
        explorer = SharedExplorer(
            Scene(launch_of(recipe()), options.rules), options, progress, sent, jobs
        )
        try:
            verdict: Verdict = decide(explorer, options.explore, name)
        finally:
            explorer.close()
    except Exception as error:
        return Failure.of(error)
    return verdict


# -- in the worker ---------------------------------------------------------------------


def _perform(pipe: Connection, recipe: bytes, options: Options) -> None:
    """Performs the executions that come through the pipe."""
    stand_by(pipe)
    try:
        scene = Scene(launch_of(pickle.loads(recipe)()), options.rules)
    except Exception as error:  # what recipes raise
        pipe.send(Failure.of(error))
        return
    seconds = options.bounds.seconds
    # how many executions is the parent's business
    bounds = Bounds(traces=sys.maxsize, seconds=seconds, steps=options.bounds.steps)
    explorer = Explorer(scene, bounds, options.reductions, None)
    with quiet_numbers(), contextlib.suppress(EOFError):
        while True:
            (scene.elected, scene.guards), clusters, alternative, left = pipe.recv()
            if seconds < math.inf:
                explorer.started = time.perf_counter() - (seconds - left)  # the parent's clock
            try:
                outcome = explorer.outcome(clusters, alternative, 0, set())
            except NotAWaitError:  # told as a fault, so that it is found again there
                outcome = Outcome(fault=True)
            except BoundError as bound:
                pipe.send(str(bound))
                continue
            pipe.send((outcome, tuple(explorer.found.advice)))
