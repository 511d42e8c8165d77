"""The part of a CTA and of an agent that memories and barriers need: the CTA's place in the grid,
and the agent's instruction stream with its vector clock. `cta.Cta` and `agents.Agent` add the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from tilepipe.machine.happens_before.knowledge import Knowledge
from tilepipe.machine.happens_before.memory_order import Recent
from tilepipe.machine.past_waits import PastWaits
from tilepipe.machine.shared_names import NO_NAMES, SharedNames
from tilepipe.machine.wording import Wording

Request = tuple[Callable[..., Any], tuple[Any, ...]]


class Body(Protocol):
    """The program of an agent, which a front end executes: a source of requests."""

    def send(self, result: Any, /) -> Request:
        """The next request. `result`: that of the request before it; None for the first.

        Raises:
            StopIteration: the program has ended.
        """


class Blocked:
    """The result of an op that cannot be performed yet; the agent is then on a list of
    waiters.
    """

    def __deepcopy__(self, memo: dict[int, object]) -> Blocked:
        return self


BLOCKED = Blocked()


class CtaPlace:
    """Where a CTA is: `rank` in its cluster, `block_id` in the grid, which has `grid` CTAs.
    `words`, `names`: for messages, the program's (`program.Program`).
    """

    __slots__ = ("block_id", "grid", "names", "rank", "words")

    def __init__(self, rank: int, grid: int, words: Wording, names: SharedNames = NO_NAMES) -> None:
        self.rank = rank
        self.grid = grid
        self.words = words
        self.names = names
        self.block_id = rank


class Role(NamedTuple):
    """The agents of a CTA that run one body.

    Attributes:
        name: for messages, and to find the role's sites. warpgroups: its agents are warpgroups,
            not warps. alone: there is only one of them. unnamed: messages call an agent by its
            number alone.
    """

    name: str
    warpgroups: bool
    alone: bool
    unnamed: bool = False


class Actor(Knowledge):
    """One instruction stream, as memories and barriers see it.

    Attributes:
        cta: the CTA that it runs in. uid: its number in the cluster.
        role: which it belongs to. index: which agent of its role. first_warp: in the CTA.
        request: the op to perform next and its operands, or None before the first.
        blocked: the op in `request` has been tried and waits. parked: it has not been woken yet.
        done: the body has returned.
        time: virtual time, in cycles since the CTA started.
        retired: bits of this warpgroup's finished wgmma reads (and what they were ordered after),
            for relaxed arrives.
        handed_on: bits of reads of a response that its threads have made and fenced
            (fence.proxy.async), and of what they read from, for relaxed arrives: PTX ISA,
            clusterlaunchcontrol.try_cancel, has such a read, the fence, and
            barrier.cluster.arrive.relaxed.
        seen: what its threads have read by relaxed accesses, from the first on.
        passed: barrier -> last phase waited for, for waits that give a parity.
        waited: barrier -> its waits there that gave a parity; for messages.
        waits: what a blocked op waits for, and its phase or generation; None where it has none.
        ticket, cluster_ticket: the generation of a named or set-up barrier, and of the cluster
            barrier, that it waits to end.
    """

    __slots__ = (
        "blocked", "cluster_ticket", "cta", "done", "first_warp", "handed_on", "index", "parked",
        "passed", "request", "retired", "role", "seen", "ticket", "time", "uid", "waited",
        "waits",
    )  # fmt: skip

    cta: CtaPlace

    def __init__(
        self, cta: CtaPlace, role: Role, index: int, first_warp: int, warps: int, uid: int
    ) -> None:
        super().__init__(warps)
        self.cta = cta
        self.role = role
        self.index = index
        self.first_warp = first_warp
        self.uid = uid
        self.request: Request | None = None
        self.blocked = False
        self.parked = False
        self.done = False
        self.time = 0.0
        self.retired = self.handed_on = 0
        self.seen: Recent | None = None
        self.passed: dict[tuple[int, int], int] = {}
        self.waited: dict[tuple[int, int], PastWaits] = {}
        self.waits: tuple[object, int | None] = (None, None)
        self.ticket = -1
        self.cluster_ticket = -1

    @property
    def role_name(self) -> str:
        return self.role.name

    @property
    def part(self) -> str:
        """`warp 1` or `warpgroup 0`."""
        return f"{'warpgroup' if self.role.warpgroups else 'warp'} {self.index}"

    def __str__(self) -> str:
        part = "" if self.role.alone else f" {self.part}"
        cta = f" of CTA {self.cta.block_id}" if self.cta.grid > 1 else ""
        if self.role.unnamed:
            return f"{self.part}{cta}"
        return f"role '{self.role.name}'{part}{cta}"

    def forget(self, dead: int) -> None:
        super().forget(dead)
        self.retired &= ~dead
        self.handed_on &= ~dead
        if self.seen is not None:
            self.seen.forget(dead)
