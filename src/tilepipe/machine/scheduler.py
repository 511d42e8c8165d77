"""The order of steps.

Every agent's next step is explicit (`Agent.request`), and every asynchronous unit is one step. Seed
0 runs an agent until it blocks, or a test of it fails, and lets units act, oldest first, only
when no agent can. Any other seed picks at random among all agents and units that can act, at every
step; the same seed gives the same run.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from tilepipe.machine.actors import BLOCKED
from tilepipe.machine.agents import Agent, Spin
from tilepipe.machine.barriers.mbarrier import mbar_try_wait, mbar_try_wait_parity, phase_asked
from tilepipe.machine.barriers.rendezvous import fence, returned, syncwarp
from tilepipe.machine.machine import Machine
from tilepipe.machine.polling import Looks
from tilepipe.machine.units.acting import act

TESTS = frozenset({mbar_try_wait, mbar_try_wait_parity})
_PATIENCE = 4096  # steps of others while an agent asks the grid
# repeated looks of each agent, with no copy or MMA in between, after which it is asked whether any
# of them can go on
_LOOKS = 8
_LONGEST = 1024  # steps of a loop from one look to the next
_SILENT = frozenset({fence, syncwarp})  # ops that change nothing that another agent looks at


class Log(Protocol):
    """Is told what happens, in order."""

    def performed(
        self, ag: Agent, op: Callable[..., Any], operands: tuple[Any, ...], result: Any
    ) -> None:
        """An agent has performed an op."""

    def acts(self) -> None:
        """The oldest unit in flight acts."""


def advance(m: Machine, ag: Agent, limit: int, log: Log | None = None) -> int:
    """Lets an agent take up to `limit` steps (fewer if it blocks or returns); returns how many it
    took. An exception gets an attribute `performing`: the agent's body, and its request's site.
    `log`: is told of the steps.
    """
    body = ag.body
    ag.parked = ag.repeats = False
    counts = ag.counts
    steps = 0
    request = ag.request
    try:
        if request is None:
            request = body.send(None)
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
            if log is not None:
                log.performed(ag, op, args, result)
            request = body.send(result)
            if ag.repeats or (result is False and op in TESTS):
                ag.repeats = True
                if steps < limit:
                    ag.request = request
                    m.polling.append(ag)
                    return steps
    except StopIteration:
        returned(m, ag)
        return steps
    except Exception as error:
        if request is not None:
            vars(error)["performing"] = body, request[1][0]
        raise
    ag.request = request
    m.ready.append(ag)
    return steps


def run_in_order(m: Machine, log: Log | None = None) -> int:
    """Seed 0: until nothing can act, or all that is left polls. Returns the number of steps.
    `log`: is told of them, but for those of agents that poll when nothing else is left.
    """
    ready, pending, polling = m.ready, m.pending, m.polling
    steps = rounds = 0
    m.stuck = m.moved = False
    while True:
        if polling and not ready and not pending:
            if m.stuck or (rounds and m.requests.asking):
                return steps
            rounds += 1
            steps += _go_round(m)
            continue
        m.moved = True
        ready.extend(polling)
        polling.clear()
        while ready:
            steps += advance(m, ready.popleft(), 1 << 60, log)
        if pending:
            if log is not None:
                log.acts()
            act(m, pending.popleft())
            steps += 1
        elif not polling:
            return steps


def run_at_random(m: Machine, random: Random) -> int:
    """Other seeds: one step of the agent or unit that the seed picks, until nothing can act, or
    until an agent has long asked the grid for something: the others may be polling for the answer.
    Or until all that is left polls.
    """
    ready, pending, requests = m.ready, m.pending, m.requests
    steps = asked = looks = 0
    m.stuck = m.moved = False
    if m.polling and _all_poll(m):  # one of them has been granted an op
        steps += _go_round(m)
        if m.stuck:
            return steps
    ready.extend(m.polling)
    m.polling.clear()
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
            if not agent.repeats:
                m.moved = True
                continue
            looks += 1
            if looks > _LOOKS * count and _all_poll(m):
                looks = 0
                steps += _go_round(m)
                if m.stuck:
                    return steps
                ready.extend(m.polling)
                m.polling.clear()
            continue
        m.moved = True
        looks = 0
        unit = pending[pick - len(ready)]
        pending.remove(unit)
        act(m, unit)
        steps += 1
    return steps


# -- loops that look at memory ---------------------------------------------------------


def _all_poll(m: Machine) -> bool:
    """True if the last look of each agent that can take a step found nothing new, and no unit can
    act; then all of them poll.
    """
    if m.pending or not all(agent.repeats for agent in m.ready):
        return False
    m.polling.extend(m.ready)
    m.ready.clear()
    return True


def _go_round(m: Machine) -> int:
    """Takes each agent that polls round its loop, where nothing else is left; `m.stuck` is then
    whether none of them can go on by itself. Returns the number of steps.
    """
    steps, stuck = 0, True
    for _ in range(len(m.polling)):
        taken, back = _go_round_once(m, m.polling.popleft())
        steps += taken
        stuck = stuck and back
    if not stuck or m.ready or m.pending:
        m.moved = True
        return steps
    parted = [part_ways(agent) for agent in m.polling]
    m.stuck = not any(parted)
    return steps


def _go_round_once(m: Machine, ag: Agent) -> tuple[int, bool]:
    """`_to_next_look` for all places that the loop of an agent looks at: one that it has not looked
    at lately may have changed.
    """
    steps, back = _to_next_look(m, ag)
    looks = 1
    while back and not ag.parked and ag.looks is not None and looks < len(ag.looks.rounds):
        m.polling.remove(ag)
        taken, back = _to_next_look(m, ag)
        steps += taken
        looks += 1
    return steps, back


def _to_next_look(m: Machine, ag: Agent) -> tuple[int, bool]:
    """Takes an agent to its next repeated look, or up to a step that may change something. Returns
    the steps taken, and whether the agent is where it has been before, with nothing changed since.
    """
    if ag.looks is None:
        ag.looks = Looks()
    for steps in range(1, _LONGEST):
        assert ag.request is not None
        op, args = ag.request
        advance(m, ag, 1)
        if ag.parked:
            return steps, ag in m.requests.asking
        if ag.done:
            return steps, False
        if not ag.repeats and op not in _SILENT:
            ag.looks.rounds.clear()
            return steps, False  # it is ready
        m.ready.pop()
        if ag.repeats:
            m.polling.append(ag)
            ag.spins = _spin(ag, op, args)
            standing = m.world.standing(ag)
            return steps, standing is not None and ag.looks.back(standing)
    m.ready.append(ag)
    return _LONGEST, False


def _spin(ag: Agent, op: Callable[..., Any], args: tuple[Any, ...]) -> Spin:
    """The thing that an agent has looked at."""
    site = args[0]
    if op in TESTS:
        return Spin(site, ag.cta.bars[args[2]], phase_asked(ag, args))
    look = ag.looks.last.get(site.id) if ag.looks is not None else None
    return Spin.at(site, look)


def part_ways(ag: Agent) -> bool:
    """Lets lanes go on that wait for those that look; returns whether any do."""
    parts = getattr(ag.body, "part_ways", None)
    return parts is not None and bool(parts())
