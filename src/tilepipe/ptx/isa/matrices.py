"""Matrices in the registers of a warp: ldmatrix, stmatrix, movmatrix, mma.sync (PTX ISA,
"Warp-Level Matrix Instructions").

mma.sync: products are exact, and so are their sums in float64, which is rounded once. The hardware
rounds several times, in an order that the ISA leaves open.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tilepipe.errors import SimFault
from tilepipe.machine.memory.byte_access import load_matrix, store_matrix
from tilepipe.machine.memory.fragments import accumulator_places, operand_a_places
from tilepipe.machine.sites import Site
from tilepipe.ptx.address_spaces import SHARED_OF_CTA
from tilepipe.ptx.definition import (
    Compute,
    Modifiers,
    Operation,
    Perform,
    defines,
    elements,
    inside,
    not_modelled,
    operands,
    typed,
)
from tilepipe.ptx.isa.memory import shared_places, space_of
from tilepipe.ptx.isa.requests import Value, per_lane
from tilepipe.ptx.lanes import FULL, WARP, Array
from tilepipe.ptx.syntax.nodes import Instruction, Integer
from tilepipe.ptx.warp_protocol import Warp

_LANE = np.arange(WARP)[:, None]
_BYTE = np.arange(4)[None, :]


class Shape(NamedTuple):
    """A form of ldmatrix or stmatrix.

    Attributes:
        rows: of 16 bytes, of one matrix; one thread gives the address of each. registers: of one
            matrix in each thread. row, byte: of each byte of the registers of a thread: (registers,
            32, 4).
    """

    rows: int
    registers: int
    row: Array
    byte: Array


@lru_cache(maxsize=8)
def _shape(name: str, transposed: bool) -> Shape:
    """PTX ISA, ldmatrix and stmatrix, "fragment layout"."""
    quad, pair = _LANE // 4, _LANE % 4
    if name in ("m8n8", "m8n16") and not transposed:
        row, byte = quad + 0 * _BYTE, 4 * pair + _BYTE
    elif name == "m8n8":
        row, byte = 2 * pair + _BYTE // 2, 2 * quad + _BYTE % 2
    elif name == "m16n8":
        row, byte = 2 * pair + _BYTE % 2, quad + 8 * (_BYTE // 2)
    else:  # m16n16: the second register has the rows after those of the first
        row, byte = 4 * pair + _BYTE % 2, quad + 8 * (_BYTE // 2)
        return Shape(16, 2, np.stack([row, row + 2]), np.stack([byte, byte]))
    return Shape(8, 1, row[None], byte[None])


def _places(shape: Shape, count: int) -> tuple[Array, Array]:
    """Row and byte of each byte of all registers: (registers, 32, 4)."""
    rows = np.concatenate([shape.row + shape.rows * i for i in range(count)])
    return rows, np.concatenate([shape.byte] * count)


# what ldmatrix.m8n16 makes bytes of: bits of an element in rows of 16 bytes
_EXPANDED = {"b6x16_p32": 6, "b4x16_p64": 4}


@defines("ldmatrix")
def _ldmatrix(instruction: Instruction) -> Operation:
    destination, where = operands(instruction, 2)
    modifiers = Modifiers(instruction)
    modifiers.need("sync")
    modifiers.need("aligned")
    name = modifiers.need("m8n8", "m16n16", "m8n16")
    count = int(modifiers.need(*(("x1", "x2") if name == "m16n16" else ("x1", "x2", "x4")))[1:])
    if name == "m16n16":
        modifiers.need("trans")
    transposed = name == "m16n16" or (name == "m8n8" and modifiers.flag("trans"))
    space = modifiers.take(*SHARED_OF_CTA)
    bits = 8
    if name == "m8n8":
        modifiers.need("b16")
    elif modifiers.need("b8", "b8x16") == "b8x16" or name == "m8n16":
        bits = _EXPANDED[modifiers.need(*_EXPANDED)]
    modifiers.end()
    shape = _shape(name, transposed)
    row, byte = _places(shape, count)
    targets = elements(instruction, destination, len(row))

    def start(w: Warp, site: Site, mask: int, at: Value) -> Any:
        return load_matrix, (site, mask, _rows_at(w, site, mask, space, at), shape.rows * count)

    def finish(w: Warp, rows: Array) -> tuple[Array, ...]:
        elements = rows if bits == 8 else _expanded(rows, bits)
        registers = np.ascontiguousarray(elements[row, byte]).view(np.uint32)
        return tuple(registers[..., 0])

    return Perform(
        typed(targets, "b32"), ((inside(instruction, where), "u32" if space else "u64"),), start,
        finish, spread="lanes", members=Integer(FULL),
    )  # fmt: skip


def _rows_at(w: Warp, site: Site, mask: int, space: str, at: Value) -> Array:
    """Addresses of the rows in the CTA's own shared memory."""
    found, at = space_of(w, site, mask, space, at)
    if not found.startswith("shared"):
        raise SimFault(f"{site.what}: the address is not of shared memory", site.loc)
    addresses, cta = shared_places(w, mask, at)
    if cta is not None:
        raise SimFault(f"{site.what}: the address is of CTA rank {cta}'s shared memory", site.loc)
    return addresses


def _expanded(rows: Array, bits: int) -> Array:
    """16 elements of each row, which stand packed in its first bytes, as a byte each."""
    each = np.unpackbits(rows[:, : 2 * bits], axis=1, bitorder="little").reshape(-1, 16, bits)
    return np.packbits(each, axis=2, bitorder="little")[..., 0]


@defines("stmatrix")
def _stmatrix(instruction: Instruction) -> Operation:
    where, source = operands(instruction, 2)
    modifiers = Modifiers(instruction)
    modifiers.need("sync")
    modifiers.need("aligned")
    name = modifiers.need("m8n8", "m16n8")
    count = int(modifiers.need("x1", "x2", "x4")[1:])
    if name == "m16n8":
        modifiers.need("trans")
    transposed = name == "m16n8" or modifiers.flag("trans")
    space = modifiers.take(*SHARED_OF_CTA)
    modifiers.need("b16" if name == "m8n8" else "b8")
    modifiers.end()
    sources = elements(instruction, source, count)
    shape = _shape(name, transposed)
    row, byte = _places(shape, count)

    def start(w: Warp, site: Site, mask: int, at: Value, *values: Value) -> Any:
        registers = np.stack([per_lane(v).astype(np.uint32) for v in values])
        rows = np.zeros((shape.rows * count, 16), np.uint8)
        rows[row, byte] = registers[..., None].view(np.uint8)
        return store_matrix, (site, mask, _rows_at(w, site, mask, space, at), rows)

    address = inside(instruction, where), "u32" if space else "u64"
    return Perform((), (address, *typed(sources, "b32")), start, None, members=Integer(FULL))


@defines("movmatrix")
def _movmatrix(instruction: Instruction) -> Operation:
    """The transpose of an 8 × 8 matrix of 16 bits, which the warp's registers hold."""
    destination, source = operands(instruction, 2)
    modifiers = Modifiers(instruction)
    for needed in ("sync", "aligned", "m8n8", "trans", "b16"):
        modifiers.need(needed)
    modifiers.end()

    def lanes(value: Array) -> Array:
        matrix = np.ascontiguousarray(value).view(np.uint16).reshape(8, 8)
        return np.ascontiguousarray(matrix.T).view(np.uint32).reshape(WARP)

    return Compute(
        ((destination, "b32"),), ((source, "b32"),), lanes, spread="lanes", members=Integer(FULL)
    )


# -- mma.sync ----------------------------------------------------------------------------

_ROWS, _COLS = 16, 8
# type of A and B -> extents along K
_DEPTHS = {
    "f16": (8, 16), "bf16": (8, 16), "tf32": (4, 8), "e4m3": (16, 32), "e5m2": (16, 32),
    "s8": (16, 32), "u8": (16, 32),
}  # fmt: skip
_DTYPES: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32), "e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2": np.dtype(ml_dtypes.float8_e5m2), "s8": np.dtype(np.int8), "u8": np.dtype(np.uint8),
}  # fmt: skip
_FAMILIES = ({"f16"}, {"bf16"}, {"tf32"}, {"e4m3", "e5m2"}, {"s8", "u8"})


@defines("mma")
def _mma(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    modifiers.need("sync")
    modifiers.need("aligned")
    depth = int(modifiers.need(*(f"m16n8k{k}" for k in (4, 8, 16, 32)))[6:])
    modifiers.need("row")
    modifiers.need("col")
    clamps = modifiers.flag("satfinite")
    to = modifiers.need("f32", "f16", "s32")
    a_type, b_type = modifiers.need(*_DEPTHS), modifiers.need(*_DEPTHS)
    from_ = modifiers.need("f32", "f16", "s32")
    modifiers.end()
    integers = a_type in ("s8", "u8")
    alike = any({a_type, b_type} <= family for family in _FAMILIES)
    halves = a_type not in ("bf16", "tf32") or "f16" not in (to, from_)
    if (
        not alike or depth not in _DEPTHS[a_type] or not halves or (clamps and not integers)
        or (to == "s32") != integers or (from_ == "s32") != integers
    ):  # fmt: skip
        not_modelled(instruction, "this combination of shape and types")
    each = 4 // _DTYPES[a_type].itemsize
    destination, a, b, c = operands(instruction, 4)
    places = _operand_places(each, depth)
    a_items = elements(instruction, a, len(places[0][0]))
    b_items = elements(instruction, b, len(places[1][0]))
    d_items = elements(instruction, destination, 2 if to == "f16" else 4)
    c_items = elements(instruction, c, 2 if from_ == "f16" else 4)

    def lanes(*values: Array) -> tuple[Array, ...]:
        split, last = len(a_items), len(a_items) + len(b_items)
        left = _operand(values[:split], a_type, places[0], (_ROWS, depth))
        right = _operand(values[split:last], b_type, places[1], (_COLS, depth))
        total = left @ right.T + _accumulator(values[last:], from_)
        return _registers(total, to, clamps)

    return Compute(
        typed(d_items, "b32"), typed((*a_items, *b_items, *c_items), "b32"), lanes, spread="lanes",
        members=Integer(FULL),
    )  # fmt: skip


_Places = tuple[Array, Array]


@lru_cache(maxsize=16)
def _operand_places(each: int, depth: int) -> tuple[_Places, _Places]:
    """Row and place along K of the elements of A and of B: (registers, 32, elements of one)."""
    rows, along = operand_a_places(4 // each)
    registers = 2 if depth == 4 * each else 4
    a = rows[:registers], along[:registers]
    register = np.arange(registers // 2)[:, None, None]
    lane, part = np.arange(WARP)[None, :, None], np.arange(each)[None, None, :]
    places = 4 * each * register + lane % 4 * each + part
    return a, (np.broadcast_to(lane // 4, places.shape), places)


def _operand(
    values: tuple[Array, ...], kind: str, places: _Places, extents: tuple[int, int]
) -> Array:
    """A or B as numbers in float64, or int64."""
    raw = np.stack(values)
    if kind == "tf32":
        raw = raw & np.uint32(0xFFFFE000)
    elements = raw[..., None].view(_DTYPES[kind])
    matrix = np.zeros(extents, np.int64 if kind in ("s8", "u8") else np.float64)
    matrix[places] = elements
    return matrix


def _accumulator(values: tuple[Array, ...], kind: str) -> Array:
    raw = np.stack(values)
    if kind == "f16":  # two columns in each register
        numbers = raw[..., None].view(np.float16).transpose(0, 2, 1).reshape(4, WARP)
    else:
        numbers = raw.view(np.float32 if kind == "f32" else np.int32)
    matrix = np.zeros((_ROWS, _COLS), np.int64 if kind == "s32" else np.float64)
    matrix[accumulator_places(_COLS)] = numbers
    return matrix


def _registers(total: Array, kind: str, clamps: bool) -> tuple[Array, ...]:
    numbers = total[accumulator_places(_COLS)]
    if kind == "s32":
        if clamps:
            numbers = np.clip(numbers, -(1 << 31), (1 << 31) - 1)
        return tuple(numbers.astype(np.int32).view(np.uint32))
    if kind == "f32":
        return tuple(numbers.astype(np.float32).view(np.uint32))
    halves = numbers.astype(np.float16).reshape(2, 2, WARP).transpose(0, 2, 1)
    return tuple(np.ascontiguousarray(halves).view(np.uint32)[..., 0])
