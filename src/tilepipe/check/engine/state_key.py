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

from collections.abc import Hashable, Iterable
from itertools import permutations, product
from typing import Any

import numpy as np

from tilepipe.check.engine import keys_of_knowledge, keys_of_units
from tilepipe.check.engine.causal_order import CausalOrder
from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.front_end import FrontEnd
from tilepipe.check.engine.future_races import races_of, races_of_barriers
from tilepipe.check.engine.key_bits import KeyBits
from tilepipe.check.key_encoding import digest, encoded
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.state import Mbarrier
from tilepipe.machine.cta import Arriver
from tilepipe.machine.happens_before.events import MANY, Event, GlobalOrder, Present
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tiles import WHOLE, Slot


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
        shared: KeyBits | None = None
        if execution.world.order is not None:  # clusters know of each other's accesses
            for cluster, m in machines:
                names = {a.uid: a.uid for a in m.agents}
                shared = KeyBits(m, names) if shared is None else shared
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
        shared: KeyBits | None,
    ) -> Hashable:
        presents, order = execution.present(cluster) if tensors else [], execution.causal_order
        bits = shared
        if bits is None:
            bits = KeyBits(m, names)
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
                    keys_of_units.unit(f.unit, bits),
                    races_of(order, (order.units[f.agent_id, f.ordinal][0][0],)),
                )
                for f in execution.in_flight
                if f.agent_id[0] == cluster
            )
        )
        ready = tuple(sorted(names[a.uid] for a in m.ready))
        poisoned = m.poisoned is not None
        settled = races_of_barriers(order)
        asked = bits(m.requests.refused), bits(m.requests.waited)
        groups = tuple(
            (number, queue.begun, tuple(keys_of_units.open_group(g, names) for g in queue.open))
            for cta in m.ctas
            for number, queue in sorted(cta.warpgroups.items())
        )
        flags = tuple(
            keys_of_knowledge.values(c.space.values, bits) for c in m.ctas if c.space is not None
        )
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
            keys_of_knowledge.fences(m.published, bits, names),
        )

    def _number(
        self, bits: KeyBits, m: Machine, names: dict[int, int], presents: list[Present]
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

    def _agent(self, order: CausalOrder, cluster: int, a: Agent, bits: KeyBits) -> Hashable:
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
        opened = tuple(keys_of_units.wgmma(u, bits) for u in a.wgmma_open)
        return (
            self.front_end.registers(a),
            a.blocked,
            a.fenced,
            a.ticket,
            a.cluster_ticket,
            () if a.done else tuple(sorted(a.passed.items())),
            keys_of_knowledge.knowledge(a, bits),
            bits(a.retired),
            bits(a.handed_on),
            stores,
            groups,
            opened,
            keys_of_knowledge.tensor_state(a, bits),
            keys_of_knowledge.copies(a, bits),
            ()
            if a.seen is None
            else tuple(keys_of_knowledge.seen(one, bits) for one in a.seen.seen),
            races_of(order, tuple(order.clocks[cluster, a.uid].known[: a.warps])),
        )

    def _barrier(self, b: Mbarrier, bits: KeyBits, names: dict[int, int]) -> Hashable:
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

    def _slot(self, s: Slot, bits: KeyBits, names: dict[int, int]) -> Hashable:
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

    def _tensors(self, execution: Execution, owned: bool, shared: KeyBits | None) -> Hashable:
        """The contents of the tensors that are written; and, if clusters run together, which of
        them accessed which elements.
        """
        out = []
        for t in execution.world.tensors:
            if t.order is not None:
                flags: Hashable = ()
                if shared is not None:
                    flags = keys_of_knowledge.values(t.order.values, shared)
                owners = () if execution.world.clusters is None or not owned else _owners(t.order)
                out.append((owners, self.front_end.tensor(t), flags))
        return tuple(out)


def _owners(order: GlobalOrder) -> Hashable:
    """For each element, the cluster that wrote it, atomically or not, and the one that read it."""
    clusters = np.array([0, *(4 * e.cluster + 2 + e.is_strong for e in order.history), 1], np.int64)
    maps = (order.writers,) if order.readers is None else (order.writers, order.readers)
    return tuple(clusters[np.where(m == MANY, len(clusters) - 1, m)].tobytes() for m in maps)


def _arriver(who: Arriver, names: dict[int, int]) -> tuple[int, int]:
    return names[who.uid], who.lane
