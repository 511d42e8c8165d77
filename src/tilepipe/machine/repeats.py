"""Clusters that repeat what a cluster before them did.

With seed 0 the machine is deterministic, and each cluster starts from the same state: its shared
memory is unwritten, its barriers are not initialised, nothing is in flight. All that the machine
decides from there follows from the requests of the agents: who waits for whom and how long, which
access to shared memory comes after which, whether one is a race or reads what nothing has written.
Only two things do not: where in a tensor an access is, and the values of elements. So where a
cluster makes the requests of an earlier one that ended without a fault, in the same order, apart
from places in tensors and values, it ends without one as well, after the same steps, at the same
time.

Such a cluster is repeated. Its agents run, and each of their requests is compared with the record
of the earlier cluster. What concerns tensors and values is done as ever: copies, products, and all
checks of accesses to tensors and of registers, for these depend on more than requests. The rest
need not be done again. At the first request that differs, and at any fault, the repetition ends,
and the cluster is simulated from its start, step by step; what it has written by then it writes
again, with the same values, since no tensor is both written and read. A cluster that performs an
op which none of the tables below names is never repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tilepipe.errors import TilepipeError
from tilepipe.machine.actors import BLOCKED, Request
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers import mbarrier, rendezvous
from tilepipe.machine.machine import Machine, World
from tilepipe.machine.memory import elements, fragment_access
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.units import grid, tma, wgmma
from tilepipe.machine.units.acting import act

Op = Callable[..., Any]

_PATIENCE = 2  # repetitions that fail, one after another, before no more are tried
# accesses to tensors that are written: they are compared with each other, and nothing in a
# repetition says which of them are over
_MOST_ORDERED = 64
_MOST_STEPS = 1 << 17  # of a record, which takes about 300 bytes for each

# ops that do nothing but what follows from the requests
_DECIDED: frozenset[Op] = frozenset({
    mbarrier.mbar_init, mbarrier.mbar_inval, mbarrier.mbar_arrive, mbarrier.mbar_expect,
    mbarrier.mbar_drop, mbarrier.mbar_wait, mbarrier.mbar_wait_parity, mbarrier.mbar_try_wait,
    mbarrier.mbar_try_wait_parity, rendezvous.named_sync, rendezvous.named_arrive,
    rendezvous.setup_barrier, rendezvous.cluster_arrive, rendezvous.cluster_wait,
    rendezvous.fence_barrier_init, rendezvous.fence_proxy_async, rendezvous.launch_dependents,
    rendezvous.syncwarp, tma.tma_store_commit, tma.tma_store_wait,
})  # fmt: skip
# ops that are performed as ever, with what they do to registers and tensors: op -> the operands,
# by position, that may differ from the record's
_PERFORMED: dict[Op, tuple[int, ...]] = {
    wgmma.wgmma_fence: (),
    wgmma.wgmma_commit: (),
    wgmma.wgmma_wait: (),
    fragment_access.fragment_load_global: (3,),
    fragment_access.fragment_store_global: (2, 3),
    elements.load_global: (2, 3, 4, 5, 6),
}
# the same, by a function that leaves out what follows from the requests
_IN_PART: dict[Op, tuple[Op, tuple[int, ...]]] = {
    wgmma.wgmma: (wgmma.wgmma_again, ()),
    tma.tma_load: (tma.tma_load_again, (2,)),
    tma.tma_store: (tma.tma_store_again, (2,)),
    fragment_access.fragment_store: (fragment_access.fragment_store_again, (5,)),
    fragment_access.fragment_load: (fragment_access.fragment_load_again, ()),
    grid.grid_dependency_wait: (grid.grid_dependency_wait_again, ()),
}
_ORDERED = frozenset({tma.tma_store, fragment_access.fragment_store_global})


class _DiffersError(Exception):
    """A request is not that of the record."""


class Step(NamedTuple):
    """A request that an agent's cluster has performed.

    Attributes:
        agent: its number in the cluster. op, operands: the request; operands that may differ, of
            which `free` are the positions, and fragments are None. result: what the op returned.
        perform: what is done in a repetition; None: nothing.
    """

    agent: int
    op: Op
    operands: list[Any]
    free: tuple[int, ...]
    result: Any
    perform: Op | None


class Record(NamedTuple):
    """What one cluster did. A step that is None: the oldest unit in flight acts.

    Attributes:
        taken: how many steps the scheduler counted. cycles: how long it took. counts, blocked:
            executions by site. completions: of each mbarrier of each CTA.
    """

    steps: list[Step | None]
    taken: int
    cycles: float
    counts: list[int]
    blocked: list[int]
    completions: list[list[int]]


class Recording:
    """The steps of a cluster that runs.

    Attributes:
        complete: no step has been left out. ordered: accesses to tensors that are written.
        counts, blocked: executions by site before the cluster.
    """

    def __init__(self, world: World) -> None:
        self.steps: list[Step | None] = []
        self.complete = True
        self.ordered = 0
        self.counts, self.blocked = list(world.counts), list(world.blocked)

    def performed(self, ag: Agent, op: Op, operands: tuple[Any, ...], result: Any) -> None:
        """An agent has performed an op."""
        if not self.complete:
            return
        free: tuple[int, ...] = ()
        perform: Op | None = None
        if op in _PERFORMED:
            perform, free = op, _PERFORMED[op]
        elif op in _IN_PART:
            perform, free = _IN_PART[op]
        elif op not in _DECIDED:
            self._give_up()
            return
        free = tuple(at for at, o in enumerate(operands) if at in free or isinstance(o, Frag))
        kept = [None if at in free else operand for at, operand in enumerate(operands)]
        self.steps.append(Step(ag.uid, op, kept, free, result, perform))
        self.ordered += op in _ORDERED
        if len(self.steps) > _MOST_STEPS or self.ordered > _MOST_ORDERED:
            self._give_up()

    def acts(self) -> None:
        """The oldest unit in flight acts."""
        if self.complete:
            self.steps.append(None)

    def _give_up(self) -> None:
        self.complete = False
        self.steps = []


class Repeats:
    """The repetitions of a launch, whose clusters run one after another, with seed 0."""

    def __init__(self, world: World) -> None:
        self.world = world
        program = world.program
        self.possible = (
            world.recorder is None
            and not (program.addressed or program.orders_clusters)
            and all(site.kind != "print" for site in program.sites)
            and all(t.order is None or t.order.readers is None for t in world.tensors)
        )
        self.record: Record | None = None
        self.failed = 0

    def recording(self) -> Recording | None:
        """For the cluster that starts now, where that is worth recording."""
        return Recording(self.world) if self.possible else None

    def keep(self, m: Machine, made: Recording, taken: int, cycles: float) -> None:
        """Makes a record of a cluster that has ended without a fault."""
        world, steps = self.world, made.steps
        if len(steps) != taken or world.advice:  # a record that was given up has no steps
            self.possible = False
            return
        self.record = Record(
            steps,
            taken,
            cycles,
            [n - b for n, b in zip(world.counts, made.counts, strict=True)],
            [n - b for n, b in zip(world.blocked, made.blocked, strict=True)],
            [[bar.completions for bar in cta.bars] for cta in m.ctas],
        )

    def repeat(self, m: Machine) -> Record | None:
        """Repeats the record in a cluster that has just started; None: there is no record, or the
        cluster does something else, and has been started again.
        """
        record = self.record
        if record is None or not self.possible:
            return None
        try:
            _repeat(m, record)
        except (_DiffersError, TilepipeError, ZeroDivisionError):
            # Where it is a fault, simulating the cluster step by step says which.
            self.failed += 1
            self.possible = self.failed < _PATIENCE
            m.start(m.cluster_id)
            return None
        self.failed = 0
        for total, more in (
            (self.world.counts, record.counts),
            (self.world.blocked, record.blocked),
        ):
            for site, n in enumerate(more):
                total[site] += n
        for cta, completions in zip(m.ctas, record.completions, strict=True):
            for bar, n in zip(cta.bars, completions, strict=True):
                bar.completions = n
        return record


_ENDED: Request = (lambda: None, ())


def _repeat(m: Machine, record: Record) -> None:
    agents, pending = m.agents, m.pending
    requests: list[Request | None] = [None] * len(agents)
    for step in record.steps:
        if step is None:
            if not pending:
                raise _DiffersError
            act(m, pending.popleft())
            continue
        number, op, operands, free, result, perform = step
        agent = agents[number]
        made, given = requests[number] or _next(agent)
        # an op of another line may have fewer operands
        if made is not op or len(given) != len(operands):
            raise _DiffersError
        found = list(given)
        for at in free:
            found[at] = None
        if found != operands:
            raise _DiffersError
        if perform is not None:
            done = perform(m, agent, *given)
            if done is BLOCKED:
                raise _DiffersError
            if perform is op:
                result = done
        requests[number] = _next(agent, result)
    for agent, last in zip(agents, requests, strict=True):
        if (last or _next(agent)) is not _ENDED:
            raise _DiffersError
    if pending:
        raise _DiffersError


def _next(agent: Agent, result: Any = None) -> Request:
    """The next request of an agent."""
    try:
        return agent.body.send(result)
    except StopIteration:
        return _ENDED
