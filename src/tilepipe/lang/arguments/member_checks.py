"""Arguments of public members, checked by their annotations, in one place.

Each public member rejects impossible arguments before its own code runs: a number for a tile, None
for a barrier, a string for a count. Values known while tracing are normalised: integers of NumPy
become `int`, its booleans `bool`. Ranges and choices are annotations of
`lang.arguments.annotations`; traced arguments (`object`, `Scalar`) are checked by the member
itself. `tilepipe.public_members` says which classes and functions are public.
"""

from __future__ import annotations

import functools
import inspect
from types import FunctionType
from typing import Any

from tilepipe.errors import TilepipeError, TraceError
from tilepipe.host_arguments import INT32_MAX, INT32_MIN, shown
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.parameters import CLASSES, PUBLIC, Parameter, public_name


def require_positive(of: str = "", **numbers: object) -> None:
    """Raises TraceError where a number is no integer of at least 1; `of`: what they are given to,
    in the message.
    """
    for name, n in numbers.items():
        if type(n) is not int:
            raise TraceError(
                f"{name}{of} is an int, 1 or more, known while tracing; got {shown(n)}, of type"
                f" {type(n).__name__}",
                caller(),
            )
        if n < 1:
            raise TraceError(f"{name}{of} is at least 1, got {n!r}", caller())


def check_class(cls: type) -> None:
    """Has the public members that a class itself defines, and its constructor, check their
    arguments.
    """
    if cls in _done:
        return
    _done.add(cls)
    heirs = [c for c in PUBLIC if cls in c.__mro__]
    one = next((c.__name__ for c in heirs if all(issubclass(h, c) for h in heirs)), "")
    in_python = f"{one}." if one else ""
    of = "{}" if cls not in PUBLIC else cls.__name__
    if any(c.__name__ == "Context" for c in heirs):
        of = "ctx"
    for name, raw in list(vars(cls).items()):
        if name in _INTERNAL or (
            name.startswith("_") and (name != "__init__" or _is_made_by_the_library(cls))
        ):
            continue
        label = cls.__name__ if name == "__init__" else f"{of}.{name}"
        function = getattr(raw, "__func__", raw)
        if cls not in PUBLIC and isinstance(function, FunctionType):
            function.__qualname__ = f"{in_python}{name}"  # in Python's own errors
        if isinstance(raw, FunctionType):
            setattr(cls, name, check_function(raw, label, 1))
        elif isinstance(raw, classmethod):
            setattr(cls, name, classmethod(check_function(raw.__func__, label, 1)))
        elif isinstance(raw, staticmethod):
            setattr(cls, name, staticmethod(check_function(raw.__func__, label)))


def _is_made_by_the_library(cls: type) -> bool:
    """True if users get objects of a class from members, and do not construct them."""
    code = getattr(cls.__init__, "__code__", None)  # type: ignore[misc]
    takes = () if code is None else code.co_varnames[1 : code.co_argcount]
    return takes[:1] == ("tracer",) or issubclass(cls, CLASSES["Handle"])


_done: set[type] = set()
# What the library calls of itself, often, though it has no underscore.
_INTERNAL = {
    "bind_commit",
    "check_held",
    "checked_part",
    "define",
    "fragment_operand",
    "ir",
    "load_tmem",
    "operand",
    "ref",
    "refuse_twice",
    "split",
    "written",
}
_UNCHECKED = {"object", "Any", "Scalar", inspect.Parameter.empty}


def _best(
    error: TraceError,
    parameter: Parameter,
    inner: Any,
    args: tuple[Any, ...],
    given: dict[str, Any],
) -> TilepipeError:
    """The error to raise in place of `error`: the member's own where it raises one, which knows
    what to write instead. Of a name it knows no more: it gives it to members that refuse it, too.
    """
    if parameter.is_name or any(
        isinstance(x, int) and not INT32_MIN <= x <= INT32_MAX for x in (*args, *given.values())
    ):
        return error  # which the member might go on to count to
    try:
        inner(*args, **given)
    except TilepipeError as own:
        return own
    except Exception:  # it would have ended so without this check
        return error
    return error


def _unknown_keyword(label: str, args: tuple[Any, ...], name: str, takes: list[str]) -> TraceError:
    """The error of an argument that a member does not have, with the name that is closest."""
    import difflib

    of = label.replace("{}", public_name(type(args[0]))) if args else label
    close = difflib.get_close_matches(name, takes, 1, 0.6)
    advice = f"; it has `{close[0]}=`" if close else ""
    every = f". It takes {', '.join(f'{one}=' for one in takes)}" if takes and not close else ""
    return TraceError(f"{of} has no argument `{name}=`{advice}{every}", caller())


class _Checks:
    """What the arguments of a function from number `first` on are checked against.

    Attributes:
        places: number of an argument that may come by place -> its check. by_name: of all.
        takes: the names of arguments. any_name: others are taken, too.
    """

    __slots__ = ("any_name", "by_name", "places", "takes")

    def __init__(self, inner: Any, label: str, first: int) -> None:
        parameters = list(inspect.signature(inner).parameters.values())
        names = inspect.unwrap(inner).__globals__
        wanted = [p for p in parameters[first:] if p.annotation not in _UNCHECKED]
        wanted = [p for p in wanted if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        self.by_name = {
            p.name: Parameter(label, p.name, str(p.annotation).strip("\"'"), names) for p in wanted
        }
        self.takes = [p.name for p in parameters[first:] if p.kind is not p.VAR_KEYWORD]
        self.any_name = len(self.takes) < len(parameters[first:])
        self.places = [
            (i, self.by_name[p.name])
            for i, p in enumerate(parameters)
            if p.name in self.by_name and p.kind is not p.KEYWORD_ONLY
        ]


def _takes_arguments(inner: Any, first: int) -> bool:
    """True if a function has arguments from number `first` on that `**` does not take."""
    code = inspect.unwrap(inner).__code__
    return bool(
        code.co_argcount + code.co_kwonlyargcount > first or code.co_flags & inspect.CO_VARARGS
    )


def check_function(inner: Any, label: str, first: int = 0) -> Any:
    """`inner`, with its arguments from number `first` on checked: `_Checks`, made by the first
    call, as all of them would take a tenth of the time of `import tilepipe`.
    """
    if not _takes_arguments(inner, first):
        return inner
    checks: _Checks | None = None

    @functools.wraps(inner)
    def member(*args: Any, **given: Any) -> Any:
        nonlocal checks
        if checks is None:
            checks = _Checks(inner, label, first)
        by_name, takes, any_name = checks.by_name, checks.takes, checks.any_name
        for i, parameter in checks.places:
            if i >= len(args):
                break
            value = args[i]
            if type(value) in parameter.sure:
                continue
            try:
                found = parameter(value, args[0])
            except TraceError as error:
                raise _best(error, parameter, inner, args, given) from None
            if found is not value:
                args = (*args[:i], found, *args[i + 1 :])
        for name, value in given.items():
            keyword = by_name.get(name)
            if keyword is None and not any_name and name not in takes:
                raise _unknown_keyword(label, args, name, takes)
            if keyword is not None and type(value) not in keyword.sure:
                try:
                    given[name] = keyword(value, args[0] if args else None)
                except TraceError as error:
                    raise _best(error, keyword, inner, args, given) from None
        return inner(*args, **given)

    return member
