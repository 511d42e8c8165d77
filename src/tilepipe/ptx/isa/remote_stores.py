"""Stores and reductions in shared memory of the cluster that happen later and signal an mbarrier:
st.async, red.async.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilepipe.errors import SimFault
from tilepipe.ir.facts import Facts, Sync, Unit
from tilepipe.machine.memory.byte_access import Combine
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import lanes_in
from tilepipe.machine.units.remote_stores import store_later
from tilepipe.ptx.definition import (
    Modifiers,
    Operation,
    Perform,
    elements,
    inside,
    not_modelled,
    operands,
    typed,
)
from tilepipe.ptx.isa.combining import VECTORS, combined
from tilepipe.ptx.isa.reduction_types import ASYNC
from tilepipe.ptx.isa.requests import Value, per_lane, place, rows_of
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.syntax.nodes import Instruction
from tilepipe.ptx.warp_protocol import Warp

_FACTS = Facts(unit=Unit.TMA, noticed=True)


def _signalled(modifiers: Modifiers, order: str) -> None:
    modifiers.flag(order)
    if order == "relaxed":
        modifiers.flag("cluster")
    modifiers.flag("shared::cluster")
    modifiers.need("mbarrier::complete_tx::bytes")


def store(instruction: Instruction) -> Operation:
    """st.async."""
    modifiers = Modifiers(instruction)
    modifiers.need("async")
    _signalled(modifiers, "weak")
    count = VECTORS.get(modifiers.take("v2", "v4"), 1)
    kind = modifiers.need("b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64")
    modifiers.end()
    return _later(instruction, kind, count, None)


def reduction(instruction: Instruction) -> Operation:
    """red.async."""
    modifiers = Modifiers(instruction)
    modifiers.need("async")
    _signalled(modifiers, "relaxed")
    name = modifiers.need(*ASYNC)
    kind = modifiers.need("u32", "s32", "u64", "s64", "b32", "b64")
    modifiers.end()
    if kind not in ASYNC[name]:
        not_modelled(instruction, f"'.{name}' of '.{kind}'")
    return _later(instruction, kind, 1, combined(name, kind))


def _later(instruction: Instruction, kind: str, count: int, combine: Combine | None) -> Operation:
    where, value, barrier = operands(instruction, 3)
    items = elements(instruction, value, count)
    bits = TYPES[kind].bits
    dtype = TYPES[f"b{bits}"].dtype

    def start(w: Warp, site: Site, mask: int, at: Value, bar: Value, *values: Value) -> Any:
        rows = rows_of(values, dtype)
        addresses, bars = per_lane(at), per_lane(bar)
        parts: dict[tuple[int, int], list[int]] = {}
        for lane in lanes_in(mask):
            rank, _ = place(int(addresses[lane]))
            bar_rank, offset = place(int(bars[lane]))
            if rank != bar_rank:
                raise SimFault(
                    f"{site.what}: lane {lane} stores to CTA rank {rank} and signals an mbarrier of"
                    f" rank {bar_rank}; both must be in one CTA",
                    site.loc,
                )
            parts.setdefault((rank, offset), []).append(lane)
        offsets = np.array([place(int(a))[1] for a in addresses], np.int64)
        return store_later, (site, mask, parts, offsets, rows, combine)

    sources = (inside(instruction, where), "u32"), (inside(instruction, barrier), "u32")
    return Perform((), (*sources, *typed(items, f"b{bits}")), start, None, _FACTS, Sync.CREDIT)
