"""Arithmetic of f64 in all rounding modes, on exact integers, lane by lane: slow, and seldom used.

The host rounds f64 to nearest. Other modes come here, and so does a fused multiply-add whose
operands are near the ends of the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ptx.numerics.types import Array, Operation


def _ratio(x: float) -> tuple[int, int]:
    return x.as_integer_ratio()


def _step(nearest: float, above: int, mode: str) -> float:
    """f64 `nearest` in another mode; `above` is the sign of its difference from the exact value."""
    if mode == "rm" and above > 0:
        return math.nextafter(nearest, -math.inf)
    if mode == "rp" and above < 0:
        return math.nextafter(nearest, math.inf)
    if mode == "rz" and above != 0 and (above > 0) == (nearest > 0):
        return math.nextafter(nearest, 0.0)
    return nearest


def _round_ratio(numerator: int, denominator: int, mode: str) -> float:
    """A fraction (the denominator positive) other than zero, rounded to f64."""
    sign = 1 if numerator > 0 else -1
    try:
        nearest = numerator / denominator  # Python rounds this to nearest
    except OverflowError:
        nearest = sign * math.inf
    if math.isinf(nearest):
        return _step(nearest, sign, mode)
    if nearest == 0:
        away = mode == ("rp" if sign > 0 else "rm")
        return math.nextafter(0.0, sign * math.inf) if away else math.copysign(0.0, sign)
    top, bottom = _ratio(nearest)
    return _step(nearest, top * denominator - numerator * bottom, mode)


def _zero_sum(a: float, b: float, mode: str) -> float:
    """The zero that a + b is: of the sign of both, else of the mode's."""
    if math.copysign(1.0, a) == math.copysign(1.0, b) and a == b == 0:
        return a
    return -0.0 if mode == "rm" else 0.0


def exact_fma(a: float, b: float, c: float, mode: str) -> float:
    """a * b + c in f64, for finite operands."""
    (a_top, a_low), (b_top, b_low), (c_top, c_low) = _ratio(a), _ratio(b), _ratio(c)
    top, low = a_top * b_top, a_low * b_low
    numerator = top * c_low + c_top * low
    if numerator == 0:
        # the product is a zero if it is exactly zero, else it cancels with c
        sign = math.copysign(1.0, a) * math.copysign(1.0, b)
        return _zero_sum(math.copysign(0.0, sign) if top == 0 else 1.0, c, mode)
    return _round_ratio(numerator, low * c_low, mode)


def exact_add(a: float, b: float, mode: str) -> float:
    """a + b in f64, for finite operands."""
    return exact_fma(a, 1.0, b, mode)


def exact_mul(a: float, b: float, mode: str) -> float:
    """a * b in f64, for finite operands."""
    if a == 0 or b == 0:
        return a * b
    (a_top, a_low), (b_top, b_low) = _ratio(a), _ratio(b)
    return _round_ratio(a_top * b_top, a_low * b_low, mode)


def exact_div(a: float, b: float, mode: str) -> float:
    """a / b in f64, for finite operands other than zero."""
    (a_top, a_low), (b_top, b_low) = _ratio(a), _ratio(b)
    numerator, denominator = a_top * b_low, a_low * b_top
    if denominator < 0:
        numerator, denominator = -numerator, -denominator
    return _round_ratio(numerator, denominator, mode)


def exact_sqrt(a: float, mode: str) -> float:
    """The square root in f64 of a finite positive operand."""
    nearest = math.sqrt(a)
    (a_top, a_low), (top, low) = _ratio(a), _ratio(nearest)
    return _step(nearest, top * top * a_low - a_top * low * low, mode)


def lane_by_lane(
    exact: Callable[..., float], nearest: Operation, usable: Callable[..., Array], mode: str
) -> Operation:
    """An f64 operation in the mode: `exact` in lanes that are `usable`, `nearest` in the others.

    `nearest` is the host's operation; lanes that are not usable hold what no mode changes.
    """

    def apply(*operands: Array) -> Array:
        lanes: list[npt.NDArray[Any]] = list(np.broadcast_arrays(*operands))
        result = np.array(nearest(*lanes))
        for index in np.argwhere(usable(*lanes)):
            at = tuple(index)
            result[at] = exact(*[float(lane[at]) for lane in lanes], mode)
        return result

    return apply
