"""Binding arguments to a kernel of PTX, and running it on the simulated machine."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from random import Random
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

from tilepipe.errors import BindError, PtxError, SimFault
from tilepipe.host_arguments import require_int, require_number, shown
from tilepipe.ir.chip import Chip
from tilepipe.ir.location import Loc
from tilepipe.machine import cost
from tilepipe.machine.agents import Agent
from tilepipe.machine.clusters import one_after_another, quiet_numbers, together
from tilepipe.machine.machine import Machine, World
from tilepipe.machine.memory.device_memory import DeviceMemory
from tilepipe.machine.program import Program
from tilepipe.machine.recorder import recorded_ctas
from tilepipe.machine.rules import LOADED_REGISTERS, Rules, require_rules
from tilepipe.machine.sites import Site
from tilepipe.ptx import isa as isa, limits  # `isa` registers what each opcode does
from tilepipe.ptx.arguments.values import Argument, Arguments, in_order, in_words
from tilepipe.ptx.compiler.compiled_function import CompiledFunction, compiled
from tilepipe.ptx.compiler.early_uses import WAIT_OF_LOAD, early_use
from tilepipe.ptx.definition import source_line, where
from tilepipe.ptx.execution import standing_lanes, timeouts
from tilepipe.ptx.execution.time_limit import TimeLimit
from tilepipe.ptx.execution.warp import Warp
from tilepipe.ptx.lanes import WARP
from tilepipe.ptx.limits import Extents
from tilepipe.ptx.machine_program import machine_program, site_of
from tilepipe.ptx.names import named_kernel, readable_name, shown_name
from tilepipe.ptx.placement import Addresses, Placement
from tilepipe.ptx.special_registers import lane_values
from tilepipe.ptx.starting_values import starting_values
from tilepipe.ptx.syntax.nodes import (
    Function,
    Instruction,
    Module,
)

if TYPE_CHECKING:
    from tilepipe.check.sensitivity.results import Sensitivity
    from tilepipe.check.verdict import Bounds, Fault, Reductions, Verdict
    from tilepipe.timeline import Timeline
    from tilepipe.timeline.recording import Recording

TIMEOUT_S = 60.0  # CPU seconds that a run takes at most, unless it is given another limit


@dataclass(frozen=True)
class Kernel:
    """An entry point of a module.

    Attributes:
        module: that it is in. function: its parsed form. file: the path of the text, or "<ptx>".
    """

    module: Module
    function: Function
    file: str

    @property
    def name(self) -> str:
        return self.function.name

    def __repr__(self) -> str:
        """Without the text and the instructions, which may be megabytes."""
        name = shown_name(readable_name(self.name), 40)
        parameters = ", ".join(f".{p.type} {p.name}" for p in self.function.parameters)
        return f"<ptx.Kernel {name}({shown_name(parameters, 120)}) of {self.file}>"

    @property
    def chip(self) -> Chip:
        """The chip that its module is for."""
        return limits.chip_of(self.module.targets)

    @cached_property
    def code(self) -> CompiledFunction:
        """The function, compiled.

        Raises:
            PtxError: it uses an instruction that is not modelled, or what nothing defines.
        """
        for instruction in self.function.instructions:
            if reason := limits.wrong_target(instruction.opcode, self.module.targets):
                raise PtxError(f"{where(instruction)}: {instruction.name}: {reason}")
        return compiled(self.function, self.module.functions)

    def bind(
        self,
        args: Arguments,
        *,
        grid: SupportsIndex | Sequence[SupportsIndex],
        block: SupportsIndex | Sequence[SupportsIndex] | None = None,
        cluster: SupportsIndex | Sequence[SupportsIndex] | None = None,
        smem: int = 0,
        cooperative: bool = False,
        chip: Chip | None = None,
    ) -> Launch:
        """A launch with these arguments.

        Args:
            args: in the order of the parameters, or by their names: arrays and tensor maps,
                numbers, structs, raw bytes, None for a null pointer.
            grid, block, cluster: extents in CTAs, threads and CTAs: one to three integers. What
                the kernel itself says where not given: the block that it requires (`.reqntid`)
                or else its largest (`.maxntid`), and the cluster (`.reqnctapercluster`).
            smem: bytes of dynamic shared memory.
            cooperative: all CTAs run at once, as cudaLaunchCooperativeKernel promises: for kernels
                whose CTAs may wait for any other. Without it they start in the order of their
                numbers, and a check tries every number of clusters that run at once.
            chip: what it runs on, as far as the number of CTAs that run at once and clock rates
                go; an H200 or a B200 where not given.

        Raises:
            BindError: an argument does not fit its parameter, extents do not fit each other or the
                kernel, memory is too small, or the CTAs of a cooperative launch do not all fit.
            PtxError: the kernel uses what is not modelled, or what nothing defines.
        """
        directives = self.function.directives
        if block is None:
            block = directives.get("reqntid") or directives.get("maxntid")
            if not block:
                name = named_kernel(self.name)
                raise BindError(f"block: {name} does not say how many threads it has")
        if cluster is None:
            cluster = directives.get("reqnctapercluster") or None
        ctas, threads = limits.extents("grid", grid), limits.extents("block", block)
        size = limits.extents("cluster", 1 if cluster is None else cluster)
        limits.check(directives, ctas, threads, size, named=cluster is not None)
        smem = require_int(smem, "smem", 0)
        given = in_order(self.name, self.function.parameters, args)
        if not isinstance(cooperative, bool):
            raise BindError(f"cooperative is True or False, got {shown(cooperative)}")
        launch = Launch(self, given, ctas, threads, size, smem, cooperative, chip or self.chip)
        most = launch.resident * prod(size)
        if cooperative and prod(ctas) > most:
            raise BindError(
                f"all CTAs of a cooperative launch run at once; {launch.chip.name} holds {most} of"
                f" {named_kernel(self.name)}, by shared memory and threads, and the grid has"
                f" {prod(ctas)}"
            )
        return launch


@dataclass(eq=False)
class Launch:
    """A kernel with arguments.

    Attributes:
        placed: where its variables and parameters are. rules, printed, advice: of the latest run;
            advice is what only the strict rules refuse. timeline: of the latest run, where it was
            asked for. fenced_maps: (CTA, address of a tensor
            map) -> how many accesses to its allocation there had been at the CTA's last
            fence.proxy.tensormap on it.
    """

    kernel: Kernel
    args: tuple[Argument, ...]
    grid: Extents
    block: Extents
    cluster: Extents
    smem: int
    cooperative: bool
    chip: Chip
    placed: Placement = field(init=False)
    fenced_maps: dict[tuple[int, int], int] = field(init=False, default_factory=dict)
    rules: Rules = field(init=False, default="practice")
    timeline: Timeline | None = field(init=False, default=None, repr=False)
    printed: list[str] = field(init=False, default_factory=list)
    advice: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        module, function = self.kernel.module, self.kernel.code.function
        self.placed = Placement(module, function, self.args, self.smem, self.chip.smem_per_cta)
        if self.cooperative:
            self.placed.add_workspace()

    @property
    def memory(self) -> DeviceMemory:
        return self.placed.memory

    @property
    def resident(self) -> int:
        """How many clusters run at once: one CTA on each SM, or, of a cooperative launch, as many
        as shared memory and threads leave room for.
        """
        occupancy = self.chip.occupancy(self.placed.smem_bytes, prod(self.block))
        at_once = self.chip.resident_clusters(prod(self.cluster))
        return max(at_once * occupancy if self.cooperative else at_once, 1)

    @property
    def parameters(self) -> bytes:
        """The bytes of the parameters."""
        return self.placed.parameters

    def map_bytes(self, address: int) -> tuple[bytes, str]:
        """The 128 bytes at an offset among the parameters, and what messages call them."""
        return self.placed.map_bytes(address)

    def run(
        self,
        seed: int = 0,
        *,
        rules: Rules = "practice",
        timeout: float | None = TIMEOUT_S,
        timeline: bool | int = False,
    ) -> int:
        """Runs the launch and writes into the arrays of its arguments. Returns the steps taken.

        Args:
            seed: 0 is one fixed order; any other picks an interleaving.
            rules: "practice", what shipped compilers rely on, or "strict", the PTX ISA to the
                letter.
            timeout: CPU seconds after which an unfinished run is abandoned; None: no limit.
            timeline: record when copies, MMAs and waits happen, of all CTAs, or of so many, from
                the first on: the attribute `timeline`, docs/reference/timeline.md.

        Raises:
            BindError: an argument that is not of its type.
            SimFault: a fault of the program (RaceError, BarrierError and PoisonError are such).
            DeadlockError: what is left waits, or polls, for what nothing can bring.
            UnfinishedError: the run did not finish in time.
            PtxError: the kernel does what is not modelled.
        """
        seed = require_int(seed, "seed", 0, sys.maxsize)
        if timeout is not None and not (timeout := require_number(timeout, "timeout")) > 0:
            raise BindError(f"timeout is a number of seconds above 0, or None; got {timeout:g}")
        recording = self._recording(timeline)
        time_limit = TimeLimit.of(timeout)
        world = self.start(rules, time_limit)
        world.recorder = recording
        order = list(range(world.grid // world.program.cluster_size))
        random = Random(seed) if seed else None
        # where clusters order each other, one may wait for those that start before it
        if random is not None and not world.program.orders_clusters:
            random.shuffle(order)
        with quiet_numbers():
            try:
                if world.program.shares_work:
                    found = together(world, order, self.resident, random, lambda m: None)
                else:
                    found = one_after_another(world, order, random, lambda m: None)
            except (TypeError, AttributeError, ValueError, OverflowError, IndexError) as error:
                raise self.explained(error) from error
            except SimFault as fault:
                if recording is not None:
                    name = readable_name(self.kernel.name)
                    fault.timeline = recording.until(str(fault), name)
                raise
        steps, cycles = found
        self.timeline = None
        if recording is not None:
            per_sm = self.chip.occupancy(self.placed.smem_bytes, prod(self.block))
            dram = sum(tensor.array.nbytes for tensor in world.tensors)
            us = cost.makespan(self.chip, cycles, prod(self.cluster), per_sm, dram)
            self.timeline = recording.timeline(readable_name(self.kernel.name), us)
        return steps

    def _recording(self, timeline: bool | int) -> Recording | None:
        """The recorder of a run that is asked for a timeline."""
        ctas = recorded_ctas(timeline, prod(self.grid))
        if ctas is None:
            return None
        from tilepipe.timeline.recording import Recording

        return Recording(prod(self.grid), ctas, self.chip.clock_ghz * 1e3)

    def check(
        self,
        *,
        explore: bool = False,
        bounds: Bounds | None = None,
        reductions: Reductions | None = None,
        rules: Rules = "practice",
        instance: str = "",
        progress: Callable[[int, int], None] | None = None,
    ) -> Verdict:
        """Checks every interleaving of the launch: verified, a fault with its counterexample, or
        undecided. It starts from what the arrays hold, and leaves them as they are.

        Args:
            explore: explore even where the facts of one execution would do.
            bounds: when to give up, undecided. reductions: what an exploration may leave out.
            rules: as for `run`.
            instance: what the verdict calls it.
            progress: called with (executions done, executions that are known to be left).

        Raises:
            BindError: an argument that is not of its type.
        """
        from tilepipe import check

        return check.check(
            self,
            explore=explore,
            bounds=check.Bounds() if bounds is None else bounds,
            reductions=check.Reductions() if reductions is None else reductions,
            rules=rules,
            instance=instance,
            progress=progress,
        )

    def replay(self, fault: Fault | Verdict, *, rules: Rules = "practice") -> SimFault | None:
        """Executes the schedule of a fault that `check` found: the fault it ends in, or None.

        Raises:
            BindError: no fault, or a verdict that has not exactly one.
        """
        from tilepipe import check
        from tilepipe.check.verdict import fault_to_replay

        return check.replay(self, fault_to_replay(fault).schedule, rules=rules)

    def sensitivity(self, **options: Any) -> Sensitivity:
        """The purpose of each synchronising instruction: see `check.sensitivity.report`,
        which takes the options.
        """
        from tilepipe.check.sensitivity import report

        return report(self, **options)

    def __str__(self) -> str:
        """`doubled of x (64,), factor 2.0, grid 4, block 128, clusters of 2`."""
        parameters = self.kernel.function.parameters
        name = shown_name(readable_name(self.kernel.name), 40)
        given = ", ".join(in_words(p, a) for p, a in zip(parameters, self.args, strict=True))
        size = f", clusters of {_shape(self.cluster)}" if prod(self.cluster) > 1 else ""
        return (
            f"{name}{f' of {given}' if given else ''}, grid {_shape(self.grid)}, block"
            f" {_shape(self.block)}{size}"
        )

    def on_copies(self) -> Launch:
        """The same launch on copies of its memory, for executions that may be repeated."""
        made = copy.copy(self)
        made.placed = copy.copy(self.placed)
        made.placed.memory = self.memory.copied()
        made.fenced_maps = {}
        return made

    def start(self, rules: Rules, time_limit: TimeLimit, kind: type[Warp] = Warp) -> World:
        """The state that all clusters of the launch share, at its start. Memory keeps what it
        holds. `kind`: of the warps.
        """
        self.rules = require_rules(rules)
        program, sites = self.program, self.sites
        self.memory.forget()
        self.fenced_maps.clear()

        def body(m: Machine, agent: Agent) -> Warp:
            warp = self._warp(kind, m, agent, sites)
            warp.time_limit = time_limit
            return warp

        world = World(
            program,
            body,
            self.chip,
            prod(self.grid),
            self.memory.tensors,
            self.rules,
            undecided=timeouts.undecided(self.kernel.code),
            separated=standing_lanes.separated,
        )
        world.standing = _standing
        world.unread = self._reductions
        time_limit.world = world
        self.advice, self.printed = world.advice, world.printed
        if not world.asks(LOADED_REGISTERS):
            for instruction, register in self.kernel.code.early_uses.uses:
                finding = early_use(instruction, register)
                world.finding(
                    LOADED_REGISTERS, finding, self.location(instruction), WAIT_OF_LOAD, SimFault
                )
        return world

    @cached_property
    def sites(self) -> list[Site]:
        """The instructions that make requests, as the machine knows them."""
        sites = self.kernel.code.sites.values()
        return [site_of(s, self.location(s.instruction)) for s in sites]

    @cached_property
    def _reductions(self) -> frozenset[int]:
        """The sites of `red`, whose read forms no acquire pattern, not even with a fence after it
        (PTX ISA, Release and Acquire Patterns).
        """
        sites = self.kernel.code.sites.values()
        return frozenset(s.number for s in sites if s.instruction.opcode == "red")

    @cached_property
    def program(self) -> Program:
        """The kernel as the machine runs it."""
        return machine_program(
            self.kernel.code,
            self.sites,
            self.grid,
            self.block,
            self.cluster,
            self.placed,
            self.smem,
        )

    def explained(self, error: Exception) -> Exception:
        """The fault of the program that an error in the machine shows: the request that it carried
        out has an operand from an uninitialised register.
        """
        return self.explained_at(error, *getattr(error, "performing", (None, None)))

    def explained_at(self, error: Exception, warp: object, site: object) -> Exception:
        """The same of an error in the request of a site."""
        if isinstance(warp, Warp) and isinstance(site, Site):
            for made in self.kernel.code.sites.values():
                if made.number == site.id:
                    return warp.explained_request(error, made.instruction)
        return error

    def location(self, instruction: Instruction) -> Loc:
        """The line of source that an instruction comes from (`source_line`), or that of the PTX."""
        return source_line(instruction) or Loc(self.kernel.file, instruction.line)

    def source_of(self, instruction: Instruction) -> tuple[Loc, str]:
        """The line of source that an instruction comes from, and its text; that of the PTX where
        the file of the source cannot be read.
        """
        loc = self.location(instruction)
        lines = self.kernel.module.text.split("\n", instruction.line)
        return loc, loc.source or lines[instruction.line - 1].strip()

    def _warp(self, kind: type[Warp], m: Machine, agent: Agent, sites: list[Site]) -> Warp:
        """A warp at the start of the kernel."""
        threads = prod(self.block)
        first = agent.first_warp * WARP
        live = (1 << min(threads - first, WARP)) - 1
        warp = kind(self.kernel.code, live, self, agent)
        warp.sites = sites
        warp.poison.machine = m
        warp.local = np.zeros((WARP, self.placed.local_bytes), np.uint8)
        warp.written = np.zeros(warp.local.shape, np.bool_)
        warp.rank = agent.cta.rank
        warp.special = starting_values(
            agent, m.world, self.grid, self.block, self.cluster, self.placed, self.smem, self.chip
        )
        warp.special_by_lane = lane_values(self.block, agent.first_warp)
        warp.addresses = Addresses(self.placed, self.kernel.code.variables, warp.rank)
        return warp


def _shape(extents: Extents) -> str:
    """`4`, `4×2`: without the ones at the end."""
    x, y, z = extents
    return "×".join(map(str, (x, y, z) if z > 1 else (x, y) if y > 1 else (x,)))


def _standing(agent: Agent) -> Hashable:
    """Where a warp stands, with all that it holds in registers."""
    warp: Any = agent.body
    found: Hashable = warp.snapshot()
    return found
