"""What the operations ask of PyTorch tensors; checked once for each prepared launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tilepipe.errors import BindError
from tilepipe.ir.dtypes import DType
from tilepipe.ops.torch import device
from tilepipe.ops.types import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping


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
                f"{operation}: {name} must be a CUDA tensor of PyTorch as the others, got"
                f" {type(x).__name__}"
            )
        if x.layout is not torch.strided:
            raise BindError(
                f"{operation}: {name} must be a dense tensor, its layout is"
                f" {str(x.layout).removeprefix('torch.')}; .to_dense() makes one"
            )
        if x.device.type not in device.DEVICES:
            raise BindError(
                f"{operation} runs tensors on CUDA devices; {name} is on {x.device}. Move it with"
                " .cuda(); NumPy arrays are simulated"
            )
        if isinstance(leading, torch.Tensor) and x.device != leading.device:
            raise BindError(
                f"{operation}: {first} is on {leading.device} and {name} on {x.device}; move one"
                " with .to()"
            )


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
