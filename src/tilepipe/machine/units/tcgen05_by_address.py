"""tcgen05 for programs that know descriptors and addresses alone.

Operands in shared memory are named by matrix descriptors, accumulators, operands and scale factors
in tensor memory by (lane << 16) + column (`tensor_operands`), and shapes and types by the
instruction descriptor (`instruction_descriptor`). Everything that is read and written is ordered as
for the ops that name tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilepipe.errors import SimFault
from tilepipe.ir import dtypes
from tilepipe.ir.hardware.tensor_memory import COLUMNS, LANES, half_rule
from tilepipe.machine.agents import Agent, tensor_state
from tilepipe.machine.cta import Cta, memory_of
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.conflicts import access, read
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_access import asynchronous
from tilepipe.machine.memory.byte_sets import ByteSet
from tilepipe.machine.memory.fragments import Frag, WarpMatrix
from tilepipe.machine.memory.instruction_descriptor import Form, Shape, shape_of
from tilepipe.machine.memory.matrix_operands import K_BYTES, MatrixDescriptor, operand_places
from tilepipe.machine.memory.poison import Loaded
from tilepipe.machine.memory.storage import narrow_sum
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tensor_operands import (
    Array,
    Operand,
    ScaleOperand,
    Scaling,
    TensorOperand,
    Words,
    check_inside,
    expanded,
    held_numbers,
    scale_operands,
    shared_operand,
    tensor_operand,
)
from tilepipe.machine.memory.tiles import ByteSpace
from tilepipe.machine.rules import OWN_LANES
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import TensorUnit
from tilepipe.machine.units.tcgen05 import (
    begun,
    ctas_of,
    issue,
    occupy,
    order_read,
    order_write,
)

WARP_LANES = 32  # that one warp reaches


@dataclass(eq=False, repr=False, slots=True)
class MmaPart:
    """The operands of an MMA in one CTA."""

    acc: TensorOperand
    a: Operand | TensorOperand
    b: Operand
    a_scale: ScaleOperand | None
    b_scale: ScaleOperand | None


@dataclass(eq=False, repr=False, slots=True)
class AddressedMma(TensorUnit):
    """One MMA in flight. `operands`: as they were given."""

    shape: Shape
    operands: Mma
    parts: list[MmaPart]

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal in every execution: no object of one machine."""
        skipped = self.operands.skipped
        return self.operands._replace(skipped=None), None if skipped is None else skipped.tobytes()


@dataclass(eq=False, repr=False, slots=True)
class AddressedCopy(TensorUnit):
    """One tcgen05.cp in flight: bytes of each CTA, to its tensor memory; `lanes`: those that each
    of its rows is written to. `width`: bits of an element that is decompressed, or 8.
    """

    lanes: npt.NDArray[np.int64]
    width: int
    parts: list[tuple[ByteSpace, npt.NDArray[np.int64], TensorMemory, int]]

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal in every execution: no object of one machine."""
        _, places, _, column = self.parts[0]
        return self.lanes.tobytes(), self.width, places.tobytes(), column, len(self.parts)


@dataclass(eq=False, repr=False, slots=True)
class AddressedShift(TensorUnit):
    """One tcgen05.shift in flight: 32 lanes from `lane`, of the tensor memory of each CTA."""

    lane: int
    column: int
    parts: list[TensorMemory]

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal in every execution: no object of one machine."""
        return self.lane, self.column, len(self.parts)


def multiply(m: Machine, unit: AddressedMma) -> None:
    """An MMA is computed: for each CTA, its rows of A by all of B."""
    b = np.concatenate([part.b.values() for part in unit.parts])
    for part in unit.parts:
        if isinstance(part.a, Operand):
            a = part.a.values()
        else:
            a = held_numbers(part.a.rows(unit.site), unit.shape.a, unit.site)
        if part.a_scale is not None and part.b_scale is not None:
            product = _scaled(unit, part, a, b)
        else:
            product = a @ b.T
        if unit.shape.negated:
            product = -product
        _accumulate(unit, part.acc, product)
        if unit.operands.shifts and isinstance(part.a, TensorOperand):
            for lane in range(0, LANES, WARP_LANES):
                _move_down(part.a.tm, lane, part.a.column)
    unit.queue.done |= unit.bits


def _move_down(tm: TensorMemory, lane: int, column: int) -> None:
    """Rows of 32 bytes move one lane down within the 32 lanes of a warp: each lane gets what the
    next one held, and the last keeps what it holds. Which way down is the PTX ISA leaves open;
    CUTLASS's example of .ashift (1cta_mma_a_from_tmem.py) has it from a B200.
    """
    rows = tm.columns[column : column + K_BYTES // 4, lane : lane + WARP_LANES]
    rows[:, :-1] = rows[:, 1:].copy()


def shift(m: Machine, unit: AddressedShift) -> None:
    """A tcgen05.shift is performed."""
    for tm in unit.parts:
        _move_down(tm, unit.lane, unit.column)
    unit.queue.done |= unit.bits


def _accumulate(unit: AddressedMma, acc: TensorOperand, product: Array) -> None:
    """The accumulator gets a product, or is added to: float32, float16 in the lower half of its
    columns, or int32.
    """
    kind, adds, skipped = unit.shape.accumulator, unit.operands.adds, unit.operands.skipped
    factor = 2.0**-unit.operands.halvings
    if kind is dtypes.float32:
        if adds:
            product = acc.words().view(np.float32) * np.float32(factor) + product
        acc.put(product.astype(np.float32).view(np.uint32), skipped)
    elif kind is dtypes.float16:
        if adds:
            there = acc.words().astype(np.uint16).view(np.float16)
            product = there.astype(np.float64) * factor + product
        halves = narrow_sum(product, kind, saturates=False).view(np.uint16)
        acc.put(halves.astype(np.uint32), skipped)
    else:
        total = product.astype(np.int64)  # exact in float32, too
        if adds:
            total = total + acc.words().view(np.int32)
        found = narrow_sum(total, kind, saturates=unit.shape.saturates)
        acc.put(found.view(np.uint32), skipped)


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
        raw = np.ascontiguousarray(space.memory[places])
        if unit.width < 8:
            raw = expanded(raw, unit.width) << np.uint8((8 - unit.width) // 2)
        words = raw.view(np.uint32)  # (rows, columns)
        for lanes in unit.lanes.T:
            tm.columns[column : column + words.shape[1], lanes] = words.T
    unit.queue.done |= unit.bits


# -- ops -------------------------------------------------------------------------------


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


class Mma(NamedTuple):
    """The operands and modifiers of a tcgen05.mma.

    Attributes:
        kind, group: `.kind::` and `.cta_group::`. form: .ws, or none.
        acc: the accumulator's address in tensor memory. a, b: matrix descriptors; A may be in
            tensor memory, at an address. adds: whether the product is added to the accumulator.
        skipped: lanes of the accumulator that keep what they hold.
        shifts: .ashift: the rows of A in tensor memory move one lane down afterwards.
        halvings: the accumulator is first divided by this power of two (scale-input-d).
    """

    kind: str
    group: int
    acc: int
    a: int
    b: int
    idesc: int
    adds: bool
    a_in_tensor_memory: bool = False
    scaling: Scaling | None = None
    skipped: Array | None = None
    form: Form = "plain"
    shifts: bool = False
    halvings: int = 0

    def shape(self, site: Site) -> Shape:
        """The fields of its instruction descriptor."""
        vector = self.scaling.vector if self.scaling is not None else 0
        return shape_of(site, self.kind, self.idesc, self.group, vector, self.form)


def mma_by_descriptor(m: Machine, ag: Agent, site: Site, mask: int, operands: Mma) -> None:
    """tcgen05.mma."""
    queue, known = begun(ag, site, mask, "MMAs are issued")
    shape, group = operands.shape(site), operands.group
    rows = shape.rows // group
    # of a pair with 64 rows in each CTA, and of .ws, all lanes hold a part of the columns each
    folds = LANES // rows if group == 2 or operands.form == "ws" else 1
    bits, parts, ctas = 0, [], ctas_of(m, ag, site, group)
    for cta in ctas:
        tm = memory_of(cta)
        target = tensor_operand(ag, site, tm, operands.acc, rows, shape.cols, folds=folds)
        operand_b = shared_operand(
            site, cta, operands.b, shape.b, shape.cols // group, k_major=shape.b_k_major
        )
        bits |= _in_shared(m, ag, site, mask, cta, operand_b.places, known)
        operand_a: Operand | TensorOperand
        if operands.a_in_tensor_memory:
            operand_a = _a_in_tensor_memory(ag, site, tm, operands, shape, folds)
            rects = operand_a.rects()
            if operands.shifts:
                bits |= order_write(m, ag, site, mask, tm, rects, known, adds=True)
            else:
                for rect in rects:
                    bits |= order_read(m, ag, site, mask, tm, rect, known)
        else:
            operand_a = shared_operand(
                site, cta, operands.a, shape.a, rows, k_major=shape.a_k_major
            )
            bits |= _in_shared(m, ag, site, mask, cta, operand_a.places, known)
        scales = scale_operands(ag, site, tm, shape, rows, operands.scaling)
        for scale in scales:
            if scale is not None:
                bits |= order_read(m, ag, site, mask, tm, scale.rect(), known)
        bits |= order_write(m, ag, site, mask, tm, target.rects(), known, operands.adds)
        parts.append(MmaPart(target, operand_a, operand_b, *scales))
    depth = K_BYTES * 8 // shape.a.bits
    occupy(m, ag, site, queue, ctas, 2 * rows * shape.cols * depth, shape.b.bits)
    issue(m, queue, AddressedMma(site, queue, bits, shape, operands, parts))


def _a_in_tensor_memory(
    ag: Agent, site: Site, tm: TensorMemory, operands: Mma, shape: Shape, folds: int
) -> TensorOperand:
    """A of a CTA in tensor memory. For an accumulator whose right half is in the upper lanes they
    hold A as well (CUTLASS's mma_traits_sm100_frag.hpp, TmemAllocMode::Duplicated).
    """
    rows = shape.rows // operands.group
    broken = ""
    if folds > 1 and operands.group == 1:
        broken = f"{rows} rows of A in tensor memory with .ws"
    elif not shape.a_k_major:
        broken = "A in tensor memory with M contiguous"
    elif operands.shifts and rows != LANES:
        broken = f".ashift with M = {shape.rows}"
    if broken:
        raise SimFault(f"{site.what}: {broken} is not modelled", site.loc)
    if folds > 1:
        found = tensor_operand(ag, site, tm, operands.a, LANES, K_BYTES // 4)
        return replace(found, twice=True)
    if rows < LANES and operands.a >> 16 != operands.acc >> 16:
        raise SimFault(f"{site.what}: {half_rule(operands.a >> 16, operands.acc >> 16)}.", site.loc)
    return tensor_operand(ag, site, tm, operands.a, rows, K_BYTES // 4)


def _warps(*numbers: int) -> npt.NDArray[np.int64]:
    """The lanes of some warps, one warp after the other."""
    lanes = np.arange(WARP_LANES)
    return np.concatenate([lanes + WARP_LANES * number for number in numbers])


# What tcgen05.cp copies -> (bits of a row, the lanes of each row: (rows, times it is written))
COPIES: dict[str, tuple[int, npt.NDArray[np.int64]]] = {
    "32x128b.warpx4": (128, np.stack([_warps(warp) for warp in range(4)], -1)),
    "128x256b": (256, _warps(0, 1, 2, 3)[:, None]),
    "128x128b": (128, _warps(0, 1, 2, 3)[:, None]),
    "64x128b.warpx2::02_13": (128, np.stack([_warps(0, 1), _warps(2, 3)], -1)),
    "64x128b.warpx2::01_23": (128, np.stack([_warps(0, 2), _warps(1, 3)], -1)),
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
    width: int = 8,
) -> None:
    """tcgen05.cp: rows of shared memory to lanes of tensor memory. `form`: of `COPIES`. `width`:
    elements of this many bits, of which 16 stand at the start of 16 bytes, become bytes
    (.b8x16.b6x16_p32, .b8x16.b4x16_p64).
    """
    wide, lanes = COPIES[form]
    queue, known = begun(ag, site, mask, "copies are made")
    places = _rows(bits, len(lanes), wide // 8)
    columns = wide // 32
    if address >> 16:
        raise SimFault(
            f"{site.what}: tcgen05.cp must start at lane 0; the address names lane {address >> 16}",
            site.loc,
        )
    column = address & 0xFFFF
    found, parts = 0, []
    for cta in ctas_of(m, ag, site, group):
        tm = memory_of(cta)
        check_inside(ag, site, tm, column, columns)
        found |= _in_shared(m, ag, site, mask, cta, places, known)
        rects = [(0, LANES, column, column + columns)]
        found |= order_write(m, ag, site, mask, tm, rects, known, adds=False)
        parts.append((cta.bytes(), places, tm, column))
    queue.end = max(queue.end, ag.time)
    issue(m, queue, AddressedCopy(site, queue, found, lanes, width, parts))


def shift_down(m: Machine, ag: Agent, site: Site, mask: int, group: int, address: int) -> None:
    """tcgen05.shift.down: rows of 32 bytes in the 32 lanes of a warp."""
    queue, known = begun(ag, site, mask, "shifts are issued")
    first, column = address >> 16, address & 0xFFFF
    if first % WARP_LANES:
        raise SimFault(
            f"{site.what}: it shifts from lane {first}; the lane is a multiple of {WARP_LANES} (PTX"
            " ISA, tcgen05.shift)",
            site.loc,
        )
    columns, bits, parts = K_BYTES // 4, 0, []
    for cta in ctas_of(m, ag, site, group):
        tm = memory_of(cta)
        check_inside(ag, site, tm, column, columns)
        rects = [(first, first + WARP_LANES, column, column + columns)]
        bits |= order_write(m, ag, site, mask, tm, rects, known, adds=True)
        parts.append(tm)
    queue.end = max(queue.end, ag.time)
    issue(m, queue, AddressedShift(site, queue, bits, first, column, parts))


def load_words(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    address: int,
    rows: int,
    columns: int,
) -> Words:
    """tcgen05.ld by a warp: the words (rows, columns) from an address, a copy. The agent gets to
    know which words are poison (`Agent.poison`).
    """
    tm, rect = _of_warp(m, ag, site, address, rows, columns)
    ag.converge(mask)
    record = Access(ag, site, mask, rect, False, True, m.order.new_bit())
    record.fenced = m.order.new_bit()
    read(m, tm, record, ag.known(mask), ag)
    r0, r1, c0, c1 = rect
    if (origin := ag.found) is not None:
        assert tm.filled is not None
        marks = np.where(tm.filled[r0:r1, c0:c1], np.uint32(0), np.uint32(0xFFFFFFFF))
        ag.found, ag.poison = None, Loaded(origin, marks)
    registers = Frag(WarpMatrix("registers", dtypes.uint32, 1, 1))
    tensor_state(ag).loads.append((registers, 0, record))
    return np.ascontiguousarray(tm.columns[c0:c1, r0:r1].T)


def store_words(m: Machine, ag: Agent, site: Site, mask: int, address: int, words: Words) -> None:
    """tcgen05.st by a warp: `words`, (rows, columns), to an address."""
    tm, rect = _of_warp(m, ag, site, address, *words.shape)
    ag.converge(mask)
    record = Access(ag, site, mask, rect, True, True, m.order.new_bit())
    record.fenced = m.order.new_bit()
    access(m, tm, record, ag.known(mask))
    tensor_state(ag).stores.append(record)
    tm.written(rect)
    r0, r1, c0, c1 = rect
    tm.columns[c0:c1, r0:r1] = words.T


def _of_warp(
    m: Machine, ag: Agent, site: Site, address: int, rows: int, columns: int
) -> tuple[TensorMemory, Rect]:
    """The words that a warp accesses, of its quarter of the lanes (PTX ISA, tcgen05.ld)."""
    tm = memory_of(ag.cta)
    lane, column = address >> 16, address & 0xFFFF
    quarter = ag.first_warp % 4
    if quarter and lane < 32:
        if not m.world.advised(OWN_LANES, site, site):
            m.world.finding(
                OWN_LANES,
                f"{site.what} at {site.loc.short}: {ag} gives lane {lane} of tensor memory, and"
                f" reaches lanes {32 * quarter}..{32 * quarter + 31}",
                site.loc,
                f"Add {32 * quarter} lanes to the address (32 for each warp of the warpgroup).",
                SimFault,
            )
        lane += 32 * quarter
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
