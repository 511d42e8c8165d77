"""Agents: a warp, or the whole warpgroup of a warpgroup role, with everything that is private to it
but its local variables.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilepipe.machine.happens_before.knowledge import Knowledge
from tilepipe.machine.units.queue import UnitQueue

if TYPE_CHECKING:
    from tilepipe.ir.program import Role
    from tilepipe.machine.barriers.mbarrier import Mbarrier
    from tilepipe.machine.cta import Cta
    from tilepipe.machine.memory.fragments import Frag
    from tilepipe.machine.memory.tensor_memory import TensorState
    from tilepipe.machine.sites import Site
    from tilepipe.machine.units.tma import StoreQueue
    from tilepipe.machine.units.wgmma import WgmmaGroup, WgmmaUnit

Request = tuple[Callable[..., Any], tuple[Any, ...]]
Body = Generator[Request, Any, None]


class Blocked:
    """What an op returns when it cannot be performed yet; the agent is then in somebody's list of
    waiters.
    """

    def __deepcopy__(self, memo: dict[int, object]) -> Blocked:
        return self


BLOCKED = Blocked()


@dataclass(frozen=True, eq=False, slots=True)
class Spin:
    """What an agent looks at, again and again, in a loop in which nothing changes.

    Attributes:
        site: the op that looks. bar, phase: the phase of an mbarrier. name, value: an element of a
            tensor, and what it holds; both empty where the loop looks at nothing that others may
            change.
    """

    site: Site
    bar: Mbarrier | None = None
    phase: int = 0
    name: str = ""
    value: str = ""


class Agent(Knowledge):
    """One instruction stream.

    Attributes:
        role: None for the idle warps that only run the set-up.
        index: which agent of its role.
        first_warp: its first warp in the CTA.
        request: the op to perform next and its operands, or None before the first.
        blocked: the op in `request` has been tried and waits. parked: and nobody has woken it yet.
        spins: what it looks at in vain, where whoever explores executions has found it in a loop
            that changes nothing.
        dirty: fragments whose registers were accessed with no wgmma.fence since. fenced: there has
            been a wgmma.fence.
        done: the body has returned.
        time: virtual time, in cycles since the CTA started.
        counts: executions per site, shared by all agents of the launch.
        retired: bits of this warpgroup's finished wgmma reads (and what they were ordered after),
            for relaxed arrives.
        handed: bits of reads of a response that its threads have made and fenced
        (fence.proxy.async), and of what they read from, for relaxed arrives: PTX ISA,
        clusterlaunchcontrol.try_cancel, has such a read, the fence, and
        barrier.cluster.arrive.relaxed.
        passed: barrier -> last phase waited for, for waits that give a parity.
        repeated: barrier -> (phase, site) of its last wait, where that phase had been waited for
            before; for messages.
        ticket, cluster_ticket: the generation of a named or set-up barrier, and of the cluster
        barrier, that it waits to end.
        stores: lane -> its bulk-store groups.
        wgmma_open, wgmma_groups: wgmma not yet committed; committed groups not yet waited for,
            oldest first.
        wgmma_queue: those of the groups that have not acted.
        tensor: what concerns tensor memory, from the first tcgen05 op on.
    """

    __slots__ = (
        "blocked", "body", "cluster_ticket", "counts", "cta", "dirty", "done", "fenced", "first_warp", "handed", "index", "parked",
        "passed", "repeated", "request", "retired", "role", "spins", "stores", "tensor", "ticket", "time", "uid",
        "wgmma_groups",
        "wgmma_open", "wgmma_queue",
    )  # fmt: skip

    def __init__(
        self,
        cta: Cta,
        role: Role | None,
        index: int,
        first_warp: int,
        warps: int,
        uid: int,
        counts: list[int],
    ) -> None:
        super().__init__(warps)
        self.cta = cta
        self.role = role
        self.index = index
        self.first_warp = first_warp
        self.uid = uid
        self.body: Body | None = None
        self.request: Request | None = None
        self.blocked = False
        self.parked = False
        self.spins: Spin | None = None
        self.dirty: list[Frag] = []
        self.fenced = False
        self.done = False
        self.time = 0.0
        self.counts = counts
        self.retired = self.handed = 0
        self.passed: dict[tuple[int, int], int] = {}
        self.repeated: dict[tuple[int, int], tuple[int, Site]] = {}
        self.ticket = -1
        self.cluster_ticket = -1
        self.stores: dict[int, StoreQueue] = {}
        self.wgmma_open: list[WgmmaUnit] = []
        self.wgmma_groups: deque[WgmmaGroup] = deque()
        self.wgmma_queue = UnitQueue()
        self.tensor: TensorState | None = None

    @property
    def role_name(self) -> str:
        return self.role.name if self.role is not None else "idle warps"

    @property
    def part(self) -> str:
        """`warp 1` or `warpgroup 0`."""
        group = self.role is not None and self.role.is_warpgroup
        return f"{'warpgroup' if group else 'warp'} {self.index}"

    def __str__(self) -> str:
        alone = self.role is not None and self.role.agents == 1
        part = "" if alone else f" {self.part}"
        cta = f" of CTA {self.cta.block_id}" if self.cta.grid > 1 else ""
        return f"role '{self.role_name}'{part}{cta}"

    def forget(self, dead: int) -> None:
        super().forget(dead)
        self.retired &= ~dead
        self.handed &= ~dead
