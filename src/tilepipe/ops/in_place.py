"""Arrays that TMA reads or writes where a caller has them: what it asks of them, in words about the
caller's array, not about the view of it that a kernel takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilepipe.errors import BindError
from tilepipe.ir.arrays import byte_strides, item_bytes
from tilepipe.ir.hardware.tma import ALIGNMENT, takes_stride


def check_in_place(operation: str, name: str, x: Any, *, written: bool = False) -> None:
    """Asserts that rows of an array, along its last dimension, can be read or written where they
    lie. One without elements is not asked. Addresses of NumPy arrays are asked too, though the
    simulator takes any: code that runs simulated runs on a GPU. `written`: a result is written to
    it, for the advice.

    Raises:
        BindError: they cannot be.
    """
    shape, nbytes = tuple(x.shape), item_bytes(x)
    if 0 in shape:
        return
    strides, start = byte_strides(x), _start(x)
    if shape[-1] > 1 and strides[-1] != nbytes:
        broken = (
            f"elements are {strides[-1]} bytes apart along dimension {len(shape) - 1}, which must"
            f" be contiguous ({nbytes} bytes)"
        )
    elif odd := [i for i in range(len(shape) - 1) if not takes_stride(shape[i], strides[i])]:
        broken = (
            f"the strides of all dimensions but the last are positive multiples of {ALIGNMENT}"
            f" bytes below 2^40, and dimension {odd[0]} has a stride of {strides[odd[0]]} bytes"
        )
    elif start % ALIGNMENT:
        broken = (
            f"it must start at a multiple of {ALIGNMENT} bytes, and starts {start % ALIGNMENT}"
            f" bytes after one ({start:#x})"
        )
    else:
        return
    raise BindError(
        f"{operation}: {name}: an array of shape {shape}: {broken}. TMA takes it where it lies:"
        f" {_advice(name, x, nbytes, written)}"
    )


def _start(x: Any) -> int:
    return int(x.ctypes.data) if isinstance(x, np.ndarray) else int(x.data_ptr())


def _advice(name: str, x: Any, nbytes: int, written: bool) -> str:
    shape = tuple(x.shape)
    if written:  # a copy would get the result in its place, and nobody would see it
        return (
            f"give a contiguous array of shape {shape}, or omit {name}=; then copy the result"
            " to where it is wanted"
        )
    if shape[-1] * nbytes % ALIGNMENT == 0:
        return f"pass a contiguous copy, np.array({name}, order='C') or {name}.contiguous().clone()"
    unit = ALIGNMENT // nbytes
    width = -(-shape[-1] // unit) * unit
    return (
        f"pad its rows to {width} elements, a multiple of {ALIGNMENT} bytes. padded = zeros of"
        f" shape {(*shape[:-1], width)}; padded[..., :{shape[-1]}] = {name}; pass"
        f" padded[..., :{shape[-1]}]"
    )
