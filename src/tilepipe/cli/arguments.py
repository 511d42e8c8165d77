"""The arguments of a function that makes programs, from texts `name=value`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from tilepipe.check.counterexamples.saved import indefinite
from tilepipe.errors import BindError
from tilepipe.registry.settings import typed

KINDS: tuple[type, ...] = (bool, int, float, str)


def arguments(what: str, function: Callable[..., Any], texts: dict[str, str]) -> dict[str, Any]:
    """What the function is called with: the settings, as its annotations or defaults have them, and
    the other defaults.

    Args:
        what: FILE.py:NAME, for messages. texts: name -> value of each setting that is given.

    Raises:
        BindError: a name that it does not have, one that it needs, a value that is not of the
            argument's type.
    """
    parameters = inspect.signature(function).parameters
    hints = _hints(function, parameters)
    unknown = [name for name in texts if name not in parameters]
    if unknown:
        raise BindError(
            f"{what} has no setting '{unknown[0]}'; it has {', '.join(parameters) or 'none'}"
        )
    found: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if name in texts:
            found[name] = _typed(what, name, texts[name], hints.get(name), parameter.default)
        elif parameter.default is not parameter.empty:
            found[name] = parameter.default
        elif parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise BindError(f"{what} needs {name}: give -s {name}=VALUE")
    return found


def _hints(
    function: Callable[..., Any], parameters: Mapping[str, inspect.Parameter]
) -> dict[str, Any]:
    """The annotations that can be evaluated, each on its own; of the others the defaults decide."""
    while isinstance(function, functools.partial):
        function = function.func
    names = getattr(inspect.unwrap(function), "__globals__", {})
    found: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if parameter.annotation is not parameter.empty:
            holder = types.SimpleNamespace(__annotations__={name: parameter.annotation})
            with contextlib.suppress(Exception):  # whatever an annotation raises
                found |= typing.get_type_hints(holder, globalns=names)
    return found


def _typed(what: str, name: str, text: str, hint: Any, default: Any) -> Any:
    options = (
        typing.get_args(hint)
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union
        else (hint,)
    )
    if type(None) in options and text.lower() == "none":
        return None
    kind = next((x for x in options if x is not None and x is not type(None)), None)
    if kind is None and default is not inspect.Parameter.empty and default is not None:
        kind = type(default)
    if kind is None:
        for guess in (int, float, bool):
            with contextlib.suppress(BindError):
                return typed(name, text, guess)
        return text
    if kind not in KINDS:
        raise BindError(
            f"setting {name} of {what} is {indefinite(getattr(kind, '__name__', str(kind)))}; -s"
            " gives int, float, bool and str"
        )
    return typed(name, text, kind)
