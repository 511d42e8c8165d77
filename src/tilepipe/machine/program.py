"""A program as a front end gives it to the machine: what a CTA holds, its agents, and the sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilepipe.machine.actors import Role
from tilepipe.machine.memory.tile_bytes import TileArray
from tilepipe.machine.shared_names import NO_NAMES, SharedNames
from tilepipe.machine.sites import Site
from tilepipe.machine.wording import PTX, Wording


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """One agent of each CTA: its role, its number in it, its warps."""

    role: Role
    index: int
    first_warp: int
    warps: int


# Named tuples, like other plain records of the machine: the first run imports them, and defining a
# frozen dataclass takes 0.8 ms, a named tuple 0.1 ms.
class RingSide(NamedTuple):
    """The purpose of the mbarriers of a ring, one for each stage. `fills`: their phases are
    fills of the stage, not releases. `ring`: its name, by which the other side is found; "" where
    no other side is known.
    """

    ring: str
    fills: bool


class BarrierPlan(NamedTuple):
    """An array of `size` mbarriers. `offset`: where it starts in shared memory. `by_parity`: some
    wait on it gives a parity. `side`: of a ring, where the array is one.
    """

    name: str
    size: int
    offset: int
    by_parity: bool
    side: RingSide | None = None


class Program(NamedTuple):
    """A program as the machine runs it.

    Attributes:
        cluster_size: CTAs of a cluster. agents: of each CTA, in the order of their numbers.
        sites: all ops, by id.
        buffers: of shared memory, in the order in which requests number their tiles.
        views: for each buffer, the numbers of those whose tiles begin at the same bytes.
        smem_bytes: of shared memory in each CTA. addressed: all of it, and the mbarriers in it, are
            named by address.
        barriers, named: arrays of mbarriers; named barriers with their thread counts.
        tensor_memory: it has tcgen05 ops. pairs: of two CTAs share them.
        commits: it has a tcgen05.commit. hands_on: it has responses that are read, and arrives
            that may hand them back and release nothing else to another CTA. waits_itself: it has a
            grid_dependency_wait.
        shares_work: clusters may take work from each other, or wait for each other.
        orders_clusters: strong accesses to global memory may order one cluster after another.
        carries_poison: its agents can tell which of their registers hold what nothing has written.
        words: what messages call the instructions that they advise. shared_names: what they call
            the bytes of shared memory, where it is named by address.
    """

    cluster_size: int
    agents: Sequence[AgentPlan]
    sites: Sequence[Site]
    buffers: Sequence[TileArray] = ()
    views: Sequence[Sequence[int]] = ()
    barriers: Sequence[BarrierPlan] = ()
    named: Sequence[tuple[str, int]] = ()
    smem_bytes: int = 0
    addressed: bool = False
    tensor_memory: bool = False
    pairs: bool = False
    commits: bool = False
    hands_on: bool = False
    waits_itself: bool = False
    shares_work: bool = False
    orders_clusters: bool = False
    carries_poison: bool = False
    words: Wording = PTX
    shared_names: SharedNames = NO_NAMES
