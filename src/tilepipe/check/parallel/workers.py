"""Worker processes, each with a pipe of its own, so that a process that dies names its task and
costs no other.

`concurrent.futures` would do but for that: when a process of its pool dies, every future fails
alike, also those of other processes, and none says which one it was.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, TypeVar

from tilepipe.errors import TilepipeError

REPORT_INTERVAL = 0.1  # seconds between two progress reports of one worker
STOP_TIMEOUT = 5.0  # seconds that a worker has to end after it was asked to

Task = TypeVar("Task")
Report = Callable[..., None]  # called in a worker with numbers that say how far its task is
_CONTEXT = multiprocessing.get_context("spawn")


class WorkerError(TilepipeError):
    """A worker process died, or could not be started."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A task is done. `number`: its index among the tasks."""

    number: int
    result: Any


@dataclass(frozen=True, slots=True)
class Died:
    """The process that performed a task died. `how`: in words, "was killed by SIGSEGV"."""

    number: int
    how: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A report of a task on its progress. `figures`: what the task passed to its `Report`."""

    number: int
    figures: tuple[int, ...]


Event = Finished | Died | Progress


@dataclass(eq=False)
class Worker:
    """A process with a pipe to it.

    Attributes:
        started: it has sent its first message.
        task: the number of the task that it performs; -1: none.
    """

    process: SpawnProcess
    pipe: Connection
    started: bool = False
    task: int = -1

    @classmethod
    def start(cls, work: Callable[..., None], *args: object) -> Worker:
        """Starts `work(pipe, *args)` in a fresh process. All workers have one hash seed, so that
        sets have the same order in each of them.
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

    def wait_until_started(self) -> None:
        """Waits for the first message of the process.

        Raises:
            WorkerError: the process has ended instead.
        """
        self.receive("was to start")
        self.started = True

    def send(self, message: object) -> None:
        """Sends a message; if the process has died, the next `receive` raises."""
        with contextlib.suppress(OSError):
            self.pipe.send(message)

    def receive(self, doing: str) -> Any:
        """The next message.

        Raises:
            WorkerError: the process that `doing` has died.
        """
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self.stop()
            raise WorkerError(
                self.start_failure or f"the process that {doing} {self.end}"
            ) from None

    @property
    def start_failure(self) -> str:
        """Why a dead process never started; empty if it had started."""
        if self.started:
            return ""
        return (
            f"a process for checking {self.end} before it had begun. A script that asks for several"
            ' jobs does its work under `if __name__ == "__main__":`, and is a file; the output of'
            " the process is on stderr."
        )

    @property
    def end(self) -> str:
        """The end of the process, in words."""
        code = self.process.exitcode
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}" + (
                " (out of memory?)" if code == -signal.SIGKILL else ""
            )
        return f"ended with exit code {code}"

    def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        self.pipe.close()
        self.process.terminate()
        self.process.join(STOP_TIMEOUT)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def run_in_processes(
    function: Callable[[Task, Report], object], tasks: Sequence[Task], jobs: int
) -> Generator[Event, None, None]:
    """Performs `function(task, report)` for all tasks in `jobs` processes; yields what happens, as
    it happens. A closed iterator leaves no process behind.

    Raises:
        WorkerError: a process ends before it has started: none can be started here.
    """
    waiting = deque(range(len(tasks)))
    workers: list[Worker] = []
    try:
        workers.extend(Worker.start(_work, function) for _ in range(min(jobs, len(tasks))))
        while workers:
            for pipe in wait([w.pipe for w in workers]):
                worker = next(w for w in workers if w.pipe is pipe)
                try:
                    message = worker.pipe.recv()
                except (EOFError, OSError):
                    workers.remove(worker)
                    worker.stop()
                    if not worker.started:
                        raise WorkerError(worker.start_failure) from None
                    yield Died(worker.task, worker.end)
                    if waiting:
                        workers.append(Worker.start(_work, function))
                    continue
                if isinstance(message, _Reported):
                    yield Progress(worker.task, message.figures)
                    continue
                if worker.started:
                    yield Finished(worker.task, message)
                worker.started, worker.task = True, -1
                if waiting:
                    worker.task = waiting.popleft()
                    worker.send(tasks[worker.task])
                else:
                    workers.remove(worker)
                    worker.stop()
    finally:
        for worker in workers:
            worker.stop()


# -- in the worker ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reported:
    """A progress report on its way to the parent."""

    figures: tuple[int, ...]


def _work(pipe: Connection, function: Callable[[Any, Report], object]) -> None:
    """Performs the tasks that come through the pipe until it is closed."""
    started(pipe)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        pipe.send(function(task, _ThrottledReport(pipe)))


def started(pipe: Connection) -> None:
    """Tells the parent that this process has started. The parent handles Ctrl-C, and this process
    ends with it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pipe.send(None)


class _ThrottledReport:
    """Reports progress to the parent, at most once in each `REPORT_INTERVAL`."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._last = 0.0

    def __call__(self, *figures: int) -> None:
        now = time.monotonic()
        if now - self._last >= REPORT_INTERVAL:
            self._last = now
            self._pipe.send(_Reported(figures))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
