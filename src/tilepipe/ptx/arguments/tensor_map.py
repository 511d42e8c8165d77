"""A tensor map as an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilepipe.errors import BindError
from tilepipe.machine.memory import tensor_map
from tilepipe.machine.memory.device_memory import DeviceMemory
from tilepipe.ptx.arguments.arrays import Array, HostArray, host_array


@dataclass(frozen=True, eq=False)
class TensorMap:
    """A tensor map as an argument: what `cuTensorMapEncodeTiled` is given.

    All tuples are in the order of the array's dimensions, the contiguous one last; the driver's
    call has them in the reverse order.

    Attributes:
        array: memory that the tensor lies in, of NumPy or of PyTorch on the CPU.
        box: extents of a copy in elements.
        swizzle: in bytes, 0, 32, 64 or 128; with the bytes that stay together where these are not
            16: "128/32", "128/64", or "128/32 flipped".
        element: its type as PTX names it ("u8", "bf16", "tf32", "b4x16_p64"); that of the array
            unless given.
        shape: extents in elements; the array's unless given, where the contiguous one counts as
            many elements as its bytes have (an array of uint8 has two "b4x16" in each).
        strides: in bytes, of all dimensions but the contiguous one, as in the driver's call; the
            array's unless given.
        before: bytes from the tensor's first element to the array's.
        steps: traversal strides, in elements. nan: what lies out of bounds reads as NaN.
        promotion: bytes that L2 fetches: 0, 64, 128 or 256.
    """

    array: HostArray
    box: tuple[int, ...]
    swizzle: int | str = 0
    element: str | None = None
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    before: int = 0
    steps: tuple[int, ...] | None = None
    nan: bool = False
    promotion: int = 0

    def encoded(self, what: str, name: str, memory: DeviceMemory) -> bytes:
        """The 128 bytes, once the array has its place in memory. `what`: whose they are, and
        `name`: what messages call the tensor map.

        Raises:
            BindError: there is no such tensor map, or the array is too small for it.
        """
        array = host_array(self.array, what)
        if array is None:
            raise BindError(
                f"{what}: a ptx.TensorMap is of an array; got {type(self.array).__name__}"
            )
        element = self.element or _element(array.dtype, what)
        number, code = tensor_map.BY_NAME.get(element), _SWIZZLES.get(str(self.swizzle))
        if number is None or code is None or self.promotion not in _PROMOTIONS:
            known = ", ".join(tensor_map.BY_NAME)
            raise BindError(
                f"{what}: a tensor map has an element type of {known}, a swizzle of"
                f" {', '.join(_SWIZZLES)} and fetches 0, 64, 128 or 256 bytes; got {element},"
                f" {self.swizzle}, {self.promotion}"
            )
        address = memory.address_of(name, array)
        found = tensor_map.TensorMapFields(
            number,
            address - self.before,
            self._extents(array, tensor_map.ELEMENTS[number], what)[::-1],
            self._strides(array, what)[::-1],
            tuple(reversed(self.box)),
            tuple(reversed(self.steps or ())),
            swizzle=code[0],
            atom=code[1],
            nan=self.nan,
            promotion=_PROMOTIONS.index(self.promotion),
            name=f"the tensor map '{name}'",
        )
        if broken := found.broken_rule():
            raise BindError(
                f"{what}: not a valid tensor map, with the contiguous dimension first: {broken}"
            )
        if not self.before:
            _check_size(found, what, memory)
        return tensor_map.encode(found)

    def _extents(self, array: Array, element: tensor_map.Element, what: str) -> tuple[int, ...]:
        if self.shape is not None:
            return tuple(self.shape)
        bits = array.shape[-1] * array.itemsize * 8 if array.ndim else 0
        if not bits or bits % element.bits:
            raise BindError(
                f"{what}: the array has shape {array.shape}, and its contiguous dimension"
                f" {bits / 8:g} bytes, which are not whole elements of type {element.name}"
            )
        return *array.shape[:-1], bits // element.bits

    def _strides(self, array: Array, what: str) -> tuple[int, ...]:
        if self.strides is not None:
            return tuple(self.strides)
        if array.shape[-1:] != (1,) and array.strides[-1:] != (array.itemsize,):
            raise BindError(
                f"{what}: the last dimension of a tensor map's array is contiguous; this one has"
                f" strides {array.strides} for elements of {array.itemsize} bytes. Pass the array"
                " whose last dimension is (its transpose), or a contiguous copy."
            )
        return array.strides[:-1]


def _check_size(found: tensor_map.TensorMapFields, what: str, memory: DeviceMemory) -> None:
    """The tensor must lie in the array's buffer, unless its extents go round the address space.

    Triton's ragged descriptors (triton.tools.ragged_tma) rely on addresses that wrap: strides of
    2^34 - s and s elements take a box back to the slice that its coordinates name. Whether a copy
    stays in the array, its own addresses then say.
    """
    row = -(-found.shape[0] * found.bits // 8)
    steps = zip(found.shape[1:], found.strides, strict=True)
    end = found.address + row + sum((extent - 1) * stride for extent, stride in steps)
    buffer = memory.at(found.address, found.address)
    if buffer is not None and buffer.end < end < found.address + _ADDRESSES:
        raise BindError(
            f"{what}: a tensor of these extents and strides has {end - found.address:,} bytes, and"
            f" the array's memory ends after {buffer.end - found.address:,}"
        )


# What a swizzle is called -> its code, and that of what it keeps together
_SWIZZLES = {
    "0": (0, 0), "32": (1, 0), "64": (2, 0), "128": (3, 0), "128/32": (3, 1),
    "128/32 flipped": (3, 2), "128/64": (3, 3),
}  # fmt: skip
_PROMOTIONS = (0, 64, 128, 256)
_ADDRESSES = 1 << 64


def _element(dtype: np.dtype[Any], what: str) -> str:
    """The element type of an array: one of 8 bits where tensor maps have none of its own."""
    if dtype.itemsize == 1:
        return "u8"
    kind = dtype.name if dtype.name == "bfloat16" else f"{dtype.kind}{8 * dtype.itemsize}"
    found = {
        "bfloat16": "bf16", "f16": "f16", "f32": "f32", "f64": "f64", "u16": "u16", "i16": "u16",
        "u32": "u32", "i32": "s32", "u64": "u64", "i64": "s64",
    }.get(kind)  # fmt: skip
    if found is None:
        raise BindError(f"{what}: a tensor map has no elements of {dtype}")
    return found
