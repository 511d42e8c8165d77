"""Tensors of PyTorch as the operations take them: checks, made once for each prepared launch, what
a kernel is bound to in their place, and whether two share memory.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from copy import copy
from math import prod

import numpy as np
import numpy.typing as npt
import torch

from tilepipe.errors import BindError
from tilepipe.ir.arrays import array_dtype, described, share_memory
from tilepipe.ir.dtypes import DType
from tilepipe.ir.host_tensors import require_simulated
from tilepipe.ops.arrays import shared
from tilepipe.ops.calls import Shape
from tilepipe.ops.torch import device


def check_tensors(operation: str, tensors: Mapping[str, object], *, optional: int = 0) -> None:
    """Asserts that all are dense tensors on one device, which kernels run on.

    Args:
        tensors: by the names of the parameters. optional: how many of them, the last, may be None.

    Raises:
        BindError: one is not.
    """
    required = len(tensors) - optional
    first, leading = next(iter(tensors.items()))
    for i, (name, x) in enumerate(tensors.items()):
        if x is None and i >= required:
            continue
        if not isinstance(x, torch.Tensor):
            raise BindError(
                f"{operation}: {name} must be a tensor of PyTorch as the others, got"
                f" {type(x).__name__}"
            )
        if x.layout is not torch.strided:
            raise BindError(
                f"{operation}: {name} must be a dense tensor, its layout is"
                f" {str(x.layout).removeprefix('torch.')}; .to_dense() makes one"
            )
        if x.device.type not in device.DEVICES:
            raise BindError(
                f"{operation} runs tensors on CUDA devices, and simulates those on the CPU; {name}"
                f" is on {x.device}. Move it with .cuda() or .cpu()"
            )
        if isinstance(leading, torch.Tensor) and x.device != leading.device:
            raise BindError(
                f"{operation}: {first} is on {leading.device} and {name} on {x.device}; move one"
                " with .to()"
            )
        if device.simulates(x):
            require_simulated(f"{operation}: {name}")


def torch_dtype(dtype: DType) -> torch.dtype:
    """PyTorch's dtype for one that the operations return."""
    return getattr(torch, dtype.name)


def byte_strides(x: torch.Tensor) -> Shape:
    """The strides of a tensor, as NumPy counts them."""
    size = x.element_size()
    return tuple(stride * size for stride in x.stride())


def span(x: torch.Tensor | None) -> int:
    """Bytes from the first to the last element of a tensor, or of None."""
    if x is None or not x.numel():
        return 0
    last = sum((extent - 1) * stride for extent, stride in zip(x.shape, x.stride(), strict=True))
    return int(last + 1) * int(x.element_size())


def note_written(out: torch.Tensor) -> None:
    """Lets autograd know that a kernel has written a tensor in place."""
    if not out.is_inference():
        torch.autograd.graph.increment_version(out)


class TensorView:
    """Shape, strides (elements) and address of a tensor, which it does not keep alive."""

    def __init__(self, x: torch.Tensor) -> None:
        self.shape: Shape = tuple(x.shape)
        self.dtype = x.dtype
        self.device = x.device
        self._stride: Shape = tuple(x.stride())
        self._address = int(x.data_ptr())

    def stride(self) -> Shape:
        """As of a tensor."""
        return self._stride

    def data_ptr(self) -> int:
        """As of a tensor."""
        return self._address

    def swapaxes(self, i: int, j: int) -> TensorView:
        """As of a tensor."""
        other = copy(self)
        order = list(range(len(self.shape)))
        order[i], order[j] = order[j], order[i]
        other.shape = tuple(self.shape[axis] for axis in order)
        other._stride = tuple(self._stride[axis] for axis in order)
        return other

    def view(self, dtype: torch.dtype) -> TensorView:
        """As of a tensor, whose last dimension is contiguous."""
        other, old, new = copy(self), self.dtype.itemsize, dtype.itemsize
        other.dtype = dtype
        other.shape = (*self.shape[:-1], self.shape[-1] * old // new)
        other._stride = (*(stride * old // new for stride in self._stride[:-1]), 1)
        return other

    def reshape(self, shape: Shape) -> TensorView:
        """As of a tensor, where dimensions are divided and none are put together: a view."""
        rest, strides = list(shape), []
        for extent, stride in zip(self.shape, self._stride, strict=True):
            parts = [rest.pop(0)]
            while prod(parts) < extent:
                parts.append(rest.pop(0))
            assert prod(parts) == extent, (self.shape, shape)
            strides += [stride * prod(parts[i + 1 :]) for i in range(len(parts))]
        assert all(extent == 1 for extent in rest), (self.shape, shape)
        other = copy(self)
        other.shape, other._stride = tuple(shape), (*strides, *rest)
        return other

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        size = array_dtype(self).nbytes
        return {
            "shape": self.shape,
            "typestr": f"|V{size}",
            "strides": tuple(s * size for s in self._stride),
            "data": (self._address, False),
            "version": 3,
        }


def refuse_overlap(
    operation: str,
    out: torch.Tensor,
    span: int,
    operands: Iterable[tuple[str, torch.Tensor, int]],
    written: str = "out",
    both: Container[str] = (),
) -> None:
    """Raises BindError where `out` has elements in common with an operand.

    Args:
        span: bytes from the first to the last element of `out`. operands: name, tensor and span of
            each. written: the name of `out`. both: operands that are written as well.
    """
    first = out.data_ptr()
    last = first + span
    for name, x, size in operands:
        start = x.data_ptr()
        if start < last and first < start + size and share_memory(_addresses(x), _addresses(out)):
            raise shared(operation, written, name, both=name in both)


def _addresses(x: torch.Tensor) -> npt.NDArray[np.void]:
    return described(x.data_ptr(), tuple(x.shape), byte_strides(x), x.element_size())
