"""Elements of 8 and of 16 bits, two or four of which are worked on at once, as the bits of a word.

Two neighbouring elements of 8 bits are taken for one bfloat16, so that ldmatrix brings them to the
threads as it does tiles of 16 bits. A register then has four, of which the even ones become one
register of float16, and the odd ones another.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import tilepipe as tp

PAIR = tp.bfloat16  # what two float8_e4m3 are taken for: of finite ones no bits are a NaN of it
HALF = tp.float16  # what each becomes
RAISED = 2.0**8  # an e4m3 over the float16 that has its bits
PART = 64  # pairs of a row that a thread has a part of at once
SIGNS, OTHERS = 0x80008000, 0x3F803F80  # of two float16, the bits that an e4m3 has


def taken_for(x: Any, dtype: tp.DType) -> Any:
    """The view of an array that takes neighbours along the last dimension, which is contiguous, for
    elements of a larger dtype.
    """
    if isinstance(x, np.ndarray):
        return x.view(dtype.numpy)
    framework = sys.modules[type(x.dtype).__module__]
    return x.view(getattr(framework, dtype.name))


def widen(ctx: tp.Context, source: tp.SmemTile, target: tp.SmemTile) -> None:
    """A tile of pairs of e4m3 (rows, n) -> (rows, 2 n) float16 of 2^-8 times as much: the even
    elements in the left half, the odd ones in the right one. NaN becomes 1.875.
    """
    n = source.shape[1]
    for col in range(0, n, PART):
        part = min(PART, n - col)
        even, odd = widened(loaded(ctx, source.cols(col, part)))
        ctx.store(target.cols(col, part), even)
        ctx.store(target.cols(n + col, part), odd)


def loaded(ctx: tp.Context, source: tp.SmemTile) -> tp.Fragment:
    """A tile of pairs of e4m3 (m, n) in registers, as words (m, n / 2) of two pairs each."""
    pairs = ctx.fragment(shape=source.shape, dtype=source.dtype)
    pairs.load(source)
    return ctx.fragment(pairs.bitcast("uint32"))


def widened(words: tp.Fragment) -> tuple[tp.FragmentValue, tp.FragmentValue]:
    """The even and the odd elements of pairs of e4m3, each (m, n), as float16 of 2^-8 times as
    much. NaN becomes 1.875.
    """
    return _halves(words << 7, words << 8), _halves(words >> 1, words)


def _halves(others: tp.FragmentValue, signs: tp.FragmentValue) -> tp.FragmentValue:
    return (others & OTHERS | signs & SIGNS).bitcast(HALF)


def parted(
    ctx: tp.Context, words: tp.Fragment, dtype: tp.DType
) -> tuple[tp.FragmentValue, tp.FragmentValue]:
    """The even and the odd elements of words of two 16-bit elements, in float32."""
    if dtype is tp.bfloat16:
        return (words << 16).bitcast("float32"), (words & 0xFFFF0000).bitcast("float32")
    return _of_bits(ctx, words & 0xFFFF), _of_bits(ctx, words >> 16)


def joined(ctx: tp.Context, value: tp.FragmentValue, dtype: tp.DType) -> tp.FragmentValue:
    """(rows, 2 n), the even elements in the left half, as words of two neighbours each."""
    n = value.shape[1] // 2
    return paired(ctx, value.cols(0, n), value.cols(n, n), dtype)


def paired(ctx: tp.Context, even: Any, odd: Any, dtype: tp.DType) -> tp.FragmentValue:
    """Even and odd elements as words of two neighbours each."""
    low, high = (x.to(dtype).to("float32") for x in (even, odd))
    words: tp.FragmentValue
    if dtype is tp.bfloat16:
        words = low.bitcast("uint32") >> 16 | high.bitcast("uint32")
    else:
        words = _bits_of(ctx, low) | _bits_of(ctx, high) << 16
    return words


def _of_bits(ctx: tp.Context, bits: tp.FragmentValue) -> Any:
    """The float16 with such bits. The exponent of a float32 counts from 2^-112 times as much."""
    size: Any = bits & 0x7FFF
    special = (size << 13 | 0x7F800000).bitcast("float32")
    number = ctx.select(size < 0x7C00, (size << 13).bitcast("float32") * 2.0**112, special)
    return ctx.select(bits != size, -number, number)


def _bits_of(ctx: tp.Context, x: tp.FragmentValue) -> Any:
    """The bits of a float16, of which x is the number."""
    number: Any = x
    bits = (number.apply("abs") * 2.0**-112).bitcast("uint32") >> 13
    bits = ctx.select(number == number, bits.minimum(0x7C00), 0x7E00)
    return bits | number.bitcast("uint32") >> 16 & 0x8000
