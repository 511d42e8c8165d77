"""What modifiers do to operands and results: .ftz, .sat, .relu, and which NaN a result is."""

from __future__ import annotations

import numpy as np

from tilepipe.ptx.numerics.types import Array, Binary, Operation, Unary, bfloat16

# The NaN that NVIDIA GPUs return: the ISA leaves it open except for .NaN and .relu
NAN_F32 = np.uint32(0x7FFFFFFF).view(np.float32)
NAN_HALF = np.uint16(0x7FFF)

_LEAST_NORMAL = {
    np.dtype(np.float32): np.float32(2.0**-126),
    np.dtype(np.float16): np.float16(2.0**-14),
    bfloat16: bfloat16.type(2.0**-126),
}


def canonical(values: Array) -> Array:
    """f32, f16 or bf16 values with every NaN the canonical one; f64 as it is."""
    if values.dtype == np.float32:
        squares = np.vdot(values, values)  # NaN if a value is, in one call
        return values if squares == squares else np.where(np.isnan(values), NAN_F32, values)
    if values.dtype == np.float64:
        return values
    nan = values != values
    if not np.count_nonzero(nan):
        return values
    return np.where(nan, NAN_HALF, values.view(np.uint16)).view(values.dtype)


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
    operation: Operation, ftz: bool, sat: bool = False, relu: bool = False, any_nan: bool = False
) -> Operation:
    """An operation with its operands and its result flushed, clamped and canonical."""
    steps: list[Unary] = []
    if ftz:
        steps.append(flush)
    if sat:
        steps.append(saturate)
    if relu:
        steps.append(rectify)
    if not sat and (relu or not any_nan):
        steps.append(canonical)
    if not steps:
        return operation
    if steps == [canonical]:
        return lambda *operands: canonical(operation(*operands))

    def apply(*operands: Array) -> Array:
        result = operation(*(map(flush, operands) if ftz else operands))
        for step in steps:
            result = step(result)
        return result

    return apply


def finished_f32(operation: Binary) -> Binary:
    """`finished` for a plain f32 operation of two operands, which is the one that must be fast."""

    def apply(a: Array, b: Array) -> Array:
        result = operation(a, b)
        squares = np.vdot(result, result)
        if squares == squares:
            return result
        return np.where(np.isnan(result), NAN_F32, result)

    return apply
