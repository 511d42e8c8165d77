"""Integer functions of single Python numbers, for registers that are equal in all lanes.

Operands are unsigned where not said otherwise; results are reduced by the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def quotient(a: int, b: int, bits: int) -> int:
    """div: towards zero; all ones where `b` is 0, as `integer.div` has it."""
    if b == 0:
        return (1 << bits) - 1
    found = abs(a) // abs(b)
    return found if (a < 0) == (b < 0) else -found


def remainder(a: int, b: int, bits: int) -> int:
    """rem: the sign of `a`; as `integer.rem` where `b` is 0."""
    if b == 0:
        return a if a >= 0 else a & ((1 << bits) - 1)
    found = abs(a) % abs(b)
    return found if a >= 0 else -found


def lop3(a: int, b: int, c: int, table: int) -> int:
    """lop3.b32: bit i of the result is bit `4 a + 2 b + c` (bits i of each) of the table."""
    result = 0
    for index in range(8):
        if table >> index & 1:
            term = a if index & 4 else ~a
            term &= b if index & 2 else ~b
            result |= term & (c if index & 1 else ~c)
    return result


def permuted(a: int, b: int, selector: int) -> int:
    """prmt.b32 without a mode."""
    both = b << 32 | a
    result = 0
    for place in range(4):
        choice = selector >> 4 * place & 15
        byte = both >> 8 * (choice & 7) & 0xFF
        if choice & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << 8 * place
    return result


def extracted(a: int, begin: int, length: int, bits: int, signed: bool) -> int:
    """bfe: `length` bits of `a` from bit `begin`, filled up with their highest if signed."""
    begin, length = begin & 0xFF, length & 0xFF
    a &= (1 << bits) - 1
    found = a >> begin & ((1 << length) - 1)
    if not signed or length == 0:
        return found
    top = a >> min(begin + length - 1, bits - 1) & 1
    length = min(length, max(bits - begin, 0))
    return found | (-1 << length) if top else found & ~(-1 << length)


def inserted(a: int, b: int, begin: int, length: int) -> int:
    """bfi: the low `length` bits of `a` in place of those of `b` from bit `begin`."""
    begin, length = begin & 0xFF, length & 0xFF
    field = ((1 << length) - 1) << begin
    return (b & ~field) | (a << begin & field)


SCALAR_FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (quotient, remainder, lop3, permuted, extracted, inserted)
}
