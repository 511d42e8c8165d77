"""Arguments, and the bytes of the parameters that they become."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from tilepipe.errors import BindError
from tilepipe.host_arguments import plain_int, shown
from tilepipe.machine.memory.device_memory import DeviceMemory
from tilepipe.ptx.arguments.arrays import HostArray, host_array
from tilepipe.ptx.arguments.tensor_map import TensorMap
from tilepipe.ptx.names import named_kernel, parameter_name
from tilepipe.ptx.syntax.nodes import TYPE_BYTES, Variable

MAP_ALIGNMENT = 64  # of a tensor map (CUDA Driver API, CUtensorMap)
_POINTER_BYTES = 8
_MOST_LISTED = 20  # parameters in a message
_FLOATS = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
    # which floating-point type an untyped parameter has, its size says
    "b32": np.dtype(np.float32), "b64": np.dtype(np.float64),
}  # fmt: skip

Raw = bytes | bytearray | memoryview | ctypes.Structure


@dataclass(frozen=True, eq=False)
class Struct:
    """A parameter that is a struct of C or C++, such as the Params of a CUTLASS kernel.

    Attributes:
        content: its bytes (also a `ctypes.Structure`), or how many it has, which then are zero.
        fields: what is written over them: offset in bytes -> an array, whose address is written (8
            bytes); a `TensorMap` (128 bytes, at a multiple of 64); a number of a NumPy type, such
            as `np.int32(5)`; None, a null pointer; bytes; or a struct inside this one.
    """

    content: int | Raw
    fields: Mapping[int, Argument] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Beside:
    """The address `nbytes` after that of an array, also before or beyond its memory: the base of a
    tensor map whose coordinates begin far away from the tensor.
    """

    array: HostArray
    nbytes: int


@dataclass(frozen=True, eq=False)
class Pointer:
    """A pointer to global memory that itself holds addresses or tensor maps: the arrays of pointers
    of a grouped GEMM, tensor maps that a kernel reads from global memory.

    The memory is made when the launch is bound; what the kernel writes there is not given back.

    Attributes:
        to: what lies there, one after the other without gaps: an array stands for its address (8
            bytes), None for a null pointer, a `TensorMap` for its 128 bytes, a number of a NumPy
            type for itself; or a `Struct` with the offset of each.
    """

    to: Sequence[Argument] | Struct


Argument = HostArray | Beside | TensorMap | Struct | Pointer | Raw | int | float | np.generic | None
Arguments = Sequence[Argument] | Mapping[str, Argument]  # in order, or by name


def described(variable: Variable, *, named: bool = True) -> str:
    """A parameter as it is declared: `.u64 x`, `.align 64 .b8 params[1024]`; `named`: with its
    name.
    """
    own = TYPE_BYTES[variable.type]
    align = f".align {variable.align} " if variable.align != own else ""
    extents = "".join(f"[{n}]" for n in variable.shape)
    return f"{align}.{variable.type}{f' {variable.name}' if named else ''}{extents}"


def in_order(kernel: str, declared: Sequence[Variable], args: Arguments) -> tuple[Argument, ...]:
    """Arguments in the order of the parameters; `args` may be by their names.

    Raises:
        BindError: there are too many, too few, or others.
    """
    if isinstance(args, Mapping):
        names = [v.name for v in declared]
        if wrong := [n for n in (*names, *args) if (n in args) is not (n in names)]:
            has = "no argument" if wrong[0] in names else "no such parameter"
            raise BindError(f"'{wrong[0]}': {has}; {_parameters(kernel, declared)}")
        return tuple(args[name] for name in names)
    if isinstance(args, str | bytes) or not isinstance(args, Sequence):
        raise BindError(
            "the arguments are a list in the order of the parameters, or a dictionary by their"
            f" names; got {type(args).__name__}"
        )
    if len(args) != len(declared):
        raise BindError(f"{len(args)} arguments; {_parameters(kernel, declared)}")
    return tuple(args)


def _parameters(kernel: str, declared: Sequence[Variable]) -> str:
    listed = ", ".join(map(described, declared[:_MOST_LISTED]))
    more = f" and {len(declared) - _MOST_LISTED} more" if len(declared) > _MOST_LISTED else ""
    said = f": {listed}{more}" if listed else ""
    return f"{named_kernel(kernel)} has {len(declared)} parameters{said}"


def in_words(variable: Variable, argument: Argument) -> str:
    """An argument as the name of a launch has it: `x (64,)`; a compiler's name of the parameter
    (`gemm_param_0`) says nothing.
    """
    said = _in_words(argument) or f"{variable.nbytes} bytes"
    return said if "_param_" in variable.name else f"{variable.name} {said}"


def _in_words(argument: Argument) -> str:
    """The shapes of the arrays in an argument, or its value; "" of bytes."""
    match argument:
        case TensorMap():
            return str(argument.shape if argument.shape is not None else _shape(argument.array))
        case np.generic() | bool() | int() | float() | None:
            return str(argument)
        case Struct():
            parts = (_in_words(field) for _, field in sorted(argument.fields.items()))
            return ", ".join(part for part in parts if part)
        case Beside(array):
            return str(_shape(array))
        case Pointer():
            held = [argument.to] if isinstance(argument.to, Struct) else argument.to
            return f"[{', '.join(filter(None, map(_in_words, held)))}]"
        case bytes() | bytearray() | memoryview() | ctypes.Structure():
            return ""
        case _:
            return str(_shape(argument))


def _shape(array: HostArray) -> tuple[int, ...]:
    return tuple(getattr(array, "shape", ()))


def bytes_of(variable: Variable, argument: Argument, memory: DeviceMemory) -> bytes:
    """The bytes of a parameter; an array that it points to gets its place in memory.

    Raises:
        BindError: the argument does not fit the parameter.
    """
    what = f"parameter '{described(variable)}'"
    if (name := parameter_name(variable.name)) != variable.name:
        what = f"{name} ({described(variable, named=False)})"
    value = int(argument) if isinstance(argument, bool | np.bool_) else plain_int(argument)
    number = value is not None or isinstance(argument, float | np.floating | ml_dtypes.bfloat16)
    if number and not (variable.shape and isinstance(argument, np.generic)):
        found = _number(variable, what, argument if value is None else value)
    elif variable.type == "f64" and not isinstance(argument, Raw | Struct | np.generic):
        raise BindError(f"{what} is a number; got {type(argument).__name__}")
    else:
        found = _encoded(what, parameter_name(variable.name), argument, memory)
    if len(found) != variable.nbytes:
        raise BindError(
            f"{what} has {variable.nbytes} bytes, and its argument ({type(argument).__name__})"
            f" {len(found)}"
        )
    return found


def _number(variable: Variable, what: str, value: object) -> bytes:
    """A number as a parameter of that type has it.

    Raises:
        BindError: it does not fit, or is a floating-point number for an integer, or nothing says
            of which floating-point type it is.
    """
    kind, size = variable.type, variable.nbytes
    if variable.shape:
        raise BindError(
            f"{what} is {size} bytes; pass bytes, a ctypes.Structure, or a ptx.Struct with its"
            f" fields. Got {shown(value)}"
        )
    if isinstance(value, int) and kind not in ("f16", "bf16", "f32", "f64"):
        if not -(1 << 8 * size - 1) <= value < 1 << 8 * size:
            raise BindError(f"{what}: {value} does not fit in {size} bytes")
        return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    if kind[0] in "us":
        raise BindError(f"{what} is an integer, and {shown(value)} a floating-point number")
    number = np.asarray(value)
    if kind[0] == "b" and not isinstance(value, float) and number.itemsize == size:
        return number.tobytes()  # its own bits
    dtype = _FLOATS.get(kind)
    if dtype is None:
        raise BindError(
            f"{what} does not say which floating-point type it is; pass a number of a NumPy type of"
            f" {size} bytes, such as np.float16 or ml_dtypes.bfloat16. Got {shown(value)}"
        )
    with np.errstate(over="ignore"):
        found = np.asarray(value, np.float64).astype(dtype)
    if np.isinf(found) and not np.isinf(np.asarray(value, np.float64)):
        raise BindError(f"{what}: {shown(value)} is beyond the range of {dtype}")
    return found.tobytes()


def _encoded(what: str, name: str, argument: Argument, memory: DeviceMemory) -> bytes:
    """The bytes of an argument that has a size of its own. `name`: what messages call the memory
    that it points to.

    Raises:
        BindError: it has none, or cannot be encoded.
    """
    match argument:
        case None:
            return bytes(_POINTER_BYTES)
        case bytes() | bytearray() | memoryview() | ctypes.Structure():
            return bytes(argument)
        case TensorMap():
            return argument.encoded(what, name, memory)
        case Struct():
            return _struct(what, name, argument, memory)
        case Beside(beside, nbytes):
            own = int.from_bytes(_encoded(what, name, beside, memory), "little")
            return ((own + nbytes) % (1 << 64)).to_bytes(_POINTER_BYTES, "little")
        case Pointer():
            held = np.frombuffer(_pointed_to(what, name, argument, memory), np.uint8)
            return memory.address_of(name, held.copy()).to_bytes(_POINTER_BYTES, "little")
        case np.generic():
            return argument.tobytes()
        case bool() | int() | float():
            raise BindError(
                f"{what}: {argument!r} does not say how many bytes it has; pass a number of a NumPy"
                f" type, such as np.{'float32' if isinstance(argument, float) else 'int32'}"
                f"({argument!r})"
            )
    array = host_array(argument, what)
    if array is None:
        raise BindError(
            f"{what}: expected an array, a ptx.TensorMap, a ptx.Struct, a number, bytes, or None"
            f" for a null pointer; got {type(argument).__name__}{_cure(argument)}"
        )
    return memory.address_of(name, array).to_bytes(_POINTER_BYTES, "little")


def _cure(argument: object) -> str:
    """The advice against a list: arrays in it are meant by their addresses."""
    if not isinstance(argument, list | tuple):
        return ""
    numbers = all(isinstance(each, int | float | np.generic) for each in argument)
    return " (make it an array)" if numbers else " (an array of pointers is a ptx.Pointer of it)"


def _pointed_to(what: str, name: str, pointer: Pointer, memory: DeviceMemory) -> bytes:
    """The bytes that a pointer points to.

    Raises:
        BindError: there are none, or one of its parts has no size, or is misaligned.
    """
    if isinstance(pointer.to, Struct):
        return _struct(what, name, pointer.to, memory)
    if isinstance(pointer.to, str | bytes) or not isinstance(pointer.to, Sequence):
        raise BindError(
            f"{what}: a ptx.Pointer is to a list of arguments or to a ptx.Struct; got"
            f" {type(pointer.to).__name__}"
        )
    found = b""
    for number, part in enumerate(pointer.to):
        inside = f"{what}, element {number}"
        if isinstance(part, TensorMap) and len(found) % MAP_ALIGNMENT:
            raise BindError(
                f"{inside}: at byte {len(found)}, and a tensor map lies at a multiple of"
                f" {MAP_ALIGNMENT} (CUtensorMap)"
            )
        found += _encoded(inside, f"{name}[{number}]", part, memory)
    if not found:
        raise BindError(f"{what}: a ptx.Pointer to nothing; pass None for a null pointer")
    return found


def _struct(what: str, name: str, struct: Struct, memory: DeviceMemory) -> bytes:
    size = plain_int(struct.content)
    if size is not None and not 0 <= size <= 1 << 16:
        raise BindError(f"{what}: a struct of {size} bytes")
    if isinstance(struct.content, Raw):
        found = bytearray(struct.content)
    elif size is not None:
        found = bytearray(size)
    else:
        raise BindError(
            f"{what}: a ptx.Struct begins with its size or its bytes; got {shown(struct.content)}"
        )
    end, before = 0, ""
    for offset in sorted(struct.fields, key=lambda key: plain_int(key) or 0):
        inside = f"{what}, offset {offset}"
        at = plain_int(offset)
        if at is None or at < 0:
            raise BindError(f"{what}: the offset {shown(offset)} is not a number of bytes")
        raw = _encoded(inside, f"{name}+{at}", struct.fields[offset], memory)
        if at < end:
            raise BindError(f"{inside}: {before} ends at {end}")
        if len(raw) + at > len(found):
            raise BindError(
                f"{inside}: {len(raw)} bytes, which end beyond the struct's {len(found)}"
            )
        if at % MAP_ALIGNMENT and isinstance(struct.fields[offset], TensorMap):
            raise BindError(
                f"{inside}: a tensor map lies at a multiple of {MAP_ALIGNMENT} (CUtensorMap)"
            )
        found[at : at + len(raw)] = raw
        end, before = at + len(raw), f"the field at {at}"
    return bytes(found)
