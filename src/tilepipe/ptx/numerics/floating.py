"""Floating-point arithmetic that rounds once (sections 9.7.3 to 9.7.5): add, sub, mul, fma.

`ftz` flushes subnormal operands and results to zeros of their sign, `sat` clamps a result to
[0, 1] with NaN as +0, `relu` raises a negative result to +0. The ISA leaves open which NaN a
result of f32, f16 and bf16 is; here it is the canonical one, as on the GPU, unless `any_nan` asks
for the host's, which spares a call. A NaN of f64 is the host's.
"""

from __future__ import annotations

import numpy as np

from tilepipe.ptx.numerics.exact import exact_add, exact_fma, exact_mul, lane_by_lane
from tilepipe.ptx.numerics.modifiers import finished, wide
from tilepipe.ptx.numerics.rounding import MODES, signed_zero_sum, sum_to_odd, to_bf16, to_f32
from tilepipe.ptx.numerics.types import (
    TYPES,
    Array,
    Binary,
    Operation,
    Ternary,
    Unary,
    Unsupported,
    bfloat16,
    choose,
    elementwise,
    refuse,
    require,
)

TYPES_OF_ARITHMETIC = "f32 f64 f16 bf16 f32x2 f16x2 bf16x2"

# bits of an f64 below the one that lies halfway between two f32, and two f16
_BELOW_HALF_F32, _BELOW_HALF_F16, _ZERO = np.uint64(2**28 - 1), np.uint64(2**41 - 1), np.uint64(0)
# of an f32: the half that a bf16 lacks, and its value halfway between two bf16
_LOWER_HALF, _HALFWAY_BF16 = np.uint32(0xFFFF), np.uint32(0x8000)


def _check(instruction: str, type: str, rounding: str, ftz: bool, sat: bool) -> str:
    """The element type of an arithmetic instruction, its modifiers checked."""
    kind = require(type, TYPES_OF_ARITHMETIC, instruction)
    element = kind.element or type
    modes = "rn" if element in ("f16", "bf16") else " ".join(MODES)
    choose(f"{instruction}.{type}", rounding, modes)
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
    result = finished(operation, element, ftz=ftz, sat=sat, any_nan=any_nan)
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
    # f16 and bf16 are multiplied as f32. It holds the product exactly, but for products of bf16
    # below half the least subnormal, which round to zero either way
    operation: Binary = np.multiply
    if rounding != "rn":
        if element == "f64":
            operation = lane_by_lane(exact_mul, np.multiply, _finite, rounding)
        else:
            operation = _mul_f32(rounding)
    result = finished(operation, element, ftz=ftz, sat=sat, any_nan=any_nan)
    return elementwise(result, type) if TYPES[type].element else result


def _fma_f32(a: Array, b: Array, c: Array) -> Array:
    product = np.multiply(a, b, dtype=np.float64)  # exact
    total = product + c
    result = total.astype(np.float32)
    # rounding twice is wrong only where the first result lies halfway between two f32: its low 28
    # bits are then zero, and it is not an f32
    halfway = (total.view(np.uint64) & _BELOW_HALF_F32) == _ZERO
    if np.count_nonzero(halfway) and np.count_nonzero(halfway & (result != total)):
        return to_f32(sum_to_odd(product, wide(c)), "rn")
    return result


def _fma_f16(a: Array, b: Array, c: Array) -> Array:
    product = np.multiply(a, b, dtype=np.float64)
    total = product + c
    result = total.astype(np.float16)
    halfway = (total.view(np.uint64) & _BELOW_HALF_F16) == _ZERO  # as for f32
    if np.count_nonzero(halfway) and np.count_nonzero(halfway & (result != total)):
        return sum_to_odd(product, wide(c)).astype(np.float16)
    return result


def _fma_bf16(a: Array, b: Array, c: Array) -> Array:
    product, addend = wide(a) * wide(b), wide(c)
    total = (product + addend).astype(np.float32)
    # a bf16 is the upper half of an f32: rounding twice is wrong only halfway between two of them
    if np.count_nonzero((total.view(np.uint32) & _LOWER_HALF) == _HALFWAY_BF16):
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

    Lanes near the ends of the range, where the error of the product is not an f64, take exact
    integers.
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


_OUT_OF_BOUNDS = np.uint16(0x7FF7)  # as an H100 has it, of either sign


def _zero_out_of_bounds(operation: Ternary) -> Ternary:
    def apply(a: Array, b: Array, c: Array) -> Array:
        a_bits, b_bits = (v.view(np.uint16) & np.uint16(0x7FFF) for v in (a, b))
        outside = (a_bits == _OUT_OF_BOUNDS) | (b_bits == _OUT_OF_BOUNDS)
        return np.where(outside, a.dtype.type(0), operation(a, b, c))

    return apply


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
    oob: bool = False,
    source: str | None = None,
    any_nan: bool = False,
) -> Ternary:
    """fma (9.7.3.6, 9.7.4.4), and mad of floats (9.7.3.7), which is the same.

    With `source` f16 or bf16 the factors have that type: fma.f32.source (9.7.5.3). `relu` is for
    f16 and bf16, alone or packed, and so is `oob`: the result is zero where a factor is the NaN
    that copies put outside the bounds of a tensor.
    """
    element = _check("fma", type, rounding, ftz, sat)
    if element not in ("f16", "bf16") or sat:
        refuse("fma", type, relu=relu, oob=oob)
    if oob:
        refuse("fma.oob", type, ftz=ftz)
    operation = _FMA[element]
    if rounding != "rn":
        if element == "f64":
            operation = lane_by_lane(exact_fma, _fma_f64, _finite, rounding)
        else:
            operation = _fma_f32_directed(rounding)
    result = finished(operation, element, ftz=ftz, sat=sat, relu=relu, any_nan=any_nan)
    if oob:
        result = _zero_out_of_bounds(result)
    if source is not None:
        return _mixed("fma", result, type, source, 2, ftz)
    return elementwise(result, type) if TYPES[type].element else result
