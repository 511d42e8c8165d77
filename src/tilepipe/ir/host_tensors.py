"""Tensors of PyTorch on the CPU, as NumPy arrays that share their memory. PyTorch is not imported:
there is no such tensor before somebody's program has imported it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TypeGuard

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError

if TYPE_CHECKING:
    import torch

VARIABLE = "TILEPIPE_CPU_TENSORS"


def is_tensor(x: object) -> TypeGuard[torch.Tensor]:
    """True if `x` is a tensor of PyTorch."""
    # None while another thread is importing PyTorch, too: then `x` is no tensor.
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return tensor is not None and isinstance(x, tensor)


def is_host_tensor(x: object) -> bool:
    """True if `x` is a tensor of PyTorch on the CPU."""
    return is_tensor(x) and x.device.type == "cpu"


def require_simulated(what: str) -> None:
    """Asserts that tensors on the CPU may be simulated. `what`: which one it is, for the message.

    Raises:
        BindError: the environment forbids it.
    """
    if os.environ.get(VARIABLE) == "off":
        raise BindError(
            f"{what} is on the CPU, where it would be simulated, and {VARIABLE}=off forbids that."
            " Move it with .cuda(), or unset the variable"
        )


def host_memory(x: Any, what: str) -> npt.NDArray[Any]:
    """A view of the memory of a tensor on the CPU; of a type that NumPy and ml_dtypes lack, as
    unsigned integers.

    The base of the view is the tensor's whole storage: tensors that share a storage share
    addresses.

    Raises:
        BindError: the tensor is sparse, or a view whose elements are not what its memory holds.
    """
    torch = sys.modules["torch"]
    if x.layout is not torch.strided:
        raise BindError(f"{what}: a tensor of layout {x.layout}; pass a dense one")
    if x.is_neg() or x.is_conj():
        kind = "negative" if x.is_neg() else "conjugate"
        raise BindError(
            f"{what}: a {kind} view, whose elements are not those in its memory; pass"
            f" x.resolve_{'neg' if x.is_neg() else 'conj'}()"
        )
    try:
        storage = torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage()).numpy()
    except (
        RuntimeError,
        NotImplementedError,
    ) as error:  # of a tensor without data: fake, functorch
        raise BindError(
            f"{what}: NumPy cannot view the memory of {type(x).__name__} ({error})"
        ) from None
    dtype = _numpy_type(str(x.dtype).removeprefix("torch."), x.itemsize)
    strides = tuple(n * x.itemsize for n in x.stride())
    return np.ndarray(tuple(x.shape), dtype, storage, x.storage_offset() * x.itemsize, strides)


def tensor_of(array: npt.NDArray[Any]) -> Any:
    """A tensor of an array's memory; of a type that PyTorch lacks, as unsigned integers."""
    torch = sys.modules["torch"]
    bits = torch.from_numpy(array.view(f"u{array.itemsize}"))
    return bits.view(getattr(torch, array.dtype.name, bits.dtype))


def _numpy_type(name: str, itemsize: int) -> np.dtype[Any]:
    """NumPy's type of that name, or that of ml_dtypes; unsigned integers where there is none."""
    try:
        found = np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        found = np.dtype(f"u{itemsize}")
    return found if found.itemsize == itemsize else np.dtype(f"u{itemsize}")
