"""Bulk and tensor copies (PTX ISA, "Data Movement and Conversion Instructions: Bulk copy", "Tensor
copy").
"""

from __future__ import annotations

from typing import Any

from tilepipe.errors import SimFault
from tilepipe.ir.facts import Facts, Group, Sync, Unit
from tilepipe.machine.sites import Site
from tilepipe.machine.units import tma
from tilepipe.ptx.address_spaces import PARAM_WINDOW
from tilepipe.ptx.definition import (
    Modifiers,
    Operation,
    Perform,
    constant,
    defines,
    inside,
    not_modelled,
    operands,
    typed,
)
from tilepipe.ptx.execution.requests import Value, one, place
from tilepipe.ptx.execution.warp import Warp
from tilepipe.ptx.isa.thread_copies import thread_copy
from tilepipe.ptx.syntax.nodes import Address, Instruction, Integer, Operand, Vector

_DIMENSIONS = ("1d", "2d", "3d", "4d", "5d")
_LOAD = Facts(unit=Unit.TMA, noticed=True)
_STORE = Facts(unit=Unit.TMA, issues=Group.BULK)


@defines("cp")
def _cp(instruction: Instruction) -> Operation:
    if instruction.modifiers[1:2] != ("bulk",) and instruction.modifiers[:1] == ("async",):
        return thread_copy(instruction)
    modifiers = Modifiers(instruction)
    modifiers.need("async")
    modifiers.need("bulk")
    match modifiers.any():
        case "tensor":
            return _tensor(instruction, modifiers)
        case "commit_group":
            modifiers.end()
            return Perform((), (), _commit, None, Facts(commits=Group.BULK))
        case "wait_group":
            reading = modifiers.flag("read")
            modifiers.end()
            pending = constant(instruction, *operands(instruction, 1))

            def wait(w: Warp, site: Site, mask: int) -> Any:
                return tma.tma_store_wait, (site, mask, pending, reading)

            return Perform((), (), wait, None, Facts(awaits=Group.BULK))
    not_modelled(instruction, f"cp.async.bulk.{instruction.modifiers[2]}")


def _commit(w: Warp, site: Site, mask: int) -> Any:
    return tma.tma_store_commit, (site, mask)


def _tensor(instruction: Instruction, modifiers: Modifiers) -> Operation:
    # ptxas takes it in several places, and NVVM and Triton use them.
    pair = modifiers.anywhere("cta_group::1", "cta_group::2") == "cta_group::2"
    dimensions = int(modifiers.need(*_DIMENSIONS)[0])
    to = modifiers.need("shared::cluster", "shared::cta", "global")
    modifiers.need("shared::cta" if to == "global" else "global")
    modifiers.flag("tile")
    if to == "global":
        modifiers.need("bulk_group")
        if modifiers.flag("L2::cache_hint"):
            not_modelled(instruction, "a cache policy")
        modifiers.end()
        return _store(instruction, dimensions)
    modifiers.need("mbarrier::complete_tx::bytes")
    multicast = modifiers.flag("multicast::cluster")
    hinted = modifiers.flag("L2::cache_hint")
    modifiers.end()
    return _load(instruction, dimensions, multicast, pair, hinted)


def _box(instruction: Instruction, operand: Operand, dimensions: int) -> tuple[Operand, ...]:
    """`[map, {x, y}]`: the map's address, and the coordinates, innermost first."""
    if isinstance(operand, Address) and len(operand.items) == 2:
        tensor_map, coords = operand.items
        if isinstance(coords, Vector) and len(coords.items) == dimensions:
            return tensor_map, *coords.items
    not_modelled(instruction, f"the operand {operand}")


def _map_at(w: Warp, site: Site, address: int) -> Any:
    """The tensor map at a generic address."""
    found = w.launch.tensor_maps.get(address - PARAM_WINDOW)
    if found is None:
        raise SimFault(f"{site.what}: there is no tensor map at {address:#x}", site.loc)
    return found


def _load(
    instruction: Instruction, dimensions: int, multicast: bool, pair: bool, hinted: bool
) -> Operation:
    where, source, barrier, *rest = operands(instruction, 3 + multicast + hinted)
    tensor_map, *coords = _box(instruction, source, dimensions)
    mask_operand = rest[0] if multicast else Integer(0)

    def start(
        w: Warp,
        site: Site,
        mask: int,
        at: Value,
        bar: Value,
        ctas: Value,
        map_at: Value,
        *xs: Value,
    ) -> Any:
        rank, offset = place(one(site, mask, at))
        bar_rank, bar_offset = place(one(site, mask, bar))
        if rank != w.rank:
            raise SimFault(
                f"{site.what}: the destination is in CTA rank {rank}, and a copy without"
                f" .multicast::cluster by rank {w.rank} fills its own shared memory",
                site.loc,
            )
        if not pair and bar_rank != w.rank:
            raise SimFault(
                f"{site.what}: the mbarrier is in CTA rank {bar_rank}; only a copy with"
                " .cta_group::2 signals that of the other CTA of its pair",
                site.loc,
            )
        found = _map_at(w, site, one(site, mask, map_at))
        where = tuple(one(site, mask, x) for x in reversed(xs))
        return tma.tma_load, (
            site, mask, where, offset, found, bar_offset,
            one(site, mask, ctas) if multicast else None, bar_rank if pair else None,
        )  # fmt: skip

    sources = (
        (inside(instruction, where), "u32"), (inside(instruction, barrier), "u32"),
        (mask_operand, "u16"), (tensor_map, "u64"), *typed(coords, "s32"),
    )  # fmt: skip
    return Perform((), sources, start, None, _LOAD, Sync.CREDIT, site=(("multicast", multicast),))


def _store(instruction: Instruction, dimensions: int) -> Operation:
    destination, where = operands(instruction, 2)
    tensor_map, *coords = _box(instruction, destination, dimensions)

    def start(w: Warp, site: Site, mask: int, at: Value, map_at: Value, *xs: Value) -> Any:
        _, offset = place(one(site, mask, at))
        found = _map_at(w, site, one(site, mask, map_at))
        where = tuple(one(site, mask, x) for x in reversed(xs))
        return tma.tma_store, (site, mask, where, offset, found)

    sources = ((inside(instruction, where), "u32"), (tensor_map, "u64"), *typed(coords, "s32"))
    return Perform((), sources, start, None, _STORE, site=(("writes", True),))
