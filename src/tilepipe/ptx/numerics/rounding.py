"""Rounding from f64 to the narrower floating-point formats, correct in each mode.

A result that f64 does not hold exactly gets there rounded to odd: toward zero, with the lowest bit
of the significand set if anything was cut off. Rounding that to a format of at most 51 bits is as
good as rounding the exact result (Boldo and Melquiond, 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilepipe.ptx.numerics.types import Array, Operation, bfloat16

MODES = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True)
class Format:
    """A binary floating-point format; `precision` counts the leading one of the significand."""

    name: str
    precision: int
    least_exponent: int
    largest: float


FORMATS = {
    each.name: each
    for each in [
        Format("f32", 24, -126, float(np.finfo(np.float32).max)),
        Format("tf32", 11, -126, 2.0**128 - 2.0**117),
        Format("f16", 11, -14, 65504.0),
        Format("bf16", 8, -126, 2.0**128 - 2.0**120),
        Format("e5m2", 3, -14, 57344.0),
        Format("e4m3", 4, -6, 448.0),
        Format("e2m3", 4, 0, 7.5),
        Format("e3m2", 3, -2, 28.0),
        Format("e2m1", 2, 0, 6.0),
    ]
}

_ROUND: dict[str, Operation] = {
    "rn": np.rint,
    "rz": np.trunc,
    "rm": np.floor,
    "rp": np.ceil,
    "rna": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}


def round_to(x: Array, format_: Format, mode: str, *, finite: bool = False) -> Array:
    """f64 values rounded to a format, as f64; `finite` keeps what overflows at the largest value.

    NaN stays NaN, also for formats that have none.
    """
    exponent = np.frexp(x)[1] - 1
    unit = np.maximum(exponent, format_.least_exponent) - (format_.precision - 1)
    result: Array = np.ldexp(_ROUND[mode](np.ldexp(x, -unit)), unit)
    largest = format_.largest
    if finite:
        lanes: Array = np.clip(result, -largest, largest)  # keeps NaN
        return lanes
    over = np.abs(result) > largest
    if np.count_nonzero(over):
        # an infinite input stays infinite in each mode
        kept = {
            "rz": np.isfinite(x),
            "rm": np.isfinite(x) & (x > 0),
            "rp": np.isfinite(x) & (x < 0),
        }
        limit = np.where(kept.get(mode, False), largest, np.inf)
        result = np.where(over, np.copysign(limit, x), result)
    return result


def to_f32(x: Array, mode: str) -> Array:
    """f64 values, exact or rounded to odd, as f32."""
    nearest = x.astype(np.float32)
    if mode == "rn":
        return nearest
    if mode == "rm":
        wrong, toward = nearest > x, np.float32(-np.inf)
    elif mode == "rp":
        wrong, toward = nearest < x, np.float32(np.inf)
    else:
        wrong, toward = np.abs(nearest) > np.abs(x), np.float32(0)
    # the neighbour of an infinity is the largest value, as it must be
    return np.where(wrong, np.nextafter(nearest, toward), nearest)


def to_bf16(x: Array, mode: str) -> Array:
    """f64 values, exact or rounded to odd, as bf16."""
    if mode != "rn":
        return round_to(x, FORMATS["bf16"], mode).astype(bfloat16)
    truncated = to_f32(x, "rz")
    # round to odd once more, so that rounding f32 to bf16 sees what f64 had
    odd = (truncated.view(np.uint32) | (truncated != x)).view(np.float32)
    lanes: Array = odd.astype(bfloat16)
    return lanes


def to_f16(x: Array, mode: str) -> Array:
    """f64 values, exact or rounded to odd, as f16."""
    if mode == "rn":
        return x.astype(np.float16)  # NumPy rounds f64 to f16 in one step
    return round_to(x, FORMATS["f16"], mode).astype(np.float16)


NARROW: dict[str, Callable[[Array, str], Array]] = {"f32": to_f32, "bf16": to_bf16, "f16": to_f16}


def sum_to_odd(a: Array, b: Array) -> Array:
    """The sum of two f64 rounded to odd. The sum must not overflow unless an operand is infinite.

    Knuth's two-sum finds the error of the rounded sum; an error that points toward zero moves the
    sum there, and any error sets its lowest bit.
    """
    total = a + b
    part = total - a
    error = (a - (total - part)) + (b - part)
    inexact = (error != 0) & np.isfinite(total)
    if not np.count_nonzero(inexact):
        return total
    bits = total.view(np.uint64)
    # one less in the bits is one step toward zero, whatever the sign
    back = inexact & ((error < 0) == (total > 0))
    return np.where(inexact, (bits - back) | np.uint64(1), bits).view(np.float64)


def signed_zero_sum(total: Array, a: Array, b: Array, mode: str) -> Array:
    """A sum whose exact zeros have the sign of the mode: rm gives -0 unless both are +0."""
    if mode != "rm":
        return total
    negative = (total == 0) & (np.signbit(a) | np.signbit(b))
    return np.where(negative, -np.abs(total), total)
