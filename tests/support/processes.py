"""Campaigns in several processes, on the workers of the checker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tilepipe.check.parallel.workers import Died, Finished, Report, WorkerError, run_in_processes

Task = TypeVar("Task")
Result = TypeVar("Result")


def map_in_processes(
    function: Callable[[Task], Result], tasks: Sequence[Task], jobs: int
) -> Iterator[Result]:
    """`function(task)` for each task, in the order of the tasks; with one job, in this process.

    Raises:
        WorkerError: the process of a task died.
    """
    if jobs == 1:
        yield from map(function, tasks)
        return
    done: dict[int, Result] = {}
    next_one = 0
    with contextlib.closing(run_in_processes(_Unreported(function), tasks, jobs)) as events:
        for event in events:
            if isinstance(event, Died):
                raise WorkerError(f"the process of {tasks[event.number]!r:.200} {event.how}")
            if isinstance(event, Finished):
                done[event.number] = event.result
            while next_one in done:
                yield done.pop(next_one)
                next_one += 1


@dataclass(frozen=True, slots=True)
class _Unreported:
    """A function that reports no progress, in the form that `run_in_processes` calls."""

    function: Callable[[Any], object]

    def __call__(self, task: object, report: Report) -> object:
        return self.function(task)
