"""SIMD video instructions (PTX ISA, "SIMD Video Instructions"): halves or bytes of 32-bit words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilepipe.ptx.numerics.types import Array, Ternary, choose, require


def _average(a: Array, b: Array) -> Array:
    total = a + b
    return np.where(total >= 0, total + 1, total) >> 1


_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "avrg": _average,
    "absdiff": lambda a, b: np.abs(a - b),
    "min": np.minimum,
    "max": np.maximum,
}
_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip


def _parts(word: Array, count: int, type: str) -> Array:
    """The parts of words along a new last axis, the lowest first, as int64."""
    dtype = f"{'i' if type[0] == 's' else 'u'}{4 // count}"
    return np.ascontiguousarray(word)[..., None].view(dtype).astype(np.int64)


def parts(
    operation: str, count: int, dtype: str, a_type: str, b_type: str, *,
    sat: bool = False, accumulate: bool = False,
) -> Ternary:  # fmt: skip
    """vadd2, vadd4 and so on: (a, b, c), as b32, to the results of all parts side by side; with
    `accumulate` (.add) to c and their sum. Without a mask no part of c is merged.
    """
    chosen = _OPERATIONS[choose("a video instruction", operation, " ".join(_OPERATIONS))]
    return _on_parts(chosen, count, dtype, a_type, b_type, sat=sat, accumulate=accumulate)


def compared(
    comparison: str, count: int, a_type: str, b_type: str, *, accumulate: bool = False
) -> Ternary:
    """vset2, vset4: 1 in each part for which the comparison is true."""
    chosen = _COMPARISONS[choose("vset", comparison, " ".join(_COMPARISONS))]
    return _on_parts(chosen, count, "u32", a_type, b_type, sat=False, accumulate=accumulate)


def _on_parts(
    operation: Callable[[Array, Array], Array], count: int, dtype: str, a_type: str, b_type: str,
    *, sat: bool, accumulate: bool,
) -> Ternary:  # fmt: skip
    for type in (dtype, a_type, b_type):
        require(type, "u32 s32", "a video instruction")
    bits = 32 // count
    low = -1 << (bits - 1) if dtype == "s32" else 0
    places = np.arange(count, dtype=np.int64) * bits

    def apply(a: Array, b: Array, c: Array) -> Array:
        result = operation(_parts(a, count, a_type), _parts(b, count, b_type)).astype(np.int64)
        if sat:
            result = np.clip(result, low, low + (1 << bits) - 1)
        if accumulate:
            total: Array = c.astype(np.int64) + result.sum(axis=-1)
            return total.astype(np.uint32)
        words: Array = ((result & ((1 << bits) - 1)) << places).sum(axis=-1).astype(np.uint32)
        return words

    return apply
