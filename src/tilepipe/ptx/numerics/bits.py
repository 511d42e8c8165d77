"""Counting bits, and bit fields (sections 9.7.1.14 to 9.7.1.22)."""

from __future__ import annotations

import numpy as np

from tilepipe.ptx.numerics.types import (
    Array,
    Binary,
    Operation,
    Ternary,
    Unary,
    choose,
    pack,
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
            inside = (base < 32) & (position >= 0) & (position < 32)
            inside &= (step != 0) | (distance == 0)
            hit = inside & ((mask >> np.where(inside, position, 0).astype(np.uint32) & 1) == 1)
            result = np.where(hit & (remaining == 1), position.astype(np.uint32), result)
            remaining = remaining - hit
        return result

    return apply


def brev(type: str) -> Unary:
    """brev (9.7.1.18): the bits in reverse order."""
    dtype = require(type, WORDS, "brev").dtype

    def apply(a: Array) -> Array:
        return pack(_REVERSED[a[..., None].view(np.uint8)[..., ::-1]], dtype)

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
        start = (a & 31 if wrap else np.minimum(a, 32)).astype(np.uint64)
        width = (b & 31 if wrap else np.minimum(b, 32)).astype(np.uint64)
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
        extended = up.astype(np.uint32).view(dtype).astype(np.int64) >> shift
        return extended.astype(dtype)

    return apply
