"""Agents of one execution that look at a barrier or a counter without waiting.

`WaitingTests`: tests that are treated as the waits that they guard (`proofs.guards`).
`PollingAgents`: which agents poll and are parked, and until when (`proofs.polling`). An agent whose
loop has come back to an earlier state continues only when a phase completes that it tests, or when
another agent adds to an element that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilepipe.check.engine.causal_order import CausalOrder
from tilepipe.check.engine.flag_waits import FlagWait
from tilepipe.check.engine.front_end import FrontEnd
from tilepipe.check.engine.steps import AgentId
from tilepipe.check.proofs.guards import Answer, Guards, NotAWaitError, too_early
from tilepipe.check.proofs.polling import MAX_FAILED_LOOKS, Cell, Kind, Poll
from tilepipe.check.verdict import ExecutionLimitError
from tilepipe.machine.agents import Agent, Spin
from tilepipe.machine.barriers.mbarrier import mbar_wait, phase_asked
from tilepipe.machine.barriers.state import LIVE
from tilepipe.machine.machine import Machine, World
from tilepipe.machine.sites import Site


class WaitingTests:
    """Performs such tests, and compares each with the wait that follows it."""

    def __init__(self, guards: Guards, causal_order: CausalOrder) -> None:
        self._guards = guards
        self._causal_order = causal_order
        # for each agent and group of tests, the answers that its branches have read since its last
        # guarded wait
        self._read: dict[tuple[AgentId, int], list[Answer]] = {}

    def test(
        self, m: Machine, agent_id: AgentId, agent: Agent, args: tuple[Any, ...]
    ) -> bool | Answer:
        """Performs a test. It says "yes" if all arrivals of the phase precede it in every order;
        otherwise it says "no", so that the wait which it guards follows.

        Raises:
            NotAWaitError: the test cannot be treated as a wait.
        """
        site, mask, number, _ = args
        bar = agent.cta.bars[number]
        phase = phase_asked(agent, args)
        group = self._guards.tests[site.id]
        read = self._read.setdefault((agent_id, group), [])
        if group in self._guards.unread:
            read.clear()
        if read and self._guards.read_at_once:
            raise NotAWaitError(site.id)  # its last answer was "no", and no wait has followed
        if bar.state != LIVE or phase < bar.phase - 1:
            raise NotAWaitError(site.id)  # this is a fault, which an exploration reports
        before, all_of_it = self._causal_order.test_as_wait(bar, phase, mask)
        if too_early(before and phase <= bar.phase):
            raise NotAWaitError(site.id)
        if all_of_it and phase < bar.phase:
            mbar_wait(m, agent, site, mask, number, phase)
            return True
        self._causal_order.failed_test_as_wait(bar, phase, mask)
        return Answer(read, site.id, number, phase, mask)

    def check_end(self) -> None:
        """All agents have returned: an answer that is still to be followed by its wait never was.

        Raises:
            NotAWaitError: there is one.
        """
        for (_, group), answers in self._read.items() if self._guards.read_at_once else ():
            if answers and group not in self._guards.unread:
                raise NotAWaitError(answers[-1][0])

    def check_wait(self, agent_id: AgentId, agent: Agent, args: tuple[Any, ...]) -> None:
        """Compares a guarded wait, which is about to be performed, with the test that guards it.

        Raises:
            NotAWaitError: the wait is for another barrier or phase, or by other threads.
        """
        site, mask, number, _ = args
        read = self._read.get((agent_id, self._guards.waits[site.id]))
        if not read:
            return  # the branch was taken because of a constant, and no test was performed
        answer = read[-1]
        read.clear()
        if not answer.allows(number, phase_asked(agent, args), mask):
            raise NotAWaitError(answer[0])


class PollingAgents:
    """Parks agents that poll, and wakes them. `machines`: cluster -> its machine, while it runs."""

    def __init__(self, world: World, front_end: FrontEnd, machines: Mapping[int, Machine]) -> None:
        self._world = world
        self._front_end = front_end
        self._machines = machines
        self._polls: dict[AgentId, Poll] = {}
        self._watchers: dict[Cell, list[AgentId]] = {}

    def any_of_cluster(self, cluster: int) -> bool:
        """True if an agent of a cluster is parked until another agent adds to an element."""
        return any(who[0] == cluster for watching in self._watchers.values() for who in watching)

    def performed(
        self,
        m: Machine,
        agent_id: AgentId,
        agent: Agent,
        kind: Kind,
        args: tuple[Any, ...],
        result: object,
    ) -> bool:
        """Takes note of a visible op. Returns whether the agent is parked now: it has tested or
        read something, in a state in which it had done so before. Any other visible op ends its
        polling.

        Raises:
            ExecutionLimitError: the agent has polled too often, each time in another state.
        """
        if kind is not Kind.TEST or result is not False:
            self._polls.pop(agent_id, None)
            return False
        site, bar = args[0], agent.cta.bars[args[2]]
        poll = self._polls.setdefault(agent_id, Poll())
        poll.bars.append(bar)
        if not self._again(m, agent, site, poll):
            return False
        self._park(agent_id, agent, poll, Spin(site, bar, phase_asked(agent, args)))
        return True

    def strong_access(
        self, m: Machine, agent_id: AgentId, agent: Agent, site: Site, things: Mapping[Cell, bool]
    ) -> bool:
        """Takes note of a strong access to memory. Returns whether the agent is parked now: it has
        found what it had found before, in a state in which it had done so before.

        Args:
            things: the elements that it has accessed, each with whether it has changed it.
        """
        if any(things.values()):
            self._polls.pop(agent_id, None)
            self.wake(things, agent_id)
            return False
        poll = self._polls.setdefault(agent_id, Poll())
        poll.cells.update(things)
        if not self._again(m, agent, site, poll):
            return False
        look = agent.looks.last[site.id] if agent.looks is not None else None
        spin = Spin(site, name="memory") if look is None else Spin.at(site, look)
        self._park(agent_id, agent, poll, spin)
        return True

    def wait_for_flag(self, agent_id: AgentId, agent: Agent, wait: FlagWait) -> None:
        """Parks an agent until another one changes the element that it waits for."""
        poll = self._polls.setdefault(agent_id, Poll())
        poll.cells.add(wait.cell)
        self._park(agent_id, agent, poll, wait.spin(agent))

    def wake(self, things: Mapping[Cell, bool], by: AgentId | None = None) -> None:
        """The agents that poll an element which a step has changed look again. `things`: as in
        `strong_access`. `by`: the agent whose step it is; None of an asynchronous unit.
        """
        for cell, changed in things.items():
            for cluster, uid in self._watchers.pop(cell, []) if changed else ():
                m = self._machines.get(cluster)
                if m is not None and (cluster, uid) != by and m.agents[uid] not in m.ready:
                    m.ready.append(m.agents[uid])

    def looked(self) -> list[AgentId]:
        """The agents that are parked if they look once more and nothing has changed."""
        found = []
        for who, poll in sorted(self._polls.items(), key=lambda one: one[0]):
            m = self._machines.get(who[0])
            agent = m.agents[who[1]] if m is not None else None
            if m is None or agent is None or agent.parked or not poll.cells:
                continue
            if self._state(m, agent) in poll.seen:
                found.append(who)
        return found

    def part_ways(self, m: Machine) -> bool:
        """Lets lanes go on that wait for others of their warp, where these poll and nothing
        else is left to do. Returns whether any do.
        """
        for agent in m.agents:
            parts = getattr(agent.body, "part_ways", None)
            if agent.spins is not None and parts is not None and parts():
                m.ready.append(agent)
                return True
        return False

    def repeats(self, m: Machine, agent_id: AgentId, agent: Agent, site: Site) -> bool:
        """True if an agent is parked now because it goes round a loop that changes nothing, and
        performs no visible op.
        """
        poll = self._polls.setdefault(agent_id, Poll())
        if not poll.repeats(site.id, lambda: self._state(m, agent)):
            return False
        self._park(agent_id, agent, poll, Spin(site))
        return True

    def resume(self, agent_id: AgentId, agent: Agent) -> None:
        """An agent continues: if it was parked, it waits for nothing any more."""
        if not agent.blocked and not agent.parked:
            return
        agent.spins = None
        poll = self._polls.pop(agent_id, None)
        for bar in poll.bars if poll is not None else ():
            while agent in bar.waiters:
                bar.waiters.remove(agent)
        for cell in poll.cells if poll is not None else ():
            watching = self._watchers.get(cell, [])
            while agent_id in watching:
                watching.remove(agent_id)
        m = self._machines[agent_id[0]]
        while agent in m.ready:
            m.ready.remove(agent)

    def _again(self, m: Machine, agent: Agent, site: Site, poll: Poll) -> bool:
        """True if an agent polls in a state in which it had done so before.

        Raises:
            ExecutionLimitError: it has polled too often, each time in another state.
        """
        if poll.again(self._state(m, agent)):
            return True
        if len(poll.seen) > MAX_FAILED_LOOKS:
            raise ExecutionLimitError(
                f"{agent} has tested {MAX_FAILED_LOOKS} times in a row at {site.loc.short}"
                " without success, and counts its attempts in a value that later decides; the"
                " check follows no more of them. Check an instance with a limit below"
                f" {MAX_FAILED_LOOKS}, or let the loop wait without counting"
            )
        return False

    def _state(self, m: Machine, agent: Agent) -> bytes:
        return self._front_end.polling_state(self._world, m.ctas, agent)

    def _park(self, agent_id: AgentId, agent: Agent, poll: Poll, spin: Spin) -> None:
        for bar in set(poll.bars):
            bar.waiters.append(agent)
        for cell in poll.cells:
            self._watchers.setdefault(cell, []).append(agent_id)
        agent.parked, agent.spins = True, spin
