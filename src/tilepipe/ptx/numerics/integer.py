"""Integer arithmetic (section 9.7.1), of packed 16-bit integers, too.

Results wrap around to the width of the type. Division by zero gives what NVIDIA GPUs give, since
the ISA leaves it open: see `div` and `rem`.
"""

from __future__ import annotations

import numpy as np

from tilepipe.ptx.numerics.types import (
    TYPES,
    Array,
    Binary,
    Operation,
    Ternary,
    Unary,
    Unsupported,
    choose,
    elementwise,
    refuse,
    require,
)

SCALARS = "u16 u32 u64 s16 s32 s64"
SIGNED = "s16 s32 s64"
WORDS = "u32 s32"
PAIRS = "u16x2 s16x2"


def _clamped(operation: Operation) -> Operation:
    """An operation on s32 in 64 bits, its result clamped to the range of s32."""
    bounds = np.iinfo(np.int32)

    def apply(*operands: Array) -> Array:
        exact = operation(*[operand.astype(np.int64) for operand in operands])
        return np.clip(exact, bounds.min, bounds.max).astype(np.int32)

    return apply


def _sum(instruction: str, operation: Binary, type: str, sat: bool) -> Binary:
    if type in PAIRS.split() and instruction == "add":
        refuse(instruction, type, sat=sat)
        return elementwise(operation, type)
    require(type, SCALARS, instruction)
    if sat and type != "s32":
        refuse(instruction, type, sat=sat)
    return _clamped(operation) if sat else operation


def add(type: str, *, sat: bool = False) -> Binary:
    """add (9.7.1.1); `sat` clamps an s32 instead of wrapping around."""
    return _sum("add", np.add, type, sat)


def sub(type: str, *, sat: bool = False) -> Binary:
    """sub (9.7.1.2); `sat` clamps an s32 instead of wrapping around."""
    return _sum("sub", np.subtract, type, sat)


def _high_u64(a: Array, b: Array) -> Array:
    """The upper 64 bits of a product of u64, from four products of 32 bits by 32."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a_low, a_high, b_low, b_high = a & low, a >> half, b & low, b >> half
    middle = a_high * b_low + (a_low * b_low >> half)
    other = a_low * b_high + (middle & low)
    lanes: Array = a_high * b_high + (middle >> half) + (other >> half)
    return lanes


def _high_s64(a: Array, b: Array) -> Array:
    a_bits, b_bits = a.view(np.uint64), b.view(np.uint64)
    zero = np.uint64(0)
    high = _high_u64(a_bits, b_bits) - np.where(a < 0, b_bits, zero)
    return (high - np.where(b < 0, a_bits, zero)).view(np.int64)


def mul(type: str, mode: str) -> Binary:
    """mul.lo, mul.hi, mul.wide (9.7.1.3); `wide` takes 16 or 32 bits and returns twice as many."""
    kind = require(type, SCALARS, "mul")
    choose("mul", mode, "lo hi wide")
    if mode == "lo":
        return np.multiply
    if kind.bits == 64:
        if mode == "wide":
            raise Unsupported(f"mul.wide has no type .{type}")
        return _high_u64 if kind.kind == "unsigned" else _high_s64
    narrow, width = kind.dtype, kind.bits
    wide = TYPES[f"{type[0]}{2 * width}"].dtype

    def multiply_wide(a: Array, b: Array) -> Array:
        return np.multiply(a, b, dtype=wide)

    def multiply_high(a: Array, b: Array) -> Array:
        return (np.multiply(a, b, dtype=wide) >> width).astype(narrow)

    return multiply_wide if mode == "wide" else multiply_high


def mad(type: str, mode: str, *, sat: bool = False) -> Ternary:
    """mad.lo, mad.hi, mad.wide (9.7.1.4); `sat` clamps the sum of mad.hi.s32."""
    product = mul(type, mode)
    if sat and (mode, type) != ("hi", "s32"):
        refuse(f"mad.{mode}", type, sat=sat)
    total: Binary = _clamped(np.add) if sat else np.add

    def apply(a: Array, b: Array, c: Array) -> Array:
        return total(product(a, b), c)

    return apply


def mul24(type: str, mode: str) -> Binary:
    """mul24.lo, mul24.hi (9.7.1.5): bits 31..0 or 47..16 of the product of the lower 24 bits."""
    kind = require(type, WORDS, "mul24")
    shift = 0 if choose("mul24", mode, "lo hi") == "lo" else 16
    wide = TYPES[f"{type[0]}64"].dtype

    def apply(a: Array, b: Array) -> Array:
        # a shift up and down again drops the upper 8 bits, and extends the sign of an s32
        product = np.multiply(a << 8 >> 8, b << 8 >> 8, dtype=wide)
        lanes: Array = (product >> shift).astype(kind.dtype)
        return lanes

    return apply


def mad24(type: str, mode: str, *, sat: bool = False) -> Ternary:
    """mad24.lo, mad24.hi (9.7.1.6): mul24, then an addition, clamped for mad24.hi.sat.s32."""
    product = mul24(type, mode)
    if sat and (mode, type) != ("hi", "s32"):
        refuse(f"mad24.{mode}", type, sat=sat)
    total: Binary = _clamped(np.add) if sat else np.add

    def apply(a: Array, b: Array, c: Array) -> Array:
        return total(product(a, b), c)

    return apply


def sad(type: str) -> Ternary:
    """sad (9.7.1.7): c + |a - b|."""
    require(type, SCALARS, "sad")

    def apply(a: Array, b: Array, c: Array) -> Array:
        lanes: Array = c + (np.maximum(a, b) - np.minimum(a, b))
        return lanes

    return apply


def _divide(type: str, instruction: str, remainder: bool) -> Binary:
    kind = require(type, SCALARS, instruction)
    unsigned = np.dtype(f"u{kind.bits // 8}")
    ones = unsigned.type(2**kind.bits - 1)

    def divide(a: Array, b: Array) -> Array:
        zero = b == 0
        divisor = np.where(zero, unsigned.type(1), b)
        result = a % divisor if remainder else a // divisor
        return np.where(zero, ones, result)

    def divide_signed(a: Array, b: Array) -> Array:
        # magnitudes as unsigned integers: the least integer has one there
        result = divide(np.abs(a).view(unsigned), np.abs(b).view(unsigned)).view(kind.dtype)
        negative = a < 0 if remainder else (a < 0) != (b < 0)
        return np.where(negative & (b != 0), -result, result)

    return divide if kind.kind == "unsigned" else divide_signed


def div(type: str) -> Binary:
    """div (9.7.1.8): the quotient rounded toward zero.

    Division by zero gives a quotient of all ones, and the least integer divided by -1 itself.
    """
    return _divide(type, "div", remainder=False)


def rem(type: str) -> Binary:
    """rem (9.7.1.9): the remainder of `div`, with the sign of the dividend.

    Division by zero gives a remainder of all ones, and the least integer divided by -1 zero.
    """
    return _divide(type, "rem", remainder=True)


def abs(type: str) -> Unary:
    """abs (9.7.1.10); the least integer stays itself."""
    require(type, SIGNED, "abs")
    return np.absolute


def neg(type: str) -> Unary:
    """neg (9.7.1.11); the least integer stays itself."""
    require(type, SIGNED, "neg")
    return np.negative


def _extremum(instruction: str, operation: Binary, type: str, relu: bool) -> Binary:
    kind = require(type, f"{SCALARS} {PAIRS}", instruction)
    if relu and type not in ("s32", "s16x2"):
        refuse(instruction, type, relu=relu)
    zero = TYPES[kind.element or type].dtype.type(0)

    def rectified(a: Array, b: Array) -> Array:
        lanes: Array = np.maximum(operation(a, b), zero)
        return lanes

    chosen = rectified if relu else operation
    return elementwise(chosen, type) if kind.kind == "packed" else chosen


def min(type: str, *, relu: bool = False) -> Binary:
    """min (9.7.1.12); `relu` raises a negative result to zero."""
    return _extremum("min", np.minimum, type, relu)


def max(type: str, *, relu: bool = False) -> Binary:
    """max (9.7.1.13); `relu` raises a negative result to zero."""
    return _extremum("max", np.maximum, type, relu)


def _dot(a: Array, b: Array, c: Array) -> Array:
    """The sum of products of int32 elements along the last axis, added to c, modulo 2**32."""
    return np.add(np.sum(a * b, axis=-1, dtype=np.int32), c.view(np.int32))


def dp4a(a_type: str, b_type: str) -> Ternary:
    """dp4a (9.7.1.23): c plus the dot product of four bytes of a and of b.

    a and b are registers (np.uint32, or np.int32); c and the result u32 if both types are, else
    s32.
    """
    signed = "s32" in (a_type, b_type)
    a_bytes = np.int8 if require(a_type, WORDS, "dp4a").kind == "signed" else np.uint8
    b_bytes = np.int8 if require(b_type, WORDS, "dp4a").kind == "signed" else np.uint8

    def apply(a: Array, b: Array, c: Array) -> Array:
        left = a[..., None].view(a_bytes).astype(np.int32)
        total = _dot(left, b[..., None].view(b_bytes), c)
        return total if signed else total.view(np.uint32)

    return apply


def dp2a(mode: str, a_type: str, b_type: str) -> Ternary:
    """dp2a.lo, dp2a.hi (9.7.1.24): c plus the dot product of a's halves and two bytes of b.

    The bytes are the lower two of b, or the upper two with `hi`. Types are as in `dp4a`.
    """
    first = 0 if choose("dp2a", mode, "lo hi") == "lo" else 2
    signed = "s32" in (a_type, b_type)
    halves = np.int16 if require(a_type, WORDS, "dp2a").kind == "signed" else np.uint16
    b_bytes = np.int8 if require(b_type, WORDS, "dp2a").kind == "signed" else np.uint8

    def apply(a: Array, b: Array, c: Array) -> Array:
        left = a[..., None].view(halves).astype(np.int32)
        total = _dot(left, b[..., None].view(b_bytes)[..., first : first + 2], c)
        return total if signed else total.view(np.uint32)

    return apply
