"""Deadlocks of a warp of which some lanes wait for what others would bring, and those stand behind
the wait.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilepipe.machine.agents import Spin
from tilepipe.machine.barriers.state import Mbarrier
from tilepipe.machine.faults import view
from tilepipe.machine.faults.view import Wait
from tilepipe.machine.machine import Machine
from tilepipe.machine.sites import Site

_STRONG = {"release", "acq_rel", "relaxed", "volatile", "atom", "red"}


def behind(m: Machine, waits: Sequence[Wait]) -> tuple[Wait, str] | None:
    """The wait of some lanes behind which others of their warp stand that could end it, with the
    advice; None where there is none.
    """
    for wait in waits:
        request = wait.agent.request
        waiting = request[1][1] if request is not None else 0
        for separated in m.world.separated(m, wait.agent):
            others = separated.lanes & ~waiting
            source = next((s for s in _sources(m, wait) if s.id in separated.reaches), None)
            if others and source is not None:
                return wait, (
                    f"the lanes {waiting:#x} of {wait.agent} wait at {wait.site.loc.short}, and the"
                    f" lanes {others:#x} of the same warp, which could go on to {source.kind} at"
                    f" {source.loc.short}, stand at {separated.at} until those come. Put that"
                    f" before the wait, or let another {wait.agent.cta.words['warp']} do one of the"
                    " two."
                )
    return None


def _sources(m: Machine, wait: Wait) -> list[Site]:
    """The ops that could end a wait which no other agent ends."""
    on, program = wait.on, m.world.program
    if isinstance(on, Spin) and on.name:
        if m.world.clusters is not None and m.world.clusters.waiting:
            return []
        tensor = on.site.tensor
        return [s for s in program.sites if s.writes and s.tensor == tensor and _is_strong(s)]
    if not isinstance(on, Mbarrier) or not on.pending:
        return []
    known = not program.addressed or on.phase > 0 or bool(view.users(on))
    if known and any(not agent.done for agent in view.candidates(m, wait)):
        return []
    return view.sources(m, on)


def _is_strong(site: Site) -> bool:
    """True of a write that a loop which polls is meant to see."""
    return not _STRONG.isdisjoint(site.kind.split("."))
