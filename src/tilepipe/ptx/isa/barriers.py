"""Named barriers, barriers of a warp and of a cluster (PTX ISA, bar, barrier, bar.warp.sync,
barrier.cluster).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilepipe.errors import SimFault
from tilepipe.ir.facts import WHOLE_WARP, Facts, Sync
from tilepipe.machine.barriers import rendezvous
from tilepipe.machine.sites import ANY_NAMED, Site
from tilepipe.ptx.definition import (
    Modifiers,
    Operation,
    Perform,
    defines,
    operands,
)
from tilepipe.ptx.isa.requests import (
    Value,
    one,
)
from tilepipe.ptx.lanes import FULL, WARP, lane_mask, spread
from tilepipe.ptx.numerics.types import TYPES
from tilepipe.ptx.syntax.nodes import Instruction, Integer, Operand
from tilepipe.ptx.warp_protocol import Warp


@defines("bar", "barrier")
def _bar(instruction: Instruction) -> Operation:
    modifiers = Modifiers(instruction)
    if instruction.opcode == "barrier" and modifiers.flag("cluster"):
        return _cluster(instruction, modifiers)
    if instruction.opcode == "bar" and modifiers.flag("warp"):
        modifiers.need("sync")
        modifiers.end()
        (members,) = operands(instruction, 1)

        def sync(w: Warp, site: Site, mask: int) -> Any:
            return rendezvous.syncwarp, (site, mask)

        return Perform((), (), sync, None, WHOLE_WARP, members=members, anywhere="mask")
    modifiers.flag("cta")
    action = modifiers.need("sync", "arrive", "red")
    if action == "red":
        return _reduction(instruction, modifiers)
    aligned = instruction.opcode == "bar" or modifiers.flag("aligned")
    modifiers.end()
    number, *rest = operands(instruction, *((1, 2) if action == "sync" else (2,)))
    op = rendezvous.named_sync if action == "sync" else rendezvous.named_arrive

    def start(w: Warp, site: Site, mask: int, bar: Value, threads: Value) -> Any:
        n = _threads(w, site, mask, threads)
        return op, (site, mask, _number(site, mask, bar), n)

    return Perform(
        (), ((number, "u32"), (rest[0] if rest else Integer(0), "u32")), start, None,
        Facts(noticed=True), Sync.ARRIVE | (Sync.WAIT if action == "sync" else Sync.NOTHING),
        members=Integer(FULL), anywhere="" if aligned else "warp", site=(("named", _name(number)),),
    )  # fmt: skip


def _name(number: Operand) -> str:
    """The name of a named barrier in messages; that of all where its number is computed."""
    return f"barrier {number.value}" if isinstance(number, Integer) else ANY_NAMED


def _threads(w: Warp, site: Site, mask: int, threads: Value) -> int:
    """The number of threads of a named barrier; 0: all of the CTA that have not exited. Barriers
    count warps (PTX ISA, bar).
    """
    found = one(site, mask, threads)
    if found % WARP:
        raise SimFault(
            f"{site.what}: a barrier for {found} threads; the number is a multiple of {WARP}",
            site.loc,
        )
    return found


def _number(site: Site, mask: int, bar: Value) -> int:
    """The number of a named barrier: a CTA has 16."""
    found = one(site, mask, bar)
    if found > 15:
        raise SimFault(f"{site.what}: barrier {found}; a CTA has barriers 0 to 15", site.loc)
    return found


def _reduction(instruction: Instruction, modifiers: Modifiers) -> Operation:
    """`barrier.red.popc.u32 d, bar, threads, p`."""
    name = modifiers.need("popc", "and", "or")
    if instruction.opcode == "barrier":
        modifiers.flag("aligned")
    kind = modifiers.need("u32" if name == "popc" else "pred")
    modifiers.end()
    destination, number, *rest, vote = operands(instruction, 3, 4)

    def start(w: Warp, site: Site, mask: int, bar: Value, threads: Value, vote: Value) -> Any:
        n = _threads(w, site, mask, threads)
        votes = lane_mask(vote) & mask if isinstance(vote, np.ndarray) else mask * bool(vote)
        return rendezvous.named_reduce, (site, mask, _number(site, mask, bar), n, votes)

    def finish(w: Warp, answer: tuple[int, int]) -> Any:
        true, total = answer
        found = {"popc": true, "and": true == total, "or": true > 0}[name]
        return (spread(found, TYPES[kind].dtype),)

    sources = (number, "u32"), (rest[0] if rest else Integer(0), "u32"), (vote, "pred")
    return Perform(
        ((destination, kind),), sources, start, finish, Facts(noticed=True),
        Sync.ARRIVE | Sync.WAIT, spread="one", members=Integer(FULL),
        site=(("named", _name(number)),),
    )  # fmt: skip


def _cluster(instruction: Instruction, modifiers: Modifiers) -> Operation:
    action = modifiers.need("arrive", "wait")
    order = modifiers.take(*(("release", "relaxed") if action == "arrive" else ("acquire",)))
    modifiers.flag("aligned")
    modifiers.end()
    operands(instruction, 0)
    op = rendezvous.cluster_arrive if action == "arrive" else rendezvous.cluster_wait

    def start(w: Warp, site: Site, mask: int) -> Any:
        return op, (site, mask)

    return Perform(
        (), (), start, None, Facts(noticed=True), relaxed=order == "relaxed", members=Integer(FULL)
    )
