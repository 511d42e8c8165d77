"""Conversion between types (PTX ISA, "cvt", "cvt.pack")."""

from __future__ import annotations

import numpy as np

from tilepipe.ptx.definition import (
    Modifiers,
    Operation,
    compute,
    defines,
    not_modelled,
    operands,
)
from tilepipe.ptx.numerics import (
    conversions,
    narrow,
)
from tilepipe.ptx.numerics.rounding import MODES
from tilepipe.ptx.numerics.types import Array, Unsupported, is_integer
from tilepipe.ptx.syntax.nodes import Instruction

_PAIRS = ("f16x2", "bf16x2", "e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2")
# What assemblers take and the reader does not: fixed point, scale factors.
_NOT_MODELLED = ("s2f6x2", "scaled::n2::ue8m0")


@defines("cvt")
def _cvt(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    if modifiers.flag("pack"):
        return _pack(instruction, modifiers)
    rounding = modifiers.take(*MODES, "rna", "rni", "rzi", "rmi", "rpi", "rs") or None
    ftz = modifiers.flag("ftz")
    sat = modifiers.flag("sat")
    satfinite = modifiers.flag("satfinite")
    relu = modifiers.flag("relu")
    satfinite = satfinite or modifiers.flag("satfinite")
    if rounding == "rs":
        not_modelled(instruction, "stochastic rounding")
    if unknown := modifiers.anywhere(*_NOT_MODELLED):
        not_modelled(instruction, f".{unknown}")
    to, source = modifiers.any(), modifiers.any()
    modifiers.end()
    if source in _PAIRS or to in _PAIRS:
        if ftz or sat:
            raise Unsupported(f"cvt.{to}.{source} has no .{'ftz' if ftz else 'sat'}")
        if rounding is None:
            raise Unsupported(f"cvt.{to}.{source} needs a rounding mode")
        operands(instruction, 3 if source == "f32" else 2)
        if source == "f32":
            pair = narrow.cvt_pair(to, rounding=rounding, relu=relu, satfinite=satfinite)
            return compute(instruction, to, pair, None, "f32")
        packed = narrow.cvt_packed(to, source, rounding=rounding, relu=relu, satfinite=satfinite)
        return compute(instruction, to, packed, None, source)
    operands(instruction, 2)
    lanes = conversions.cvt(
        to, source, rounding=rounding, ftz=ftz, sat=sat, relu=relu, satfinite=satfinite
    )
    plain = is_integer(to) and is_integer(source) and not sat
    return compute(instruction, to, lanes, "{0}" if plain else None, source)


_PACKED = ("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2")


def _pack(instruction: Instruction, modifiers: Modifiers) -> Operation:
    """`cvt.pack.sat.u8.s32.b32 d, a, b, c`: b in the lowest bits, a above it; the low bits of c
    above both, but for types of 16 bits.
    """
    modifiers.need("sat")
    to = modifiers.need(*_PACKED)
    modifiers.need("s32")
    bits = int(to[1:])
    if bits < 16:
        modifiers.need("b32")
    modifiers.end()
    operands(instruction, 4 if bits < 16 else 3)
    low = 0 if to[0] == "u" else -1 << (bits - 1)
    high = low + (1 << bits) - 1

    def lanes(a: Array, b: Array, *c: Array) -> Array:
        upper, lower = (np.clip(v, low, high).view(np.uint32) & ((1 << bits) - 1) for v in (a, b))
        packed = upper << np.uint32(bits) | lower
        return packed | c[0] << np.uint32(2 * bits) if c else packed

    return compute(instruction, "b32", lanes, None, "s32", "s32", "b32")
