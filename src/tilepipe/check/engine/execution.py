"""One execution of a launch on the simulated machine, in an order that is picked.

AgentId can be picked are the agents, one op or a run of ops at a time, and those asynchronous units
whose acting others can notice: copies on their way to shared memory, commits, responses. MMAs and
stores act at once where they were issued: until somebody has waited for them nobody may touch what
they use, at whatever moment they act, and that is checked by what threads know (`sim.ordering`).
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tilepipe.check.counterexamples.recording import Recorder
from tilepipe.check.engine.causal_order import CausalOrder
from tilepipe.check.engine.launch_state import LaunchState
from tilepipe.check.engine.steps import AgentId, VisibleStep
from tilepipe.check.proofs.guards import Answer, NotAWaitError, too_early
from tilepipe.check.proofs.polling import MAX_FAILED_LOOKS, QUIET, Cell, Kind, Poll
from tilepipe.check.verdict import ScheduleStep
from tilepipe.errors import SimFault
from tilepipe.machine.actors import BLOCKED, Request
from tilepipe.machine.agents import Agent, Spin
from tilepipe.machine.barriers.mbarrier import mbar_wait, phase_asked
from tilepipe.machine.barriers.rendezvous import returned
from tilepipe.machine.barriers.state import LIVE
from tilepipe.machine.clusters import explained, finish
from tilepipe.machine.grid_state import Clusters
from tilepipe.machine.happens_before.events import Present
from tilepipe.machine.machine import Machine, World
from tilepipe.machine.memory.elements import value_of
from tilepipe.machine.sites import Site
from tilepipe.machine.units.acting import act
from tilepipe.machine.units.in_flight import CommitUnit, TmaLoadUnit, UnitQueue
from tilepipe.sim.runtime import OutOfTimeError

UNLIMITED = 1 << 60
_CLOCK = 63  # the clock is looked at when the number of an op has none of these bits
# ops after which the others have their turn, so that nobody waits for a counter in vain
_TURN = 1 << 14


class ExecutionLimitError(Exception):
    """An execution goes on for longer than the bounds allow: why, in words."""


@dataclass(eq=False, slots=True)
class InFlightUnit:
    """A unit that waits to be picked: the `ordinal`-th of `who`."""

    agent_id: AgentId
    ordinal: int
    unit: TmaLoadUnit | UnitQueue


class Execution:
    """The machines of an execution: one cluster's, or those of all that run at once.

    Attributes:
        pause: before which ops an agent that is picked to pause does so.
        causal_order: the causal order so far. machines: cluster -> its machine, while it runs.
            performed: ops of each agent so far.
        steps: ops and units performed. picks: what has been picked, in order. parked: agents that
            test again and again in vain.
    """

    def __init__(
        self,
        launch_state: LaunchState,
        clusters: Sequence[int],
        limit: int = UNLIMITED,
        deadline: float = math.inf,
        watcher: Recorder | None = None,
    ) -> None:
        """`clusters`: those that are executed: all of the grid at once where they share out their
        work, otherwise one after another.
        `limit`: of steps. `deadline`: of `time.perf_counter`.
        """
        self.launch_state = launch_state
        self.causal_order = CausalOrder(watcher, launch_state.watch.adds)
        self.world = launch_state.world(self.causal_order)
        self.limit = limit
        self.deadline = deadline
        self.world.deadline = None if deadline == math.inf else deadline
        self.pause: Callable[[Request], bool] = lambda request: request[1][0].noticed
        self.watcher = watcher
        self.machines: dict[int, Machine] = {}
        self.performed: dict[AgentId, int] = {}
        self.steps = 0
        self.schedule: list[ScheduleStep] = (
            [ScheduleStep.elect_lane(launch_state.elected)] if len(launch_state.lanes) > 1 else []
        )
        self.completions: dict[int, list[int]] = {}
        self._issued: dict[AgentId, int] = {}
        self._turns: dict[AgentId, int] = {}
        self._flights: list[InFlightUnit] = []
        self._present: dict[int, list[Present]] = {}
        self._entered = -1
        self._refused: set[tuple[AgentId, int]] = set()
        self._polls: dict[AgentId, Poll] = {}
        self._watchers: dict[Cell, list[AgentId]] = {}
        self._guards = launch_state.guards
        self._read: dict[AgentId, list[Answer]] = {}
        self._waiting = deque(clusters)
        if launch_state.shares_work:
            self.world.clusters = Clusters(list(clusters), None)
            self.world.clusters.decide = self._decide
            self.world.clusters.resident = min(launch_state.resident, len(clusters))
            self._waiting = self.world.clusters.waiting
        for _ in range(
            min(launch_state.resident if launch_state.shares_work else 1, len(clusters))
        ):
            self._start(self._waiting.popleft())

    # -- clusters ----------------------------------------------------------------------

    def _start(self, cluster: int) -> None:
        self._present[cluster] = [Present() for t in self.world.tensors if t.order is not None]
        self._enter(cluster)
        self.machines[cluster] = Machine(self.world, cluster)
        self._present[cluster] = [
            t.order.present for t in self.world.tensors if t.order is not None
        ]

    def _enter(self, cluster: int) -> None:
        """Makes the events of a cluster on the tensors the present ones."""
        if self._entered == cluster:
            return
        for order, kept in zip(
            (t.order for t in self.world.tensors if t.order is not None),
            self._present[cluster],
            strict=True,
        ):
            order.present = kept
        self._entered = cluster

    def present(self, cluster: int) -> list[Present]:
        """Of each tensor that is written, the events of a cluster that runs."""
        return self._present[cluster]

    def _ends(self, cluster: int) -> None:
        """Ends a cluster in which nothing is left to do, and starts the next in its place."""
        m = self.machines[cluster]
        if m.ready or m.pending or any(f.agent_id[0] == cluster for f in self._flights):
            return
        if (
            any(who[0] == cluster for watching in self._watchers.values() for who in watching)
            and self._somebody_acts()
        ):
            return  # another cluster may still add to what it looks at
        finish(m)
        for cta in m.ctas:
            self.completions[cta.block_id] = [b.completions for b in cta.bars]
        del self.machines[cluster]
        m.close()
        self._entered = -1
        if self._waiting:
            if self.world.clusters is not None:
                self.causal_order.in_turn(self.world.clusters, 1, True)
            self._start(self._waiting.popleft())

    def _somebody_acts(self) -> bool:
        return bool(self._flights) or any(m.ready or m.pending for m in self.machines.values())

    def _ended(self, cluster: int) -> None:
        """Ends a cluster if nothing is left to do in it; and all of them where nothing is left to
        do in any.
        """
        self._ends(cluster)
        if not self._somebody_acts():
            for one in list(self.machines):
                self._ends(one)

    def phases_completed(self) -> dict[str, list[list[int]]]:
        """mbarrier array -> for each CTA of the grid, how many phases of each of its barriers
        completed.
        """
        found: dict[str, list[list[int]]] = {}
        base = 0
        for array in self.world.program.barriers:
            end = base + array.size
            found[array.name] = [
                self.completions.get(cta, [])[base:end] for cta in range(self.world.grid)
            ]
            base = end
        return found

    @property
    def answers(self) -> list[ScheduleStep]:
        """The requests that were refused because somebody chose so."""
        return [ScheduleStep(*who, ordinal, outcome=0) for who, ordinal in sorted(self._refused)]

    # -- picking -----------------------------------------------------------------------

    def ready(self) -> list[tuple[int, Agent]]:
        """Agents that can take a step, in a fixed order; those that have gone on for long come
        last.
        """
        found = [(c, a) for c, m in self.machines.items() for a in m.ready]
        return sorted(
            found, key=lambda one: (self._turns.get((one[0], one[1].uid), 0), one[0], one[1].uid)
        )

    @property
    def in_flight(self) -> list[InFlightUnit]:
        """Units that can act, in a fixed order; of a queue its oldest."""
        seen: set[int] = set()
        out = []
        for flight in sorted(self._flights, key=lambda f: (f.agent_id, f.ordinal)):
            if id(flight.unit) not in seen:
                seen.add(id(flight.unit))
                out.append(flight)
        return out

    def next_of(self, agent: Agent) -> Request | None:
        """The op that an agent performs next; None where it only has to return."""
        if agent.request is None:
            with suppress(StopIteration):
                agent.request = agent.body.send(None)
        return agent.request

    @property
    def over(self) -> bool:
        """Whether every cluster has ended."""
        return not self.machines

    def run_agent(
        self, cluster: int, agent: Agent, until: int = UNLIMITED, pause: bool = False
    ) -> bool:
        """Lets an agent go on until it has performed `until` ops in all, or blocks, or returns.
        `pause`: or until its next op is one that others can notice. Returns whether it did
        anything.
        """
        self._enter(cluster)
        m = self.machines[cluster]
        m.ready.remove(agent)
        self._stop_watching((cluster, agent.uid), agent)
        who = (cluster, agent.uid)
        try:
            with explained(m):
                moved = self._advance(m, who, agent, until, pause)
        except (SimFault, ExecutionLimitError):
            self.schedule.append(ScheduleStep(*who, self.performed.get(who, 0) + 1))
            raise
        except OutOfTimeError:
            raise ExecutionLimitError("") from None
        # the op at which it blocks has begun
        self.schedule.append(ScheduleStep(*who, self.performed.get(who, 0) + agent.blocked))
        self._ended(cluster)
        return moved

    def _advance(self, m: Machine, who: AgentId, ag: Agent, until: int, pause: bool) -> bool:
        body, causal_order, kinds = ag.body, self.causal_order, self.launch_state.watch.kinds
        assert body is not None
        ag.parked = False
        quiet = 0
        done = start = self.performed.get(who, 0)
        try:
            if ag.request is None:
                ag.request = body.send(None)
            while done < until:
                op, args = ag.request
                site = args[0]
                causal_order.step(who, done, site, args[1])
                if self.watcher is not None:
                    self.watcher.step(ag, site, args)
                result: Any
                if site.id in self._guards.tests:
                    result = self._ask(m, who, ag, args)
                else:
                    if site.id in self._guards.waits and not ag.blocked:
                        self._guarded(who, ag, args)
                    result = op(m, ag, *args)
                if result is BLOCKED:
                    ag.blocked = ag.parked = True
                    if self.watcher is not None:
                        self.watcher.blocked()
                    self._took(done - start)
                    return done > start
                ag.blocked = False
                done += 1
                self.performed[who] = done
                if not done & _CLOCK and time.perf_counter() > self.deadline:
                    raise ExecutionLimitError("")
                m.world.counts[site.id] += 1
                if self.watcher is not None:
                    self.watcher.performed(result, m.pending)
                if m.pending:
                    self._collect(m, who)
                ag.request = body.send(result)
                kind = kinds[site.id]
                if kind is Kind.QUIET:
                    quiet += 1
                    if quiet > QUIET and self._goes_round(m, who, ag, site):
                        self._took(done - start)
                        return True
                elif kind is not Kind.OTHER:
                    quiet = 0
                    if self._looks_in_vain(m, who, ag, kind, args, result):
                        self._took(done - start)
                        return True
                if pause and self.pause(ag.request):
                    break
        except StopIteration:
            returned(m, ag)
            self._took(done - start)
            return True
        finally:
            self.performed[who] = done
        self._took(done - start)
        m.ready.append(ag)
        return done > start

    def _took(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self.limit:
            raise ExecutionLimitError(
                f"{self.limit:,} step{'' if self.limit == 1 else 's'} of one execution"
            )
        if time.perf_counter() > self.deadline:
            raise ExecutionLimitError("")

    def _collect(self, m: Machine, who: AgentId) -> None:
        """Registers the units that the last op has issued; those that nobody can notice act."""
        fresh = list(m.pending)
        m.pending.clear()
        for unit in fresh:
            if isinstance(unit, TmaLoadUnit) or (
                isinstance(unit, UnitQueue) and isinstance(unit.waiting[-1], CommitUnit)
            ):
                self._fly(who, unit)
            elif isinstance(unit, UnitQueue):
                self._drain(m, unit)
            else:
                act(m, unit)
                self.steps += 1

    def _fly(self, who: AgentId, unit: TmaLoadUnit | UnitQueue) -> None:
        ordinal = self._issued.get(who, 0)
        self._issued[who] = ordinal + 1
        self._flights.append(InFlightUnit(who, ordinal, unit))
        self.causal_order.issued(who, ordinal)

    def _drain(self, m: Machine, queue: UnitQueue) -> None:
        """The units of a queue act up to its first commit."""
        while queue.waiting and not isinstance(queue.waiting[0], CommitUnit):
            act(m, queue)
            self.steps += 1

    def run_unit(self, flight: InFlightUnit) -> None:
        """Lets a unit act."""
        cluster = flight.agent_id[0]
        self._enter(cluster)
        m = self.machines[cluster]
        self._flights.remove(flight)
        self.schedule.append(ScheduleStep(cluster, flight.agent_id[1], unit=flight.ordinal))
        self.causal_order.unit(flight.agent_id, flight.ordinal)
        if self.watcher is not None:
            self.watcher.unit(flight.unit, m.agents[flight.agent_id[1]])
        with explained(m):
            act(m, flight.unit)
            if isinstance(flight.unit, UnitQueue):
                self._drain(m, flight.unit)
        self._took(1)
        self._ended(cluster)

    # -- tests that count as waits -----------------------------------------------------

    def _ask(self, m: Machine, who: AgentId, ag: Agent, args: tuple[Any, ...]) -> bool | Answer:
        """Performs a test that counts as a wait. It says "yes" where all that counts in the phase
        comes before it in any order; otherwise "no", and what it guards follows.
        """
        site, mask, number, _ = args
        bar = ag.cta.bars[number]
        phase = phase_asked(ag, args)
        if bar.state != LIVE or phase < bar.phase - 1:
            raise NotAWaitError(site.id)  # it is a fault, which an exploration tells
        before, all_of_it = self.causal_order.test_as_wait(bar, phase, mask)
        if too_early(before and phase <= bar.phase):
            raise NotAWaitError(site.id)
        if all_of_it and phase < bar.phase:
            mbar_wait(m, ag, site, mask, number, phase)
            return True
        self.causal_order.failed_test_as_wait(bar, phase, mask)
        return Answer(self._read.setdefault(who, []), site.id, number, phase, mask)

    def _guarded(self, who: AgentId, ag: Agent, args: tuple[Any, ...]) -> None:
        """Raises NotAWaitError unless the wait that begins is the one that its guard has asked
        for.
        """
        _, mask, number, _ = args
        read = self._read.get(who)
        if not read:
            return  # a constant said "no", and nothing was asked
        answer = read[-1]
        read.clear()
        phase = phase_asked(ag, args)
        if not answer.allows(number, phase, mask):
            raise NotAWaitError(answer[0])

    # -- choices -----------------------------------------------------------------------

    def _decide(self) -> bool:
        """Whether a request that could be granted is."""
        granted = self.causal_order.current not in self._refused
        self.causal_order.set_outcome(granted)
        return granted

    # -- loops that poll ---------------------------------------------------------------

    def _looks_in_vain(
        self, m: Machine, who: AgentId, ag: Agent, kind: Kind, args: tuple[Any, ...], result: object
    ) -> bool:
        """Whether an agent has looked at something in a loop in which nothing changes until
        somebody else changes that: then it waits for it. Any other op that others notice begins
        anew.
        """
        site, mask = args[0], args[1]
        if kind is Kind.TEST and result is False:
            poll = self._polls.setdefault(who, Poll())
            poll.bars.append(ag.cta.bars[args[2]])
        elif kind is Kind.ADD and value_of(ag, mask, args[2]) == 0:
            poll = self._polls.setdefault(who, Poll())
            poll.cells.add(_cell(ag, site, mask, args))
        else:
            self._polls.pop(who, None)
            if kind is Kind.ADD:
                self._wake(who, _cell(ag, site, mask, args))
            return False
        if not poll.again(self._state(m, ag)):
            if len(poll.seen) > MAX_FAILED_LOOKS:
                raise ExecutionLimitError(
                    f"{ag} has tested {MAX_FAILED_LOOKS} times in a row at {site.loc.short} without success,"
                    " and counts its attempts in something"
                    " that later decides; the check follows no more of them. Check an instance"
                    f" with a limit below {MAX_FAILED_LOOKS}, or wait on"
                    " the barrier"
                )
            return False
        self._park(who, ag, poll, _spin(self.world, ag, kind, args, result))
        return True

    def _goes_round(self, m: Machine, who: AgentId, ag: Agent, site: Site) -> bool:
        """Whether an agent goes round a loop that changes nothing, and that nobody notices."""
        poll = self._polls.setdefault(who, Poll())
        if not poll.repeats(site.id, lambda: self._state(m, ag)):
            return False
        self._park(who, ag, poll, Spin(site))
        return True

    def _state(self, m: Machine, ag: Agent) -> bytes:
        return self.launch_state.watch.state(self.world, m.ctas, ag)

    def _park(self, who: AgentId, ag: Agent, poll: Poll, spin: Spin) -> None:
        for bar in set(poll.bars):
            bar.waiters.append(ag)
        for cell in poll.cells:
            self._watchers.setdefault(cell, []).append(who)
        ag.parked, ag.spins = True, spin

    def _wake(self, by: AgentId, cell: Cell) -> None:
        """Somebody has added to an element: those who look at it look again."""
        for cluster, uid in self._watchers.pop(cell, []):
            m = self.machines.get(cluster)
            if m is not None and (cluster, uid) != by and m.agents[uid] not in m.ready:
                m.ready.append(m.agents[uid])

    def _stop_watching(self, who: AgentId, ag: Agent) -> None:
        """An agent that looked in vain goes on: it waits for nothing any more."""
        if not ag.blocked and not ag.parked:
            return
        ag.spins = None
        poll = self._polls.pop(who, None)
        for bar in poll.bars if poll is not None else ():
            while ag in bar.waiters:
                bar.waiters.remove(ag)
        for cell in poll.cells if poll is not None else ():
            watching = self._watchers.get(cell, [])
            while who in watching:
                watching.remove(who)
        m = self.machines[who[0]]
        while ag in m.ready:
            m.ready.remove(ag)

    # -- whole executions --------------------------------------------------------------

    def follow(self, schedule: Iterable[ScheduleStep]) -> None:
        """Performs picks in order; one that cannot be performed any more is left out."""
        schedule = list(schedule)
        self._refused |= {((p.cluster, p.agent), p.until) for p in schedule if p.outcome == 0}
        for pick in schedule:
            m = self.machines.get(pick.cluster)
            if m is None or pick.outcome >= 0:
                continue
            if pick.unit >= 0:
                found = [
                    f
                    for f in self.in_flight
                    if f.agent_id == (pick.cluster, pick.agent) and f.ordinal == pick.unit
                ]
                if found:
                    self.run_unit(found[0])
                continue
            agent = next((a for a in m.ready if a.uid == pick.agent), None)
            if agent is not None and pick.until < 0:
                self.run_agent(pick.cluster, agent, pause=True)
            elif (
                agent is not None and self.performed.get((pick.cluster, pick.agent), 0) < pick.until
            ):
                self.run_agent(pick.cluster, agent, pick.until)

    def run_to_end(self, stop: Callable[[], bool] | None = None, backwards: bool = False) -> bool:
        """Goes on in a fixed order: each agent until it blocks, and a unit when none can.
        `backwards`: the last agent first.

        `stop`: asked before each of these; True stops. Returns whether the execution has come to
        its end.
        """
        while self.machines:
            ready = self.ready()
            if stop is not None and stop():
                return False
            if ready:
                cluster, agent = ready[-1 if backwards else 0]
                who = (cluster, agent.uid)
                until = self.performed.get(who, 0) + _TURN
                self.run_agent(cluster, agent, until)
                if self.performed[who] == until:
                    self._turns[who] = self._turns.get(who, 0) + 1
                continue
            in_flight = self.in_flight
            if not in_flight:
                for cluster in list(self.machines):
                    self._ends(cluster)
                continue
            self.run_unit(in_flight[0])
        return True


def _cell(ag: Agent, site: Site, mask: int, args: tuple[Any, ...]) -> Cell:
    """The element of an atomic add."""
    return (site.tensor, *(value_of(ag, mask, i) for i in args[3:]))


def _spin(world: World, ag: Agent, kind: Kind, args: tuple[Any, ...], result: object) -> Spin:
    """What an agent that looks in vain waits for, in words."""
    site, mask = args[0], args[1]
    if kind is Kind.TEST:
        return Spin(site, ag.cta.bars[args[2]], phase_asked(ag, args))
    tensor, *index = _cell(ag, site, mask, args)
    name = f"{world.tensors[tensor].param.name}[{', '.join(map(str, index))}]"
    return Spin(site, name=name, value=str(result))


def schedule_of(nodes: Iterable[VisibleStep]) -> tuple[ScheduleStep, ...]:
    """The picks that perform some nodes in order."""
    picks: list[ScheduleStep] = []
    for node in nodes:
        cluster, agent = node.agent_id
        if node.is_unit:
            picks.append(ScheduleStep(cluster, agent, unit=node.ordinal))
        elif picks and picks[-1].unit < 0 and (picks[-1].cluster, picks[-1].agent) == node.agent_id:
            picks[-1] = ScheduleStep(cluster, agent, node.ordinal + 1)
        else:
            picks.append(ScheduleStep(cluster, agent, node.ordinal + 1))
    return tuple(picks)
