"""Element types of tiles, tensors and scalars."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilepipe.errors import BindError
from tilepipe.host_arguments import plain_int, shown


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    Attributes:
        name: the name used in programs and on the command line.
        bits: size in memory. Of 4 bits, two neighbours along the contiguous dimension share a byte,
            the first in its low half.
        numpy: the NumPy dtype that holds it (ml_dtypes for the ones NumPy lacks).
        kind: "float", "int", "uint", "bool" or "phase".
    """

    name: str
    bits: int
    numpy: np.dtype[np.generic]
    kind: str

    def __hash__(self) -> int:
        return hash(self.name)  # of all fields takes twice as long, at each look-up in a cache

    @property
    def nbytes(self) -> int:
        """Bytes of one element.

        Raises:
            BindError: it is smaller than a byte; `bytes_of` counts the bytes of several.
        """
        if self.bits < 8:
            raise BindError(
                f"{self.name} has {self.bits} bits: one element has no address and no bytes of its"
                " own"
            )
        return self.bits // 8

    @property
    def per_byte(self) -> int:
        """Elements that share a byte: 2 of 4 bits, else 1."""
        return max(8 // self.bits, 1)

    def bytes_of(self, elements: int) -> int:
        """Bytes of that many consecutive elements.

        Raises:
            BindError: the last byte would be part of another element's.
        """
        if plain_int(elements) is None:
            raise BindError(f"a number of elements is an integer; got {shown(elements)}")
        if elements * self.bits % 8:
            raise BindError(
                f"{elements} elements of {self.name}, of {self.bits} bits, are no whole number of"
                " bytes; take an even number"
            )
        return elements * self.bits // 8

    @property
    def in_registers(self) -> bool:
        """True if threads compute with it. They do not with types that only TMA and tensor cores
        handle: elements of 4 bits, and scale factors of e8m0.
        """
        return self.bits >= 8 and self.name != "float8_e8m0"

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"tp.{self.name}"


def _make(name: str, bits: int, numpy: npt.DTypeLike, kind: str) -> DType:
    return DType(name, bits, np.dtype(numpy), kind)


boolean = _make("boolean", 8, np.bool_, "bool")
int8 = _make("int8", 8, np.int8, "int")
uint8 = _make("uint8", 8, np.uint8, "uint")
int32 = _make("int32", 32, np.int32, "int")
uint32 = _make("uint32", 32, np.uint32, "uint")
int64 = _make("int64", 64, np.int64, "int")
uint64 = _make("uint64", 64, np.uint64, "uint")
float16 = _make("float16", 16, np.float16, "float")
bfloat16 = _make("bfloat16", 16, ml_dtypes.bfloat16, "float")
float32 = _make("float32", 32, np.float32, "float")
float64 = _make("float64", 64, np.float64, "float")
float8_e4m3 = _make("float8_e4m3", 8, ml_dtypes.float8_e4m3fn, "float")
float8_e5m2 = _make("float8_e5m2", 8, ml_dtypes.float8_e5m2, "float")
# Of block-scaled matrices (OCP Microscaling Formats): elements of 4 bits, and scales that are
# powers of two (.ue8m0 of the PTX ISA; 0xFF is NaN, and no code is zero). NVFP4's scales are
# float8_e4m3 without their sign (.ue4m3).
float4_e2m1 = _make("float4_e2m1", 4, ml_dtypes.float4_e2m1fn, "float")
float8_e8m0 = _make("float8_e8m0", 8, ml_dtypes.float8_e8m0fnu, "float")
# The number of a barrier phase. On hardware it is one parity bit; the simulator keeps the whole
# number, so that a wait for a phase that has already been lapped is seen.
phase = _make("phase", 32, np.int32, "phase")

ALL: tuple[DType, ...] = (
    boolean,
    int8,
    uint8,
    int32,
    uint32,
    int64,
    uint64,
    float16,
    bfloat16,
    float32,
    float64,
    float8_e4m3,
    float8_e5m2,
    float4_e2m1,
    float8_e8m0,
)
_BY_NAME = {t.name: t for t in ALL} | {
    "bf16": bfloat16,
    "fp16": float16,
    "fp32": float32,
    "half": float16,
    "float8_e4m3fn": float8_e4m3,
    "e4m3": float8_e4m3,
    "e5m2": float8_e5m2,
    "float4_e2m1fn": float4_e2m1,
    "float4_e2m1fn_x2": float4_e2m1,
    "e2m1": float4_e2m1,
    "float8_e8m0fnu": float8_e8m0,
    "e8m0": float8_e8m0,
}
_BY_NUMPY = {t.numpy: t for t in ALL}


def promoted(a: DType, b: DType) -> DType:
    """The dtype of an operation on two numbers: that of the float beside an integer, else of the
    one with more bits, else of the first.
    """
    if a.is_float != b.is_float:
        return a if a.is_float else b
    return a if a.bits >= b.bits else b


def broken_register_rule(t: DType) -> str | None:
    """Why threads cannot load, store and compute with elements of this type; None if they can."""
    if t.in_registers:
        return None
    return (
        f"threads do not compute with {t}, which TMA moves and tensor cores read; to load or store"
        " its bytes, pass the array a second time as uint8"
    )


def dtype(spec: object) -> DType:
    """The `DType` for a name ("bfloat16", "bf16", "e4m3"), a NumPy dtype or scalar type, or a
    `DType`.

    Raises:
        BindError: there is no dtype of that name or NumPy type.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str) and spec in _BY_NAME:
        return _BY_NAME[spec]
    if isinstance(spec, str) and spec == "tf32":
        raise BindError(
            "tf32 is no dtype in memory: keep the tiles in float32, and ctx.mma reads them as tf32"
        )
    found = None
    if isinstance(spec, str | type | np.dtype):
        # Not None, which NumPy takes for float64, nor a number or an array, of which it takes the
        # dtype.
        try:
            found = _BY_NUMPY.get(np.dtype(spec))
        except (TypeError, ValueError):
            found = None
    if found is None:
        given = spec.__name__ if isinstance(spec, type) else repr(spec)
        if isinstance(spec, np.dtype):
            given = str(spec)
        raise BindError(f"unknown dtype {given}; known: {', '.join(t.name for t in ALL)}")
    return found
