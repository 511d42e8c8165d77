"""tcgen05 (PTX ISA, "TensorCore 5th Generation Family Instructions")."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilepipe.errors import SimFault
from tilepipe.ir.facts import Facts, Group, Order, Resource, Scope, Sync, Unit
from tilepipe.machine.memory import tensor_access, tensor_allocation
from tilepipe.machine.memory.instruction_descriptor import KINDS
from tilepipe.machine.memory.tensor_operands import Scaling
from tilepipe.machine.rules import LOADED_REGISTERS
from tilepipe.machine.sites import Site
from tilepipe.machine.units import tcgen05 as unit, tcgen05_by_address as by_address
from tilepipe.ptx.definition import (
    Modifiers,
    Operation,
    Perform,
    Typed,
    constant,
    defines,
    inside,
    not_modelled,
    operands,
    typed,
)
from tilepipe.ptx.isa.memory import address_type, in_shared
from tilepipe.ptx.isa.requests import Value, one, per_lane, place
from tilepipe.ptx.lanes import FULL, WARP, Array
from tilepipe.ptx.syntax.nodes import Address, Instruction, Integer, Operand, Register, Vector
from tilepipe.ptx.warp_protocol import IN_FLIGHT, Warp

_LANE = np.arange(WARP)
_KINDS = tuple(f"kind::{kind}" for kind in KINDS)
# Scale factors of a row in one instruction, by what the modifier says; of each kind its own.
_VECTORS = {
    ("mxf8f6f4", "scale_vec::1X"): 1, ("mxf8f6f4", "block32"): 1, ("mxf8f6f4", ""): 1,
    ("mxf4", "scale_vec::2X"): 2, ("mxf4", "block32"): 2, ("mxf4", ""): 2,
    ("mxf4nvf4", "scale_vec::2X"): 2, ("mxf4nvf4", "block32"): 2,
    ("mxf4nvf4", "scale_vec::4X"): 4, ("mxf4nvf4", "block16"): 4,
}  # fmt: skip
_MMA = Facts(unit=Unit.TENSOR_CORE, issues=Group.TCGEN05)


@defines("tcgen05")
def _tcgen05(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    action = modifiers.any()
    match action:
        case "alloc" | "dealloc" | "relinquish_alloc_permit":
            return _allocation(instruction, modifiers, action)
        case "mma":
            return _mma(instruction, modifiers)
        case "cp":
            return _cp(instruction, modifiers)
        case "shift":
            return _shift(instruction, modifiers)
        case "commit":
            return _commit(instruction, modifiers)
        case "ld" | "st":
            return _transfer(instruction, modifiers, action)
        case "wait::ld" | "wait::st":
            return _wait(instruction, modifiers, action)
        case "fence::before_thread_sync" | "fence::after_thread_sync":
            return _fence(instruction, modifiers, action)
    not_modelled(instruction, f"tcgen05.{action}")


def _pair(modifiers: Modifiers) -> int:
    return int(modifiers.need("cta_group::1", "cta_group::2")[-1])


# -- allocation --------------------------------------------------------------------------


def _allocation(instruction: Instruction, modifiers: Modifiers, action: str) -> Operation:
    group = _pair(modifiers)
    modifiers.need("sync")
    modifiers.need("aligned")
    if action == "relinquish_alloc_permit":
        modifiers.end()

        def relinquish(w: Warp, site: Site, mask: int) -> Any:
            return tensor_allocation.tmem_relinquish, (site, mask)

        return Perform((), (), relinquish, None, members=Integer(FULL))
    space = modifiers.take("shared", "shared::cta") if action == "alloc" else ""
    modifiers.need("b32")
    modifiers.end()
    where, count = operands(instruction, 2)
    columns = constant(instruction, count)
    if columns not in (32, 64, 128, 256, 512):
        not_modelled(instruction, f"{columns} columns (a power of two from 32 to 512)")
    fields = (("columns", columns), ("cta_group", group))
    if action == "dealloc":

        def dealloc(w: Warp, site: Site, mask: int, at: Value) -> Any:
            return tensor_allocation.tmem_dealloc, (site, mask, one(site, mask, at))

        return Perform(
            (), ((where, "u32"),), dealloc, None, Facts(gives=Resource.TENSOR_MEMORY, noticed=True),
            members=Integer(FULL), site=fields,
        )  # fmt: skip

    def alloc(w: Warp, site: Site, mask: int, at: Value) -> Any:
        address = in_shared(w, site, mask, space, one(site, mask, at))
        return tensor_allocation.tmem_alloc_at, (site, mask, place(one(site, mask, address))[1])

    return Perform(
        (), ((inside(instruction, where), address_type(space)),), alloc, None,
        Facts(takes=Resource.TENSOR_MEMORY, noticed=True), members=Integer(FULL), site=fields,
    )  # fmt: skip


# -- the tensor core ---------------------------------------------------------------------


_COLLECTORS = tuple(
    f"collector::{buffer}::{use}"
    for buffer in ("a", "b0", "b1", "b2", "b3")
    for use in ("discard", "lastuse", "fill", "use")
)


def _mma(instruction: Instruction, modifiers: Modifiers) -> Operation:
    if modifiers.flag("sp"):
        not_modelled(instruction, "tcgen05.mma.sp")
    weights = modifiers.flag("ws")
    if weights and modifiers.flag("sp"):
        not_modelled(instruction, "tcgen05.mma.ws.sp")
    group = 1 if weights and modifiers.need("cta_group::1") else _pair(modifiers)
    kind = modifiers.need(*_KINDS).removeprefix("kind::")
    scaled = modifiers.flag("block_scale")
    vector = modifiers.take("scale_vec::1X", "scale_vec::2X", "scale_vec::4X", "block16", "block32")
    shifts = modifiers.flag("ashift")
    # where A, or with .ws B, is kept between MMAs changes no number: it may be read again
    collector = modifiers.take(*(c for c in _COLLECTORS if (c[11] == "b") == weights))
    modifiers.end()
    if scaled != bool(KINDS[kind].scales) or (scaled and (kind, vector) not in _VECTORS):
        not_modelled(instruction, f"kind::{kind} with these modifiers")
    if weights and not KINDS[kind].weights:
        not_modelled(instruction, f"'.ws' of kind::{kind}")
    acc, a, b, idesc, *rest = instruction.operands
    in_tensor_memory = isinstance(a, Address)
    reuses = collector.rpartition("::")[2] in ("use", "fill")
    if shifts and (weights or scaled or reuses or not in_tensor_memory):
        not_modelled(instruction, "'.ashift' with these modifiers or operands")
    scales: list[Operand] = []
    if scaled:
        scales, rest = [inside(instruction, o) for o in rest[:2]], rest[2:]
    skipped: tuple[Operand, ...] = ()
    if rest and isinstance(rest[0], Vector) and not scaled and not weights:
        if len(rest[0].items) != 4 * group:
            not_modelled(instruction, f"{len(rest[0].items)} words of disabled lanes")
        skipped, rest = rest[0].items, rest[1:]
    halvings = 0
    if len(rest) == 2 and kind in ("f16", "tf32") and not weights:
        halvings = constant(instruction, rest.pop())
        if not 0 <= halvings <= 15:
            not_modelled(instruction, f"scale-input-d {halvings} (0 to 15)")
    if len(rest) == 2 and weights:
        not_modelled(instruction, "a descriptor of a mask of columns that are zero")
    if len(rest) != 1:
        not_modelled(instruction, f"{len(instruction.operands)} operands")
    sources: tuple[Typed, ...] = (
        (inside(instruction, acc), "u32"),
        (inside(instruction, a), "u32") if in_tensor_memory else (a, "u64"),
        (b, "u64"), (idesc, "u32"), (rest[0], "pred"), *typed(scales, "u32"),
        *typed(skipped, "u32"),
    )  # fmt: skip

    def start(w: Warp, site: Site, mask: int, *values: Value) -> Any:
        acc, a, b, idesc, adds, *factors = (one(site, mask, v) for v in values)
        lanes = factors[len(scales) :]
        del factors[len(scales) :]
        kept = None
        if any(lanes):
            if group == 2:
                raise SimFault(f"{site.what}: disabled lanes of a pair are not modelled", site.loc)
            raw = np.array(lanes, np.uint32).view(np.uint8)
            kept = np.unpackbits(raw, bitorder="little").view(np.bool_)
        scaling = None
        if factors:
            scaling = Scaling(factors[0], factors[1], _VECTORS[kind, vector])
        mma = by_address.Mma(
            kind, group, acc, a, b, idesc, bool(adds), in_tensor_memory, scaling, kept,
            "ws" if weights else "plain", shifts, halvings,
        )  # fmt: skip
        return by_address.mma_by_descriptor, (site, mask, mma)

    return Perform((), sources, start, None, _MMA, site=(("cta_group", group),))


_WARPS = ("warpx4", "warpx2::02_13", "warpx2::01_23")


def _cp(instruction: Instruction, modifiers: Modifiers) -> Operation:
    group = _pair(modifiers)
    # ptxas takes the warps before the shape, too
    warps = [w for w in _WARPS if modifiers.anywhere(w)]
    shape = modifiers.need("128x256b", "128x128b", "64x128b", "32x128b", "4x256b")
    width = 8
    if modifiers.flag("b8x16"):
        width = {"b6x16_p32": 6, "b4x16_p64": 4}[modifiers.need("b6x16_p32", "b4x16_p64")]
    modifiers.end()
    form = ".".join([shape, *warps])
    if shape == "4x256b":
        not_modelled(instruction, "the shape '.4x256b', whose lanes the PTX ISA does not name,")
    if form not in by_address.COPIES:
        not_modelled(instruction, f"the shape '.{form}'")
    where, descriptor = operands(instruction, 2)

    def start(w: Warp, site: Site, mask: int, at: Value, bits: Value) -> Any:
        operands = group, one(site, mask, at), one(site, mask, bits), form, width
        return by_address.copy_by_descriptor, (site, mask, *operands)

    sources = ((inside(instruction, where), "u32"), (descriptor, "u64"))
    return Perform((), sources, start, None, _MMA, site=(("cta_group", group),))


def _shift(instruction: Instruction, modifiers: Modifiers) -> Operation:
    # the syntax of the PTX ISA has the direction last, its examples first
    first = modifiers.flag("down")
    group = _pair(modifiers)
    if not first:
        modifiers.need("down")
    modifiers.end()
    (where,) = operands(instruction, 1)

    def start(w: Warp, site: Site, mask: int, at: Value) -> Any:
        return by_address.shift_down, (site, mask, group, one(site, mask, at))

    sources = ((inside(instruction, where), "u32"),)
    return Perform((), sources, start, None, _MMA, site=(("cta_group", group),))


def _commit(instruction: Instruction, modifiers: Modifiers) -> Operation:
    group = _pair(modifiers)
    modifiers.need("mbarrier::arrive::one")
    space = modifiers.take("shared::cluster", "shared::cta")
    multicast = modifiers.flag("multicast::cluster")
    modifiers.need("b64")
    modifiers.end()
    where, *rest = operands(instruction, 2 if multicast else 1)

    def start(w: Warp, site: Site, mask: int, at: Value, ctas: Value) -> Any:
        address = in_shared(w, site, mask, space, one(site, mask, at))
        rank, offset = place(one(site, mask, address))
        if multicast:
            return unit.tcgen05_commit, (site, mask, offset, one(site, mask, ctas))
        return unit.tcgen05_commit, (site, mask, offset, None, None if rank == w.rank else rank)

    sources = (
        (inside(instruction, where), address_type(space)),
        (rest[0] if rest else Integer(0), "u16"),
    )
    facts = Facts(unit=Unit.TENSOR_CORE, commits=Group.TCGEN05, noticed=True)
    return Perform((), sources, start, None, facts, Sync.ARRIVE, site=(("cta_group", group),))


# -- loads and stores --------------------------------------------------------------------


def _places(shape: str, count: int) -> tuple[int, int, Array, Array]:
    """(rows, columns, row and column of each register in each lane) of a transfer; the last two
    (registers, 32).
    """
    if shape == "32x32b":
        registers = np.arange(count)[:, None]
        return (
            32,
            count,
            np.broadcast_to(_LANE, (count, WARP)),
            np.broadcast_to(registers, (count, WARP)),
        )
    per, wide = {"16x32bx2": (1, 2), "16x64b": (1, 2), "16x128b": (2, 4), "16x256b": (4, 8)}[shape]
    register = np.arange(per * count)[:, None]
    group, within = register // per, register % per
    if shape == "16x32bx2":
        # the upper half of the lanes has the second half of the columns
        rows, cols = _LANE % 16, register + count * (_LANE // 16)
    elif shape == "16x64b":
        rows, cols = _LANE // 4 + 8 * (_LANE % 2), wide * group + _LANE // 2 % 2
    elif shape == "16x128b":
        rows, cols = _LANE // 4 + 8 * within, wide * group + _LANE % 4
    else:
        rows = _LANE // 4 + 8 * (within // 2)
        cols = wide * group + 2 * (_LANE % 4) + within % 2
    rows, cols = np.broadcast_arrays(rows, cols)
    return 16, wide * count, rows, cols


def _transfer(instruction: Instruction, modifiers: Modifiers, action: str) -> Operation:
    modifiers.need("sync")
    modifiers.need("aligned")
    shape = modifiers.need("16x32bx2", "16x64b", "16x128b", "16x256b", "32x32b")
    count = int(modifiers.need(*(f"x{1 << i}" for i in range(8)))[1:])
    halves = modifiers.flag("pack::16b" if action == "ld" else "unpack::16b")
    modifiers.need("b32")
    modifiers.end()
    if shape == "16x32bx2" and halves:
        not_modelled(instruction, "halves of 16x32bx2")
    if shape == "16x32bx2":
        first, *between, last = operands(instruction, 3)
        where, split = (between[0], last) if action == "ld" else (first, between[0])
        vector = first if action == "ld" else last
        if constant(instruction, split) != count:
            not_modelled(instruction, f"a second half that is {split} columns after the first")
    else:
        first, last = operands(instruction, 2)
        vector, where = (first, last) if action == "ld" else (last, first)
    items = vector.items if isinstance(vector, Vector) else (vector,)
    rows, columns, row, col = _places(shape, count)
    if len(items) != len(row):
        not_modelled(instruction, f"{len(items)} registers for {shape}.x{count}")
    address = inside(instruction, where)
    if action == "ld":
        numbers = tuple(item.number for item in items if isinstance(item, Register))

        def load(w: Warp, site: Site, mask: int, at: Value) -> Any:
            wide = columns * (1 + halves)
            return by_address.load_words, (site, mask, one(site, mask, at), rows, wide)

        def keep(w: Warp, words: Array) -> tuple[()]:
            def in_registers(words: Array) -> Array:
                found: Array = (_packed(words) if halves else words)[row, col]
                return found

            values = in_registers(words)
            w.poison.take(numbers, in_registers)
            if waited := w.world.asks(LOADED_REGISTERS):
                w.loads.append((numbers, values))
            for number, value in zip(numbers, values, strict=True):
                w.registers[number] = IN_FLIGHT if waited else _kept(w, number, value)
            return ()

        facts = Facts(unit=Unit.TENSOR_MEMORY, issues=Group.TMEM_LOADS, together=Scope.WARP)
        return Perform(
            (), ((address, "u32"),), load, keep, facts, members=Integer(FULL),
            in_place=typed(items, "b32"),
        )  # fmt: skip

    def store(w: Warp, site: Site, mask: int, at: Value, *values: Value) -> Any:
        words = np.zeros((rows, columns), np.uint32)
        for r, value in enumerate(values):
            words[row[r], col[r]] = per_lane(value)
        if halves:  # one half to the lower half of each column
            words = words[..., None].view(np.uint16).reshape(rows, -1).astype(np.uint32)
        return by_address.store_words, (site, mask, one(site, mask, at), words)

    facts = Facts(unit=Unit.TENSOR_MEMORY, issues=Group.TMEM_STORES, together=Scope.WARP)
    return Perform(
        (), ((address, "u32"), *typed(items, "b32")), store, None, facts, members=Integer(FULL),
        carries=1,
    )  # fmt: skip


def _packed(words: Array) -> Array:
    """The lower halves of two columns each as one word."""
    halves = np.ascontiguousarray(words.astype(np.uint16))
    return halves.view(np.uint32)


def _wait(instruction: Instruction, modifiers: Modifiers, action: str) -> Operation:
    modifiers.need("sync")
    modifiers.need("aligned")
    modifiers.end()
    if action == "wait::st":

        def wait_stores(w: Warp, site: Site, mask: int) -> Any:
            return tensor_access.tmem_wait_store, (site, mask)

        facts = Facts(awaits=Group.TMEM_STORES)
        return Perform((), (), wait_stores, None, facts, members=Integer(FULL))

    def wait_loads(w: Warp, site: Site, mask: int) -> Any:
        return tensor_access.tmem_wait_load, (site, mask)

    facts = Facts(awaits=Group.TMEM_LOADS)
    return Perform((), (), wait_loads, _loaded, facts, members=Integer(FULL))


def _loaded(w: Warp, answer: None) -> tuple[()]:
    """After a tcgen05.wait::ld: what was loaded is in the registers. In practice it is there at
    once, and `compiler.early_uses` finds what uses it before the wait.
    """
    for numbers, values in w.loads:
        for number, value in zip(numbers, values, strict=True):
            w.registers[number] = _kept(w, number, value)
    w.loads.clear()
    return ()


def _kept(w: Warp, number: int, value: Array) -> Array:
    """Words as the code keeps them in a register."""
    found: Array = value.view(w.code.content[number])
    return found


def _fence(instruction: Instruction, modifiers: Modifiers, action: str) -> Operation:
    modifiers.end()
    before = action == "fence::before_thread_sync"
    op = tensor_access.tcgen05_fence_before if before else tensor_access.tcgen05_fence_after

    def fence(w: Warp, site: Site, mask: int) -> Any:
        return op, (site, mask)

    return Perform((), (), fence, None, Facts(orders=Order.TENSOR_MEMORY))
