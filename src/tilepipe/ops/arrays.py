"""Arrays as the kernels read and write them: which are taken where they lie, and how others are
copied.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilepipe.errors import BindError
from tilepipe.ir.arrays import array_dtype, share_memory, shared_elements
from tilepipe.ir.dtypes import DType
from tilepipe.ir.hardware.tma import ALIGNMENT, takes_stride
from tilepipe.ops.calls import Array, Shape
from tilepipe.ops.in_place import check_in_place


def tma_order(shape: Shape, strides: Shape, nbytes: int) -> str | None:
    """The memory order in which TMA takes a matrix or a batch of them, "row" or "col"; None: it
    needs a copy.

    Args:
        strides: in bytes. nbytes: of an element.
    """
    last = len(shape) - 1
    for order, inner, outer in (("row", last, last - 1), ("col", last - 1, last)):
        if strides[inner] != nbytes and shape[inner] != 1:
            continue
        apart = shape[outer] == 1 or strides[outer] >= shape[inner] * nbytes
        if apart and all(takes_stride(shape[i], strides[i]) for i in range(last + 1) if i != inner):
            return order
    return None


def kernel_takes(shape: Shape, strides: Shape, nbytes: int) -> bool:
    """True if the kernel reads a (…, m, k), or b as (…, n, k), where it lies: TMA does, and K is
    contiguous where elements have 4 bytes (PTX ISA, wgmma.mma_async: only 16-bit types may be
    transposed).
    """
    order = tma_order(shape, strides, nbytes)
    return order is not None and (order == "row" or nbytes == 2)


def padded_shape(shape: Shape, nbytes: int) -> Shape:
    """`shape` with rows padded to a multiple of 16 bytes, as TMA wants them."""
    unit = ALIGNMENT // nbytes
    return (*shape[:-1], -(-shape[-1] // unit) * unit)


def require_arrays(
    operation: str,
    others: str,
    *required: tuple[str, object],
    **optional: object,
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
    if isinstance(out, np.ndarray):
        require_writable(operation, "out", out)


def require_writable(operation: str, name: str, x: Array) -> None:
    """Raises BindError for an array that cannot be written, or not each element alone."""
    why = shared_elements(x.shape, x.strides, x.itemsize)
    if why or not x.flags.writeable:
        raise BindError(
            f"{operation}: {name} is written, and"
            f" {f'its elements share memory: {why}' if why else 'it is read-only'}; give it memory"
            " of its own"
        )


def check_memory(operation: str, operands: Mapping[str, Array], out: Array | None) -> None:
    """What is asked of arrays that are never copied, as it is of tensors on a GPU: TMA can take
    them where they lie, and `out` has memory of its own.

    Raises:
        BindError: it is not so.
    """
    for name, x in operands.items():
        check_in_place(operation, name, x)
        if out is not None and share_memory(out, x):
            raise shared(operation, "out", name)
    if out is not None:
        check_in_place(operation, "out", out, written=True)


def shared(operation: str, written: str, name: str, *, both: bool = False) -> BindError:
    """What to raise of an array that is written, and has elements in common with an operand; with
    `both`, which is written as well.
    """
    use = "written, too" if both else f"still read while {written} is written"
    return BindError(
        f"{operation}: {written} shares memory with {name}, which is {use}; give it memory of its"
        " own"
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
