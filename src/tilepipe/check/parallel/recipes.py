"""One of many instances: how it is made and checked, in whatever process.

An instance is a name and a *recipe*: a function without arguments that makes the program. A recipe
is what is sent to another process, never a program: a traced kernel with its arrays is large and
full of closures, and tracing it again takes milliseconds (docs/decisions, 9).
"""

from __future__ import annotations

import pickle
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilepipe.check import choose_front_end
from tilepipe.check.choose_front_end import AnyLaunch, Made, front_end_of
from tilepipe.check.decide import decide
from tilepipe.check.engine.race_reversal import Explorer
from tilepipe.check.sizes import PostponedError, Size, at_once
from tilepipe.check.verdict import Bounds, Reductions, Verdict, require_options
from tilepipe.errors import BindError, TilepipeError
from tilepipe.machine.rules import Rules

Recipe = Callable[[], Made]
Instance = tuple[str, Recipe]
# one check at a time in each process: the threads of a Dask worker would only share one interpreter
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Options:
    """The options of each check: arguments of `check.check`, and what several instances need.

    Attributes:
        may_explore: asked with the size of an instance, before anything of it is explored.
        spent: seconds of its time limit that were spent on it before.
    """

    explore: bool = False
    bounds: Bounds = Bounds()  # noqa: RUF009
    reductions: Reductions = Reductions()  # noqa: RUF009
    rules: Rules = "practice"
    may_explore: Callable[[Size], bool] = at_once
    spent: float = 0.0

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


@dataclass(frozen=True)
class Postponed:
    """An instance that was not explored, since `Options.may_explore` said no. `seconds`: spent."""

    size: Size
    seconds: float


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
                        f"  instance '{name}': " + text.replace("\n", "\n    ")
                        for name, text in self.failures.items()
                    ),
                ]
            )
        )
        for name, x in pairs:
            if isinstance(x, Failure) and x.trace:
                self.add_note(f"instance '{name}':\n{x.trace}")


def check_instance(
    name: str, recipe: Recipe, options: Options, progress: Callable[[int, int], None] | None = None
) -> CheckResult | Postponed:
    """Makes an instance and checks it. Nothing is raised but what ends a process
    (KeyboardInterrupt, SystemExit).
    """
    try:
        with _ONE_AT_A_TIME:
            front_end = front_end_of(launch_of(recipe()), options.rules)
            explorer = Explorer(front_end, options.bounds, options.reductions, progress)
            return decided(explorer, name, options)
    except Exception as error:
        return Failure.of(error)


def decided(explorer: Explorer, name: str, options: Options) -> Verdict | Postponed:
    """The verdict on an explorer's launch; or how far it came where it may not be explored yet."""
    explorer.started -= options.spent
    try:
        return decide(explorer, options.explore, name, may_explore=options.may_explore)
    except PostponedError as error:
        return Postponed(error.size, time.perf_counter() - explorer.started)


def name_of(instance: object) -> str:
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


def launch_of(made: Made) -> AnyLaunch:
    """The launch of the program that a recipe has made.

    Raises:
        BindError: the recipe has made something else.
    """
    launch = choose_front_end.launch_of(made)
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
            " function of a module, or functools.partial of one with numbers and texts, which binds"
            " the kernel there; or check with jobs=1."
        ) from error
