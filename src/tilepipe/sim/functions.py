"""Functions of floating-point numbers that NumPy lacks; generated code calls them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    """The error function, rounded once to the dtype of `x`."""
    found: Array = np.asarray(_erf(np.asarray(x, np.float64))).astype(np.asarray(x).dtype)[()]
    return found


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)); 0 where the exponential is too large."""
    one = np.asarray(x).dtype.type(1)
    with np.errstate(over="ignore"):
        found: Array = one / (one + np.exp(-x))
    return found


def power(x: Array, n: int) -> Array:
    """x ** n for n >= 0, multiplied in the order of `ir.expressions.Binary`."""
    if n == 0:
        return np.ones_like(x)[()]
    if n == 1:
        return x
    half = power(x, n // 2)
    return half * half * x if n % 2 else half * half


def rcp(x: Array) -> Array:
    """1 / x."""
    found: Array = np.asarray(x).dtype.type(1) / x
    return found
