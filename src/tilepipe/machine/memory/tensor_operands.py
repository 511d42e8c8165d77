"""The operands of tcgen05 that descriptors and addresses name: matrices in shared memory, and
matrices and scale factors in tensor memory (PTX ISA, "TensorCore 5th Generation Family
Instructions": Shared memory descriptor, Data path layout organization, Scale factor layout).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilepipe.errors import SimFault
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.hardware.tensor_memory import LANES
from tilepipe.machine.agents import Agent
from tilepipe.machine.cta import Cta
from tilepipe.machine.happens_before.accesses import Rect
from tilepipe.machine.memory.instruction_descriptor import EXPANDED, Shape
from tilepipe.machine.memory.matrix_operands import MatrixDescriptor, operand_places
from tilepipe.machine.memory.storage import truncated
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tiles import ByteSpace
from tilepipe.machine.sites import Site

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint32]


class Operand(NamedTuple):
    """A or B of one CTA in shared memory: the bytes (rows, 32), or, of an operand whose M or N is
    contiguous, (rows, elements along K, bytes of an element).
    """

    space: ByteSpace
    places: npt.NDArray[np.int64]
    dtype: DType

    def values(self) -> Array:
        """(rows, elements along K), numbers."""
        raw = np.ascontiguousarray(self.space.memory[self.places])
        return numbers(raw.reshape(len(raw), -1), self.dtype)


def expanded(raw: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.uint8]:
    """Bytes (rows, n), with 16 elements of `width` bits at the start of each 16 bytes, as one byte
    for each element: (rows, n).
    """
    chunks = raw.reshape(-1, 16)[:, : 2 * width]
    each = np.unpackbits(chunks, axis=1, bitorder="little").reshape(-1, 16, width)
    return np.packbits(each, axis=2, bitorder="little").reshape(raw.shape)


def held_numbers(words: Words, dtype: DType, site: Site) -> Array:
    """Words of tensor memory (rows, n) as float32. Elements of 4 and 6 bits of kinds for 8 stand in
    the middle of a byte each, as tcgen05.cp decompresses them: 00xxxx00 and 0xxxxxx0.
    """
    raw = words.view(np.uint8)
    if dtype not in EXPANDED:
        return numbers(raw, dtype)
    first = (8 - EXPANDED[dtype]) // 2
    codes = raw >> first & (1 << EXPANDED[dtype]) - 1
    if (codes << first != raw).any():
        raise SimFault(
            f"{site.what}: A of {dtype.name} in tensor memory has bits set outside of the middle"
            f" {EXPANDED[dtype]} of a byte (PTX ISA, tcgen05, Packing formats)",
            site.loc,
        )
    return codes.view(dtype.numpy).astype(np.float32)


def numbers(raw: npt.NDArray[np.uint8], dtype: DType) -> Array:
    """Bytes (rows, n) as float32, or of tf32 its upper 19 bits."""
    if dtype in EXPANDED:
        return expanded(raw, EXPANDED[dtype]).view(dtype.numpy).astype(np.float32)
    if dtype is dtypes.float4_e2m1:
        codes = np.stack([raw & 15, raw >> 4], -1).reshape(len(raw), -1)
        return codes.view(dtype.numpy).astype(np.float32)
    if dtype is dtypes.float32:
        return truncated(raw)
    return raw.view(dtype.numpy).astype(np.float32)


@dataclass(frozen=True, slots=True)
class TensorOperand:
    """Words of tensor memory: `columns` from `column`, in `lanes`. `folds`: how many parts of the
    columns of the matrix lie below each other (PTX ISA, "Data path layout organization"): 2 for 64
    rows of each CTA of a pair, or of .ws, whose right half is in the upper 64 lanes; 4 for 32 rows
    of .ws, a quarter of the columns in each 32 lanes. `twice`: the upper 64 lanes hold the same as
    the lower ones.
    """

    tm: TensorMemory
    lanes: npt.NDArray[np.int64]
    column: int
    columns: int
    folds: int = 1
    twice: bool = False

    def words(self) -> Words:
        """(rows, columns), a copy."""
        part = self.tm.columns[self.column : self.column + self.columns]
        words = np.ascontiguousarray(part[:, self.lanes].T)
        return np.concatenate(np.split(words, self.folds), axis=1) if self.folds > 1 else words

    def rows(self, site: Site) -> Words:
        """The words of the rows of A.

        Raises:
            SimFault: the two halves of the lanes differ where both hold them.
        """
        words = self.words()
        if not self.twice:
            return words
        lower, upper = np.split(words, 2)
        if (lower != upper).any():
            lane = int(np.nonzero((lower != upper).any(axis=1))[0][0])
            raise SimFault(
                f"{site.what}: A in tensor memory differs between lanes {lane} and"
                f" {lane + LANES // 2} from column {self.column} on; with 64 rows in each CTA of a"
                " pair the upper 64 lanes hold the same rows as the lower ones",
                site.loc,
            )
        return lower

    def put(self, words: Words, skipped: Array | None = None) -> None:
        """Writes them; `skipped`: lanes that keep what they hold."""
        if self.folds > 1:
            words = np.concatenate(np.split(words, self.folds, axis=1))
        kept = slice(None) if skipped is None else ~skipped[self.lanes]
        target = self.tm.columns[self.column : self.column + self.columns]
        target[:, self.lanes[kept]] = words[kept].T

    def rects(self) -> list[Rect]:
        """The rectangles of lanes and columns that it covers: all lanes, or 16 of each 32."""
        last = self.column + self.columns
        if len(self.lanes) == LANES:
            return [(0, LANES, self.column, last)]
        firsts = self.lanes[:: min(16, len(self.lanes))]
        return [(int(f), int(f) + 16, self.column, last) for f in firsts]


class ScaleOperand(NamedTuple):
    """Scale factors of `rows` rows from a column, `vector` of each from byte `first` on.

    All four groups of 32 lanes hold the same. `halves`: those of B of a pair with 64 rows in each
    CTA, whose upper two groups are for the right half of the accumulator's columns, and hold the
    factors of that half.
    """

    tm: TensorMemory
    column: int
    rows: int
    first: int
    vector: int
    dtype: DType
    halves: bool = False

    @property
    def columns(self) -> int:
        return -(-self.rows // (64 if self.halves else 32))

    def rect(self) -> Rect:
        return 0, LANES, self.column, self.column + self.columns

    def values(self, site: Site) -> npt.NDArray[np.float64]:
        """(rows, vector)."""
        words = self.tm.columns[self.column : self.column + self.columns]
        parts, groups = (
            (2, "two groups of 32 lanes of a half")
            if self.halves
            else (1, "four groups of 32 lanes")
        )
        words = words.reshape(self.columns, parts, -1, 32).transpose(1, 0, 2, 3)
        if (words != words[:, :, :1]).any():
            raise SimFault(
                f"{site.what}: the {groups} hold different scale factors from column"
                f" {self.column} on (PTX ISA, tcgen05.mma, scale factor layout)",
                site.loc,
            )
        raw = np.ascontiguousarray(words[:, :, 0]).view(np.uint8).reshape(-1, 4)[: self.rows]
        codes = np.ascontiguousarray(raw[:, self.first : self.first + self.vector])
        if self.dtype is dtypes.float8_e4m3 and (codes & 0x80).any():
            raise SimFault(f"{site.what}: a scale factor of ue4m3 has its sign bit set", site.loc)
        return codes.view(self.dtype.numpy).astype(np.float64)


def check_inside(ag: Agent, site: Site, tm: TensorMemory, column: int, columns: int) -> None:
    """Raises SimFault where columns are not all of one live allocation of the CTA."""
    for a in tm.allocations.values():
        if a.column <= column and column + columns <= a.column + a.columns:
            return
    held = ", ".join(f"{a.column}..{a.column + a.columns - 1}" for a in tm.allocations.values())
    raise SimFault(
        f"{site.what}: {ag} accesses columns {column}..{column + columns - 1} of tensor memory;"
        f" allocated are {held or 'none'}",
        site.loc,
    )


def shared_operand(
    site: Site, cta: Cta, bits: int, dtype: DType, rows: int, *, k_major: bool
) -> Operand:
    """A or B of a CTA, by its matrix descriptor; `rows`: its extent in M or N."""
    descriptor = MatrixDescriptor.of_tcgen05(bits)
    if descriptor.wide != (dtype is dtypes.float32 and not k_major):
        raise SimFault(
            f"{site.what}: matrix descriptor {bits:#018x}: the swizzle of 128 bytes with an"
            " atomicity of 32 is for tf32 with M or N contiguous, and this is the only one there;"
            f" the operand is {dtype.name} with {'K' if k_major else 'M or N'} contiguous (PTX ISA,"
            " tcgen05, Valid combinations of type-size, major-ness and swizzling)",
            site.loc,
        )
    element = 1 if dtype.bits < 8 else dtype.nbytes
    places = operand_places(descriptor, rows, element, k_major=k_major)
    return Operand(cta.bytes(), places, dtype)


def tensor_operand(
    ag: Agent, site: Site, tm: TensorMemory, address: int, rows: int, columns: int,
    *, folds: int = 1,
) -> TensorOperand:  # fmt: skip
    """The words of `rows` rows from an address: all lanes, or 16 of each 32 for 64 rows; or, with
    `folds`, all lanes and a part of the columns.
    """
    lane, column = address >> 16, address & 0xFFFF
    columns //= folds
    check_inside(ag, site, tm, column, columns)
    if rows * folds == LANES and lane == 0:
        lanes = np.arange(LANES)
    elif folds == 1 and rows == LANES // 2 and lane in (0, 16):
        row = np.arange(rows)
        lanes = row // 16 * 32 + row % 16 + lane
    else:
        raise SimFault(
            f"{site.what}: {rows} rows from lane {lane} of tensor memory (PTX ISA, Data path layout"
            " organization)",
            site.loc,
        )
    return TensorOperand(tm, lanes, column, columns, folds)


class Scaling(NamedTuple):
    """Addresses of the scale factors of A and B, and how many a row has (`.scale_vec`)."""

    a: int
    b: int
    vector: int


def scale_operands(
    ag: Agent, site: Site, tm: TensorMemory, shape: Shape, rows: int, scaling: Scaling | None
) -> tuple[ScaleOperand | None, ScaleOperand | None]:
    """The scale factors of A and of B, or None where there are none. `rows`: M of one CTA."""
    if scaling is None or shape.scale is None:
        return None, None
    halves = rows == LANES // 2
    if halves and shape.cols % 64:
        raise SimFault(
            f"{site.what}: scale factors of B with M = 128 of a pair and N = {shape.cols}, which is"
            " not a multiple of 64, are not modelled",
            site.loc,
        )
    found = []
    for address, extent, first, halved in (
        (scaling.a, rows, shape.a_scale, False), (scaling.b, shape.cols, shape.b_scale, halves)
    ):  # fmt: skip
        # CUTLASS keeps the id of the scale in bits 30 and 31, and in the instruction descriptor.
        if lane := address >> 16 & 0x3FFF:
            raise SimFault(
                f"{site.what}: scale factors from lane {lane} of tensor memory; they begin in lane"
                " 0",
                site.loc,
            )
        scale = ScaleOperand(
            tm, address & 0xFFFF, extent, first, scaling.vector, shape.scale, halved
        )
        check_inside(ag, site, tm, scale.column, scale.columns)
        found.append(scale)
    return found[0], found[1]
