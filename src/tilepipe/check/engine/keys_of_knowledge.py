"""Parts of the key of a state: which accesses agents, fences and values in memory know of."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tilepipe.check.engine.key_bits import KeyBits
from tilepipe.machine.agents import Agent
from tilepipe.machine.happens_before.knowledge import Knowledge
from tilepipe.machine.happens_before.memory_order import Fences, Scope, Seen, Strong, Value
from tilepipe.machine.units.in_flight import (
    TensorQueue,
)


def values(left: Mapping[int, Value], bits: KeyBits) -> Hashable:
    """The values that strong writes have left, by location."""
    return tuple((at, _value(left[at], bits)) for at in sorted(left))


def _value(value: Value, bits: KeyBits) -> Hashable:
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


def seen(read: Seen, bits: KeyBits) -> Hashable:
    """A strong read that a fence to come may let acquire."""
    fence = -1 if read.fence is None else int(read.fence)
    return read.mask, _value(read.value, bits), _strong(read.strong), fence, bits(read.mark)


def fences(published: Fences, bits: KeyBits, names: dict[int, int]) -> Hashable:
    """The fences that later strong writes and reads of other threads may rely on."""
    return tuple(
        sorted(
            (names[f.uid], f.mask, int(f.scope), f.restricted, bits(f.bits), bits(f.mark))
            for f in published.made
        )
    )


def copies(a: Agent, bits: KeyBits) -> Hashable:
    """The cp.async of a warp that have not been waited for."""
    made = a.copies
    if made is None:
        return ()
    groups = tuple((n - made.made, tuple(bits(x.bit) for x in g)) for n, g in made.groups)
    still = made.issued - made.made
    return still, len(made.waiting), tuple(bits(x.bit) for x in made.open), groups


def knowledge(k: Knowledge, bits: KeyBits) -> Hashable:
    """The accesses that all threads of an agent, the lanes of each warp, and some lanes know of."""
    apart = () if k.kw is None else tuple(map(bits, k.kw))
    return bits(k.k), apart, tuple(sorted((p.mask, bits(p.bits), p.made) for p in k.pend))


def tensor_state(a: Agent, bits: KeyBits) -> Hashable:
    """The tcgen05 operations of an agent that are not over, and what its fences have ordered."""
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
        knowledge(t.after, bits),
        bits(t.published),
    )
