"""Clusters that draw their work from one counter, explored one cluster at a time.

If clusters share nothing but a counter, a cluster depends on the others only through the numbers
that it draws, an increasing sequence. So each cluster is explored alone, beside an environment that
may draw a number at any time; equal states are followed once. There are as many states as pairs
(numbers drawn in all, numbers drawn by this cluster), instead of one for each order of all draws.

The exploration shows on the way that the clusters share nothing else. The steps between two draws
form a segment: those that follow the draw of one number (no number is drawn twice), those before
the first draw of a cluster, or those after an agent's last draw. Each element of global memory that
is written must be accessed in one segment only. If that, or another assumption of this module, does
not hold, it decides nothing. docs/decisions/0012-tickets.md has the proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilepipe.check.engine.execution import Execution
from tilepipe.check.engine.race_reversal import EXPECTED_RACES, Explorer
from tilepipe.check.engine.state_search import BranchOnTests, settle
from tilepipe.check.engine.steps import AgentId
from tilepipe.check.engine.traced_front_end import TracedFrontEnd
from tilepipe.check.key_encoding import digest
from tilepipe.check.verdict import ExecutionLimitError, ScheduleStep
from tilepipe.errors import PoisonError, SimFault
from tilepipe.ir import def_use, ops
from tilepipe.ir.expressions import Const, Special
from tilepipe.ir.memory import Element, TensorParam
from tilepipe.ir.program import all_ops
from tilepipe.machine.advice import add
from tilepipe.machine.agents import Agent
from tilepipe.machine.memory.tiles import EMPTY

LIMIT = 20_000  # states of one cluster, after which the general search is used instead
_OTHERS = ScheduleStep(-1, 0)  # in a schedule: another cluster draws a number
_NONE, _SEVERAL = -1, -2  # in a map of elements, instead of the segment that accesses them
_CLUSTER_IDENTITY = {"block_id", "cluster_id"}


class _UnsuitedError(Exception):
    """The kernel does not meet the assumptions of this module."""


class _RememberedError(Exception):
    """The contents of shared memory at a draw were read later."""


@dataclass(frozen=True, slots=True)
class _Counter:
    """The one counter that a kernel draws from.

    Attributes:
        number: the index of its tensor. at: its element.
        draws: the ops that add 1 to it; other adds only reset it.
        alike: no op depends on the cluster in which it is performed.
    """

    number: int
    at: tuple[int, ...]
    draws: frozenset[ops.Op]
    alike: bool


def counter_of(front_end: TracedFrontEnd) -> _Counter | None:
    """The counter of a kernel whose clusters draw from one counter, and from nothing else; None for
    other kernels.
    """
    kernel = front_end.launch.kernel
    every = list(all_ops(kernel))
    found: set[tuple[TensorParam, tuple[Any, ...]]] = set()
    draws: set[ops.Op] = set()
    for op in every:
        match op:
            case ops.Atomic(
                operation="add",
                order="relaxed",
                dst=Element(base=TensorParam() as tensor, index=index),
            ):
                if not all(isinstance(i, Const) for i in index):
                    return None
                found.add((tensor, tuple(int(i.value) for i in index if isinstance(i, Const))))
                if isinstance(op.value, Const) and op.value.value == 1:
                    draws.add(op)
                elif op.result in front_end.things:
                    return None
            case (
                ops.ClcTryCancel()
                | ops.MbarTryWait()
                | ops.Atomic()
                | ops.StrongLoad()
                | ops.StrongStore()
            ):
                return None
    if len(found) != 1:
        return None
    ((tensor, at),) = found
    if any(not isinstance(op, ops.Atomic) and tensor in set(def_use.operands(op)) for op in every):
        return None
    number = [p for p in kernel.params if isinstance(p, TensorParam)].index(tensor)
    alike = not any(
        isinstance(leaf, Special) and leaf.name in _CLUSTER_IDENTITY
        for op in every
        for leaf in def_use.leaves(op)
    )
    return _Counter(number, at, frozenset(draws), alike)


def explore(explorer: Explorer, first: Execution) -> bool:
    """Explores a launch cluster by cluster. Returns whether that decides it. `first`: an execution
    of the whole grid, without a fault.

    A fault of one cluster is looked for in an execution of the whole grid, and kept if it occurs
    there.
    """
    launch = explorer.front_end
    if not isinstance(launch, TracedFrontEnd) or launch.clusters < 2:
        return False
    counter = counter_of(launch)
    if counter is None:
        return False
    drawn = [
        n.agent_id
        for n in first.causal_order.steps
        if n.site is not None and launch.sites[n.site.id].op in counter.draws
    ]
    for forgets in (True, False):
        alone = _Alone(explorer, launch, counter, drawn, forgets)
        try:
            for cluster in range(1 if counter.alike else launch.clusters):
                alone.explore(cluster)
                if explorer.found.fault is not None:
                    return True
            return alone.apart()
        except _RememberedError:
            continue
        except _UnsuitedError:
            break
    return False


@dataclass(eq=False, slots=True)
class _Run:
    """One execution of a cluster alone.

    Attributes:
        exits: agents that have drawn a number with which they are expected to end.
        closed: all numbers have been drawn, and the counter was reset.
    """

    execution: Execution
    cluster: int
    exits: set[int] = field(default_factory=set)
    closed: bool = False


class _Alone:
    """Explores clusters one at a time.

    Attributes:
        drawers, own: the number of agents that draw, in all clusters and in each.
        last: the first number with which an agent ends.
        forgets: at each draw, contents of shared memory that can decide something are poisoned. If
            no agent reads them later, states that differ only in them are equal.
        segments: tensor -> for each element, the segment that accesses it.
        written: tensor -> for each element, whether it is written.
    """

    def __init__(
        self,
        explorer: Explorer,
        launch: TracedFrontEnd,
        counter: _Counter,
        drawn: Sequence[AgentId],
        forgets: bool,
    ) -> None:
        """`drawn`: the agents that drew, one for each number, in an execution of all clusters."""
        self.explorer = explorer
        self.launch = launch
        self.counter = counter
        self.steps = BranchOnTests(launch.sites, launch.guards.tests, ())
        self.forgets = forgets
        self.drawers = len(set(drawn))
        self.own = self.drawers // launch.clusters
        start = int(launch.given(counter.number)[counter.at])
        self.last = start + len(drawn) - self.drawers
        self.segments: dict[int, npt.NDArray[np.int64]] = {}
        self.written: dict[int, npt.NDArray[np.bool_]] = {}
        self._labels: dict[tuple[int, ...], int] = {}

    # -- one cluster -------------------------------------------------------------------

    def explore(self, cluster: int) -> None:
        """Follows every state of a cluster, beside others that draw.

        Raises:
            _UnsuitedError: the kernel does not meet the assumptions, or has a fault that does not
                occur in an execution of all clusters.
        """
        seen: set[bytes] = set()
        stack: list[tuple[ScheduleStep, ...]] = [()]
        while stack:
            schedule = stack.pop()
            run = _Run(self.explorer.begin((cluster,), len(stack)), cluster)
            run.execution.pause = self.steps.op
            done: list[ScheduleStep] = []
            try:
                self._follow(run, schedule, done, seen, stack)
            except SimFault as error:
                if self.forgets and isinstance(error, PoisonError):
                    raise _RememberedError from None
                self._find(cluster, done)
                return
            except ExecutionLimitError as error:
                raise self.explorer.exceeded(error, run.execution) from None
            self._orderly(run.execution)
            if len(seen) > LIMIT:
                raise _UnsuitedError

    def _orderly(self, execution: Execution) -> None:
        """Raises _UnsuitedError if steps between draws have a race, or are too many to compare."""
        add(self.explorer.found.advice, execution.world.advice)
        if execution.world.incomplete or execution.causal_order.fault() is not None:
            raise _UnsuitedError
        if any(race.kind not in EXPECTED_RACES for race in execution.causal_order.races):
            raise _UnsuitedError

    def _follow(
        self,
        run: _Run,
        schedule: Sequence[ScheduleStep],
        done: list[ScheduleStep],
        seen: set[bytes],
        stack: list[tuple[ScheduleStep, ...]],
    ) -> None:
        self._segment(run, None, self._label((run.cluster, -1, 0)), not schedule)
        for number, pick in enumerate(schedule, 1):
            self._take(run, pick, done, number == len(schedule))
        while run.execution.machines:
            value = self._value(run)
            exits = tuple(sorted(run.exits))
            assert self.explorer.state_keys is not None
            key = digest(
                (
                    self.explorer.state_keys.of(run.execution, tensors=False),
                    value,
                    exits,
                    run.closed,
                )
            )
            if key in seen:
                return
            seen.add(key)
            self.explorer.found.states += 1
            options = [ScheduleStep(run.cluster, a.uid, -1) for _, a in run.execution.ready()]
            if run.execution.in_flight:
                raise _UnsuitedError
            # The other clusters may draw any number below `last`, and one more number for each of
            # their agents.
            if not run.closed and value < self.last + self.drawers - self.own + len(exits):
                options.append(_OTHERS)
            stack.extend((*done, option) for option in options[1:])
            self._take(run, options[0], done, True)

    def _value(self, run: _Run) -> int:
        return int(run.execution.world.tensors[self.counter.number].array[self.counter.at])

    def _take(self, run: _Run, pick: ScheduleStep, done: list[ScheduleStep], new: bool) -> None:
        """Performs a step, and everything up to the next draw. `new`: no other execution has
        performed it.
        """
        done.append(pick)
        if pick == _OTHERS:
            run.execution.world.tensors[self.counter.number].array[self.counter.at] += 1
            return
        agent = next(a for c, a in run.execution.ready() if a.uid == pick.agent)
        op = agent.request[1][0].op if agent.request is not None else None
        value = self._value(run)
        if op in self.counter.draws:
            if value >= self.last:
                if agent.uid in run.exits:
                    raise _UnsuitedError  # it draws again
                run.exits.add(agent.uid)
            if run.closed or len(run.exits) > self.own:
                raise _UnsuitedError
            label = self._label((value,) if value < self.last else (run.cluster, agent.uid, 1))
        else:
            label = _SEVERAL
            if isinstance(op, ops.Atomic):  # no agent can draw any more
                if not run.closed and value != self.last + self.drawers:
                    raise _UnsuitedError
                run.closed = True
        self._segment(run, agent, label, new)

    def _label(self, segment: tuple[int, ...]) -> int:
        return self._labels.setdefault(segment, len(self._labels))

    def _segment(self, run: _Run, agent: Agent | None, label: int, new: bool) -> None:
        """Performs an agent's next op and everything up to the next draw, and records which
        elements that accesses.
        """
        tensors = [
            (i, t)
            for i, t in enumerate(run.execution.world.tensors)
            if t.order is not None and i != self.counter.number
        ]
        for _, t in tensors:  # empty maps, so that they show what is accessed from here on
            assert t.order is not None
            t.order.writers[...] = 0
            if t.order.readers is not None:
                t.order.readers[...] = 0
        if agent is not None:
            run.execution.run_agent(run.cluster, agent, pause=True)
        settle(run.execution, self.steps)
        if self.forgets:
            self._forget(run.execution)
        if not new:
            return
        for i, t in tensors:
            assert t.order is not None
            touched = t.order.writers != 0
            if i not in self.segments:
                self.segments[i] = np.full(touched.shape, _NONE, np.int64)
                self.written[i] = np.zeros(touched.shape, np.bool_)
            self.written[i] |= touched
            if t.order.readers is not None:
                touched = touched | (t.order.readers != 0)
            kept = self.segments[i]
            kept[touched & (kept != _NONE) & (kept != label)] = _SEVERAL
            kept[touched & (kept == _NONE)] = label

    def _forget(self, execution: Execution) -> None:
        deciding = self.launch.things
        for m in execution.machines.values():
            if m.poisoned is not None:
                raise _RememberedError
            for slot in (
                s for cta in m.ctas for s in cta.slots if s.buffer in deciding and s is not cta.tmem
            ):
                slot.state, slot.filled = EMPTY, None
                slot.writable()[...] = 0

    def apart(self) -> bool:
        """True if no element that is written is accessed in two segments; nor, if one cluster
        stands for all, in a segment that each cluster has.
        """
        each = (
            [number for segment, number in self._labels.items() if len(segment) > 1]
            if self.counter.alike
            else []
        )
        shared = [_SEVERAL, *each]
        return not any(
            (self.written[i] & np.isin(self.segments[i], shared)).any() for i in self.segments
        )

    # -- a fault -----------------------------------------------------------------------

    def _find(self, cluster: int, done: Sequence[ScheduleStep]) -> None:
        """Looks for the fault of one cluster in an execution of all clusters, in which another one
        draws whenever the environment did.

        Raises:
            _UnsuitedError: it does not occur there.
        """
        explorer = self.explorer
        execution = explorer.begin(range(explorer.front_end.clusters), 0)
        execution.pause = self.steps.op

        def perform() -> None:
            self._settle_all(execution)
            for pick in done:
                ready = execution.ready()
                if pick == _OTHERS:
                    other = next(((c, a) for c, a in ready if c != cluster), None)
                    if other is None:
                        return
                    execution.run_agent(*other, pause=True)
                else:
                    execution.follow([pick])
                self._settle_all(execution)
            execution.run_to_end()

        if not explorer.perform(execution, perform):
            raise _UnsuitedError

    def _settle_all(self, execution: Execution) -> None:
        """Performs everything up to the next draws, of the clusters, too, that start meanwhile."""
        settle(execution, self.steps)
        while execution.ending:
            execution.end_cluster(execution.ending[0])
            settle(execution, self.steps)
