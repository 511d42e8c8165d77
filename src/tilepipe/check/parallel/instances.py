"""Checking many instances: one after another, in processes of this machine, or on a Dask cluster.

An instance is a name and a *recipe*: a function without arguments that makes the program. A recipe
is what is sent to another process, never a program: a traced kernel with its arrays is large and
full of closures, and tracing it again takes milliseconds (docs/decisions, 9).
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilepipe.check.decide import check
from tilepipe.check.parallel.workers import (
    Died,
    Finished,
    Progress as ProgressEvent,
    Report,
    run_in_processes,
)
from tilepipe.check.verdict import Bounds, Reductions, Verdict, require_options
from tilepipe.errors import BindError, TilepipeError
from tilepipe.ir.program import HoldsLaunch, Launch
from tilepipe.machine.rules import Rules

Recipe = Callable[[], HoldsLaunch | Launch]
Instance = tuple[str, Recipe]
# called with (instance, executions done, executions known to be left)
Progress = Callable[[str, int, int], None]
# one check at a time in each process: the threads of a Dask worker would only share one interpreter
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Options:
    """The options of each check: arguments of `check.check`."""

    explore: bool = False
    bounds: Bounds = Bounds()  # noqa: RUF009
    reductions: Reductions = Reductions()  # noqa: RUF009
    rules: Rules = "practice"

    def __post_init__(self) -> None:
        require_options(self.explore, self.bounds, self.reductions, self.rules)


@dataclass(frozen=True)
class Failure:
    """Why an instance has no verdict. `trace`: the traceback of an error that is not tilepipe's
    own; otherwise empty.
    """

    text: str
    trace: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """An error as text: not every exception can be sent to another process."""
        text = f"{type(error).__name__}: {error}"
        own = isinstance(error, TilepipeError)
        return cls(text, "" if own else "".join(traceback.format_exception(error)).rstrip())


CheckResult = Verdict | Failure


class InstanceError(TilepipeError):
    """Some instances could not be checked: their recipe raised, or their process died. All others
    were checked.

    Attributes:
        verdicts: one for each instance, in order; None for those that could not be checked.
        failures: instance -> the reason.
    """

    def __init__(self, names: Sequence[str], answers: Sequence[CheckResult]) -> None:
        pairs = list(zip(names, answers, strict=True))
        self.verdicts: list[Verdict | None] = [
            x if isinstance(x, Verdict) else None for x in answers
        ]
        self.failures: dict[str, str] = {
            name: x.text for name, x in pairs if isinstance(x, Failure)
        }
        count = (
            f"{len(self.failures)} of {len(names)} instances could not be checked"
            if len(names) > 1
            else "it could not be checked"
        )
        super().__init__(
            "\n".join(
                [
                    count,
                    *(
                        f"  instance '{name}': {_indented(text)}"
                        for name, text in self.failures.items()
                    ),
                ]
            )
        )
        for name, x in pairs:
            if isinstance(x, Failure) and x.trace:
                self.add_note(f"instance '{name}':\n{x.trace}")


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")


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

    Raises:
        InstanceError: some instances have no verdict; raised after all others were checked, with
            their verdicts.
        BindError: an argument has the wrong type or value.
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
    names = [_named(instance) for instance in instances]
    results: dict[int, CheckResult] = {}

    def record(number: int, result: CheckResult) -> None:
        results[number] = result
        if on_verdict is not None and isinstance(result, Verdict):
            on_verdict(number, result)

    try:
        if client is not None:
            from tilepipe.check.parallel.dask import run_on_cluster

            run_on_cluster(instances, options, client, record)
        elif jobs > len(instances):
            from tilepipe.check.parallel.shared import check_shared

            for number, (name, recipe) in enumerate(instances):
                report = _progress_of(progress, name)
                record(number, check_shared(name, recipe, options, jobs, report))
        elif jobs > 1:
            _check_in_processes(instances, options, jobs, record, progress)
        else:
            for number, (name, recipe) in enumerate(instances):
                record(number, check_instance(name, recipe, options, _progress_of(progress, name)))
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


def _check_in_processes(
    instances: Sequence[Instance],
    options: Options,
    jobs: int,
    record: Callable[[int, CheckResult], None],
    progress: Progress | None,
) -> None:
    """Checks each instance in one of several processes."""
    tasks = [(name, pickled(name, recipe)) for name, recipe in instances]
    perform = functools.partial(_check_task, options)
    with contextlib.closing(run_in_processes(perform, tasks, jobs)) as events:
        for event in events:
            match event:
                case Finished(number, result):
                    record(number, result)
                case Died(number, how):
                    why = f"the process that checked it {how}. The other instances are not affected"
                    record(number, Failure(why))
                case ProgressEvent(number, (done, left)) if progress is not None:
                    progress(tasks[number][0], done, left)


def _check_task(options: Options, task: tuple[str, bytes], report: Report) -> CheckResult:
    """Checks an instance in another process."""
    name, recipe = task
    try:
        made: Any = pickle.loads(recipe)
    except Exception as error:  # its module cannot be imported there
        return Failure.of(error)
    return check_instance(name, made, options, report)


def check_instance(
    name: str, recipe: Recipe, options: Options, progress: Callable[[int, int], None] | None = None
) -> CheckResult:
    """Makes an instance and checks it. Nothing is raised but what ends a process
    (KeyboardInterrupt, SystemExit).
    """
    try:
        with _ONE_AT_A_TIME:
            return check(
                launch_of(recipe()),
                explore=options.explore,
                bounds=options.bounds,
                reductions=options.reductions,
                rules=options.rules,
                instance=name,
                progress=progress,
            )
    except Exception as error:
        return Failure.of(error)


def _named(instance: object) -> str:
    """The name of an instance; raises BindError if it is not a pair of a name and a recipe."""
    match instance:
        case (str() as name, recipe) if callable(recipe):
            return name
        case (str() as name, made):
            raise BindError(
                f"instance '{name}' needs a recipe, a function without arguments that makes the"
                f" program; got {made!r:.80}"
            )
    raise BindError(
        "an instance is (name, recipe), such as ('two steps', make), where make() gives the"
        f" program; got {instance!r:.80}"
    )


def launch_of(made: HoldsLaunch | Launch) -> Launch:
    """The launch of the program that a recipe has made.

    Raises:
        BindError: the recipe has made something else.
    """
    launch = made if isinstance(made, Launch) else getattr(made, "launch_args", None)
    if launch is None:
        raise BindError(
            f"a recipe gives a program, as kernel.bind(...) does; this one gave {made!r:.80}"
        )
    return launch


def pickled(name: str, recipe: Recipe) -> bytes:
    """A recipe as the bytes that are sent to another process.

    Raises:
        BindError: it refers to something that exists in this process only.
    """
    try:
        return pickle.dumps(recipe)
    except Exception as error:  # pickle raises what the objects raise
        raise BindError(
            f"the recipe of instance '{name}' cannot go to another process ({error}). Give a"
            " function of a module, or functools.partial"
            " of one with numbers and texts, which binds the kernel there; or check with jobs=1."
        ) from error


def _progress_of(progress: Progress | None, name: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, left: progress(name, done, left)


def _listed(names: Sequence[str], results: dict[int, CheckResult]) -> str:
    left = [f"'{name}'" for number, name in enumerate(names) if number not in results]
    return ", ".join(left[:4]) + (f" and {len(left) - 4} more" if len(left) > 4 else "")
