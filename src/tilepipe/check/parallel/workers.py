"""Processes that check instances: each has a pipe of its own, so that a death names its instance
and costs no other.

`concurrent.futures` would do but for that: when a process of its pool dies, every future fails
alike, also those that were running elsewhere, and none says which it was.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from tilepipe.check.parallel.instances import Answer, Failure, Options, Progress, answer
from tilepipe.errors import TilepipeError

INTERVAL = 0.1  # seconds between two messages of progress of one worker
PATIENCE = 5.0  # seconds that a worker has to end once it has been told to

Task = tuple[str, bytes]  # name, pickled recipe
_CONTEXT = multiprocessing.get_context("spawn")


class WorkerError(TilepipeError):
    """A process that checks has died, or cannot begin."""


@dataclass(eq=False)
class Worker:
    """A process with a pipe to it. `task`: the number of the one that it is at; -1: none."""

    process: SpawnProcess
    pipe: Connection
    began: bool = False  # it has said so
    task: int = -1

    @classmethod
    def start(cls, work: Callable[..., None], *args: object) -> Worker:
        """Starts `work(pipe, *args)` in a fresh process, in which equal keys have equal hashes as
        in every other one.
        """
        here, there = _CONTEXT.Pipe()
        process = _CONTEXT.Process(
            target=work, args=(there, *args), daemon=True, name="tilepipe check"
        )
        given = os.environ.get("PYTHONHASHSEED")
        os.environ["PYTHONHASHSEED"] = "0"
        try:
            process.start()
        finally:
            del os.environ["PYTHONHASHSEED"]
            if given is not None:
                os.environ["PYTHONHASHSEED"] = given
        there.close()
        return cls(process, here)

    def begin(self) -> None:
        """Waits until it has begun.

        Raises:
            WorkerError: it has ended instead.
        """
        self.receive("was to begin")
        self.began = True

    def send(self, message: object) -> None:
        """Sends a message; where it has died since, the next `receive` says so."""
        with contextlib.suppress(OSError):
            self.pipe.send(message)

    def receive(self, doing: str) -> Any:
        """The next message.

        Raises:
            WorkerError: it has died while it `doing`.
        """
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self.stop()
            raise WorkerError(self.begun() or f"the process that {doing} {self.end()}") from None

    def begun(self) -> str:
        """Why it, dead, has never begun; empty where it has."""
        if self.began:
            return ""
        return (
            f"a process for checking {self.end()} before it had begun. A script that asks for"
            " several jobs does its work under"
            ' `if __name__ == "__main__":`, and is a file; what the process said is on stderr.'
        )

    def end(self) -> str:
        """How it ended, in words."""
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}" + (
                " (out of memory?)" if code == -signal.SIGKILL else ""
            )
        return f"ended with exit code {code}"

    def stop(self) -> None:
        """Ends it, whatever it is doing."""
        self.pipe.close()
        self.process.terminate()
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def run_in_processes(
    tasks: Sequence[Task],
    options: Options,
    jobs: int,
    answered: Callable[[int, Answer], None],
    progress: Progress | None,
) -> None:
    """Checks all tasks in `jobs` processes, and calls `answered` with (number, answer) in this
    thread as they are done.

    Raises:
        WorkerError: a process ends before it has begun: they cannot be started here.
    """
    waiting = deque(range(len(tasks)))
    workers: list[Worker] = []
    try:
        workers.extend(Worker.start(_work, options) for _ in range(jobs))
        while workers:
            for pipe in wait([w.pipe for w in workers]):
                worker = next(w for w in workers if w.pipe is pipe)
                try:
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    workers.remove(worker)
                    _bury(worker, answered)
                    if waiting:
                        workers.append(Worker.start(_work, options))
                    continue
                if isinstance(message, tuple):
                    if progress is not None:
                        progress(tasks[worker.task][0], *message)
                    continue
                if worker.began:
                    answered(worker.task, message)
                worker.began, worker.task = True, -1
                if waiting:
                    worker.task = waiting.popleft()
                    worker.send(tasks[worker.task])
                else:
                    workers.remove(worker)
                    worker.stop()
    finally:
        for worker in workers:
            worker.stop()


def _bury(worker: Worker, answered: Callable[[int, Answer], None]) -> None:
    """Says what a dead worker was at."""
    worker.stop()
    if not worker.began:
        raise WorkerError(worker.begun())
    answered(
        worker.task,
        Failure(
            f"the process that checked it {worker.end()}. The other instances are not affected"
        ),
    )


# -- in the worker ---------------------------------------------------------------------


def _work(pipe: Connection, options: Options) -> None:
    """Checks what comes through the pipe until it is closed."""
    stand_by(pipe)
    while True:
        try:
            name, recipe = pipe.recv()
        except EOFError:
            return
        pipe.send(_checked(name, recipe, options, _Throttle(pipe)))


def stand_by(pipe: Connection) -> None:
    """Says that this process has begun. Ctrl-C is the parent's business; without the parent there
    is nothing to do.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pipe.send(None)


def _checked(
    name: str, recipe: bytes, options: Options, progress: Callable[[int, int], None]
) -> Answer:
    try:
        made: Any = pickle.loads(recipe)
    except Exception as error:  # a module that is not there, or that raises
        return Failure.of(error)
    return answer(name, made, options, progress)


class _Throttle:
    """Tells the parent how far an exploration is, now and then."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._last = 0.0

    def __call__(self, done: int, left: int) -> None:
        now = time.monotonic()
        if now - self._last >= INTERVAL:
            self._last = now
            self._pipe.send((done, left))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
