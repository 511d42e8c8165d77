"""Conversion between types (PTX ISA, "cvt", "cvt.pack")."""

from __future__ import annotations

import numpy as np

from tilepipe.ptx.definition import (
    Modifiers,
    Operation,
    compute,
    defines,
    operands,
)
from tilepipe.ptx.numerics import (
    conversions,
    narrow,
)
from tilepipe.ptx.numerics.rounding import MODES
from tilepipe.ptx.numerics.types import TYPES, Array, Unsupported, is_integer
from tilepipe.ptx.syntax.nodes import Instruction

_PAIRS = ("f16x2", "bf16x2", "e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2")


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
    to, source = modifiers.any(), modifiers.any()
    modifiers.end()
    if rounding == "rs":
        raise Unsupported("stochastic rounding is not modelled")
    if to in _PAIRS and source == "f32":
        operands(instruction, 3)
        pair = narrow.cvt_pair(to, rounding=rounding or "rn", relu=relu, satfinite=satfinite)
        return compute(instruction, to, pair, None, "f32")
    operands(instruction, 2)
    if source in _PAIRS or to in _PAIRS:
        packed = narrow.cvt_packed(
            to, source, rounding=rounding or "rn", relu=relu, satfinite=satfinite
        )
        return compute(instruction, to, packed, None, source)
    lanes = conversions.cvt(
        to, source, rounding=rounding, ftz=ftz, sat=sat, relu=relu, satfinite=satfinite
    )
    plain = is_integer(to) and is_integer(source) and not sat
    return compute(instruction, to, lanes, "{0}" if plain else None, source)


_PACKED = {"u16": (0, 0xFFFF), "s16": (-0x8000, 0x7FFF), "u8": (0, 0xFF), "s8": (-0x80, 0x7F)}


def _pack(instruction: Instruction, modifiers: Modifiers) -> Operation:
    """`cvt.pack.sat.u8.s32.b32 d, a, b, c`: b in the lowest bits, a above it, and of types of 8
    bits the low half of c above both.
    """
    modifiers.need("sat")
    to = modifiers.need(*_PACKED)
    modifiers.need("s32")
    bits = TYPES[to].bits
    if bits == 8:
        modifiers.need("b32")
    modifiers.end()
    operands(instruction, 4 if bits == 8 else 3)
    low, high = _PACKED[to]

    def lanes(a: Array, b: Array, *c: Array) -> Array:
        upper, lower = (np.clip(v, low, high).view(np.uint32) & ((1 << bits) - 1) for v in (a, b))
        packed = upper << np.uint32(bits) | lower
        return packed | c[0] << np.uint32(16) if c else packed

    return compute(instruction, "b32", lanes, None, "s32", "s32", "b32")
