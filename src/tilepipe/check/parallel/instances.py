"""Checking many instances: one after another, in processes of this machine, or on a Dask
cluster.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilepipe.check.parallel.dask import run_on_cluster
from tilepipe.check.parallel.recipes import (
    CheckResult,
    Failure,
    Instance,
    InstanceError,
    Options,
    Postponed,
    check_instance,
    name_of,
    pickled,
)
from tilepipe.check.parallel.shared import check_shared
from tilepipe.check.parallel.workers import (
    Died,
    Finished,
    Progress as ProgressEvent,
    Report,
    run_in_processes,
)
from tilepipe.check.sizes import LargeBeside, Size, TooSmallError, later, too_small
from tilepipe.check.verdict import Bounds, Reductions, Verdict
from tilepipe.errors import BindError
from tilepipe.machine.rules import Rules

# called with (instance, executions done, executions known to be left)
Progress = Callable[[str, int, int], None]


def check_all(
    instances: Sequence[Instance],
    *,
    jobs: int = 1,
    client: Any = None,
    explore: bool = False,
    bounds: Bounds = Bounds(),  # noqa: B008
    reductions: Reductions = Reductions(),  # noqa: B008
    rules: Rules = "practice",
    progress: Progress | None = None,
    on_verdict: Callable[[int, Verdict], None] | None = None,
    large: bool = False,
) -> list[Verdict]:
    """Checks each instance. The verdicts are those of `check.check`, in the order of the instances,
    whatever the number of processes.

    Args:
        instances: (name, recipe). With jobs or a client, `pickle` must be able to send the recipe:
            a function of a module, or `functools.partial` of one with plain arguments; it is called
            in the other process.
        jobs: the number of processes. Each checks one instance at a time; if there are fewer
            instances than processes, all of them share the executions of one instance after the
            other. They are started afresh (spawn), so a script that asks for more than one does its
            work under `if __name__ == "__main__":`.
        client: a `distributed.Client` to use instead, of a cluster whose workers can import
            tilepipe and the recipes.
        explore, bounds, reductions, rules: the options of each check.
        progress: called in this thread with (instance, executions done, executions known to be
            left); not with a client.
        on_verdict: called in this thread with (index of the instance, verdict) after each check.
        large: all instances together must be large enough to say much of the kernel. None is
            explored before that is known; what is decided without exploring is decided once.

    Raises:
        InstanceError: some instances have no verdict; raised after all others were checked, with
            their verdicts.
        BindError: an argument has the wrong type or value.
        TooSmallError: by `large`; unless an instance has a fault, which matters more.
        KeyboardInterrupt: Ctrl-C, with a note of the instances not yet checked; no process is left
            behind.
    """
    if not isinstance(jobs, int) or isinstance(jobs, bool) or jobs < 1:
        raise BindError(f"jobs= is a number of processes, at least 1; got {jobs!r}")
    if client is not None and jobs > 1:
        raise BindError(
            "give jobs= for processes of this machine, or client= for a Dask cluster; got both"
            f" ({jobs} jobs)"
        )
    options = Options(explore, bounds, reductions, rules)
    if not isinstance(instances, Sequence):
        raise BindError(
            f"check_all takes a list of instances, each (name, recipe); got {instances!r:.80}"
        )
    names = [name_of(instance) for instance in instances]
    results: dict[int, CheckResult] = {}
    postponed: dict[int, Postponed] = {}

    def record(number: int, result: CheckResult | Postponed) -> None:
        if isinstance(result, Postponed):
            postponed[number] = result
            return
        results[number] = result
        if on_verdict is not None and isinstance(result, Verdict):
            on_verdict(number, result)

    def perform(numbers: Sequence[int], given: Sequence[Options]) -> None:
        some = [instances[number] for number in numbers]

        def of_some(i: int, result: CheckResult | Postponed) -> None:
            record(numbers[i], result)

        if client is not None:
            run_on_cluster(some, given, client, of_some)
        elif 1 < jobs <= len(some):
            _check_in_processes(some, given, jobs, of_some, progress)
        else:
            for number, one in zip(numbers, given, strict=True):
                name, recipe = instances[number]
                if one.may_explore is later:  # the sizes of those before are known
                    one = replace(one, may_explore=LargeBeside(_sizes(results, postponed)))
                report = _progress_of(progress, name)
                record(
                    number,
                    check_instance(name, recipe, one, report)
                    if jobs == 1
                    else check_shared(name, recipe, one, jobs, report),
                )

    try:
        every = range(len(instances))
        if not large:
            perform(every, [options] * len(instances))
        else:
            # from the last one: mostly the largest, beside which all others may be explored
            perform(every[::-1], [replace(options, may_explore=later)] * len(instances))
            _require_large(results, postponed)
            left = sorted(postponed)
            if left:
                perform(left, [replace(options, spent=postponed[n].seconds) for n in left])
    except KeyboardInterrupt as error:
        error.add_note(
            f"interrupted: {len(results)} of {len(names)} instances have been checked, not yet"
            f" {_listed(names, results)}"
        )
        raise
    ordered = [results[number] for number in range(len(names))]
    verdicts = [x for x in ordered if isinstance(x, Verdict)]
    if len(verdicts) < len(ordered):
        raise InstanceError(names, ordered)
    return verdicts


def _sizes(
    results: Mapping[int, CheckResult], postponed: Mapping[int, Postponed]
) -> tuple[Size, ...]:
    """The sizes of the instances that have been executed, in their order."""
    found = {n: x.size for n, x in postponed.items()}
    for n, x in results.items():
        if isinstance(x, Verdict):
            found[n] = Size(x.instance, x.completions, x.grid)
    return tuple(found[n] for n in sorted(found))


def _require_large(results: Mapping[int, CheckResult], postponed: Mapping[int, Postponed]) -> None:
    """Raises TooSmallError if all instances together are too small, and that matters most."""
    if any(isinstance(x, Failure) or x.faults for x in results.values()):
        return
    problems = too_small(_sizes(results, postponed))
    if problems:
        raise TooSmallError(problems)


def _check_in_processes(
    instances: Sequence[Instance],
    options: Sequence[Options],
    jobs: int,
    record: Callable[[int, CheckResult | Postponed], None],
    progress: Progress | None,
) -> None:
    """Checks each instance in one of several processes."""
    tasks = [
        (name, pickled(name, recipe), one)
        for (name, recipe), one in zip(instances, options, strict=True)
    ]
    with contextlib.closing(run_in_processes(_check_task, tasks, jobs)) as events:
        for event in events:
            match event:
                case Finished(number, result):
                    record(number, result)
                case Died(number, how):
                    why = f"the process that checked it {how}. The other instances are not affected"
                    record(number, Failure(why))
                case ProgressEvent(number, (done, left)) if progress is not None:
                    progress(tasks[number][0], done, left)


def _check_task(task: tuple[str, bytes, Options], report: Report) -> CheckResult | Postponed:
    """Checks an instance in another process."""
    name, recipe, options = task
    try:
        made: Any = pickle.loads(recipe)
    except Exception as error:  # its module cannot be imported there
        return Failure.of(error)
    return check_instance(name, made, options, report)


def _progress_of(progress: Progress | None, name: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, left: progress(name, done, left)


def _listed(names: Sequence[str], results: dict[int, CheckResult]) -> str:
    left = [f"'{name}'" for number, name in enumerate(names) if number not in results]
    return ", ".join(left[:4]) + (f" and {len(left) - 4} more" if len(left) > 4 else "")
