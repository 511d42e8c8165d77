"""What has been issued and has not acted: copies, stores, MMAs and commits, and their queues.

Units are data. What one does when it acts stands beside the op that issues it; `acting.act` finds
it. MMAs of a warpgroup, and the tcgen05 ops of a thread, act in the order in which they were
issued: they wait in a `UnitQueue`.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from tilepipe.machine.actors import Actor
from tilepipe.machine.barriers.state import Copy, Mbarrier
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.events import Event
from tilepipe.machine.happens_before.knowledge import Knowledge
from tilepipe.machine.memory.byte_sets import ByteSet
from tilepipe.machine.memory.fragments import Array, Frag
from tilepipe.machine.memory.matrix_operands import MatrixOperand
from tilepipe.machine.memory.tensor_map import TensorMap
from tilepipe.machine.memory.tensor_memory import Place, ScalePlace, TensorMemory
from tilepipe.machine.memory.tiles import ByteSpace, Slot
from tilepipe.machine.sites import Site

# -- TMA -------------------------------------------------------------------------------


class TmaLoadUnit(Copy):
    """One copy in flight towards one CTA. `seen`: its read of a tensor that is also written."""

    __slots__ = ("bar", "end", "seen")

    def __init__(
        self,
        agent: Actor,
        site: Site,
        coords: tuple[int, ...],
        slot: Slot,
        bar: Mbarrier,
        write: Access,
        seen: Event | None,
        end: float,
    ) -> None:
        super().__init__(agent, site, coords, slot, write)
        self.bar = bar
        self.seen = seen
        self.end = end


class BoxLoadUnit(TmaLoadUnit):
    """A copy to an address in shared memory, by tensor map."""

    __slots__ = ("address", "tensor_map")

    def __init__(
        self, agent: Actor, site: Site, coords: tuple[int, ...], space: ByteSpace, bar: Mbarrier, write: Access, seen: Event | None,
        end: float, tensor_map: TensorMap, address: int,
    ) -> None:  # fmt: skip
        super().__init__(agent, site, coords, space, bar, write, seen, end)
        self.tensor_map = tensor_map
        self.address = address
        self.nbytes = tensor_map.nbytes


class ResponseUnit(TmaLoadUnit):
    """The response to a try_cancel on its way to one CTA. `refuses`: it says no."""

    __slots__ = ("refuses", "words")

    def __init__(
        self,
        agent: Actor,
        site: Site,
        slot: Slot,
        bar: Mbarrier,
        write: Access,
        end: float,
        cluster: int | None,
    ) -> None:
        super().__init__(agent, site, (), slot, bar, write, None, end)
        self.refuses = cluster is None
        self.words = np.array([[cluster or 0, 0, 0, cluster is not None]], np.int32)


class TmaStoreUnit:
    """One store in flight. `read` is its access to the tile, `write` the event in global memory;
    `rows`: how many it writes.
    """

    __slots__ = ("agent", "coords", "data_slot", "done", "end", "read", "rows", "site", "write")

    def __init__(
        self,
        agent: Actor,
        site: Site,
        coords: tuple[int, ...],
        slot: Slot,
        read_: Access,
        write: Event,
        end: float,
        rows: int,
    ) -> None:
        self.agent = agent
        self.site = site
        self.coords = coords
        self.data_slot = slot
        self.read = read_
        self.write = write
        self.end = end
        self.rows = rows
        self.done = False


class BoxStoreUnit(TmaStoreUnit):
    """A store from an address in shared memory, by tensor map."""

    __slots__ = ("address", "space", "tensor_map")

    def __init__(
        self, agent: Actor, site: Site, coords: tuple[int, ...], space: ByteSpace, read_: Access, write: Event, end: float,
        tensor_map: TensorMap, address: int,
    ) -> None:  # fmt: skip
        super().__init__(agent, site, coords, space, read_, write, end, tensor_map.box[0])
        self.space = space
        self.tensor_map = tensor_map
        self.address = address


class StoreQueue:
    """The bulk-store groups of one thread: `open` not yet committed, `groups` committed and not yet
    waited for, oldest first.
    """

    __slots__ = ("groups", "open", "unwritten")

    def __init__(self) -> None:
        self.open: list[TmaStoreUnit] = []
        self.groups: list[list[TmaStoreUnit]] = []
        # waited for with .read only: the global write is not known
        self.unwritten: list[list[TmaStoreUnit]] = []


# -- wgmma -----------------------------------------------------------------------------


class WgmmaUnit:
    """acc += A · Bᵀ; `adds` false: acc = A · Bᵀ. `bits`: what whoever waits for it learns: its
    reads, and what they were ordered after. `dtype`: of the elements of B.
    """

    __slots__ = ("a", "acc", "adds", "b", "bits", "dtype", "end", "rect_a", "rect_b", "site")

    def __init__(
        self,
        site: Site,
        acc: Frag,
        a: Frag | Slot,
        rect_a: Rect | None,
        b: Slot,
        rect_b: Rect,
        adds: bool,
        bits: int,
        end: float,
    ) -> None:
        self.site = site
        self.adds = adds
        self.acc = acc
        self.a = a
        self.rect_a = rect_a
        self.b = b
        self.rect_b = rect_b
        self.bits = bits
        self.end = end
        self.dtype = b.buffer.dtype

    def operands(self) -> tuple[Array, Array]:
        """A and B, in storage form."""
        r0, r1, c0, c1 = self.rect_b
        b = self.b.data[r0:r1, c0:c1]
        if self.rect_a is None:
            return self.a.data, b
        r0, r1, c0, c1 = self.rect_a
        return self.a.data[r0:r1, c0:c1], b

    def forget(self, dead: int) -> None:
        self.bits &= ~dead


class DescriptorWgmma(WgmmaUnit):
    """The same with operands by matrix descriptor. `matrix_a`: None where A is in registers."""

    __slots__ = ("matrix_a", "matrix_b", "space")

    def __init__(
        self,
        site: Site,
        acc: Frag,
        space: ByteSpace,
        a: Frag | MatrixOperand,
        b: MatrixOperand,
        adds: bool,
        bits: int,
    ) -> None:
        touched = b.touched()
        where, rect_a = (a, None) if isinstance(a, Frag) else (space, _hull(a.touched()))
        super().__init__(site, acc, where, rect_a, space, _hull(touched), adds, bits, 0.0)
        self.matrix_a = None if isinstance(a, Frag) else a
        self.matrix_b = b
        self.dtype = b.dtype
        self.space = space

    def operands(self) -> tuple[Array, Array]:
        memory = self.space.memory
        a = self.a.data if self.matrix_a is None else self.matrix_a.values(memory)
        return a, self.matrix_b.values(memory)


def _hull(touched: ByteSet) -> Rect:
    return 0, 1, touched.lo, touched.hi


class WgmmaGroup:
    """A committed group, a unit of its warpgroup's queue.

    Attributes:
        agents: those that have committed their part: a warpgroup, or up to four warps of one.
        units: of all parts.
        name, cta, flat: of the groups of warps, what a journal calls them: the warpgroup's CTA, and
            a number.
    """

    __slots__ = ("agents", "cta", "done", "flat", "name", "units")

    def __init__(self, agent: Actor, name: str = "", flat: int = -1) -> None:
        self.agents: list[Actor] = []
        self.units: list[tuple[Actor, WgmmaUnit]] = []
        self.done = False
        self.cta = agent.cta
        self.name = name
        self.flat = flat

    def add(self, agent: Actor, units: list[WgmmaUnit]) -> None:
        """An agent commits its part."""
        self.agents.append(agent)
        self.units += [(agent, unit) for unit in units]

    def forget(self, dead: int) -> None:
        for _, unit in self.units:
            unit.forget(dead)


# -- tcgen05 ---------------------------------------------------------------------------


class UnitQueue:
    """Stands among the machine's pending units once for each unit in it: whichever is picked, the
    oldest acts.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: deque[Queued] = deque()


class WarpgroupQueue(UnitQueue):
    """The groups of a warpgroup whose warps issue wgmma for themselves. `open`: those that not all
    four have committed, oldest first. `begun`: how many have been.
    """

    __slots__ = ("begun", "open")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[WgmmaGroup] = []
        self.begun = 0


class TensorQueue(UnitQueue):
    """What one thread issued to the tensor core.

    Attributes:
        issued: bits of all of it. done: of what has acted: what a commit publishes.
        end: virtual time at which what was issued so far is done.
        uncommitted: MMAs and copies since the last commit. committed: that commit.
    """

    __slots__ = ("committed", "done", "end", "issued", "uncommitted")

    def __init__(self) -> None:
        super().__init__()
        self.issued = self.done = 0
        self.end = 0.0
        self.uncommitted = 0
        self.committed: Site | None = None

    def forget(self, dead: int) -> None:
        self.issued &= ~dead
        self.done &= ~dead
        for unit in self.waiting:
            unit.forget(dead)


Operand = tuple[Slot, Rect] | Place  # of shared memory, or of tensor memory
Part = tuple[TensorMemory, Place, Operand, tuple[Slot, Rect], list[ScalePlace]]


class MmaUnit:
    """One MMA in flight. `adds`: whether it adds to its accumulator. `parts`: for each CTA, where
    its accumulator, its A, its B and their scale factors are.
    """

    __slots__ = ("adds", "bits", "parts", "queue", "site")

    def __init__(
        self, site: Site, queue: TensorQueue, adds: bool, bits: int, parts: list[Part]
    ) -> None:
        self.site = site
        self.queue = queue
        self.adds = adds
        self.bits = bits
        self.parts = parts

    def forget(self, dead: int) -> None:
        self.bits &= ~dead


class CopyUnit:
    """One copy from shared to tensor memory in flight. `parts`: for each CTA, where to, and from
    where.
    """

    __slots__ = ("bits", "parts", "queue", "site")

    def __init__(
        self, site: Site, queue: TensorQueue, bits: int, parts: list[tuple[TensorMemory, Place | ScalePlace, Slot, Rect]]
    ) -> None:  # fmt: skip
        self.site = site
        self.queue = queue
        self.bits = bits
        self.parts = parts

    def forget(self, dead: int) -> None:
        self.bits &= ~dead


class CommitUnit:
    """One commit: an arrival on each barrier of `arrivals`, when everything before it in the queue
    has acted.

    Attributes:
        bits: what its thread knew when it issued it. arrivals: barriers, each with the bit of the
        arrival, which that barrier's CTA must know of before it exits.
    """

    __slots__ = ("agent", "arrivals", "bits", "queue", "site", "time")

    def __init__(
        self,
        agent: Actor,
        site: Site,
        queue: TensorQueue,
        bits: int,
        arrivals: list[tuple[Mbarrier, int]],
    ) -> None:
        self.agent = agent
        self.site = site
        self.queue = queue
        self.bits = bits
        self.arrivals = arrivals
        self.time = queue.end

    def forget(self, dead: int) -> None:
        self.bits &= ~dead
        self.arrivals = [(bar, bit & ~dead) for bar, bit in self.arrivals]


class TensorState:
    """What one agent has to do with tensor memory.

    Attributes:
        loads: (fragment, its warp, access) not yet waited for. stores: likewise.
        queues: lane -> what that thread issued to the tensor core.
        after: what its threads knew when they last executed tcgen05.fence::after_thread_sync.
        published: the bits of its loads and stores that tcgen05.fence::before_thread_sync has
            covered.
    """

    __slots__ = ("after", "loads", "published", "queues", "stores")

    def __init__(self, warps: int) -> None:
        self.loads: list[tuple[Frag, int, Access]] = []
        self.stores: list[Access] = []
        self.queues: dict[int, TensorQueue] = {}
        self.after = Knowledge(warps)
        self.published = 0

    def forget(self, dead: int) -> None:
        self.after.forget(dead)
        self.published &= ~dead
        for queue in self.queues.values():
            queue.forget(dead)


Queued = WgmmaGroup | MmaUnit | CopyUnit | CommitUnit
Unit = TmaLoadUnit | TmaStoreUnit | UnitQueue
