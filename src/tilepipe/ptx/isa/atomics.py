"""Atomic operations (PTX ISA, "Parallel Synchronization and Communication Instructions": atom,
red).
"""

from __future__ import annotations

from typing import Any

from tilepipe.errors import SimFault
from tilepipe.ir.facts import Facts, Resource
from tilepipe.machine.memory.byte_access import atomic_bytes
from tilepipe.machine.memory.device_memory import atomic_global
from tilepipe.machine.sites import Site
from tilepipe.machine.units.grid import atomic_in_turn
from tilepipe.ptx.address_spaces import SHARED
from tilepipe.ptx.definition import (
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
from tilepipe.ptx.isa import remote_stores
from tilepipe.ptx.isa.combining import VECTORS, combined
from tilepipe.ptx.isa.memory import SCOPES, shared_places, space_of, strong, wide
from tilepipe.ptx.isa.reduction_types import ATOMIC, HALVES
from tilepipe.ptx.isa.requests import Value, per_lane, rows_of
from tilepipe.ptx.lanes import Array
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.syntax.nodes import Instruction, Sink
from tilepipe.ptx.warp_protocol import Warp


@defines("atom", "red")
def _atom(instruction: Instruction) -> Operation:
    if instruction.modifiers[:1] == ("async",):
        return remote_stores.reduction(instruction)
    returns = instruction.opcode == "atom"
    modifiers = Modifiers(instruction)
    orders = ("relaxed", "release", *(("acquire", "acq_rel") if returns else ()))
    names = tuple(n for n in ATOMIC if returns or n not in ("cas", "exch"))
    order, scope, space, name = modifiers.in_any_order(  # CUDA may name the operation first
        orders, tuple(SCOPES), ("global", *SHARED), names
    )
    name = name or modifiers.need(*names)
    unflushed = modifiers.flag("noftz")
    hinted = modifiers.flag("L2::cache_hint")
    count = VECTORS.get(modifiers.take(*VECTORS), 1)
    kind = modifiers.need(*ATOMIC[name])
    modifiers.end()
    halves = kind in HALVES
    if halves != unflushed or (count > 1 and (space == "shared" or kind not in ("f32", *HALVES))):
        not_modelled(instruction, "this combination of operation and type")
    if name in ("min", "max") and halves and count == 1 and kind in ("f16", "bf16"):
        not_modelled(instruction, f"'.{name}' of '.{kind}'")
    expected = 2 + returns + (name == "cas")
    given = operands(instruction, expected + hinted)[:expected]
    destination = given[0] if returns else Sink()
    where, *values = given[returns:]
    lists = [elements(instruction, v, count) for v in values]
    targets = elements(instruction, destination, count) if not isinstance(destination, Sink) else ()
    bits = TYPES[kind].bits
    nbytes = bits // 8 * count
    dtype = TYPES[f"b{bits}"].dtype
    access = strong(order or "relaxed", scope or "gpu", f"b{bits}")
    plain = combined(name, kind)
    on_global = combined(name, kind, flushes=True) if (name, kind) == ("add", "f32") else plain

    def start(w: Warp, site: Site, mask: int, at: Value, *values: Value) -> Any:
        found, at = space_of(w, site, mask, space, at)
        rows = rows_of(values, dtype)
        if found in SHARED:
            addresses, cta = shared_places(w, mask, at)
            return atomic_bytes, (
                site, mask, addresses, rows, nbytes, plain, cta, access,
            )  # fmt: skip
        if found in ("local", "param"):
            raise SimFault(f"{site.what}: an atomic operation on .{found} memory", site.loc)
        op = atomic_in_turn if returns else atomic_global
        return op, (site, mask, w.launch.memory, per_lane(at), rows, nbytes, on_global, access)

    def finish(w: Warp, raw: Array) -> tuple[Array, ...]:
        found = raw.view(dtype)
        return tuple(found[:, i] for i in range(len(targets)))

    takes = Resource.COUNTERS if returns and space not in SHARED else None
    sources = (inside(instruction, where), "u32" if space in SHARED else "u64")
    items = [item for items in lists for item in items]
    return Perform(
        typed(targets, f"b{bits}") if targets else (), (sources, *typed(items, f"b{bits}")), start,
        finish if targets else None, Facts(takes=takes, noticed=True), spread="lanes",
        acquires=returns and access.acquires and wide(access), site=(("writes", True),),
        strong=True,
    )  # fmt: skip
