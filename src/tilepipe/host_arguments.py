"""Arguments of users that are to be an integer, a truth value, a number or a function: converted to
Python's own types, or refused. One rule for all of tilepipe.

Integers and booleans of NumPy count as Python's. A boolean is no integer, and a float that
happens to be whole is none either.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from tilepipe.errors import BindError

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def plain_int(x: Any) -> int | None:
    """An `int` for an integer of Python or NumPy; None for anything else: booleans, floats, traced
    values, arrays.
    """
    if type(x) is int:
        return x
    if isinstance(x, int | np.integer) and not isinstance(x, bool):
        return operator.index(x)
    return None


def plain_bool(x: Any) -> bool | None:
    """A `bool` for a truth value of Python or NumPy; None for anything else."""
    return bool(x) if isinstance(x, bool | np.bool_) else None


def plain(x: Any) -> Any:
    """A scalar of NumPy as one of Python; anything else as it is."""
    return x.item() if isinstance(x, np.generic) else x


def by_type(x: Any) -> object:
    """A key that is equal for values of equal types only, all the way down: not 1, 1.0 and True,
    nor 0.0 and -0.0.

    Raises:
        TypeError: `x` has no hash.
    """
    hash(x)
    if isinstance(x, tuple):
        return type(x), tuple(map(by_type, x))
    if isinstance(x, frozenset):
        return type(x), frozenset(map(by_type, x))
    made = is_dataclass(x) and not isinstance(x, type)
    if made and x.__dataclass_params__.eq:
        return type(x), tuple(by_type(getattr(x, f.name)) for f in fields(x))
    if isinstance(x, float | complex | np.generic):
        return type(x), x, np.asarray(x).tobytes()
    return type(x), x


def shown(value: object, most: int = 120) -> str:
    """A value in a message: its repr, on one line and cut short."""
    try:
        text = repr(value)
    except Exception:  # of a class of the user's
        text = f"an object of class {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def require_int(x: Any, what: str, low: int = INT32_MIN, high: int = INT32_MAX) -> int:
    """An integer in low..high.

    Raises:
        BindError: anything else; the message begins with `what`.
    """
    found = plain_int(x)
    if found is None or not low <= found <= high:
        raise BindError(f"{what} is an integer{_range(low, high, found)}; got {shown(x)}")
    return found


def _range(low: int, high: int, got: int | None) -> str:
    if (low, high) == (INT32_MIN, INT32_MAX):
        return " of 32 bits"
    too_large = got is not None and got > high
    return f" of at least {low}" if high >= INT32_MAX and not too_large else f" in {low}..{high}"


def require_number(x: Any, what: str) -> float:
    """A number of Python or NumPy, no boolean.

    Raises:
        BindError: anything else; the message begins with `what`.
    """
    if isinstance(x, bool | np.bool_) or not isinstance(x, int | float | np.number):
        raise BindError(f"{what} is a number; got {shown(x)}")
    return float(x)


def require_bool(x: Any, what: str) -> bool:
    """A truth value.

    Raises:
        BindError: anything else; the message begins with `what`.
    """
    found = plain_bool(x)
    if found is None:
        raise BindError(f"{what} is True or False; got {shown(x)}")
    return found


def require_function(x: Any, what: str) -> Callable[..., Any] | None:
    """A function, or None.

    Raises:
        BindError: anything else; the message begins with `what`.
    """
    if x is not None and not callable(x):
        raise BindError(f"{what} is a function, or None; got {shown(x)}")
    found: Callable[..., Any] | None = x
    return found


def did_you_mean(name: str, known: Iterable[str]) -> list[str]:
    """The names of `known` that may have been meant by `name`: those close to it, and
    those that are a part of it.
    """
    import difflib

    names = list(known)
    lower = [other.lower() for other in names]  # a name with other capitals is close
    found = difflib.get_close_matches(name.lower(), dict.fromkeys(lower), n=2, cutoff=0.7)
    close = [names[lower.index(other)] for other in found]
    parts = [
        other
        for other in names
        if len(other) > 2 and other in name.split("_") and other not in close
    ]
    return close + parts


def question(name: str, known: Iterable[str]) -> str:
    """What ends a message about an unknown name: ". Did you mean ...?", or nothing."""
    near = did_you_mean(name, known)
    return f". Did you mean {near[0]}?" if near else ""
