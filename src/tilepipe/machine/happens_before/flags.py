"""Strong accesses to locations by which threads synchronise, and the fences around them.

The values that strong writes leave (`memory_order.Value`) are kept by the offset of the location,
for each shared memory and each allocation of global memory that has any: memory that only ordinary
accesses touch has none.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilepipe.machine.agents import Agent
from tilepipe.machine.happens_before.memory_order import Place, Recent, Scope, Seen, Strong, Value
from tilepipe.machine.machine import Machine
from tilepipe.machine.sites import Site

Values = dict[int, Value]


def place_of(m: Machine, ag: Agent) -> Place:
    """Where a thread of an agent is, for scopes."""
    return m.cluster_id, ag.cta.rank


def wrote(
    m: Machine, ag: Agent, site: Site, lane: int, values: Values, at: int, strong: Strong,
    name: str, *, updates: bool = False, shared: bool = False,
) -> None:  # fmt: skip
    """The thread `lane` has written a location. `updates`: by a read-modify-write. `shared`: it is
    in shared memory.
    """
    place, known = place_of(m, ag), ag.publish(lane)
    before = values.get(at) if updates else None
    new = Value(site, place, str(ag), strong, name, {}, known, shared)
    if before is not None:
        new.all |= before.all
        if strong.scope.reaches(place, before.place) and before.strong.scope.reaches(
            before.place, place
        ):
            new.parts |= before.parts
    if strong.releases:
        new.add(strong.scope, place, known)
    else:
        for (scope, restricted), bits in (
            ag.published if m.world.strict else m.published
        ).bits.items():
            if shared or not restricted:
                new.add(min(scope, strong.scope), place, bits & known)
    values[at] = new


def observed(
    m: Machine, ag: Agent, site: Site, mask: int, value: Value | None, strong: Strong
) -> None:
    """Threads have read a location by a strong read."""
    place = place_of(m, ag)
    if value is None or not (m.world.order is not None or value.place[0] == place[0]):
        return
    if value.strong.nbytes != strong.nbytes and value.strong.nbytes and strong.nbytes:
        return
    learned = value.learned(place, strong.scope) if strong.acquires else 0
    if learned:
        ag.acquire(mask, learned)
    if value.all & ~learned:
        seen = Seen(mask, value, site, strong, place)
        if not strong.acquires:
            if ag.seen is None:
                ag.seen = Recent()
            seen = ag.seen.add(seen)
        m.world.seen.add(seen)


def overwritten(values: Values, starts: Iterable[int], nbytes: int) -> None:
    """Ordinary writes end what strong ones have left."""
    for start in starts:
        for at in range(start, start + nbytes):
            values.pop(at, None)


def fence(
    m: Machine, ag: Agent, mask: int, scope: Scope, *, acquires: bool = True,
    releases: bool = True, restricted: bool = False,
) -> None:  # fmt: skip
    """fence.acq_rel and its like by the threads of `mask`: strong reads before it acquire, strong
    writes after it release. `restricted`: those of shared memory alone.
    """
    if acquires and ag.seen is not None:
        place = place_of(m, ag)
        for seen in ag.seen.seen:
            if not seen.mask & mask or (restricted and not seen.value.shared):
                continue
            learned = seen.value.learned(place, min(scope, seen.strong.scope))
            if learned:
                ag.acquire(seen.mask & mask, learned)
            seen.fence = scope if seen.fence is None else max(scope, seen.fence)
    if releases:
        bits = ag.publish(mask)
        for fences in (ag.published, m.published):
            fences.add(scope, restricted, bits)
