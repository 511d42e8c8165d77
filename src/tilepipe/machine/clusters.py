"""Running the clusters of a launch: one after another, or at once where they draw work from a
common store.

One after another is a legal order of the grid. It is the only order that needs to be run where no
op communicates between clusters: accesses of two clusters to one element of global memory are a
race in any order (`happens_before.global_memory`).

Where a kernel has an atomic add or a try_cancel, its result depends on the other clusters. Then as
many clusters as the chip holds run at once, each on a machine of its own, up to the next such op.
Seed 0 grants the op to the cluster that reached it first in virtual time, so that tiles are
distributed as the cost model predicts; other seeds grant it to any cluster.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum, auto
from functools import lru_cache
from random import Random

import numpy as np
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from tilepipe.errors import RaceError, SimFault
from tilepipe.machine.agents import Agent
from tilepipe.machine.cta_exit import check_exit
from tilepipe.machine.faults import deadlock
from tilepipe.machine.grid_state import Clusters
from tilepipe.machine.happens_before.events import Present
from tilepipe.machine.machine import Machine, World
from tilepipe.machine.repeats import Repeats
from tilepipe.machine.scheduler import Log, part_ways, run_at_random, run_in_order

Finished = Callable[[Machine], None]


@contextmanager
def quiet_numbers() -> Iterator[None]:
    """One BLAS thread, as tiles are small, and no warnings about NaN."""
    with _threads(len(sys.modules)).limit(limits=1), np.errstate(all="ignore"):
        yield


@lru_cache(maxsize=1)
def _threads(modules: int) -> ThreadpoolController:
    """The BLAS libraries of this process, looked for anew when so many modules are imported, which
    may have brought one: to find them takes as long as a small kernel runs.
    """
    return ThreadpoolController()


def one_after_another(
    world: World, order: list[int], random: Random | None, finished: Finished
) -> tuple[int, list[float]]:
    """Runs each cluster to its end. Returns the steps taken, and the cycles of each cluster."""
    m = Machine(world, order[0])
    steps = 0
    cycles: list[float] = []
    repeats = Repeats(world) if random is None and len(order) > 1 else None
    for cluster in order:
        if cycles:
            m.start(cluster)
        record = repeats.repeat(m) if repeats is not None else None
        if record is not None:
            steps += record.taken
            cycles.append(record.cycles)
        else:
            log = repeats.recording() if repeats is not None else None
            taken = _advance(m, random, log)
            finish(m)
            steps += taken
            cycles.append(_duration(m))
            if repeats is not None and log is not None:
                repeats.keep(m, log, taken, cycles[-1])
        finished(m)
    m.close()
    return steps, cycles


def _advance(m: Machine, random: Random | None, log: Log | None = None) -> int:
    """Runs a cluster until nothing in it can act, or all that is left polls."""
    with explained(m):
        return run_in_order(m, log) if random is None else run_at_random(m, random)
    raise AssertionError  # a fault has been raised


def finish(m: Machine) -> None:
    """Ends a cluster in which nothing can act any more."""
    with explained(m):
        if any(not a.done for a in m.agents):
            for agent in m.agents if m.stuck else ():
                looks = agent in m.polling or agent in m.requests.asking
                agent.spins = agent.spins if looks else None
            raise deadlock.report(m)
        check_exit(m)
    if m.poisoned is not None:
        raise m.poisoned


@contextmanager
def explained(m: Machine) -> Iterator[None]:
    """Reports the read of poison that explains a fault in its place, and turns a division by zero
    into a fault.
    """
    try:
        yield
    except (SimFault, ZeroDivisionError) as error:
        if m.poisoned is not None and not isinstance(error, RaceError):
            raise m.poisoned from None
        if isinstance(error, ZeroDivisionError):
            raise _division(m.world, error) from error
        raise


def _division(world: World, error: ZeroDivisionError) -> SimFault:
    """A division by zero in a body, with the program's line."""
    return SimFault(
        "integer division by zero. On the GPU the result is unspecified and no error is raised;"
        f" guard it with {world.program.words['a predicate']}",
        world.located(error),
    )


def _duration(m: Machine) -> float:
    """Cycles from the cluster's start until its last agent and unit are done."""
    return max([a.time for a in m.agents] + [max(c.tma_free, c.tensor_free) for c in m.ctas])


# -- together --------------------------------------------------------------------------


class _Pause(Enum):
    """The reason why a cluster that has not ended pauses: an agent asks for an op, or all agents
    poll.
    """

    ASKS = auto()
    POLLS = auto()


class _Place:
    """A slot of the chip in which clusters run one after another. `since`: when the present one
    started, in cycles; `kept`: its events on each tensor while other slots run.
    """

    def __init__(self, world: World) -> None:
        self.since = 0.0
        self.kept = [Present() for t in world.tensors if t.order is not None]
        self.machine: Machine | None = None

    def asks(self) -> float:
        """When the first of its agents that ask reached its op."""
        assert self.machine is not None
        return self.since + min(a.time for a in self.machine.requests.asking)

    def asks_without_effect(self, futile: Counter[Agent]) -> bool:
        """True if none of its agents can go on by itself: each that asks has been round its loop by
        so many ops without effect that no op of the loop was another's.
        """
        m = self.machine
        assert m is not None
        return m.stuck and all(
            agent.looks is not None and futile[agent] > len(agent.looks.rounds)
            for agent in m.requests.asking
        )

    def part_ways(self) -> bool:
        """Lets lanes go on that wait for those of their warp that ask; returns whether any do."""
        assert self.machine is not None
        return any(part_ways(agent) for agent in self.machine.requests.asking)


class _Together:
    """Slots whose clusters run at once."""

    def __init__(self, world: World, random: Random | None, finished: Finished) -> None:
        self.world = world
        self.random = random
        self.finished = finished
        self.entered: _Place | None = None
        self.steps = 0
        self.end = 0.0

    def enter(self, place: _Place) -> None:
        """Makes the events of the place's cluster the present ones."""
        if self.entered is not place:
            orders = [t.order for t in self.world.tensors if t.order is not None]
            if self.entered is not None:
                self.entered.kept = [order.present for order in orders]
            for order, kept in zip(orders, place.kept, strict=True):
                order.present = kept
            self.entered = place

    def start(self, place: _Place, cluster: int) -> None:
        self.enter(place)
        if place.machine is None:
            place.machine = Machine(self.world, cluster)
        else:
            place.machine.start(cluster)
        if self.random is not None:
            place.machine.requests.haste = self.random.choice((0.0, 0.5, 1.0))

    def run(self, place: _Place) -> _Pause | None:
        """Runs the clusters of a slot until one asks for an op, or polls, or until none is left."""
        clusters = self.world.clusters
        assert clusters is not None
        m = place.machine
        assert m is not None
        while True:
            self.enter(place)
            self.steps += _advance(m, self.random)
            if m.requests.asking:
                return _Pause.ASKS
            if m.stuck:
                return _Pause.POLLS
            finish(m)
            place.since += _duration(m)
            self.end = max(self.end, place.since)
            self.finished(m)
            if not clusters.waiting:
                m.close()
                return None
            self.start(place, clusters.waiting.popleft())

    def grant(self, asking: list[_Place]) -> tuple[_Place, Agent]:
        """Grants one agent the op that it asks for, and takes its slot off the list."""
        place = min(asking, key=_Place.asks) if self.random is None else self.random.choice(asking)
        assert place.machine is not None
        requests, ready = place.machine.requests, place.machine.ready
        agent = (
            min(requests.asking, key=lambda a: a.time)
            if self.random is None
            else self.random.choice(requests.asking)
        )
        requests.asking.remove(agent)
        requests.granted = agent
        # an agent that looks again and again is watched: it may be all that is left
        (ready if agent.looks is None else place.machine.polling).append(agent)
        asking.remove(place)
        return place, agent


def together(
    world: World, order: list[int], resident: int, random: Random | None, finished: Finished
) -> tuple[int, list[float]]:
    """Runs up to `resident` clusters at once; seeds other than 0 may run fewer, as on a chip that
    also runs other kernels, unless clusters may wait for each other.

    Returns the steps taken, and the cycles until the last cluster has ended.
    """
    at_once = min(resident, len(order))
    if random is not None and random.random() < 0.5 and not world.program.orders_clusters:
        at_once = random.randint(1, at_once)
    world.clusters = Clusters(order, random)
    world.clusters.resident = at_once
    run = _Together(world, random, finished)
    places = [_Place(world) for _ in range(at_once)]
    for place in places:  # all start before any of them can cancel another
        run.start(place, world.clusters.waiting.popleft())
    asking: list[_Place] = []
    polling: list[_Place] = []
    idle: set[int] = set()  # the slots that have polled since anything has moved
    futile: Counter[Agent] = Counter()  # the ops granted to an agent without effect since then
    looks = False
    while places or asking or polling:
        granted: Agent | None = None
        begins = bool(places) and (
            random is None or random.randrange(len(places) + len(asking)) < len(places)
        )
        if begins:
            place = places.pop(0)
        elif asking and not (polling and looks):
            place, granted = run.grant(asking)
        else:
            place = polling.pop(0 if random is None else random.randrange(len(polling)))
        looks = not looks
        pause = run.run(place)
        if pause is None or (place.machine is not None and place.machine.moved):
            idle.clear()
            futile.clear()
        elif granted is not None:
            futile[granted] += 1
        if pause is _Pause.ASKS:
            asking.append(place)
        elif pause is _Pause.POLLS:
            polling.append(place)
            idle.add(id(place))
        polls = all(id(other) in idle for other in polling)
        asks = pause is _Pause.POLLS and all(id(other) in idle for other in asking)
        asks = asks or all(other.asks_without_effect(futile) for other in asking)
        if pause is not None and not places and polls and asks:
            if any(other.part_ways() for other in asking):
                futile.clear()
                continue
            assert place.machine is not None
            run.enter(place)
            finish(place.machine)  # nothing can end what its agents look for
    return run.steps, [run.end]
