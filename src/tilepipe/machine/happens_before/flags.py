"""Strong accesses to locations by which threads synchronise, and the fences around them.

The values that strong writes leave (`memory_order.Value`) are kept by the offset of the location,
for each shared memory and each allocation of global memory that has any: memory that only ordinary
accesses touch has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilepipe.machine.agents import Agent
from tilepipe.machine.happens_before.events import Event, GlobalOrder
from tilepipe.machine.happens_before.knowledge import Fenceable
from tilepipe.machine.happens_before.memory_order import (
    Fence,
    Look,
    Place,
    Recent,
    Scope,
    Seen,
    Strong,
    Value,
)
from tilepipe.machine.machine import Machine
from tilepipe.machine.rules import FENCE_OF_WRITER
from tilepipe.machine.sites import Site

Values = dict[int, Value]
_FENCES = 16  # of threads, with one scope, that are told apart


def place_of(m: Machine, ag: Agent) -> Place:
    """Where a thread of an agent is, for scopes."""
    return m.cluster_id, ag.cta.rank


def wrote(
    m: Machine, ag: Agent, site: Site, lane: int, values: Values, at: int, strong: Strong,
    name: str, *, access: Fenceable | None, updates: bool = False, shared: bool = False,
) -> None:  # fmt: skip
    """The thread `lane` has written a location. `access`: the record of this write, where it has no
    other. `updates`: by a read-modify-write. `shared`: it is in shared memory.
    """
    place, known = place_of(m, ag), ag.publish(lane)
    before = values.get(at)
    new = Value(site, place, str(ag), strong, name, {}, known, shared, (ag.uid, lane))
    if before is not None:
        new.own = before.own
        # a release, and in program order a write by the same thread (PTX ISA, Release and Acquire
        # Patterns), whatever others have written there in between
        for scope, bits in list(new.own.get((place, *new.thread), {}).items()):
            new.release(min(scope, strong.scope), bits)
    if access is not None:
        new.chain = access.bit | access.release_bit
    if updates and before is not None:
        new.all |= before.all
        if before.meets(place, strong):
            new.parts |= before.parts
            new.releasing |= before.releasing
            new.chain |= before.chain
    if strong.releases:
        new.release(strong.scope, known)
    else:
        for by in _before(m, ag, known):
            if shared or not by.restricted:
                new.add(min(by.scope, strong.scope), place, ag.publish(lane, by.bits))
    values[at] = new


def written(order: GlobalOrder, ag: Agent, site: Site, lane: int, locations: int) -> Event | None:
    """The record of the latest write at a site, where `lane` alone made it, to one location: that
    of several is one record, of which an observer of one location comes after a part.
    """
    return order.present.latest.get((ag.uid, lane, site.id)) if locations == 1 else None


def _before(m: Machine, ag: Agent, known: int) -> Iterator[Fence]:
    """The fences that come before what threads do which know `known`."""
    for fence in m.published.made:
        if fence.mark & known and (fence.uid == ag.uid or not m.world.asks(FENCE_OF_WRITER)):
            yield fence


def released(m: Machine, ag: Agent, known: int, scope: Scope) -> int:
    """The knowledge that fences of at least a scope have published to a relaxed arrive, by threads
    that know `known`.
    """
    bits = 0
    for fence in _before(m, ag, known):
        if fence.scope >= scope:
            bits |= fence.bits & known
    return bits


def observed(
    m: Machine, ag: Agent, site: Site, mask: int, value: Value | None, strong: Strong
) -> None:
    """Threads have read a location by a strong read."""
    place = place_of(m, ag)
    if value is not None and m.world.order is not None:
        m.world.seen.looked(place, ag.uid, Look(mask, site, strong, value))
    if value is None or not (m.world.order is not None or value.place[0] == place[0]):
        return
    if value.strong.nbytes != strong.nbytes and value.strong.nbytes and strong.nbytes:
        return
    if value.chain and value.meets(place, strong):
        ag.acquire(mask, value.chain)
    learned = value.learned(place, strong.scope) if strong.acquires else 0
    if learned:
        ag.acquire(mask, learned)
    if value.all & ~learned:
        seen = Seen(ag.uid, mask, value, site, strong, place)
        if not strong.acquires:
            if ag.seen is None:
                ag.seen = Recent(sums=True)
            seen = ag.seen.add(seen)
            m.order.retire_bit(ag.seen.gone)
            ag.seen.gone = 0
            seen.mark = seen.mark or m.order.new_bit()
            ag.acquire(mask, seen.mark)
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
    if acquires:
        for reader in (ag,) if m.world.asks(FENCE_OF_WRITER) else m.agents:
            if reader.seen is not None:
                _acquire(m, ag, mask, scope, restricted, reader)
    if releases:
        _release(m, ag, mask, scope, restricted)


def _acquire(
    m: Machine, ag: Agent, mask: int, scope: Scope, restricted: bool, reader: Agent
) -> None:
    """A fence acquires what an agent has seen, where it comes after the read."""
    assert reader.seen is not None
    place, known = place_of(m, ag), ag.known(mask)
    for seen in reader.seen.seen:
        after = seen.mask & mask if reader is ag else 0
        if seen.mark & known:
            after = mask
        if not after or (restricted and not seen.value.shared):
            continue
        learned = seen.value.learned(place, min(scope, seen.strong.scope))
        if learned:
            ag.acquire(after, learned)
        seen.fence = scope if seen.fence is None else max(scope, seen.fence)


def _release(m: Machine, ag: Agent, mask: int, scope: Scope, restricted: bool) -> None:
    """A fence publishes what its threads know."""
    made = m.published.made
    bits = ag.publish(mask) & ~sum(fence.mark for fence in made)
    m.order.retire_bit(sum(fence.mark for fence in made if not fence.bits))
    m.published.made = made = [fence for fence in made if fence.bits]
    new = Fence(ag.uid, mask, scope, restricted, bits, 0)
    alike = [fence for fence in made if fence.like(new)]
    if not bits or any(fence.bits == bits for fence in alike):
        return
    if len(alike) >= _FENCES:  # those who know of a later one of these threads know as much
        m.order.retire_bit(alike[0].mark)
        made.remove(alike[0])
    new.mark = m.order.new_bit()
    ag.acquire(mask, new.mark)
    made.append(new)
