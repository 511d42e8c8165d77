"""Minima and maxima of floats, their signs and their kinds (sections 9.7.3 and 9.7.4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilepipe.ptx.numerics.modifiers import finished
from tilepipe.ptx.numerics.types import (
    TYPES,
    Array,
    Binary,
    Operation,
    Unary,
    Unsupported,
    bits_of,
    choose,
    elementwise,
    refuse,
    require,
)


def _extremum(instruction: str, type: str, ftz: bool, nan: bool) -> Binary:
    """The lesser or greater of two, -0 being less than +0; NaN loses, or wins with `nan`."""
    least = instruction == "min"
    operations: dict[tuple[bool, bool], Binary] = {
        (True, False): np.fmin,
        (True, True): np.minimum,
        (False, False): np.fmax,
        (False, True): np.maximum,
    }
    operation = operations[least, nan]
    of_equal: Binary = np.bitwise_or if least else np.bitwise_and

    def apply(a: Array, b: Array) -> Array:
        result = operation(a, b)
        equal = a == b
        if np.count_nonzero(equal):
            # equal values differ at most in the sign of zero, which the bits decide
            bits = of_equal(bits_of(a), bits_of(b))
            result = np.where(equal, bits, bits_of(result)).view(a.dtype)
        return result

    return finished(apply, type, ftz=ftz)


def _signed(instruction: str, operation: Binary, type: str) -> Binary:
    """An extremum of magnitudes that takes the XOR of the signs, unless it is NaN."""
    sign = bits_of(np.array(-0.0, TYPES[type].dtype))

    def apply(a: Array, b: Array) -> Array:
        left, right = bits_of(a), bits_of(b)
        result = operation((left & ~sign).view(a.dtype), (right & ~sign).view(a.dtype))
        signs = np.where(result == result, (left ^ right) & sign, left.dtype.type(0))
        return (bits_of(result) | signs).view(a.dtype)

    return apply


def _min_max(
    instruction: str, type: str, ftz: bool, nan: bool, xorsign_abs: bool, abs: bool, inputs: int
) -> Operation:
    kind = require(type, "f32 f64 f16 bf16 f16x2 bf16x2", instruction)
    element = kind.element or type
    if element in ("f64", "bf16"):
        refuse(instruction, type, ftz=ftz)
    if element == "f64":
        refuse(instruction, type, NaN=nan, xorsign=xorsign_abs)
    if inputs not in (2, 3):
        raise Unsupported(f"{instruction} takes two operands, or three of f32, not {inputs}")
    if inputs == 3 and type != "f32":
        raise Unsupported(f"{instruction}.{type} takes two operands")
    if inputs == 3:
        refuse(instruction, "f32 with three operands", xorsign=xorsign_abs)
    else:
        refuse(instruction, f"{type} with two operands (but .xorsign.abs)", abs=abs)
    operation = _extremum(instruction, element, ftz, nan)
    if inputs == 3:
        change: Unary = np.absolute if abs else np.positive
        return lambda a, b, c: operation(operation(change(a), change(b)), change(c))
    if xorsign_abs:
        operation = _signed(instruction, operation, element)
    return elementwise(operation, type) if kind.element else operation


def min(
    type: str,
    *,
    ftz: bool = False,
    nan: bool = False,
    xorsign_abs: bool = False,
    abs: bool = False,
    inputs: int = 2,
) -> Operation:
    """min (9.7.3.11, 9.7.4.7), of `inputs` 2 or, for f32, 3 operands; `abs` is for three.

    Without `nan` (.NaN) the number wins over a NaN. -0 is less than +0.
    """
    return _min_max("min", type, ftz, nan, xorsign_abs, abs, inputs)


def max(
    type: str,
    *,
    ftz: bool = False,
    nan: bool = False,
    xorsign_abs: bool = False,
    abs: bool = False,
    inputs: int = 2,
) -> Operation:
    """max (9.7.3.12, 9.7.4.8): see `min`."""
    return _min_max("max", type, ftz, nan, xorsign_abs, abs, inputs)


def _sign(instruction: str, type: str, ftz: bool, change: Unary) -> Unary:
    kind = require(type, "f32 f64 f16 bf16 f16x2 bf16x2", instruction)
    element = kind.element or type
    if element in ("f64", "bf16"):
        refuse(instruction, type, ftz=ftz)
    if element == "f64":
        return lambda a: np.where(np.isnan(a), a, change(a))
    result = finished(change, element, ftz=ftz)
    return elementwise(result, type) if kind.element else result


def _absolute(a: Array) -> Array:
    bits = bits_of(a)
    lanes: Array = (bits & ~_sign_bit(bits)).view(a.dtype)
    return lanes


def _negative(a: Array) -> Array:
    bits = bits_of(a)
    lanes: Array = (bits ^ _sign_bit(bits)).view(a.dtype)
    return lanes


def _sign_bit(bits: Array) -> np.unsignedinteger[Any]:
    result: np.unsignedinteger[Any] = bits.dtype.type(1 << (8 * bits.dtype.itemsize - 1))
    return result


def abs(type: str, *, ftz: bool = False) -> Unary:
    """abs (9.7.3.9, 9.7.4.6); a NaN of f64 is passed through."""
    return _sign("abs", type, ftz, _absolute)


def neg(type: str, *, ftz: bool = False) -> Unary:
    """neg (9.7.3.10, 9.7.4.5); a NaN of f64 is passed through."""
    return _sign("neg", type, ftz, _negative)


def copysign(type: str) -> Binary:
    """copysign (9.7.3.2): (a, b) to b with the sign of a."""
    require(type, "f32 f64", "copysign")
    return lambda a, b: np.copysign(b, a)


def testp(property: str, type: str) -> Unary:
    """testp (9.7.3.1): a predicate; zeros count as normal."""
    dtype = require(type, "f32 f64", "testp").dtype
    least = np.finfo(dtype).smallest_normal
    tests: dict[str, Unary] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: a == a,
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & ((np.abs(a) >= least) | (a == 0)),
        "subnormal": lambda a: (np.abs(a) < least) & (a != 0),
    }
    return tests[choose("testp", property, " ".join(tests))]
