"""The key of a state: two states with equal keys have the same future.

A key has everything that can decide later steps and later faults: where each agent stands, the
barriers, which live accesses each agent knows, the contents of memory, the units in flight, and the
races still to come. Times, counts, and what only messages use are left out.

Of an agent's registers and of memory only *live*, *deciding* values are part of a key: values that
may still be read (liveness), and that can come to decide a branch, an address, a phase or a fault.
The front end says which those are (`engine.front_end`). So a token of a test that is never read
again, or an accumulator that is only stored, does not make two states different.

The bits that stand for accesses in `machine.happens_before` are handed out in the order of the
execution; a key renumbers them by the access that they stand for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import permutations, product
from typing import Any

import numpy as np

from tilepipe.check.engine.causal_order import CausalOrder
from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.front_end import FrontEnd
from tilepipe.check.engine.steps import PhaseRecord
from tilepipe.check.key_encoding import digest, encoded
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.state import Mbarrier, TmaLoadUnit
from tilepipe.machine.cta import Arriver
from tilepipe.machine.happens_before.events import MANY, Event, GlobalOrder, Present
from tilepipe.machine.happens_before.knowledge import Knowledge
from tilepipe.machine.happens_before.memory_order import Fences, Scope, Seen, Strong, Value
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.memory.matrix_operands import MatrixOperand
from tilepipe.machine.memory.tensor_memory import ScalePlace, TensorMemory
from tilepipe.machine.memory.tiles import WHOLE, Slot
from tilepipe.machine.units.in_flight import (
    CommitUnit,
    CopyUnit,
    MmaUnit,
    ResponseUnit,
    TensorQueue,
    TmaStoreUnit,
    WgmmaGroup,
    WgmmaUnit,
)
from tilepipe.machine.units.tcgen05_by_address import AddressedCopy, AddressedMma, AddressedShift
from tilepipe.machine.units.thread_copies import ThreadArrivalUnit, ThreadCopyUnit
from tilepipe.machine.units.tma_by_address import CopyIn, CopyOut


class _Bits:
    """Numbers for the bits of one machine that do not depend on the order of the execution."""

    def __init__(self, m: Machine, rename: dict[int, int]) -> None:
        self.of: dict[int, int] = {0: 0}
        self._next = 0
        self.dead = m.order.dead | m.order.resting
        self.rename = rename

    def add(self, *bits: int) -> None:
        for bit in bits:
            if bit and bit not in self.of:
                self.of[bit] = 1 << self._next
                self._next += 1

    def __call__(self, known: int) -> int:
        known &= ~self.dead
        out = 0
        while known:
            bit = known & -known
            out |= self.of.get(bit, 0)
            known ^= bit
        return out


def _access_key(a: Any, rename: dict[int, int]) -> tuple[Any, ...]:
    return rename[a.agent.uid], a.key


def _event_key(e: Event, rename: dict[int, int]) -> tuple[Any, ...]:
    kind = e.is_write, e.is_strong, e.asynchronous
    return (
        rename[e.agent_uid],
        e.site.id,
        e.mask,
        kind,
        e.key,
    )


class StateKeys:
    """Makes keys of the states of one launch's executions. `front_end`: its part of them."""

    def __init__(self, front_end: FrontEnd, symmetry: bool) -> None:
        self.front_end = front_end
        self.same = front_end.interchangeable() if symmetry else ()
        self._near = any(site.near and site.waits for site in front_end.sites)

    def of(self, execution: Execution, tensors: bool = True) -> bytes:
        """The key of a state: the smallest of the keys under all renamings of interchangeable
        agents. `tensors`: include which cluster accessed each element.
        """
        parts: list[Hashable] = []
        machines = sorted(execution.machines.items(), key=lambda one: one[0])
        shared: _Bits | None = None
        if execution.world.order is not None:  # clusters know of each other's accesses
            for cluster, m in machines:
                names = {a.uid: a.uid for a in m.agents}
                shared = _Bits(m, names) if shared is None else shared
                self._number(shared, m, names, execution.present(cluster))
        for cluster, m in machines:
            parts.append(
                (
                    cluster,
                    min(
                        encoded(self._machine(execution, cluster, m, names, tensors, shared))
                        for names in self._renamings(m)
                    ),
                )
            )
        clusters = execution.world.clusters
        waiting = () if clusters is None else tuple(clusters.waiting)
        return digest(
            (
                tuple(parts),
                waiting,
                tuple(execution.ending),
                self._tensors(execution, tensors, shared),
                execution.world.elected,
                tuple(execution.looked),
            )
        )

    def _renamings(self, m: Machine) -> Iterable[dict[int, int]]:
        """The renamings to try: interchangeable agents sorted by their place in the program, and in
        every order those with equal places.
        """
        plain = {a.uid: a.uid for a in m.agents}
        groups: list[tuple[list[int], list[list[int]]]] = []
        for cta in m.ctas:
            for role in self.same:
                alike: dict[bytes, list[int]] = {}
                for a in (a for a in m.agents if a.cta is cta):
                    if a.role_name == role:
                        alike.setdefault(self._stands(a, a in m.ready), []).append(a.uid)
                groups.append(
                    (
                        sorted(u for uids in alike.values() for u in uids),
                        [alike[key] for key in sorted(alike)],
                    )
                )
        for orders in product(*(permutations(uids) for _, tied in groups for uids in tied)):
            order, names = iter(orders), dict(plain)
            for new, tied in groups:
                names.update(zip((old for _ in tied for old in next(order)), new, strict=True))
            yield names

    def _stands(self, a: Agent, ready: bool) -> bytes:
        """The part of an agent's state that names no agent."""
        return encoded(
            (self.front_end.registers(a), a.blocked, ready, tuple(sorted(a.passed.items())))
        )

    def _machine(
        self,
        execution: Execution,
        cluster: int,
        m: Machine,
        names: dict[int, int],
        tensors: bool,
        shared: _Bits | None,
    ) -> Hashable:
        presents, order = execution.present(cluster) if tensors else [], execution.causal_order
        bits = shared
        if bits is None:
            bits = _Bits(m, names)
            self._number(bits, m, names, presents)
        agents = sorted((names[a.uid], self._agent(order, cluster, a, bits)) for a in m.agents)
        bars = tuple(self._barrier(b, bits, names) for cta in m.ctas for b in cta.bars)
        named = tuple(
            (
                n.generation,
                n.threads,
                n.whole,
                tuple(sorted((names[a.agent.uid], a.warp) for a in n.arrived)),
                bits(n.reset_bit),
                bits(n.acc),
                bits(n.known),
            )
            for cta in m.ctas
            for n in cta.named
        )
        met = tuple(
            (r.generation, tuple(sorted(names[u] for u in r.arrived)), bits(r.acc), bits(r.known))
            for r in (m.cluster, m.setup, *m.setup_of)
        )
        slots = tuple(self._slot(s, bits, names) for cta in m.ctas for s in cta.slots)
        arrivals = tuple(
            tuple(
                sorted(
                    (_arriver(who, names), flat, bits(bit))
                    for (who, flat), (bit, _, _) in cta.arrivals.items()
                )
            )
            for cta in m.ctas
        )
        events = tuple(
            tuple(sorted((_event_key(e, names), bits(e.bit)) for e in (*p.live, *p.settled)))
            for p in presents
        )
        in_flight = tuple(
            sorted(
                (
                    names[f.agent_id[1]],
                    self._unit(f.unit, bits),
                    _races_of(order, (order.units[f.agent_id, f.ordinal][0][0],)),
                )
                for f in execution.in_flight
                if f.agent_id[0] == cluster
            )
        )
        ready = tuple(sorted(names[a.uid] for a in m.ready))
        poisoned = m.poisoned is not None
        settled = _races_of_barriers(order)
        asked = bits(m.requests.refused), bits(m.requests.waited)
        groups = tuple(
            (number, queue.begun, tuple(_open_group(g, names) for g in queue.open))
            for cta in m.ctas
            for number, queue in sorted(cta.warpgroups.items())
        )
        flags = tuple(_values(c.space.values, bits) for c in m.ctas if c.space is not None)
        return (
            tuple(agents),
            bars,
            named,
            met,
            slots,
            arrivals,
            events,
            in_flight,
            ready,
            asked,
            poisoned,
            settled,
            groups,
            flags,
            _fences(m.published, bits, names),
        )

    def _number(
        self, bits: _Bits, m: Machine, names: dict[int, int], presents: list[Present]
    ) -> None:
        for cta in m.ctas:
            for slot in cta.slots:
                for a in sorted(slot.accesses, key=lambda a: _access_key(a, names)):
                    bits.add(a.bit, a.fenced, a.reader_fenced, a.release_bit)
            for held in cta.tmem.allocations.values() if cta.tmem is not None else ():
                bits.add(held.twin.through if held.twin is not None else 0)
            for _, (bit, _, _) in sorted(
                cta.arrivals.items(), key=lambda kv: (_arriver(kv[0][0], names), kv[0][1])
            ):
                bits.add(bit)
        for present in presents:
            events = (*present.live, *present.settled)
            for e in sorted(events, key=lambda e: _event_key(e, names)):
                bits.add(e.bit, e.fenced, e.reader_fenced, e.release_bit)
        for cta in m.ctas:
            for bar in cta.bars:
                bits.add(bar.init_bit, bar.fenced, bar.proxy_bit, *bar.completion_bits)
            for named in cta.named:
                bits.add(named.reset_bit)
        bits.add(m.requests.refused, m.requests.waited)
        for fence in sorted(m.published.made, key=lambda f: names[f.uid]):
            bits.add(fence.mark)
        for agent in sorted(m.agents, key=lambda agent: names[agent.uid]):
            for seen in agent.seen.seen if agent.seen is not None else ():
                bits.add(seen.mark)
            shares = [share for share in m.order.shares if share.owner is agent]
            for share in sorted(shares, key=lambda share: (share.lanes, bits(share.bits))):
                bits.add(share.bit)

    def _agent(self, order: CausalOrder, cluster: int, a: Agent, bits: _Bits) -> Hashable:
        stores = tuple(
            (
                lane,
                tuple(bits(u.read_bits) for u in q.open),
                tuple(tuple(bits(u.read_bits) for u in g) for g in q.groups),
                tuple(tuple(bits(u.written_bits) for u in g) for g in q.unwritten),
            )
            for lane, q in sorted(a.stores.items())
        )
        groups = tuple(
            tuple(sorted((bits.rename[by.uid], u.site.id, bits(u.bits)) for by, u in g.units))
            for g in a.wgmma_groups
        )
        opened = tuple(_wgmma(u, bits) for u in a.wgmma_open)
        return (
            self.front_end.registers(a),
            a.blocked,
            a.fenced,
            a.ticket,
            a.cluster_ticket,
            () if a.done else tuple(sorted(a.passed.items())),
            _knowledge(a, bits),
            bits(a.retired),
            bits(a.handed_on),
            stores,
            groups,
            opened,
            _tensor_state(a, bits),
            _copies(a, bits),
            () if a.seen is None else tuple(_seen(one, bits) for one in a.seen.seen),
            _races_of(order, tuple(order.clocks[cluster, a.uid].known[: a.warps])),
        )

    def _barrier(self, b: Mbarrier, bits: _Bits, names: dict[int, int]) -> Hashable:
        life = (
            b.cta.rank,
            b.flat,
            b.state,
            b.in_role,
            b.reinitialised,
            names.get(b.initialiser[0], -1),
            b.initialiser[1],
            b.init_bit != 0,
            b.fenced != 0,
            b.proxy_bit != 0,
        )
        return (
            life,
            b.phase,
            b.count,
            b.pending,
            b.tx,
            b.expected,
            b.inflight,
            bits(b.acc),
            bits(b.known),
            bits(b.far) if self._near else 0,
        )

    def _slot(self, s: Slot, bits: _Bits, names: dict[int, int]) -> Hashable:
        filled = b"" if s.filled is None or s.state == WHOLE else s.filled.tobytes()
        live = tuple(sorted((_access_key(a, names), bits(a.bit)) for a in s.accesses))
        more: Hashable = ()
        if isinstance(s, TensorMemory):
            calls = tuple((names[c.agent.uid], c.columns, c.done, c.column) for c in s.calls)
            held = tuple(
                (
                    a.column,
                    a.columns,
                    a.claimed,
                    a.twin is not None,
                    bits(a.twin.through if a.twin else 0),
                )
                for a in s.allocations.values()
            )
            more = (held, calls, s.relinquished is None, s.smallest)
        return (s.state, filled, live, self.front_end.slot(s), more)

    def _unit(self, unit: Any, bits: _Bits) -> Hashable:
        if isinstance(unit, TmaLoadUnit):
            granted = unit.words.tobytes() if isinstance(unit, ResponseUnit) else b""
            return (
                0,
                granted,
                unit.site.id,
                unit.coords,
                _tile(unit.slot),
                unit.key if isinstance(unit, CopyIn) else unit.write.rect,
                unit.bar.flat,
                unit.bar.cta.rank,
                bits(unit.write.bit),
                0 if unit.seen is None else bits(unit.seen.bit),
            )
        if isinstance(unit, CopyOut):
            accesses = bits(unit.read_bits), bits(unit.written_bits)
            return 2, unit.site.id, unit.source.key, unit.to.key, accesses
        if isinstance(unit, TmaStoreUnit):
            accesses = bits(unit.read_bits), bits(unit.written_bits)
            place = _tile(unit.tile), unit.read.rect, unit.coords, unit.rows
            return 3, unit.site.id, place, accesses
        return (1, tuple(self._queued(u, bits) for u in unit.waiting))

    def _queued(self, unit: Any, bits: _Bits) -> Hashable:
        """A unit of a tensor core's queue that has not acted: its operands, which its site does not
        determine. (A group of wgmma acts when it is committed, and a TMA
        store when it is issued: see `Execution._collect`.)
        """
        key: Hashable
        match unit:
            case CommitUnit():
                key = tuple((bar.flat, bar.cta.rank, bits(bit)) for bar, bit in unit.arrivals)
            case MmaUnit():
                key = (
                    unit.adds,
                    tuple(
                        (p.acc, _operand(p.a), _operand(p.b), tuple(map(_operand, p.scales)))
                        for p in unit.parts
                    ),
                )
            case CopyUnit():
                key = tuple((_operand(p.to), _operand(p.source)) for p in unit.parts)
            case ThreadArrivalUnit():
                key = unit.bar.flat, unit.bar.cta.rank, unit.count
            case ThreadCopyUnit():
                return unit.places.tobytes(), unit.rows.tobytes(), bits(unit.write.bit)
            case AddressedMma() | AddressedCopy() | AddressedShift():
                key = unit.key
            case _:
                raise AssertionError(f"no key for {type(unit).__name__}")
        return unit.site.id, key, bits(unit.bits)

    def _tensors(self, execution: Execution, owned: bool, shared: _Bits | None) -> Hashable:
        """The contents of the tensors that are written; and, if clusters run together, which of
        them accessed which elements.
        """
        out = []
        for t in execution.world.tensors:
            if t.order is not None:
                flags = _values(t.order.values, shared) if shared is not None else ()
                owners = () if execution.world.clusters is None or not owned else _owners(t.order)
                out.append((owners, self.front_end.tensor(t), flags))
        return tuple(out)


def _values(values: Mapping[int, Value], bits: _Bits) -> Hashable:
    """The values that strong writes have left, by location."""
    return tuple((at, _value(values[at], bits)) for at in sorted(values))


def _value(value: Value, bits: _Bits) -> Hashable:
    parts = ((int(scope), place, bits(known)) for (scope, place), known in value.parts.items())
    chain = bits(value.chain)
    # a write with a wide scope reaches every thread, but a narrow read may leave out its own
    place = value.place if chain or value.strong.scope < Scope.GPU else ()
    own = (
        (cta, bits.rename.get(uid, uid), lane, int(scope), bits(known))
        for (cta, uid, lane), released in value.own.items()
        for scope, known in released.items()
        if bits(known)
    )
    return place, _strong(value.strong), tuple(sorted(parts)), tuple(sorted(own)), chain


def _strong(strong: Strong) -> Hashable:
    return tuple(map(int, strong))


def _seen(seen: Seen, bits: _Bits) -> Hashable:
    """A strong read that a fence to come may let acquire."""
    fence = -1 if seen.fence is None else int(seen.fence)
    return seen.mask, _value(seen.value, bits), _strong(seen.strong), fence, bits(seen.mark)


def _fences(fences: Fences, bits: _Bits, names: dict[int, int]) -> Hashable:
    return tuple(
        sorted(
            (names[f.uid], f.mask, int(f.scope), f.restricted, bits(f.bits), bits(f.mark))
            for f in fences.made
        )
    )


def _copies(a: Agent, bits: _Bits) -> Hashable:
    """The cp.async of a warp that have not been waited for."""
    copies = a.copies
    if copies is None:
        return ()
    groups = tuple((n - copies.made, tuple(bits(x.bit) for x in g)) for n, g in copies.groups)
    still = copies.issued - copies.made
    return still, len(copies.waiting), tuple(bits(x.bit) for x in copies.open), groups


def _open_group(group: WgmmaGroup, names: dict[int, int]) -> Hashable:
    """A group of wgmma to which some warps of the warpgroup have not come."""
    return tuple(sorted(names[a.uid] for a in group.agents)), len(group.units)


def _owners(order: GlobalOrder) -> Hashable:
    """For each element, the cluster that wrote it, atomically or not, and the one that read it."""
    clusters = np.array([0, *(4 * e.cluster + 2 + e.is_strong for e in order.history), 1], np.int64)
    maps = (order.writers,) if order.readers is None else (order.writers, order.readers)
    return tuple(clusters[np.where(m == MANY, len(clusters) - 1, m)].tobytes() for m in maps)


def _tile(slot: Slot) -> Hashable:
    return slot.name, slot.cta.rank


def _operand(where: Any) -> Hashable:
    """An operand of a tensor-core op: a rectangle of a tile, a place in tensor memory, the place of
    scale factors, registers, or what a matrix descriptor names.
    """
    match where:
        case Frag():
            return where.ir.name
        case Slot() as slot, MatrixOperand() as matrix:
            return _tile(slot), (*matrix.descriptor, matrix.dtype.name, *matrix[2:])
        case Slot() as slot, rect:
            return _tile(slot), rect
        case ScalePlace():
            return where.starts, where.used
    place: Hashable = where
    return place


def _wgmma(unit: WgmmaUnit, bits: _Bits) -> Hashable:
    """A wgmma that is in no committed group, and so has not acted."""
    operands = _operand(unit.acc), _operand(unit.a), _operand(unit.b)
    return unit.site.id, unit.adds, operands, bits(unit.bits)


def _arriver(who: Arriver, names: dict[int, int]) -> tuple[int, int]:
    return names[who.uid], who.lane


def _knowledge(k: Knowledge, bits: _Bits) -> Hashable:
    apart = () if k.kw is None else tuple(map(bits, k.kw))
    return bits(k.k), apart, tuple(sorted((p.mask, bits(p.bits), p.made) for p in k.pend))


def _tensor_state(a: Agent, bits: _Bits) -> Hashable:
    t = a.tensor
    if t is None:
        return ()
    queues = tuple(
        (lane, bits(q.issued), bits(q.done), q.uncommitted)
        for lane, q in sorted(t.queues.items())
        if isinstance(q, TensorQueue)
    )
    loads = tuple((w, bits(r.bit)) for _, w, r in t.loads)
    return (
        queues,
        loads,
        tuple(bits(r.bit) for r in t.stores),
        _knowledge(t.after, bits),
        bits(t.published),
    )


# -- races still to come ---------------------------------------------------------------
#
# At each barrier, which of the last steps an agent, a unit in flight or the current phase knows.
# Two states that agree in it have the same future races. Steps are reduced to whether each is
# known, since their numbers differ between executions.


def _races_of_barriers(order: CausalOrder) -> tuple[Hashable, ...]:
    """For each barrier, whether the arrivals of its current phase know the waits and the failed
    tests that must precede its completion.
    """
    out: list[Hashable] = []
    for number, now, before in _last_phases(order):
        seen = tuple(
            sorted(
                (s.agent_id, s.site.id if s.site is not None else -1, not s.warp_bits & ~now.known)
                for s in (*before.waits, *now.failed, *now.announced)
            )
        )
        out.append((number, seen))
    return tuple(out)


def _last_phases(order: CausalOrder) -> Iterator[tuple[int, PhaseRecord, PhaseRecord]]:
    """The number of each barrier, its current phase, and the one before."""
    for number, record in enumerate(order.barriers.values()):
        last = max((p for p in record.phases if p >= 0), default=0)
        yield number, record.phases[last], record.phases.get(last - 1) or PhaseRecord()


def _races_of(order: CausalOrder, known: tuple[int, ...]) -> tuple[Hashable, ...]:
    """For each barrier, whether those who know `known`, the warps of an agent or a unit in flight,
    know its last two phases, and the waits for them.
    """
    out: list[Hashable] = []
    for number, *phases in _last_phases(order):
        for phase in phases:
            knows = tuple(not phase.bits & ~k for k in known)
            waits = tuple(
                sorted(
                    (s.agent_id, tuple(not s.warp_bits & ~k for k in known))
                    for s in (*phase.waits, *phase.failed)
                )
            )
            out.append((number, knows, waits))
    return tuple(out)
