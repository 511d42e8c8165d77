"""The order of steps.

Every agent's next step is explicit (`Agent.request`), and every asynchronous unit is one step. Seed
0 runs an agent until it blocks, or a test of it fails, and lets units act, oldest first, only
when no agent can. Any other seed picks at random among all agents and units that can act, at every
step; the same seed gives the same run.
"""

from __future__ import annotations

from random import Random

from tilepipe.machine.actors import BLOCKED
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.mbarrier import mbar_try_wait, mbar_try_wait_parity
from tilepipe.machine.barriers.rendezvous import returned
from tilepipe.machine.machine import Machine
from tilepipe.machine.units.acting import act

TESTS = frozenset({mbar_try_wait, mbar_try_wait_parity})
_PATIENCE = 4096  # steps of others while an agent asks the grid


def advance(m: Machine, ag: Agent, limit: int) -> int:
    """Lets an agent take up to `limit` steps (fewer if it blocks or returns); returns how many it
    took.
    """
    body = ag.body
    ag.parked = False
    counts = ag.counts
    steps = 0
    try:
        request = ag.request if ag.request is not None else body.send(None)
        while steps < limit:
            op, args = request
            result = op(m, ag, *args)
            if result is BLOCKED:
                if not ag.blocked:
                    m.world.blocked[args[0].id] += 1
                ag.request = request
                ag.blocked = ag.parked = True
                return steps
            if ag.blocked:
                ag.blocked = False
            steps += 1
            counts[args[0].id] += 1
            request = body.send(result)
            if result is False and op in TESTS and steps < limit:
                ag.request = request
                m.polling.append(ag)
                return steps
    except StopIteration:
        returned(m, ag)
        return steps
    ag.request = request
    m.ready.append(ag)
    return steps


def run_in_order(m: Machine) -> int:
    """Seed 0: until nothing can act. Returns the number of steps."""
    ready, pending, polling = m.ready, m.pending, m.polling
    steps = 0
    while True:
        ready.extend(polling)
        polling.clear()
        while ready:
            steps += advance(m, ready.popleft(), 1 << 60)
        if pending:
            act(m, pending.popleft())
            steps += 1
        elif not polling or m.requests.asking:
            return steps


def run_at_random(m: Machine, random: Random) -> int:
    """Other seeds: one step of the agent or unit that the seed picks, until nothing can act, or
    until an agent has long asked the grid for something: the others may be polling for the answer.
    """
    ready, pending, requests = m.ready, m.pending, m.requests
    steps = asked = 0
    while count := len(ready) + len(pending):
        # The number that random.randrange(count) draws, so that a seed stays what it was; its two
        # calls in Python for each step were 3 % of a GEMM's instructions.
        bits = count.bit_length()
        while (pick := random.getrandbits(bits)) >= count:
            pass
        if requests.asking:
            asked += 1
            if asked > _PATIENCE:
                return steps
        if pick < len(ready):
            agent = ready[pick]
            del ready[pick]
            steps += advance(m, agent, 1)
            continue
        unit = pending[pick - len(ready)]
        pending.remove(unit)
        act(m, unit)
        steps += 1
    return steps
