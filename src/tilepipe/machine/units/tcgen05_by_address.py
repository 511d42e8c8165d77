"""tcgen05 for programs that know descriptors and addresses alone.

Operands in shared memory are named by matrix descriptors, accumulators, operands and scale factors
in tensor memory by (lane << 16) + column, and shapes and types by the instruction descriptor (PTX
ISA, "TensorCore 5th Generation Family Instructions": Instruction descriptor, Shared memory
descriptor, Data path layout organization). Everything that is read and written is ordered as for
the ops that name tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilepipe.errors import SimFault
from tilepipe.ir import dtypes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.hardware.tensor_memory import COLUMNS, LANES
from tilepipe.machine import cost
from tilepipe.machine.agents import Agent, tensor_state
from tilepipe.machine.cta import Cta, memory_of
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.conflicts import access, read
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_access import asynchronous
from tilepipe.machine.memory.byte_sets import ByteSet
from tilepipe.machine.memory.fragments import Frag, WarpMatrix
from tilepipe.machine.memory.matrix_operands import MatrixDescriptor, operand_places
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tiles import ByteSpace
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import TensorUnit
from tilepipe.machine.units.tcgen05 import queue_of
from tilepipe.machine.units.tma import one_lane

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint32]
K_BYTES = 32  # of each row that one instruction reads

_F16 = {0: dtypes.float16, 1: dtypes.bfloat16}
# Elements of 4 and 6 bits of kinds for 8: 16 of them stand at the start of 16 bytes of shared
# memory (PTX ISA, "Packing formats": .b4x16_p64, .b6x16_p32).
_EXPANDED = {
    DType("float6_e2m3", 8, np.dtype(ml_dtypes.float6_e2m3fn), "float"): 6,
    DType("float6_e3m2", 8, np.dtype(ml_dtypes.float6_e3m2fn), "float"): 6,
    DType("float4_e2m1 in 8 bits", 8, np.dtype(ml_dtypes.float4_e2m1fn), "float"): 4,
}
_F8 = {0: dtypes.float8_e4m3, 1: dtypes.float8_e5m2, **dict(zip((3, 4, 5), _EXPANDED, strict=True))}
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
        if dtype in _EXPANDED and not k_major:
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


def numbers(raw: npt.NDArray[np.uint8], dtype: DType) -> Array:
    """Bytes (rows, n) as float32, or of tf32 its upper 19 bits."""
    if dtype in _EXPANDED:
        width = _EXPANDED[dtype]
        chunks = raw.reshape(-1, 16)[:, : 2 * width]
        each = np.unpackbits(chunks, axis=1, bitorder="little").reshape(-1, 16, width)
        codes = np.packbits(each, axis=2, bitorder="little")[..., 0]
        return codes.view(dtype.numpy).astype(np.float32).reshape(len(raw), -1)
    if dtype is dtypes.float4_e2m1:
        codes = np.stack([raw & 15, raw >> 4], -1).reshape(len(raw), -1)
        return codes.view(dtype.numpy).astype(np.float32)
    if dtype is dtypes.float32:
        return (raw.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return raw.view(dtype.numpy).astype(np.float32)


@dataclass(frozen=True, slots=True)
class TensorOperand:
    """Words of tensor memory: `columns` from `column`, in the lanes of `rects`. `halves`: 64 rows
    in 128 lanes, the right half of whose columns is in the upper lanes (PTX ISA, "Data path layout
    organization": M = 128 with .cta_group::2).
    """

    tm: TensorMemory
    lanes: npt.NDArray[np.int64]
    column: int
    columns: int
    halves: bool = False

    def words(self) -> Words:
        """(rows, columns), a copy."""
        part = self.tm.columns[self.column : self.column + self.columns]
        words = np.ascontiguousarray(part[:, self.lanes].T)
        return np.concatenate(np.split(words, 2), axis=1) if self.halves else words

    def put(self, words: Words, skipped: Array | None = None) -> None:
        """Writes them; `skipped`: lanes that keep what they hold."""
        if self.halves:
            words = np.concatenate(np.split(words, 2, axis=1))
        kept = slice(None) if skipped is None else ~skipped[self.lanes]
        target = self.tm.columns[self.column : self.column + self.columns]
        target[:, self.lanes[kept]] = words[kept].T

    def rects(self) -> list[Rect]:
        """What of lanes and columns it covers: 16 lanes each, or all."""
        last = self.column + self.columns
        if len(self.lanes) == LANES:
            return [(0, LANES, self.column, last)]
        firsts = self.lanes[:: min(16, len(self.lanes))]
        return [(int(f), int(f) + 16, self.column, last) for f in firsts]


class ScaleOperand(NamedTuple):
    """Scale factors of `rows` rows from a column, `vector` of each from byte `first` on."""

    tm: TensorMemory
    column: int
    rows: int
    first: int
    vector: int
    dtype: DType

    @property
    def columns(self) -> int:
        return -(-self.rows // 32)

    def rect(self) -> Rect:
        return 0, LANES, self.column, self.column + self.columns

    def values(self, site: Site) -> npt.NDArray[np.float64]:
        """(rows, vector)."""
        words = self.tm.columns[self.column : self.column + self.columns].reshape(-1, 4, 32)
        if (words != words[:, :1]).any():
            raise SimFault(
                f"{site.what}: the four groups of 32 lanes hold different scale factors from column"
                f" {self.column} on (PTX ISA, tcgen05.mma, scale factor layout)",
                site.loc,
            )
        raw = np.ascontiguousarray(words[:, 0]).view(np.uint8).reshape(-1, 4)[: self.rows]
        codes = np.ascontiguousarray(raw[:, self.first : self.first + self.vector])
        if self.dtype is dtypes.float8_e4m3 and (codes & 0x80).any():
            raise SimFault(f"{site.what}: a scale factor of ue4m3 has its sign bit set", site.loc)
        return codes.view(self.dtype.numpy).astype(np.float64)


@dataclass(eq=False, repr=False, slots=True)
class MmaPart:
    """What an MMA works on in one CTA."""

    acc: TensorOperand
    a: Operand | TensorOperand
    b: Operand
    a_scale: ScaleOperand | None
    b_scale: ScaleOperand | None


@dataclass(eq=False, repr=False, slots=True)
class AddressedMma(TensorUnit):
    """One MMA in flight."""

    shape: Shape
    adds: bool
    parts: list[MmaPart]
    skipped: Array | None


@dataclass(eq=False, repr=False, slots=True)
class AddressedCopy(TensorUnit):
    """One tcgen05.cp in flight: bytes of each CTA, to its tensor memory; `lanes`: those of its
    rows, for each time that they are written.
    """

    lanes: tuple[slice, ...]
    parts: list[tuple[ByteSpace, npt.NDArray[np.int64], TensorMemory, int]]


def multiply(m: Machine, unit: AddressedMma) -> None:
    """An MMA is computed: for each CTA, its rows of A by all of B."""
    b = np.concatenate([part.b.values() for part in unit.parts])
    for part in unit.parts:
        if isinstance(part.a, Operand):
            a = part.a.values()
        else:
            a = numbers(part.a.words().view(np.uint8), unit.shape.a)
        if part.a_scale is not None and part.b_scale is not None:
            product = _scaled(unit, part, a, b)
        else:
            product = a @ b.T
        if unit.shape.negated:
            product = -product
        _accumulate(unit, part.acc, product)
    unit.queue.done |= unit.bits


def _accumulate(unit: AddressedMma, acc: TensorOperand, product: Array) -> None:
    """The accumulator gets a product, or is added to: float32, float16 in the lower half of its
    columns, or int32.
    """
    kind = unit.shape.accumulator
    if kind is dtypes.float32:
        if unit.adds:
            product = acc.words().view(np.float32) + product
        acc.put(product.astype(np.float32).view(np.uint32), unit.skipped)
    elif kind is dtypes.float16:
        if unit.adds:
            there = acc.words().astype(np.uint16).view(np.float16)
            product = there.astype(np.float64) + product
        halves = product.astype(np.float16).view(np.uint16)
        acc.put(halves.astype(np.uint32), unit.skipped)
    else:
        total = product.astype(np.int64)  # exact in float32, too
        if unit.adds:
            total = total + acc.words().view(np.int32)
        if unit.shape.saturates:
            total = np.clip(total, -(1 << 31), (1 << 31) - 1)
        acc.put(total.astype(np.int32).view(np.uint32), unit.skipped)


def _scaled(unit: AddressedMma, part: MmaPart, a: Array, b: Array) -> Array:
    """The product of scaled numbers, exact in float64."""
    assert part.a_scale is not None
    assert part.b_scale is not None
    block = a.shape[1] // part.a_scale.vector
    left = a.astype(np.float64) * np.repeat(part.a_scale.values(unit.site), block, axis=1)
    right = b.astype(np.float64) * np.repeat(part.b_scale.values(unit.site), block, axis=1)
    product: Array = (left @ right.T).astype(np.float32)
    return product


def copy(m: Machine, unit: AddressedCopy) -> None:
    """A copy is made: rows of words, each to one or several lanes."""
    for space, places, tm, column in unit.parts:
        words = np.ascontiguousarray(space.memory[places]).view(np.uint32)  # (rows, columns)
        for lanes in unit.lanes:
            tm.columns[column : column + words.shape[1], lanes] = words.T
    unit.queue.done |= unit.bits


# -- ops -------------------------------------------------------------------------------


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


def _group(m: Machine, ag: Agent, site: Site, group: int) -> list[Cta]:
    if group == 1:
        return [ag.cta]
    if ag.cta.rank & 1:
        raise SimFault(
            f"{site.what}: {ag} issues it in CTA rank {ag.cta.rank}; with .cta_group::2 the even"
            " CTA of a pair issues for both (PTX ISA, tcgen05, Issue granularity)",
            site.loc,
        )
    return m.ctas[ag.cta.rank : ag.cta.rank + 2]


def _in_tensor_memory(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    tm: TensorMemory,
    rects: list[Rect],
    known: int,
    *,
    writes: bool,
    reads: bool,
) -> int:
    """Orders an access of the tensor core to tensor memory; returns its bits."""
    bits = 0
    for rect in rects:
        record = Access(ag, site, mask, rect, writes, True, m.order.new_bit())
        record.fenced = record.bit
        bits |= record.bit | (read if reads else access)(m, tm, record, known)
        if writes:
            tm.written(rect)
    return bits


def _in_shared(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    cta: Cta,
    places: npt.NDArray[np.int64],
    known: int,
) -> int:
    space = cta.bytes()
    record = asynchronous(m, ag, site, mask, space, ByteSet.of(places), is_write=False)
    return record.bit | read(m, space, record, known)


def _operand(site: Site, cta: Cta, bits: int, dtype: DType, rows: int, *, k_major: bool) -> Operand:
    descriptor = MatrixDescriptor.of_tcgen05(bits)
    element = 1 if dtype.bits < 8 else dtype.nbytes
    places = operand_places(descriptor, rows, element, k_major=k_major)
    return Operand(cta.bytes(), places, dtype)


class Scaling(NamedTuple):
    """Addresses of the scale factors of A and B, and how many a row has (`.scale_vec`)."""

    a: int
    b: int
    vector: int


def mma_by_descriptor(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    kind: str,
    group: int,
    acc: int,
    a: int,
    b: int,
    idesc: int,
    adds: bool,
    *,
    a_in_tensor_memory: bool = False,
    scaling: Scaling | None = None,
    skipped: Array | None = None,
) -> None:
    """tcgen05.mma. `acc`: an address in tensor memory. `a`, `b`: matrix descriptors; A may be in
    tensor memory, at an address. `skipped`: lanes of the accumulator that keep what they hold.
    """
    lane = one_lane(ag, site, mask, "MMAs are issued")
    shape = shape_of(site, kind, idesc)
    _check_shape(site, shape, group)
    queue = queue_of(ag, lane)
    known = ag.known(mask) | queue.issued
    rows = shape.rows // group
    bits, parts = 0, []
    start = ag.time
    for cta in _group(m, ag, site, group):
        tm = memory_of(cta)
        target = _accumulator(ag, site, tm, acc, rows, shape.cols, pair=group == 2)
        operand_b = _operand(site, cta, b, shape.b, shape.cols // group, k_major=shape.b_k_major)
        bits |= _in_shared(m, ag, site, mask, cta, operand_b.places, known)
        operand_a: Operand | TensorOperand
        if a_in_tensor_memory:
            if shape.a in _EXPANDED or (group == 2 and rows != LANES):
                raise SimFault(
                    f"{site.what}: A of {shape.a}, {rows} rows, in tensor memory is not modelled",
                    site.loc,
                )
            operand_a = _accumulator(ag, site, tm, a, rows, K_BYTES // 4)
            bits |= _in_tensor_memory(
                m, ag, site, mask, tm, operand_a.rects(), known, writes=False, reads=True
            )
        else:
            operand_a = _operand(site, cta, a, shape.a, rows, k_major=shape.a_k_major)
            bits |= _in_shared(m, ag, site, mask, cta, operand_a.places, known)
        scales = _scales(ag, site, tm, shape, rows, scaling)
        for scale in scales:
            if scale is not None:
                bits |= _in_tensor_memory(
                    m, ag, site, mask, tm, [scale.rect()], known, writes=False, reads=True
                )
        bits |= _in_tensor_memory(
            m, ag, site, mask, tm, target.rects(), known, writes=True, reads=adds
        )
        parts.append(MmaPart(target, operand_a, operand_b, *scales))
        start = max(start, cta.tensor_free)
    depth = K_BYTES * 8 // shape.a.bits
    flops = 2 * rows * shape.cols * depth
    end = start + flops / cost.TCGEN05_FLOPS_PER_CYCLE[shape.b.bits]
    for cta in _group(m, ag, site, group):
        cta.tensor_free = end
    queue.end = max(queue.end, end)
    queue.issued |= bits
    queue.uncommitted += 1
    m.issue(queue, AddressedMma(site, queue, bits, shape, adds, parts, skipped))


def _check_shape(site: Site, shape: Shape, group: int) -> None:
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


def _accumulator(
    ag: Agent, site: Site, tm: TensorMemory, address: int, rows: int, columns: int,
    *, pair: bool = False,
) -> TensorOperand:  # fmt: skip
    """The words of `rows` rows from an address: all lanes, or 16 of each 32 for 64 rows; of a pair
    with 64 rows in each CTA all lanes and half of the columns.
    """
    lane, column = address >> 16, address & 0xFFFF
    if pair and rows == LANES // 2 and lane == 0:
        check_inside(ag, site, tm, column, columns // 2)
        return TensorOperand(tm, np.arange(LANES), column, columns // 2, halves=True)
    check_inside(ag, site, tm, column, columns)
    if rows == LANES and lane == 0:
        lanes = np.arange(LANES)
    elif rows == LANES // 2 and lane in (0, 16):
        row = np.arange(rows)
        lanes = row // 16 * 32 + row % 16 + lane
    else:
        raise SimFault(
            f"{site.what}: {rows} rows from lane {lane} of tensor memory (PTX ISA, Data path layout"
            " organization)",
            site.loc,
        )
    return TensorOperand(tm, lanes, column, columns)


def _scales(
    ag: Agent, site: Site, tm: TensorMemory, shape: Shape, rows: int, scaling: Scaling | None
) -> tuple[ScaleOperand | None, ScaleOperand | None]:
    if scaling is None or shape.scale is None:
        return None, None
    found = []
    for address, extent, first in (
        (scaling.a, rows, shape.a_scale),
        (scaling.b, shape.cols, shape.b_scale),
    ):
        if address >> 16 or first + scaling.vector > 4:
            raise SimFault(
                f"{site.what}: scale factors at {address:#x}, {scaling.vector} from byte {first}",
                site.loc,
            )
        scale = ScaleOperand(tm, address & 0xFFFF, extent, first, scaling.vector, shape.scale)
        check_inside(ag, site, tm, scale.column, scale.columns)
        found.append(scale)
    return found[0], found[1]


# What tcgen05.cp copies -> (rows, bits of a row, lanes of each copy of them)
COPIES: dict[str, tuple[int, int, tuple[slice, ...]]] = {
    "32x128b.warpx4": (32, 128, tuple(slice(32 * i, 32 * i + 32) for i in range(4))),
    "128x256b": (128, 256, (slice(0, 128),)),
    "128x128b": (128, 128, (slice(0, 128),)),
    "64x128b.warpx2::02_13": (64, 128, (slice(0, 64), slice(64, 128))),
}


def _rows(bits: int, rows: int, nbytes: int) -> npt.NDArray[np.int64]:
    """The bytes of `rows` rows that a descriptor names: (rows, bytes)."""
    descriptor = MatrixDescriptor.of_tcgen05(bits)
    # a row of the matrix has 32 bytes: two core matrices
    places = operand_places(descriptor, rows, 1, k_major=True)
    return places.reshape(rows, -1)[:, :nbytes]


def copy_by_descriptor(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    group: int,
    address: int,
    bits: int,
    form: str = "32x128b.warpx4",
) -> None:
    """tcgen05.cp: rows of shared memory to lanes of tensor memory. `form`: of `COPIES`."""
    rows, width, lanes = COPIES[form]
    lane = one_lane(ag, site, mask, "copies are made")
    queue = queue_of(ag, lane)
    known = ag.known(mask) | queue.issued
    places = _rows(bits, rows, width // 8)
    columns = width // 32
    if address >> 16:
        raise SimFault(f"{site.what}: a copy to lane {address >> 16}", site.loc)
    found, parts = 0, []
    for cta in _group(m, ag, site, group):
        tm = memory_of(cta)
        column = address & 0xFFFF
        check_inside(ag, site, tm, column, columns)
        found |= _in_shared(m, ag, site, mask, cta, places, known)
        rects = [(part.start, part.stop, column, column + columns) for part in lanes]
        if len(rects) * rows == LANES:
            rects = [(0, LANES, column, column + columns)]
        found |= _in_tensor_memory(m, ag, site, mask, tm, rects, known, writes=True, reads=False)
        parts.append((cta.bytes(), places, tm, column))
    queue.end = max(queue.end, ag.time)
    queue.issued |= found
    queue.uncommitted += 1
    m.issue(queue, AddressedCopy(site, queue, found, lanes, parts))


def load_words(
    m: Machine, ag: Agent, site: Site, mask: int, address: int, rows: int, columns: int
) -> Words:
    """tcgen05.ld by a warp: the words (rows, columns) from an address, a copy."""
    tm, rect = _of_warp(ag, site, address, rows, columns)
    ag.converge(mask)
    record = Access(ag, site, mask, rect, False, True, m.order.new_bit())
    record.fenced = m.order.new_bit()
    read(m, tm, record, ag.known(mask))
    registers = Frag(WarpMatrix("registers", dtypes.uint32, 1, 1))
    tensor_state(ag).loads.append((registers, 0, record))
    r0, r1, c0, c1 = rect
    return np.ascontiguousarray(tm.columns[c0:c1, r0:r1].T)


def store_words(m: Machine, ag: Agent, site: Site, mask: int, address: int, words: Words) -> None:
    """tcgen05.st by a warp: `words`, (rows, columns), to an address."""
    tm, rect = _of_warp(ag, site, address, *words.shape)
    ag.converge(mask)
    record = Access(ag, site, mask, rect, True, True, m.order.new_bit())
    record.fenced = m.order.new_bit()
    access(m, tm, record, ag.known(mask))
    tensor_state(ag).stores.append(record)
    tm.written(rect)
    r0, r1, c0, c1 = rect
    tm.columns[c0:c1, r0:r1] = words.T


def _of_warp(
    ag: Agent, site: Site, address: int, rows: int, columns: int
) -> tuple[TensorMemory, Rect]:
    """What a warp accesses, of its quarter of the lanes (PTX ISA, tcgen05.ld)."""
    tm = memory_of(ag.cta)
    lane, column = address >> 16, address & 0xFFFF
    quarter = ag.first_warp % 4
    if lane // 32 != quarter or lane % 32 + rows > 32 or lane % 16:
        raise SimFault(
            f"{site.what}: {ag} accesses {rows} lanes from lane {lane} of tensor memory; warp"
            f" {quarter} of a warpgroup reaches lanes {32 * quarter}..{32 * quarter + 31}",
            site.loc,
        )
    if column + columns > COLUMNS:
        raise SimFault(f"{site.what}: columns {column}..{column + columns - 1} of 512", site.loc)
    check_inside(ag, site, tm, column, columns)
    return tm, (lane, lane + rows, column, column + columns)
