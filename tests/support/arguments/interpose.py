"""Puts itself between kernels and the public members they call: says what is called, and replaces
one argument of one call.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any

import tilepipe as tp
from tilepipe.ir.location import is_library_file
from tilepipe.lang.context.synchronisation import NamedBarrier
from tilepipe.lang.control.loops import Range, WhileLoop
from tilepipe.lang.fragments.fragment import Fragment, FragmentValue
from tilepipe.lang.memory.shared_tiles import SmemTile, SmemTileArray
from tilepipe.lang.values import operators
from tilepipe.lang.values.scalars import Value
from tilepipe.lang.values.variables import Var

# Classes whose objects a kernel gets from members and never names.
GIVEN = (
    Value,
    Var,
    Fragment,
    FragmentValue,
    NamedBarrier,
    SmemTile,
    SmemTileArray,
    Range,
    WhileLoop,
)
DUNDERS = ("__init__", "__getitem__", "__setitem__")
# A frame of the library, so that messages name the kernel's line, and a `for` statement is seen
# through it.
_LIBRARY_FILE = str(Path(operators.__file__).parent / "interposed.py")
_WRAPPER = "def wrapper(*args, **named):\n    return between(inner, args, named)\n"


def traced_classes() -> list[type]:
    """The classes whose members kernels call."""
    named_here = [
        x for name, x in vars(tp).items() if not name.startswith("_") and isinstance(x, type)
    ]
    found = [
        x
        for x in (*named_here, *GIVEN)
        if x.__module__.startswith(("tilepipe.lang", "tilepipe.pipelines"))
    ]
    return list(dict.fromkeys(found))


def members() -> dict[str, tuple[type | None, str, Any]]:
    """`Class.member` (of the class that defines it) or the function's name -> (class, attribute,
    what is there).
    """
    found: dict[str, tuple[type | None, str, Any]] = {}
    for cls in traced_classes():
        for base in cls.__mro__:
            if not base.__module__.startswith("tilepipe."):
                continue
            for name, raw in vars(base).items():
                plain = raw.__func__ if isinstance(raw, staticmethod | classmethod) else raw
                if isinstance(plain, FunctionType) and (
                    not name.startswith("_") or name in DUNDERS
                ):
                    found.setdefault(f"{base.__name__}.{name}", (base, name, raw))
    for name, x in vars(tp).items():
        traced = isinstance(x, FunctionType) and x.__module__.startswith(
            ("tilepipe.lang", "tilepipe.pipelines")
        )
        if traced and not name.startswith("_"):
            found[name] = (None, name, x)
    return found


@dataclass
class Replace:
    """Replaces `parameter` in the first call of `member`; `make` gives the value when that call is
    made.
    """

    member: str
    parameter: str
    make: Callable[[], Any]
    done: bool = False


@dataclass
class Seen:
    """What was called: member -> parameter -> the first argument that was given for it (its default
    otherwise).
    """

    calls: dict[str, dict[str, Any]] = field(default_factory=dict)


class Refused(Exception):  # not an error of tilepipe: nothing on the way may catch it as one
    """The call with the replaced argument raised `error`."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


@contextmanager
def interposed(seen: Seen | None = None, replace: Replace | None = None) -> Iterator[None]:
    """While it is open, members report to `seen`, or the call that `replace` means is made with
    another argument.
    """
    wanted = members()
    if replace is not None:
        wanted = {replace.member: wanted[replace.member]}
    bind = tp.KernelFunction.bind

    def bind_anew(self: tp.KernelFunction, *args: Any, **static: Any) -> tp.Program:
        self.forget()  # what was traced before would not call anything
        return bind(self, *args, **static)

    try:
        setattr(tp.KernelFunction, "bind", bind_anew)  # noqa: B010
        for label, (cls, name, raw) in wanted.items():
            plain = raw.__func__ if isinstance(raw, staticmethod | classmethod) else raw
            wrapper = _wrapper(label, plain, seen, replace)
            if isinstance(raw, staticmethod | classmethod):
                wrapper = type(raw)(wrapper)
            setattr(tp if cls is None else cls, name, wrapper)
        yield
    finally:
        setattr(tp.KernelFunction, "bind", bind)  # noqa: B010
        for cls, name, raw in wanted.values():
            setattr(tp if cls is None else cls, name, raw)


def _wrapper(label: str, inner: Any, seen: Seen | None, replace: Replace | None) -> Any:
    signature = inspect.signature(inner)
    bound_first = next(iter(signature.parameters), "") in ("self", "cls")

    def between(inner: FunctionType, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        if is_library_file(sys._getframe(2).f_code.co_filename):
            return inner(*args, **given)
        if seen is not None:
            _note(seen.calls.setdefault(label, {}), signature, args, given, bound_first)
        if replace is None or replace.done:
            return inner(*args, **given)
        bound = signature.bind(*args, **given)
        bound.apply_defaults()
        bad = replace.make()
        kind = signature.parameters[replace.parameter].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            bad = (bad, *bound.arguments[replace.parameter][1:])
        bound.arguments[replace.parameter] = bad
        replace.done = True
        try:
            return inner(*bound.args, **bound.kwargs)
        except BaseException as error:
            raise Refused(error) from None

    space: dict[str, Any] = {"inner": inner, "between": between}
    exec(compile(_WRAPPER, _LIBRARY_FILE, "exec"), space)
    return functools.update_wrapper(space["wrapper"], inner)


def _note(
    known: dict[str, Any],
    signature: inspect.Signature,
    args: tuple[Any, ...],
    given: dict[str, Any],
    bound_first: bool,
) -> None:
    bound = signature.bind(*args, **given)
    bound.apply_defaults()
    for i, (name, value) in enumerate(bound.arguments.items()):
        if not (bound_first and i == 0):
            known.setdefault(name, value)
