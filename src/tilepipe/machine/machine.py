"""The machine: one cluster of CTAs at a time, with its agents, asynchronous units and the order
between their accesses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilepipe.errors import NotModelledError, PoisonError
from tilepipe.ir.program import Kernel
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.mbarrier import WORD_BYTES, Mbarrier
from tilepipe.machine.barriers.rendezvous import NamedState, Rendezvous
from tilepipe.machine.cta import Cta
from tilepipe.machine.happens_before.accesses import Access, Holder, Order
from tilepipe.machine.journal import Journal
from tilepipe.machine.memory.global_memory import GlobalTensor
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.rules import Rules
from tilepipe.machine.sites import SETUP, Site
from tilepipe.machine.units.grid import Clusters, Reach

if TYPE_CHECKING:
    from tilepipe.ir.chip import Chip
    from tilepipe.machine.units.queue import Unit
    from tilepipe.sim.codegen.module import Compiled

# (machine, agents that wait, mbarriers that they wait on -> ops that could bring what those lack)
# -> what to say in place of a deadlock that the front end's model cannot decide
Undecided = Callable[["Machine", list[Agent], dict[Mbarrier, list[Site]]], NotModelledError | None]
OnEvent = Callable[[Agent, Site, float, float], None]


@dataclass
class World:
    """What all clusters of a launch share.

    Attributes:
        params: (name, axis) -> value of a scalar parameter (axis -1) or of a tensor's extent.
        counts: executions per site. blocked: role -> waits that did not pass at once.
        rules: "practice" or "strict"; strict: whether it is the latter (`rules`). told: findings
        whose advice has been given: (rule, first op, second op).
        on_event: called with (agent, site, start, end), times in cycles since the CTA started,
        where someone records a timeline.
        clusters: those that have not started, where clusters run together (`clusters`).
        incomplete: why a race may have gone unseen; "" where none can have. silent: what the kernel
            prints is kept, not shown.
        deadline: of `time.perf_counter`, looked at in loops of the kernel that perform no op; None:
            there is none.
        undecided: what the front end says of a deadlock that its model cannot decide.
        elected: the lane that is elected wherever it is active (`election`).
        journal: told of each step that other agents can notice, where someone explores executions.
    """

    kernel: Kernel
    compiled: Compiled
    chip: Chip
    grid: int
    tensors: list[GlobalTensor]
    params: dict[tuple[str, int], int | float]
    rules: Rules = "practice"
    on_event: OnEvent | None = None
    counts: list[int] = field(default_factory=list)
    blocked: dict[str, int] = field(default_factory=dict)
    advice: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    clusters: Clusters | None = None
    incomplete: str = ""
    silent: bool = False
    journal: Journal | None = None
    deadline: float | None = None
    elected: int = 0
    undecided: Undecided = lambda m, stuck, sources: None
    strict: bool = field(default=False, init=False)
    told: set[tuple[str, int, int]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.strict = self.rules == "strict"

    def advise(self, text: str) -> None:
        """Adds a line of advice, once."""
        if text not in self.advice:
            self.advice.append(text)

    def show(self, line: str) -> None:
        """A line that the kernel prints."""
        self.printed.append(line)
        if not self.silent:
            print(line)


class Machine:
    """One cluster, from the start of its CTAs to their exit.

    Attributes:
        ready: agents that can take a step. polling: those of them that have tested in vain, and let
            the others go first.
        pending: asynchronous units that may act, oldest first.
        reborn: live mbarriers that were initialised in a role.
        poisoned, poison_at: the first read of poison, reported at the end unless a race explains
            it.
    """

    def __init__(self, world: World, cluster_id: int = 0) -> None:
        self.world = world
        self.journal = world.journal
        size = world.kernel.cluster_size
        self.num_clusters = world.grid // size
        self.ctas = [_cta(world, rank) for rank in range(size)]
        self.ready: deque[Agent] = deque()
        self.polling: deque[Agent] = deque()
        self.pending: deque[Unit] = deque()
        self.start(cluster_id)

    def start(self, cluster_id: int) -> None:
        """A new cluster takes the place of the one before: its shared memory is poison, its
        barriers are not initialised.
        """
        self.cluster_id = cluster_id
        self.order = Order(self.holders)
        self.reach = Reach()
        self.reborn: list[Mbarrier] = []
        self.poisoned: PoisonError | None = None
        self.poison_at: Access | None = None
        for tensor in self.world.tensors:
            if tensor.order is not None:
                tensor.order.start()
        self.ready.clear()
        self.polling.clear()
        self.pending.clear()
        self.agents: list[Agent] = []
        for cta in self.ctas:
            self._start_cta(cta)
        self.cluster = Rendezvous("the cluster barrier", self.agents)
        self.setup = Rendezvous("the end of set-up", self.agents)
        self.setup_of = [Rendezvous("the end of set-up", cta.agents) for cta in self.ctas]
        self.ready.extend(self.agents)

    def _start_cta(self, cta: Cta) -> None:
        kernel, compiled = self.world.kernel, self.world.compiled
        cta.block_id = self.cluster_id * len(self.ctas) + cta.rank
        cta.tma_free = cta.tensor_free = 0.0
        cta.arrivals = {}
        for slot in cta.slots:
            slot.reset()
        for bar in cta.bars:
            bar.reset()
            bar.completions = 0
        for named in cta.named:
            named.reset()
        cta.agents = []
        for role in kernel.roles:
            each = role.agent_threads // 32
            for index in range(role.agents):
                agent = Agent(
                    cta,
                    role,
                    index,
                    role.first_warp + index * each,
                    each,
                    len(self.agents),
                    self.world.counts,
                )
                agent.body = compiled.bodies[role.name](self, agent)
                cta.agents.append(agent)
                self.agents.append(agent)
        if compiled.needs_idle:
            taken = {w for r in kernel.roles for w in range(r.first_warp, r.first_warp + r.warps)}
            for index, warp in enumerate(w for w in range(kernel.warps) if w not in taken):
                agent = Agent(cta, None, index, warp, 1, len(self.agents), self.world.counts)
                agent.body = compiled.bodies[SETUP](self, agent)
                cta.agents.append(agent)
                self.agents.append(agent)

    def close(self) -> None:
        """Lets go of everything that refers to everything else, so that a launch's copies of its
        tensors are freed now.
        """
        self.agents.clear()
        for cta in self.ctas:
            cta.agents = []
            cta.slots, cta.bars, cta.named = [], [], []

    def holders(self) -> Iterator[Holder]:
        """Everything that holds knowledge of this cluster's accesses."""
        yield from self.agents
        for cta in self.ctas:
            yield from cta.bars
            yield from cta.named
        yield from (self.cluster, self.setup, *self.setup_of)
        for agent in self.agents:
            yield from agent.wgmma_groups  # the pending ones are among them
            yield from agent.wgmma_open
            if agent.tensor is not None:
                yield agent.tensor

    def returned(self, agent: Agent) -> None:
        """An agent's body has ended: barriers that wait for every agent no longer wait for it."""
        agent.done = True
        self.cluster.settle(self)
        self.setup.settle(self)
        self.setup_of[agent.cta.rank].settle(self)


def _cta(world: World, rank: int) -> Cta:
    cta = Cta(rank, world.grid, world.kernel.smem_bytes)
    slots_of = {
        id(buffer): [Slot(cta, buffer, i) for i in range(buffer.count)]
        for buffer in world.kernel.buffers
    }
    for buffer in world.kernel.buffers:
        cta.slots.extend(slots_of[id(buffer)])
        whole = buffer if buffer.shares is None else buffer.shares
        others = [b for b in world.kernel.buffers if b is not buffer and whole in (b, b.shares)]
        for tile in slots_of[id(buffer)] if others else ():
            tile.views = tile.given_views = tuple(slots_of[id(b)][tile.index] for b in others)
    if world.kernel.cta_group:
        cta.tmem = TensorMemory(cta)
        cta.slots.append(cta.tmem)
    bars: list[Mbarrier] = []
    for array in world.kernel.barriers:
        base = len(bars)
        by_parity = array.name in world.compiled.by_parity
        bars.extend(
            [
                Mbarrier(
                    cta,
                    array.name,
                    i,
                    array.size,
                    base + i,
                    by_parity,
                    address=array.offset + WORD_BYTES * i,
                )
                for i in range(array.size)
            ]
        )
    cta.bars = bars
    for named in world.kernel.named_barriers:
        copies = named.per_warpgroup
        cta.named.extend(
            NamedState(f"{named.name}[{i}]" if copies > 1 else named.name, named.threads)
            for i in range(copies)
        )
    return cta
