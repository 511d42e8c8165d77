"""The machine: one cluster of CTAs at a time, with its agents, asynchronous units and the order
between their accesses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

from tilepipe.errors import NotModelledError, PoisonError, RaceError, SimFault
from tilepipe.ir.chip import Chip
from tilepipe.ir.location import Loc
from tilepipe.machine.actors import Actor, Body
from tilepipe.machine.advice import Advice, add
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.state import WORD_BYTES, Mbarrier, NamedState, Rendezvous
from tilepipe.machine.cta import Cta
from tilepipe.machine.grid_state import Clusters, GridRequests
from tilepipe.machine.happens_before.accesses import Access, AccessBits, Holder
from tilepipe.machine.happens_before.memory_order import Fences, Recent
from tilepipe.machine.journal import Journal
from tilepipe.machine.memory.global_memory import GlobalTensor
from tilepipe.machine.memory.tensor_memory import TensorMemory
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.program import Program
from tilepipe.machine.recorder import Recorder
from tilepipe.machine.rules import Rule, Rules, asks
from tilepipe.machine.separated_lanes import SeparatedLanes
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import Queued, Unit, UnitQueue

# (machine, agents that wait, mbarriers that they wait on -> ops that could bring what those lack)
# -> what to say in place of a deadlock that the front end's model cannot decide
Undecided = Callable[["Machine", list[Agent], dict[Mbarrier, list[Site]]], NotModelledError | None]
# (machine, agent) -> its lanes that stand where they do until others of it come
Separated = Callable[["Machine", Agent], Iterable[SeparatedLanes]]
# an exception in code of the front end's -> the line of the program
Located = Callable[[BaseException], Loc | None]


class OutOfTimeError(Exception):
    """`World.deadline` has passed in code of a body that performs no op."""


@dataclass
class World:
    """The state that all clusters of a launch share.

    Attributes:
        body: starts the body of an agent.
        outside: of each line that moves fragments of a tensor, by its number, where the first one
            lay; None: one had an element inside (`memory.outside`).
        counts: executions per site. blocked: those of them that did not pass at once.
        rules: "practice" or "strict"; strict: whether it is the latter (`rules`).
        recorder: is told when things happen, where that is recorded.
        clusters: those that have not started, where clusters run together (`clusters`).
        incomplete: why a race may have gone unseen; "" where none can have. silent: what the kernel
            prints is kept, not shown.
        deadline: of `time.perf_counter`, looked at in loops of the program that perform no op;
            None: there is none.
        elected: the lane that elect.sync elects wherever it is active.
        journal: is notified of each step that other agents can notice, where executions are
            explored.
        order: the bits of the accesses of all clusters, where strong accesses may order one cluster
            after another; None: each has its own. machines: then those that run.
        seen: the latest values of strong writes that threads have read, for messages.
        unread: the sites of atomic operations that acquire nothing: reductions; and, in an
            exploration, additions of which no thread looks at what they find.
        looks: the program has strong accesses that find what reductions of boxes and asynchronous
            ones do; of an exploration. looked_at: the tensors, by number, of which that is known.
        standing: all that decides what an agent does next, but for memory that others reach, in a
            form that `==` compares; None: the front end does not say.
        undecided: what the front end says of a deadlock that its model cannot decide. separated:
            the lanes of an agent which stand where they do until others of it come. located: the
            line of the program at which the front end's code has raised an exception.
    """

    program: Program
    body: Callable[[Machine, Agent], Body]
    chip: Chip
    grid: int
    tensors: list[GlobalTensor]
    rules: Rules = "practice"
    recorder: Recorder | None = None
    advice: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    outside: dict[tuple[Loc, int], tuple[int, ...] | None] = field(default_factory=dict)
    clusters: Clusters | None = None
    incomplete: str = ""
    silent: bool = False
    journal: Journal | None = None
    deadline: float | None = None
    elected: int = 0
    standing: Callable[[Agent], Hashable | None] = lambda agent: None
    undecided: Undecided = lambda m, stuck, sources: None
    separated: Separated = lambda m, agent: ()
    located: Located = lambda error: None
    counts: list[int] = field(init=False)
    blocked: list[int] = field(init=False)
    order: AccessBits | None = field(default=None, init=False)
    machines: list[Machine] = field(default_factory=list, init=False)
    seen: Recent = field(default_factory=Recent, init=False)
    unread: frozenset[int] = field(default=frozenset(), init=False)
    looks: bool = field(default=False, init=False)
    looked_at: frozenset[int] = field(default=frozenset(), init=False)
    _findings: set[tuple[str, int, int]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.counts = [0] * len(self.program.sites)
        self.blocked = [0] * len(self.program.sites)
        if self.program.orders_clusters:
            self.order = AccessBits(self._all_holders)
            for tensor in self.tensors:
                if tensor.order is not None:
                    tensor.order.presents = []

    def _all_holders(self) -> Iterator[Holder]:
        for machine in self.machines:
            yield from machine.holders()
        yield from self.holders()

    def holders(self) -> Iterator[Holder]:
        """The holders of knowledge that belong to no cluster."""
        yield self.seen
        for tensor in self.tensors:
            if tensor.order is not None:
                yield from tensor.order.values.values()

    def looks_at(self, site: Site) -> bool:
        """True if strong accesses find what a reduction at this site does."""
        return self.looks or site.tensor in self.looked_at

    def advise(self, text: str) -> None:
        """Adds a line of advice, once."""
        add(self.advice, [text])

    def asks(self, rule: Rule) -> bool:
        """True if the rules of this launch ask for what `rule` asks for: see `rules.asks`."""
        return asks(self.rules, rule)

    def advised(self, rule: Rule, first: Site, second: Site) -> bool:
        """True if a finding between two ops is advice that has been given, or is not looked for:
        its text need not be made.
        """
        if self.asks(rule):
            return False
        key = (rule.name, first.id, second.id)
        if rule.practice == "silent" or key in self._findings:
            return True
        self._findings.add(key)
        return False

    def finding(
        self,
        rule: Rule,
        text: str,
        loc: Loc,
        cure: str,
        error: type[SimFault] = RaceError,
        *,
        first: Loc | None = None,
    ) -> None:
        """A finding that only the strict rules refuse: a fault under them, advice in practice.

        Args:
            text: what happened and where, without a full stop. cure: what to change, a sentence.
            first: where the other of two ops is; advice about the same lines is one entry.

        Raises:
            error: the rules are strict.
        """
        if self.asks(rule):
            raise self.refused(rule, text, loc, cure, error)
        lines = tuple(dict.fromkeys(at.short for at in (first, loc) if at is not None))
        said = f'{rule.name} (a fault with rules="strict"): {text}. {cure}'
        self.advise(Advice(rule.name, lines, (said,)))

    @staticmethod
    def refused(
        rule: Rule, text: str, loc: Loc, cure: str, error: type[SimFault] = RaceError
    ) -> SimFault:
        """The fault that a finding is under the strict rules."""
        return error(f"strict rules, {rule.name}: {text}.\n  {cure}", loc)

    def show(self, line: str) -> None:
        """A line that the kernel prints."""
        self.printed.append(line)
        if not self.silent:
            print(line)


class Machine:
    """One cluster, from the start of its CTAs to their exit.

    Attributes:
        ready: agents that can take a step. polling: those of them whose last test failed; they let
            the others go first.
        pending: asynchronous units that may act, oldest first.
        published: the fences of its agents.
        stuck: all that is left polls, and can go on only once something else changes memory. moved:
            the last run of it has changed something.
        initialised_in_roles: live mbarriers that were initialised in a role.
        poisoned, poison_at: the first read of poison, reported at the end unless a race explains
            it.
    """

    def __init__(self, world: World, cluster_id: int = 0) -> None:
        self.world = world
        self.journal = world.journal
        size = world.program.cluster_size
        self.num_clusters = world.grid // size
        self.ctas = [_cta(world, rank) for rank in range(size)]
        self.published = Fences()
        self.ready: deque[Agent] = deque()
        self.polling: deque[Agent] = deque()
        self.pending: deque[Unit] = deque()
        self.agents: list[Agent] = []
        if world.order is not None:
            world.machines.append(self)
        self.start(cluster_id)

    def start(self, cluster_id: int) -> None:
        """A new cluster takes the place of the one before: its shared memory is poison, its
        barriers are not initialised.
        """
        if self.world.order is not None:
            self.order = self.world.order
            self._retire_accesses()
        self.cluster_id = cluster_id
        self.order = self.world.order or AccessBits(self._all_holders)
        self.published = Fences()
        self.stuck = self.moved = False
        self.requests = GridRequests()
        self.initialised_in_roles: list[Mbarrier] = []
        self.poisoned: PoisonError | None = None
        self.poison_at: Access | None = None
        for tensor in self.world.tensors:
            if tensor.order is not None:
                tensor.order.start()
        self.ready.clear()
        self.polling.clear()
        self.pending.clear()
        self.agents = []
        for cta in self.ctas:
            self._start_cta(cta)
        self.cluster = Rendezvous("the cluster barrier", self.agents)
        self.setup = Rendezvous("the end of set-up", self.agents)
        self.setup_of = [Rendezvous("the end of set-up", cta.agents) for cta in self.ctas]
        self.ready.extend(self.agents)

    def in_turn(self, thing: Hashable, mask: int, changes: bool) -> None:
        """Reports a step to an exploration, if there is one: see `Journal.in_turn`."""
        if self.journal is not None:
            self.journal.in_turn(thing, mask, changes)

    def _start_cta(self, cta: Cta) -> None:
        cta.block_id = self.cluster_id * len(self.ctas) + cta.rank
        cta.tma_free = cta.tensor_free = 0.0
        cta.arrivals = {}
        cta.warpgroups = {}
        for slot in cta.slots:
            slot.reset()
        for slot in cta.aliased:
            cta.bytes().join(slot)
        for bar in cta.bars:
            bar.reset()
            bar.completions = 0
        for named in cta.named:
            named.reset()
        cta.agents = []
        for plan in self.world.program.agents:
            agent = Agent(
                cta,
                plan.role,
                plan.index,
                plan.first_warp,
                plan.warps,
                len(self.agents),
                self.world.counts,
            )
            agent.shares = self.order
            agent.body = self.world.body(self, agent)
            cta.agents.append(agent)
            self.agents.append(agent)

    def close(self) -> None:
        """Breaks the references between agents, CTAs and tiles, so that a launch's copies of its
        tensors are freed now.
        """
        if self.world.order is not None:
            self._retire_accesses()
            self.world.machines.remove(self)
        self.agents.clear()
        for cta in self.ctas:
            cta.agents = []
            cta.slots, cta.bars, cta.named = [], [], []

    def _retire_accesses(self) -> None:
        """Of a cluster that has ended nobody asks any more who accessed its shared memory."""
        for fence in self.published.made:
            self.order.retire_bit(fence.mark)
        for agent in self.agents:
            for seen in agent.seen.seen if agent.seen is not None else ():
                self.order.retire_bit(seen.mark)
        for cta in self.ctas:
            for slot in cta.slots:
                for access in slot.accesses:
                    self.order.retire(access)
                slot.clear()
            for bar in cta.bars:
                self.order.retire_bit(
                    bar.init_bit | bar.fenced | bar.proxy_bit | sum(set(bar.completion_bits))
                )
            for named in cta.named:
                self.order.retire_bit(named.reset_bit)

    def _all_holders(self) -> Iterator[Holder]:
        yield from self.holders()
        yield from self.world.holders()

    def holders(self) -> Iterator[Holder]:
        """Everything of this cluster that holds knowledge of accesses."""
        yield self.published
        for cta in self.ctas:
            if cta.space is not None:
                yield from cta.space.values.values()
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
            if agent.copies is not None:
                yield agent.copies

    def no_cta_of(self, rank: int) -> str:
        """The message about a rank outside the cluster."""
        size = len(self.ctas)
        has = "1 CTA" if size == 1 else f"{size} CTAs"
        return f"no CTA of rank {rank}: the cluster has {has} (ranks 0..{size - 1})"

    def wake(self, waiters: Iterable[Actor]) -> None:
        """The event that agents waited for has happened: they can take a step again."""
        self.ready.extend(waiters)  # type: ignore[arg-type]  # every actor is one of its agents

    def issue(self, queue: UnitQueue, unit: Queued) -> None:
        """The unit may act from now on, after those before it in its queue."""
        queue.waiting.append(unit)
        self.pending.append(queue)


def _cta(world: World, rank: int) -> Cta:
    program = world.program
    cta = Cta(
        rank, world.grid, program.smem_bytes, program.words, program.shared_names,
        addressed=program.addressed,
    )  # fmt: skip
    tiles = [[Slot(cta, buffer, i) for i in range(buffer.count)] for buffer in program.buffers]
    for slots in tiles:
        cta.slots.extend(slots)
    for slots, views in zip(tiles, program.views, strict=False):
        for slot in slots if views else ():
            slot.views = slot.given_views = tuple(tiles[view][slot.index] for view in views)
    _find_aliases(cta)
    if program.tensor_memory:
        cta.tmem = TensorMemory(cta)
        cta.slots.append(cta.tmem)
    bars: list[Mbarrier] = []
    for array in program.barriers:
        base = len(bars)
        bars += [
            Mbarrier(
                cta, array.name, i, array.size, base + i, array.by_parity,
                address=array.offset + WORD_BYTES * i, side=array.side,
            )
            for i in range(array.size)
        ]  # fmt: skip
    if not program.addressed:
        cta.bars = bars
    cta.named.extend(NamedState(name, threads) for name, threads in program.named)
    return cta


def _find_aliases(cta: Cta) -> None:
    """Finds typed tiles that overlap others. Views of one slot keep contents of their own; any
    other overlap is decided, and read and written, byte by byte.
    """
    placed = sorted((s for s in cta.slots if s.base >= 0), key=lambda s: s.base)
    for number, slot in enumerate(placed):
        for other in placed[number + 1 :]:
            if other.base >= slot.end:
                break
            if other not in slot.given_views:
                slot.given_views = (*slot.given_views, other)
                other.given_views = (*other.given_views, slot)
                cta.aliased += [s for s in (slot, other) if s not in cta.aliased]
