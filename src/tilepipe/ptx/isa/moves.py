"""Moves, packing, addresses (PTX ISA, "Data Movement and Conversion Instructions")."""

from __future__ import annotations

import numpy as np

from tilepipe.ptx.address_spaces import RANK_SHIFT, WINDOW_BITS, WINDOWS, window_of
from tilepipe.ptx.definition import (
    Compute,
    Modifiers,
    Operation,
    Spread,
    defines,
    not_modelled,
    operands,
)
from tilepipe.ptx.lanes import Array
from tilepipe.ptx.numerics.types import TYPES, Unsupported
from tilepipe.ptx.special_registers import CLOCKS, MODELLED, OF_DIMENSIONS, widths
from tilepipe.ptx.syntax.nodes import Instruction, Register, Sink, SpecialRegister, Vector

_MOVED = (
    "pred", "b16", "b32", "b64", "b128", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64",
)  # fmt: skip


@defines("mov")
def _mov(instruction: Instruction) -> Operation:
    destination, source = operands(instruction, 2)
    modifiers = Modifiers(instruction)
    elements = modifiers.take("v2", "v4")
    kind = modifiers.need(*_MOVED)
    modifiers.end()
    if elements:
        return _each_element(instruction, kind, int(elements[1:]))
    parts = next((len(o.items) for o in (source, destination) if isinstance(o, Vector)), 0)
    vectors = ("b16", "b32", "b64", "b128")
    if parts and (kind not in vectors or parts not in (2, 4) or TYPES[kind].bits < 8 * parts):
        raise Unsupported(f"mov.{kind} has no vector of {parts}")
    if isinstance(source, Vector):
        return _packed(instruction, kind, source)
    if isinstance(destination, Vector):
        return _unpacked(instruction, kind, destination)
    if isinstance(source, SpecialRegister):
        return _special(instruction, kind, source)
    # nothing writes into an array of lanes: both registers may hold the same one
    return Compute(((destination, kind),), ((source, kind),), "{0}", "{0}")


def _each_element(instruction: Instruction, kind: str, elements: int) -> Compute:
    """`mov.v2.b32 v, {a, b}`: from vector to vector (PTX ISA, "Vectors as Operands")."""
    destination, source = (o.items if isinstance(o, Vector) else (o,) for o in instruction.operands)
    if len(destination) != elements or len(source) != elements:
        raise Unsupported(f"mov.v{elements}.{kind} has vectors of {elements} as its operands")
    kept = [i for i, item in enumerate(destination) if not isinstance(item, Sink)]
    return Compute(
        tuple((destination[i], kind) for i in kept), tuple((source[i], kind) for i in kept),
        lambda *values: values if len(kept) > 1 else values[0],
        tuple(f"{{{i}}}" for i in range(len(kept))),
    )  # fmt: skip


def _special(instruction: Instruction, kind: str, source: SpecialRegister) -> Compute:
    """A special register; a clock gives something else at each execution."""
    if source.name not in MODELLED:
        not_modelled(instruction, f"the special register {source}")
    if source.component not in (("x", "y", "z") if source.name in OF_DIMENSIONS else ("",)):
        not_modelled(instruction, f"the component '.{source.component}'")
    if TYPES[kind].bits not in widths(source.name):
        raise Unsupported(f"{source} has no type .{kind}")
    spread: Spread = "memory" if source.name in CLOCKS else "same"
    return Compute(
        ((instruction.operands[0], kind),), ((source, kind),), "{0}", "{0}", spread=spread
    )


def _packed(instruction: Instruction, kind: str, source: Vector) -> Compute:
    """`mov.b32 d, {a, b}`: the first source in the lowest bits."""
    part = TYPES[kind].bits // len(source.items)
    element = f"b{part}"
    to = TYPES[f"b{TYPES[kind].bits}"].dtype

    def lanes(*values: Array) -> Array:
        if to.kind == "V":
            return np.stack(values, axis=1).view(to)[:, 0]
        whole = values[0].astype(to)
        for place, value in enumerate(values[1:], 1):
            whole = whole | value.astype(to) << to.type(part * place)
        return whole

    scalar = " | ".join(f"{{{i}}} << {part * i}" for i in range(len(source.items)))
    return Compute(
        ((instruction.operands[0], f"b{TYPES[kind].bits}"),),
        tuple((item, element) for item in source.items),
        lanes,
        scalar,
    )


def _unpacked(instruction: Instruction, kind: str, destination: Vector) -> Compute:
    """`mov.b32 {a, b}, s`: the lowest bits to the first destination."""
    count = len(destination.items)
    part = TYPES[kind].bits // count
    element = f"b{part}"
    dtype = TYPES[element].dtype
    kept = [i for i, item in enumerate(destination.items) if not isinstance(item, Sink)]

    def lanes(value: Array) -> tuple[Array, ...] | Array:
        parts = np.ascontiguousarray(value).view(dtype).reshape(-1, count)
        found = tuple(parts[:, i].copy() for i in kept)
        return found if len(kept) > 1 else found[0]

    return Compute(
        tuple((destination.items[i], element) for i in kept),
        ((instruction.operands[1], f"b{TYPES[kind].bits}"),),
        lanes,
        tuple(f"{{0}} >> {part * i}" for i in kept),
    )


@defines("cvta")
def _cvta(instruction: Instruction) -> Operation:
    """Between an address of a state space and a generic one."""
    destination, source = operands(instruction, 2)
    modifiers = Modifiers(instruction)
    from_generic = modifiers.flag("to")
    space = modifiers.need(
        "global", "const", "shared", "shared::cta", "shared::cluster", "local", "param",
        "param::entry",
    )  # fmt: skip
    modifiers.need("u64")
    modifiers.end()
    window = window_of(space)
    template = "{0}"
    if window:
        template = f"{{0}} {'-' if from_generic else '+'} {window}"
    return Compute(((destination, "u64"),), ((source, "u64"),), template, template)


@defines("isspacep")
def _isspacep(instruction: Instruction) -> Operation:
    destination, source = operands(instruction, 2)
    modifiers = Modifiers(instruction)
    space = modifiers.need(
        "global", "shared", "shared::cta", "shared::cluster", "local", "param",
        "param::entry",
    )  # fmt: skip
    modifiers.end()
    window = window_of(space)
    if space == "shared::cta":  # of the window of the cluster the part of the executing CTA
        shift = RANK_SHIFT
        template = f"({{0}} >> {shift}) == {window >> shift} + w.rank"
    elif window:
        template = f"({{0}} >> {WINDOW_BITS}) == {window >> WINDOW_BITS}"
    else:
        template = f"({{0}} >> {WINDOW_BITS}) > {max(WINDOWS.values()) >> WINDOW_BITS}"
    return Compute(((destination, "pred"),), ((source, "u64"),), template, template)


@defines("mapa")
def _mapa(instruction: Instruction) -> Operation:
    """The address of the same variable in another CTA of the cluster."""
    destination, address, rank = operands(instruction, 3)
    modifiers = Modifiers(instruction)
    shared = modifiers.flag("shared::cluster")
    kind = modifiers.need("u32", "u64")
    modifiers.end()
    if isinstance(address, Register) and not shared and kind == "u32":
        not_modelled(instruction, "a generic address of 32 bits")
    template = (
        f"({{0}} & {((1 << (32 if kind == 'u32' else 64)) - 1) & ~(0xFF << 24):#x}) | ({{1}} << 24)"
    )
    return Compute(
        ((destination, kind),),
        ((address, kind), (rank, "u32")),
        template,
        template,
    )


@defines("getctarank")
def _getctarank(instruction: Instruction) -> Operation:
    destination, address = operands(instruction, 2)
    modifiers = Modifiers(instruction)
    modifiers.flag("shared::cluster")
    kind = modifiers.need("u32", "u64")
    modifiers.end()
    template = "({0} >> 24) & 0xff"
    return Compute(
        ((destination, "u32"),), ((address, kind),), f"({template}).astype('u4')", template
    )
