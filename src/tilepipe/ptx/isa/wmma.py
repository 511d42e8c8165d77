"""Matrices in registers of an order that the ISA leaves open: wmma.load, wmma.mma, wmma.store (PTX
ISA, "Warp-level Matrix Multiply-Accumulate Using wmma").

Here a lane has as many elements as its registers hold, in the order of the matrix: lane 0 the
first. Where the registers of a warp hold more than the matrix has, they begin anew.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from tilepipe.machine.agents import Agent
from tilepipe.machine.machine import Machine
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
from tilepipe.ptx.isa.matrices import numbers_of, registers_of, width_of
from tilepipe.ptx.isa.memory import load, space_of, store
from tilepipe.ptx.isa.requests import Value, one
from tilepipe.ptx.lanes import FULL, WARP, Array
from tilepipe.ptx.syntax.nodes import Instruction, Integer
from tilepipe.ptx.warp_protocol import Warp

_SQUARE = ("m16n16k16", "m8n32k16", "m32n8k16")
# type of A and B -> shapes, and types of the accumulator
_SHAPES = {
    "f16": _SQUARE, "bf16": _SQUARE, "s8": _SQUARE, "u8": _SQUARE, "tf32": ("m16n16k8",),
    "f64": ("m8n8k4",), "s4": ("m8n8k32",), "u4": ("m8n8k32",), "b1": ("m8n8k128",),
}  # fmt: skip
_SUMS = {"f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",)}  # or s32
_ALL = tuple(dict.fromkeys(shape for shapes in _SHAPES.values() for shape in shapes))


class Fragment(NamedTuple):
    """A matrix in registers.

    Attributes:
        kind: type of its elements. rows, cols: of B rows are along N. registers: of each thread.
    """

    kind: str
    rows: int
    cols: int
    registers: int

    @property
    def unit(self) -> int:
        """Bytes that are loaded at once: an element, or a register of smaller ones."""
        return width_of(self.kind) // 8 or 4

    @property
    def places(self) -> tuple[Array, Array]:
        """Row and column of the first element of each unit of each lane: (32, units of a lane)."""
        elements = 8 * self.unit // width_of(self.kind)
        size = 8 if self.kind == "f64" else 4
        units = self.registers * size // self.unit
        first = np.arange(WARP * units).reshape(WARP, units) * elements % (self.rows * self.cols)
        return first // self.cols, first % self.cols


def _fragment(which: str, shape: str, kind: str) -> Fragment:
    """A (M × K), B (N × K), or an accumulator (M × N)."""
    m, n, k = (int(text) for text in shape[1:].replace("n", "k").split("k"))
    rows, cols = {"a": (m, k), "b": (n, k)}.get(which, (m, n))
    if kind == "f16" and which in "ab":  # of all shapes the same number
        return Fragment(kind, rows, cols, 8)
    per_register = 1 if kind == "f64" else 32 // width_of(kind)
    return Fragment(kind, rows, cols, rows * cols // (WARP * per_register))


def _kinds(which: str, shape: str) -> tuple[str, ...]:
    """The types of a matrix of this shape."""
    of_shape = [kind for kind, shapes in _SHAPES.items() if shape in shapes]
    if which in "ab":
        return tuple(of_shape)
    return tuple(dict.fromkeys(s for kind in of_shape for s in _SUMS.get(kind, ("s32",))))


@defines("wmma")
def _wmma(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    match modifiers.need("load", "store", "mma"):
        case "mma":
            return _multiply(instruction, modifiers)
        case "load":
            which = modifiers.need("a", "b", "c")
        case _:
            which = modifiers.need("d")
    modifiers.need("sync")
    modifiers.need("aligned")
    layout = modifiers.need("row", "col")
    shape = modifiers.need(*_ALL)
    space = modifiers.take("global", *SHARED_OF_CTA)
    kind = modifiers.need(*_kinds(which, shape))
    modifiers.end()
    if width_of(kind) < 8 and layout != ("row" if which == "a" else "col"):
        not_modelled(instruction, f"the layout '.{layout}' of .{kind}")
    found = operands(instruction, 2, 3)
    registers, where = found[:2] if which != "d" else (found[1], found[0])
    fragment = _fragment(which, shape, kind)
    rows, cols = fragment.places
    # B is kept with its columns as rows
    across = (layout == "row") == (which == "b")
    least = fragment.rows if across else fragment.cols
    address = inside(instruction, where), "u32" if space.startswith("shared") else "u64"
    stride = found[2] if len(found) == 3 else Integer(least)
    register_kind = "b64" if kind == "f64" else "b32"
    items = elements(instruction, registers, fragment.registers)

    def places(
        w: Warp, site: Site, mask: int, at: Value, leading: Value
    ) -> tuple[str, list[Array]]:
        begin, step = one(site, mask, at), one(site, mask, leading)
        inside_space, first = space_of(w, site, mask, space, begin)
        offsets = cols * step + rows if across else rows * step + cols
        addresses = int(first) + offsets * width_of(kind) // 8
        return inside_space, [np.ascontiguousarray(column) for column in addresses.T]

    def start_load(w: Warp, site: Site, mask: int, at: Value, leading: Value) -> Any:
        inside_space, columns = places(w, site, mask, at, leading)
        parts = [load(w, site, mask, inside_space, c, fragment.unit) for c in columns]
        return _several, (site, mask, parts)

    def finish(w: Warp, found: list[Array]) -> tuple[Array, ...]:
        raw = np.ascontiguousarray(np.concatenate(found, axis=1))
        return tuple(raw.view(np.uint64 if kind == "f64" else np.uint32).T)

    def start_store(
        w: Warp, site: Site, mask: int, at: Value, leading: Value, *values: Value
    ) -> Any:
        inside_space, columns = places(w, site, mask, at, leading)
        dtype = np.uint64 if kind == "f64" else np.uint32
        raw = np.stack([np.broadcast_to(np.asarray(v, dtype), WARP) for v in values], axis=1)
        units = np.split(np.ascontiguousarray(raw).view(np.uint8), len(columns), axis=1)
        parts = [
            store(w, site, mask, inside_space, c, np.ascontiguousarray(u))
            for c, u in zip(columns, units, strict=True)
        ]
        return _several, (site, mask, parts)

    sources = address, (stride, "u32")
    if which == "d":
        return Perform(
            (), (*sources, *typed(items, register_kind)), start_store, None, members=Integer(FULL)
        )
    return Perform(
        typed(items, register_kind), sources, start_load, finish, spread="lanes",
        members=Integer(FULL),
    )  # fmt: skip


def _several(m: Machine, ag: Agent, site: Site, mask: int, requests: list[Any]) -> list[Any]:
    """Accesses to memory of one instruction, one after another."""
    return [op(m, ag, *operands) for op, operands in requests]


def _multiply(instruction: Instruction, modifiers: Modifiers) -> Operation:
    counts = modifiers.take("xor", "and")
    if counts:
        modifiers.need("popc")
    modifiers.need("sync")
    modifiers.need("aligned")
    modifiers.need("row", "col")
    modifiers.need("row", "col")
    shape = modifiers.need(*_ALL)
    if shape == "m8n8k4":
        modifiers.flag("rn")
    to = modifiers.need("f16", "f32", "f64", "s32")
    a_type = b_type = "f16"  # which are not written
    if given := modifiers.take(*(kind for kind in _SHAPES if kind != "f16")):
        a_type, b_type = given, modifiers.need(*_SHAPES)
    from_ = modifiers.need("f16", "f32", "f64", "s32")
    clamps = modifiers.flag("satfinite")
    modifiers.end()
    sums = _SUMS.get(a_type, ("s32",))
    if (
        shape not in _SHAPES[a_type] or a_type != b_type or to not in sums or from_ not in sums
        or bool(counts) != (a_type == "b1") or (clamps and (to != "s32" or bool(counts)))
    ):  # fmt: skip
        not_modelled(instruction, "this combination of shape and types")
    fragments = [
        _fragment(which, shape, kind)
        for which, kind in (("d", to), ("a", a_type), ("b", b_type), ("c", from_))
    ]
    d, a, b, c = (
        elements(instruction, operand, fragment.registers)
        for operand, fragment in zip(operands(instruction, 4), fragments, strict=True)
    )

    def lanes(*values: Array) -> tuple[Array, ...]:
        given = values[: len(a)], values[len(a) : len(a) + len(b)], values[len(a) + len(b) :]
        left, right, before = (
            _matrix(part, fragment) for part, fragment in zip(given, fragments[1:], strict=True)
        )
        if counts == "xor":
            total = left @ (1 - right.T) + (1 - left) @ right.T + before
        else:
            total = left @ right.T + before
        flat = total.reshape(WARP, -1).T
        return registers_of(flat, to, clamps)

    kind = "b64" if a_type == "f64" else "b32"
    return Compute(
        typed(d, kind), typed((*a, *b, *c), kind), lanes, spread="lanes", members=Integer(FULL)
    )


def _matrix(values: tuple[Array, ...], fragment: Fragment) -> Array:
    """A fragment as numbers in float64, or int64."""
    found = numbers_of(np.stack(values), fragment.kind).transpose(1, 0, 2).reshape(-1)
    extents = fragment.rows, fragment.cols
    return found[: prod(extents)].reshape(extents)
