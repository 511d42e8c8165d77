"""Bit fields (section 9.7.1.14 to 9.7.1.22), logic and shifts (9.7.8), and prmt (9.7.9.7)."""

from __future__ import annotations

from collections.abc import Callable

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
    require,
)

WORDS = "b32 b64"
NONE = np.uint32(0xFFFFFFFF)  # what bfind and fns return when they find no bit

_BYTE = np.arange(256, dtype=np.uint16)
_REVERSED = sum(((_BYTE >> bit & 1) << (7 - bit) for bit in range(8)), 0 * _BYTE).astype(np.uint8)
_HALF = np.arange(65536, dtype=np.uint32)
_COUNTS = sum((_HALF >> bit & 1 for bit in range(16)), 0 * _HALF).astype(np.uint8)


def popc(type: str) -> Unary:
    """popc (9.7.1.14): the number of one bits, as u32."""
    require(type, WORDS, "popc")

    def apply(a: Array) -> Array:
        lanes: Array = _COUNTS[a[..., None].view(np.uint16)].sum(axis=-1, dtype=np.uint32)
        return lanes

    return apply


def _length_u32(a: Array) -> Array:
    """One more than the position of the highest one bit, or zero: f64 holds a u32 exactly."""
    return np.frexp(a.astype(np.float64))[1]


def _length_u64(a: Array) -> Array:
    high = (a >> np.uint64(32)).astype(np.uint32)
    return np.where(high != 0, 32 + _length_u32(high), _length_u32(a.astype(np.uint32)))


def clz(type: str) -> Unary:
    """clz (9.7.1.15): the number of leading zeros, as u32; the width of the type for zero."""
    bits = require(type, WORDS, "clz").bits
    length = _length_u32 if bits == 32 else _length_u64

    def apply(a: Array) -> Array:
        return (bits - length(a)).astype(np.uint32)

    return apply


def bfind(type: str, *, shiftamt: bool = False) -> Unary:
    """bfind (9.7.1.16): the position of the highest bit that is not the sign, as u32.

    With `shiftamt`, the shift to the left that takes that bit to the top. 0xffffffff if there is
    none: for 0, and for -1 of a signed type.
    """
    kind = require(type, "u32 u64 s32 s64", "bfind")
    bits, unsigned, signed = kind.bits, f"u{kind.bits // 8}", kind.kind == "signed"
    length = _length_u32 if bits == 32 else _length_u64

    def apply(a: Array) -> Array:
        magnitude = (np.where(a < 0, ~a, a) if signed else a).view(unsigned)
        found = length(magnitude)
        position = bits - found if shiftamt else found - 1
        return np.where(found == 0, NONE, position.astype(np.uint32))

    return apply


def fns() -> Ternary:
    """fns.b32 (9.7.1.17): (mask, base, offset) to the position of the n-th one bit from `base`.

    0xffffffff if there is none, and for a base above 31, which the ISA leaves undefined.
    """

    def apply(mask: Array, base: Array, offset: Array) -> Array:
        base, offset = base.astype(np.int64) & 0xFFFFFFFF, offset.view(np.int32)
        mask, base, offset = np.broadcast_arrays(mask, base, offset.astype(np.int64))
        result = np.full(mask.shape, NONE)
        remaining = np.maximum(np.abs(offset), 1)
        step = np.sign(offset)
        for distance in range(32):
            position = base + step * distance
            inside = (position >= 0) & (position < 32) & ((step != 0) | (distance == 0))
            hit = inside & ((mask >> np.where(inside, position, 0).astype(np.uint32) & 1) == 1)
            result = np.where(hit & (remaining == 1), position.astype(np.uint32), result)
            remaining = remaining - hit
        return result

    return apply


def brev(type: str) -> Unary:
    """brev (9.7.1.18): the bits in reverse order."""
    dtype = require(type, WORDS, "brev").dtype

    def apply(a: Array) -> Array:
        return _REVERSED[a[..., None].view(np.uint8)[..., ::-1]].view(dtype)[..., 0]

    return apply


def bfe(type: str) -> Ternary:
    """bfe (9.7.1.19): (a, position, length) to that bit field of a, extended to the type.

    Only the low 8 bits of position and length count. Bits of the field beyond a's highest bit are
    the field's sign: zero for an unsigned type, a's highest bit for a signed one.
    """
    kind = require(type, "u32 u64 s32 s64", "bfe")
    bits = kind.bits
    unsigned = np.dtype(f"u{bits // 8}")
    one, top = unsigned.type(1), unsigned.type(bits - 1)
    ones = unsigned.type(2**bits - 1)

    def extract(a: Array | np.generic, position: Array, length: Array) -> Array:
        lanes: Array = (a >> position) & ((one << length) - one)
        return lanes

    def apply(a: Array, position: Array, length: Array) -> Array:
        start, width = (position & 0xFF).astype(unsigned), (length & 0xFF).astype(unsigned)
        return extract(a, start, width)  # shifts past the width give zero

    def apply_signed(a: Array, position: Array, length: Array) -> Array:
        pattern = a.view(unsigned)
        start, width = (position & 0xFF).astype(unsigned), (length & 0xFF).astype(unsigned)
        sign = (pattern >> np.minimum(start + width - one, top)) & one & (width != 0)
        inside = extract(ones, start, width)
        result = extract(pattern, start, width) | (~inside & (unsigned.type(0) - sign))
        lanes: Array = result.view(kind.dtype)
        return lanes

    return apply_signed if kind.kind == "signed" else apply


def bfi(type: str) -> Operation:
    """bfi (9.7.1.20): (a, b, position, length) to b with the low bits of a as that field.

    Only the low 8 bits of position and length count; bits beyond the highest are dropped.
    """
    dtype = require(type, WORDS, "bfi").dtype
    one = dtype.type(1)

    def apply(a: Array, b: Array, position: Array, length: Array) -> Array:
        start, width = (position & 0xFF).astype(dtype), (length & 0xFF).astype(dtype)
        field = ((one << width) - one) << start
        lanes: Array = (b & ~field) | ((a << start) & field)
        return lanes

    return apply


def bmsk(mode: str) -> Binary:
    """bmsk (9.7.1.22): (position, width) to that many one bits from the position upwards.

    A position or width of 32 and more is taken modulo 32 by `wrap`; with `clamp` the position
    gives zero and the width all bits from the position upwards.
    """
    wrap = choose("bmsk", mode, "clamp wrap") == "wrap"
    one = np.uint64(1)

    def apply(a: Array, b: Array) -> Array:
        start = np.asarray(a & 31 if wrap else np.minimum(a, 32)).astype(np.uint64)
        width = np.asarray(b & 31 if wrap else np.minimum(b, 32)).astype(np.uint64)
        return (((one << width) - one) << start).astype(np.uint32)

    return apply


def szext(mode: str, type: str) -> Binary:
    """szext (9.7.1.21): a's low b bits, extended to 32 bits by the sign (s32) or by zeros (u32).

    Zero for b = 0. `wrap` takes b modulo 32; `clamp` leaves a as it is for 32 and more.
    """
    kind = require(type, "u32 s32", "szext")
    wrap = choose("szext", mode, "clamp wrap") == "wrap"
    dtype = kind.dtype

    def apply(a: Array, b: Array) -> Array:
        count = b.view(np.uint32)
        shift = 32 - (count & 31 if wrap else np.minimum(count, 32)).astype(np.int64)
        up = a.view(np.uint32).astype(np.uint64) << shift.astype(np.uint64)
        return up.astype(np.uint32).view(dtype).astype(np.int64).__rshift__(shift).astype(dtype)

    return apply


def cnot(type: str) -> Unary:
    """cnot (9.7.8.6): 1 for zero, else 0."""
    dtype = require(type, "b16 b32 b64", "cnot").dtype

    def apply(a: Array) -> Array:
        lanes: Array = (a == 0).astype(dtype)
        return lanes

    return apply


def _two_inputs(table: int) -> Binary | int:
    """The function of b and c with this truth table (bit 2 * b + c): a callable, or 0 or 15."""
    functions: dict[int, Binary] = {
        0b1000: np.bitwise_and,
        0b1110: np.bitwise_or,
        0b0110: np.bitwise_xor,
        0b1100: lambda b, c: b,
        0b1010: lambda b, c: c,
    }
    if table in (0, 15):
        return table
    if table in functions:
        return functions[table]
    if 15 - table in functions:
        inverted = functions[15 - table]
        return lambda b, c: ~inverted(b, c)
    if table == 0b0100:
        return lambda b, c: b & ~c
    if table == 0b0010:
        return lambda b, c: ~b & c
    if table == 0b1101:
        return lambda b, c: b | ~c
    return lambda b, c: ~b | c


def lop3(table: int) -> Ternary:
    """lop3.b32 (9.7.8.5): the logical function of three inputs with this look-up table.

    Bit 4 * a + 2 * b + c of the table is the result for the bits a, b, c. Of the predicate form,
    (d != 0) and the operator with the other predicate are the caller's.
    """
    if not 0 <= table <= 255:
        raise Unsupported(f"lop3 takes a table from 0 to 255, not {table}")
    low, high = _two_inputs(table & 15), _two_inputs(table >> 4)  # for a bit of a of 0, of 1
    if isinstance(low, int) and isinstance(high, int):
        if low == high:
            value = np.uint32(0xFFFFFFFF if low else 0)
            return lambda a, b, c: np.full(np.broadcast_shapes(a.shape, b.shape, c.shape), value)
        return (lambda a, b, c: a | (b & c & 0)) if high else (lambda a, b, c: ~a | (b & c & 0))
    if isinstance(low, int):
        assert not isinstance(high, int)
        upper = high
        if low:
            return lambda a, b, c: ~a | upper(b, c)
        return lambda a, b, c: a & upper(b, c)
    lower = low
    if isinstance(high, int):
        if high:
            return lambda a, b, c: a | lower(b, c)
        return lambda a, b, c: ~a & lower(b, c)
    upper = high
    if table & 15 == table >> 4:
        return lambda a, b, c: np.broadcast_to(lower(b, c), np.broadcast(a, b, c).shape)
    if table & 15 == 15 - (table >> 4):
        return lambda a, b, c: a ^ lower(b, c)

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
    return np.where(choice & 8, sign, chosen).view(np.uint32)[..., 0]


def prmt(mode: str | None = None, *, selector: int | None = None) -> Callable[..., Array]:
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
        return chosen.view(np.uint32)[..., 0]

    return apply
