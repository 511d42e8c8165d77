"""Running a launch on the simulated machine."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property, partial
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np

from tilepipe.errors import BindError, SimFault
from tilepipe.host_arguments import plain_int, shown
from tilepipe.ir.chip import H200, Chip
from tilepipe.ir.memory import TensorParam
from tilepipe.ir.program import Kernel, Launch, TensorArg
from tilepipe.machine import cost
from tilepipe.machine.agents import Agent
from tilepipe.machine.calibration import Demand, costs
from tilepipe.machine.clusters import one_after_another, quiet_numbers, together
from tilepipe.machine.machine import Machine, World
from tilepipe.machine.memory.global_memory import GlobalTensor
from tilepipe.machine.memory.outside import never_inside
from tilepipe.machine.recorder import OnEvent, Recorder, UnitEvents, recorded_ctas
from tilepipe.machine.rules import Rules, require_rules
from tilepipe.sim import lane_deadlocks
from tilepipe.sim.analysis.data_flow import DecidingData
from tilepipe.sim.analysis.live_locals import place
from tilepipe.sim.arithmetic import elements
from tilepipe.sim.codegen.module import Compiled, Params, compile_kernel
from tilepipe.sim.role_stats import RoleStats as RoleStats, role_stats
from tilepipe.sim.sites import OpSite

if TYPE_CHECKING:
    from tilepipe.timeline import Timeline
    from tilepipe.timeline.recording import Recording


@dataclass(frozen=True)
class Run:
    """A run that found no fault.

    Attributes:
        roles: what each role did.
        completions: mbarrier array -> for each CTA of the grid, how many phases of each of its
            barriers completed; nothing of CTAs that were cancelled.
        advice: what is right but should be written otherwise.
        printed: the lines that the kernel printed.
        simulated_us: time by the cost model. steps: ops and asynchronous units performed.
        timeline: when copies, MMAs and waits happened, where `run` was asked for it.
    """

    roles: list[RoleStats]
    completions: dict[str, list[list[int]]]
    advice: list[str]
    printed: list[str]
    simulated_us: float
    steps: int
    seed: int
    timeline: Timeline | None = field(default=None, repr=False)
    _demand: Callable[[], Demand] | None = field(default=None, repr=False, compare=False)
    _chip: Chip = field(default=H200, repr=False, compare=False)

    @cached_property
    def demand(self) -> Demand:
        """What the launch asks of the chip: copies and MMAs, memory, arithmetic in registers."""
        assert self._demand is not None
        return self._demand()

    @property
    def predicted_us(self) -> float:
        """The time that the launch is likely to take on its chip: what the simulator says, and
        arithmetic in registers, at costs that are fitted to times measured on an H200.

        For an H100, a B200 or another chip, what depends on its clock, its SMs and its memory is
        its own, and the costs are those of the H200: nobody has measured how far off they are.
        """
        return costs(self._chip).predicted_us(self.demand)

    def __repr__(self) -> str:
        roles = ", ".join(role.name for role in self.roles) or "no roles"
        advice = f", {len(self.advice)} advice" if self.advice else ""
        return (
            f"<Run ({roles}): {self.simulated_us:.1f} µs modelled, {self.steps:,} steps, seed"
            f" {self.seed}{advice}>"
        )

    def _repr_html_(self) -> str:
        from tilepipe.sim.page import part

        head = (
            f"{self.simulated_us:.1f} µs by the cost model, {self.steps:,} steps, seed {self.seed}"
        )
        return part(head, self.roles, self.timeline, self.advice, self.printed)


def run(
    launch: Launch,
    *,
    seed: int = 0,
    rules: Rules = "practice",
    progress: Callable[[int, int], None] | None = None,
    on_event: OnEvent | None = None,
    timeline: bool | int = False,
) -> Run:
    """Runs a launch and writes the results into the arrays of its arguments.

    Args:
        seed: 0 is one fixed order; any other picks an interleaving, and the lane that elect.sync
            elects, always the same ones for the same seed.
        rules: "practice", what shipped compilers rely on, or "strict", the PTX ISA to the letter:
            docs/reference/rules.md.
        progress: called with (CTAs done, CTAs of the grid).
        on_event: called with (agent, site, start, end) for each asynchronous unit, times in cycles
        since its CTA started.
        timeline: record one, `Run.timeline`: of all CTAs, or of so many, from the first on.

    Raises:
        SimFault: a deadlock, a race, a misused barrier, a read of poison, an early exit, a failed
            assertion.
        BindError: the arguments do not fit the kernel.
    """
    number = plain_int(seed)
    if number is None or number < 0:  # of which Python's generator takes the absolute value
        raise BindError(f"seed= is an integer of at least 0, got {shown(seed)}")
    seed = number
    rules = require_rules(rules)
    recording = _recording(launch, timeline, on_event)
    recorder: Recorder | None = recording
    if recording is None and on_event is not None:
        recorder = UnitEvents(on_event)
    world, compiled = world_of(launch, rules, recorder), compile_kernel(launch.kernel)
    size = launch.kernel.cluster_size
    order = list(range(launch.grid // size))
    random = Random(seed) if seed else None
    if random is not None:
        if not world.program.orders_clusters:  # else one may wait for those that start before it
            random.shuffle(order)
        world.elected = Random(f"elected {seed}").choice(compiled.lanes)
    completions: dict[str, list[list[int]]] = {
        a.name: [[] for _ in range(launch.grid)] for a in launch.kernel.barriers
    }
    per_sm = occupancy(launch)
    done = 0

    def finished(m: Machine) -> None:
        nonlocal done
        done += 1
        for array in launch.kernel.barriers:
            base = compiled.bar_base[array.name]
            for cta in m.ctas:
                completions[array.name][cta.block_id].extend(
                    cta.bars[base + i].completions for i in range(array.size)
                )
        if progress is not None:
            progress(
                (done + (world.clusters.cancelled if world.clusters is not None else 0)) * size,
                launch.grid,
            )

    try:
        with quiet_numbers():
            if world.program.shares_work:
                resident = max(launch.chip.resident_clusters(size) * per_sm, 1)
                steps, cycles = together(world, order, resident, random, finished)
            else:
                steps, cycles = one_after_another(world, order, random, finished)
    except SimFault as fault:
        if recording is not None:
            fault.timeline = recording.until(str(fault), launch.kernel.name)
        if compiled.lanes != (0,):  # the kernel names lanes in a role which elects
            fault.add_note(
                f"In this run elect.sync elected lane {world.elected} wherever it was active; which"
                " lane it is, is not known."
            )
        raise
    dram = sum(t.array.nbytes for t in world.tensors)
    for text in never_inside(world):
        world.advise(text)
    world.tensors = []
    us = cost.makespan(launch.chip, cycles, size, per_sm, dram)
    return Run(
        role_stats(launch.kernel, world), completions, world.advice, world.printed, us, steps,
        seed, None if recording is None else recording.timeline(launch.kernel.name, us),
        partial(_demanded, launch, compiled, world.counts, cycles, per_sm, dram), launch.chip,
    )  # fmt: skip


def _demanded(
    launch: Launch, compiled: Compiled, counts: list[int], cycles: list[float], per_sm: int,
    dram: int,
) -> Demand:  # fmt: skip
    """What a launch asks of its chip, from what its run has counted."""
    sites = (site for site in compiled.program.sites if isinstance(site, OpSite))
    executed = {id(site.op): counts[site.id] for site in sites if site.op.acts}
    special, plain = elements(launch.kernel, executed)
    size, chip = launch.kernel.cluster_size, launch.chip
    sms = max(min(launch.grid, chip.sms), 1)
    return Demand(
        cost.makespan(chip, cycles, size, per_sm, 0) - cost.LAUNCH_US,
        dram / (chip.dram_gbps * 1e3), special / sms * 1e-6, plain / sms * 1e-6,
    )  # fmt: skip


def _recording(launch: Launch, timeline: bool | int, on_event: OnEvent | None) -> Recording | None:
    """The recorder of a run that is asked for a timeline."""
    ctas = recorded_ctas(timeline, launch.grid)
    if ctas is None:
        return None
    from tilepipe.timeline.recording import Recording

    return Recording(launch.grid, ctas, launch.chip.clock_ghz * 1e3, on_event)


def occupancy(launch: Launch) -> int:
    """CTAs of the kernel that an SM holds at once, by shared memory and threads."""
    return launch.chip.occupancy(launch.kernel.smem_bytes, launch.kernel.threads)


# -- arguments -------------------------------------------------------------------------


def world_of(launch: Launch, rules: Rules, recorder: Recorder | None) -> World:
    """What all clusters of a launch share, at its start."""
    kernel = launch.kernel
    if launch.grid < 1 or launch.grid % kernel.cluster_size:
        raise BindError(
            f"a grid of {launch.grid} CTAs is not a positive multiple of the cluster size"
            f" {kernel.cluster_size}"
        )
    compiled = compile_kernel(kernel)
    tensors, params = _arguments(launch, compiled)
    world = World(
        compiled.program,
        compiled.bound(params),
        launch.chip,
        launch.grid,
        tensors,
        rules,
        recorder,
        elected=compiled.lanes[0],
        undecided=partial(lane_deadlocks.undecided, kernel),
        separated=partial(lane_deadlocks.separated, kernel),
        located=compiled.located,
    )
    world.unread = compiled.reductions
    world.standing = _Standing(kernel, compiled)
    return world


class _Standing:
    """Where an agent stands, with all the values that decide what it does next. The analysis of
    which values those are is made when an agent first polls in vain.
    """

    def __init__(self, kernel: Kernel, compiled: Compiled) -> None:
        self._kernel, self._compiled = kernel, compiled

    @cached_property
    def _deciding(self) -> DecidingData:
        return DecidingData(self._kernel, self._compiled)

    def __call__(self, agent: Agent) -> Hashable:
        return place(agent, self._deciding)


def _arguments(launch: Launch, compiled: Compiled) -> tuple[list[GlobalTensor], Params]:
    """The tensors of a launch, and the values of its parameters."""
    tensors: list[GlobalTensor] = []
    params: dict[tuple[str, int], Any] = {}
    written, read = compiled.tensor_uses
    by_tma, ordinary = compiled.proxies
    arrays = {p.name: launch.args.get(p.name) for p in launch.kernel.params}
    targets = [
        a.array
        for p in launch.kernel.params
        if p.name in written and isinstance(a := arrays[p.name], TensorArg)
    ]
    targets = [array for array in targets if isinstance(array, np.ndarray)]
    for p in launch.kernel.params:
        arg = arrays[p.name]
        if isinstance(p, TensorParam):
            if not isinstance(arg, TensorArg):
                raise BindError(f"parameter '{p.name}' is a tensor, got {type(arg).__name__}")
            # A tensor of another framework is refused below: NumPy, asked whether it shares memory,
            # might raise of a dtype that it lacks.
            shared = isinstance(arg.array, np.ndarray) and any(
                arg.array is not t and np.may_share_memory(arg.array, t) for t in targets
            )
            writes = p.name in written or shared or any(arg.array is t for t in targets)
            reads = p.name in read or shared
            fenced = p.name in by_tma and (p.name in ordinary or reads)
            tensors.append(GlobalTensor(p, arg.array, writes, writes and reads, fenced))
            params.update({(p.name, axis): n for axis, n in enumerate(arg.shape)})
        else:
            if isinstance(arg, TensorArg) or arg is None:
                raise BindError(f"parameter '{p.name}' is a {p.dtype}, got {type(arg).__name__}")
            params[p.name, -1] = np.float32(arg) if p.dtype.is_float else int(arg)
    return tensors, params
