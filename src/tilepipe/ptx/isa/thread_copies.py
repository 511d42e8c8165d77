"""cp.async without .bulk (PTX ISA, "Data Movement and Conversion Instructions: Non-bulk copy")."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilepipe.errors import SimFault
from tilepipe.ir.facts import Facts, Sync
from tilepipe.machine.sites import Site
from tilepipe.machine.units import thread_copies
from tilepipe.ptx.definition import (
    Modifiers,
    Operation,
    Perform,
    constant,
    inside,
    not_modelled,
    operands,
)
from tilepipe.ptx.isa.memory import shared_places
from tilepipe.ptx.isa.requests import Value, grouped, per_lane, place
from tilepipe.ptx.syntax.nodes import Instruction, Integer, Operand, Register
from tilepipe.ptx.warp_protocol import Warp

_NOTICED = Facts(noticed=True)


def thread_copy(instruction: Instruction) -> Operation:
    """cp.async.ca, .cg, .commit_group, .wait_group, .wait_all, .mbarrier.arrive."""
    modifiers = Modifiers(instruction)
    modifiers.need("async")
    action = modifiers.need("ca", "cg", "commit_group", "wait_group", "wait_all", "mbarrier")
    match action:
        case "ca" | "cg":
            return _copy(instruction, modifiers, action)
        case "mbarrier":
            return _arrive(instruction, modifiers)
    modifiers.end()
    pending = None
    if action == "wait_group":
        pending = constant(instruction, *operands(instruction, 1))
    else:
        operands(instruction, 0)

    def start(w: Warp, site: Site, mask: int) -> Any:
        if action == "commit_group":
            return thread_copies.commit, (site, mask)
        return thread_copies.wait, (site, mask, pending)

    return Perform((), (), start, None)


def _copy(instruction: Instruction, modifiers: Modifiers, action: str) -> Operation:
    modifiers.need("shared", "shared::cta")
    modifiers.need("global")
    hinted = modifiers.flag("L2::cache_hint")
    modifiers.take("L2::64B", "L2::128B", "L2::256B")
    modifiers.end()
    where, source, size, *rest = operands(instruction, 3 + hinted, 4 + hinted)
    nbytes = constant(instruction, size)
    if nbytes not in ((4, 8, 16) if action == "ca" else (16,)):
        not_modelled(instruction, f"{nbytes} bytes")
    # the fourth operand: how many bytes are read, or a predicate that says to read none
    given: Operand = rest[0] if len(rest) > hinted else Integer(nbytes)
    ignores = isinstance(given, Register) and given.type == "pred"

    def start(w: Warp, site: Site, mask: int, to: Value, at: Value, n: Value) -> Any:
        offsets, cta = shared_places(w, mask, to)
        if cta is not None:
            raise SimFault(f"{site.what}: it copies to CTA rank {cta}, not its own", site.loc)
        sizes = np.where(per_lane(n).astype(bool), 0, nbytes) if ignores else per_lane(n)
        operands = offsets, w.launch.memory, per_lane(at), nbytes, sizes
        return thread_copies.issue, (site, mask, *operands)

    sources = (
        (inside(instruction, where), "u32"), (inside(instruction, source), "u64"),
        (given, "pred" if ignores else "u32"),
    )  # fmt: skip
    return Perform((), sources, start, None)


def _arrive(instruction: Instruction, modifiers: Modifiers) -> Operation:
    modifiers.need("arrive")
    increments = not modifiers.flag("noinc")
    modifiers.take("shared", "shared::cta")
    modifiers.need("b64")
    modifiers.end()
    (where,) = operands(instruction, 1)

    def start(w: Warp, site: Site, mask: int, at: Value) -> Any:
        def request(part: int, address: int) -> Any:
            return thread_copies.arrive_later, (site, part, place(address)[1], increments)

        return grouped(site, mask, request, at)

    sources = ((inside(instruction, where), "u32"),)
    return Perform((), sources, start, None, _NOTICED, Sync.ARRIVE)
