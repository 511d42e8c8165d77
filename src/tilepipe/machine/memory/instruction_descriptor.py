"""The instruction descriptor of tcgen05.mma: its fields, and which of their values a kind has (PTX
ISA, "TensorCore 5th Generation Family Instructions": Instruction descriptor, Matrix shapes).
"""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np

from tilepipe.errors import SimFault
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.machine.sites import Site

_F16 = {0: dtypes.float16, 1: dtypes.bfloat16}
# Elements of 4 and 6 bits of kinds for 8: 16 of them stand at the start of 16 bytes of shared
# memory (PTX ISA, "Packing formats": .b4x16_p64, .b6x16_p32).
EXPANDED = {
    DType("float6_e2m3", 8, np.dtype(ml_dtypes.float6_e2m3fn), "float"): 6,
    DType("float6_e3m2", 8, np.dtype(ml_dtypes.float6_e3m2fn), "float"): 6,
    DType("float4_e2m1 in 8 bits", 8, np.dtype(ml_dtypes.float4_e2m1fn), "float"): 4,
}
_F8 = {0: dtypes.float8_e4m3, 1: dtypes.float8_e5m2, **dict(zip((3, 4, 5), EXPANDED, strict=True))}
# kind -> code in the instruction descriptor -> type of A and of B
ELEMENTS: dict[str, dict[int, DType]] = {
    "f16": _F16,
    "tf32": {2: dtypes.float32},
    "f8f6f4": _F8,
    "i8": {0: dtypes.uint8, 1: dtypes.int8},
    "mxf8f6f4": _F8,
    "mxf4": {1: dtypes.float4_e2m1},
    "mxf4nvf4": {1: dtypes.float4_e2m1},
}


class Shape(NamedTuple):
    """What an instruction descriptor says.

    Attributes:
        rows, cols: M and N of the product, of both CTAs of a pair together.
        a, b: types of the elements. a_k_major, b_k_major: whether K is contiguous.
        accumulator: type of the accumulator: float32, float16 or int32. negated: the product is
            taken from it. saturates: sums of integers are clamped.
        scale: type of the scale factors. a_scale, b_scale: which of the 4 bytes of a column is the
            first that is read.
    """

    rows: int
    cols: int
    a: DType
    b: DType
    a_k_major: bool
    b_k_major: bool
    scale: DType | None = None
    a_scale: int = 0
    b_scale: int = 0
    accumulator: DType = dtypes.float32
    negated: bool = False
    saturates: bool = False


_ACCUMULATORS = {0: dtypes.float16, 1: dtypes.float32, 2: dtypes.int32}


def shape_of(site: Site, kind: str, bits: int) -> Shape:
    """Decodes the instruction descriptor of `.kind::kind` (PTX ISA, "Instruction descriptor").

    Raises:
        SimFault: it asks for what is not modelled, or is reserved.
    """
    scaled = kind.startswith("mx")
    reserved = 0x8700004F if scaled else 0xE080004F
    if kind == "i8":
        reserved = reserved & ~8 | 0x6000
    wrong = bits & reserved
    accumulator = dtypes.float32 if scaled else _ACCUMULATORS.get(bits >> 4 & 3)
    allowed = {
        "f16": (dtypes.float16, dtypes.float32), "f8f6f4": (dtypes.float16, dtypes.float32),
        "i8": (dtypes.int32,),
    }.get(kind, (dtypes.float32,))  # fmt: skip
    if wrong or accumulator not in allowed:
        raise SimFault(
            f"{site.what}: instruction descriptor {bits:#010x} of kind::{kind}: the bits"
            f" {wrong or bits & 0x30:#x} ask for sparsity, saturation or an accumulator that this"
            " kind lacks, or are reserved",
            site.loc,
        )
    assert accumulator is not None
    negated = bool(bits >> 13 & 1) != bool(bits >> 14 & 1)
    types = ELEMENTS[kind]
    codes = bits >> 7 & 7, bits >> 10 & 7
    if any(code not in types for code in codes):
        raise SimFault(
            f"{site.what}: instruction descriptor {bits:#010x}: types {codes} of kind::{kind}",
            site.loc,
        )
    a, b = (types[code] for code in codes)
    cols = (bits >> 17 & 63) * 8
    majors = not bits >> 15 & 1, not bits >> 16 & 1
    for dtype, k_major in ((a, majors[0]), (b, majors[1])):
        if dtype in EXPANDED and not k_major:
            raise SimFault(
                f"{site.what}: {dtype} whose contiguous dimension is not K is not modelled",
                site.loc,
            )
    if not scaled:
        shape = Shape((bits >> 24 & 31) * 16, cols, a, b, *majors)
        return shape._replace(
            accumulator=accumulator, negated=negated, saturates=kind == "i8" and bool(bits & 8)
        )
    scale = dtypes.float8_e8m0 if bits >> 23 & 1 else dtypes.float8_e4m3
    shape = Shape((bits >> 27 & 3) * 128, cols, a, b, *majors, scale)
    return shape._replace(a_scale=bits >> 29 & 3, b_scale=bits >> 4 & 3, negated=negated)


def check_shape(site: Site, shape: Shape, group: int) -> None:
    """Raises SimFault for extents that the instruction does not have (PTX ISA, "Matrix shapes")."""
    rows, cols = shape.rows, shape.cols
    if group == 1:
        step = 8 if rows == 64 or shape.scale is not None else 16
        right = rows in (64, 128) and step <= cols <= 256 and cols % step == 0
    else:
        step = 16 if shape.scale is not None or rows == 128 else 32
        right = rows in (128, 256) and step <= cols <= 256 and cols % step == 0
    if not right:
        raise SimFault(
            f"{site.what}: M = {rows}, N = {cols} with .cta_group::{group} (PTX ISA, tcgen05.mma,"
            " Matrix shapes)",
            site.loc,
        )
