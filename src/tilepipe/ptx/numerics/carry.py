"""Integer arithmetic with carries (section 9.7.2): a carry is an array of np.bool_.

Signed and unsigned types do the same. The .cc is the caller's: without it, drop the carry out.
"""

from __future__ import annotations

from collections.abc import Callable

from tilepipe.ptx.numerics.integer import mul
from tilepipe.ptx.numerics.types import Array, choose, require

CHAINED = "u32 s32 u64 s64"

WithCarry = Callable[..., tuple[Array, Array]]


def _add_carry(a: Array, b: Array, carry: Array | None) -> tuple[Array, Array]:
    """The sum of unsigned integers and a carry, and the carry out."""
    total = a + b
    out = total < a
    if carry is None:
        return total, out
    with_carry = total + carry.astype(a.dtype)
    return with_carry, out | (with_carry < total)


def add_cc(type: str) -> WithCarry:
    """add.cc (9.7.2.1): (a, b) to (sum, carry out). A carry is an array of np.bool_."""
    kind = require(type, CHAINED, "add.cc")
    unsigned = f"u{kind.bits // 8}"

    def apply(a: Array, b: Array) -> tuple[Array, Array]:
        total, out = _add_carry(a.view(unsigned), b.view(unsigned), None)
        return total.view(kind.dtype), out

    return apply


def addc(type: str) -> WithCarry:
    """addc{.cc} (9.7.2.2): (a, b, carry in) to (sum, carry out); without .cc drop the carry."""
    kind = require(type, CHAINED, "addc")
    unsigned = f"u{kind.bits // 8}"

    def apply(a: Array, b: Array, carry: Array) -> tuple[Array, Array]:
        total, out = _add_carry(a.view(unsigned), b.view(unsigned), carry)
        return total.view(kind.dtype), out

    return apply


def sub_cc(type: str) -> WithCarry:
    """sub.cc (9.7.2.3): (a, b) to (difference, borrow out)."""
    kind = require(type, CHAINED, "sub.cc")
    unsigned = f"u{kind.bits // 8}"

    def apply(a: Array, b: Array) -> tuple[Array, Array]:
        return a - b, a.view(unsigned) < b.view(unsigned)

    return apply


def subc(type: str) -> WithCarry:
    """subc{.cc} (9.7.2.4): (a, b, borrow in) to (difference, borrow out)."""
    kind = require(type, CHAINED, "subc")
    unsigned = f"u{kind.bits // 8}"

    def apply(a: Array, b: Array, borrow: Array) -> tuple[Array, Array]:
        left, right = a.view(unsigned), b.view(unsigned)
        difference = left - right
        result = difference - borrow.astype(unsigned)
        return result.view(kind.dtype), (left < right) | (result > difference)

    return apply


def mad_cc(type: str, mode: str) -> WithCarry:
    """mad.lo.cc, mad.hi.cc (9.7.2.5): (a, b, c) to (sum, carry out of the addition)."""
    require(type, CHAINED, "mad.cc")
    product, total = mul(type, choose("mad.cc", mode, "lo hi")), add_cc(type)

    def apply(a: Array, b: Array, c: Array) -> tuple[Array, Array]:
        return total(product(a, b), c)

    return apply


def madc(type: str, mode: str) -> WithCarry:
    """madc.lo, madc.hi{.cc} (9.7.2.6): (a, b, c, carry in) to (sum, carry out of the addition)."""
    require(type, CHAINED, "madc")
    product, total = mul(type, choose("madc", mode, "lo hi")), addc(type)

    def apply(a: Array, b: Array, c: Array, carry: Array) -> tuple[Array, Array]:
        return total(product(a, b), c, carry)

    return apply
