"""cvt (section 9.7.9.21): conversions between scalars, and to and from packed narrow floats."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from tilepipe.ptx.numerics.rounding import (
    FORMATS,
    MODES,
    NAN_HALF,
    NARROW,
    canonical,
    flush,
    rectify,
    round_to,
    saturate,
    sum_to_odd,
)
from tilepipe.ptx.numerics.types import (
    TYPES,
    Array,
    Binary,
    Type,
    Unary,
    Unsupported,
    choose,
    refuse,
    require,
)

INTEGERS = "u8 u16 u32 u64 s8 s16 s32 s64"
FLOATS = "f16 bf16 f32 f64"
_TO_INTEGER: dict[str, Unary] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
_ORDER = {"f16": 0, "bf16": 0, "f32": 1, "f64": 2}


def cvt(
    to: str,
    source: str,
    *,
    rounding: str | None = None,
    ftz: bool = False,
    sat: bool = False,
    relu: bool = False,
    satfinite: bool = False,
) -> Unary:
    """cvt.to.source between scalar types, and to tf32 (as a b32).

    `rounding` is an integer rounding (rni, rzi, rmi, rpi) or a mode (rn, rz, rm, rp; rna for
    tf32), where the ISA wants one. A float converted to an integer is clamped to its range; NaN
    gives zero, or the highest bit alone if the source is f64 or the integer has 64 bits.
    """
    require(source, f"{INTEGERS} {FLOATS}", "cvt")
    require(to, f"{INTEGERS} {FLOATS} tf32", "cvt")
    name = f"{to}.{source}"
    if ftz and "f32" not in (to, source):
        refuse("cvt", name, ftz=ftz)
    if (relu or satfinite) and (source != "f32" or to not in ("f16", "bf16", "tf32")):
        refuse("cvt", name, relu=relu, satfinite=satfinite)
    if to == "tf32":
        refuse("cvt", name, ftz=ftz, sat=sat)
        return _to_tf32(choose("cvt.tf32", rounding, "rn rz rna"), relu, satfinite)
    if TYPES[source].kind == "float":
        if TYPES[to].kind == "float":
            return _float_to_float(to, source, rounding, ftz, sat, relu, satfinite)
        return _float_to_integer(
            to, source, choose(f"cvt.{name}", rounding, " ".join(_TO_INTEGER)), ftz
        )
    if TYPES[to].kind == "float":
        mode = choose(f"cvt.{name}", rounding, " ".join(MODES))
        convert = _integer_to_float(to, source, mode)
        if not sat:
            return convert
        refuse("cvt", name, sat=to == "bf16")
        return lambda a: saturate(convert(a))
    refuse("cvt", name, **{rounding or "": rounding})
    return _integer_to_integer(to, source, sat)


def _integer_to_integer(to: str, source: str, sat: bool) -> Unary:
    dtype = TYPES[to].dtype
    if not sat:
        return lambda a: a.astype(dtype)
    target, given = np.iinfo(dtype), np.iinfo(TYPES[source].dtype)
    low, high = max(target.min, given.min), min(target.max, given.max)
    if (low, high) == (given.min, given.max):
        refuse("cvt", f"{to}.{source}", sat=sat)  # the source's range fits
    return lambda a: np.clip(a, low, high).astype(dtype)


def _float_to_integer(to: str, source: str, rounding: str, ftz: bool) -> Unary:
    dtype, integral = TYPES[to].dtype, _TO_INTEGER[rounding]
    bounds = np.iinfo(dtype)
    low, beyond = float(bounds.min), float(bounds.max + 1)  # powers of two, or zero: exact
    empty = dtype.type(0)
    if source == "f64" or TYPES[to].bits == 64:
        empty = np.array(1 << (TYPES[to].bits - 1), f"u{dtype.itemsize}").view(dtype)[()]

    def apply(a: Array) -> Array:
        value = integral((flush(a) if ftz else a).astype(np.float64))
        inside = (value >= low) & (value < beyond)
        result = np.where(inside, value, 0).astype(dtype)
        if inside.all():
            return result
        result = np.where(value >= beyond, dtype.type(bounds.max), result)
        result = np.where(value < low, dtype.type(bounds.min), result)
        return np.where(np.isnan(a), empty, result)

    return apply


def _integer_to_float(to: str, source: str, mode: str) -> Unary:
    kind = TYPES[source]
    if to == "f64":
        if mode == "rn" or kind.bits < 64:
            return lambda a: a.astype(np.float64)
        return _integer_to_f64(mode)
    narrow = NARROW[to]
    if mode == "rn" and to == "f32":
        return lambda a: a.astype(np.float32)
    if kind.bits < 64:
        return lambda a: narrow(a.astype(np.float64), mode)

    def apply(a: Array) -> Array:
        return narrow(sum_to_odd(*_halves(a)), mode)

    return apply


def _halves(a: Array) -> tuple[Array, Array]:
    """A 64-bit integer as the sum of two f64 that hold its upper and its lower 32 bits."""
    upper = (a >> 32).astype(np.float64) * 2.0**32
    return upper, (a & 0xFFFFFFFF).astype(np.float64)


def _integer_to_f64(mode: str) -> Unary:
    def apply(a: Array) -> Array:
        upper, lower = _halves(a)
        nearest = upper + lower
        error = lower - (nearest - upper)  # exact minus nearest: upper is the greater, or zero
        if mode == "rm" or mode == "rz":
            down = np.where(error < 0, np.nextafter(nearest, -np.inf), nearest)
            if mode == "rm":
                return down
        up = np.where(error > 0, np.nextafter(nearest, np.inf), nearest)
        return up if mode == "rp" else np.where(nearest > 0, down, up)

    return apply


def _float_to_float(
    to: str, source: str, rounding: str | None, ftz: bool, sat: bool, relu: bool, satfinite: bool
) -> Unary:
    name = f"{to}.{source}"
    if sat and (relu or satfinite or "bf16" in (to, source)):
        refuse("cvt", name, sat=sat)
    steps: list[Unary] = []
    if ftz and source == "f32":
        steps.append(flush)
    if to == source:
        if rounding is not None:
            steps.append(_TO_INTEGER[choose(f"cvt.{name}", rounding, " ".join(_TO_INTEGER))])
    elif _ORDER[to] > _ORDER[source]:
        refuse("cvt", name, **{rounding or "": rounding})
        steps += [canonical] if steps else []
        steps.append(_widening(to, source))
    else:
        mode = choose(f"cvt.{name}", rounding, "rn rz" if relu or satfinite else " ".join(MODES))
        steps.append(_narrowing(to, source, mode, satfinite))
    if ftz and to == "f32" != source:
        steps.append(flush)
    if sat:
        steps.append(saturate)
    if relu:
        steps.append(rectify_half)
    # the GPU keeps the payload of a NaN that goes to or from f64, and the bits of one of bf16
    if not (sat or to == "f64" or name in ("f32.f64", "f32.bf16")):
        steps.append(canonical)
    if len(steps) == 1:
        return steps[0]

    def apply(a: Array) -> Array:
        for step in steps:
            a = step(a)
        return a

    return apply


def _widening(to: str, source: str) -> Unary:
    if source == "bf16":  # the upper half of an f32
        single: Unary = lambda a: (a.view(np.uint16).astype(np.uint32) << 16).view(np.float32)  # noqa: E731
    else:
        single = lambda a: a.astype(np.float32)  # noqa: E731
    return single if to == "f32" else lambda a: single(a).astype(np.float64)


def rectify_half(a: Array) -> Array:
    """`rectify` on the bits of f16 or bf16: what has the sign bit set and is no NaN becomes +0."""
    bits = a.view(np.int16)
    return np.where((bits < 0) & (a == a), np.int16(0), bits).view(a.dtype)


def _narrowing(to: str, source: str, mode: str, satfinite: bool) -> Unary:
    """The conversion of a float to one of fewer or as many bits."""
    dtype = TYPES[to].dtype
    if satfinite:
        format_ = FORMATS[to]
        return lambda a: round_to(a.astype(np.float64), format_, mode, finite=True).astype(dtype)
    if mode == "rn" and source != "f64":
        return lambda a: a.astype(np.float32).astype(dtype)
    narrow = NARROW[to]
    return lambda a: narrow(a.astype(np.float64), mode)


_NAN_TF32 = np.uint32(0x7FFFE000)


def _to_tf32(mode: str, relu: bool, satfinite: bool) -> Unary:
    """f32 to tf32: as f32, the low 13 bits zero; its bits as a b32."""
    if relu and mode == "rna":
        refuse("cvt.rna", "tf32.f32", relu=relu)
    format_ = FORMATS["tf32"]

    def apply(a: Array) -> Array:
        value = round_to(a.astype(np.float64), format_, mode, finite=satfinite)
        if relu:
            value = rectify(value)
        bits = value.astype(np.float32).view(np.uint32)
        return np.where(np.isnan(value), _NAN_TF32, bits)

    return apply


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
    """f64 values as codes, in uint8, of the elements of a packed type; rn and satfinite."""
    format_ = FORMATS[TYPES[to].element]
    # a type without NaN takes its largest value instead
    largest = np.array(format_.largest).astype(_SMALL[to]).view(np.uint8)[()]
    nan = _NAN.get(to, largest)

    def apply(a: Array) -> Array:
        value = round_to(a.astype(np.float64), format_, "rn", finite=True)
        if relu:
            value = rectify(value)
        missing = np.isnan(value)
        codes = np.where(missing, 0, value).astype(_SMALL[to]).view(np.uint8)
        return np.where(missing, nan, codes)

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


def _joined(high: Array, low: Array, to: Type) -> Array:
    """Codes of two elements as a register."""
    if to.bits == 8:
        return high << 4 | low
    return high.astype(np.uint16) << 8 | low


def cvt_pair(to: str, *, rounding: str, relu: bool = False, satfinite: bool = False) -> Binary:
    """cvt.to.f32 d, a, b: a goes to the upper half of the register, b to the lower.

    `to` is f16x2 or bf16x2 (rn, rz), e4m3x2, e5m2x2, e2m3x2, e3m2x2 or e2m1x2 (rn with satfinite)
    or ue8m0x2 (rz, rp; no relu). e2m1x2 has 8 bits, as np.uint8; 6-bit elements take 8 each.
    """
    kind = require(to, " ".join([*_PAIRS, *_SMALL, "ue8m0x2"]), "cvt")
    if to in _PAIRS:
        return _pair_of_halves(to, rounding, relu, satfinite)
    encode = _encoding(to, rounding, relu, satfinite)
    return lambda a, b: _joined(encode(a), encode(b), kind)


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
    convert = cvt(_PAIRS[to], "f32", rounding=rounding, relu=relu, satfinite=satfinite)

    def apply(a: Array, b: Array) -> Array:
        both = np.empty((*np.broadcast_shapes(np.shape(a), np.shape(b)), 2), np.float32)
        both[..., 0] = b
        both[..., 1] = a
        return convert(both).view(np.uint32)[..., 0]

    return apply


def cvt_packed(
    to: str, source: str, *, rounding: str = "rn", relu: bool = False, satfinite: bool = False
) -> Unary:
    """cvt.to.source from one packed register to another.

    From f16x2 or bf16x2 to the narrow types of `cvt_pair` (ue8m0x2 from bf16x2 alone), and back:
    rn.f16x2 from e4m3x2, e5m2x2, e2m3x2, e3m2x2, e2m1x2 (with relu or without), rn.bf16x2 from
    ue8m0x2.
    """
    name = f"{to}.{source}"
    if source in _PAIRS:
        kind = require(to, " ".join([*_SMALL, "ue8m0x2"]), f"cvt from .{source}")
        if to == "ue8m0x2" and source != "bf16x2":
            raise Unsupported(f"cvt has no .{name}")
        encode, element = _encoding(to, rounding, relu, satfinite), TYPES[_PAIRS[source]].dtype

        def narrow(a: Array) -> Array:
            codes = encode(a[..., None].view(element))
            return _joined(codes[..., 1], codes[..., 0], kind)

        return narrow
    require(source, " ".join([*_SMALL, "ue8m0x2"]), "cvt")
    choose(f"cvt.{name}", rounding, "rn")
    if to != ("bf16x2" if source == "ue8m0x2" else "f16x2") or satfinite:
        raise Unsupported(f"cvt has no .{name}" + (" with .satfinite" if satfinite else ""))
    if source == "ue8m0x2":
        refuse("cvt", name, relu=relu)
    table = _decoded(source, relu)
    if source == "e2m1x2":
        shifts = np.array([0, 4], np.uint8)
        return lambda a: table[a[..., None] >> shifts & 15].view(np.uint32)[..., 0]
    return lambda a: table[a[..., None].view(np.uint8)].view(np.uint32)[..., 0]


def _decoded(source: str, relu: bool) -> Array:
    """The bits of the f16 (of ue8m0 the bf16) of each code."""
    codes = np.arange(256, dtype=np.uint16)
    if source == "ue8m0x2":
        bits = codes << 7
        bits[0], bits[255] = 0x0040, NAN_HALF
        return bits
    values = (codes & (2 ** _width(source) - 1)).astype(np.uint8).view(_SMALL[source])
    halves = canonical(values.astype(np.float16))
    return (rectify_half(halves) if relu else halves).view(np.uint16)


def _width(packed: str) -> int:
    """The bits of an element: those of its name, and the sign."""
    element = TYPES[packed].element
    return 1 + int(element[1]) + int(element[3])
