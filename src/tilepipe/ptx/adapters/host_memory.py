"""Arrays over the memory of host tensors, without a copy: what a kernel writes, the tensor has."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tilepipe.ptx.arguments.arrays import host_array

Array = npt.NDArray[Any]


@runtime_checkable
class CuteTensor(Protocol):
    """A tensor of `cute.runtime.from_dlpack`."""

    @property
    def data_ptr(self) -> int: ...
    @property
    def size_in_bytes(self) -> int: ...


def array_of(value: object, name: str) -> Array | None:
    """The array of a value: itself, or one over the memory of a tensor; None for anything else.

    Raises:
        BindError: the tensor is on a device.
    """
    # A class of CuTe's, not its instances, says what a tensor is.
    if isinstance(getattr(value, "data_ptr", None), int) and isinstance(value, CuteTensor):
        return bytes_at(value.data_ptr, value.size_in_bytes, value)
    return host_array(value, f"argument '{name}'")


def bytes_at(address: int, nbytes: int, owner: object) -> npt.NDArray[np.uint8]:
    """Bytes of the process's memory; `owner` lives as long as they do."""
    held = (ctypes.c_uint8 * nbytes).from_address(address)
    held.owner = owner  # type: ignore[attr-defined]
    found: npt.NDArray[np.uint8] = np.frombuffer(memoryview(held), np.uint8)
    return found


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
