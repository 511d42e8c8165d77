"""tcgen05 for programs that know descriptors and addresses alone.

Operands in shared memory are named by matrix descriptors, accumulators, operands and scale factors
in tensor memory by (lane << 16) + column (`tensor_operands`), and shapes and types by the
instruction descriptor (`instruction_descriptor`). Everything that is read and written is ordered as
for the ops that name tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilepipe.errors import SimFault
from tilepipe.ir import dtypes
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
from tilepipe.machine.memory.instruction_descriptor import EXPANDED, Shape, check_shape, shape_of
from tilepipe.machine.memory.matrix_operands import K_BYTES, MatrixDescriptor, operand_places
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tensor_operands import (
    Array,
    Operand,
    ScaleOperand,
    Scaling,
    TensorOperand,
    Words,
    check_inside,
    numbers,
    scale_operands,
    shared_operand,
    tensor_operand,
)
from tilepipe.machine.memory.tiles import ByteSpace
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import TensorUnit
from tilepipe.machine.units.tcgen05 import queue_of
from tilepipe.machine.units.tma import one_lane


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
    a_in_tensor_memory: bool = False,
    scaling: Scaling | None = None,
    skipped: Array | None = None,
) -> None:
    """tcgen05.mma. `acc`: an address in tensor memory. `a`, `b`: matrix descriptors; A may be in
    tensor memory, at an address. `skipped`: lanes of the accumulator that keep what they hold.
    """
    lane = one_lane(ag, site, mask, "MMAs are issued")
    shape = shape_of(site, kind, idesc)
    check_shape(site, shape, group)
    queue = queue_of(ag, lane)
    known = ag.known(mask) | queue.issued
    rows = shape.rows // group
    bits, parts = 0, []
    start = ag.time
    for cta in _group(m, ag, site, group):
        tm = memory_of(cta)
        target = tensor_operand(ag, site, tm, acc, rows, shape.cols, pair=group == 2)
        operand_b = shared_operand(
            site, cta, b, shape.b, shape.cols // group, k_major=shape.b_k_major
        )
        bits |= _in_shared(m, ag, site, mask, cta, operand_b.places, known)
        operand_a: Operand | TensorOperand
        if a_in_tensor_memory:
            if shape.a in EXPANDED or (group == 2 and rows != LANES):
                raise SimFault(
                    f"{site.what}: A of {shape.a}, {rows} rows, in tensor memory is not modelled",
                    site.loc,
                )
            operand_a = tensor_operand(ag, site, tm, a, rows, K_BYTES // 4)
            bits |= _in_tensor_memory(
                m, ag, site, mask, tm, operand_a.rects(), known, writes=False, reads=True
            )
        else:
            operand_a = shared_operand(site, cta, a, shape.a, rows, k_major=shape.a_k_major)
            bits |= _in_shared(m, ag, site, mask, cta, operand_a.places, known)
        scales = scale_operands(ag, site, tm, shape, rows, scaling)
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
