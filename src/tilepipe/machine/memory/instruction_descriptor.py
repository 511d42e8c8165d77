"""The instruction descriptor of tcgen05.mma: its fields, and which of their values a kind has.

The sources are tables of the PTX ISA, "TensorCore 5th Generation Family Instructions": Various
combinations of .kind and shapes; Instruction descriptor format; Transpose and Negate operation;
N shape for 8bit transpose B; Valid combinations of scale_vectorsize; Scale Factor ID.
"""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from typing import Literal, NamedTuple, NoReturn

import ml_dtypes
import numpy as np

from tilepipe.errors import SimFault
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.machine.sites import Site

Form = Literal["plain", "ws"]

# Elements of 4 and 6 bits of kinds for 8: 16 of them stand at the start of 16 bytes of shared
# memory (PTX ISA, "Packing formats": .b4x16_p64, .b6x16_p32).
EXPANDED = {
    DType("float6_e2m3", 8, np.dtype(ml_dtypes.float6_e2m3fn), "float"): 6,
    DType("float6_e3m2", 8, np.dtype(ml_dtypes.float6_e3m2fn), "float"): 6,
    DType("float4_e2m1 in 8 bits", 8, np.dtype(ml_dtypes.float4_e2m1fn), "float"): 4,
}
_F16 = {0: dtypes.float16, 1: dtypes.bfloat16}
_F8 = {0: dtypes.float8_e4m3, 1: dtypes.float8_e5m2, **dict(zip((3, 4, 5), EXPANDED, strict=True))}
_F4 = {1: dtypes.float4_e2m1}
_D = {0: dtypes.float16, 1: dtypes.float32, 2: dtypes.int32}
_FLOATS = {dtypes.float16, dtypes.float32}
_SCALES = {0: dtypes.float8_e4m3, 1: dtypes.float8_e8m0}
_UE8M0 = {dtypes.float8_e8m0}
# N of one CTA, and of a pair
_BY_8, _BY_16, _BY_32 = range(8, 257, 8), range(16, 257, 16), range(32, 257, 32)
_WS_COLS = (64, 128, 256)


class Kind(NamedTuple):
    """The properties of a `.kind`.

    Attributes:
        elements: code in the descriptor -> type of A or of B. accumulators: types of D.
        rows: M of one CTA, and of a pair. cols: N likewise.
        turned: A and B whose contiguous dimension is M or N. negates: bits 13 and 14.
        weights: there is a form .ws. scales: scale factors of a row in one instruction -> their
            types; {}: there are none.
    """

    elements: dict[int, DType]
    accumulators: set[DType]
    rows: tuple[tuple[int, ...], tuple[int, ...]] = ((64, 128), (128, 256))
    cols: tuple[range | tuple[int, ...], range] = (_BY_8, _BY_16)
    turned: bool = True
    negates: bool = True
    weights: bool = True
    scales: dict[int, set[DType]] = {}  # noqa: RUF012 (nobody changes it)


_SCALED = Kind({}, {dtypes.float32}, rows=((128,), (128, 256)), weights=False)
KINDS: dict[str, Kind] = {
    "f16": Kind(_F16, _FLOATS),
    "tf32": Kind({2: dtypes.float32}, {dtypes.float32}),
    "f8f6f4": Kind(_F8, _FLOATS),
    "i8": Kind(
        {0: dtypes.uint8, 1: dtypes.int8}, {dtypes.int32}, cols=((8, 24, *_BY_16), _BY_32),
        negates=False,
    ),
    "mxf8f6f4": _SCALED._replace(elements=_F8, scales={1: _UE8M0}),
    "mxf4": _SCALED._replace(elements=_F4, turned=False, scales={2: _UE8M0}),
    "mxf4nvf4": _SCALED._replace(
        elements=_F4, turned=False, scales={2: _UE8M0, 4: {*_UE8M0, dtypes.float8_e4m3}}
    ),
}  # fmt: skip


class Shape(NamedTuple):
    """The fields of an instruction descriptor.

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


class _Fields:
    """The fields of one descriptor, and the fault of a value that its kind does not have."""

    def __init__(self, kind: str, bits: int) -> None:
        self.kind, self.bits = kind, bits

    def at(self, first: int, width: int) -> int:
        return self.bits >> first & (1 << width) - 1

    def wrong(self, field: str, value: object, allowed: str) -> NoReturn:
        raise ValueError(
            f"instruction descriptor {self.bits:#010x} of kind::{self.kind}: {field} is {value};"
            f" {allowed} (PTX ISA, tcgen05, Instruction descriptor)"
        )

    def zero(self, field: str, first: int, width: int = 1) -> None:
        """A field that must be 0."""
        if value := self.at(first, width):
            last = f"-{first + width - 1}" if width > 1 else ""
            self.wrong(f"bit {first}{last}, {field},", value, "it must be 0")

    def type_of(self, field: str, first: int, width: int, types: dict[int, DType]) -> DType:
        """The type that a code stands for."""
        code = self.at(first, width)
        if code not in types:
            names = [f"{c} ({t.name})" for c, t in types.items()]
            self.wrong(f"the type of {field}", code, f"allowed values are {_and(names)}")
        return types[code]

    def one_of(self, field: str, value: int, allowed: Container[int], said: str) -> None:
        if value not in allowed:
            self.wrong(field, value, f"allowed values are {said}")


def shape_of(
    site: Site, kind: str, bits: int, group: int = 1, vector: int = 0, form: Form = "plain"
) -> Shape:
    """Decodes the instruction descriptor of `.kind::kind`. `group`: the CTAs that it is for.
    `vector`: scale factors of a row. `form`: of the instruction.

    Raises:
        SimFault: a field has a value that the kind does not have, or that is not modelled; the
            message names the field, the value, and what is allowed.
    """
    try:
        return _decoded(kind, bits, group, vector, form)
    except ValueError as error:
        raise SimFault(f"{site.what}: {error}", site.loc) from None


@lru_cache(maxsize=1024)
def _decoded(kind: str, bits: int, group: int, vector: int, form: Form) -> Shape:
    given, fields = KINDS[kind], _Fields(kind, bits)
    scaled = bool(given.scales)
    if fields.at(2, 1):
        fields.wrong("bit 2, sparsity,", 1, "that is for tcgen05.mma.sp, which is not modelled")
    fields.zero("reserved", 6)
    if kind != "i8":
        fields.zero("saturation of integers" if not scaled else "reserved", 3)
    wide = 3 if not kind.startswith("mxf4") else 2
    a = fields.type_of("A", 7, 3, given.elements)
    b = fields.type_of("B", 10, wide, given.elements)
    if wide == 2:
        fields.zero("reserved", 12)
    if not given.negates:
        fields.zero("negation", 13, 2)
    if not given.turned:
        fields.zero("A and B with M or N contiguous", 15, 2)
    cols = fields.at(17, 6) * 8
    majors = not fields.at(15, 1), not fields.at(16, 1)
    _check_turned(fields, a, b, majors, cols, group)
    negated = bool(fields.at(13, 1)) != bool(fields.at(14, 1))
    shape = Shape(0, cols, a, b, *majors, negated=negated)
    if scaled:
        shape = _scaled(fields, shape, given, vector)
    else:
        fields.zero("the selector of sparsity", 0, 2)
        shape = _plain(fields, shape, given, form)
    rows = given.rows[group - 1] if form == "plain" else (32, 64, 128)
    extents = given.cols[group - 1] if form == "plain" else _WS_COLS
    pair = f" with .cta_group::{group}"
    fields.one_of(f"M{pair}", shape.rows, rows, " and ".join(map(str, rows)))
    fields.one_of(f"N{pair}", cols, extents, _listed(extents))
    return shape


def _plain(fields: _Fields, shape: Shape, given: Kind, form: Form) -> Shape:
    """The fields of a descriptor without scale factors."""
    codes = {code: dtype for code, dtype in _D.items() if dtype in given.accumulators}
    accumulator = fields.type_of("D", 4, 2, codes)
    if accumulator is dtypes.float16 and dtypes.bfloat16 in (shape.a, shape.b):
        fields.wrong("the type of D", "float16", "with A or B in bfloat16 it is float32")
    fields.zero("reserved", 23)
    fields.zero("reserved", 29)
    if form == "plain":
        fields.zero("the largest shift of .ws", 30, 2)
    return shape._replace(
        rows=fields.at(24, 5) * 16, accumulator=accumulator,
        saturates=fields.kind == "i8" and bool(fields.at(3, 1)),
    )  # fmt: skip


def _scaled(fields: _Fields, shape: Shape, given: Kind, vector: int) -> Shape:
    """The fields of a descriptor with scale factors."""
    fields.zero("reserved", 0, 2)
    fields.zero("reserved", 24, 3)
    fields.zero("reserved" if fields.kind == "mxf8f6f4" else "K = 96, of sm_103a,", 31)
    types = given.scales[vector]
    codes = {code: dtype for code, dtype in _SCALES.items() if dtype in types}
    scale = fields.type_of("the scale factors", 23, 1, codes)
    ids = fields.at(29, 2), fields.at(4, 2)
    # the bytes of a word of tensor memory, in units of as many as a row has
    for operand, number in zip("AB", ids, strict=True):
        said = {1: "0, 1, 2 and 3", 2: "0 and 2", 4: "0 alone"}[vector]
        fields.one_of(f"the scale factor id of {operand}", number, range(0, 4, vector), said)
    rows = fields.at(27, 2) * 128
    return shape._replace(rows=rows, scale=scale, a_scale=ids[0], b_scale=ids[1])


def _check_turned(
    fields: _Fields, a: DType, b: DType, majors: tuple[bool, bool], cols: int, group: int
) -> None:
    """A or B with M or N contiguous: of elements of 8 bits and more, and N in wider steps."""
    for name, dtype, k_major in zip("AB", (a, b), majors, strict=True):
        if dtype in EXPANDED and not k_major:
            fields.wrong(
                f"the contiguous dimension of {name}", "M or N",
                f"the one of {dtype.name} is K: elements of less than 8 bits are not transposed",
            )  # fmt: skip
    extents = _BY_16 if group == 1 else _BY_32
    if not majors[1] and b.bits == 8 and cols not in extents:
        fields.wrong(
            "N", cols, f"with B of 8 bits and N contiguous allowed values are {_listed(extents)}"
        )


def _and(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _listed(extents: range | tuple[int, ...]) -> str:
    if isinstance(extents, range):
        return f"multiples of {extents.step} from {extents[0]} to {extents[-1]}"
    if extents == _WS_COLS:
        return "64, 128 and 256"
    return "8, 24 and multiples of 16 up to 256"
