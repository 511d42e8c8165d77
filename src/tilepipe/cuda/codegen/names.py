"""The C++ types of dtypes in registers and in memory, and the identifiers of a printed file:
readable, unique, never a keyword.
"""

from __future__ import annotations

import re

from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType

# Keywords of C++, and names that every printed file uses or declares.
_RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl
    concept const consteval constexpr constinit continue co_await co_return co_yield decltype
    default delete do double dynamic_cast else enum explicit export extern false float for
    friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator
    or or_eq private protected public register reinterpret_cast requires return short signed
    sizeof static static_assert static_cast struct switch template this thread_local throw
    true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
    xor xor_eq threadIdx blockIdx blockDim gridDim warpSize printf abs min max smem i8 u8 i16
    u16 i32 u32 i64 u64 TensorMap main
    """,
    )
)


class Names:
    """The identifiers of one scope. An inner scope never reuses a name of its outer scope."""

    def __init__(self, outer: Names | None = None, reserved: frozenset[str] = frozenset()) -> None:
        self._outer = outer
        self._taken: set[str] = set(reserved)
        self._names: dict[object, str] = {}

    def of(self, thing: object, wanted: str, suffix: str = "") -> str:
        """The identifier of `thing`, made from `wanted` on the first call."""
        if (found := self.find(thing)) is None:
            found = self._names[thing] = self.fresh(wanted + suffix)
        return found

    def find(self, thing: object) -> str | None:
        """The identifier of `thing` in this scope or an outer one; None where it has none."""
        found = self._names.get(thing)
        return self._outer.find(thing) if found is None and self._outer is not None else found

    def put(self, thing: object, name: str) -> None:
        """Gives `thing` an existing identifier, or an expression, as its name."""
        self._names[thing] = name

    def fresh(self, wanted: str) -> str:
        """An identifier like `wanted` that is not in use."""
        base = re.sub(r"\W+", "_", wanted, flags=re.ASCII).strip("_") or "x"
        if base[0].isdigit():
            base = f"_{base}"
        name, n = base, 1
        while self._is_taken(name):
            name, n = f"{base}_{n}", n + 1
        self._taken.add(name)
        return name

    def _is_taken(self, name: str) -> bool:
        return (
            name in _RESERVED
            or name in self._taken
            or (self._outer is not None and self._outer._is_taken(name))
        )


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
    """True if a fragment of this dtype keeps two columns in one register."""
    return t in (dtypes.float16, dtypes.bfloat16) and cols > 1
