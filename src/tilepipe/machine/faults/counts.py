"""mbarriers whose count is lower than the arrivals that come in a phase: a phase is then complete
without some of those that arrive, and whoever waits for it goes on too early.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilepipe.ir.facts import Sync
from tilepipe.machine.actors import Actor
from tilepipe.machine.barriers.state import LIVE, Mbarrier
from tilepipe.machine.faults import view
from tilepipe.machine.machine import Machine
from tilepipe.machine.sites import Site

_NAMED = 4  # arrivals that a message names


def too_low(m: Machine, bars: Iterable[Mbarrier]) -> str:
    """The first of some barriers that counts fewer arrivals than come, with who arrives; empty
    where there is none.

    Those that take turns, a phase each, come in no phase together: the message says so. Barriers
    of a ring are left out, whose counts are derived from those that take each stage.
    """
    return next((said for bar in bars if (said := _said(m, bar))), "")


def unordered(m: Machine, one: Actor, other: Actor) -> str:
    """The barrier that was to order an agent after another, and was complete without the other's
    arrival, since its count is too low; empty where there is none.
    """
    for waiter, by in ((one, other), (other, one)):
        for bar in m.ctas[waiter.cta.rank].bars:
            came = any(arrival.agent is by for arrival in bar.last_arrivals)
            if bar.phase < 1 or came or not view.has_waited(m, waiter, bar):
                continue
            if any(agent is by for agent, _, _ in _arrivers(m, bar)) and (said := _said(m, bar)):
                return (
                    f"Phase {bar.phase - 1} of {bar.where}, on which {waiter} waits, was complete"
                    f" without {by}. {said}"
                )
    return ""


def _said(m: Machine, bar: Mbarrier) -> str:
    complete = bar.phase > 0 or not bar.pending  # or it will be, once bytes have come
    if bar.state != LIVE or not complete or (bar.side is not None and bar.side.ring):
        return ""
    who = _arrivers(m, bar)
    come = sum(n for _, _, n in who)
    if come <= bar.count:
        return ""
    places: dict[str, int] = {}
    for agent, site, n in who:
        place = f"{agent} ({site.loc.short})"
        places[place] = places.get(place, 0) + n
    named = [f"{n} by {place}" for place, n in list(places.items())[:_NAMED]]
    more = ["..."] if len(places) > _NAMED else []
    return (
        f"{bar.where} counts {bar.count} arrival{'s' * (bar.count > 1)} a phase, and {come} come:"
        f" {', '.join(named + more)}. Unless they take turns, its count must be"
        f" {'at least ' * _incomplete(bar)}{come}."
    )


def _incomplete(bar: Mbarrier) -> bool:
    """True if several warps of an agent have arrived each by itself, and others have not yet."""
    warps: dict[int, int] = {}
    for arrival in bar.arrivers.values():
        warps[arrival.agent.uid] = warps.get(arrival.agent.uid, 0) + 1
    return any(1 < warps[a.agent.uid] < a.agent.warps for a in bar.arrivers.values())


def _arrivers(m: Machine, bar: Mbarrier) -> list[tuple[Actor, Site, int]]:
    """Who arrives on a barrier, with how many arrivals: the warps that have arrived, and agents
    that have not but will, as the program says.
    """
    seen = [(a.agent, a.site, a.number) for a in bar.arrivers.values()]
    known = {agent.uid for agent, _, _ in seen}
    to_come = {a.uid: (a, site, 1) for a, site in _named(m, bar) if a.uid not in known}
    return [*seen, *to_come.values()]


def _named(m: Machine, bar: Mbarrier) -> Iterator[tuple[Actor, Site]]:
    """The agents that arrive on a barrier by its name, which no other barrier has, in no branch."""
    if m.world.program.addressed or bar.size > 1:
        return
    for site in m.world.program.sites:
        if site.barrier == bar.array and Sync.ARRIVE in site.sync and site.by_each:
            for agent in (a for cta in m.ctas for a in cta.agents):
                reached = view.reached(site, agent.cta.rank)
                if agent.role_name == site.role and reached and bar.cta.rank in reached:
                    yield agent, site
