"""Units that have been issued and have not acted: copies, stores, MMAs and commits, and their
queues.

Units are data. The function that performs a unit stands beside the op that issues it;
`acting.act` finds it. The wgmma groups of a warpgroup, and the tcgen05 ops of a thread, act in the
order in which they were issued: they wait in a `UnitQueue`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tilepipe.ir.dtypes import DType
from tilepipe.machine.actors import Actor, CtaPlace
from tilepipe.machine.barriers.state import Mbarrier, TmaLoadUnit
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.events import Event
from tilepipe.machine.happens_before.knowledge import Knowledge
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.memory.matrix_operands import MatrixOperand
from tilepipe.machine.memory.poison import Origin
from tilepipe.machine.memory.storage import Array, Combine
from tilepipe.machine.memory.tensor_memory import Place, ScalePlace, TensorMemory
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.sites import Site

# -- TMA -------------------------------------------------------------------------------


@dataclass(eq=False, repr=False, slots=True)
class ResponseUnit(TmaLoadUnit):
    """The response to a try_cancel on its way to one CTA: `words`, of which the last is 0 where the
    request is refused.
    """

    words: Array = field(kw_only=True)

    @property
    def refuses(self) -> bool:
        return not self.words[0, 3]


@dataclass(eq=False, repr=False, slots=True)
class TmaStoreUnit:
    """One store in flight. `read` is its access to the tile, `write` the event in global memory,
    if it writes any; `rows`: how many it writes. `reduction`: what it does to what is there; None:
    it replaces it. `reported`: the journal has it, as a step that other agents can notice.
    """

    agent: Actor
    site: Site
    coords: tuple[int, ...]
    tile: Slot
    read: Access
    write: Event | None
    end: float
    rows: int
    reduction: Combine | None = field(default=None, kw_only=True)
    done: bool = field(default=False, init=False)
    reported: bool = field(default=False, init=False)

    @property
    def read_bits(self) -> int:
        """The bits of what it reads."""
        return self.read.bit

    @property
    def written_bits(self) -> int:
        """The bit of what it writes."""
        return self.write.bit if self.write is not None else 0


class RepeatedLoad(NamedTuple):
    """A copy in flight to one CTA, in a cluster that repeats another. `rect`: of `tile`.
    `tensor`: its number. `lines`: as of `tma.tma_load`.
    """

    site: Site
    tile: Slot
    rect: Rect
    tensor: int
    coords: tuple[int, ...]
    lines: int | None


class GroupWait(NamedTuple):
    """A wait for groups that has returned; for messages.

    Attributes:
        pending: how many groups it may leave pending. left: how many it has left, the oldest of
            those that are pending now. reading: it waits for the reads of bulk stores alone.
    """

    site: Site
    pending: int
    left: int
    reading: bool = False


@dataclass(eq=False, repr=False, slots=True)
class StoreQueue:
    """The bulk-store groups of one thread.

    Attributes:
        open: the stores not yet committed. groups: committed and not yet waited for, oldest first.
        unwritten: groups waited for with .read only, whose writes to global memory are not known
            to be over.
        waited: the last wait, which left the oldest of `groups`. waited_written: the last one
            without .read, which left the oldest of `unwritten` and `groups`.
    """

    open: list[TmaStoreUnit] = field(default_factory=list)
    groups: list[list[TmaStoreUnit]] = field(default_factory=list)
    unwritten: list[list[TmaStoreUnit]] = field(default_factory=list)
    waited: GroupWait | None = None
    waited_written: GroupWait | None = None


# -- queues ----------------------------------------------------------------------------


@dataclass(eq=False, repr=False, slots=True)
class UnitQueue:
    """Units that act in the order of their issue. It stands among the machine's pending units once
    for each unit in it: whichever entry is picked, the oldest unit acts.
    """

    waiting: deque[Queued] = field(default_factory=deque)


@dataclass(eq=False, repr=False, slots=True)
class WarpgroupQueue(UnitQueue):
    """The groups of a warpgroup whose warps issue wgmma for themselves. `open`: those that fewer
    than four warps have committed, oldest first. `begun`: how many groups there have been.
    """

    open: list[WgmmaGroup] = field(default_factory=list)
    begun: int = 0


@dataclass(eq=False, repr=False, slots=True)
class TensorQueue(UnitQueue):
    """The ops that one thread issued to the tensor core.

    Attributes:
        issued: bits of all of it. done: bits of what has acted, which a commit publishes.
        end: virtual time at which what was issued so far is done.
        uncommitted: MMAs and copies since the last commit. committed: that commit.
    """

    issued: int = 0
    done: int = 0
    end: float = 0.0
    uncommitted: int = 0
    committed: Site | None = None

    def forget(self, dead: int) -> None:
        self.issued &= ~dead
        self.done &= ~dead
        for unit in self.waiting:
            unit.forget(dead)


# -- wgmma -----------------------------------------------------------------------------


class Turned(NamedTuple):
    """A rectangle of a tile of which an MMA reads the transpose."""

    rect: Rect


# A or B of a wgmma: a rectangle of a tile, or its transpose, what a descriptor names of the bytes
# of shared memory, or registers
Source = tuple[Slot, Rect | Turned | MatrixOperand] | Frag


@dataclass(eq=False, repr=False, slots=True)
class WgmmaUnit:
    """acc += A · Bᵀ; `adds` false: acc = A · Bᵀ. `bits`: what an agent that waits for it learns:
    its reads, and what they were ordered after. `dtype`: of the elements of B. `saturates`: sums of
    integers are clamped. `poison`: elements of A or B are, first read here.
    """

    site: Site
    acc: Frag
    a: Source
    b: Source
    dtype: DType
    adds: bool
    bits: int
    end: float = 0.0
    saturates: bool = False
    poison: Origin | None = None

    def forget(self, dead: int) -> None:
        self.bits &= ~dead


@dataclass(eq=False, repr=False, slots=True)
class WgmmaGroup:
    """A committed group, a unit of its warpgroup's queue.

    Attributes:
        agents: those that have committed their part: a warpgroup, or up to four warps of one.
        units: of all parts.
        name, cta, flat: of the groups of warps, what a journal calls them: the warpgroup's CTA, and
            a number.
    """

    cta: CtaPlace
    name: str = ""
    flat: int = -1
    agents: list[Actor] = field(default_factory=list)
    units: list[tuple[Actor, WgmmaUnit]] = field(default_factory=list)
    done: bool = False

    def add(self, agent: Actor, units: list[WgmmaUnit]) -> None:
        """An agent commits its part."""
        self.agents.append(agent)
        self.units += [(agent, unit) for unit in units]

    def forget(self, dead: int) -> None:
        for _, unit in self.units:
            unit.forget(dead)


# -- tcgen05 ---------------------------------------------------------------------------

Operand = tuple[Slot, Rect] | Place  # of shared memory, or of tensor memory


class MmaPart(NamedTuple):
    """The operands of an MMA in one CTA; `scales`: the scale factors of A and of B, if any."""

    tm: TensorMemory
    acc: Place
    a: Operand
    b: tuple[Slot, Rect]
    scales: list[ScalePlace]


class CopyPart(NamedTuple):
    """The operands of a copy from shared to tensor memory in one CTA."""

    tm: TensorMemory
    to: Place | ScalePlace
    source: tuple[Slot, Rect]


@dataclass(eq=False, repr=False, slots=True)
class TensorUnit:
    """An op of a tensor core in flight. `bits`: its accesses, and what they were ordered after."""

    site: Site
    queue: TensorQueue
    bits: int

    def forget(self, dead: int) -> None:
        self.bits &= ~dead


@dataclass(eq=False, repr=False, slots=True)
class MmaUnit(TensorUnit):
    """One MMA in flight. `adds`: whether it adds to its accumulator. `parts`: for each CTA."""

    adds: bool
    parts: list[MmaPart]


@dataclass(eq=False, repr=False, slots=True)
class CopyUnit(TensorUnit):
    """One copy from shared to tensor memory in flight. `parts`: for each CTA."""

    parts: list[CopyPart]


@dataclass(eq=False, repr=False, slots=True)
class CommitUnit(TensorUnit):
    """One commit: an arrival on each barrier of `arrivals`, when everything before it in the queue
    has acted.

    Attributes:
        bits: what its thread knew when it issued it.
        arrivals: barriers, each with the bit of the arrival, which that barrier's CTA must know of
            before it exits.
        time: when it arrives, by the cost model.
    """

    agent: Actor
    arrivals: list[tuple[Mbarrier, int]]
    time: float

    def forget(self, dead: int) -> None:
        self.bits &= ~dead
        self.arrivals = [(bar, bit & ~dead) for bar, bit in self.arrivals]


@dataclass(eq=False, repr=False, slots=True)
class TensorState:
    """An agent's loads and stores of tensor memory, and what its threads issued to the tensor core.

    Attributes:
        loads: (fragment, its warp, access) not yet waited for. stores: likewise.
        queues: lane -> what that thread issued to the tensor core.
        after: what its threads knew when they last executed tcgen05.fence::after_thread_sync.
        published: the bits of its loads and stores that tcgen05.fence::before_thread_sync has
            covered.
    """

    after: Knowledge
    loads: list[tuple[Frag, int, Access]] = field(default_factory=list)
    stores: list[Access] = field(default_factory=list)
    queues: dict[int, TensorQueue] = field(default_factory=dict)
    published: int = 0

    def forget(self, dead: int) -> None:
        self.after.forget(dead)
        self.published &= ~dead
        for queue in self.queues.values():
            queue.forget(dead)


class Queueable(Protocol):
    """A unit of a queue."""

    def forget(self, dead: int) -> None: ...


Queued = WgmmaGroup | TensorUnit | Queueable
Unit = TmaLoadUnit | TmaStoreUnit | RepeatedLoad | UnitQueue
