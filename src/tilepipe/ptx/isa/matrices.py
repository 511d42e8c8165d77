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
from tilepipe.machine.memory.fragments import accumulator_places
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
from tilepipe.ptx.numerics.modifiers import canonical_f32, canonical_half
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


def _shape_of(modifiers: Modifiers, *shapes: str) -> str:
    """The modifier of the shape. ptxas takes it after the number of matrices, too, as CUTLASS and
    DeepGEMM write it (`.x4.m8n8`).
    """
    return modifiers.anywhere(*shapes) or modifiers.need(*shapes)


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
    name = _shape_of(modifiers, "m8n8", "m16n16", "m8n16")
    count = int(modifiers.need(*(("x1", "x2") if name == "m16n16" else ("x1", "x2", "x4")))[1:])
    if name == "m16n16":
        modifiers.need("trans")
    transposed = name == "m16n16" or (name == "m8n8" and bool(modifiers.anywhere("trans")))
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
    name = _shape_of(modifiers, "m8n8", "m16n8")
    count = int(modifiers.need("x1", "x2", "x4")[1:])
    if name == "m16n8":
        modifiers.need("trans")
    transposed = name == "m16n8" or bool(modifiers.anywhere("trans"))
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
    return Perform(
        (), (address, *typed(sources, "b32")), start, None, members=Integer(FULL), carries=1
    )


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

_COLS = 8
# type of A and B -> the shapes that it has
_SHAPES = {
    "f16": ("m16n8k8", "m16n8k16"), "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"), "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    **dict.fromkeys(("e4m3", "e5m2"), ("m16n8k16", "m16n8k32")),
    **dict.fromkeys(("s8", "u8"), ("m8n8k16", "m16n8k16", "m16n8k32")),
    **dict.fromkeys(("s4", "u4"), ("m8n8k32", "m16n8k32", "m16n8k64")),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
}  # fmt: skip
_BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s4": 4, "u4": 4, "b1": 1,
    "f32": 32, "s32": 32,
}  # fmt: skip  # or 8
_DTYPES: dict[str, np.dtype[Any]] = {
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
    "tf32": np.dtype(np.float32), "f64": np.dtype(np.float64),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "s8": np.dtype(np.int8), "u8": np.dtype(np.uint8), "f32": np.dtype(np.float32),
    "s32": np.dtype(np.int32),
}  # fmt: skip
_FAMILIES = (
    {"f16"}, {"bf16"}, {"tf32"}, {"f64"}, {"e4m3", "e5m2"}, {"s8", "u8"}, {"s4", "u4"}, {"b1"},
)  # fmt: skip
_ACCUMULATORS = {
    "f16": ("f16", "f32"), "e4m3": ("f16", "f32"), "e5m2": ("f16", "f32"), "bf16": ("f32",),
    "tf32": ("f32",), "f64": ("f64",),
}  # fmt: skip


@defines("mma")
def _mma(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    modifiers.need("sync")
    modifiers.need("aligned")
    shape = modifiers.need(*sorted({name for names in _SHAPES.values() for name in names}))
    modifiers.need("row")
    modifiers.need("col")
    eights = modifiers.flag("kind::f8f6f4")
    clamps = modifiers.flag("satfinite")
    to = modifiers.need("f32", "f16", "s32", "f64")
    a_type, b_type = modifiers.need(*_SHAPES), modifiers.need(*_SHAPES)
    from_ = modifiers.need("f32", "f16", "s32", "f64")
    counts = modifiers.need("xor", "and") if a_type == "b1" else ""
    if counts:
        modifiers.need("popc")
    modifiers.end()
    integers = a_type in ("s8", "u8", "s4", "u4", "b1")
    accumulators = _ACCUMULATORS.get(a_type, ("s32",))
    if (
        not any({a_type, b_type} <= family for family in _FAMILIES) or shape not in _SHAPES[a_type]
        or to not in accumulators or from_ not in accumulators
        or (clamps and (not integers or bool(counts))) or (eights and a_type[0] != "e")
        or (to != from_ and a_type[0] == "e")
    ):  # fmt: skip
        not_modelled(instruction, "this combination of shape and types")
    rows, depth = int(shape[1:].partition("n")[0]), int(shape.partition("k")[2])
    width = _BITS.get(a_type, 8)
    destination, a, b, c = operands(instruction, 4)
    a_places = _operand_places(rows, depth, width)
    b_places = _operand_places(_COLS, depth, width)
    a_items = elements(instruction, a, len(a_places[0]))
    b_items = elements(instruction, b, len(b_places[0]))
    d_items = elements(instruction, destination, rows // (8 if to == "f16" else 4))
    c_items = elements(instruction, c, rows // (8 if from_ == "f16" else 4))

    def lanes(*values: Array) -> tuple[Array, ...]:
        split, last = len(a_items), len(a_items) + len(b_items)
        left = _operand(values[:split], a_type, a_places, (rows, depth))
        right = _operand(values[split:last], b_type, b_places, (_COLS, depth))
        if counts == "xor":  # of bits that differ: those of one alone
            products = left @ (1 - right.T) + (1 - left) @ right.T
        else:
            products = left @ right.T
        total = products + _accumulator(values[last:], from_, rows)
        return registers_of(total[_accumulator_places(rows)], to, clamps)

    kind = "b64" if a_type == "f64" else "b32"
    sources = typed((*a_items, *b_items, *c_items), kind)
    return Compute(typed(d_items, kind), sources, lanes, spread="lanes", members=Integer(FULL))


_Places = tuple[Array, Array]


@lru_cache(maxsize=32)
def _operand_places(rows: int, depth: int, width: int) -> _Places:
    """Row and place along K of the elements of A, or of the columns of B as rows: (registers, 32,
    elements of one). Four lanes have a row, eight rows a register; 16 rows alternate.
    """
    each = max(32 // width, 1)
    blocks = rows // 8
    register = np.arange(blocks * depth // (4 * each))[:, None, None]
    lane, part = np.arange(WARP)[None, :, None], np.arange(each)[None, None, :]
    along = 4 * each * (register // blocks) + lane % 4 * each + part
    return np.broadcast_to(lane // 4 + 8 * (register % blocks), along.shape), along


def width_of(kind: str) -> int:
    """The bits of an element of a matrix; of tf32 those of its register."""
    return _BITS.get(kind, 8)


def numbers_of(raw: Array, kind: str) -> Array:
    """Registers (registers, 32) as the numbers in them, in float64 or int64: (registers, 32,
    elements of one).
    """
    width = width_of(kind)
    if kind == "tf32":
        raw = raw & np.uint32(0xFFFFE000)
    if width < 8:
        shifts = np.arange(0, 32, width, dtype=np.uint32)
        found = (raw[..., None] >> shifts & np.uint32((1 << width) - 1)).astype(np.int64)
        return (found ^ 8) - 8 if kind == "s4" else found
    elements = raw[..., None].view(_DTYPES[kind])
    return elements.astype(np.int64 if elements.dtype.kind in "iu" else np.float64)


def _operand(
    values: tuple[Array, ...], kind: str, places: _Places, extents: tuple[int, int]
) -> Array:
    """A or B as numbers in float64, or int64."""
    found = numbers_of(np.stack(values), kind)
    matrix = np.zeros(extents, found.dtype)
    matrix[places] = found
    return matrix


def _accumulator_places(rows: int) -> _Places:
    row, column = accumulator_places(_COLS)
    return row[: rows // 4], column[: rows // 4]


def _accumulator(values: tuple[Array, ...], kind: str, rows: int) -> Array:
    found = numbers_of(np.stack(values), kind).transpose(0, 2, 1).reshape(-1, WARP)
    matrix = np.zeros((rows, _COLS), found.dtype)
    matrix[_accumulator_places(rows)] = found
    return matrix


def registers_of(numbers: Array, kind: str, clamps: bool) -> tuple[Array, ...]:
    """Sums (elements of a lane, 32) as registers of a type of accumulators; two halves in one."""
    if kind == "s32":
        if clamps:
            numbers = np.clip(numbers, -(1 << 31), (1 << 31) - 1)
        return tuple(numbers.astype(np.int32).view(np.uint32))
    if kind == "f64":
        return tuple(numbers.view(np.uint64))
    if kind == "f32":
        return tuple(canonical_f32(numbers.astype(np.float32)).view(np.uint32))
    halves = canonical_half(numbers.astype(np.float16)).reshape(-1, 2, WARP).transpose(0, 2, 1)
    return tuple(np.ascontiguousarray(halves).view(np.uint32)[..., 0])
