"""Modifiers of operands and results: .ftz, .sat, .relu, and which NaN a result is."""

from __future__ import annotations

import numpy as np

from tilepipe.ptx.numerics.types import Array, Operation, Unary, bfloat16

# The NaN that NVIDIA GPUs return: the ISA leaves it open except for .NaN and .relu
NAN_F32 = np.uint32(0x7FFFFFFF).view(np.float32)
NAN_HALF = np.uint16(0x7FFF)

_LEAST_NORMAL = {
    np.dtype(np.float32): np.float32(2.0**-126),
    np.dtype(np.float16): np.float16(2.0**-14),
    bfloat16: bfloat16.type(2.0**-126),
}


def canonical_f32(values: Array) -> Array:
    """f32 values with every NaN the canonical one."""
    squares = np.vdot(values, values)  # NaN if a value is, in one call
    if squares == squares:
        return values
    return np.where(np.isnan(values), NAN_F32, values)


def canonical_half(values: Array) -> Array:
    """f16 or bf16 values with every NaN the canonical one."""
    nan = values != values
    if not np.count_nonzero(nan):
        return values
    return np.where(nan, NAN_HALF, values.view(np.uint16)).view(values.dtype)


CANONICAL: dict[str, list[Unary]] = {  # by type; of f64 a NaN stays as it is
    "f32": [canonical_f32],
    "f16": [canonical_half],
    "bf16": [canonical_half],
    "f64": [],
}


def flush(values: Array) -> Array:
    """Values of f32, f16 or bf16 with subnormals as zeros of the same sign (.ftz)."""
    small = np.abs(values) < _LEAST_NORMAL[values.dtype]
    if not np.count_nonzero(small):
        return values
    return np.where(small, np.copysign(values.dtype.type(0), values), values)


def saturate(values: Array) -> Array:
    """Values clamped to [0, 1], NaN and -0 as +0 (.sat)."""
    zero, one = values.dtype.type(0), values.dtype.type(1)
    lanes: Array = np.fmin(np.fmax(values, zero) + zero, one)
    return lanes


def rectify(values: Array) -> Array:
    """Values with negative ones and -0 as +0 (.relu); NaN stays."""
    zero = values.dtype.type(0)
    lanes: Array = np.maximum(values, zero) + zero
    return lanes


def wide(values: Array) -> Array:
    """Values as f64, which holds those of every narrower format."""
    return values.astype(np.float64)


def finished(
    operation: Operation,
    type: str,
    *,
    ftz: bool = False,
    sat: bool = False,
    relu: bool = False,
    any_nan: bool = False,
) -> Operation:
    """An operation of a type with its operands flushed, and its result flushed and clamped.

    A NaN that the operation makes is canonical unless `any_nan`.
    """
    steps: list[Unary] = [
        step for step, on in ((flush, ftz), (saturate, sat), (rectify, relu)) if on
    ]
    if not sat and (relu or not any_nan):
        steps += CANONICAL[type]
    if not steps:
        return operation
    if steps == [canonical_f32]:  # what must be fast
        return lambda *operands: canonical_f32(operation(*operands))

    def apply(*operands: Array) -> Array:
        result = operation(*(map(flush, operands) if ftz else operands))
        for step in steps:
            result = step(result)
        return result

    return apply
