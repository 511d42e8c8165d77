"""Rounding to a floating-point format, correct in each mode, and what follows it.

Narrow formats are rounded from f64. A result that f64 does not hold exactly gets there rounded to
odd: toward zero, with the lowest bit of the significand set if anything was cut off. Rounding that
to a format of at most 51 bits is as good as rounding the exact result (Boldo and Melquiond, 2008).

f64 itself is rounded to nearest by the host; other modes, and a fused multiply-add at the ends of
the range, take exact integers, lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ptx.numerics.types import Array, Operation, Unsupported, bfloat16

MODES = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True)
class Format:
    """A binary floating-point format; `precision` counts the leading one of the significand."""

    name: str
    precision: int
    least_exponent: int
    largest: float
    has_infinity: bool = True
    has_nan: bool = True


FORMATS = {
    each.name: each
    for each in [
        Format("f32", 24, -126, float(np.finfo(np.float32).max)),
        Format("tf32", 11, -126, 2.0**128 - 2.0**117),
        Format("f16", 11, -14, 65504.0),
        Format("bf16", 8, -126, 2.0**128 - 2.0**120),
        Format("e5m2", 3, -14, 57344.0),
        Format("e4m3", 4, -6, 448.0, has_infinity=False),
        Format("e2m3", 4, 0, 7.5, has_infinity=False, has_nan=False),
        Format("e3m2", 3, -2, 28.0, has_infinity=False, has_nan=False),
        Format("e2m1", 2, 0, 6.0, has_infinity=False, has_nan=False),
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
    if over.any():
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
    # np.nextafter leaves an infinity for the largest value, as is right here
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
    if not inexact.any():
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


# The NaN that NVIDIA GPUs return: the ISA leaves it open except for .NaN and .relu
NAN_F32 = np.uint32(0x7FFFFFFF).view(np.float32)
NAN_HALF = np.uint16(0x7FFF)
_INFINITY_BITS = {np.dtype(np.float16): np.uint16(0x7C00), bfloat16: np.uint16(0x7F80)}


def canonical(values: Array) -> Array:
    """f32, f16 or bf16 values with every NaN the canonical one; f64 as it is."""
    if values.dtype == np.float32:
        squares = np.vdot(values, values)  # NaN if a value is, in one call
        return values if squares == squares else np.where(np.isnan(values), NAN_F32, values)
    if values.dtype == np.float64:
        return values
    bits = values.view(np.uint16)
    nan = (bits & NAN_HALF) > _INFINITY_BITS[values.dtype]
    return np.where(nan, NAN_HALF, bits).view(values.dtype) if nan.any() else values


_LEAST_NORMAL = {
    np.dtype(np.float32): np.float32(2.0**-126),
    np.dtype(np.float16): np.float16(2.0**-14),
}


def flush(values: Array) -> Array:
    """Values of f32, f16 or bf16 with subnormals as zeros of the same sign (.ftz)."""
    if values.dtype == bfloat16:
        bits = values.view(np.uint16)
        lanes: Array = (bits * (bits & 0x7F80 != 0) | bits & 0x8000).view(bfloat16)
        return lanes
    return values * (np.abs(values) >= _LEAST_NORMAL[values.dtype])


def saturate(values: Array) -> Array:
    """Values clamped to [0, 1], NaN and -0 as +0 (.sat)."""
    zero, one = values.dtype.type(0), values.dtype.type(1)
    lanes: Array = np.fmin(np.fmax(values, zero) + zero, one)
    return lanes


def rectify(values: Array) -> Array:
    """Values with negative ones and -0 as +0 (.relu); NaN stays."""
    zero = values.dtype.type(0)
    lanes: Array = np.maximum(values, zero) + zero
    return lanes


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


def check_mode(instruction: str, mode: str) -> None:
    """Raise `Unsupported` unless this is a rounding mode of floating-point arithmetic."""
    if mode not in MODES:
        raise Unsupported(f"{instruction} has no rounding mode .{mode}")
