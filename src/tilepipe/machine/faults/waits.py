"""Waits that gave the parity of a phase that was over, passed at once, and ordered nothing."""

from __future__ import annotations

from collections.abc import Iterator

from tilepipe.ir.facts import BRINGS
from tilepipe.machine.actors import Actor
from tilepipe.machine.barriers.state import Mbarrier
from tilepipe.machine.faults.view import users
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.machine import Machine
from tilepipe.machine.past_waits import PastWaits
from tilepipe.machine.sites import Site


def unordered(m: Machine, old: Access, new: Access) -> str:
    """The wait that was to order one of two racing accesses after the other and passed at once;
    empty where there is none.
    """
    pairs = ((old, new), (new, old))
    for mine, other in pairs:
        if text := repeated(m, mine.agent, other.agent, mine):
            return text
    for mine, other in pairs:
        if text := _too_early(m, mine, other):
            return text
    return ""


def repeated(
    m: Machine, agent: Actor, other: Actor | None = None, why: Access | None = None
) -> str:
    """A wait of an agent that passed on a phase which it had waited for before; empty where there
    is none.

    Args:
        other: the agent whose work it is to wait for, where that is known.
        why: the access that it waits in order to make.
    """
    for bar, waits in _waits(m, agent):
        if waits.repeated is None or (other is not None and _others_use(m, bar, other)):
            continue
        (site, number), phase = waits.repeated, waits.phase
        return (
            f"{agent} did not wait at {site.loc.short}: in round {number} on {bar.where} it gave"
            f" parity {phase & 1} again, that of {named(phase)}, which was already complete, so"
            f" that it passed at once and ran ahead. {_comes(why, bar, phase + 1)}, and flip the"
            " parity in each round."
        )
    return ""


def for_nothing(m: Machine, agent: Actor) -> str:
    """That the only waits of an agent which reads what nobody has written gave parity 1 on fresh
    barriers; empty where it has waited for more, or not at all.
    """
    for bar, waits in _waits(m, agent):
        if any(other.phase >= 0 for other in agent.waited.values()):
            return ""
        return (
            f"{agent} has waited for nothing: at {waits.site.loc.short} it gave parity 1, that of"
            f" {named(-1)} of {bar.where}, which counts as complete on a fresh mbarrier. If that"
            " barrier is to say that the data are there, wait with parity 0 for its phase 0."
        )
    return ""


def again(agent: Actor, bar: Mbarrier, phase: int, lanes: int) -> str:
    """That an agent waits for a phase which the same threads have waited for before; empty where
    they have not.
    """
    waits = agent.waited.get((bar.cta.rank, bar.flat))
    if waits is None or waits.phase != phase or not waits.lanes & lanes:
        return ""
    return (
        f"{agent} has waited for {named(phase)} of it before ({waits.site.loc.short}), and gives"
        f" parity {phase & 1} again in round {waits.rounds + 1}: flip the parity in each round;"
        f" {named(phase + 1)} is that of parity {phase + 1 & 1}."
    )


def both_first(m: Machine, agent: Actor, bar: Mbarrier, site: Site, arrived: list[Actor]) -> str:
    """That an agent's lapped wait is for the phase before the first, as was the only wait of one
    that has arrived: of a producer and a consumer one alone may begin so. Empty where that is not
    so.
    """
    for by in dict.fromkeys(arrived):
        for there, waits in _waits(m, by):
            if by is agent or any(other.phase >= 0 for other in by.waited.values()):
                break
            return (
                f"Both {agent} ({site.loc.short}, {bar.where}) and {by} ({waits.site.loc.short},"
                f" {there.where}) begin with parity 1, that of {named(-1)}, which counts as"
                " complete on a fresh mbarrier. Only the one that fills first may: the other must"
                " wait with parity 0 for phase 0."
            )
    return ""


def phase_meant(agent: Actor, bar: Mbarrier, phase: int) -> int:
    """The phase that an agent's wait is for which is lapped; `phase`: any one of that parity."""
    waits = agent.waited.get((bar.cta.rank, bar.flat))
    if waits is None:
        return phase
    meant = waits.phase + (waits.phase + phase & 1)
    return meant if phase < meant < bar.phase - 1 else phase


def _too_early(m: Machine, mine: Access, other: Access) -> str:
    """A wait on a fresh barrier that gave parity 1 where the other's access, or arrival, is what
    completes phase 0. A producer's first wait does so rightly, for a stage that nobody has used.
    """
    agent = mine.agent
    for bar, waits in _waits(m, agent):
        copied = any(unit.write is other for unit in (*bar.copies, *bar.last_copies))
        arrives = not mine.is_write and _arrives(m, bar, other)
        if waits.phase < 0 and (copied or arrives):
            return (
                f"{agent} did not wait at {waits.site.loc.short}: it gave parity 1, that of"
                f" {named(-1)} of {bar.where}, which counts as complete on a fresh mbarrier."
                f" {_comes(None if copied else mine, bar, 0)}."
            )
    if mine.is_write or not m.world.program.addressed:
        return ""
    return for_nothing(m, agent)


def _waits(m: Machine, agent: Actor) -> Iterator[tuple[Mbarrier, PastWaits]]:
    """The mbarriers on which an agent has waited by parity, with its waits there."""
    bars = {(cta.rank, bar.flat): bar for cta in m.ctas for bar in cta.bars}
    for key, waits in agent.waited.items():
        yield bars[key], waits


def _others_use(m: Machine, bar: Mbarrier, agent: Actor) -> bool:
    """True if other agents alone have arrived on a barrier of a program by addresses, or issued its
    copies.
    """
    known = {user.uid for user, _ in users(bar)} if m.world.program.addressed else set()
    return bool(known) and agent.uid not in known


def _arrives(m: Machine, bar: Mbarrier, other: Access) -> bool:
    """True if the agent of an access arrives on a barrier, or copies to it, that the program names:
    by the access itself if this is a copy.
    """
    if m.world.program.addressed:
        return any(user.uid == other.agent.uid for user, _ in users(bar))
    sites = [other.site] if other.site.fills else m.world.program.sites
    role = other.agent.role_name
    return any(s.barrier == bar.array and s.role == role and bool(s.sync & BRINGS) for s in sites)


def named(phase: int) -> str:
    """A phase by its number, or in words that before the first."""
    return f"phase {phase}" if phase >= 0 else "the phase before the first"


def _comes(why: Access | None, bar: Mbarrier, phase: int) -> str:
    """What to wait for instead."""
    what = (
        "What it has to wait for comes"
        if why is None
        else "What frees the bytes for it comes"
        if why.is_write
        else "The data come"
    )
    return f"{what} with phase {phase} of {bar.name}: wait with parity {phase & 1}"
