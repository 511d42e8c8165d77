"""IR -> Python source: for each role one generator function, compiled once per kernel.

The function of a role runs the set-up and then the role's body, for one agent. Every op that
touches barriers, memory or an asynchronous unit is `yield op, (site, threads, ...)`: the machine
performs `op(machine, agent, site, threads, ...)` and sends back its result. `threads` is a bit mask
over the agent's threads, constant wherever the execution scope is static.
"""

from __future__ import annotations

import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilepipe.ir import def_use, facts, ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import SmemBuffer, TensorParam
from tilepipe.ir.numbers import from_float, shl, shr
from tilepipe.ir.program import WARP, Kernel, Role as TracedRole, all_ops, blocks
from tilepipe.ir.ring_sides import ring_side
from tilepipe.machine.actors import Body, Role
from tilepipe.machine.agents import Agent
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.fragment_access import read_registers
from tilepipe.machine.memory.storage import rounded
from tilepipe.machine.program import AgentPlan, BarrierPlan, Program, RingSide
from tilepipe.machine.sites import SETUP
from tilepipe.machine.units.in_flight import Turned
from tilepipe.sim import bits, election, functions, integers, runtime
from tilepipe.sim.codegen import control, lanes, memory, synchronisation, tensor_cores, values
from tilepipe.sim.codegen.functions import CALLED, Function
from tilepipe.sim.sites import OpSite, describe
from tilepipe.sim.wording import TRACER

# Importing them registers what their ops become.
assert all((control, lanes, memory, synchronisation, tensor_cores, values))
# what generated code calls besides: of expressions, masks and places
_HELPERS: tuple[Callable[..., Any], ...] = (
    integers.fits,
    integers.all_fit,
    integers.quotient,
    integers.remainder,
    integers.divisions,
    integers.shl_all,
    integers.shr_all,
    integers.from_floats,
    functions.erf,
    functions.sigmoid,
    functions.rcp,
    functions.power,
    bits.bitcast,
    bits.interleaved,
    from_float,
    shl,
    shr,
    rounded,
    read_registers,
    runtime.lanes,
    runtime.all_lanes,
    runtime.whole_warps,
    runtime.at,
    runtime.rect_inside,
    runtime.tile_rect,
    Turned,
)
# (name, axis) -> value of a scalar parameter (axis -1) or of a tensor's extent
Params = Mapping[tuple[str, int], int | float]
StartBody = Callable[[Machine, Agent, Params], Body]
# the agents of warps in no role, which execute the set-up alone
IDLE = Role("idle warps", warpgroups=False, alone=False)


@dataclass(eq=False)
class Compiled:
    """A kernel as the machine runs it. Holds no reference to the `Kernel`, which is the key it is
    cached under.

    Attributes:
        source: the generated module. lines: its line number -> the kernel's line.
        sites: all ops, by id. bodies: role name (or SETUP, for idle warps) -> generator function.
        program: what the machine is given. tensor_uses: names of the tensors that the kernel
            writes, and reads. proxies: of those that it reaches by TMA, and by ordinary accesses.
        names: function of `source` -> the Python names in it, each with the object of the program
            that it stands for.
        lanes: those that are elected in turn, see `election`.
        reductions: the sites of atomic operations whose results nothing reads: they acquire
            nothing, as `red` (PTX ISA, Release and Acquire Patterns).
        bar_base, slot_base, named_base: where an array, a buffer, a named barrier starts in the
            CTA's flat lists.
    """

    source: str = ""
    lines: dict[int, Loc] = field(default_factory=dict)
    sites: list[OpSite] = field(default_factory=list)
    bodies: dict[str, StartBody] = field(default_factory=dict)
    names: dict[str, list[tuple[str, object]]] = field(default_factory=dict)
    bar_base: dict[str, int] = field(default_factory=dict)
    slot_base: dict[str, int] = field(default_factory=dict)
    lanes: tuple[int, ...] = (0,)
    reductions: frozenset[int] = frozenset()
    program: Program = field(init=False)
    tensor_uses: tuple[set[str], set[str]] = field(init=False)
    proxies: tuple[set[str], set[str]] = field(init=False)

    def bound(self, params: Params) -> Callable[[Machine, Agent], Body]:
        """What starts the body of an agent in a launch with these parameters."""

        def body(m: Machine, ag: Agent) -> Body:
            return self.bodies[SETUP if ag.role is IDLE else ag.role.name](m, ag, params)

        return body

    def located(self, error: BaseException) -> Loc | None:
        """The kernel's line whose generated code has raised an exception."""
        frames = [
            f
            for f in traceback.extract_tb(error.__traceback__)
            if f.filename.startswith("<simulated")
        ]
        return self.lines.get(frames[-1].lineno or 0) if frames else None


_cache: weakref.WeakKeyDictionary[Kernel, Compiled] = weakref.WeakKeyDictionary()


def compile_kernel(kernel: Kernel) -> Compiled:
    """The compiled form of a kernel, made when it is first asked for."""
    found = _cache.get(kernel)
    if found is None:
        found = _cache[kernel] = _Module(kernel).build()
    return found


def source(kernel: Kernel) -> str:
    """The generated Python of a kernel, for reading."""
    return compile_kernel(kernel).source


class _Module:
    """The tables that all functions of one kernel share."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.out = Compiled()
        self.namespace: dict[str, Any] = CALLED | {f.__name__: f for f in _HELPERS} | {"np": np}
        self.site_of: dict[int, OpSite] = {}
        self.named_base: dict[int, int] = {}
        self.bars: dict[int, int] = {}
        self.slots: dict[int, int] = {}
        self.constants: dict[tuple[str, object], str] = {}
        self.elects: int | None = None
        bar = slot = named = 0
        for array in kernel.barriers:
            self.bars[id(array)] = self.out.bar_base[array.name] = bar
            bar += array.size
        for buffer in kernel.buffers:
            self.slots[id(buffer)] = self.out.slot_base[buffer.name] = slot
            slot += buffer.count
        for barrier in kernel.named_barriers:
            self.named_base[id(barrier)] = named
            named += barrier.per_warpgroup
        self.tensors = {
            id(p): i for i, p in enumerate(p for p in kernel.params if isinstance(p, TensorParam))
        }
        waits = [o for o in all_ops(kernel) if isinstance(o, (ops.MbarWait, ops.MbarTryWait))]
        self.by_parity = frozenset(o.bar.array.name for o in waits if o.phase.dtype.kind != "phase")
        for role, block in blocks(kernel):
            name = SETUP if role is None else role.name
            for op, by_each in _in_order(role, block):
                number = len(self.out.sites)
                site = describe(op, number, name, self.tensors, self.by_parity, by_each)
                self.site_of[id(op)] = site
                self.out.sites.append(site)

    def build(self) -> Compiled:
        kernel = self.kernel
        self.out.program = self._program()
        uses = [(x.name, use) for site in self.out.sites for x, use in def_use.tensors(site.op)]
        self.out.tensor_uses = {n for n, u in uses if u.writes}, {n for n, u in uses if u.reads}
        by_tma = {n for n, u in uses if u.proxy is facts.Proxy.ASYNC}
        self.out.proxies = by_tma, {n for n, u in uses if u.proxy is facts.Proxy.GENERIC}
        self.out.lanes = election.lanes_of(kernel)
        reductions = def_use.reductions(kernel)
        self.out.reductions = frozenset(s.id for s in self.out.sites if s.op in reductions)
        self.elects = self.out.lanes[0] if len(self.out.lanes) == 1 else None
        functions = [Function(self, role) for role in kernel.roles]
        idle = Function(self, None)
        lines: list[str] = []
        for f in [*functions, idle]:
            self.out.names[f.name] = f.names.given
            for text, loc in f.lines():
                lines.append(text)
                if loc is not None:
                    self.out.lines[len(lines)] = loc
            lines.append("")
        self.out.source = "\n".join(lines) + "\n"
        exec(compile(self.out.source, f"<simulated {kernel.name}>", "exec"), self.namespace)
        for f in functions:
            assert f.role is not None
            self.out.bodies[f.role.name] = self.namespace[f.name]
        self.out.bodies[SETUP] = self.namespace[idle.name]
        return self.out

    def _program(self) -> Program:
        """What the machine must know of the kernel."""
        kernel, sites = self.kernel, self.out.sites
        kinds = {type(site.op) for site in sites}
        names = {array.name for array in kernel.barriers}
        return Program(
            cluster_size=kernel.cluster_size,
            agents=_agents(kernel),
            sites=sites,
            buffers=kernel.buffers,
            views=_views(kernel.buffers),
            barriers=[
                BarrierPlan(
                    a.name, a.size, a.offset, a.name in self.by_parity, _side(a.name, names)
                )
                for a in kernel.barriers
            ],
            named=[
                (f"{named.name}[{i}]" if named.per_warpgroup > 1 else named.name, named.threads)
                for named in kernel.named_barriers
                for i in range(named.per_warpgroup)
            ],
            smem_bytes=kernel.smem_bytes,
            tensor_memory=kernel.cta_group > 0,
            pairs=kernel.cta_group == 2,
            commits=ops.Tcgen05Commit in kinds,
            hands_on=ops.ClcQuery in kinds and any(site.near for site in sites),
            waits_itself=ops.GridDependencyWait in kinds,
            orders_clusters=any(_orders_clusters(site.op) for site in sites),
            shares_work=any(k.facts.takes in facts.SHARED_BY_CLUSTERS for k in kinds),
            words=TRACER,
        )

    def site(self, op: ops.Op) -> str:
        site = self.site_of[id(op)]
        name = f"S{site.id}"
        self.namespace[name] = site
        return name

    def constant(self, value: object, wish: str) -> str:
        key = (wish, id(value) if isinstance(value, DType) else str(value))
        if key not in self.constants:
            name = wish
            while name in self.namespace:
                name += "_"
            self.constants[key] = name
            self.namespace[name] = value
        return self.constants[key]


def _in_order(
    role: TracedRole | None, block: ops.Block, by_each: bool = True
) -> Iterator[tuple[ops.Op, bool]]:
    """Every op of a block in program order, with `Site.by_each`."""
    for op in block.ops:
        yield op, by_each
        one = isinstance(op, ops.Elect) and (
            role is not None
            and role.agents > 1
            and (op.scope == "role" or (op.scope == "warpgroup" and not role.is_warpgroup))
        )
        inside = by_each and not one and not isinstance(op, ops.If | ops.While)
        for name in op.blocks:
            yield from _in_order(role, getattr(op, name), inside)


def _orders_clusters(op: ops.Op) -> bool:
    """True if an op is of those by which one cluster can come after another."""
    match op:
        case ops.StrongLoad() | ops.StrongStore() | ops.Fence():
            return True
        case ops.Atomic():
            return op.order != "relaxed"
    return False


def _agents(kernel: Kernel) -> list[AgentPlan]:
    """The agents of a CTA: those of each role, then, where they matter, the warps in no role."""
    plans = []
    for role in kernel.roles:
        name = Role(role.name, role.is_warpgroup, role.agents == 1)
        each = role.agent_threads // WARP
        plans += [AgentPlan(name, i, role.first_warp + i * each, each) for i in range(role.agents)]
    if any(not _quiet(op) for op in kernel.setup.ops):
        taken = {w for r in kernel.roles for w in range(r.first_warp, r.first_warp + r.warps)}
        idle = [w for w in range(kernel.warps) if w not in taken]
        plans += [AgentPlan(IDLE, i, warp, 1) for i, warp in enumerate(idle)]
    return plans


def _side(name: str, names: set[str]) -> RingSide | None:
    found = ring_side(name, names)
    return None if found is None else RingSide(*found)


def _views(buffers: Sequence[SmemBuffer]) -> tuple[tuple[int, ...], ...]:
    """For each buffer, the numbers of the others that are views of the same bytes."""
    wholes = [buffer if buffer.shares is None else buffer.shares for buffer in buffers]
    return tuple(
        tuple(j for j, other in enumerate(wholes) if j != i and other is whole)
        for i, whole in enumerate(wholes)
    )


def _quiet(op: ops.Op) -> bool:
    """True if the idle warps may leave this set-up op out: one lane of the CTA does it, or it has
    no effect outside.
    """
    if isinstance(op, ops.Elect):
        return op.scope == "role"
    sets = op.bound or any(use.writes for use in op.uses.values())
    quiet = bool(sets) and not op.acts and not op.blocks
    return quiet or isinstance(op, ops.SetupBarrier | ops.FenceBarrierInit)
