"""Arguments of the functions of `tilepipe.testing`, normalised or refused by a `BindError` that
says what to give instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError
from tilepipe.program import Program

_NO_NUMBERS = "OSUTcMm"  # kinds of dtypes: objects, texts, complex numbers, times
Array = npt.NDArray[Any]


def require_program(caller: str, given: object, *, ptx: bool = False) -> None:
    """Raises BindError where an argument is no program; with `ptx`, a launch of PTX will do."""
    if not (isinstance(given, Program) or (ptx and _is_of_ptx(given))):
        raise BindError(f"{caller} takes programs, which kernel.bind(...) gives; got {given!r:.80}")


def _is_of_ptx(given: object) -> bool:
    from tilepipe.ptx import Launch

    return isinstance(given, Launch)


def several(seeds: object) -> list[int]:
    """The seeds of `seeds=`.

    Raises:
        BindError: none, or no integers.
    """
    try:
        found = list(seeds)  # type: ignore[call-overload]
    except TypeError:
        raise BindError(
            f"seeds= takes several, such as range(4) or [{seeds!r:.20}]; got {seeds!r}"
        ) from None
    if not found:
        raise BindError("seeds= is empty: nothing would be run")
    for seed in found:
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool):
            raise BindError(
                f"seeds= takes integers, such as range(4); got {seed!r} in {seeds!r:.60}"
            )
    return [int(seed) for seed in found]


def numbers(name: str, given: object) -> Array:
    """Numbers that can be compared, as an array.

    Raises:
        BindError: texts, objects, complex numbers, or nested lists of unequal lengths.
    """
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise BindError(
            f"{name} is an array of real numbers, or nested lists of equal lengths; got"
            f" {given!r:.60} ({error})"
        ) from None
    if array.dtype.kind in _NO_NUMBERS:
        raise BindError(f"{name} is an array of real numbers; got {given!r:.60}")
    return array


def tolerance(name: str, given: object) -> Array:
    """How far an element may be off.

    Raises:
        BindError: a tolerance that is negative, not finite, or no number.
    """
    array = numbers(f"{name}=", given).astype(np.float64)
    if not (np.isfinite(array) & (array >= 0)).all():
        raise BindError(
            f"{name}= says how far an element may be off: finite numbers, 0 or more; got"
            f" {given!r:.60}"
        )
    return array
