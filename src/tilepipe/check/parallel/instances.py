"""Checking many instances: one after another, in processes of this machine, or on a Dask cluster.

An instance is a name and a *recipe*: a function without arguments that makes the program. What
travels to another process is the recipe, never a program: a traced kernel with its arrays is large
and full of closures, and its trace takes milliseconds to make again.
"""

from __future__ import annotations

import pickle
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilepipe.check.decide import check
from tilepipe.check.verdict import Bounds, Reductions, Verdict, require_options
from tilepipe.errors import BindError, TilepipeError
from tilepipe.ir.launch import Launch
from tilepipe.machine.rules import Rules

if TYPE_CHECKING:
    from tilepipe.program import Program

Recipe = Callable[[], "Program | Launch"]
Instance = tuple[str, Recipe]
# (instance, executions done, executions known to be left)
Progress = Callable[[str, int, int], None]
# of a process: a Dask worker has several threads, and Python runs one of them
_ONE = threading.Lock()


@dataclass(frozen=True)
class Options:
    """How each instance is checked: the arguments of `check.check`."""

    explore: bool = False
    bounds: Bounds = Bounds()  # noqa: RUF009
    reductions: Reductions = Reductions()  # noqa: RUF009
    rules: Rules = "practice"

    def __post_init__(self) -> None:
        require_options(self.explore, self.bounds, self.reductions, self.rules)


@dataclass(frozen=True)
class Failure:
    """Why an instance has no verdict. `trace`: of an error that is not tilepipe's own; else
    empty.
    """

    text: str
    trace: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """An error in words: it crosses processes, and not every exception can."""
        text = f"{type(error).__name__}: {error}"
        own = isinstance(error, TilepipeError)
        return cls(text, "" if own else "".join(traceback.format_exception(error)).rstrip())


Answer = Verdict | Failure


class InstanceError(TilepipeError):
    """Instances that could not be checked: their recipe raised, or their process died. The others
    were.

    Attributes:
        verdicts: for each instance, in order; None where there is none. failures: instance -> why.
    """

    def __init__(self, names: Sequence[str], answers: Sequence[Answer]) -> None:
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
    however many processes there are.

    Args:
        instances: (name, recipe). With jobs or a client, a recipe is what `pickle` takes: a
            function of a module, or `functools.partial` of one with plain arguments; it is called
            in the other process.
        jobs: processes. Each checks one instance at a time; with fewer instances than processes
            they share the executions of one instance after the other, where those are many. They
            are started afresh (spawn), so a script that asks for more than one does its work under
            `if __name__ == "__main__":`.
        client: a `distributed.Client` instead, of a cluster whose workers can import tilepipe and
            the recipes.
        explore, bounds, reductions, rules: of each check.
        progress: called in this thread with (instance, executions done, executions known to be
            left); not with a client.
        on_verdict: called in this thread with (number of the instance, verdict), as each is done.

    Raises:
        InstanceError: instances without a verdict, after the others are done; it has those.
            BindError: what cannot be asked for.
        KeyboardInterrupt: Ctrl-C, with a note of what was being checked; no process is left behind.
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
    answers: dict[int, Answer] = {}

    def answered(number: int, answer: Answer) -> None:
        answers[number] = answer
        if on_verdict is not None and isinstance(answer, Verdict):
            on_verdict(number, answer)

    try:
        if client is not None:
            from tilepipe.check.parallel.dask import run_on_cluster

            run_on_cluster(instances, options, client, answered)
        elif jobs > len(instances):
            from tilepipe.check.parallel.shared import answer_shared

            for number, (name, recipe) in enumerate(instances):
                answered(number, answer_shared(name, recipe, options, jobs, _told(progress, name)))
        elif jobs > 1:
            from tilepipe.check.parallel.workers import run_in_processes

            tasks = [(name, pickled(name, recipe)) for name, recipe in instances]
            run_in_processes(tasks, options, min(jobs, len(tasks)), answered, progress)
        else:
            for number, (name, recipe) in enumerate(instances):
                answered(number, answer(name, recipe, options, _told(progress, name)))
    except KeyboardInterrupt as error:
        error.add_note(
            f"interrupted: {len(answers)} of {len(names)} instances have been checked, not yet"
            f" {_listed(names, answers)}"
        )
        raise
    ordered = [answers[number] for number in range(len(names))]
    verdicts = [x for x in ordered if isinstance(x, Verdict)]
    if len(verdicts) < len(ordered):
        raise InstanceError(names, ordered)
    return verdicts


def answer(
    name: str, recipe: Recipe, options: Options, progress: Callable[[int, int], None] | None = None
) -> Answer:
    """Makes an instance and checks it. Raises nothing but what ends a process (KeyboardInterrupt,
    SystemExit).
    """
    try:
        with _ONE:
            return check(
                launch_of(recipe()),
                explore=options.explore, bounds=options.bounds, reductions=options.reductions, rules=options.rules,
                instance=name, progress=progress,
            )  # fmt: skip
    except Exception as error:
        return Failure.of(error)


def _named(instance: object) -> str:
    """The name of an instance; raises BindError where it is none."""
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


def launch_of(made: Program | Launch) -> Launch:
    """What a recipe has made, as a launch.

    Raises:
        BindError: it has made something else.
    """
    launch = made if isinstance(made, Launch) else getattr(made, "launch_args", None)
    if launch is None:
        raise BindError(
            f"a recipe gives a program, as kernel.bind(...) does; this one gave {made!r:.80}"
        )
    return launch


def pickled(name: str, recipe: Recipe) -> bytes:
    """A recipe as it travels.

    Raises:
        BindError: it is made of something that belongs to this process only.
    """
    try:
        return pickle.dumps(recipe)
    except Exception as error:  # pickle raises what the objects raise
        raise BindError(
            f"the recipe of instance '{name}' cannot go to another process ({error}). Give a"
            " function of a module, or functools.partial"
            " of one with numbers and texts, which binds the kernel there; or check with jobs=1."
        ) from error


def _told(progress: Progress | None, name: str) -> Callable[[int, int], None] | None:
    return None if progress is None else lambda done, left: progress(name, done, left)


def _listed(names: Sequence[str], answers: dict[int, Answer]) -> str:
    left = [f"'{name}'" for number, name in enumerate(names) if number not in answers]
    return ", ".join(left[:4]) + (f" and {len(left) - 4} more" if len(left) > 4 else "")
