"""cvt (section 9.7.9.21) to and from packed floats of 16, 8, 6 and 4 bits."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from tilepipe.ptx.numerics.conversions import cvt, rectify_half
from tilepipe.ptx.numerics.modifiers import NAN_HALF, canonical_half
from tilepipe.ptx.numerics.rounding import FORMATS
from tilepipe.ptx.numerics.types import (
    TYPES,
    Array,
    Binary,
    Type,
    Unary,
    Unsupported,
    choose,
    pack,
    refuse,
    require,
)

_PAIRS = {"f16x2": "f16", "bf16x2": "bf16"}
_SMALL = {
    "e4m3x2": ml_dtypes.float8_e4m3fn,
    "e5m2x2": ml_dtypes.float8_e5m2,
    "e2m3x2": ml_dtypes.float6_e2m3fn,
    "e3m2x2": ml_dtypes.float6_e3m2fn,
    "e2m1x2": ml_dtypes.float4_e2m1fn,
}
_NAN = {"e4m3x2": np.uint8(0x7F), "e5m2x2": np.uint8(0x7F)}


def _encoder(to: str, relu: bool) -> Callable[[Array], Array]:
    """Floats as codes, in uint8, of the elements of a packed type; rn and satfinite."""
    dtype, limit = np.dtype(_SMALL[to]), FORMATS[TYPES[to].element].largest
    # a type without NaN takes its largest value instead
    nan = _NAN.get(to, np.array(limit).astype(dtype).view(np.uint8)[()])

    def apply(a: Array) -> Array:
        limited = np.minimum(
            np.maximum(a, a.dtype.type(0 if relu else -limit)), a.dtype.type(limit)
        )
        if relu:
            limited = limited + a.dtype.type(0)  # no -0
        codes = limited.astype(dtype).view(np.uint8)
        missing = a != a
        return np.where(missing, nan, codes) if np.count_nonzero(missing) else codes

    return apply


def _exponent_encoder(mode: str, satfinite: bool) -> Callable[[Array], Array]:
    """f32 values as ue8m0: the exponent of the magnitude, rounded; the sign is dropped."""
    least = np.uint32(0x00400000)  # 2**-127, which is the code 0

    def apply(a: Array) -> Array:
        bits = a.astype(np.float32).view(np.uint32) & 0x7FFFFFFF
        code = bits >> 23
        if mode == "rp":
            code = code + ((bits & 0x7FFFFF != 0) & (bits > least) & (code < 255))
        if satfinite:
            code = np.where(bits <= 0x7F800000, np.minimum(code, 254), code)
        return code.astype(np.uint8)

    return apply


def _joined(codes: Array, to: Type) -> Array:
    """Codes of two elements along the last axis, the low one first, as a register."""
    if to.bits == 8:
        return codes[..., 1] << 4 | codes[..., 0]
    return pack(codes, np.uint16)


def cvt_pair(to: str, *, rounding: str, relu: bool = False, satfinite: bool = False) -> Binary:
    """cvt.to.f32 d, a, b: a goes to the upper half of the register, b to the lower.

    `to` is f16x2 or bf16x2 (rn, rz), e4m3x2, e5m2x2, e2m3x2, e3m2x2 or e2m1x2 (rn with satfinite)
    or ue8m0x2 (rz, rp; no relu). e2m1x2 has 8 bits, as np.uint8; 6-bit elements take 8 each.
    """
    kind = require(to, " ".join([*_PAIRS, *_SMALL, "ue8m0x2"]), "cvt")
    if to in _PAIRS:
        return _pair_of_halves(to, rounding, relu, satfinite)
    encode = _encoding(to, rounding, relu, satfinite)
    return lambda a, b: _joined(encode(_side_by_side(a, b)), kind)


def _encoding(to: str, rounding: str, relu: bool, satfinite: bool) -> Callable[[Array], Array]:
    if to == "ue8m0x2":
        choose("cvt.ue8m0x2", rounding, "rz rp")
        refuse("cvt", to, relu=relu)
        return _exponent_encoder(rounding, satfinite)
    choose(f"cvt.{to}", rounding, "rn")
    if not satfinite:
        raise Unsupported(f"cvt.{to} needs .satfinite")
    return _encoder(to, relu)


def _pair_of_halves(to: str, rounding: str, relu: bool, satfinite: bool) -> Binary:
    choose(f"cvt.{to}", rounding, "rn rz")
    convert = cvt(_PAIRS[to], "f32", rounding=rounding, relu=relu, satfinite=satfinite)
    return lambda a, b: pack(convert(_side_by_side(a, b)), np.uint32)


def _side_by_side(a: Array, b: Array) -> Array:
    """f32 values along a new last axis: b, which goes to the low bits, then a."""
    shape = a.shape if a.shape == b.shape else np.broadcast_shapes(a.shape, b.shape)
    both = np.empty((*shape, 2), np.float32)
    both[..., 0] = b
    both[..., 1] = a
    return both


def cvt_packed(
    to: str, source: str, *, rounding: str = "rn", relu: bool = False, satfinite: bool = False
) -> Unary:
    """cvt.to.source from one packed register to another.

    From f16x2 or bf16x2 to the narrow types of `cvt_pair` (ue8m0x2 from bf16x2 alone), and back:
    rn.f16x2 and rn.bf16x2 from e4m3x2, e5m2x2, e2m3x2, e3m2x2, e2m1x2 (with relu or without;
    bf16x2 with satfinite, too), rn.bf16x2 from ue8m0x2.
    """
    name = f"{to}.{source}"
    if source in _PAIRS:
        kind = require(to, " ".join([*_SMALL, "ue8m0x2"]), f"cvt from .{source}")
        if to == "ue8m0x2" and source != "bf16x2":
            raise Unsupported(f"cvt has no .{name}")
        encode, element = _encoding(to, rounding, relu, satfinite), TYPES[_PAIRS[source]].dtype

        def narrow(a: Array) -> Array:
            return _joined(encode(a[..., None].view(element)), kind)

        return narrow
    require(source, " ".join([*_SMALL, "ue8m0x2"]), "cvt")
    choose(f"cvt.{name}", rounding, "rn")
    if to not in (("bf16x2",) if source == "ue8m0x2" else _PAIRS):
        raise Unsupported(f"cvt has no .{name}")
    if to == "f16x2" or source == "ue8m0x2":
        refuse("cvt", name, satfinite=satfinite, relu=relu and source == "ue8m0x2")
    table = _decoded(source, to, relu, satfinite)
    if source == "e2m1x2":
        shifts = np.array([0, 4], np.uint8)
        return lambda a: pack(table[a[..., None] >> shifts & 15], np.uint32)
    return lambda a: pack(table[a[..., None].view(np.uint8)], np.uint32)


def _decoded(source: str, to: str, relu: bool, satfinite: bool) -> Array:
    """The bits of the f16 or bf16 of each code."""
    codes = np.arange(256, dtype=np.uint16)
    if source == "ue8m0x2":
        bits = codes << 7
        bits[0], bits[255] = 0x0040, NAN_HALF
        return bits
    values = (codes & (2 ** _width(source) - 1)).astype(np.uint8).view(_SMALL[source])
    element = TYPES[_PAIRS[to]]
    wide = values.astype(np.float32)
    if satfinite:
        wide = np.clip(wide, -FORMATS[element.name].largest, FORMATS[element.name].largest)
    halves = canonical_half(wide.astype(element.dtype))
    return (rectify_half(halves) if relu else halves).view(np.uint16)


def _width(packed: str) -> int:
    """The bits of an element: those of its name, and the sign."""
    element = TYPES[packed].element
    return 1 + int(element[1]) + int(element[3])
