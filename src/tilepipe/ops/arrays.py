"""What the operations share on NumPy arrays: checks, and copies that the kernels can read."""

from __future__ import annotations

import numpy as np

from tilepipe.errors import BindError
from tilepipe.ir.arrays import array_dtype
from tilepipe.ir.dtypes import DType
from tilepipe.ops.layouts import kernel_takes, padded_shape
from tilepipe.ops.types import Array, Shape


def require_arrays(
    operation: str, others: str, *required: tuple[str, object], **optional: object
) -> None:
    """Asserts that arguments are NumPy arrays, and that `out` can be written.

    Args:
        others: which operands are NumPy arrays, for the message. required: names and arguments.
        optional: arguments that may be None.

    Raises:
        BindError: one is not.
    """
    given = [item for item in optional.items() if item[1] is not None]
    for name, x in (*required, *given):
        if not isinstance(x, np.ndarray):
            raise BindError(
                f"{operation}: {name} must be a NumPy array as {others} are, got {type(x).__name__}"
            )
    out = optional.get("out")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise BindError(
            f"{operation}: out is read-only, or a broadcast view; give it memory of its own"
        )


def acceptable(x: Array) -> Array:
    """`x` itself if the kernel can take it (one of its last two dimensions contiguous, the last of
    float32; the other strides positive multiples of 16 bytes), else a padded copy.
    """
    return x if kernel_takes(x.shape, x.strides, x.dtype.itemsize) else padded_copy(x)


def padded_copy(x: Array) -> Array:
    """A row-major copy with rows padded to a multiple of 16 bytes."""
    copy = padded(x.shape, array_dtype(x))
    copy[...] = x
    return copy


def padded(shape: Shape, dtype: DType) -> Array:
    """Zeros, row-major, with rows padded to a multiple of 16 bytes."""
    whole: Array = np.zeros(padded_shape(shape, dtype.nbytes), dtype.numpy)
    return whole[..., : shape[-1]]


def stored(out: Array | None, c: Array) -> Array:
    """The result of the kernel in `out`, or as a C-contiguous array."""
    if out is None:
        return np.ascontiguousarray(c).reshape(c.shape)  # it makes a row of a scalar
    out[...] = c
    return out
