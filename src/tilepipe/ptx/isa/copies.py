"""Bulk and tensor copies (PTX ISA, "Data Movement and Conversion Instructions: Bulk copy", "Tensor
copy").
"""

from __future__ import annotations

from typing import Any

from tilepipe.errors import SimFault
from tilepipe.ir.facts import Facts, Group, Sync, Unit
from tilepipe.machine.agents import Agent
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.boxes import Box, Span
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
from tilepipe.ptx.isa.reductions import KINDS, reduction
from tilepipe.ptx.isa.requests import Value, one, place
from tilepipe.ptx.isa.tensor_maps import map_at
from tilepipe.ptx.isa.thread_copies import thread_copy
from tilepipe.ptx.syntax.nodes import Address, Instruction, Integer, Operand, Vector
from tilepipe.ptx.warp_protocol import Warp

_DIMENSIONS = ("1d", "2d", "3d", "4d", "5d")
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
    if modifiers.flag("tensor"):
        modifiers.need(*_DIMENSIONS)
        modifiers.need("L2")
        modifiers.need("global")
        modifiers.take("tile", "tile::gather4")
    else:
        modifiers.need("L2")
        modifiers.need("global")
    modifiers.flag("L2::cache_hint")
    modifiers.end()
    return Nothing()


# -- tensor copies -----------------------------------------------------------------------


def _tensor(instruction: Instruction, modifiers: Modifiers, reduces: bool) -> Operation:
    # ptxas takes it in several places, and NVVM and Triton use them.
    pair = modifiers.anywhere("cta_group::1", "cta_group::2") == "cta_group::2"
    dimensions = int(modifiers.need(*_DIMENSIONS)[0])
    to = "global" if reduces else modifiers.need("shared::cluster", "shared::cta", "global")
    if reduces:
        modifiers.need("global")
    modifiers.need("shared::cta" if to == "global" else "global")
    kind = modifiers.need(*KINDS) if reduces else ""
    modifiers.flag("tile")
    if to == "global":
        modifiers.need("bulk_group")
        hinted = modifiers.flag("L2::cache_hint")
        modifiers.end()
        return _tensor_store(instruction, dimensions, hinted, kind)
    modifiers.need("mbarrier::complete_tx::bytes")
    multicast = modifiers.flag("multicast::cluster")
    hinted = modifiers.flag("L2::cache_hint")
    modifiers.end()
    return _tensor_load(instruction, dimensions, multicast, pair, hinted)


def _box(instruction: Instruction, operand: Operand, dimensions: int) -> tuple[Operand, ...]:
    """`[map, {x, y}]`: the map's address, and the coordinates, innermost first."""
    if isinstance(operand, Address) and len(operand.items) == 2:
        tensor_map, coords = operand.items
        if isinstance(coords, Vector) and len(coords.items) == dimensions:
            return tensor_map, *coords.items
    not_modelled(instruction, f"the operand {operand}")


def _tensor_load(
    instruction: Instruction, dimensions: int, multicast: bool, pair: bool, hinted: bool
) -> Operation:
    where, source, barrier, *rest = operands(instruction, 3 + multicast + hinted)
    tensor_map, *coords = _box(instruction, source, dimensions)

    def start(
        w: Warp, site: Site, mask: int, at: Value, bar: Value, ctas: Value, map_: Value, *xs: Value
    ) -> Any:
        return _load_tensor, (
            site, mask, w, one(site, mask, map_), tuple(one(site, mask, x) for x in xs),
            _own(w, site, one(site, mask, at)), Completion(*place(one(site, mask, bar)), pair),
            one(site, mask, ctas) if multicast else None,
        )  # fmt: skip

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
) -> None:
    tma.one_lane(ag, site, mask)
    found, seen = map_at(m, ag, w, site, mask, map_address)
    box = Box(w.launch.memory, found, coords, seen)
    tma_by_address.load(m, ag, site, mask, box, at, to, ctas)


def _tensor_store(instruction: Instruction, dimensions: int, hinted: bool, kind: str) -> Operation:
    destination, where, *_ = operands(instruction, 2 + hinted)
    tensor_map, *coords = _box(instruction, destination, dimensions)

    def start(w: Warp, site: Site, mask: int, at: Value, map_: Value, *xs: Value) -> Any:
        return _store_tensor, (
            site, mask, w, one(site, mask, map_), tuple(one(site, mask, x) for x in xs),
            _own(w, site, one(site, mask, at)), kind,
        )  # fmt: skip

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
) -> None:
    mask = tma.storing_lane(m, ag, site, mask, bool(kind))
    found, seen = map_at(m, ag, w, site, mask, map_address)
    combine: Combine | None = None
    if kind:
        element = ELEMENTS[found.element].name
        chosen = reduction(kind, element)
        if chosen is None:
            raise SimFault(
                f"{site.what}: {found.name} has elements of type {element}, which TMA does not"
                f" reduce by {kind} (PTX ISA, cp.reduce.async.bulk.tensor)",
                site.loc,
            )
        combine = chosen
    box = Box(w.launch.memory, found, coords, seen)
    tma_by_address.store(m, ag, site, mask, box, at, combine)


# -- bulk copies -------------------------------------------------------------------------


def _bulk(instruction: Instruction, modifiers: Modifiers, reduces: bool) -> Operation:
    to = modifiers.need("shared::cluster", "shared::cta", "global")
    source = modifiers.need("shared::cta" if to == "global" else "global", "shared::cta")
    completes = modifiers.need("bulk_group" if to == "global" else "mbarrier::complete_tx::bytes")
    multicast = source == "global" and modifiers.flag("multicast::cluster")
    hinted = modifiers.flag("L2::cache_hint")
    kind, element = "", ""
    if reduces:
        kind = modifiers.need(*KINDS)
        rounds = modifiers.flag("noftz")
        element = modifiers.any()
        if reduction(kind, element) is None or rounds != (
            kind == "add" and element in ("f16", "bf16")
        ):
            not_modelled(instruction, f"a reduction by {kind} of {element or 'no type'}")
        if to != "global":
            not_modelled(instruction, "a reduction in shared memory")
    if not completes or modifiers.flag("ignore_oob") or modifiers.flag("cp_mask"):
        not_modelled(instruction, "a masked copy")
    modifiers.end()
    where, given, size, *rest = operands(instruction, 3 + (to != "global") + multicast + hinted)
    barrier: tuple[Typed, ...] = ()
    if to != "global":
        barrier = ((inside(instruction, rest[0]), "u32"),)
        if multicast:
            barrier += ((rest[1], "u16"),)
    combine = reduction(kind, element) if reduces else None

    def start(
        w: Warp, site: Site, mask: int, at: Value, given: Value, size: Value, *rest: Value
    ) -> Any:
        at, given, nbytes = (one(site, mask, value) for value in (at, given, size))
        if to == "global":
            span = Span(w.launch.memory, at, nbytes)
            return tma_by_address.store, (site, mask, span, _own(w, site, given), combine)
        completion = Completion(*place(one(site, mask, rest[0])))
        if source == "shared::cta":
            rank, offset = place(at)
            return tma_by_address.copy_to_cta, (
                site, mask, _own(w, site, given), nbytes, rank, offset, completion,
            )  # fmt: skip
        ctas = one(site, mask, rest[1]) if multicast else None
        span = Span(w.launch.memory, given, nbytes)
        return tma_by_address.load, (site, mask, span, _own(w, site, at), completion, ctas)

    wide = {"global": "u64"}
    sources = (
        (inside(instruction, where), wide.get(to, "u32")),
        (inside(instruction, given), wide.get(source, "u32")), (size, "u32"), *barrier,
    )  # fmt: skip
    if to == "global":
        return Perform((), sources, start, None, _STORE, site=_WRITES)
    return Perform((), sources, start, None, _LOAD, Sync.CREDIT, site=(("multicast", multicast),))
