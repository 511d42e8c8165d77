"""Division, roots and the approximate functions (sections 9.7.3.8, 9.7.3.13 to 9.7.3.22, 9.7.4).

Where the ISA only bounds the error of an approximation, the result here is the function's value
computed in f64 and rounded to the type.
"""

from __future__ import annotations

import numpy as np

from tilepipe.ptx.numerics.exact import exact_div, exact_sqrt, lane_by_lane
from tilepipe.ptx.numerics.modifiers import finished, wide
from tilepipe.ptx.numerics.rounding import MODES, NARROW, to_f32
from tilepipe.ptx.numerics.types import (
    TYPES,
    Array,
    Binary,
    Operation,
    Unary,
    Unsupported,
    choose,
    elementwise,
    refuse,
    require,
)

_ROUNDINGS = " ".join(MODES)


def _quotients(a: Array, b: Array) -> Array:
    lanes: Array = np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)
    return lanes


def _divide(type: str, rounding: str) -> Binary:
    if rounding == "rn":
        return np.divide
    if type == "f64":
        return lane_by_lane(exact_div, np.divide, _quotients, rounding)
    # a quotient of f32 in f64 is never so near an f32, without being one, that it rounds to it
    return lambda a, b: to_f32(np.divide(a, b, dtype=np.float64), rounding)


def div(type: str, *, rounding: str, ftz: bool = False) -> Binary:
    """div (9.7.3.8); `rounding` is a mode, or for f32 "approx" or "full".

    div.approx gives 0 where the divisor is above 2**126, and NaN there for an infinite dividend;
    otherwise div.approx and div.full round to nearest.
    """
    require(type, "f32 f64", "div")
    choose("div", rounding, f"{_ROUNDINGS} approx full")
    if type == "f64":
        refuse("div", type, ftz=ftz)
        if rounding not in MODES:
            raise Unsupported(f"div.{rounding} has no type .f64")
        return _divide(type, rounding)
    if rounding in MODES:
        return finished(_divide(type, rounding), type, ftz=ftz)
    if rounding == "full":
        return finished(np.divide, type, ftz=ftz)
    largest, zero = np.float32(2.0**126), np.float32(0)

    def approximate(a: Array, b: Array) -> Array:
        beyond = (np.abs(b) > largest) & np.isfinite(b)
        return np.where(beyond, a * np.copysign(zero, b), a / b)

    return finished(approximate, type, ftz=ftz)


def rcp(type: str, *, rounding: str, ftz: bool = False) -> Unary:
    """rcp (9.7.3.13); `rounding` is a mode or "approx".

    rcp.approx.ftz.f64 (9.7.3.14) takes and gives the upper 32 bits of an f64, the others zero.
    """
    require(type, "f32 f64", "rcp")
    choose("rcp", rounding, f"{_ROUNDINGS} approx")
    if type == "f64" and rounding == "approx":
        return _upper_half("rcp", ftz, lambda a: 1 / a)
    if type == "f64":
        refuse("rcp", type, ftz=ftz)
    one = TYPES[type].dtype.type(1)
    divide = _divide(type, "rn" if rounding == "approx" else rounding)
    return finished(lambda a: divide(one, a), type, ftz=ftz)


def _roots(a: Array) -> Array:
    return np.isfinite(a) & (a > 0)


def sqrt(type: str, *, rounding: str, ftz: bool = False) -> Unary:
    """sqrt (9.7.3.15); `rounding` is a mode, or for f32 "approx"."""
    require(type, "f32 f64", "sqrt")
    choose("sqrt", rounding, f"{_ROUNDINGS} approx")
    if type == "f64":
        refuse("sqrt", type, ftz=ftz, approx=rounding == "approx")
    return finished(_root(type, rounding), type, ftz=ftz)


def _root(type: str, rounding: str) -> Unary:
    if rounding in ("rn", "approx"):
        return np.sqrt
    if type == "f64":
        return lane_by_lane(exact_sqrt, np.sqrt, _roots, rounding)
    return lambda a: to_f32(np.sqrt(a, dtype=np.float64), rounding)


def rsqrt(type: str, *, ftz: bool = False) -> Unary:
    """rsqrt.approx (9.7.3.16); rsqrt.approx.ftz.f64 (9.7.3.17) on upper halves as in `rcp`."""
    require(type, "f32 f64", "rsqrt")
    if type == "f64":
        return _upper_half("rsqrt", ftz, _inverse_root) if ftz else _inverse_root
    return finished(lambda a: _inverse_root(wide(a)).astype(np.float32), type, ftz=ftz)


def _inverse_root(a: Array) -> Array:
    lanes: Array = 1 / np.sqrt(a)
    return lanes


def _upper_half(instruction: str, ftz: bool, function: Unary) -> Unary:
    if not ftz:
        raise Unsupported(f"{instruction}.approx.f64 needs .ftz")
    mask, sign = np.uint64(0xFFFFFFFF << 32), np.uint64(1 << 63)
    least = np.float64(2.0**-1022)
    nan = np.uint64(0x7FFFFFFF00000000)

    def apply(a: Array) -> Array:
        upper = (a.view(np.uint64) & mask).view(np.float64)
        result = function(upper * (np.abs(upper) >= least))
        bits = result.view(np.uint64)
        bits = np.where(np.abs(result) < least, bits & sign, bits & mask)
        return np.where(np.isnan(a) | np.isnan(result), nan, bits).view(np.float64)

    return apply


def _approximate(instruction: str, function: Operation, type: str, types: str, ftz: bool) -> Unary:
    kind = require(type, types, instruction)
    element = kind.element or type
    narrow = NARROW[element]

    def apply(a: Array) -> Array:
        return narrow(function(wide(a)), "rn")

    result = finished(apply, element, ftz=ftz)
    return elementwise(result, type) if kind.element else result


def sin(type: str, *, ftz: bool = False) -> Unary:
    """sin.approx (9.7.3.18): subnormals are zeros, with `ftz` or without."""
    return _approximate("sin", np.sin, type, "f32", ftz=True)


def cos(type: str, *, ftz: bool = False) -> Unary:
    """cos.approx (9.7.3.19)."""
    return _approximate("cos", np.cos, type, "f32", ftz)


def lg2(type: str, *, ftz: bool = False) -> Unary:
    """lg2.approx (9.7.3.20): -inf for zeros, NaN for negative operands."""
    return _approximate("lg2", np.log2, type, "f32", ftz)


def ex2(type: str, *, ftz: bool = False) -> Unary:
    """ex2.approx (9.7.3.21, 9.7.4.10); bf16 and bf16x2 need `ftz`, f16 and f16x2 lack it."""
    if type in ("f16", "f16x2"):
        refuse("ex2", type, ftz=ftz)
    if type in ("bf16", "bf16x2") and not ftz:
        raise Unsupported(f"ex2.approx.{type} needs .ftz")
    return _approximate("ex2", np.exp2, type, "f32 f16 bf16 f16x2 bf16x2", ftz)


def tanh(type: str) -> Unary:
    """tanh.approx (9.7.3.22, 9.7.4.9)."""
    return _approximate("tanh", np.tanh, type, "f32 f16 bf16 f16x2 bf16x2", ftz=False)
