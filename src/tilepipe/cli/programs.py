"""What commands are given, as programs or launches of PTX: a shipped kernel, or FILE.py:NAME."""

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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tilepipe as tp
from tilepipe import files
from tilepipe.check.counterexamples.saved import indefinite
from tilepipe.cli.arguments import KINDS, arguments
from tilepipe.cli.common import Source
from tilepipe.errors import BindError, TilepipeError
from tilepipe.ir.chip import CHIPS
from tilepipe.program.arguments import check_zeros
from tilepipe.registry.catalog import KernelSpec, find
from tilepipe.registry.settings import pairs

if TYPE_CHECKING:
    from tilepipe import ptx

    Made = tp.Program | ptx.Launch

_T = typing.TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Instance:
    """A program, or a launch of PTX, to be checked. `name`: in words. `make()` binds it,
    `make(stages=2)` the same problem with a setting changed.
    """

    name: str
    make: Callable[..., Made]


@dataclass(frozen=True, eq=False)
class Target:
    """What is checked.

    Attributes:
        what: a kernel's name, or FILE.py:NAME. config: settings, without extents that the instances
            have.
        stages: those of them that say how many stages there are, where `Instance.make` takes them.
        source: whether programs are checked as they are, or the PTX of their printed CUDA.
        own_launches: the file itself makes launches of PTX, and no programs.
    """

    what: str
    config: dict[str, Any]
    instances: list[Instance]
    stages: dict[str, int]
    source: Source = Source.program
    own_launches: bool = False


def target(what: str, settings: Sequence[str], source: Source = Source.program) -> Target:
    """The instances that are meant.

    Args:
        settings: texts `name=value`.

    Raises:
        BindError: there is no such kernel, file or name, it is no program, a setting that it does
            not have.
    """
    if what.endswith((".ptx", ".cu", ".cubin")):
        raise BindError(
            f"{what} has no arguments: a launch is checked. Write FILE.py with a function that"
            " returns tilepipe.ptx.load('kernel.ptx')['name'].bind([...], grid=...), and give"
            " FILE.py:FUNCTION (docs/how-to/check-a-kernel-you-already-have.md)"
        )
    arch = None
    if names_file(what):
        found = _of_file(what, tuple(settings))
    else:
        spec = shipped_kernel(what)
        given = spec.parse(list(settings))
        arch = spec.target(given)
        config, shipped = spec.instances(given)
        instances = [Instance(x.name, x.make) for x in shipped]
        found = Target(what, dict(config), instances, stages_of(config))
    if source is Source.program:
        return found
    from_ptx = [Instance(x.name, functools.partial(_as_ptx, x.make, arch)) for x in found.instances]
    return replace(found, instances=from_ptx, source=source)


def the_program(found: Target) -> tp.Program:
    """The one program that a target makes.

    Raises:
        BindError: it makes several, or a launch of PTX.
    """
    program = the_instance(found).make()
    if not isinstance(program, tp.Program):
        raise BindError(f"{found.what} is a launch of PTX, which is compiled already")
    return program


def the_instance(found: Target) -> Instance:
    """The one instance that a target has.

    Raises:
        BindError: it makes several.
    """
    if len(found.instances) > 1:
        raise BindError(
            f"{found.what} makes {len(found.instances)} programs; name a function that makes the"
            " one that is meant"
        )
    return found.instances[0]


def one_program(
    what: str, settings: Sequence[str], arch: str | None = None
) -> tuple[tp.Program, str, dict[str, Any]]:
    """The program that a command is given, the architecture to compile it for, and its settings. A
    shipped kernel has the configuration that is chosen for that architecture.

    Raises:
        BindError: there is none, or there are several; settings that it cannot have.
    """
    if names_file(what):
        with contextlib.redirect_stdout(sys.stderr):  # what the file prints
            found = target(what, settings)
            program = the_program(found)
        return program, arch or program.kernel.arch, found.config
    spec = shipped_kernel(what)
    given = spec.parse(list(settings))
    home = spec.target(given, arch)
    config, _ = spec.configure(given, CHIPS[home])
    return spec.case(config, 0).program, home, dict(config)


def shipped_kernel(what: str) -> KernelSpec:
    """A shipped kernel. Raises BindError: there is none of that name."""
    try:
        return find(what)
    except BindError as error:
        said = str(error) + ("" if str(error).endswith("?") else ".")
        raise BindError(f"{said} A kernel of your own is FILE.py:NAME") from None


def names_file(what: str) -> bool:
    """True if a target is FILE.py:NAME, or should be, and not a shipped kernel."""
    return what.endswith(".py") or ".py:" in what or os.sep in what


def taken(what: str, settings: Sequence[str]) -> list[str]:
    """Those of some settings, `name=value`, that a target takes.

    Raises:
        BindError: there is no such kernel, file or name.
    """
    if names_file(what):
        value = value_of(what)
        made = isinstance(value, types.FunctionType | functools.partial)
        names: Collection[str] = inspect.signature(value).parameters if made else ()
    else:
        names = shipped_kernel(what).settings
    return [x for x in settings if x.partition("=")[0] in names]


def value_of(what: str) -> Any:
    """What FILE.py:NAME names.

    Raises:
        BindError: there is no such file or name.
    """
    return _value(*_file_and_name(what))


def _as_ptx(make: Callable[..., Made], arch: str | None, **changed: Any) -> ptx.Launch:
    found = make(**changed)
    return found.ptx(arch) if isinstance(found, tp.Program) else found


def made(what: str, settings: tuple[str, ...], source: Source, number: int) -> Made:
    """The program of an instance: what a process is sent is this function and its arguments."""
    return _one_of(what, target(what, settings, source).instances, number).make()


def recipes(
    found: Target, settings: Sequence[str], jobs: int
) -> list[tuple[str, Callable[[], Made]]]:
    """(name, what makes the program) of each instance; for other processes, what these can make it
    of.
    """
    if jobs == 1:
        return [(x.name, x.make) for x in found.instances]
    return [
        (x.name, functools.partial(made, found.what, tuple(settings), found.source, i))
        for i, x in enumerate(found.instances)
    ]


def stages_of(config: dict[str, Any]) -> dict[str, int]:
    """Those of a kernel's settings that say how many stages there are."""
    return {
        name: n
        for name, n in config.items()
        if "stages" in name and isinstance(n, int) and not isinstance(n, bool)
    }


# -- FILE.py:NAME ----------------------------------------------------------------------


def _file_and_name(what: str) -> tuple[str, str]:
    file, colon, name = what.rpartition(":")
    if not colon or not name.isidentifier():
        raise BindError(
            f"say which program of {file or what} is meant: {(file or what).rstrip(':')}:NAME"
        )
    return file, name


def _of_file(what: str, settings: tuple[str, ...]) -> Target:
    file, name = _file_and_name(what)
    value = _value(file, name)
    if isinstance(value, tp.KernelFunction):
        raise _unbound(f"{what} is a kernel", name, value)
    if inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value):
        raise BindError(
            f"{what} is an async function, which makes no program when it is called. Write `def"
            f" {name}` without async"
        )
    if isinstance(value, types.FunctionType | functools.partial):
        config = arguments(what, value, pairs(settings))
        kept = {n: x for n, x in config.items() if isinstance(x, KINDS)}
        again = functools.partial(_all, what, file, value, config)
        family = again()
        makes = [
            functools.partial(_made_or_again, what, program, again, i)
            for i, program in enumerate(family.programs)
        ]
        named = _named(family, makes)
        return Target(what, kept, named, stages_of(kept), own_launches=family.own_launches)
    if settings:
        raise BindError(
            f"{what} has no settings: it is no function. One that returns a program takes -s"
            f" {settings[0]} as an argument"
        )
    with user_errors(file, f"iterating over {name}"):
        family = _programs(what, list(value) if isinstance(value, Iterator) else value)
    makes = [functools.partial(_same, p) for p in family.programs]
    return Target(what, {}, _named(family, makes), {}, own_launches=family.own_launches)


@dataclass(frozen=True, eq=False)
class _Family:
    """What a file makes. `names`: the user's, of each; none where it is no mapping."""

    programs: list[Made]
    names: list[str]

    @property
    def own_launches(self) -> bool:
        """True if all are launches of PTX."""
        return not any(isinstance(made, tp.Program) for made in self.programs)


def _named(family: _Family, makes: Sequence[Callable[..., Made]]) -> list[Instance]:
    programs = family.programs
    names = family.names or [_name(p, i, len(programs)) for i, p in enumerate(programs)]
    return [Instance(name, make) for name, make in zip(names, makes, strict=True)]


def _same(program: Made) -> Made:
    if isinstance(program, tp.Program):
        check_zeros(program.launch_args)
    return program


def _all(
    what: str, file: str, function: Callable[..., Any], config: dict[str, Any], **changed: Any
) -> _Family:
    return _programs(what, _called(what, file, function, config | changed))


def _made_or_again(
    what: str,
    program: Made,
    again: Callable[..., _Family],
    number: int,
    **changed: Any,
) -> Made:
    """The program that was made; with settings changed, the one that the function makes with
    those.
    """
    return _same(_one_of(what, again(**changed).programs, number) if changed else program)


def _one_of(what: str, made: Sequence[_T], number: int) -> _T:
    if number >= len(made):
        raise BindError(
            f"{what} makes {len(made)} program{'s' if len(made) > 1 else ''} now, and number"
            f" {number + 1} was meant"
        )
    return made[number]


def _name(program: Made, number: int, count: int) -> str:
    """An instance in words: "a (256, 576), n 3, 2 CTAs"; a launch of PTX has its kernel's name,
    too.
    """
    if isinstance(program, tp.Program):
        launch, size = program.launch_args, program.kernel.cluster_size
        said = [f"{name} {getattr(arg, 'shape', arg)}" for name, arg in launch.args.items()]
        clusters = f" in clusters of {size}" if size > 1 else ""
        words = ", ".join([*said, f"{launch.grid} CTA{'s' if launch.grid > 1 else ''}{clusters}"])
    else:
        words = str(program)
    return f"{number + 1}: {words}" if count > 1 else words


def _is_made(value: object) -> typing.TypeGuard[Made]:
    """Whether it is what can be checked: a program, or a launch of PTX."""
    if isinstance(value, tp.Program):
        return True
    from tilepipe import ptx

    return isinstance(value, ptx.Launch)


def _programs(what: str, value: object) -> _Family:
    names = [str(name) for name in value] if isinstance(value, Mapping) else []
    several = list(value.values()) if isinstance(value, Mapping) else value
    listed = list(several) if isinstance(several, list | tuple) else [several]
    found = [x for x in listed if _is_made(x)]
    for kernel in (x for x in listed if isinstance(x, tp.KernelFunction)):
        raise _unbound(f"{what} makes the kernel '{kernel.name}'", kernel.name, kernel)
    for coroutine in (x for x in listed if inspect.iscoroutine(x)):
        coroutine.close()  # or Python warns that it was never awaited
    if not found or len(found) < len(listed):
        wrong = next((type(x).__name__ for x in listed if not _is_made(x)), "")
        said = (
            (indefinite(wrong) + (f" in a {_kind(value)}" if listed != [value] else ""))
            if wrong
            else f"an empty {_kind(value)}"
        )
        raise BindError(
            f"{what} is neither a program or a launch of PTX (what `kernel.bind(...)` returns), a"
            f" list or a dict of them, nor makes one: it is {said}"
        )
    return _Family(found, names)


def _kind(value: object) -> str:
    return "dict" if isinstance(value, Mapping) else "list"


def _unbound(subject: str, name: str, kernel: tp.KernelFunction) -> BindError:
    """What to raise of a kernel in the place of a program. `name`: what the file calls it."""
    _, *parameters = inspect.signature(kernel.function).parameters.values()
    arrays = ", ".join(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
    static = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    given = ", ".join([*([arrays] if arrays else []), *(f"{x}={x}" for x in static)])
    return BindError(
        f"{subject}, which needs its arguments. Write a function that binds it, and name that:"
        f" def small({', '.join(static)}): {f'{arrays} = ...; ' if arrays else ''}return"
        f" {name}.bind({given})"
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
    with user_errors(file, "importing it"):
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
    if isinstance(value, Mapping):
        value = list(value.values())
    return _is_made(value[0] if isinstance(value, list) and value else value)


@contextlib.contextmanager
def user_errors(file: str, doing: str) -> typing.Iterator[None]:
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
    with user_errors(
        file, f"{what.rpartition(':')[2]}({', '.join(f'{n}={x!r}' for n, x in config.items())})"
    ):
        made = function(**config)
        return list(made) if isinstance(made, Iterator) else made
