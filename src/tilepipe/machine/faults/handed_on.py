"""Why a flag that one thread releases, and another acquires, did not hand on an access: threads
that it speaks for have not met, or nobody had raised it, or it has no order at all.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilepipe.ir.facts import Resource
from tilepipe.ir.fragment import WARP
from tilepipe.machine.actors import Actor
from tilepipe.machine.faults import flags
from tilepipe.machine.happens_before.events import Event, GlobalOrder
from tilepipe.machine.happens_before.memory_order import Look
from tilepipe.machine.machine import Machine
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import warps_of


def why(m: Machine, order: GlobalOrder, old: Event, new: Event) -> str:
    """The flag that was to order one of two racing accesses after the other, and what it lacks; ""
    where the later agent has looked at none.
    """
    looks, earlier = list(_looks(m, new)), _looks(m, old)
    return (
        next((s for look in looks if (s := _released_by_one(m, order, old, look))), "")
        or next((s for look in looks if (s := _acquired_by_one(m, old, new, look))), "")
        or next((s for look in looks if (s := _over_at_launch(m, old, look))), "")
        or next((s for look in earlier if (s := _over_at_launch(m, new, look, old))), "")
    )


def _looks(m: Machine, access: Event) -> Iterator[Look]:
    """The latest looks of the agent of an access at flags, the latest first."""
    here = access.cluster, access.agent.cta.rank, access.agent_uid
    for (place, uid, _), look in reversed(m.world.seen.looks.items()):
        if (*place, uid) == here:
            yield look


def meeting(agent: Actor) -> str:
    """Where all threads of an agent can meet."""
    words = agent.cta.words
    return words["bar.sync of a warpgroup"] if agent.warps > 1 else words["bar.warp.sync"]


def one_of_all(agent: Actor) -> str:
    """The advice where all threads of an agent store to one element, at one line."""
    elect = agent.cta.words["elect.sync in a warp"]
    return (
        f"It is one store, which all {WARP * agent.warps} threads of {agent} make to one element:"
        f" let one of them do so ({elect})."
    )


# -- threads that have not met -----------------------------------------------------------


def _released_by_one(m: Machine, order: GlobalOrder, old: Event, look: Look) -> str:
    """That the thread which released a flag knew only the part that its own warp, or it itself, had
    in an access.
    """
    value = look.value
    if value is None or not value.parts or not look.strong.acquires or value.all & old.bit:
        return ""
    place, (uid, lane) = value.place, value.thread
    if place != (old.cluster, old.agent.cta.rank) or uid != old.agent_uid:
        return ""
    together = _together(order, old)
    mine = next((e for e in together if e.mask & lane), None)
    if mine is None:
        return ""
    if mine.bit & value.all:
        others = _warps(sum(e.mask for e in together if not e.bit & value.all))
    elif m.order.lanes_known(mine, value.all) & lane:
        others = _other_threads(sum(e.mask.bit_count() for e in together) - 1)
    else:
        return ""  # it has been released before the access
    return (
        f"the flag {value.name} is released at {value.site.loc.short} by one thread of {old.who},"
        f" which does not know of the {'writes' if old.is_write else 'reads'} of {others}: put"
        f" {meeting(old.agent)} before it."
    )


def _together(order: GlobalOrder, old: Event) -> list[Event]:
    """The accesses that the warps of an agent have made by one execution of an op, which are
    recorded one after another.
    """
    found = [old]
    for step in (-1, 1):
        at = old.number - 1 + step
        while 0 <= at < len(order.history):
            event, last = order.history[at], found[-1] if step > 0 else found[0]
            same = event.site is old.site and event.agent is old.agent
            if not same or (event.mask > last.mask) != (step > 0) or event.mask == last.mask:
                break
            found.insert(len(found) if step > 0 else 0, event)
            at += step
    return found


def _acquired_by_one(m: Machine, old: Event, new: Event, look: Look) -> str:
    """That a thread has acquired what the others of its agent then do not know."""
    value, agent = look.value, new.agent
    if value is None or not look.strong.acquires or look.mask & new.mask == new.mask:
        return ""
    if not any(bits & old.bit for bits in value.parts.values()):
        return ""
    lacking = sum(
        1 << lane for lane in range(WARP * agent.warps) if not agent.known(1 << lane) & old.bit
    )
    if not lacking & new.mask:
        return ""
    whole = all(part.bit_count() == WARP for _, part in warps_of(lacking))
    others = _warps(lacking) if whole else _other_threads(lacking.bit_count())
    return (
        f"the flag {value.name} is acquired at {look.site.loc.short} by one thread of {agent}, of"
        f" which {others} do not know: put {meeting(agent)} between it and the second access."
    )


def _other_threads(number: int) -> str:
    return f"the other {number} threads" if number > 1 else "the other thread"


def _warps(threads: int) -> str:
    """`warps 1..3`, `warp 2`."""
    numbers = [warp for warp, _ in warps_of(threads)]
    if len(numbers) == 1:
        return f"warp {numbers[0]}"
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"warps {numbers[0]}..{numbers[-1]}"
    return f"warps {', '.join(map(str, numbers))}"


# -- flags that nobody has raised, or that have no order -------------------------------


def _over_at_launch(m: Machine, data: Event, look: Look, after: Event | None = None) -> str:
    """That a wait for a flag, which the agent of an access raises, found what it held at launch.
    `after`: the access that came after the wait, where that is not known anyway.
    """
    if look.element < 0 or (after and after.number <= look.events[after.site.tensor]):
        return ""
    order = m.world.tensors[look.site.tensor].order
    raises = _raises(m, data.agent.role_name, look.site.tensor)
    if order is None or raises is None or _written(order, look):
        return ""
    return (
        f"the wait at {look.site.loc.short} was over with {look.held}, the value that"
        f" {look.name} held at launch, so that it followed no release"
        f" ({raises.what}, at {raises.loc.short}). Let the flag begin with a value that does"
        " not end the wait, and wait for the one that is released."
    )


def _written(order: GlobalOrder, look: Look) -> bool:
    """True if an element had been written before a look at it."""
    return any(
        event.is_write and event.touches(look.element, order.shape)
        for event in order.history[: look.events[look.site.tensor]]
    )


def _raises(m: Machine, role: str, tensor: int) -> Site | None:
    """The op by which agents of a role write strongly to a tensor."""
    for site in m.world.program.sites:
        strong = site.facts.takes is Resource.COUNTERS and site.writes
        if strong and site.tensor == tensor and site.role == role:
            return site
    return None


def relaxed_ticket(m: Machine, old: Event, new: Actor) -> str:
    """The ticket that two agents of one role have drawn, in a kernel that orders no clusters, and
    the order that it lacks; "" where there is none.
    """
    for site in m.world.program.sites:
        draws = site.facts.takes is Resource.COUNTERS and site.id not in m.world.unread
        if not draws or not m.world.counts[site.id] or site.tensor == old.site.tensor:
            continue
        if site.role == new.role_name == old.agent.role_name:
            return (
                f"{site.what}, at {site.loc.short}, is relaxed, so that a CTA which draws a number"
                " knows nothing of what others did before they drew theirs: write"
                f" {flags.written_as(m, site, 'acq_rel', 'gpu')}."
            )
    return ""
