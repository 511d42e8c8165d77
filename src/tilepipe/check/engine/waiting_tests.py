"""Tests of an execution that are treated as the waits that they guard (`proofs.guards`)."""

from __future__ import annotations

from typing import Any

from tilepipe.check.engine.causal_order import CausalOrder
from tilepipe.check.engine.steps import AgentId
from tilepipe.check.proofs.guards import Answer, Guards, NotAWaitError, too_early
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.mbarrier import mbar_wait, phase_asked
from tilepipe.machine.barriers.state import LIVE
from tilepipe.machine.machine import Machine


class WaitingTests:
    """Performs such tests, and compares each with the wait that follows it."""

    def __init__(self, guards: Guards, causal_order: CausalOrder) -> None:
        self._guards = guards
        self._causal_order = causal_order
        # for each agent, the answers that its branches have read since its last guarded wait
        self._read: dict[AgentId, list[Answer]] = {}

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
        if bar.state != LIVE or phase < bar.phase - 1:
            raise NotAWaitError(site.id)  # this is a fault, which an exploration reports
        before, all_of_it = self._causal_order.test_as_wait(bar, phase, mask)
        if too_early(before and phase <= bar.phase):
            raise NotAWaitError(site.id)
        if all_of_it and phase < bar.phase:
            mbar_wait(m, agent, site, mask, number, phase)
            return True
        self._causal_order.failed_test_as_wait(bar, phase, mask)
        return Answer(self._read.setdefault(agent_id, []), site.id, number, phase, mask)

    def check_wait(self, agent_id: AgentId, agent: Agent, args: tuple[Any, ...]) -> None:
        """Compares a guarded wait, which is about to be performed, with the test that guards it.

        Raises:
            NotAWaitError: the wait is for another barrier or phase, or by other threads.
        """
        _, mask, number, _ = args
        read = self._read.get(agent_id)
        if not read:
            return  # the branch was taken because of a constant, and no test was performed
        answer = read[-1]
        read.clear()
        if not answer.allows(number, phase_asked(agent, args), mask):
            raise NotAWaitError(answer[0])
