"""What a kernel is bound to in place of a tensor."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from tilepipe.ir.arrays import array_dtype
from tilepipe.ops.types import Shape

if TYPE_CHECKING:
    import torch


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
