"""The C++ types of dtypes in registers and in memory, and the names of small floats in PTX
wrappers.
"""

from __future__ import annotations

from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType

_REGISTER = {
    "boolean": "bool",
    "phase": "u32",
    "int8": "i8",
    "uint8": "u8",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
    "float64": "double",
}
_MEMORY = {
    "boolean": "u8",
    "float16": "u16",
    "bfloat16": "u16",
    "float8_e4m3": "u8",
    "float8_e5m2": "u8",
    "float8_e8m0": "u8",
    "float4_e2m1": "u8",
}
_SMALL = {"float16": "f16", "bfloat16": "bf16", "float8_e4m3": "e4m3", "float8_e5m2": "e5m2"}


def register_type(t: DType) -> str:
    """The type of one value in a register. Floats of 8 and 16 bits are held as float."""
    return _REGISTER.get(t.name, "float")


def memory_type(t: DType) -> str:
    """The type of one element in memory."""
    return _MEMORY.get(t.name, register_type(t))


def small_float(t: DType) -> str | None:
    """The PTX name of a float of 8 or 16 bits; None for every other dtype."""
    return _SMALL.get(t.name)


def is_packed(t: DType, cols: int) -> bool:
    """Whether a fragment of this dtype keeps two columns in one register."""
    return t in (dtypes.float16, dtypes.bfloat16) and cols > 1
