"""The front end of a traced kernel: see `front_end.FrontEnd`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from tilepipe.check.key_encoding import digest
from tilepipe.check.proofs.guards import Guards, guards
from tilepipe.check.proofs.polling import Kind
from tilepipe.check.unreached import Coverage, Line
from tilepipe.errors import BindError
from tilepipe.ir import def_use, ops, printer
from tilepipe.ir.expressions import Const
from tilepipe.ir.memory import NamedBarrier, SmemBuffer, TensorParam
from tilepipe.ir.program import Kernel, Launch, Role, TensorArg, all_ops, blocks, walk
from tilepipe.machine.agents import Agent
from tilepipe.machine.cta import Cta
from tilepipe.machine.journal import Journal
from tilepipe.machine.machine import World
from tilepipe.machine.rules import Rules, require_rules
from tilepipe.machine.sites import Site
from tilepipe.sim.front_end import (
    TENSOR_MEMORY,
    KernelFrontEnd,
    OpSite,
    Thing,
    aliases,
    compile_kernel,
    place_of,
    thing_of,
    waiting_loops,
)

_STRONG = (ops.Atomic, ops.StrongLoad, ops.StrongStore)


class TracedFrontEnd(KernelFrontEnd):
    """A launch of a traced kernel: see `front_end.FrontEnd`.

    Attributes:
        launch: the launch, with copies of the arrays that the kernel writes.
        grid, clusters: the numbers of CTAs and of clusters of the grid.
        elected: the elected lane of executions that begin now.
        guards: the tests that are treated as the waits that they guard; none unless `decide` sets
            them.
        may_poll: whether a loop may poll an element of global memory.
        residents: how many clusters run at once, each number in turn where one may wait for
            another: nothing but a cooperative launch promises that they all do.
        kinds: the kind of each site, by id.
        adds: the ids of atomic adds whose results decide nothing: they commute.
        looked_at: the tensors, by number, of which strong accesses find what reductions do.
        waits_for_flags: whether loops that only wait for a value count as waits; no unless `decide`
            says so. flag_looks: the ids of the loads in such loops.
    """

    other_lanes: Sequence[int] = ()

    def __init__(self, launch: Launch, rules: Rules) -> None:
        written, _ = def_use.tensor_uses(launch.kernel)
        arrays = {
            n: a.array
            for n, a in launch.args.items()
            if isinstance(a, TensorArg) and isinstance(a.array, np.ndarray)
        }
        targets = [arrays[n] for n in written if n in arrays]
        self._given = {
            n: a for n, a in arrays.items() if any(np.may_share_memory(a, t) for t in targets)
        }
        copies: dict[int, np.ndarray] = {}
        for name, array in self._given.items():
            for other, kept in self._given.items():
                if other != name and kept is not array and np.may_share_memory(kept, array):
                    raise BindError(
                        f"arguments '{name}' and '{other}' share memory, and the kernel writes one"
                        " of them: pass copies"
                    )
            copies.setdefault(id(array), array.copy(order="K"))
        self._copies = {n: copies[id(a)] for n, a in self._given.items()}
        copied = {
            n: TensorArg(self._copies[n], a.shape)
            for n, a in launch.args.items()
            if isinstance(a, TensorArg) and n in self._copies
        }
        args = dict(launch.args) | copied
        super().__init__(replace(launch, args=args))
        self.rules = require_rules(rules)
        self.size = launch.kernel.cluster_size
        self.grid, self.clusters = launch.grid, launch.grid // self.size
        every = list(all_ops(launch.kernel))
        self.guards = Guards()
        self._tests = {s.id for s in self.sites if isinstance(s.op, ops.MbarTryWait)}
        self.looked_at = frozenset(
            site.tensor
            for site in self.sites
            if isinstance(site.op, _STRONG) and not self._only_adds(site)
        )
        self.kinds = self._kinds()
        self.adds = frozenset(s.id for s in self.sites if self._only_adds(s))
        setup = _written(launch.kernel.setup) & self.things
        self._written = {
            role.name: setup | (_written(role.body) & self.things) for role in launch.kernel.roles
        }
        looped = (op for loop in every if isinstance(loop, ops.While) for op in walk(loop.body))
        self.may_poll = any(self._looks(op) for op in looped)
        self.waits_for_flags = False
        self._waiting_loops = waiting_loops(compile_kernel(launch.kernel))
        flags = self._flags() if self._waiting_loops else set()
        self.flag_looks = frozenset(
            loop.site
            for loop in self._waiting_loops.values()
            if self.sites[loop.site].tensor in flags
        )
        self.elected = self.lanes[0]
        self.residents: Sequence[int] = (self.resident,)
        most = min(self.resident, self.clusters)
        if self.may_poll and not launch.kernel.cooperative:
            self.residents = range(most, 0, -1)

    @property
    def text(self) -> str:
        """The printed ops of the kernel, with their lines."""
        return printer.text(self.launch.kernel)

    @property
    def lines(self) -> dict[str, str]:
        """The lines of source that ops come from, by location."""
        return {op.loc.short: op.loc.source for op in all_ops(self.launch.kernel) if op.loc.source}

    @property
    def has_tests(self) -> bool:
        """True if the kernel has a try_wait that is not treated as a wait."""
        return not self._tests <= self.guards.tests.keys()

    def possible_guards(self) -> Guards:
        """The tests that may be treated as waits, by the text of the kernel."""
        return guards(self.launch.kernel, self.sites) if self._tests else Guards()

    def coverage(self, unmade: Collection[int]) -> Coverage:
        """The lines of source that hold ops, and were reached."""
        lines = self.lines_reached(unmade)
        return Coverage(
            frozenset(Line(*place) for place in lines.reached),
            {Line(*place): why for place, why in lines.unreached.items()},
        )

    def explained(self, error: Exception, agent: Agent, site: Site) -> Exception:
        """The error itself: every operand of a traced kernel has a value."""
        return error

    def standing(self, agent: Agent) -> str:
        """The innermost loop around the op that an agent performs next, and that op; "" where it is
        in no loop, and in a loop that performs no op.
        """
        if agent.request is None:
            return ""
        op = self.sites[agent.request[1][0].id].op
        loops = (at for at in all_ops(self.launch.kernel) if isinstance(at, ops.For | ops.While))
        around = [at for at in loops if any(inside is op for inside in walk(at.body))]
        return f"in the loop at {around[-1].loc.short}, at {op.loc}" if around else ""

    def _flags(self) -> set[int]:
        """The tensors, by number, whose contents only strong stores and atomic operations change:
        each change is a step that an exploration sees.
        """
        written: dict[int, bool] = {}
        params = [p for p in self.launch.kernel.params if isinstance(p, TensorParam)]
        for number, site in self._writes():
            written[number] = _is_strong(site) and written.get(number, True)
        alike = {params.index(p) for pair in aliases(self.launch) for p in pair}
        return {n for n, strong in written.items() if strong} - alike

    def _writes(self) -> Iterator[tuple[int, OpSite]]:
        """The ops that write tensors, with the number of the tensor."""
        params = [p for p in self.launch.kernel.params if isinstance(p, TensorParam)]
        for site in self.sites:
            for tensor, use in def_use.tensors(site.op):
                if use.writes:
                    yield params.index(tensor), site

    def unawaited(self) -> list[tuple[Site, str, list[OpSite]]]:
        """The looks of loops that only wait for a value, and yet do not count as waits; each with
        the name of the tensor, and the ops that write it and are not strong.
        """
        names = [p.name for p in self.launch.kernel.params if isinstance(p, TensorParam)]
        looks = {
            loop.site for loop in self._waiting_loops.values() if loop.site not in self.flag_looks
        }
        writes = list(self._writes())
        return [
            (
                look,
                names[look.tensor],
                [s for n, s in writes if n == look.tensor and not _is_strong(s)],
            )
            for look in (self.sites[site] for site in sorted(looks))
            if any(n == look.tensor for n, _ in writes)
        ]

    def ends_wait(self, agent: Agent) -> Callable[[object], bool] | None:
        """Whether a value ends the loop in which an agent is about to load, where that loop only
        waits; else None.
        """
        loop = self._waiting_loops.get(place_of(agent))
        return None if loop is None else partial(loop.is_over, agent)

    def _looks(self, op: ops.Op) -> bool:
        """True if a strong access may change nothing, and what it finds can come to decide
        something.
        """
        match op:
            case ops.Atomic(operation="add", value=Const(value=value)) if value:
                return False
            case ops.Atomic() | ops.StrongLoad():
                return op.result in self.things
        return False

    def world(self, journal: Journal | None) -> World:
        """The state at the start of an execution: all memory as it was given."""
        for name, given in self._given.items():
            np.copyto(self._copies[name], given)
        world = self.start(self.rules)
        world.journal = journal
        world.elected = self.elected
        world.silent = True
        world.looked_at = self.looked_at
        return world

    def polling_state(self, world: World, ctas: Iterable[Cta], ag: Agent) -> bytes:
        """A digest of all that decides what an agent does next, as long as no other agent does
        anything: its place, its live values, and the memory that its role writes.
        """
        written = self._written.get(ag.role_name, frozenset())
        memory: list[Hashable] = []
        if written:
            memory += [
                self.slot(s)
                for cta in ctas
                for s in cta.slots
                if s.buffer in written or s is cta.tmem
            ]
            memory += [self.tensor(t) for t in world.tensors if t.param in written]
        return digest((self.registers(ag), tuple(memory)))

    def _kinds(self) -> list[Kind]:
        loops = (op for op in all_ops(self.launch.kernel) if isinstance(op, ops.While))
        inside = {id(op) for loop in loops for op in walk(loop.body)}
        alone = _alone(self.launch.kernel)
        kinds = []
        for site in self.sites:
            kind = Kind.SILENT if id(site.op) in inside else Kind.OTHER
            if isinstance(site.op, ops.MbarTryWait):
                kind = Kind.TEST
            elif isinstance(site.op, _STRONG) or self._is_looked_at(site):
                kind = Kind.STRONG
            elif site.facts.noticed and not (
                isinstance(site.op, ops.NamedSync) and site.op.bar in alone
            ):
                kind = Kind.NOTICED
            kinds.append(kind)
        return kinds

    def _only_adds(self, site: OpSite) -> bool:
        """True if an op adds to elements, and what it finds there decides nothing."""
        decides = isinstance(site.op, ops.Atomic) and site.op.result in self.things
        return bool(site.adds) and not decides

    def _is_looked_at(self, site: OpSite) -> bool:
        """True if strong accesses find what the reduction of a fragment at this site does."""
        return isinstance(site.op, ops.FragmentReduceGlobal) and site.tensor in self.looked_at

    def given(self, number: int) -> np.ndarray:
        """The contents of a tensor at the start of each execution. `number`: its index among the
        tensors.
        """
        names = [p.name for p in self.launch.kernel.params if isinstance(p, TensorParam)]
        return self._given[names[number]]

    def output(self) -> dict[str, np.ndarray]:
        """The arrays that the last execution has written, by parameter."""
        return dict(self._copies)


def _is_strong(site: OpSite) -> bool:
    return isinstance(site.op, ops.StrongStore | ops.Atomic)


def _alone(kernel: Kernel) -> set[NamedBarrier]:
    """Named barriers that only the warps of one agent use: no other agent can observe them."""
    users: dict[NamedBarrier, list[Role | None]] = {}
    for role, block in blocks(kernel):
        for op in walk(block):
            if isinstance(op, ops.NamedSync | ops.NamedArrive):
                users.setdefault(op.bar, []).append(role)
    found = set()
    for bar, roles in users.items():
        role = roles[0]
        if role is None or any(r is not role for r in roles) or bar.threads != role.agent_threads:
            continue
        if role.agents == 1 or bar.per_warpgroup == role.agents:
            found.add(bar)
    return found


def _written(block: ops.Block) -> frozenset[Thing]:
    """The memory that the ops of a block write."""
    things = (thing_of(x) for op in walk(block) for x, use in def_use.used(op) if use.writes)
    return frozenset(
        x for x in things if isinstance(x, SmemBuffer | TensorParam) or x is TENSOR_MEMORY
    )
