"""Deadlocks in which agents wait for phase 0 of barriers on which nothing has arrived: the one that
fills first has to begin with the phase before it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.state import Mbarrier
from tilepipe.machine.faults import view
from tilepipe.machine.faults.view import Wait
from tilepipe.machine.machine import Machine


def begins_late(
    m: Machine, waits: Sequence[Wait], cycle: Sequence[Agent]
) -> tuple[Wait, str] | None:
    """The wait that should have been for the phase before the first, with the advice; None where
    there is none. `cycle`: agents that wait for each other.
    """
    first = [
        (wait, bar)
        for wait in waits
        for bar in [wait.on]
        if isinstance(bar, Mbarrier) and wait.phase == bar.phase == 0 and not view.users(bar)
    ]
    for wait, bar in first:
        untried = not view.has_waited(m, wait.agent, bar) and not _has_filled(m, wait.agent)
        if untried and bar.side is not None and not bar.side.fills:
            parity = bar.cta.words["parity 1"]
            return wait, (
                f"{wait.agent} waits for phase 0 of {bar.where}, the first release, before it has"
                " filled anything, and nothing has arrived: its phases start one too late. Every"
                " stage is free at the start: the first wait of a producer is for the phase before"
                f" the first ({parity}), and passes."
            )
    return _all_begin_with_0(m, [(w, bar) for w, bar in first if w.site.parity], cycle)


def _all_begin_with_0(
    m: Machine, first: list[tuple[Wait, Mbarrier]], cycle: Sequence[Agent]
) -> tuple[Wait, str] | None:
    """Agents that wait for each other, each with parity 0, before any of them has arrived."""
    addressed = m.world.program.addressed
    known = [(wait, bar) for wait, bar in first if addressed or wait.agent in cycle]
    each: dict[Mbarrier, Wait] = {}
    for wait, bar in known:
        if wait.agent not in [other.agent for other in each.values()]:
            each.setdefault(bar, wait)
    if len({bar.address for bar in each}) < 2:
        return None
    if addressed:  # which barrier is whose is not known
        still_to_come = {s.id for bar in each for s in view.sources(m, bar)}
        if sum(not m.world.counts[number] for number in still_to_come) < 2:
            return None
    elif not {w.agent for w, _ in known} >= set(cycle):
        return None
    filler = next((wait for wait in each.values() if _fills(m, wait, each)), None)
    who = "whoever fills first" if filler is None else f"{filler.agent} fills first, and"
    waiting = "; ".join(
        f"{wait.agent} for phase 0 of {bar.where} ({wait.site.loc.short})"
        for bar, wait in list(each.items())[:4]
    )
    missing = " If none of them fills first, an arrive on one of these barriers is missing."
    return filler or next(iter(each.values())), (
        f"{who} must wait with parity 1: on a fresh mbarrier the phase before the first counts as"
        " complete, so that this wait passes. Here all begin with parity 0, and nothing has"
        f" arrived: {waiting}.{missing if filler is None else ''}"
    )


def _has_filled(m: Machine, agent: Agent) -> bool:
    """True if the agent's role has issued copies that signal a barrier."""
    return any(
        s.fills and s.role == agent.role_name and m.world.counts[s.id]
        for s in m.world.program.sites
    )


def _fills(m: Machine, wait: Wait, each: dict[Mbarrier, Wait]) -> bool:
    """True if the agent that waits issues copies which signal a barrier that another waits for."""
    awaited = {bar.array for bar, other in each.items() if other is not wait}
    return any(
        s.fills and s.barrier in awaited and s.role == wait.agent.role_name
        for s in m.world.program.sites
    )
