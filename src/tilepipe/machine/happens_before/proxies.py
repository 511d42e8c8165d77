"""Checks of fences between two conflicting accesses that synchronisation has ordered: proxy fences,
and those of tcgen05 in tensor memory.
"""

from __future__ import annotations

from tilepipe.ir.facts import Group, Resource
from tilepipe.machine import rules
from tilepipe.machine.actors import Actor
from tilepipe.machine.agents import tensor_state
from tilepipe.machine.faults import races, tensor_memory as tensor_faults
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.happens_before.events import Event
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.tensor_memory import TensorMemory, warp_of
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.sites import Site

_TCGEN05 = Group.TCGEN05  # looked up once: this is an inner loop

# -- proxy fences ----------------------------------------------------------------------


def check_proxy(m: Machine, slot: Slot, old: Access, new: Access, known: int) -> None:
    """An ordinary access to shared memory before an asynchronous one needs a fence.proxy.async
    by the threads that made it.

    Raises:
        RaceError: there is no fence; or there is one on the reader's side, and the rules are
            strict.
    """
    if old.fenced & known:
        return
    allocated = old.site.facts.takes is Resource.TENSOR_MEMORY
    if allocated and m.world.advised(rules.ALLOCATION_REFILL, old.site, new.site):
        return
    words, narrow = slot.cta.words, "fence.proxy.async.shared::cta"
    own = old.home == old.agent.cta.rank
    fence = words[narrow if own else "fence.proxy.async.shared::cluster"]
    what = slot.object_of(old, new)
    if old.reader_fenced & known:
        races.fenced_by_reader(m, what, old, str(old.agent), new.site, fence)
        return
    form = words.get("the narrow fence", narrow)
    peer = f" {form} orders accesses to its own CTA's memory, and this is a peer's."
    lines = races.line(slot, old), races.line(slot, new)
    place = f"{what} of CTA {slot.cta.block_id}" if slot.cta.grid > 1 else what
    races.proxy_race(place, old, lines, new.agent, new.site, fence, "" if own else peer)


def check_global_proxy(
    m: Machine, tensor: str, old: Event, ag: Actor, site: Site, known: int
) -> None:
    """Raises RaceError unless a fence.proxy.async stands between an ordinary access to global
    memory and a later one by TMA; by the strict rules also between copies of two CTAs.
    """
    if old.fenced & known:
        return
    if old.asynchronous:
        if old.agent.cta is not ag.cta or old.cluster != m.cluster_id:
            _check_copies(m, tensor, old, ag, site, known)
        return
    words, place = ag.cta.words, f"tensor '{tensor}'"
    fence = words["fence.proxy.async.global"]
    if old.reader_fenced & known:
        races.fenced_by_reader(m, place, old, old.who, site, fence)
        return
    lines = (
        f"{old.who} {'writes' if old.is_write else 'reads'} common elements (generic proxy):"
        f" {old.site.what}\n          at {old.site.loc}",
        f"{ag} touches them by TMA (async proxy): {site.what}\n          at {site.loc}",
    )
    form = words.get("the shared fence", "fence.proxy.async.shared::cta")
    races.proxy_race(place, old, lines, ag, site, fence, f" {form} orders shared memory only.")


def _check_copies(m: Machine, tensor: str, old: Event, ag: Actor, site: Site, known: int) -> None:
    """Raises RaceError unless a proxy fence stands between copies of two CTAs, by the strict rules:
    on either side of what orders them.
    """
    if old.reader_fenced & known or m.world.advised(rules.COPIES_OF_CTAS, old.site, site):
        return
    m.world.finding(
        rules.COPIES_OF_CTAS,
        f"{site.what}: {ag} accesses elements of '{tensor}' by a copy, after a copy of another CTA"
        f" ({old.who}: {old.site.what}, at {old.site.loc}), and no proxy fence stands between",
        site.loc,
        f"Put {ag.cta.words['fence.proxy.async.global']} between the wait for the flag, or the"
        " barrier, that orders them and the second copy.",
        first=old.site.loc,
    )


# -- tcgen05 fences --------------------------------------------------------------------


def check_tensor_fences(m: Machine, tm: TensorMemory, old: Access, new: Access, known: int) -> None:
    """Two accesses to tensor memory need both tcgen05 fences around the barrier that orders them.

    Raises:
        RaceError: a fence is missing, and the rules are strict.
    """
    if old.agent is new.agent:
        if old.mask == new.mask and old.site.facts.issues is new.site.facts.issues is _TCGEN05:
            if not _pipelined(old, new) and not m.world.advised(
                rules.TENSOR_ORDER, old.site, new.site
            ):
                tensor_faults.not_pipelined(m, tm, old, new)
            return  # the tensor core executes them in the order of issue
        if old.fenced != old.bit and warp_of(old.mask) == warp_of(new.mask):
            return  # program order, after a wait
    if new.site.frees:
        return
    before = old.fenced & known
    if before and old.bit & tensor_state(m.agents[new.agent.uid]).after.known(new.mask):
        return
    if not m.world.advised(rules.TENSOR_FENCES, old.site, new.site):
        (tensor_faults.not_received if before else tensor_faults.not_published)(m, tm, old, new)


def _pipelined(old: Access, new: Access) -> bool:
    """True if the PTX ISA promises that an op of the tensor core comes after an earlier one of its
    thread (tcgen05 memory consistency model, pipelined instructions): an MMA after a copy, or
    after an MMA of the same accumulator, shape and kind.
    """
    one, two = _shape(old.site), _shape(new.site)
    if one is None or two is None:
        return two is not None
    return one == two and old.rect == new.rect and old.is_write and new.is_write


def _shape(site: Site) -> object:
    """A key of the shape of an MMA, besides its accumulator; None for a copy. Where descriptors
    give the shape, the instruction.
    """
    return site.shape or (site.kind if site.kind.startswith("tcgen05.mma") else None)
