"""The view of a machine that reports read: which ops ran, which agents wait, and which ops could
wake them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilepipe.ir.facts import BRINGS, Group, Resource, Sync
from tilepipe.machine.actors import Actor, CtaPlace
from tilepipe.machine.agents import Agent, Spin
from tilepipe.machine.barriers.state import Mbarrier, NamedState, Rendezvous
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.sites import ANY_NAMED, OWN, Site
from tilepipe.machine.units.in_flight import WgmmaGroup

Waited = Mbarrier | NamedState | Rendezvous | TensorMemory | WgmmaGroup | Spin | None


@dataclass(frozen=True, eq=False, slots=True)
class Wait:
    """An agent that waits at `site` for `phase` of `on`; None where that has no phases."""

    agent: Agent
    site: Site
    on: Waited
    phase: int | None

    def __str__(self) -> str:
        return f"{self.agent} waits at {self.site.loc.short}"


def executed(m: Machine) -> list[Site]:
    """The ops of the program that have been executed."""
    return [site for site in m.world.program.sites if m.world.counts[site.id]]


def waits(m: Machine) -> list[Wait]:
    """The waits of all agents that have not returned, where nothing can act."""
    return [_wait(m, agent) for agent in m.agents if not agent.done]


def _wait(m: Machine, agent: Agent) -> Wait:
    if agent.spins is not None:
        bar = agent.spins.bar
        looked = (agent.spins, None) if bar is None else (bar, agent.spins.phase)
        return Wait(agent, agent.spins.site, *looked)
    assert agent.request is not None
    site: Site = agent.request[1][0]
    match agent.waits:
        case (Mbarrier() | NamedState() | Rendezvous() | TensorMemory() as on, phase):
            return Wait(agent, site, on, phase)
        case (WgmmaGroup() as group, _) if group.name:
            return Wait(agent, site, group, None)
    return Wait(agent, site, None, None)


def sources(m: Machine, on: Waited) -> list[Site]:
    """The ops of the program that could bring what is missing. Where barriers are named by address,
    which op uses which of them is not known: those that have brought something lately to this one.
    """
    found = [site for site in m.world.program.sites if _brings(m, site, on)]
    if m.world.program.addressed and isinstance(on, Mbarrier):
        seen = {site.id for _, site in users(on)}
        return [site for site in found if site.id in seen] or found
    return found


def agents_of(m: Machine, site: Site, on: Waited, near: Agent) -> list[Agent]:
    """The agents that perform an op which brings something: of the CTA of the agent that waits, and
    of all where the op reaches others.
    """
    if m.world.program.addressed and isinstance(on, Mbarrier):
        seen = {agent.uid for agent, used in users(on) if used is site}
        if seen:
            return [a for a in m.agents if a.uid in seen]
    if isinstance(on, Spin) and on.writers is not None:
        seen = {
            uid for cluster, uid, by in on.writers() if (cluster, by) == (m.cluster_id, site.id)
        }
        return [a for a in m.agents if a.uid in seen]
    return [a for a in m.agents if a.role_name == site.role and (a.cta is near.cta or site.crosses)]


def users(bar: Mbarrier) -> list[tuple[Actor, Site]]:
    """The arrivals and the copies of the phase in progress, and of the one before."""
    arrivals = [(agent, site) for agent, site, *_ in (*bar.arrivals, *bar.last_arrivals)]
    return [*arrivals, *((unit.agent, unit.site) for unit in (*bar.copies, *bar.last_copies))]


def reached(site: Site, rank: int) -> set[int] | None:
    """The ranks of the CTAs in which an arrival of the CTA of that rank arrives; None where it
    depends on more.
    """
    mask = site.targets
    if mask == OWN:
        return {rank}
    return None if mask is None else {i for i in range(mask.bit_length()) if mask >> i & 1}


def has_waited(m: Machine, agent: Actor, bar: Mbarrier) -> bool:
    """True if a wait or a test on a barrier has passed, of an agent or of its role, in whichever
    line: an unrolled loop has a wait for each round.
    """
    if (bar.cta.rank, bar.flat) in agent.waited:
        return True
    return any(
        s.barrier == bar.array and s.role == agent.role_name and s.sync & (Sync.WAIT | Sync.TEST)
        for s in executed(m)
    )


def _brings(m: Machine, site: Site, on: Waited) -> bool:
    match on:
        case None:
            return False
        case Mbarrier():
            this = site.barrier == on.array or (m.world.program.addressed and not site.named)
            return this and bool(site.sync & (BRINGS if on.pending else Sync.CREDIT))
        case Spin(writers=writers) if writers is not None:
            return site is not on.site and any(writer[2] == site.id for writer in writers())
        case Spin():
            return site.writes and site.tensor == on.site.tensor and site is not on.site
        case TensorMemory():
            allocates = site.facts.takes is Resource.TENSOR_MEMORY
            return site.frees or (allocates and site.cta_group == 2)
        case WgmmaGroup():
            return site.facts.commits is Group.WGMMA
    return site.named in (on.name.split("[")[0], ANY_NAMED)


def together(agents: Sequence[Actor]) -> str:
    """The names of agents; those that are mere warps by CTA: `warps 0-3 and 8 of CTA 0`."""
    if len(agents) == 1 or not all(agent.role.unnamed for agent in agents):
        return ", ".join(map(str, agents))
    warps: dict[CtaPlace, list[int]] = {}
    for agent in sorted(agents, key=lambda agent: agent.index):
        warps.setdefault(agent.cta, []).append(agent.index)
    names = []
    for cta, numbers in warps.items():
        of = f" of CTA {cta.block_id}" if cta.grid > 1 else ""
        names.append(f"warp{'s' * (len(numbers) > 1)} {_ranges(numbers)}{of}")
    return ", ".join(names)


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers: `0-3, 8`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def warps_of(m: Machine, agent: Agent) -> list[Agent]:
    """The agents that are warps of an agent's warpgroup."""
    first = agent.first_warp // 4
    return [a for a in m.agents if a.cta is agent.cta and a.first_warp // 4 == first]


def candidates(m: Machine, wait: Wait) -> Sequence[Actor]:
    """The agents that could bring what a wait is for, those that have returned included."""
    on, agent = wait.on, wait.agent
    if isinstance(on, Rendezvous):
        return on.missing()
    if isinstance(on, WgmmaGroup):
        return [a for a in warps_of(m, agent) if a not in on.agents]
    found = [a for site in sources(m, on) for a in agents_of(m, site, on, agent)]
    arrived = {a.agent.uid for a in on.arrived} if isinstance(on, NamedState) else set()
    return [a for a in dict.fromkeys(found) if a is not agent and a.uid not in arrived]
