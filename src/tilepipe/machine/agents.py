"""Agents: a warp, or the warpgroup of a warpgroup role, with its private state except registers,
which its body holds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilepipe.machine.actors import Actor, Body, Role
from tilepipe.machine.barriers.state import Mbarrier
from tilepipe.machine.cta import Cta
from tilepipe.machine.happens_before.accesses import Access
from tilepipe.machine.happens_before.knowledge import Knowledge
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.memory.poison import Loaded, Origin
from tilepipe.machine.polling import Look, Looks, Writers
from tilepipe.machine.sites import Site
from tilepipe.machine.units.in_flight import (
    GroupWait,
    StoreQueue,
    TensorState,
    UnitQueue,
    WgmmaGroup,
    WgmmaUnit,
)


@dataclass(frozen=True, eq=False, slots=True)
class Spin:
    """The thing that an agent polls in a loop in which nothing changes.

    Attributes:
        site: the op that looks. bar, phase: the phase of an mbarrier. name, value: an element of a
            tensor, and what it holds; both empty where the loop looks at nothing that others may
            change. writers: what has written the bytes that it looks at, in all that the launch has
            executed so far, where that is known.
    """

    site: Site
    bar: Mbarrier | None = None
    phase: int = 0
    name: str = ""
    value: str = ""
    writers: Callable[[], Writers] | None = None

    @classmethod
    def at(cls, site: Site, look: Look | None) -> Spin:
        """A loop that repeats a look; None: one that looks at nothing."""
        if look is None:
            return cls(site)
        return cls(site, name=look.name(), value=look.value, writers=look.writers)


@dataclass(eq=False, repr=False, slots=True)
class ThreadCopies(UnitQueue):
    """The cp.async of a warp.

    Attributes:
        issued, made: how many instructions have been issued, and have acted.
        open: accesses of those not yet committed. groups: of committed ones, (`issued` at the
            commit, accesses), oldest first. waited: the last wait, which left the oldest of them.
    """

    issued: int = 0
    made: int = 0
    open: list[Access] = field(default_factory=list)
    groups: list[tuple[int, list[Access]]] = field(default_factory=list)
    waited: GroupWait | None = None

    def forget(self, dead: int) -> None:
        for unit in self.waiting:
            unit.forget(dead)


class Agent(Actor):
    """One instruction stream, with what it has issued.

    Attributes:
        body: what gives its requests.
        counts: executions per site, shared by all agents of the launch.
        spins: what it looks at, where it has been found in a loop that changes nothing. looks:
            what strong loads and atomic operations have found, from the first on. repeats: its last
            look found nothing new, or its last test of a barrier failed.
        dirty: fragments whose registers were accessed with no wgmma.fence since. fenced: there has
            been a wgmma.fence.
        stores: lane -> its bulk-store groups. copies: its cp.async, from the first on.
        wgmma_open, wgmma_groups: wgmma not yet committed; committed groups not yet waited for,
            oldest first. wgmma_queue: those of the groups that have not acted. wgmma_waited: the
            last wait that left a group pending.
        tensor: what concerns tensor memory, from the first tcgen05 op on.
        found: poison that a read of its last op has found, and which that op passes on. poison: in
            the answer to its last request.
    """

    __slots__ = (
        "body", "copies", "counts", "dirty", "fenced", "found", "looks", "poison", "repeats",
        "spins", "stores", "tensor", "wgmma_groups", "wgmma_open", "wgmma_queue", "wgmma_waited",
    )  # fmt: skip

    cta: Cta
    body: Body

    def __init__(
        self,
        cta: Cta,
        role: Role,
        index: int,
        first_warp: int,
        warps: int,
        uid: int,
        counts: list[int],
    ) -> None:
        super().__init__(cta, role, index, first_warp, warps, uid)
        self.counts = counts
        self.spins: Spin | None = None
        self.looks: Looks | None = None
        self.repeats = False
        self.dirty: list[Frag] = []
        self.fenced = False
        self.stores: dict[int, StoreQueue] = {}
        self.copies: ThreadCopies | None = None
        self.wgmma_open: list[WgmmaUnit] = []
        self.wgmma_groups: deque[WgmmaGroup] = deque()
        self.wgmma_queue = UnitQueue()
        self.wgmma_waited: GroupWait | None = None
        self.tensor: TensorState | None = None
        self.found: Origin | None = None
        self.poison: Loaded | None = None


def looked(
    ag: Agent, site: Site, mask: int, lanes: list[int], where: Any, found: Any,
    name: Callable[[], str], writers: Callable[[], Writers] | None = None,
) -> None:  # fmt: skip
    """Notes what threads have found by a strong load, or by an atomic operation that has changed
    nothing. `where`, `found`: of all threads. `name`, `writers`: as of a `Look`.
    """
    if ag.looks is None:
        ag.looks = Looks()
    ag.repeats = ag.looks.again(site, mask, lanes, where, found, name, writers)


def tensor_state(ag: Agent) -> TensorState:
    """The state of an agent, made when first needed."""
    if ag.tensor is None:
        ag.tensor = TensorState(Knowledge(ag.warps))
    return ag.tensor
