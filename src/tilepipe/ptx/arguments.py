"""What the parameters of a kernel are given, and the bytes that they become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError
from tilepipe.machine.memory import tensor_map
from tilepipe.machine.memory.device_memory import DeviceMemory
from tilepipe.ptx.syntax.nodes import Variable


@dataclass(frozen=True, eq=False)
class TensorMap:
    """A tensor map as an argument: what `cuTensorMapEncodeTiled` is given.

    All tuples are in the order of the array's dimensions, the contiguous one last; the driver's
    call has them in the reverse order.

    Attributes:
        array: memory that the tensor lies in. box: extents of a copy in elements.
        swizzle: in bytes, 0, 32, 64 or 128; with the bytes that stay together where these are not
            16: "128/32", "128/64", or "128/32 flipped".
        element: its type as PTX names it ("u8", "bf16", "tf32", "b4x16_p64"); that of the array
            unless given.
        shape: extents in elements, strides: in bytes; the array's unless given.
        before: bytes from the tensor's first element to the array's.
        steps: traversal strides, in elements. nan: what lies out of bounds reads as NaN.
        promotion: bytes that L2 fetches: 0, 64, 128 or 256.
    """

    array: npt.NDArray[Any]
    box: tuple[int, ...]
    swizzle: int | str = 0
    element: str | None = None
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    before: int = 0
    steps: tuple[int, ...] | None = None
    nan: bool = False
    promotion: int = 0

    def at(self, address: int, name: str) -> tensor_map.TensorMap:
        """The tensor map, given the address of the array.

        Raises:
            BindError: there is no such tensor map.
        """
        element = tensor_map.BY_NAME.get(self.element or _element(self.array.dtype, name))
        code = _SWIZZLES.get(str(self.swizzle))
        if element is None or code is None or self.promotion not in _PROMOTIONS:
            known = ", ".join(tensor_map.BY_NAME)
            raise BindError(
                f"parameter '{name}': a tensor map has an element type of {known}, a swizzle of"
                f" {', '.join(_SWIZZLES)} and fetches 0, 64, 128 or 256 bytes; got {self.element},"
                f" {self.swizzle}, {self.promotion}"
            )
        found = tensor_map.TensorMap(
            element,
            address - self.before,
            tuple(reversed(self.array.shape if self.shape is None else self.shape)),
            tuple(reversed((self.array.strides if self.strides is None else self.strides)[:-1])),
            tuple(reversed(self.box)),
            tuple(reversed(self.steps or ())),
            swizzle=code[0],
            atom=code[1],
            nan=self.nan,
            promotion=_PROMOTIONS.index(self.promotion),
            name=f"the tensor map '{name}'",
        )
        if broken := found.broken_rule():
            raise BindError(f"parameter '{name}': no such tensor map is possible: {broken}")
        return found


# What a swizzle is called -> its code, and that of what it keeps together
_SWIZZLES = {
    "0": (0, 0), "32": (1, 0), "64": (2, 0), "128": (3, 0), "128/32": (3, 1),
    "128/32 flipped": (3, 2), "128/64": (3, 3),
}  # fmt: skip
_PROMOTIONS = (0, 64, 128, 256)


def _element(dtype: np.dtype[Any], name: str) -> str:
    """The element type of an array: one of 8 bits where tensor maps have none of its own."""
    if dtype.itemsize == 1:
        return "u8"
    kind = dtype.name if dtype.name == "bfloat16" else f"{dtype.kind}{8 * dtype.itemsize}"
    found = {
        "bfloat16": "bf16", "f16": "f16", "f32": "f32", "f64": "f64", "u16": "u16", "i16": "u16",
        "u32": "u32", "i32": "s32", "u64": "u64", "i64": "s64",
    }.get(kind)  # fmt: skip
    if found is None:
        raise BindError(f"parameter '{name}': a tensor map has no elements of {dtype}")
    return found


@dataclass(frozen=True, eq=False)
class Struct:
    """A parameter that is a struct, with pointers or tensor maps among its fields.

    Attributes:
        content: its bytes, or how many it has: all zero. fields: by their offset in bytes: an
            array (its address), a tensor map, a number of NumPy, bytes, or a struct.
    """

    content: bytes | int
    fields: Mapping[int, np.generic | bytes | TensorMap | Struct | npt.NDArray[Any]]

    def filled(self, memory: DeviceMemory, name: str) -> bytes:
        """Its bytes, with the fields.

        Raises:
            BindError: a field does not fit, or is none of these.
        """
        raw = bytearray(self.content)
        for offset, field in self.fields.items():
            part = _bytes_of_its_own(field, memory, name)
            if part is None:
                raise BindError(
                    f"parameter '{name}', offset {offset}: a field is an array, a ptx.TensorMap, a"
                    f" number of NumPy, bytes or a ptx.Struct; got {type(field).__name__}"
                )
            if not 0 <= offset <= len(raw) - len(part):
                raise BindError(
                    f"parameter '{name}', offset {offset}: a field of {len(part)} bytes in a struct"
                    f" of {len(raw)}"
                )
            raw[offset : offset + len(part)] = part
        return bytes(raw)


Argument = int | float | bytes | np.generic | TensorMap | Struct | npt.NDArray[Any]


def _bytes_of_its_own(argument: object, memory: DeviceMemory, name: str) -> bytes | None:
    """The bytes of an argument that says itself how many it has; None for any other."""
    match argument:
        case bytes():
            return argument
        case TensorMap():
            return tensor_map.encode(argument.at(memory.address_of(name, argument.array), name))
        case Struct():
            return argument.filled(memory, name)
        case np.ndarray():
            return memory.address_of(name, argument).to_bytes(8, "little")
        case np.generic():
            return argument.tobytes()
    return None


def bytes_of(variable: Variable, argument: Argument, memory: DeviceMemory) -> bytes:
    """The bytes of a parameter; an array that it points to gets its place in memory.

    Raises:
        BindError: the argument does not fit the parameter.
    """
    size, name = variable.nbytes, variable.name
    argument = _of_type(variable, argument)
    found = _bytes_of_its_own(argument, memory, name)
    if found is None:
        what = f"parameter '{name}' (.{variable.type}, {size} bytes)"
        found = _bytes_of_number(argument, size, what)
    if len(found) != size:
        raise BindError(
            f"parameter '{name}' has {size} bytes, and its argument"
            f" ({type(argument).__name__}) {len(found)}"
        )
    return found


def in_words(variable: Variable, argument: Argument) -> str:
    """An argument as the name of a launch has it: `x (64,)`; a compiler's name of the parameter
    (`gemm_param_0`) says nothing.
    """
    match argument:
        case np.ndarray():
            said = str(argument.shape)
        case TensorMap():
            said = str(argument.array.shape if argument.shape is None else argument.shape)
        case Struct() | bytes():
            said = f"{variable.nbytes} bytes"
        case _:
            said = str(argument)
    return said if "_param_" in variable.name else f"{variable.name} {said}"


def _bytes_of_number(argument: Argument, size: int, what: str) -> bytes:
    """A number of Python, in as many bytes as its parameter has.

    Raises:
        BindError: it does not fit, or is no number.
    """
    match argument:
        case bool() | int():
            if not -(1 << 8 * size - 1) <= argument < 1 << 8 * size:
                raise BindError(f"{what}: {argument} does not fit")
            return (argument & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        case float():
            if size not in (2, 4, 8):
                raise BindError(f"{what}: a floating-point number has 2, 4 or 8 bytes")
            return np.array([argument], f"f{size}").tobytes()
    raise BindError(
        f"{what}: expected an array, a ptx.TensorMap, a ptx.Struct, a number or bytes; got"
        f" {type(argument).__name__}"
    )


def _of_type(variable: Variable, argument: Argument) -> Argument:
    """A number as its parameter has it: an integer for a floating-point one is converted.

    Raises:
        BindError: a floating-point number for a parameter of an integer type.
    """
    kind = variable.type
    if variable.shape or isinstance(argument, bool):
        return argument
    if isinstance(argument, int) and kind in ("f16", "f32", "f64"):
        return float(argument)
    if isinstance(argument, float) and kind[0] in "us":
        raise BindError(
            f"parameter '{variable.name}' is .{kind}, and {argument} is a floating-point number"
        )
    return argument
