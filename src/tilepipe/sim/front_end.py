"""The IR as a front end of the machine: the one door through which an exploration sees it.

`KernelFrontEnd` is what `check.engine.front_end.FrontEnd` asks of one launch, as far as the
simulator knows it. What else proofs over the IR need of the compiled kernel is here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from itertools import combinations
from weakref import WeakKeyDictionary

import numpy as np

from tilepipe.ir.memory import TensorParam
from tilepipe.ir.program import Kernel, Launch, TensorArg
from tilepipe.machine.agents import Agent
from tilepipe.machine.machine import World
from tilepipe.machine.rules import Rules
from tilepipe.sim.analysis.data_flow import (
    TENSOR_MEMORY as TENSOR_MEMORY,
    DecidingData,
    Thing as Thing,
    thing_of as thing_of,
)
from tilepipe.sim.analysis.interchangeable import interchangeable
from tilepipe.sim.analysis.live_locals import place
from tilepipe.sim.analysis.reached_lines import ReachedLines, requests
from tilepipe.sim.analysis.waiting_loops import (
    place_of as place_of,
    waiting_loops as waiting_loops,
)
from tilepipe.sim.codegen.module import (
    Params as Params,
    StartBody as StartBody,
    compile_kernel as compile_kernel,
)
from tilepipe.sim.run import occupancy, world_of
from tilepipe.sim.sites import OpSite as OpSite

# of kernels of which some instance has reached all lines: computed once
_all_reached: WeakKeyDictionary[Kernel, ReachedLines] = WeakKeyDictionary()


class KernelFrontEnd(DecidingData):
    """A launch of a kernel, as an exploration sees it.

    Attributes:
        sites: all ops, by id. shares_work: what one cluster gets depends on the others.
        lanes: those that are elected in turn (`sim.election`).
        resident: how many clusters run at once. requests: the ids of sites that make requests.
    """

    def __init__(self, launch: Launch) -> None:
        compiled = compile_kernel(launch.kernel)
        super().__init__(launch.kernel, compiled, aliases(launch))
        self.launch = launch
        self.sites = compiled.sites
        self.shares_work = compiled.program.shares_work
        self.lanes = compiled.lanes
        self.requests = requests(compiled.source)
        clusters = launch.chip.resident_clusters(launch.kernel.cluster_size)
        self.resident = max(clusters * occupancy(launch), 1)

    def registers(self, agent: Agent) -> Hashable:
        """A key that is equal for agents of one role that go on alike."""
        return place(agent, self)

    def interchangeable(self) -> Sequence[str]:
        """The names of the roles whose agents all do the same."""
        kernel = self.launch.kernel
        return [role.name for role in kernel.roles if interchangeable(role, kernel.setup)]

    def lines_reached(self, unmade: Collection[int]) -> ReachedLines:
        """The lines that executions have reached which have made all requests but `unmade`."""
        kernel = self.launch.kernel
        if not unmade and kernel in _all_reached:
            return _all_reached[kernel]
        number = {id(site.op): site.id for site in self.sites}
        found = ReachedLines(kernel, number, self.requests.difference(unmade), unmade)
        if not unmade:
            _all_reached[kernel] = found
        return found

    def start(self, rules: Rules) -> World:
        """What all clusters of the launch share, at its start."""
        return world_of(self.launch, rules, None)


def aliases(launch: Launch) -> list[tuple[TensorParam, TensorParam]]:
    """Pairs of tensors that are one array."""
    arrays = {
        n: a.array
        for n, a in launch.args.items()
        if isinstance(a, TensorArg) and isinstance(a.array, np.ndarray)
    }
    tensors = [
        (p, arrays[p.name])
        for p in launch.kernel.params
        if isinstance(p, TensorParam) and p.name in arrays
    ]
    return [(p, q) for (p, a), (q, b) in combinations(tensors, 2) if np.may_share_memory(a, b)]


def listen(kernel: Kernel, listening: Callable[[StartBody], StartBody]) -> None:
    """Puts a listener between the machine and every body of a kernel."""
    compiled = compile_kernel(kernel)
    for name, body in list(compiled.bodies.items()):
        compiled.bodies[name] = listening(body)
