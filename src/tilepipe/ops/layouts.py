"""Which arrays the kernels read and write where they lie, and how the others are copied."""

from __future__ import annotations

from tilepipe.ir.hardware.tma import ALIGNMENT, takes_stride
from tilepipe.ops.types import Shape


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
    """Whether the kernel reads a (…, m, k), or b as (…, n, k), where it lies: TMA does, and K is
    contiguous where elements have 4 bytes (PTX ISA, wgmma.mma_async: only 16-bit types may be
    transposed).
    """
    order = tma_order(shape, strides, nbytes)
    return order is not None and (order == "row" or nbytes == 2)


def padded_shape(shape: Shape, nbytes: int) -> Shape:
    """`shape` with rows padded to a multiple of 16 bytes, as TMA wants them."""
    unit = ALIGNMENT // nbytes
    return (*shape[:-1], -(-shape[-1] // unit) * unit)
