"""Integer arithmetic and conversions as the device performs them, on Python's exact integers.

The tracer folds constants with these, static evaluation and the simulator compute with them, and
the printer writes C++ that gives the same, so that a number has one meaning everywhere:

- signed arithmetic whose exact result does not fit its dtype is a fault, and so is a division by 0;
- unsigned arithmetic wraps round;
- a shift by the width of the operand or more leaves no bit of it: 0, or copies of the sign for `>>`
  of a signed integer. The amount is read as an unsigned number, so a negative one is such a shift,
  too (PTX ISA, "Logic and Shift Instructions: shl, shr");
- a conversion from floating point truncates towards zero and clamps to the range of the integer
  (PTX ISA, "cvt": .rzi). NaN becomes 0. The instruction alone gives that for 32-bit sources and
  destinations only; the printer asks for NaN first where either has 64 bits.
"""

from __future__ import annotations

import math

from tilepipe.ir.dtypes import DType

MAX_SHIFT = 64  # no integer has more bits, so shifting further changes nothing


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer of a dtype."""
    if dtype.kind == "bool":
        return 0, 1
    if dtype.kind == "uint":
        return 0, (1 << dtype.bits) - 1
    return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1


def wrapped(value: int, dtype: DType) -> int:
    """The integer of `dtype` whose bits are the low bits of `value`."""
    low, high = limits(dtype)
    return (value - low & high - low) + low


def shift_amount(amount: int) -> int:
    """The bits by which an operand is shifted, at most `MAX_SHIFT`."""
    return amount if 0 <= amount < MAX_SHIFT else MAX_SHIFT


def shl(a: int, amount: int) -> int:
    """`a << amount`, exact. A reader then wraps it round (unsigned) or checks that it fits
    (signed).
    """
    return a << shift_amount(amount)


def shr(a: int, amount: int) -> int:
    """`a >> amount`; the sign is copied."""
    return a >> shift_amount(amount)


def from_float(value: float, dtype: DType) -> int:
    """A floating-point number as an integer of `dtype`: truncated, clamped; NaN is 0."""
    low, high = limits(dtype)
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return high if value > 0 else low
    return min(max(int(value), low), high)


def converted(value: int | float | bool, dtype: DType) -> int | bool:
    """A constant converted to an integer dtype, or to a boolean."""
    if dtype.kind == "bool":
        return value != 0
    return from_float(value, dtype) if isinstance(value, float) else wrapped(int(value), dtype)
