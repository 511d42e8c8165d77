"""Bulk and tensor copies (PTX ISA, "Data Movement and Conversion Instructions: Bulk copy", "Tensor
copy").
"""

from __future__ import annotations

from typing import Any

from tilepipe.errors import SimFault
from tilepipe.ir.facts import Facts, Group, Sync, Unit
from tilepipe.machine.agents import Agent
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.boxes import Box, Span, gathered
from tilepipe.machine.memory.byte_access import Combine
from tilepipe.machine.memory.tensor_map import ELEMENTS
from tilepipe.machine.sites import Site
from tilepipe.machine.units import tma, tma_by_address
from tilepipe.machine.units.tma_by_address import Completion
from tilepipe.ptx.definition import (
    Modifiers,
    Nothing,
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
from tilepipe.ptx.isa.reduction_types import BULK, BULK_IN_SHARED, HALVES, TENSOR
from tilepipe.ptx.isa.reductions import reduction
from tilepipe.ptx.isa.requests import Value, grouped, place
from tilepipe.ptx.isa.tensor_maps import map_at
from tilepipe.ptx.isa.thread_copies import thread_copy
from tilepipe.ptx.syntax.nodes import Address, Instruction, Integer, Operand, Vector
from tilepipe.ptx.warp_protocol import Warp

_DIMENSIONS = ("1d", "2d", "3d", "4d", "5d")
_NOT_TILED = ("im2col", "im2col_no_offs", "im2col::w", "im2col::w::128")
_GATHERED = 5  # coordinates of four rows: the column, and each row
_LOAD = Facts(unit=Unit.TMA, noticed=True)
_STORE = Facts(unit=Unit.TMA, issues=Group.BULK)
_WRITES = (("writes", True),)


@defines("cp")
def _cp(instruction: Instruction) -> Operation:
    if instruction.modifiers[1:2] != ("bulk",) and instruction.modifiers[:1] == ("async",):
        return thread_copy(instruction)
    modifiers = Modifiers(instruction)
    reduces = modifiers.flag("reduce")
    modifiers.need("async")
    modifiers.need("bulk")
    if not reduces:
        match modifiers.take("commit_group", "wait_group", "prefetch"):
            case "commit_group":
                modifiers.end()
                return Perform((), (), _commit, None, Facts(commits=Group.BULK))
            case "wait_group":
                return _wait(instruction, modifiers)
            case "prefetch":
                return _prefetch(instruction, modifiers)
    if modifiers.flag("tensor"):
        return _tensor(instruction, modifiers, reduces)
    return _bulk(instruction, modifiers, reduces)


def _commit(w: Warp, site: Site, mask: int) -> Any:
    return tma.tma_store_commit, (site, mask)


def _wait(instruction: Instruction, modifiers: Modifiers) -> Operation:
    reading = modifiers.flag("read")
    modifiers.end()
    pending = constant(instruction, *operands(instruction, 1))

    def wait(w: Warp, site: Site, mask: int) -> Any:
        return tma.tma_store_wait, (site, mask, pending, reading)

    return Perform((), (), wait, None, Facts(awaits=Group.BULK))


def _prefetch(instruction: Instruction, modifiers: Modifiers) -> Operation:
    """Into L2: nothing that could be observed."""
    tensor = modifiers.flag("tensor")
    dimensions = int(modifiers.need(*_DIMENSIONS)[0]) if tensor else 0
    modifiers.need("L2")
    modifiers.need("global")
    mode = _mode(instruction, modifiers, "tile::gather4") if tensor else ""
    hinted = modifiers.flag("L2::cache_hint")
    modifiers.end()
    where, *_ = operands(instruction, (1 if tensor else 2) + hinted)
    if tensor:
        _box(instruction, where, _coordinates(instruction, mode, dimensions))
    else:
        inside(instruction, where)
    return Nothing()


# -- tensor copies -----------------------------------------------------------------------


def _mode(instruction: Instruction, modifiers: Modifiers, rows: str) -> str:
    """`.load_mode`: "tile", or `rows`, the one of four rows."""
    if refused := modifiers.take(*_NOT_TILED):
        not_modelled(instruction, f"the mode '.{refused}'")
    return modifiers.take("tile", rows) or "tile"


def _coordinates(instruction: Instruction, mode: str, dimensions: int) -> int:
    """The number of coordinates."""
    if mode == "tile":
        return dimensions
    if dimensions != 2:
        not_modelled(instruction, f"'.{mode}' in {dimensions} dimensions")
    return _GATHERED


def _tensor(instruction: Instruction, modifiers: Modifiers, reduces: bool) -> Operation:
    # ptxas takes it in several places, and NVVM and Triton use them.
    group = modifiers.anywhere("cta_group::1", "cta_group::2")
    dimensions = int(modifiers.need(*_DIMENSIONS)[0])
    to = "global" if reduces else modifiers.need("shared::cluster", "shared::cta", "global")
    if reduces:
        modifiers.need("global")
    modifiers.need("shared::cta" if to == "global" else "global")
    kind = modifiers.need(*TENSOR) if reduces else ""
    rows = "tile::scatter4" if to == "global" and not reduces else "tile::gather4"
    mode = _mode(instruction, modifiers, "tile" if reduces else rows)
    count = _coordinates(instruction, mode, dimensions)
    if to == "global":
        modifiers.need("bulk_group")
        hinted = modifiers.flag("L2::cache_hint")
        modifiers.end()
        if group:
            not_modelled(instruction, f"'.{group}' of a store")
        return _tensor_store(instruction, count, hinted, kind, mode)
    modifiers.need("mbarrier::complete_tx::bytes")
    multicast = to == "shared::cluster" and modifiers.flag("multicast::cluster")
    hinted = modifiers.flag("L2::cache_hint")
    modifiers.end()
    return _tensor_load(instruction, count, multicast, group == "cta_group::2", hinted, mode)


def _box(instruction: Instruction, operand: Operand, dimensions: int) -> tuple[Operand, ...]:
    """`[map, {x, y}]`: the map's address, and the coordinates, innermost first."""
    if isinstance(operand, Address) and len(operand.items) == 2:
        tensor_map, coords = operand.items
        if isinstance(coords, Vector) and len(coords.items) == dimensions:
            return tensor_map, *coords.items
    not_modelled(instruction, f"the operand {operand}")


def _tensor_load(
    instruction: Instruction, dimensions: int, multicast: bool, pair: bool, hinted: bool, mode: str
) -> Operation:
    where, source, barrier, *rest = operands(instruction, 3 + multicast + hinted)
    tensor_map, *coords = _box(instruction, source, dimensions)

    def start(
        w: Warp, site: Site, mask: int, at: Value, bar: Value, ctas: Value, map_: Value, *xs: Value
    ) -> Any:
        def load(lanes: int, at: int, bar: int, ctas: int, map_: int, *xs: int) -> Any:
            to = Completion(*place(bar), pair)
            masked = ctas if multicast else None
            gathers = mode != "tile"
            own = _own(w, site, at)
            return _load_tensor, (site, lanes, w, map_, xs, own, to, masked, gathers)

        return grouped(site, mask, load, at, bar, ctas, map_, *xs)

    sources = (
        (inside(instruction, where), "u32"), (inside(instruction, barrier), "u32"),
        (rest[0] if multicast else Integer(0), "u16"), (tensor_map, "u64"), *typed(coords, "s32"),
    )  # fmt: skip
    return Perform((), sources, start, None, _LOAD, Sync.CREDIT, site=(("multicast", multicast),))


def _own(w: Warp, site: Site, address: int) -> int:
    """The offset of an address in the CTA's own shared memory."""
    rank, offset = place(address)
    if rank != w.rank:
        raise SimFault(
            f"{site.what}: the destination is in CTA rank {rank}, and a copy without"
            f" .multicast::cluster by rank {w.rank} fills its own shared memory",
            site.loc,
        )
    return offset


def _load_tensor(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    w: Warp,
    map_address: int,
    coords: tuple[int, ...],
    at: int,
    to: Completion,
    ctas: int | None,
    gathers: bool,
) -> None:
    tma.one_lane(ag, site, mask)
    found, seen = map_at(m, ag, w, site, mask, map_address)
    if w.launch.memory.at(found.address, found.address + 1) is None:
        raise SimFault(
            f"{site.what}: {found.name} is encoded at the address {found.address:#x}, where no"
            " array lies. A load can fault where that address is not mapped, whatever it reads; a"
            " store does not. Encode the map at its array's own address: where tiles are to end at"
            " any row, let addresses wrap round, as Triton's ragged descriptors do",
            site.loc,
        )
    if gathers:
        for row in gathered(w.launch.memory, found, coords, site, seen):
            tma_by_address.load(m, ag, site, mask, row, at, to, ctas)
        return
    box = Box(w.launch.memory, found, coords, seen)
    tma_by_address.load(m, ag, site, mask, box, at, to, ctas)


def _tensor_store(
    instruction: Instruction, dimensions: int, hinted: bool, kind: str, mode: str
) -> Operation:
    destination, where, *_ = operands(instruction, 2 + hinted)
    tensor_map, *coords = _box(instruction, destination, dimensions)

    def start(w: Warp, site: Site, mask: int, at: Value, map_: Value, *xs: Value) -> Any:
        def store(lanes: int, at: int, map_: int, *xs: int) -> Any:
            scatters = mode != "tile"
            own = _own(w, site, at)
            return _store_tensor, (site, lanes, w, map_, xs, own, kind, scatters)

        return grouped(site, mask, store, at, map_, *xs)

    sources = ((inside(instruction, where), "u32"), (tensor_map, "u64"), *typed(coords, "s32"))
    return Perform((), sources, start, None, _STORE, site=_WRITES)


def _store_tensor(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    w: Warp,
    map_address: int,
    coords: tuple[int, ...],
    at: int,
    kind: str,
    scatters: bool,
) -> None:
    mask = tma.storing_lane(m, ag, site, mask, bool(kind))
    found, seen = map_at(m, ag, w, site, mask, map_address)
    combine: Combine | None = None
    if kind:
        element = ELEMENTS[found.element].name
        if element not in TENSOR[kind]:
            raise SimFault(
                f"{site.what}: {found.name} has elements of type {element}, which TMA does not"
                f" reduce by {kind} (PTX ISA, cp.reduce.async.bulk.tensor)",
                site.loc,
            )
        combine = reduction(kind, element)
    if scatters:
        for row in gathered(w.launch.memory, found, coords, site, seen):
            tma_by_address.store(m, ag, site, mask, row, at)
        return
    box = Box(w.launch.memory, found, coords, seen)
    tma_by_address.store(m, ag, site, mask, box, at, combine)


# -- bulk copies -------------------------------------------------------------------------


def _bulk(instruction: Instruction, modifiers: Modifiers, reduces: bool) -> Operation:
    to = modifiers.need("shared::cluster", "shared::cta", "global")
    source = modifiers.need("shared::cta" if to == "global" else "global", "shared::cta")
    modifiers.need("bulk_group" if to == "global" else "mbarrier::complete_tx::bytes")
    within = source == "shared::cta" and to != "global"  # between shared memories of the cluster
    if (within and to != "shared::cluster") or (reduces and source == "global"):
        not_modelled(instruction, f"a copy from .{source} to .{to}")
    multicast = source == "global" and to == "shared::cluster"
    multicast = multicast and modifiers.flag("multicast::cluster")
    hinted = not within and modifiers.flag("L2::cache_hint")
    combine = _bulk_reduction(instruction, modifiers, within=within) if reduces else None
    if masked := modifiers.take("cp_mask", "ignore_oob"):
        not_modelled(instruction, f"a copy with '.{masked}'")
    modifiers.end()
    where, given, size, *rest = operands(instruction, 3 + (to != "global") + multicast + hinted)
    barrier: tuple[Typed, ...] = ()
    if to != "global":
        barrier = ((inside(instruction, rest[0]), "u32"),)
        if multicast:
            barrier += ((rest[1], "u16"),)

    def start(w: Warp, site: Site, mask: int, *values: Value) -> Any:
        def copy(lanes: int, at: int, given: int, nbytes: int, *rest: int) -> Any:
            if to == "global":
                span = Span(w.launch.memory, at, nbytes)
                return tma_by_address.store, (site, lanes, span, _own(w, site, given), combine)
            completion = Completion(*place(rest[0]))
            if within:
                rank, offset = place(at)
                return tma_by_address.copy_to_cta, (
                    site, lanes, _own(w, site, given), nbytes, rank, offset, completion, combine,
                )  # fmt: skip
            ctas = rest[1] if multicast else None
            span = Span(w.launch.memory, given, nbytes)
            return tma_by_address.load, (site, lanes, span, _own(w, site, at), completion, ctas)

        return grouped(site, mask, copy, *values)

    wide = {"global": "u64"}
    sources = (
        (inside(instruction, where), wide.get(to, "u32")),
        (inside(instruction, given), wide.get(source, "u32")), (size, "u32"), *barrier,
    )  # fmt: skip
    if to == "global":
        return Perform((), sources, start, None, _STORE, site=_WRITES)
    return Perform((), sources, start, None, _LOAD, Sync.CREDIT, site=(("multicast", multicast),))


def _bulk_reduction(instruction: Instruction, modifiers: Modifiers, *, within: bool) -> Combine:
    """`.redOp.type` (PTX ISA, cp.reduce.async.bulk, the table of valid combinations)."""
    types = BULK_IN_SHARED if within else BULK
    operation = modifiers.need(*types)
    rounds = modifiers.flag("noftz")
    element = modifiers.any()
    halves = operation == "add" and element in HALVES
    if element not in types[operation] or rounds is not halves:
        place_ = " in shared memory" if within else ""
        not_modelled(instruction, f"a reduction by {operation} of {element or 'no type'}{place_}")
    return reduction(operation, element)
