"""Logic and shifts (section 9.7.8), and the permutation of bytes (9.7.9.7)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilepipe.ptx.numerics.types import (
    Array,
    Binary,
    Operation,
    Ternary,
    Unary,
    Unsupported,
    choose,
    pack,
    require,
)


def cnot(type: str) -> Unary:
    """cnot (9.7.8.5): 1 for zero, else 0."""
    dtype = require(type, "b16 b32 b64", "cnot").dtype

    def apply(a: Array) -> Array:
        lanes: Array = (a == 0).astype(dtype)
        return lanes

    return apply


def _of_two(table: int) -> Binary:
    """The function of b and c with this truth table (bit 2 * b + c)."""
    zero = np.array(0, np.uint32)
    functions: dict[int, Binary] = {
        0b0000: lambda b, c: zero,
        0b1000: np.bitwise_and,
        0b1110: np.bitwise_or,
        0b0110: np.bitwise_xor,
        0b1100: lambda b, c: b,
        0b1010: lambda b, c: c,
        0b0100: lambda b, c: b & ~c,
        0b0010: lambda b, c: ~b & c,
    }
    if table in functions:
        return functions[table]
    inverse = functions[15 - table]
    return lambda b, c: ~inverse(b, c)


def lop3(table: int) -> Ternary:
    """lop3.b32 (9.7.8.6): the logical function of three inputs with this look-up table.

    Bit 4 * a + 2 * b + c of the table is the result for the bits a, b, c. Of the predicate form,
    (d != 0) and the operator with the other predicate are the caller's. An operand that the table
    ignores does not count for the shape of the result.
    """
    if not 0 <= table <= 255:
        raise Unsupported(f"lop3 takes a table from 0 to 255, not {table}")
    if table in (0, 255):
        constant = np.uint32(0xFFFFFFFF if table else 0)
        return lambda a, b, c: np.full(np.broadcast(a, b, c).shape, constant)
    low, high = table & 15, table >> 4  # of b and c, where a's bit is 0, and where it is 1
    lower, upper = _of_two(low), _of_two(high)
    if low == high:
        return lambda a, b, c: lower(b, c)
    if low == 15 - high:
        return lambda a, b, c: a ^ lower(b, c)
    if low == 0:
        return lambda a, b, c: a & upper(b, c)
    if high == 0:
        return lambda a, b, c: ~a & lower(b, c)
    if low == 15:
        return lambda a, b, c: ~a | upper(b, c)
    if high == 15:
        return lambda a, b, c: a | lower(b, c)

    def select(a: Array, b: Array, c: Array) -> Array:
        otherwise = lower(b, c)
        return otherwise ^ (a & (otherwise ^ upper(b, c)))

    return select


def shf(direction: str, mode: str) -> Ternary:
    """shf.l, shf.r (9.7.8.7): (a, b, amount) to the upper (l) or lower (r) half of {b, a} shifted.

    `clamp` takes an amount above 32 as 32, `wrap` the amount modulo 32.
    """
    left = choose("shf", direction, "l r") == "l"
    wrap = choose("shf", mode, "clamp wrap") == "wrap"
    half = np.uint64(32)

    def apply(a: Array, b: Array, amount: Array) -> Array:
        count = (amount & 31 if wrap else np.minimum(amount, 32)).astype(np.uint64)
        both = (b.astype(np.uint64) << half) | a
        return (both << count >> half if left else both >> count).astype(np.uint32)

    return apply


def _shift(operation: Binary, dtype: npt.DTypeLike) -> Binary:
    """A shift by a u32: NumPy shifts in a type that holds both, where past the width is defined."""

    def apply(a: Array, b: Array) -> Array:
        return operation(a, b).astype(dtype, copy=False)

    return apply


def shl(type: str) -> Binary:
    """shl (9.7.8.8): (a, amount as u32); amounts of the width and more give zero."""
    return _shift(np.left_shift, require(type, "b16 b32 b64", "shl").dtype)


def shr(type: str) -> Binary:
    """shr (9.7.8.9): (a, amount as u32); a signed type is filled up with its sign.

    Amounts of the width and more give zero, or the sign in all bits.
    """
    types = "b16 b32 b64 u16 u32 u64 s16 s32 s64"
    return _shift(np.right_shift, require(type, types, "shr").dtype)


# what the modes of prmt select, for the values 0 to 3 of c's low bits
_PERMUTATIONS = {
    "f4e": (0x3210, 0x4321, 0x5432, 0x6543),
    "b4e": (0x5670, 0x6701, 0x7012, 0x0123),
    "rc8": (0x0000, 0x1111, 0x2222, 0x3333),
    "ecl": (0x3210, 0x3211, 0x3222, 0x3333),
    "ecr": (0x0000, 0x1110, 0x2210, 0x3210),
    "rc16": (0x1010, 0x3232, 0x1010, 0x3232),
}
_NIBBLES = np.array([0, 4, 8, 12], np.uint32)


def _permute(a: Array, b: Array, selector: Array) -> Array:
    both = (b.astype(np.uint64) << np.uint64(32)) | a
    choice = selector[..., None] >> _NIBBLES
    chosen = (both[..., None] >> ((choice & 7) << 3)).astype(np.uint8)
    sign = (chosen.view(np.int8) >> 7).view(np.uint8)
    return pack(np.where(choice & 8, sign, chosen), np.uint32)


def prmt(mode: str | None = None, *, selector: int | None = None) -> Operation:
    """prmt.b32 (9.7.9.7): (a, b, c) to four bytes of {b, a}, which c selects.

    Without a mode each of the low four nibbles of c selects a byte, or with its bit 3 that byte's
    sign. `selector` is an immediate c, known at compile time: the callable then takes (a, b).
    """
    if mode is None:
        codes = None
    else:
        codes = np.array(_PERMUTATIONS[choose("prmt", mode, " ".join(_PERMUTATIONS))], np.uint32)
    if selector is None:
        if codes is None:
            return _permute
        return lambda a, b, c: _permute(a, b, codes[c & 3])
    code = selector if codes is None else int(codes[selector & 3])
    order = [code >> shift & 7 for shift in (0, 4, 8, 12)]
    signs = np.array([code >> shift & 8 for shift in (0, 4, 8, 12)], np.bool_)
    signed = bool(signs.any())

    def apply(a: Array, b: Array) -> Array:
        both = ((b.astype(np.uint64) << np.uint64(32)) | a)[..., None].view(np.uint8)
        chosen = both.take(order, axis=-1)
        if signed:
            chosen = np.where(signs, (chosen.view(np.int8) >> 7).view(np.uint8), chosen)
        return pack(chosen, np.uint32)

    return apply
