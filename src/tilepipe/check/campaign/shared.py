"""One exploration shared among processes: each performs executions, and this one keeps the account of what has begun and what is left.

An execution is asked for by its schedule and answered by its outcome, both small; with the next request a process hears which states the
others have met and followed to the end. Which process gets which, when it hears what, and in which order answers are taken, depends on
the number of processes only and not on who is faster, so that the same number comes to the same verdict by the same way. They hear of a
state later than one process alone would: a few more executions are performed in all.
"""

from __future__ import annotations

import contextlib
import math
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection

from tilepipe.check.campaign.instances import Answer, Failure, Options, Recipe, launch_of, pickled
from tilepipe.check.campaign.workers import Worker, WorkerError, stand_by
from tilepipe.check.deciding import decide
from tilepipe.check.execution import Execution
from tilepipe.check.explorer import Alternative, BoundError, Explorer, Memory, Outcome
from tilepipe.check.scene import Scene
from tilepipe.check.verdict import Bounds, Verdict
from tilepipe.sim.run import quiet_numbers

ALONE = 24  # executions before others are asked to help: fewer take less time than to start a process
AHEAD = 2  # executions that a process has been asked for at once
_Message = tuple[Outcome, tuple[int, ...], tuple[str, ...]] | str | Failure


class _Telling(Memory):
    """A memory that notes which states are new."""

    __slots__ = ("fresh",)

    def __init__(self, merging: bool) -> None:
        super().__init__(merging)
        self.fresh: list[int] = []

    def knows(self, state: int) -> bool:
        known = super().knows(state)
        if not known:
            self.fresh.append(state)
        return known

    def told(self) -> tuple[int, ...]:
        """The states that were met since the last call."""
        fresh, self.fresh = tuple(self.fresh), []
        return fresh


class _News:
    """Which states which process has met, and who has heard of them."""

    def __init__(self, jobs: int) -> None:
        self._met: list[tuple[int, tuple[int, ...]]] = []
        self._heard = [0] * jobs

    def add(self, worker: int, states: tuple[int, ...]) -> None:
        """A worker has met states."""
        self._met.append((worker, states))

    def of(self, worker: int) -> tuple[int, ...]:
        """What a worker has not heard yet; now it has."""
        fresh = self._met[self._heard[worker] :]
        self._heard[worker] = len(self._met)
        return tuple(state for who, states in fresh if who != worker for state in states)


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

    def outcomes(self, clusters: Sequence[int], work: list[Alternative], first: Execution | None, merging: bool) -> Iterator[Outcome]:
        """As of any explorer: in an order that depends on the number of processes only."""
        memory, done = Memory(merging), list[Alternative]()
        while work and (len(done) < ALONE or len(work) < self._jobs):
            done.append(work.pop())
            yield self.outcome(clusters, done[-1], len(work), memory, first)
            first = None
        if work:
            yield from self._shared(tuple(clusters), work, merging, done)

    def _shared(
        self, clusters: tuple[int, ...], work: list[Alternative], merging: bool, done: list[Alternative]
    ) -> Iterator[Outcome]:  # fmt: skip
        """`done`: what has been performed; each process does so again, to know what this one knows."""
        if not self._workers:
            self._workers.extend(Worker.start(_perform, self._recipe, self._options) for _ in range(self._jobs))
            for worker in self._workers:
                worker.begin()
        for worker in self._workers:
            worker.send((clusters, merging, done))
        signatures: set[int] = set()
        asked: deque[tuple[int, Alternative]] = deque()
        news, turn = _News(self._jobs), 0
        while work or asked:
            while work and len(asked) < AHEAD * self._jobs:
                alternative = work.pop()
                self.allow(len(work) + len(asked))
                number = turn % self._jobs
                turn += 1
                self._workers[number].send((alternative, news.of(number)))
                asked.append((number, alternative))
            number, alternative = asked.popleft()
            outcome, met = self._received(self._workers[number])
            news.add(number, met)
            if outcome.fault:  # found again here, with its error
                self.found.traces -= 1
                outcome = self.outcome(clusters, alternative, len(work), Memory(merging=False))
                assert outcome.fault
            elif outcome.signature in signatures:
                outcome = Outcome(outcome.states, outcome.signature)
            signatures.add(outcome.signature)
            yield outcome

    def _received(self, worker: Worker) -> tuple[Outcome, tuple[int, ...]]:
        message: _Message = worker.receive("explored it with others")
        if isinstance(message, Failure):
            raise WorkerError(f"a process cannot make the instance that it is to explore: {message.text}")
        if isinstance(message, str):
            raise BoundError(message)
        outcome, met, advice = message
        self.found.advice.extend(text for text in advice if text not in self.found.advice)
        return outcome, met


def answer_shared(name: str, recipe: Recipe, options: Options, jobs: int, progress: Callable[[int, int], None] | None) -> Answer:
    """As `campaign.answer`, with `jobs` processes for the executions of the one instance.

    Raises:
        BindError: the recipe cannot go to another process.
    """
    sent = pickled(name, recipe)
    try:
        explorer = SharedExplorer(Scene(launch_of(recipe()), options.strict_proxy), options, progress, sent, jobs)
        try:
            verdict: Verdict = decide(explorer, options.explore, name)
        finally:
            explorer.close()
    except Exception as error:
        return Failure.of(error)
    return verdict


# -- in the worker -----------------------------------------------------------------------------------------------------


def _perform(pipe: Connection, recipe: bytes, options: Options) -> None:
    """Performs the executions that come through the pipe."""
    stand_by(pipe)
    try:
        scene = Scene(launch_of(pickle.loads(recipe)()), options.strict_proxy)
    except Exception as error:  # what recipes raise
        pipe.send(Failure.of(error))
        return
    bounds = Bounds(traces=sys.maxsize, seconds=math.inf, steps=options.bounds.steps)  # of each execution; the others are the parent's
    explorer = Explorer(scene, bounds, options.reductions, None)
    clusters, memory = (), _Telling(merging=False)
    with quiet_numbers(), contextlib.suppress(EOFError):
        while True:
            message = pipe.recv()
            if len(message) == 3:  # another exploration, and what of it is done
                clusters, memory = message[0], _Telling(message[1])
                for alternative in message[2]:
                    explorer.outcome(clusters, alternative, 0, memory)
                memory.told()
                continue
            alternative, news = message
            memory.states.update(news)
            try:
                outcome = explorer.outcome(clusters, alternative, 0, memory)
            except BoundError as bound:
                pipe.send(str(bound))
                continue
            pipe.send((outcome, memory.told(), tuple(explorer.found.advice)))
