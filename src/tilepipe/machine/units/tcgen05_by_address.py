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
SCALE_COPIES = 4  # groups of 32 lanes, which hold the same scale factors

_F16 = {0: dtypes.float16, 1: dtypes.bfloat16}
_F8 = {0: dtypes.float8_e4m3, 1: dtypes.float8_e5m2}
# kind -> code in the instruction descriptor -> type of A and of B
ELEMENTS: dict[str, dict[int, DType]] = {
    "f16": _F16,
    "tf32": {2: dtypes.float32},
    "f8f6f4": _F8,
    "mxf8f6f4": _F8,
    "mxf4": {1: dtypes.float4_e2m1},
    "mxf4nvf4": {1: dtypes.float4_e2m1},
}


class Shape(NamedTuple):
    """What an instruction descriptor says.

    Attributes:
        rows, cols: M and N of the product, of both CTAs of a pair together.
        a, b: types of the elements. a_k_major, b_k_major: whether K is contiguous.
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


def shape_of(site: Site, kind: str, bits: int) -> Shape:
    """Decodes the instruction descriptor of `.kind::kind` (PTX ISA, "Instruction descriptor").

    Raises:
        SimFault: it asks for what is not modelled, or is reserved.
    """
    scaled = kind.startswith("mx")
    reserved = 0x8700004F if scaled else 0xE080004F
    wrong = bits & reserved
    if not scaled and bits >> 4 & 3 != 1:
        wrong = wrong or bits & 0x30 or 0x10
    if wrong or bits >> 13 & 3:
        raise SimFault(
            f"{site.what}: instruction descriptor {bits:#010x} of kind::{kind}: the bits"
            f" {wrong | bits & 0x6000:#x} ask for sparsity, negation, saturation or an accumulator"
            " that is not float32, none of which is modelled",
            site.loc,
        )
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
    if not scaled:
        return Shape((bits >> 24 & 31) * 16, cols, a, b, *majors)
    scale = dtypes.float8_e8m0 if bits >> 23 & 1 else dtypes.float8_e4m3
    return Shape((bits >> 27 & 3) * 128, cols, a, b, *majors, scale, bits >> 29 & 3, bits >> 4 & 3)


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
    if dtype is dtypes.float4_e2m1:
        codes = np.stack([raw & 15, raw >> 4], -1).reshape(len(raw), -1)
        return codes.view(dtype.numpy).astype(np.float32)
    if dtype is dtypes.float32:
        return (raw.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return raw.view(dtype.numpy).astype(np.float32)


@dataclass(frozen=True, slots=True)
class TensorOperand:
    """Words of tensor memory: `columns` from `column`, in the lanes of `rects`."""

    tm: TensorMemory
    lanes: npt.NDArray[np.int64]
    column: int
    columns: int

    def words(self) -> Words:
        """(lanes, columns), a copy."""
        part = self.tm.columns[self.column : self.column + self.columns]
        return np.ascontiguousarray(part[:, self.lanes].T)

    def put(self, words: Words) -> None:
        self.tm.columns[self.column : self.column + self.columns, self.lanes] = words.T

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


@dataclass(eq=False, repr=False, slots=True)
class AddressedCopy(TensorUnit):
    """One tcgen05.cp in flight: bytes of each CTA, to its tensor memory."""

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
        if unit.adds:
            product = part.acc.words().view(np.float32) + product
        part.acc.put(product.astype(np.float32).view(np.uint32))
    unit.queue.done |= unit.bits


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
    """A copy is made: 32 rows of 16 bytes, to all four groups of 32 lanes."""
    for space, places, tm, column in unit.parts:
        words = np.ascontiguousarray(space.memory[places]).view(np.uint32)  # (32, 4)
        tm.columns[column : column + 4] = np.tile(words.T, (1, SCALE_COPIES))
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
) -> None:
    """tcgen05.mma. `acc`: an address in tensor memory. `a`, `b`: matrix descriptors; A may be in
    tensor memory, at an address.
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
        target = _accumulator(ag, site, tm, acc, rows, shape.cols)
        operand_b = _operand(site, cta, b, shape.b, shape.cols // group, k_major=shape.b_k_major)
        bits |= _in_shared(m, ag, site, mask, cta, operand_b.places, known)
        operand_a: Operand | TensorOperand
        if a_in_tensor_memory:
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
    m.issue(queue, AddressedMma(site, queue, bits, shape, adds, parts))


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
    ag: Agent, site: Site, tm: TensorMemory, address: int, rows: int, columns: int
) -> TensorOperand:
    """The words of `rows` rows from an address: all lanes, or 16 of each 32 for 64 rows."""
    lane, column = address >> 16, address & 0xFFFF
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


def copy_by_descriptor(
    m: Machine, ag: Agent, site: Site, mask: int, group: int, address: int, bits: int
) -> None:
    """tcgen05.cp.32x128b.warpx4: 32 rows of 16 bytes to each 32 lanes of four columns."""
    lane = one_lane(ag, site, mask, "copies are made")
    queue = queue_of(ag, lane)
    known = ag.known(mask) | queue.issued
    descriptor = MatrixDescriptor.of_tcgen05(bits)
    places = operand_places(descriptor, 32, 1, k_major=True).reshape(32, -1)[:, :16]
    found, parts = 0, []
    for cta in _group(m, ag, site, group):
        tm = memory_of(cta)
        column = address & 0xFFFF
        check_inside(ag, site, tm, column, 4)
        found |= _in_shared(m, ag, site, mask, cta, places, known)
        found |= _in_tensor_memory(
            m, ag, site, mask, tm, [(0, LANES, column, column + 4)], known, writes=True, reads=False
        )
        parts.append((cta.bytes(), places, tm, column))
    queue.end = max(queue.end, ag.time)
    queue.issued |= found
    queue.uncommitted += 1
    m.issue(queue, AddressedCopy(site, queue, found, parts))


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
