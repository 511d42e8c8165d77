"""Parts of the key of a state: asynchronous units that have not completed, and their operands."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tilepipe.check.engine.key_bits import KeyBits
from tilepipe.machine.barriers.state import TmaLoadUnit
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.memory.matrix_operands import MatrixOperand
from tilepipe.machine.memory.tensor_memory import ScalePlace
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.units.in_flight import (
    CommitUnit,
    CopyUnit,
    MmaUnit,
    ResponseUnit,
    TmaStoreUnit,
    WgmmaGroup,
    WgmmaUnit,
)
from tilepipe.machine.units.tcgen05_by_address import AddressedCopy, AddressedMma, AddressedShift
from tilepipe.machine.units.thread_copies import ThreadArrivalUnit, ThreadCopyUnit
from tilepipe.machine.units.tma_by_address import CopyIn, CopyOut


def open_group(group: WgmmaGroup, names: dict[int, int]) -> Hashable:
    """A group of wgmma to which some warps of the warpgroup have not come."""
    return tuple(sorted(names[a.uid] for a in group.agents)), len(group.units)


def unit(flying: Any, bits: KeyBits) -> Hashable:
    """A copy in flight, or the queue of a tensor core, with all that it will still do."""
    if isinstance(flying, TmaLoadUnit):
        granted = flying.words.tobytes() if isinstance(flying, ResponseUnit) else b""
        return (
            0,
            granted,
            flying.site.id,
            flying.coords,
            flying.lines,
            tile(flying.slot),
            flying.key if isinstance(flying, CopyIn) else flying.write.rect,
            flying.bar.flat,
            flying.bar.cta.rank,
            bits(flying.write.bit),
            0 if flying.seen is None else bits(flying.seen.bit),
        )
    if isinstance(flying, CopyOut):
        accesses = bits(flying.read_bits), bits(flying.written_bits)
        return 2, flying.site.id, flying.source.key, flying.to.key, accesses
    if isinstance(flying, TmaStoreUnit):
        accesses = bits(flying.read_bits), bits(flying.written_bits)
        place = tile(flying.tile), flying.read.rect, flying.coords, flying.rows
        return 3, flying.site.id, place, accesses
    return (1, tuple(queued(u, bits) for u in flying.waiting))


def queued(unit: Any, bits: KeyBits) -> Hashable:
    """A unit of a tensor core's queue that has not acted: its operands, which its site does not
    determine. (A group of wgmma acts when it is committed, and a TMA
    store when it is issued: see `Execution._collect`.)
    """
    key: Hashable
    match unit:
        case CommitUnit():
            key = tuple((bar.flat, bar.cta.rank, bits(bit)) for bar, bit in unit.arrivals)
        case MmaUnit():
            key = (
                unit.adds,
                tuple(
                    (p.acc, _operand(p.a), _operand(p.b), tuple(map(_operand, p.scales)))
                    for p in unit.parts
                ),
            )
        case CopyUnit():
            key = tuple((_operand(p.to), _operand(p.source)) for p in unit.parts)
        case ThreadArrivalUnit():
            key = unit.bar.flat, unit.bar.cta.rank, unit.count
        case ThreadCopyUnit():
            return unit.places.tobytes(), unit.rows.tobytes(), bits(unit.write.bit)
        case AddressedMma() | AddressedCopy() | AddressedShift():
            key = unit.key
        case _:
            raise AssertionError(f"no key for {type(unit).__name__}")
    return unit.site.id, key, bits(unit.bits)


def tile(slot: Slot) -> Hashable:
    """The name and the CTA of a tile."""
    return slot.name, slot.cta.rank


def _operand(where: Any) -> Hashable:
    """An operand of a tensor-core op: a rectangle of a tile, a place in tensor memory, the place of
    scale factors, registers, or what a matrix descriptor names.
    """
    match where:
        case Frag():
            return where.ir.name
        case Slot() as slot, MatrixOperand() as matrix:
            return tile(slot), (*matrix.descriptor, matrix.dtype.name, *matrix[2:])
        case Slot() as slot, rect:
            return tile(slot), rect
        case ScalePlace():
            return where.starts, where.used
    place: Hashable = where
    return place


def wgmma(unit: WgmmaUnit, bits: KeyBits) -> Hashable:
    """A wgmma that is in no committed group, and so has not acted."""
    operands = _operand(unit.acc), _operand(unit.a), _operand(unit.b)
    return unit.site.id, unit.adds, operands, bits(unit.bits)
