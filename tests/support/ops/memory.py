"""The memory that a kernel bound to a view and launched with an address sees."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.ir.arrays import array_dtype, array_order, byte_strides
from tilepipe.ir.hardware.tma import broken_array_rule

Array = npt.NDArray[Any]


def at(address: int, view: Any) -> Array:
    """The memory that a kernel bound to `view` and launched with `address` sees."""
    strides, dtype = byte_strides(view), array_dtype(view).numpy
    size = sum((n - 1) * s for n, s in zip(view.shape, strides, strict=True)) + dtype.itemsize
    raw = np.frombuffer((ctypes.c_char * size).from_address(address), np.uint8)
    return np.ndarray(view.shape, dtype, raw.data, 0, strides)


def tma_takes(view: Any, order: str | None = None) -> None:
    shape = tuple(view.shape)
    inner = len(shape) - (1 if (order or array_order(view)) == "row" else 2)
    assert (
        broken_array_rule(
            shape, byte_strides(view), inner, array_dtype(view).nbytes, view.data_ptr()
        )
        is None
    )
