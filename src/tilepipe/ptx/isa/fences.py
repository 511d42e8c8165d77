"""Fences (PTX ISA, "membar / fence")."""

from __future__ import annotations

from typing import Any

from tilepipe.ir.facts import Facts, Order
from tilepipe.machine.barriers import rendezvous
from tilepipe.machine.happens_before.memory_order import Scope
from tilepipe.machine.sites import Site
from tilepipe.ptx.definition import (
    Modifiers,
    Nothing,
    Operation,
    Perform,
    defines,
    not_modelled,
    operands,
)
from tilepipe.ptx.isa import tensor_maps
from tilepipe.ptx.isa.memory import SCOPES
from tilepipe.ptx.syntax.nodes import Instruction
from tilepipe.ptx.warp_protocol import Warp


@defines("fence", "membar")
def _fence(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    if modifiers.flag("proxy"):
        return _proxy_fence(instruction, modifiers)
    if instruction.opcode == "membar":
        scope = modifiers.need("cta", "gl", "sys")
        modifiers.end()
        operands(instruction, 0)
        return _ordinary_fence(Scope.GPU if scope == "gl" else SCOPES[scope])
    if modifiers.flag("mbarrier_init"):
        modifiers.need("release")
        modifiers.need("cluster")
        modifiers.end()

        def publish(w: Warp, site: Site, mask: int) -> Any:
            return rendezvous.fence_barrier_init, (site, mask)

        return Perform((), (), publish, None, Facts(orders=Order.BARRIER_INITIALISATION))
    order = modifiers.take("sc", "acq_rel", "acquire", "release")
    if order in ("acquire", "release"):
        restricted = "shared::cluster" if order == "acquire" else "shared::cta"
        if modifiers.flag(f"sync_restrict::{restricted}"):
            modifiers.need("cluster")
            modifiers.end()
            operands(instruction, 0)
            return _ordinary_fence(Scope.CLUSTER, order, restricted=True)
    scope = modifiers.need("cta", "cluster", "gpu", "sys")
    modifiers.end()
    operands(instruction, 0)
    return _ordinary_fence(SCOPES[scope], order)


def _ordinary_fence(scope: Scope, order: str = "acq_rel", *, restricted: bool = False) -> Perform:
    acquires, releases = order != "release", order != "acquire"

    def fence(w: Warp, site: Site, mask: int) -> Any:
        return rendezvous.fence, (site, mask, scope, acquires, releases, restricted)

    return Perform((), (), fence, None, acquires=acquires and scope >= Scope.GPU)


def _proxy_fence(instruction: Instruction, modifiers: Modifiers) -> Operation:
    kind = modifiers.need("async", "async::generic", "tensormap::generic", "alias")
    if kind == "alias":  # virtual aliases of an address: here each byte has one address
        modifiers.end()
        return Nothing()
    if kind == "tensormap::generic":
        return tensor_maps.fence(instruction, modifiers)
    if kind != "async":
        not_modelled(instruction, f"fence.proxy.{kind}")
    space = modifiers.take("global", "shared::cta", "shared::cluster")
    modifiers.end()
    covers = {"shared::cta": "shared", "shared::cluster": "cluster", "global": "global"}

    def fence(w: Warp, site: Site, mask: int) -> Any:
        return rendezvous.fence_proxy_async, (site, mask, covers.get(space, "all"))

    return Perform((), (), fence, None, Facts(orders=Order.PROXIES))
