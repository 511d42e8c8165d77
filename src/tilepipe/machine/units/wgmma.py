"""The tensor cores: wgmma, asynchronous, in groups that finish in order within a warpgroup.

wgmma.mma_async is an instruction of a warp, and its result is that of four warps: each computes 16
rows of every 64 from its rows of A and all of B (PTX ISA, "Asynchronous Warpgroup Level Matrix
Instructions"). An agent is a whole warpgroup, or one warp, which reads what its own part needs.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from tilepipe.errors import PoisonError, RaceError, SimFault
from tilepipe.ir.dtypes import DType, float32
from tilepipe.machine import cost
from tilepipe.machine.actors import BLOCKED, Blocked
from tilepipe.machine.agents import Agent
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.conflicts import read
from tilepipe.machine.journal import Touch
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_access import asynchronous
from tilepipe.machine.memory.fragment_access import readable
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.memory.matrix_operands import MatrixOperand
from tilepipe.machine.memory.poison import Loaded, Marks, PoisonedMatrix
from tilepipe.machine.memory.storage import Array, narrow_sum, storage, truncated
from tilepipe.machine.memory.tiles import ByteSpace, Slot
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import (
    GroupWait,
    Source,
    Turned,
    WarpgroupQueue,
    WgmmaGroup,
    WgmmaUnit,
)

WARPGROUP = 4  # warps


def _values(source: Source) -> Array:
    """A or B, in storage form."""
    if isinstance(source, Frag):
        return source.data
    slot, part = source
    if isinstance(part, MatrixOperand):
        return part.values(slot.data[0])
    if isinstance(part, Turned):
        return _values((slot, part.rect)).T
    if part == slot.whole:
        return slot.data
    r0, r1, c0, c1 = part
    return slot.data[r0:r1, c0:c1]


def _multiply(unit: WgmmaUnit) -> None:
    if unit.poison is not None or unit.acc.poison is not None:
        _spread_poison(unit)
    a, b = _values(unit.a), _values(unit.b)
    if unit.dtype.name == "float32":
        a, b = truncated(a), truncated(b)
    acc = unit.acc
    if acc.ir.dtype is not float32:
        _multiply_narrow(unit, a, b)
        return
    if acc.zero or not unit.adds:
        np.matmul(a, b.T, out=acc.data)
        acc.zero = False
        return
    acc.data += np.matmul(a, b.T)


def _spread_poison(unit: WgmmaUnit) -> None:
    """A row of A that has poison spoils a row of the accumulator, a row of B a column."""
    acc = unit.acc
    marks = np.zeros(acc.data.shape, np.bool_)
    if unit.adds and acc.poison is not None:
        marks |= acc.poison.marks
    for source, along in ((unit.a, 0), (unit.b, 1)):
        there = _poisoned(source)
        if there is not None:
            marks |= np.expand_dims(there.any(axis=1), 1 - along)
    origin = unit.poison or (acc.poison.origin if acc.poison is not None else None)
    assert origin is not None
    acc.poison = PoisonedMatrix(origin, marks) if marks.any() else None


def _poisoned(source: Source) -> Marks | None:
    """The elements of A or B that are poison."""
    if isinstance(source, Frag):
        return None if source.poison is None else source.poison.marks
    slot, part = source
    if isinstance(part, MatrixOperand) and isinstance(slot, ByteSpace):
        return part.unwritten(slot.present)
    return None


def _multiply_narrow(unit: WgmmaUnit, a: Array, b: Array) -> None:
    """A product in an accumulator of float16, or of int32: exact in float64, and rounded once."""
    acc = unit.acc
    total = a.astype(np.float64) @ b.astype(np.float64).T
    if unit.adds:
        total += acc.data
    found = narrow_sum(total, acc.ir.dtype, saturates=unit.saturates)
    acc.data = found.astype(storage(acc.ir.dtype))


def finish(m: Machine, group: WgmmaGroup) -> None:
    """A committed group has been computed."""
    for _, unit in group.units:
        _multiply(unit)
    group.done = True
    for agent in group.agents:
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
    a: Frag | int | MatrixOperand,
    rect_a: Rect | Turned | None,
    b: int | MatrixOperand,
    rect_b: Rect | Turned | None,
    adds: bool,
    saturates: bool = False,
) -> None:
    """Issues acc += A · Bᵀ, or acc = A · Bᵀ, into the agent's open group.

    `a`, `b`: the number of a tile, with a rectangle of it or the transpose of one, or a matrix
    descriptor; A may be in the agent's registers. A by descriptor has 64 rows, of which a warp
    reads its 16.
    """
    _check_accumulator(ag, site, mask, acc, adds)
    known = ag.known(mask) if ag.split else ag.k
    if isinstance(a, MatrixOperand) and ag.warps < WARPGROUP:
        a = a.of_warp(ag.first_warp % WARPGROUP)
    source_a: Source
    if isinstance(a, Frag):
        _read_a(ag, site, a)
        source_a, bits = a, 0
    else:
        source_a, _, bits = _read_shared(m, ag, site, mask, a, rect_a, known)
    source_b, dtype, bits_b = _read_shared(m, ag, site, mask, b, rect_b, known)
    unit = WgmmaUnit(site, acc, source_a, source_b, dtype, adds, bits | bits_b, saturates=saturates)
    if ag.found is not None:
        unit.poison, ag.found = ag.found, None
    elif isinstance(a, Frag) and a.poison is not None:
        unit.poison = a.poison.origin
    acc.writers += 1
    start = ag.cta.tensor_free
    if ag.time > start:
        start = ag.time
    unit.end = ag.cta.tensor_free = start + site.flops / cost.FLOPS_PER_CYCLE[dtype.bits]
    ag.wgmma_open.append(unit)
    if m.world.recorder is not None:
        m.world.recorder.mma(ag, site, start, unit.end, [ag.cta], source_b[0])


def wgmma_again(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    acc: Frag,
    a: Frag | int,
    rect_a: Rect | Turned | None,
    b: int,
    rect_b: Rect | Turned,
    adds: bool,
    saturates: bool = False,
) -> None:
    """`wgmma` in a cluster that repeats another: its accesses to shared memory are in order."""
    _check_accumulator(ag, site, mask, acc, adds)
    source_a: Source
    if isinstance(a, Frag):
        _read_a(ag, site, a)
        source_a = a
    else:
        assert rect_a is not None
        source_a = ag.cta.slots[a], rect_a
    tile = ag.cta.slots[b]
    acc.writers += 1
    ag.wgmma_open.append(
        WgmmaUnit(
            site, acc, source_a, (tile, rect_b), tile.buffer.dtype, adds, 0, saturates=saturates
        )
    )


def _read_a(ag: Agent, site: Site, a: Frag) -> None:
    """A is in registers, which a wgmma reads until it is waited for."""
    readable(a, ag, site, 0, a.ir.cols)
    if a.dirty is not None:
        _unfenced(ag, site, a)
    a.readers += 1


def _check_accumulator(ag: Agent, site: Site, mask: int, acc: Frag, adds: bool) -> None:
    """Raises SimFault where a wgmma may not use its accumulator now; it then sets all of it."""
    if ag.pend:
        ag.converge(mask)
    if acc.dirty is not None:
        _unfenced(ag, site, acc)
    if not ag.fenced:
        raise RaceError(
            f"{site.what}: the first wgmma of {ag}, and no wgmma.fence stands before it, as one"
            f" must (PTX ISA, wgmma.fence).{ag.cta.words.get('the first wgmma.fence', '')}",
            site.loc,
        )
    if adds and acc.defined != acc.all_columns:
        words = ag.cta.words
        raise PoisonError(
            f"{site.what}: {ag} adds to accumulator {acc.ir.named}, of which"
            f" {(acc.all_columns & ~acc.defined).bit_count()} columns were never set. Set it first,"
            f" for instance with {words['mov of 0']}, or let the first MMA overwrite it:"
            f" {words['scale-d false']}.",
            site.loc,
        )
    acc.defined = acc.all_columns


def _read_shared(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    operand: int | MatrixOperand,
    rect: Rect | Turned | None,
    known: int,
) -> tuple[tuple[Slot, Rect | Turned | MatrixOperand], DType, int]:
    """Orders the read of an operand in shared memory; returns where it is, the type of its
    elements, and what an agent that waits for the wgmma learns of it.
    """
    if isinstance(operand, MatrixOperand):
        space, touched = ag.cta.bytes(), operand.touched()
        record = asynchronous(m, ag, site, mask, space, touched, is_write=False)
        return (space, operand), operand.dtype, record.bit | read(m, space, record, known, ag)
    assert rect is not None
    slot = ag.cta.slots[operand]
    where = rect.rect if isinstance(rect, Turned) else rect
    record = Access(ag, site, mask, where, False, True, m.order.new_bit())
    return (slot, rect), slot.buffer.dtype, record.bit | read(m, slot, record, known)


def _unfenced(ag: Agent, site: Site, frag: Frag) -> None:
    assert frag.dirty is not None
    raise RaceError(
        f"{site.what}: {ag} used the registers of fragment {frag.ir.named} at"
        f" {frag.dirty.loc.short} and no wgmma.fence stands between that and this wgmma, which may"
        " read old values, or overwrite what is still to be"
        f" read.{ag.cta.words.get('registers before the first wgmma', '')}",
        site.loc,
    )


def wgmma_commit(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """wgmma.commit_group: the open wgmma become a group, which may finish from now on. A warp that
    issues for itself commits its part of the group of its warpgroup.
    """
    if ag.warps < WARPGROUP:
        _commit_part(m, ag, site, mask)
        return
    group = WgmmaGroup(ag.cta)
    group.add(ag, ag.wgmma_open)
    ag.wgmma_open = []
    ag.wgmma_groups.append(group)
    if m.journal is not None:
        m.journal.group(ag)
    m.issue(ag.wgmma_queue, group)


def _commit_part(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """One warp of four commits: the n-th groups of the four are one."""
    number = ag.first_warp // WARPGROUP
    queue = ag.cta.warpgroups.get(number)
    if queue is None:
        queue = ag.cta.warpgroups[number] = WarpgroupQueue()
    group = next((g for g in queue.open if ag not in g.agents), None)
    if group is None:
        name = f"wgmma group {queue.begun} of warpgroup {number}"
        group = WgmmaGroup(ag.cta, name, number << 32 | queue.begun)
        queue.begun += 1
        queue.open.append(group)
    others = len(group.units)
    if others and others != len(group.agents) * len(ag.wgmma_open):
        raise SimFault(
            f"{site.what}: {ag} commits {len(ag.wgmma_open)} wgmma to {group.name}, and"
            f" {group.agents[0]} committed {others // len(group.agents)}: the four warps of a"
            " warpgroup execute the same wgmma (PTX ISA, wgmma.mma_async).",
            site.loc,
        )
    if others:
        _check_alike(ag, site, group)
    group.add(ag, ag.wgmma_open)
    ag.wgmma_open = []
    ag.wgmma_groups.append(group)
    complete = len(group.agents) == WARPGROUP
    if m.journal is not None:
        m.journal.touch(Touch.MEET, group, 0, mask)
        if complete:
            m.journal.completed(group, 0)
    if complete:
        queue.open.remove(group)
        m.issue(queue, group)


def _check_alike(ag: Agent, site: Site, group: WgmmaGroup) -> None:
    """Raises SimFault where a warp commits other wgmma than the first one of its warpgroup did."""
    first = group.agents[0]
    theirs = (unit for by, unit in group.units if by is first)
    for mine, other in zip(ag.wgmma_open, theirs, strict=True):
        for what, a, b in (
            ("another instruction", mine.site, other.site),
            ("another scale-d", mine.adds, other.adds),
            ("another matrix descriptor of A", _descriptor(mine.a), _descriptor(other.a)),
            ("another matrix descriptor of B", _descriptor(mine.b), _descriptor(other.b)),
        ):
            if a != b:
                raise SimFault(
                    f"{mine.site.what}: {ag} gives {what} than {first}, at {other.site.loc.short}:"
                    " a wgmma is one instruction of the four warps of a warpgroup, and its operands"
                    " are the same in all of them (PTX ISA, wgmma.mma_async, Matrix descriptor"
                    " format)",
                    mine.site.loc,
                )


def _descriptor(source: Source) -> object:
    """The descriptor of an operand in shared memory; None of one in registers."""
    if isinstance(source, Frag) or not isinstance(source[1], MatrixOperand):
        return None
    return source[1].descriptor


def wgmma_wait(m: Machine, ag: Agent, site: Site, mask: int, pending: int) -> Blocked | None:
    """wgmma.wait_group: blocks until at most `pending` groups are unfinished; the reads of the
    others are complete. A group of four warps completes as a whole.
    """
    groups = ag.wgmma_groups
    late = len(groups) - pending
    if late > 0:
        if not groups[late - 1].done:
            for group in groups:
                if not group.done:
                    ag.waits = group, None
                    break
            return BLOCKED
        if m.journal is not None and ag.warps == WARPGROUP:
            m.journal.retired(ag, late)
        if m.world.recorder is not None:
            m.world.recorder.awaited(
                ag,
                site,
                (
                    (unit.site, unit.end)
                    for group in islice(groups, late)
                    for by, unit in group.units
                    if by is ag
                ),
            )
        bits = 0
        for _ in range(late):
            group = groups.popleft()
            if m.journal is not None and ag.warps < WARPGROUP:
                m.journal.passed(group, 0, mask)
            for by, unit in group.units:
                bits |= unit.bits
                if by is not ag:
                    continue
                unit.acc.writers -= 1
                if unit.acc.poison is not None:
                    ag.poison = Loaded(unit.acc.poison.origin, None)
                if isinstance(unit.a, Frag):
                    unit.a.readers -= 1
                if unit.end > ag.time:
                    ag.time = unit.end
        ag.k |= bits
        ag.retired |= bits
    if groups:
        ag.wgmma_waited = GroupWait(site, pending, len(groups))
    if ag.pend:
        ag.converge(mask)
    return None
