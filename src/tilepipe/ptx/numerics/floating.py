"""Floating-point arithmetic (sections 9.7.3 to 9.7.5) that rounds once, minima and maxima, signs.

`ftz` flushes subnormal operands and results to zeros of their sign, `sat` clamps a result to
[0, 1] with NaN as +0, `relu` raises a negative result to +0. The ISA leaves open which NaN a
result of f32, f16 and bf16 is; here it is the canonical one, as on the GPU, unless `any_nan` asks
for the host's, which spares a call. A NaN of f64 is the host's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilepipe.ptx.numerics.rounding import (
    NAN_F32,
    canonical,
    check_mode,
    exact_add,
    exact_fma,
    exact_mul,
    flush,
    lane_by_lane,
    rectify,
    saturate,
    signed_zero_sum,
    sum_to_odd,
    to_bf16,
    to_f32,
)
from tilepipe.ptx.numerics.types import (
    TYPES,
    Array,
    Binary,
    Operation,
    Ternary,
    Unary,
    Unsupported,
    bfloat16,
    bits_of,
    choose,
    elementwise,
    refuse,
    require,
)

TYPES_OF_ARITHMETIC = "f32 f64 f16 bf16 f32x2 f16x2 bf16x2"


def wide(values: Array) -> Array:
    """Values as f64, which holds those of every narrower format."""
    return values.astype(np.float64)


def finished(
    operation: Operation, ftz: bool, sat: bool = False, relu: bool = False, any_nan: bool = False
) -> Operation:
    """An operation with its operands and its result flushed, clamped and canonical."""
    steps: list[Unary] = []
    if ftz:
        steps.append(flush)
    if sat:
        steps.append(saturate)
    if relu:
        steps.append(rectify)
    if not sat and (relu or not any_nan):
        steps.append(canonical)
    if not steps:
        return operation
    if steps == [canonical]:
        return lambda *operands: canonical(operation(*operands))

    def apply(*operands: Array) -> Array:
        result = operation(*(map(flush, operands) if ftz else operands))
        for step in steps:
            result = step(result)
        return result

    return apply


def finished_f32(operation: Binary) -> Binary:
    """`finished` for a plain f32 operation of two operands, which is the one that must be fast."""

    def apply(a: Array, b: Array) -> Array:
        result = operation(a, b)
        squares = np.vdot(result, result)
        if squares == squares:
            return result
        return np.where(np.isnan(result), NAN_F32, result)

    return apply


def _check(instruction: str, type: str, rounding: str, ftz: bool, sat: bool) -> str:
    """The element type of an arithmetic instruction, its modifiers checked."""
    kind = require(type, TYPES_OF_ARITHMETIC, instruction)
    check_mode(instruction, rounding)
    element = kind.element or type
    if element in ("f16", "bf16") and rounding != "rn":
        raise Unsupported(f"{instruction}.{type} has no rounding mode .{rounding}")
    if element in ("f64", "bf16"):
        refuse(instruction, type, ftz=ftz, sat=sat)
    if type == "f32x2":
        refuse(instruction, type, sat=sat)
    return element


def _mixed(
    instruction: str, operation: Operation, type: str, source: str, count: int, ftz: bool
) -> Operation:
    """Mixed precision (9.7.5): the first `count` operands of f32 arithmetic are f16 or bf16."""
    if type != "f32":
        raise Unsupported(f"{instruction}.{type} takes no operands of another type")
    choose(f"{instruction}.f32", source, "f16 bf16")
    refuse(instruction, f"f32.{source}", ftz=ftz)

    def apply(*operands: Array) -> Array:
        narrow = [operand.astype(np.float32) for operand in operands[:count]]
        return operation(*narrow, *operands[count:])

    return apply


def _add_f32(mode: str) -> Binary:
    def apply(a: Array, b: Array) -> Array:
        left, right = wide(a), wide(b)
        return to_f32(signed_zero_sum(sum_to_odd(left, right), left, right, mode), mode)

    return apply


def _finite(*operands: Array) -> Array:
    lanes: Array = np.logical_and.reduce([np.isfinite(operand) for operand in operands])
    return lanes


def _sum(
    instruction: str,
    sign: Unary | None,
    operation: Binary,
    type: str,
    rounding: str,
    ftz: bool,
    sat: bool,
    source: str | None,
    any_nan: bool,
) -> Binary:
    element = _check(instruction, type, rounding, ftz, sat)
    if rounding != "rn":
        if element == "f64":
            sum_of: Binary = lane_by_lane(exact_add, np.add, _finite, rounding)
        else:
            sum_of = _add_f32(rounding)
        operation = (lambda a, b: sum_of(a, sign(b))) if sign else sum_of
    if element == "f32" and not (ftz or sat or any_nan):
        result: Binary = finished_f32(operation)
    else:
        result = finished(operation, ftz, sat, any_nan=any_nan or element == "f64")
    if source is not None:
        return _mixed(instruction, result, type, source, 1, ftz)
    return elementwise(result, type) if TYPES[type].element else result


def add(
    type: str,
    *,
    rounding: str = "rn",
    ftz: bool = False,
    sat: bool = False,
    source: str | None = None,
    any_nan: bool = False,
) -> Binary:
    """add (9.7.3.3, 9.7.4.1); with `source` f16 or bf16 as add.f32.source (9.7.5.1)."""
    return _sum("add", None, np.add, type, rounding, ftz, sat, source, any_nan)


def sub(
    type: str,
    *,
    rounding: str = "rn",
    ftz: bool = False,
    sat: bool = False,
    source: str | None = None,
    any_nan: bool = False,
) -> Binary:
    """sub (9.7.3.4, 9.7.4.2); with `source` f16 or bf16 as sub.f32.source (9.7.5.2)."""
    return _sum("sub", np.negative, np.subtract, type, rounding, ftz, sat, source, any_nan)


def _mul_f32(mode: str) -> Binary:
    return lambda a, b: to_f32(np.multiply(a, b, dtype=np.float64), mode)  # exact in f64


def _mul_bf16(a: Array, b: Array) -> Array:
    product = a.astype(np.float32) * b.astype(np.float32)
    # f32 holds the product exactly, unless it is below the least bf16, where only one tie matters
    if (np.abs(product) == np.float32(2.0**-134)).any():
        return to_bf16(wide(a) * wide(b), "rn")
    return product.astype(bfloat16)


def mul(
    type: str,
    *,
    rounding: str = "rn",
    ftz: bool = False,
    sat: bool = False,
    any_nan: bool = False,
) -> Binary:
    """mul (9.7.3.5, 9.7.4.3)."""
    element = _check("mul", type, rounding, ftz, sat)
    operation: Binary = _mul_bf16 if element == "bf16" else np.multiply
    if rounding != "rn":
        if element == "f64":
            operation = lane_by_lane(exact_mul, np.multiply, _finite, rounding)
        else:
            operation = _mul_f32(rounding)
    if element == "f32" and not (ftz or sat or any_nan):
        result: Binary = finished_f32(operation)
    else:
        result = finished(operation, ftz, sat, any_nan=any_nan or element == "f64")
    return elementwise(result, type) if TYPES[type].element else result


def _fma_f32(a: Array, b: Array, c: Array) -> Array:
    product = np.multiply(a, b, dtype=np.float64)  # exact
    total = product + c
    result = total.astype(np.float32)
    # rounding twice is wrong only where the first result lies halfway between two f32: its low 28
    # bits are then zero, and it is no f32
    halfway = (total.view(np.uint64) & np.uint64(0x0FFFFFFF)) == 0
    if halfway.any() and (halfway & (result != total)).any():
        return to_f32(sum_to_odd(product, wide(c)), "rn")
    return result


def _fma_f16(a: Array, b: Array, c: Array) -> Array:
    product = np.multiply(a, b, dtype=np.float64)
    total = product + c
    result = total.astype(np.float16)
    halfway = (total.view(np.uint64) & np.uint64(2**41 - 1)) == 0  # as for f32
    if (halfway & (result != total)).any():
        return sum_to_odd(product, wide(c)).astype(np.float16)
    return result


def _fma_bf16(a: Array, b: Array, c: Array) -> Array:
    product, addend = wide(a) * wide(b), wide(c)
    total = (product + addend).astype(np.float32)
    # a bf16 is the upper half of an f32: rounding twice is wrong only halfway between two of them
    if ((total.view(np.uint32) & np.uint32(0xFFFF)) == 0x8000).any():
        return to_bf16(sum_to_odd(product, addend), "rn")
    return total.astype(bfloat16)


def _fma_f32_directed(mode: str) -> Ternary:
    def apply(a: Array, b: Array, c: Array) -> Array:
        product, addend = np.multiply(a, b, dtype=np.float64), wide(c)
        total = signed_zero_sum(sum_to_odd(product, addend), product, addend, mode)
        return to_f32(total, mode)

    return apply


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _split(a: Array) -> tuple[Array, Array]:
    """The halves of an f64's significand, as f64 (Veltkamp)."""
    scaled = a * 134217729.0
    high = scaled - (scaled - a)
    return high, a - high


def _fma_f64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded to nearest (Boldo and Melquiond: the tail rounded to odd).

    Lanes near the ends of the range, where the error of the product is no f64, take exact integers.
    """
    a, b, c = np.broadcast_arrays(a, b, c)
    product = a * b
    (a_high, a_low), (b_high, b_low) = _split(a), _split(b)
    error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    high, low = _two_sum(c, error)
    top, tail = _two_sum(product, high)
    result = np.array(top + sum_to_odd(low, tail))
    finite = _finite(a, b, c)
    result = np.where(finite & (product != 0), result, product + c)
    size = np.abs(product)
    far = (size > 1e300) | (np.abs(a) > 1e300) | (np.abs(b) > 1e300) | (np.abs(c) > 1e300)
    far |= (size < 1e-250) & (a != 0) & (b != 0)
    for index in np.argwhere(far & finite):
        at = tuple(index)
        result[at] = exact_fma(float(a[at]), float(b[at]), float(c[at]), "rn")
    return result


_FMA: dict[str, Ternary] = {
    "f32": _fma_f32,
    "f16": _fma_f16,
    "bf16": _fma_bf16,
    "f64": _fma_f64,
}


def fma(
    type: str,
    *,
    rounding: str,
    ftz: bool = False,
    sat: bool = False,
    relu: bool = False,
    source: str | None = None,
    any_nan: bool = False,
) -> Ternary:
    """fma (9.7.3.6, 9.7.4.4), and mad of floats (9.7.3.7), which is the same.

    With `source` f16 or bf16 the factors have that type: fma.f32.source (9.7.5.3). `relu` is for
    f16 and bf16, alone or packed.
    """
    element = _check("fma", type, rounding, ftz, sat)
    if element not in ("f16", "bf16") or sat:
        refuse("fma", type, relu=relu)
    operation = _FMA[element]
    if rounding != "rn":
        if element == "f64":
            operation = lane_by_lane(exact_fma, _fma_f64, _finite, rounding)
        else:
            operation = _fma_f32_directed(rounding)
    result = finished(operation, ftz, sat, relu, any_nan or element == "f64")
    if source is not None:
        return _mixed("fma", result, type, source, 2, ftz)
    return elementwise(result, type) if TYPES[type].element else result


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
        if equal.any():
            # equal values differ at most in the sign of zero, which the bits decide
            bits = of_equal(bits_of(a), bits_of(b))
            result = np.where(equal, bits, bits_of(result)).view(a.dtype)
        return result

    return finished(apply, ftz)


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
    result = finished(change, ftz)
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
