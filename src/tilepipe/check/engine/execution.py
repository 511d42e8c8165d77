"""One execution of a launch on the simulated machine, in an order that the caller chooses.

The caller chooses the agent that runs next, or the asynchronous unit in flight that acts next. In
flight are only units whose action other agents can observe: copies to shared memory, commits,
and the responses of cluster launch control. MMAs and stores act as soon as they are issued: until a
wait for them, no agent may access what they use, whenever they act, and happens-before checks that.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tilepipe.check.engine.causal_order import CausalOrder
from tilepipe.check.engine.flag_waits import FlagHistory, FlagWaits
from tilepipe.check.engine.front_end import FrontEnd
from tilepipe.check.engine.nonblocking_tests import PollingAgents, WaitingTests
from tilepipe.check.engine.recording import Recorder
from tilepipe.check.engine.steps import CLUSTER_END, AgentId, VisibleStep
from tilepipe.check.proofs.polling import SILENT_OPS, Kind
from tilepipe.check.verdict import UNLIMITED, ExecutionLimitError, ScheduleStep, steps_bound
from tilepipe.errors import SimFault
from tilepipe.machine.actors import BLOCKED, Request
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.rendezvous import returned
from tilepipe.machine.barriers.state import TmaLoadUnit
from tilepipe.machine.clusters import explained, finish
from tilepipe.machine.faults.view import together
from tilepipe.machine.grid_state import Clusters
from tilepipe.machine.happens_before.events import Present
from tilepipe.machine.machine import Machine, OutOfTimeError
from tilepipe.machine.units.acting import act, signals
from tilepipe.machine.units.in_flight import TmaStoreUnit, UnitQueue

# what the machine raises where an operand has no value
_INTERNAL = (TypeError, AttributeError, ValueError, OverflowError, IndexError)
_CLOCK_MASK = 63  # the clock is read when the number of an op has none of these bits
# ops after which other agents have their turn, so that a loop that polls cannot starve them
_TIME_SLICE = 1 << 14
_MOST_NAMED = 4  # places at which agents were going round loops, in a message


@dataclass(eq=False, slots=True)
class InFlightUnit:
    """An asynchronous unit in flight: the `ordinal`-th that an agent has issued."""

    agent_id: AgentId
    ordinal: int
    unit: TmaLoadUnit | UnitQueue | TmaStoreUnit


class Execution:
    """One execution: the machine of one cluster after the other, or those of all clusters that run
    at once.

    Attributes:
        pause: whether an agent that runs with `pause` stops before an op.
        causal_order: the causal order so far.
        world: the memory and state that all clusters share.
        machines: cluster -> its machine, while it runs.
        performed: the number of ops that each agent has performed.
        steps: the number of ops and units performed.
        schedule: the scheduling decisions so far.
        completions: CTA -> the number of completed phases of each of its barriers, after its end.
    """

    def __init__(
        self,
        front_end: FrontEnd,
        clusters: Sequence[int],
        limit: int = UNLIMITED,
        deadline: float = math.inf,
        watcher: Recorder | None = None,
    ) -> None:
        """
        Args:
            clusters: the clusters to execute: together if they share their work, otherwise one
                after the other.
            limit: the largest number of steps.
            deadline: a time of `time.perf_counter`.
            watcher: records the steps.
        """
        self.front_end = front_end
        self.causal_order = CausalOrder(watcher, front_end.adds)
        self.world = front_end.world(self.causal_order)
        self.limit = limit
        self.deadline = deadline
        self.world.deadline = None if deadline == math.inf else deadline
        self.pause: Callable[[Request], bool] = lambda request: request[1][0].facts.noticed
        self.watcher = watcher
        self.machines: dict[int, Machine] = {}
        self.performed: dict[AgentId, int] = {}
        self.steps = 0
        self.schedule: list[ScheduleStep] = []
        if len(front_end.lanes) > 1:
            self.schedule.append(ScheduleStep.elect_lane(front_end.elected))
        if len(front_end.residents) > 1:
            self.schedule.append(ScheduleStep.run_at_once(front_end.resident))
        self.completions: dict[int, list[int]] = {}
        self._issued: dict[AgentId, int] = {}
        self._turns: dict[AgentId, int] = {}
        self._in_flight: list[InFlightUnit] = []
        self._ending: list[int] = []
        self._present: dict[int, list[Present]] = {}
        self._entered = -1
        self._latest: Agent | None = None
        self._refused: set[tuple[AgentId, int]] = set()
        self._guards = front_end.guards
        self._waiting_tests = WaitingTests(self._guards, self.causal_order)
        self._polling = PollingAgents(self.world, front_end, self.machines)
        self._flag_waits = FlagWaits(self.world, front_end)
        if self._flag_waits.sites:
            self.causal_order.flags = FlagHistory(self.world, front_end, self._flag_waits.sites)
        # whether clusters may find what another one has left in memory
        self._clusters_meet = Kind.STRONG in front_end.kinds
        self._waiting = deque(clusters)
        if front_end.shares_work:
            self.world.clusters = Clusters(list(clusters), None)
            self.world.clusters.decide = self._decide
            self.world.clusters.resident = min(front_end.resident, len(clusters))
            self._waiting = self.world.clusters.waiting
        for _ in range(min(front_end.resident if front_end.shares_work else 1, len(clusters))):
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
        """Makes the accesses of a cluster to the tensors the current ones."""
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
        """For each tensor that is written, the live accesses of a running cluster."""
        return self._present[cluster]

    def _end_if_done(self, cluster: int) -> None:
        """Ends a cluster in which nothing is left to do. The next one takes its place: at once
        where clusters do not share work, else when the search chooses.
        """
        m = self.machines[cluster]
        if m.ready or m.pending or any(f.agent_id[0] == cluster for f in self._in_flight):
            return
        if self._polling.part_ways(m):
            return  # lanes that waited for those that poll go on
        if self._polling.any_of_cluster(cluster) and self._any_can_act():
            return  # another cluster may still add to the element that it reads
        finish(m)
        for cta in m.ctas:
            self.completions[cta.block_id] = [b.completions for b in cta.bars]
        del self.machines[cluster]
        m.close()
        self._entered = -1
        if self.world.clusters is None:
            if self._waiting:
                self._start(self._waiting.popleft())
        elif self._waiting:
            self._ending.append(cluster)
        elif self._clusters_meet:
            self.causal_order.cluster_ended(self.world.clusters, cluster, None)

    @property
    def ending(self) -> list[int]:
        """The clusters in which nothing is left to do and whose places are still to be taken."""
        return sorted(self._ending)

    def end_cluster(self, cluster: int) -> None:
        """Lets the place of a cluster be taken by the next one, if one is left."""
        self._ending.remove(cluster)
        self.schedule.append(ScheduleStep(cluster, CLUSTER_END))
        started = None
        if self._waiting:
            after = self._waiting.popleft()
            self._start(after)
            started = [(after, agent.uid) for agent in self.machines[after].agents]
        assert self.world.clusters is not None
        self.causal_order.cluster_ended(self.world.clusters, cluster, started)
        self._end_stuck()

    def _any_can_act(self) -> bool:
        return (
            bool(self._in_flight)
            or bool(self._ending)
            or any(m.ready or m.pending for m in self.machines.values())
        )

    def _end_clusters(self, cluster: int) -> None:
        """Ends a cluster if nothing is left to do in it; and all clusters if nothing is left to do
        in any.
        """
        self._end_if_done(cluster)
        self._end_stuck()

    def _end_stuck(self) -> None:
        if not self._any_can_act():
            for one in list(self.machines):
                self._end_if_done(one)

    def phases_completed(self) -> dict[str, list[list[int]]]:
        """mbarrier array -> for each CTA of the grid, the number of completed phases of each
        barrier.
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
    def refusals(self) -> list[ScheduleStep]:
        """The requests that were refused because the schedule says so."""
        return [ScheduleStep(*who, ordinal, outcome=0) for who, ordinal in sorted(self._refused)]

    # -- choosing -----------------------------------------------------------------------

    def ready(self) -> list[tuple[int, Agent]]:
        """The agents that can take a step, in a fixed order; those that have used up time slices
        come last.
        """
        found = [(c, a) for c, m in self.machines.items() for a in m.ready]
        return sorted(
            found, key=lambda one: (self._turns.get((one[0], one[1].uid), 0), one[0], one[1].uid)
        )

    @property
    def looked(self) -> list[AgentId]:
        """The agents that are parked if they look once more and nothing has changed. So a search
        goes round a loop that polls twice, and comes to where nothing is left to run.
        """
        return self._polling.looked()

    @property
    def in_flight(self) -> list[InFlightUnit]:
        """The units that can act, in a fixed order; of a queue, the oldest."""
        seen: set[int] = set()
        out = []
        for flight in sorted(self._in_flight, key=lambda f: (f.agent_id, f.ordinal)):
            if id(flight.unit) not in seen:
                seen.add(id(flight.unit))
                out.append(flight)
        return out

    def waits_for_flag(self, agent: Agent) -> bool:
        """True if the next op of an agent waits for a value in memory that is not there."""
        request = self.next_of(agent)
        if request is None or request[1][0].id not in self._flag_waits.sites:
            return False
        wait = self._flag_waits.of(agent)
        return wait is not None and not wait.is_over

    def next_of(self, agent: Agent) -> Request | None:
        """The op that an agent performs next; None if it is about to return."""
        if agent.request is None:
            try:
                agent.request = agent.body.send(None)
            except StopIteration:
                pass
            except OutOfTimeError:
                self._latest = agent
                raise ExecutionLimitError() from None
        return agent.request

    @property
    def over(self) -> bool:
        """True if every cluster has ended."""
        return not self.machines and not self._ending

    def run_agent(
        self, cluster: int, agent: Agent, until: int = UNLIMITED, pause: bool = False
    ) -> bool:
        """Lets an agent run until it has performed `until` ops in all, or blocks, or returns; with
        `pause`, also until `self.pause` holds for its next op. Returns whether it performed
        anything.
        """
        self._enter(cluster)
        m = self.machines[cluster]
        m.ready.remove(agent)
        who = (cluster, agent.uid)
        self._polling.resume(who, agent)
        self._latest = agent
        try:
            with explained(m):
                moved = self._advance(m, who, agent, until, pause)
        except _INTERNAL as error:
            assert agent.request is not None
            found = self.front_end.explained(error, agent, agent.request[1][0])
            if isinstance(found, SimFault):
                self.schedule.append(ScheduleStep(*who, self.performed.get(who, 0) + 1))
            raise found from error
        except (SimFault, ExecutionLimitError):
            self.schedule.append(ScheduleStep(*who, self.performed.get(who, 0) + 1))
            raise
        except OutOfTimeError:
            agent.request = None  # it has been performed; the agent is somewhere after it
            raise ExecutionLimitError() from None
        # counting the op at which it blocks
        self.schedule.append(ScheduleStep(*who, self.performed.get(who, 0) + agent.blocked))
        self._end_clusters(cluster)
        return moved

    def _advance(self, m: Machine, who: AgentId, ag: Agent, until: int, pause: bool) -> bool:
        body, causal_order, kinds = ag.body, self.causal_order, self.front_end.kinds
        assert body is not None
        polling = self._polling
        ag.parked = False
        silent = 0
        done = start = self.performed.get(who, 0)
        until = min(until, start + self.limit - self.steps + 1)  # one op more is too many
        try:
            if ag.request is None:
                ag.request = body.send(None)
            while done < until:
                op, args = ag.request
                site = args[0]
                causal_order.step(who, done, site, args[1])
                if self.watcher is not None:
                    self.watcher.step(ag, site, args)
                ag.repeats = False  # of the last op alone
                wait = self._flag_waits.of(ag) if site.id in self._flag_waits.sites else None
                if wait is not None and not wait.is_over:
                    polling.wait_for_flag(who, ag, wait)
                    if self.watcher is not None:
                        self.watcher.blocked()
                    self._count_steps(done - start)
                    return done > start
                if causal_order.flags is not None:
                    causal_order.flags.wait = wait
                result: Any
                if site.id in self._guards.tests:
                    result = self._waiting_tests.test(m, who, ag, args)
                else:
                    if site.id in self._guards.waits and not ag.blocked:
                        self._waiting_tests.check_wait(who, ag, args)
                    result = op(m, ag, *args)
                if result is BLOCKED:
                    ag.blocked = ag.parked = True
                    if self.watcher is not None:
                        self.watcher.blocked()
                    self._count_steps(done - start)
                    return done > start
                ag.blocked = False
                done += 1
                self.performed[who] = done
                if not done & _CLOCK_MASK and time.perf_counter() > self.deadline:
                    raise ExecutionLimitError()
                m.world.counts[site.id] += 1
                if self.watcher is not None:
                    self.watcher.performed(result, m.pending)
                if m.pending:
                    self._collect(m, who)
                kind = kinds[site.id]
                try:
                    ag.request = body.send(result)
                except StopIteration:
                    polling.wake(causal_order.changed, who)
                    raise
                if kind is Kind.SILENT:
                    silent += 1
                    if silent > SILENT_OPS and polling.repeats(m, who, ag, site):
                        self._count_steps(done - start)
                        return True
                elif kind is Kind.STRONG:
                    silent = 0
                    if polling.strong_access(m, who, ag, site, causal_order.changed):
                        self._count_steps(done - start)
                        return True
                elif kind is not Kind.OTHER:
                    silent = 0
                    if polling.performed(m, who, ag, kind, args, result):
                        self._count_steps(done - start)
                        return True
                if pause and self.pause(ag.request):
                    break
        except StopIteration:
            returned(m, ag)
            self._count_steps(done - start)
            return True
        finally:
            self.performed[who] = done
        self._count_steps(done - start)
        m.ready.append(ag)
        return done > start

    def _count_steps(self, steps: int) -> None:
        self.steps += steps
        if self.steps > self.limit:
            raise ExecutionLimitError(steps_bound(self.limit))
        if time.perf_counter() > self.deadline:
            raise ExecutionLimitError()

    def _collect(self, m: Machine, who: AgentId) -> None:
        """Registers the units that the last op has issued; those whose action no agent can observe
        act now.
        """
        fresh = list(m.pending)
        m.pending.clear()
        for unit in fresh:
            if (
                isinstance(unit, TmaLoadUnit)
                or (isinstance(unit, UnitQueue) and signals(unit.waiting[-1]))
                or (isinstance(unit, TmaStoreUnit) and self._is_looked_at(unit))
            ):
                self._add_in_flight(who, unit)
            elif isinstance(unit, UnitQueue):
                self._run_to_signal(m, unit)
            else:
                act(m, unit)
                self.steps += 1

    def _is_looked_at(self, unit: TmaStoreUnit) -> bool:
        """True if it is a reduction of what strong accesses look at."""
        return unit.reduction is not None and self.world.looks_at(unit.site)

    def _add_in_flight(self, who: AgentId, unit: TmaLoadUnit | UnitQueue | TmaStoreUnit) -> None:
        ordinal = self._issued.get(who, 0)
        self._issued[who] = ordinal + 1
        self._in_flight.append(InFlightUnit(who, ordinal, unit))
        self.causal_order.issued(who, ordinal)

    def _run_to_signal(self, m: Machine, queue: UnitQueue) -> None:
        """Lets the units of a queue act up to the first that arrives on barriers."""
        while queue.waiting and not signals(queue.waiting[0]):
            act(m, queue)
            self.steps += 1

    def run_unit(self, flight: InFlightUnit) -> None:
        """Lets a unit in flight act."""
        cluster = flight.agent_id[0]
        self._enter(cluster)
        m = self.machines[cluster]
        self._in_flight.remove(flight)
        self.schedule.append(ScheduleStep(cluster, flight.agent_id[1], unit=flight.ordinal))
        queue = flight.unit if isinstance(flight.unit, UnitQueue) else None
        self.causal_order.unit(flight.agent_id, flight.ordinal, queue)
        if self.watcher is not None:
            self.watcher.unit(flight.unit, m.agents[flight.agent_id[1]])
        with explained(m):
            act(m, flight.unit)
            if isinstance(flight.unit, UnitQueue):
                self._run_to_signal(m, flight.unit)
        self._polling.wake(self.causal_order.changed)
        self._count_steps(1)
        self._end_clusters(cluster)

    def kept_going(self) -> str:
        """The agents that poll, or are in a loop, when a limit cuts the execution off: the one that
        ran last comes first. "" where there are none.
        """
        agents = [a for m in self.machines.values() for a in m.agents if not a.done]
        agents.sort(key=lambda agent: agent is not self._latest)
        doing: dict[str, list[Agent]] = {}
        for agent in agents:
            standing = "" if agent.blocked else self.front_end.standing(agent)
            if standing:
                doing.setdefault(standing, []).append(agent)
        said = [f"{together(who)} {where}" for where, who in doing.items()]
        more = [f"and {len(said) - _MOST_NAMED} more places"] if len(said) > _MOST_NAMED else []
        return "; ".join(said[:_MOST_NAMED] + more)

    # -- choices -----------------------------------------------------------------------

    def _decide(self) -> bool:
        """True if a request that can be granted is granted."""
        granted = self.causal_order.current not in self._refused
        self.causal_order.set_outcome(granted)
        return granted

    # -- whole executions --------------------------------------------------------------

    def follow(self, schedule: Iterable[ScheduleStep]) -> None:
        """Performs a schedule; a step that cannot be performed any more is skipped."""
        schedule = list(schedule)
        self._refused |= {((s.cluster, s.agent), s.until) for s in schedule if s.outcome == 0}
        for step in schedule:
            if step.outcome >= 0:
                continue
            if step.agent == CLUSTER_END:
                self._run_to_end_of(step.cluster)
                if step.cluster in self._ending:
                    self.end_cluster(step.cluster)
                continue
            m = self.machines.get(step.cluster)
            if m is None:
                continue
            if step.unit >= 0:
                found = [
                    f
                    for f in self.in_flight
                    if f.agent_id == (step.cluster, step.agent) and f.ordinal == step.unit
                ]
                if found:
                    self.run_unit(found[0])
                continue
            agent = next((a for a in m.ready if a.uid == step.agent), None)
            if agent is not None and step.until < 0:
                self.run_agent(step.cluster, agent, pause=True)
            elif (
                agent is not None and self.performed.get((step.cluster, step.agent), 0) < step.until
            ):
                self.run_agent(step.cluster, agent, step.until)

    def _run_to_end_of(self, cluster: int) -> None:
        """Lets the agents of a cluster run until it ends, or each of them is blocked."""
        while (m := self.machines.get(cluster)) is not None and m.ready:
            self.run_agent(cluster, m.ready[0])

    def run_to_end(self, stop: Callable[[], bool] | None = None, backwards: bool = False) -> bool:
        """Performs the rest in a fixed order: each agent until it blocks, and a unit in flight when
        no agent can run. Returns whether the execution has come to its end.

        Args:
            stop: called before each of these; the execution stops if it returns True.
            backwards: the last agent first.
        """
        while not self.over:
            ready = self.ready()
            if stop is not None and stop():
                return False
            if self._ending:
                self.end_cluster(self.ending[0])
                continue
            if ready:
                cluster, agent = ready[-1 if backwards else 0]
                who = (cluster, agent.uid)
                until = self.performed.get(who, 0) + _TIME_SLICE
                self.run_agent(cluster, agent, until)
                if self.performed[who] == until:
                    self._turns[who] = self._turns.get(who, 0) + 1
                continue
            in_flight = self.in_flight
            if not in_flight:
                for cluster in list(self.machines):
                    self._end_if_done(cluster)
                continue
            self.run_unit(in_flight[0])
        self._waiting_tests.check_end()
        return True


def schedule_of(steps: Iterable[VisibleStep]) -> tuple[ScheduleStep, ...]:
    """The schedule that performs some visible steps in order."""
    schedule: list[ScheduleStep] = []
    for step in steps:
        cluster, agent = step.agent_id
        if step.is_unit:
            schedule.append(ScheduleStep(cluster, agent, unit=step.ordinal))
            continue
        decision = ScheduleStep(cluster, agent, step.ordinal + 1)
        last = schedule[-1] if schedule else None
        if last is not None and last.unit < 0 and (last.cluster, last.agent) == step.agent_id:
            schedule[-1] = decision
        else:
            schedule.append(decision)
    return tuple(schedule)
