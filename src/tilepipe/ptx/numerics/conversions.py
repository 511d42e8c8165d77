"""cvt (section 9.7.9.21) between scalars."""

from __future__ import annotations

import numpy as np

from tilepipe.ptx.numerics.modifiers import CANONICAL, flush, rectify, saturate
from tilepipe.ptx.numerics.rounding import FORMATS, MODES, NARROW, round_to, sum_to_odd
from tilepipe.ptx.numerics.types import (
    TYPES,
    Array,
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
    if relu or satfinite:
        refuse("cvt with .relu or .satfinite", name, ftz=ftz, sat=sat)
    if "bf16" in (to, source):
        refuse("cvt", name, sat=sat)
    if to == "tf32":
        require(source, "f32", "cvt.tf32")
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
        return (lambda a: saturate(convert(a))) if sat else convert
    _refuse_rounding(name, rounding)
    return _integer_to_integer(to, source, sat)


def _refuse_rounding(name: str, rounding: str | None) -> None:
    if rounding is not None:
        raise Unsupported(f"cvt.{name} has no .{rounding}")


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
        if np.count_nonzero(inside) == inside.size:
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
        down = np.where(error < 0, np.nextafter(nearest, -np.inf), nearest)
        up = np.where(error > 0, np.nextafter(nearest, np.inf), nearest)
        return {"rm": down, "rp": up}.get(mode, np.where(nearest > 0, down, up))

    return apply


def _float_to_float(
    to: str, source: str, rounding: str | None, ftz: bool, sat: bool, relu: bool, satfinite: bool
) -> Unary:
    name = f"{to}.{source}"
    steps: list[Unary] = []
    if ftz and source == "f32" and not (to == "f16" and rounding in ("rm", "rp")):
        steps.append(flush)
    if to == source:
        if rounding is not None:
            steps.append(_TO_INTEGER[choose(f"cvt.{name}", rounding, " ".join(_TO_INTEGER))])
    elif _ORDER[to] > _ORDER[source]:
        if source == "bf16" and rounding is not None:  # a mode is allowed, and without effect
            choose(f"cvt.{name}", rounding, " ".join(MODES))
        else:
            _refuse_rounding(name, rounding)
        if steps:  # the GPU flushes by an f32 operation
            steps += CANONICAL[source]
        steps.append(_widening(to, source))
    else:
        if rounding is None and _ORDER[to] == _ORDER[source]:
            rounding = "rn"
        mode = choose(f"cvt.{name}", rounding, "rn rz" if relu or satfinite else " ".join(MODES))
        steps.append(_narrowing(to, source, mode, satfinite))
    if ftz and to == "f32" != source:
        steps.append(flush)
    if sat:
        steps.append(saturate)
    if relu:
        steps.append(rectify_half)
    # the GPU keeps the payload of a NaN that goes to or from f64, and the bits of one of bf16
    moves = name == "f32.f32" and not steps
    if not (sat or moves or to == "f64" or name in ("f32.f64", "f32.bf16")):
        steps += CANONICAL[to]
    if len(steps) == 1:
        return steps[0]

    def apply(a: Array) -> Array:
        for step in steps:
            a = step(a)
        return a

    return apply


def _widening(to: str, source: str) -> Unary:
    single: Unary = _f32_of_bf16 if source == "bf16" else _f32
    return single if to == "f32" else lambda a: single(a).astype(np.float64)


def _f32_of_bf16(a: Array) -> Array:
    """A bf16 is the upper half of an f32."""
    return (a.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _f32(a: Array) -> Array:
    return a.astype(np.float32)


def rectify_half(a: Array) -> Array:
    """`rectify` on the bits of f16 or bf16: what has the sign bit set and is not NaN becomes +0."""
    bits = a.view(np.int16)
    return np.where((bits < 0) & (a == a), np.int16(0), bits).view(a.dtype)


def _narrowing(to: str, source: str, mode: str, satfinite: bool) -> Unary:
    """The conversion of a float to one of fewer or as many bits."""
    dtype = TYPES[to].dtype
    if satfinite:
        format_ = FORMATS[to]
        return lambda a: round_to(a.astype(np.float64), format_, mode, finite=True).astype(dtype)
    if mode == "rn" and source == "f32":
        return lambda a: a.astype(dtype)
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
