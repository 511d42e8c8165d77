"""Arrays over the memory of host tensors, without a copy: what a kernel writes, the tensor has."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol, runtime_checkable

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError

Array = npt.NDArray[Any]


class _Storage(Protocol):
    def data_ptr(self) -> int: ...
    def nbytes(self) -> int: ...


@runtime_checkable
class TorchTensor(Protocol):
    """What a tensor of PyTorch has."""

    @property
    def dtype(self) -> object: ...
    @property
    def device(self) -> object: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def data_ptr(self) -> int: ...
    def stride(self) -> tuple[int, ...]: ...
    def element_size(self) -> int: ...
    def untyped_storage(self) -> _Storage: ...


@runtime_checkable
class CuteTensor(Protocol):
    """What a tensor of `cute.runtime.from_dlpack` has."""

    @property
    def data_ptr(self) -> int: ...
    @property
    def size_in_bytes(self) -> int: ...


def array_of(value: object, name: str) -> Array | None:
    """The array of a value: itself, or one over the memory of a tensor; None for anything else.

    Raises:
        BindError: the tensor is on a device.
    """
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, TorchTensor):
        return _of_torch(value, name)
    # A class of CuTe's, not its instances, says what a tensor is.
    if isinstance(getattr(value, "data_ptr", None), int) and isinstance(value, CuteTensor):
        return bytes_at(value.data_ptr, value.size_in_bytes, value)
    return None


def bytes_at(address: int, nbytes: int, owner: object) -> npt.NDArray[np.uint8]:
    """Bytes of the process's memory; `owner` lives as long as they do."""
    held = (ctypes.c_uint8 * nbytes).from_address(address)
    held.owner = owner  # type: ignore[attr-defined]
    found: npt.NDArray[np.uint8] = np.frombuffer(memoryview(held), np.uint8)
    return found


def _of_torch(tensor: TorchTensor, name: str) -> Array:
    if str(tensor.device) != "cpu":
        raise BindError(
            f"argument '{name}': a tensor on {tensor.device}; the reader of PTX runs on the CPU:"
            " pass tensor.cpu()"
        )
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return np.zeros(tensor.shape, _dtype_of(tensor))
    whole = bytes_at(storage.data_ptr(), storage.nbytes(), tensor)
    size = tensor.element_size()
    return np.ndarray(
        tuple(tensor.shape),
        _dtype_of(tensor),
        whole,
        tensor.data_ptr() - storage.data_ptr(),
        tuple(size * stride for stride in tensor.stride()),
    )


def _dtype_of(tensor: TorchTensor) -> np.dtype[Any]:
    """The dtype of PyTorch's name, of NumPy or of ml_dtypes; bytes where neither has it."""
    kind = str(tensor.dtype).removeprefix("torch.")
    found = getattr(ml_dtypes, kind, None)
    if found is None:
        try:
            return np.dtype(kind)
        except TypeError:
            return np.dtype(f"u{tensor.element_size()}")
    narrow: np.dtype[Any] = np.dtype(found)
    return narrow


def place_of(array: Array) -> tuple[int, int]:
    """The first address of the process's memory that the array's buffer has, and the last one's
    successor.
    """
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    low, high = np.lib.array_utils.byte_bounds(owner)
    return low, high


def from_address(array: Array, address: int) -> npt.NDArray[np.uint8]:
    """The bytes of an array's buffer from an address of the process's memory on."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    low, _ = np.lib.array_utils.byte_bounds(owner)
    return owner.reshape(-1, order="A").view(np.uint8)[address - low :]
