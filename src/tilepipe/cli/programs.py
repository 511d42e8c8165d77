"""What `tilepipe check` and `tilepipe replay` are given, as programs: a shipped kernel, or
FILE.py:NAME.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import linecache
import os
import sys
import traceback
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tilepipe as tp
from tilepipe import files
from tilepipe.check.counterexamples.saved import indefinite
from tilepipe.cli.arguments import KINDS, arguments
from tilepipe.errors import BindError, TilepipeError
from tilepipe.program.arguments import check_zeros
from tilepipe.registry.catalog import Instance, find
from tilepipe.registry.settings import pairs

_T = typing.TypeVar("_T")
EXAMPLE = "def small(stages: int = 4): return {name}.bind(a, b, c, stages=stages)"


@dataclass(frozen=True, eq=False)
class Target:
    """What is checked.

    Attributes:
        what: a kernel's name, or FILE.py:NAME. config: settings, without extents that the instances
            have.
        stages: those of them that say how many stages there are, where `Instance.make` takes them.
    """

    what: str
    config: dict[str, Any]
    instances: list[Instance]
    stages: dict[str, int]


def target(what: str, settings: Sequence[str]) -> Target:
    """The instances that are meant.

    Args:
        settings: texts `name=value`.

    Raises:
        BindError: there is no such kernel, file or name, it is no program, a setting that it does
            not have.
    """
    if what.endswith(".py") or ".py:" in what or os.sep in what:
        return _of_file(what, tuple(settings))
    try:
        spec = find(what)
    except BindError as error:
        raise BindError(f"{error}. A kernel of your own is FILE.py:NAME") from None
    config, instances = spec.instances(spec.parse(list(settings)))
    return Target(what, dict(config), instances, _stages(config))


def made(what: str, settings: tuple[str, ...], number: int) -> tp.Program:
    """The program of an instance: what a process is sent is this function and its arguments."""
    return _one_of(what, target(what, settings).instances, number).make()


def recipes(
    found: Target, settings: Sequence[str], jobs: int
) -> list[tuple[str, Callable[[], tp.Program]]]:
    """(name, what makes the program) of each instance; for other processes, what these can make it
    of.
    """
    if jobs == 1:
        return [(x.name, x.make) for x in found.instances]
    return [
        (x.name, functools.partial(made, found.what, tuple(settings), i))
        for i, x in enumerate(found.instances)
    ]


def _stages(config: dict[str, Any]) -> dict[str, int]:
    return {
        name: n
        for name, n in config.items()
        if "stages" in name and isinstance(n, int) and not isinstance(n, bool)
    }


# -- FILE.py:NAME ----------------------------------------------------------------------


def _of_file(what: str, settings: tuple[str, ...]) -> Target:
    file, colon, name = what.rpartition(":")
    if not colon or not name.isidentifier():
        raise BindError(
            f"say which program of {file or what} is meant: {(file or what).rstrip(':')}:NAME"
        )
    value = _value(file, name)
    if isinstance(value, tp.KernelFunction):
        raise _unbound(f"{what} is a kernel", name)
    if inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value):
        raise BindError(
            f"{what} is an async function, which makes no program when it is called. Write `def"
            f" {name}` without async"
        )
    if isinstance(value, types.FunctionType | functools.partial):
        config = arguments(what, value, pairs(settings))
        kept = {n: x for n, x in config.items() if isinstance(x, KINDS)}
        again = functools.partial(_all, what, file, value, config)
        programs = again()
        makes = [
            functools.partial(_made_or_again, what, program, again, i)
            for i, program in enumerate(programs)
        ]
        return Target(what, kept, _named(programs, makes), _stages(kept))
    if settings:
        raise BindError(
            f"{what} has no settings: it is no function. One that returns a program takes -s"
            f" {settings[0]} as an argument"
        )
    programs = _programs(what, value)
    return Target(what, {}, _named(programs, [functools.partial(_same, p) for p in programs]), {})


def _named(
    programs: Sequence[tp.Program], makes: Sequence[Callable[..., tp.Program]]
) -> list[Instance]:
    return [
        Instance(_name(p, i, len(programs)), make)
        for i, (p, make) in enumerate(zip(programs, makes, strict=True))
    ]


def _same(program: tp.Program) -> tp.Program:
    check_zeros(program.launch_args)
    return program


def _all(
    what: str, file: str, function: Callable[..., Any], config: dict[str, Any], **changed: Any
) -> list[tp.Program]:
    return _programs(what, _called(what, file, function, config | changed))


def _made_or_again(
    what: str,
    program: tp.Program,
    again: Callable[..., list[tp.Program]],
    number: int,
    **changed: Any,
) -> tp.Program:
    """The program that was made; with settings changed, the one that the function makes with
    those.
    """
    return _same(_one_of(what, again(**changed), number) if changed else program)


def _one_of(what: str, made: Sequence[_T], number: int) -> _T:
    if number >= len(made):
        raise BindError(
            f"{what} makes {len(made)} program{'s' if len(made) > 1 else ''} now, and number"
            f" {number + 1} was meant"
        )
    return made[number]


def _name(program: tp.Program, number: int, count: int) -> str:
    """An instance in words: "a (256, 576), n 3, 2 CTAs"."""
    launch, size = program.launch_args, program.kernel.cluster_size
    said = [f"{name} {getattr(arg, 'shape', arg)}" for name, arg in launch.args.items()]
    clusters = f" in clusters of {size}" if size > 1 else ""
    words = ", ".join([*said, f"{launch.grid} CTA{'s' if launch.grid > 1 else ''}{clusters}"])
    return f"{number + 1}: {words}" if count > 1 else words


def _programs(what: str, value: object) -> list[tp.Program]:
    listed = list(value) if isinstance(value, list | tuple) else [value]
    found = [x for x in listed if isinstance(x, tp.Program)]
    for kernel in (x for x in listed if isinstance(x, tp.KernelFunction)):
        raise _unbound(f"{what} makes the kernel '{kernel.name}'", kernel.name)
    for coroutine in (x for x in listed if inspect.iscoroutine(x)):
        coroutine.close()  # or Python warns that it was never awaited
    if not found or len(found) < len(listed):
        wrong = next((type(x).__name__ for x in listed if not isinstance(x, tp.Program)), "")
        said = (
            (indefinite(wrong) + (" in a list" if listed != [value] else ""))
            if wrong
            else "an empty list"
        )
        raise BindError(
            f"{what} is neither a program (what `kernel.bind(...)` returns), a list of programs,"
            f" nor makes one: it is {said}"
        )
    return found


def _unbound(subject: str, kernel: str) -> BindError:
    return BindError(
        f"{subject}, which is checked with arguments. Write a function that binds it, and name"
        f" that: {EXAMPLE.format(name=kernel)}"
    )


def _module(file: str) -> types.ModuleType:
    """The file, run as Python runs an imported one, without a cache of compiled files beside it."""
    path = Path(file)
    try:
        text = importlib.util.decode_source(files.read(path))
    except OSError as error:
        raise BindError(f"cannot read {file}: {error.strerror}") from None
    except (SyntaxError, UnicodeDecodeError) as error:
        raise BindError(f"{file} is no Python: {error}") from None
    # the lines that messages quote are those of this text
    linecache.checkcache(str(path.resolve()))
    with _user_errors(file, "importing it"):
        return _run(path.resolve(), text)


@functools.cache
def _run(path: Path, text: str) -> types.ModuleType:
    module = types.ModuleType(f"tilepipe_checks_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses look for it
    sys.path.insert(0, str(path.parent))
    exec(compile(text, module.__file__, "exec"), module.__dict__)
    return module


def _value(file: str, name: str) -> Any:
    module = _module(file)
    if not hasattr(module, name):
        own = [
            n
            for n, x in vars(module).items()
            if not n.startswith("_") and _is_candidate(x, module.__name__)
        ]
        raise BindError(f"{file} has no '{name}'" + (f"; it has {', '.join(own)}" if own else ""))
    return getattr(module, name)


def _is_candidate(value: object, module: str) -> bool:
    if isinstance(value, types.FunctionType):
        return value.__module__ == module
    return isinstance(value, tp.Program) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], tp.Program)
    )


@contextlib.contextmanager
def _user_errors(file: str, doing: str) -> typing.Iterator[None]:
    """An error of the user's file in one line, with its line. What tilepipe says of itself stays as
    it is, but for a run's fault.
    """
    try:
        yield
    # SystemExit of a file that calls exit() would end the check as if it had verified something
    except BaseException as error:
        if isinstance(error, TilepipeError) and not isinstance(error, tp.SimFault):
            raise
        # the user's; a class of the file's own that is derived from it is not
        if type(error) is KeyboardInterrupt:
            raise
        here = str(Path(file).resolve())
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == here
        ]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        at = file if line is None else f"{file}:{line}"
        raise BindError(f"{at}: {doing} raised {type(error).__name__}: {error}") from None


def _called(what: str, file: str, function: Callable[..., Any], config: dict[str, Any]) -> Any:
    with _user_errors(
        file, f"{what.rpartition(':')[2]}({', '.join(f'{n}={x!r}' for n, x in config.items())})"
    ):
        return function(**config)
