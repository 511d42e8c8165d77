"""The tensor cores: wgmma, asynchronous, in groups that finish in order within a warpgroup."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import PoisonError, RaceError
from tilepipe.machine import cost
from tilepipe.machine.actors import BLOCKED, Blocked
from tilepipe.machine.agents import Agent
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.conflicts import read
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.memory.registers import readable
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import WgmmaGroup, WgmmaUnit

Array = npt.NDArray[Any]


def _multiply(unit: WgmmaUnit) -> None:
    r0, r1, c0, c1 = unit.rect_b
    b = unit.b.data[r0:r1, c0:c1]
    if unit.rect_a is None:
        a = unit.a.data
    else:
        r0, r1, c0, c1 = unit.rect_a
        a = unit.a.data[r0:r1, c0:c1]
    if unit.b.buffer.dtype.name == "float32":
        a, b = truncated(a), truncated(b)
    acc = unit.acc
    if acc.zero or not unit.adds:
        np.matmul(a, b.T, out=acc.data)
        acc.zero = False
        return
    if acc.scratch is None:
        acc.scratch = np.empty_like(acc.data)
    acc.data += np.matmul(a, b.T, out=acc.scratch)


def truncated(x: Array) -> Array:
    """tf32: the low 13 bits of the significand are not read."""
    return (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def finish(m: Machine, group: WgmmaGroup) -> None:
    """A committed group has been computed."""
    for unit in group.units:
        _multiply(unit)
    group.done = True
    agent = group.agent
    if agent.parked and agent.request is not None and agent.request[0] is wgmma_wait:
        agent.parked = False
        m.wake([agent])


def wgmma_fence(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """wgmma.fence: register accesses before it are ordered before the wgmma after it."""
    ag.fenced = True
    if ag.pend:
        ag.converge(mask)
    for frag in ag.dirty:
        frag.dirty = None
    ag.dirty = []


def wgmma(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    acc: Frag,
    a: Frag | int,
    rect_a: Rect | None,
    b: int,
    rect_b: Rect,
    adds: bool,
) -> None:
    """Issues acc += A · Bᵀ, or acc = A · Bᵀ, into the warpgroup's open group."""
    if ag.pend:
        ag.converge(mask)
    if acc.dirty is not None:
        _unfenced(ag, site, acc)
    if not ag.fenced:
        raise RaceError(
            f"{site.what}: the first wgmma of {ag}, and no wgmma.fence stands before it, as one"
            " must (PTX ISA, wgmma.fence). ctx.mma puts"
            " one there.",
            site.loc,
        )
    if adds and acc.defined != acc.all_columns:
        raise PoisonError(
            f"{site.what}: {ag} adds to accumulator '{acc.ir.name}', of which"
            f" {(acc.all_columns & ~acc.defined).bit_count()} columns were never set. Set it"
            " first, for instance with"
            " .fill(0), or let the first MMA overwrite it: accumulate=False, or a condition such as `k > 0`.",
            site.loc,
        )
    acc.defined = acc.all_columns
    known = ag.known(mask) if ag.split else ag.k
    order = m.order
    bits = 0
    source: Frag | Slot
    if isinstance(a, Frag):
        source = a
        readable(a, ag, site, 0, a.ir.cols)
        if a.dirty is not None:
            _unfenced(ag, site, a)
        a.readers += 1
    else:
        source = ag.cta.slots[a]
        assert rect_a is not None
        record = Access(ag, site, mask, rect_a, False, True, order.new_bit())
        bits = record.bit | read(m, source, record, known)
    tile_b = ag.cta.slots[b]
    record = Access(ag, site, mask, rect_b, False, True, order.new_bit())
    bits |= record.bit | read(m, tile_b, record, known)
    acc.writers += 1
    start = ag.cta.tensor_free
    if ag.time > start:
        start = ag.time
    end = ag.cta.tensor_free = start + site.flops / cost.FLOPS_PER_CYCLE[tile_b.buffer.dtype.bits]
    ag.wgmma_open.append(WgmmaUnit(site, acc, source, rect_a, tile_b, rect_b, adds, bits, end))
    if m.world.on_event is not None:
        m.world.on_event(ag, site, start, end)


def _unfenced(ag: Agent, site: Site, frag: Frag) -> None:
    assert frag.dirty is not None
    raise RaceError(
        f"{site.what}: {ag} used the registers of fragment '{frag.ir.name}' at"
        f" {frag.dirty.loc.short} and no"
        " wgmma.fence stands between that and this wgmma, which may read old values, or overwrite"
        " what is still to be read."
        " ctx.mma puts one before the first MMA: use the registers before that.",
        site.loc,
    )


def wgmma_commit(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """wgmma.commit_group: the open wgmma become a group, which may finish from now on."""
    group = WgmmaGroup(ag, ag.wgmma_open)
    ag.wgmma_open = []
    ag.wgmma_groups.append(group)
    if m.journal is not None:
        m.journal.group(ag)
    m.issue(ag.wgmma_queue, group)


def wgmma_wait(m: Machine, ag: Agent, site: Site, mask: int, pending: int) -> Blocked | None:
    """wgmma.wait_group: until at most `pending` groups are unfinished; the reads of the others are
    over.
    """
    groups = ag.wgmma_groups
    late = len(groups) - pending
    if late > 0:
        if not groups[late - 1].done:
            return BLOCKED
        if m.journal is not None:
            m.journal.retired(ag, late)
        bits = 0
        for _ in range(late):
            for unit in groups.popleft().units:
                bits |= unit.bits
                unit.acc.writers -= 1
                if isinstance(unit.a, Frag):
                    unit.a.readers -= 1
                if unit.end > ag.time:
                    ag.time = unit.end
        ag.k |= bits
        ag.retired |= bits
    if ag.pend:
        ag.converge(mask)
    return None
