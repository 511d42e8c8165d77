"""The storage of values of a data type, and rounding to one.

Floating-point elements of up to 32 bits are kept as float32, which represents all of them exactly.
Rounding happens where the program converts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ir.dtypes import DType, float16

Array = npt.NDArray[Any]
Combine = Callable[[Array, Array], Array]  # (what is there, what is given) -> what is there then


def storage(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype that the simulator keeps values of `dtype` in."""
    return np.dtype(np.float32) if dtype.is_float and dtype.bits <= 32 else dtype.numpy


def rounded(values: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """`values` rounded to `dtype` (nearest even; fp8 saturates, as the hardware's cvt), in storage
    form.
    """
    if not dtype.is_float:
        return values.astype(dtype.numpy)
    if dtype.bits >= 32:
        return values.astype(dtype.numpy, copy=False)
    if dtype.bits == 8:
        limit = 448.0 if dtype.name == "float8_e4m3" else 57344.0
        values = np.clip(values, -limit, limit)
    return values.astype(dtype.numpy).astype(np.float32)


def truncated(x: Array) -> Array:
    """tf32: the low 13 bits of the significand are not read."""
    return (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def narrow_sum(total: Array, dtype: DType, *, saturates: bool) -> Array:
    """An exact sum as accumulators of float16 or int32 hold it, rounded once. `saturates`: one of
    integers is clamped, and otherwise wraps.
    """
    if dtype is float16:
        return total.astype(np.float16)
    if saturates:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return total.astype(np.int64).astype(np.int32)
