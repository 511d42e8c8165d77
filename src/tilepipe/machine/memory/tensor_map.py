"""Tensor maps: the 128 bytes that tell a TMA copy of the tensor, the box and the swizzle.

The driver writes them (`cuTensorMapEncodeTiled`), host code may write them itself, and a kernel may
change them (`tensormap.replace`). NVIDIA does not document the layout. It was read off the driver
(580, H100) by varying one argument of the call at a time: tests/golden/tensor_maps.npz has its
bytes. Dimension 0 is the contiguous one, as in the driver's call and in PTX.

    bits          field                      bits          field
    0..63         address                    81..82        promotion in L2
    68..70        dimensions - 1             96 + 32 i     stride of dimension i + 1, / 16, low bits
    71..74        element type               224 + 4 i     the 4 bits above them
    75..76        interleave                 256 + 32 i    extent of dimension i, - 1
    77..78        swizzle                    416 + 3 i     traversal stride of dimension i, - 1
    79            NaN outside the bounds     440 + 8 i     extent of the box in dimension i, - 1
    80            rounds to tf32             512..         what follows from the other fields

The swizzles of sm_100 that move more than 16 bytes at a time, which that driver refuses on an H100,
are in bits 83..84: the host code of CuTe DSL 4.8 has that of 32 bytes there. For sm_100a that code
also sets bit 65, and bit 85 in the maps of larger tensors; what they say is not known, and they are
passed over. The bytes from 64 on it leaves as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilepipe.errors import LimitError, SimFault
from tilepipe.machine.memory.byte_sets import Bytes
from tilepipe.machine.shared_names import SharedNames
from tilepipe.machine.sites import Site

MAP_BYTES = 128
MOST_ELEMENTS = 256  # extent of a box in one dimension
MOST_BYTES = 227 << 10  # of a box: as much as a CTA can have of shared memory
UNIT = 16  # bytes: addresses, strides and rows of a box are multiples of it
SMEM_ALIGNMENT = 128  # of a box in shared memory (PTX ISA, cp.async.bulk.tensor)
NAN_WORD = bytes.fromhex("f77f")  # repeated, what an H100 puts outside the bounds


class Element(NamedTuple):
    """An element type (PTX ISA, tensormap.replace, .elemtype).

    Attributes:
        bits: in global memory. group, padded: bytes of a group of elements in global memory, and in
            shared memory, where these differ.
    """

    name: str
    bits: int
    group: int = 0
    padded: int = 0


ELEMENTS = (
    Element("u8", 8), Element("u16", 16), Element("u32", 32), Element("s32", 32),
    Element("u64", 64), Element("s64", 64), Element("f16", 16), Element("f32", 32),
    Element("f32.ftz", 32), Element("f64", 64), Element("bf16", 16), Element("tf32", 32),
    Element("tf32.ftz", 32), Element("b4x16", 4), Element("b4x16_p64", 4, 8, 16),
    Element("b6x16_p32", 6, 12, 16),
)  # fmt: skip
BY_NAME = {element.name: code for code, element in enumerate(ELEMENTS)}
_F32, _FTZ, _TF32, _TF32_FTZ = (BY_NAME[n] for n in ("f32", "f32.ftz", "tf32", "tf32.ftz"))
# The codes that differ from the number of the element. tf32 is f32 with bit 80; the packed types
# follow bf16 (as the host code of CuTe DSL 4.8 has them: an H100's driver refuses these types).
_CODES = {_TF32: _F32, _TF32_FTZ: _FTZ} | {
    BY_NAME[name]: BY_NAME["bf16"] + i
    for i, name in enumerate(("b4x16", "b4x16_p64", "b6x16_p32"), 1)
}
_ROUNDED = {_F32: _TF32, _FTZ: _TF32_FTZ}
_PACKED = {code: element for element, code in _CODES.items() if code > BY_NAME["bf16"]}
_FLOATS = {BY_NAME[n] for n in ("f16", "f32", "f32.ftz", "f64", "bf16", "tf32", "tf32.ftz")}
SPANS = (0, 32, 64, 128)  # bytes that a swizzle permutes, by its code
ATOMS = (16, 32, 32, 64)  # bytes that a swizzle keeps together, by the code of its atomicity
_FLIP = 2  # the atomicity that also swaps the halves of 16 bytes in every second line


@dataclass(frozen=True)
class TensorMapFields:
    """The fields of a tensor map.

    Attributes:
        element: number in `ELEMENTS`. address: of element (0, 0, ...).
        shape, box: extents in elements. strides: bytes, of the dimensions from 1 on.
        steps: traversal strides, in elements. swizzle: number in `SPANS`. atom: number in `ATOMS`.
        nan: what lies out of bounds reads as NaN, not as zero. interleave, promotion: codes.
        name: what messages call it.
    """

    element: int
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...] = ()
    swizzle: int = 0
    atom: int = 0
    nan: bool = False
    interleave: int = 0
    promotion: int = 0
    name: str = "tensor map"

    def __post_init__(self) -> None:
        if not self.steps:
            object.__setattr__(self, "steps", (1,) * len(self.shape))

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def key(self) -> tuple[object, ...]:
        """The fields that decide which bytes a copy moves, and where to."""
        return (
            self.element, self.address, self.shape, self.strides, self.box, self.steps,
            self.swizzle, self.atom, self.nan,
        )  # fmt: skip

    @cached_property
    def bits(self) -> int:
        """The size of an element in global memory."""
        return ELEMENTS[self.element].bits

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Elements that a copy visits in each dimension."""
        return (
            self.box[0],
            *(-(-n // step) for n, step in zip(self.box[1:], self.steps[1:], strict=True)),
        )

    @cached_property
    def row_bytes(self) -> int:
        """A row of the box in global memory."""
        return self.box[0] * self.bits // 8

    @cached_property
    def nbytes(self) -> int:
        """Bytes of a whole box: what a copy credits. The padding of packed types is not counted."""
        return self.row_bytes * self.rows

    @cached_property
    def rows(self) -> int:
        """Rows of the box."""
        return prod(self.counts[1:])

    @property
    def boxed_bytes(self) -> int:
        """Bytes of a box as the driver counts them, rounding down."""
        counts = (n // step for n, step in zip(self.box, self.steps, strict=True))
        return self.bits * prod(counts) // 8

    def broken_rule(self) -> str:
        """The rule of tensor maps that it breaks, or ""."""
        if self.rank not in range(1, 6) or not self.rank == len(self.box) == len(self.steps):
            return (
                f"it has {self.rank} dimensions, and its box {len(self.box)}; 1 to 5 are possible"
            )
        if self.interleave:
            return f"its layout is interleaved (code {self.interleave}), which is not modelled"
        if len(self.strides) != self.rank - 1:
            return f"it has {len(self.strides)} strides for {self.rank} dimensions"
        if any(not 1 <= n <= MOST_ELEMENTS for n in self.box):
            return f"its box {self.box} has extents beyond 1..{MOST_ELEMENTS}"
        if any(not 1 <= n <= 8 for n in self.steps):
            return f"its traversal strides {self.steps} are beyond 1..8"
        if any(not 1 <= n <= 1 << 32 for n in self.shape):
            return f"its extents {self.shape} are beyond 1..2^32"
        if any(s % UNIT or not 0 <= s < 1 << 40 for s in self.strides):
            return f"its strides {self.strides} are not multiples of {UNIT} bytes below 2^40"
        if self.address % UNIT:
            return f"its address {self.address:#x} is not a multiple of {UNIT}"
        if self.box[0] * self.bits % (8 * UNIT):
            nbytes = self.box[0] * self.bits / 8
            return f"a row of its box has {nbytes:g} bytes, not a multiple of {UNIT}"
        span = SPANS[self.swizzle]
        if span and self.line_bytes > span:
            return f"a row of its box has {self.line_bytes} bytes, and its swizzle spans {span}"
        if self.boxed_bytes > MOST_BYTES:
            return f"its box has {self.boxed_bytes:,} bytes, more than the {MOST_BYTES:,} of a CTA"
        if self.nan and self.element not in _FLOATS:
            return f"NaN outside the bounds of elements of type {ELEMENTS[self.element].name}"
        return ""

    # -- in shared memory --------------------------------------------------------------

    @cached_property
    def line_bytes(self) -> int:
        """A row of the box in shared memory, with the padding of packed types."""
        element = ELEMENTS[self.element]
        return self.row_bytes // element.group * element.padded if element.group else self.row_bytes

    @cached_property
    def pitch(self) -> int:
        """Bytes from one row to the next in shared memory: a row that is narrower than the swizzle
        still takes a line of its own (as seen on an H100).
        """
        return max(self.line_bytes, SPANS[self.swizzle])

    @cached_property
    def smem_bytes(self) -> int:
        """From the first byte of the box in shared memory to the end of its last row."""
        return self.pitch * (self.rows - 1) + self.line_bytes

    @property
    def grain(self) -> int:
        """Bytes that stay together in shared memory."""
        return 8 if self.swizzle == len(SPANS) - 1 and self.atom == _FLIP else UNIT

    def places(self, address: int) -> npt.NDArray[np.int64]:
        """Where each `grain` bytes of a box at that address lie, in grains from 0."""
        return _places(
            self.line_bytes, self.pitch, self.rows, self.swizzle, self.atom, self.grain, address
        )

    def unpadded(self, raw: Bytes) -> Bytes:
        """The bytes of a box as they are in global memory; `raw`: in shared memory, row by row."""
        element = ELEMENTS[self.element]
        if not element.group:
            return raw
        groups = raw.reshape(-1, element.padded)
        if element.bits == 4:
            return np.ascontiguousarray(groups[:, : element.group]).reshape(-1)
        # .b6p2x16: 6 bits of each byte (PTX ISA, tensor types)
        bits = np.unpackbits(groups.reshape(-1, 1), axis=1, bitorder="little")[:, :6]
        return np.packbits(bits.reshape(-1), bitorder="little")

    def padded(self, raw: Bytes) -> Bytes:
        """The bytes of a box as they are in shared memory."""
        element = ELEMENTS[self.element]
        if not element.group:
            return raw
        out = np.zeros((raw.size // element.group, element.padded), np.uint8)
        out[:, : element.group] = raw.reshape(-1, element.group)
        return out.reshape(-1)

    def loaded(self, raw: Bytes) -> Bytes:
        """The elements as a load delivers them: some types are flushed or rounded to tf32."""
        if self.element not in (_FTZ, _TF32, _TF32_FTZ):
            return raw
        words = np.ascontiguousarray(raw).view(np.uint32)
        if self.element == _FTZ:  # on an H100 "tf32.ftz" keeps subnormal numbers
            words = np.where(words & 0x7F800000, words, words & 0x80000000)
        if self.element in (_TF32, _TF32_FTZ):
            nan = words & 0x7FFFFFFF > 0x7F800000
            words = np.where(nan, 0x7FFFE000, words + 0xFFF + (words >> 13 & 1) & 0xFFFFE000)
        return words.astype(np.uint32).view(np.uint8).reshape(raw.shape)

    def check(self, site: Site, coords: Sequence[int], address: int, names: SharedNames) -> None:
        """Raises SimFault for a copy that the tensor map, or its address in shared memory, does not
        allow. `names`: of shared memory.
        """
        if len(coords) != self.rank:
            raise SimFault(
                f"{site.what}: {len(coords)} coordinates for {self.name}, which has {self.rank}"
                " dimensions",
                site.loc,
            )
        if address % SMEM_ALIGNMENT:
            raise SimFault(
                f"{site.what}: a box at {names.exactly(address)} of shared memory; its address is a"
                f" multiple of {SMEM_ALIGNMENT} (PTX ISA, cp.async.bulk.tensor).",
                site.loc,
            )


@lru_cache(maxsize=1024)
def _places(
    line: int, pitch: int, rows: int, swizzle: int, atom: int, grain: int, address: int
) -> npt.NDArray[np.int64]:
    at = np.arange(rows)[:, None] * pitch + np.arange(0, line, grain) + address
    if swizzle:
        # The hardware swizzles bits of the address, not of the offset in the box (PTX ISA, tensor
        # swizzling modes).
        bits = {16: swizzle, 32: 2, 64: 1}[ATOMS[atom]]
        mask = (1 << bits) - 1
        low = ATOMS[atom].bit_length() - 1
        flipped = at ^ 8 * (at >> 7 & 1) if atom == _FLIP else at
        at = flipped ^ (at >> 7 & mask) << low
    return at.reshape(-1) // grain


# -- the bytes -------------------------------------------------------------------------


def encode(map_: TensorMapFields) -> bytes:
    """The 128 bytes of a tensor map.

    Raises:
        LimitError: the tensor map breaks a rule.
    """
    if broken := map_.broken_rule():
        raise LimitError(f"{map_.name}: {broken}")
    rounds = map_.element in (_TF32, _TF32_FTZ)
    element = _CODES.get(map_.element, map_.element)
    fields = [
        (0, map_.address), (68, map_.rank - 1), (71, element), (75, map_.interleave),
        (77, map_.swizzle), (79, int(map_.nan)), (80, int(rounds)), (81, map_.promotion),
        (83, map_.atom), (512, map_.boxed_bytes), (583 + map_.swizzle if map_.swizzle else 580, 1),
    ]  # fmt: skip
    fields += [(96 + 32 * i, s >> 4 & 0xFFFFFFFF) for i, s in enumerate(map_.strides)]
    fields += [(224 + 4 * i, s >> 36) for i, s in enumerate(map_.strides)]
    fields += [(256 + 32 * i, n - 1) for i, n in enumerate(map_.shape)]
    fields += [(416 + 3 * i, n - 1) for i, n in enumerate(map_.steps)]
    fields += [(440 + 8 * i, n - 1) for i, n in enumerate(map_.box)]
    return sum(value << at for at, value in fields).to_bytes(MAP_BYTES, "little")


# The bits below 512 that belong to no field.
_UNKNOWN = sum(
    (1 << end) - (1 << begin)
    for begin, end in ((64, 65), (66, 68), (86, 96), (240, 256), (431, 440), (480, 512))
)


@lru_cache(maxsize=256)
def decode(raw: bytes, name: str = "tensor map") -> TensorMapFields:
    """Decodes the 128 bytes of a tensor map. Bits that follow from other fields are not looked at.

    Raises:
        LimitError: the bytes are not those of a tensor map.
    """
    number = int.from_bytes(raw, "little")

    def field(at: int, bits: int) -> int:
        return number >> at & (1 << bits) - 1

    rank = field(68, 3) + 1
    code = field(71, 4)
    element = (_ROUNDED if field(80, 1) else _PACKED).get(code, code)
    found = TensorMapFields(
        element,
        field(0, 64),
        tuple(field(256 + 32 * i, 32) + 1 for i in range(rank)),
        tuple(field(224 + 4 * i, 4) << 36 | field(96 + 32 * i, 32) << 4 for i in range(rank - 1)),
        tuple(field(440 + 8 * i, 8) + 1 for i in range(rank)),
        tuple(field(416 + 3 * i, 3) + 1 for i in range(rank)),
        swizzle=field(77, 2), atom=field(83, 2), nan=bool(field(79, 1)), interleave=field(75, 2),
        promotion=field(81, 2), name=name,
    )  # fmt: skip
    broken = found.broken_rule()
    if number & _UNKNOWN:
        broken = "it sets bits whose meaning is not known"
    if broken:
        raise LimitError(f"{name}: {broken}; these are not the bytes of a tensor map")
    return found


# Where tensormap.replace finds the fields: name -> (first bit, bits, bits from one dimension to the
# next or 0, what the instruction's value has to be lowered by).
FIELDS = {
    "global_address": (0, 64, 0, 0), "rank": (68, 3, 0, 0), "box_dim": (440, 8, 8, 1),
    "global_dim": (256, 32, 32, 1), "element_stride": (416, 3, 3, 1), "elemtype": (71, 4, 0, 0),
    "interleave_layout": (75, 2, 0, 0), "swizzle_mode": (77, 2, 0, 0), "fill_mode": (79, 1, 0, 0),
    "swizzle_atomicity": (83, 2, 0, 0), "global_stride": (96, 32, 32, 0),
}  # fmt: skip


def replaced(raw: bytes, field: str, ordinal: int, value: int) -> bytes:
    """The bytes after tensormap.replace of one field.

    Raises:
        ValueError: the field does not take the value.
    """
    number = int.from_bytes(raw, "little")

    def put(at: int, bits: int, value: int) -> None:
        nonlocal number
        number = number & ~((1 << bits) - 1 << at) | value << at

    at, bits, apart, lower = FIELDS[field]
    if field == "global_stride":
        if value % UNIT or value >> 40:
            raise ValueError(f"the stride {value} is not a multiple of {UNIT} bytes below 2^40")
        put(224 + 4 * ordinal, 4, value >> 36)
        value = value >> 4 & 0xFFFFFFFF
    elif field == "elemtype":
        put(80, 1, int(value in (_TF32, _TF32_FTZ)))
        value = _CODES.get(value, value)
    if not 0 <= value - lower < 1 << bits or not 0 <= ordinal < 5:
        raise ValueError(f"the value {value} of dimension {ordinal} does not fit")
    put(at + apart * ordinal, bits, value - lower)
    return number.to_bytes(MAP_BYTES, "little")
