"""Control of other clusters and grids: clusterlaunchcontrol and griddepcontrol (PTX ISA, "Parallel
Synchronization and Communication Instructions").

The response of clusterlaunchcontrol is opaque to programs. Here its first 32 bits are the number of
the cluster that was cancelled, and the last 32 whether one was.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilepipe.errors import SimFault
from tilepipe.ir.facts import Facts, Resource, Sync, Unit
from tilepipe.machine.sites import Site
from tilepipe.machine.units import grid
from tilepipe.ptx.definition import (
    Compute,
    Modifiers,
    Nothing,
    Operation,
    Perform,
    defines,
    inside,
    operands,
)
from tilepipe.ptx.isa.requests import Value, one, place
from tilepipe.ptx.lanes import Array
from tilepipe.ptx.syntax.nodes import Instruction, SpecialRegister
from tilepipe.ptx.warp_protocol import Warp

RESPONSE_BYTES = 16
_FACTS = Facts(unit=Unit.LAUNCH_CONTROL, noticed=True, takes=Resource.CLUSTERS)


@defines("clusterlaunchcontrol")
def _launch_control(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    if modifiers.need("try_cancel", "query_cancel") == "query_cancel":
        return _query(instruction, modifiers)
    modifiers.need("async")
    modifiers.flag("shared::cta")
    modifiers.need("mbarrier::complete_tx::bytes")
    multicast = modifiers.flag("multicast::cluster::all")
    modifiers.need("b128")
    modifiers.end()
    where, barrier = operands(instruction, 2)

    def start(w: Warp, site: Site, mask: int, at: Value, bar: Value) -> Any:
        offset, bar_offset = place(one(site, mask, at))[1], place(one(site, mask, bar))[1]
        if offset % RESPONSE_BYTES:
            where_ = w.world.program.shared_names.exactly(offset)
            raise SimFault(
                f"{site.what}: the response at {where_} is not at a multiple of {RESPONSE_BYTES}",
                site.loc,
            )
        rect = (0, 1, offset, offset + RESPONSE_BYTES)
        return grid.clc_try_cancel, (site, mask, multicast, None, rect, bar_offset)

    sources = ((inside(instruction, where), "u32"), (inside(instruction, barrier), "u32"))
    fields = (("multicast", multicast), ("nbytes", RESPONSE_BYTES))
    return Perform((), sources, start, None, _FACTS, Sync.CREDIT, site=fields)


def _query(instruction: Instruction, modifiers: Modifiers) -> Operation:
    what = modifiers.need(
        "is_canceled", "get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z"
    )
    kind = modifiers.need("pred" if what == "is_canceled" else "b32")
    modifiers.need("b128")
    modifiers.end()
    destination, response = operands(instruction, 2)
    if what == "is_canceled":
        return Compute(
            ((destination, kind),), ((response, "b128"),), lambda r: _words(r)[:, 3] == 1,
            "({0} >> 96 & 1) == 1",
        )  # fmt: skip
    axis = "xyz".index(what[-1])

    def lanes(response: Array, x: Array, y: Array, size: Array) -> Array:
        cluster = _words(response)[:, 0]
        place = (cluster % x, cluster // x % y, cluster // (x * y))[axis]
        return place * size

    sources = (
        (response, "b128"), (SpecialRegister("%nclusterid", "x"), "u32"),
        (SpecialRegister("%nclusterid", "y"), "u32"),
        (SpecialRegister("%cluster_nctaid", "xyz"[axis]), "u32"),
    )  # fmt: skip
    scalar = f"w.first_cta({{0}} & 0xffffffff, {axis})"
    return Compute(((destination, kind),), sources, lanes, scalar)


def _words(responses: Array) -> Array:
    """The responses of 32 lanes as four words each."""
    return np.ascontiguousarray(responses).view(np.uint32).reshape(-1, 4)


@defines("griddepcontrol")
def _griddepcontrol(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    action = modifiers.need("wait", "launch_dependents")
    modifiers.end()
    operands(instruction, 0)
    if action == "launch_dependents":
        return Nothing()

    def wait(w: Warp, site: Site, mask: int) -> Any:
        return grid.grid_dependency_wait, (site, mask)

    return Perform((), (), wait, None, Facts(noticed=True), Sync.WAIT)
