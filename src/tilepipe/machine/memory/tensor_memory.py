"""Tensor memory: its words, who reads and writes them, and the loads, stores, waits and fences of
tcgen05.

It is a `Slot` of 128 lanes × 512 columns of 32 bits, so that races, poison and their messages are
those of shared memory. All accesses are asynchronous: a warp knows that its own loads and stores
are over when it has executed tcgen05.wait, and of mma and copies whoever waits for a commit's
arrival. Between threads a barrier orders accesses only together with two fences (PTX ISA, "Memory
Consistency Model for 5th generation of TensorCore operations"): tcgen05.fence::before_thread_sync
by the thread that made the first access, after its wait; and tcgen05.fence::after_thread_sync by
the thread that makes the second, after it has learnt of the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import SimFault
from tilepipe.ir import dtypes
from tilepipe.ir.rules.tensor_memory import COLUMNS, LANES, Matrix
from tilepipe.machine import rules
from tilepipe.machine.cta import Cta
from tilepipe.machine.faults import tensor_memory as tmem_words
from tilepipe.machine.happens_before.accesses import WARP_MASK, Access, Rect
from tilepipe.machine.happens_before.conflicts import PIPELINED, access, read
from tilepipe.machine.happens_before.knowledge import Knowledge, touched
from tilepipe.machine.memory.tile_bytes import OneTile
from tilepipe.machine.memory.tiles import PARTIAL, Slot
from tilepipe.machine.memory.values import rounded, storage

if TYPE_CHECKING:
    from tilepipe.ir.dtypes import DType
    from tilepipe.machine.agents import Agent
    from tilepipe.machine.machine import Machine
    from tilepipe.machine.memory.fragments import Frag
    from tilepipe.machine.memory.tensor_allocation import Allocation, Call
    from tilepipe.machine.sites import Site
    from tilepipe.machine.units.tcgen05 import TensorQueue

Array = npt.NDArray[Any]
Place = tuple[int, int, int, int]  # rows (64 or 128), first lane, first column, columns


class TensorMemory(Slot):
    """The tensor memory of one CTA.

    Attributes:
        columns: (512, 128) uint32: the words of an accumulator lie together. data: the same as
            (lanes, columns).
        filled: which words have been written since their columns were allocated. full: rectangles
        that were found to be written, so that they need no second look.
        allocations: first column -> the live allocation. freed: the same for the last ones that are
            not live any more.
        calls: allocs under way, in order. relinquished: where the right to allocate was given up.
        smallest: columns of the smallest allocation so far.
    """

    axes = ("lane", "column")
    __slots__ = ("allocations", "calls", "columns", "freed", "full", "relinquished", "smallest")

    def __init__(self, cta: Cta) -> None:
        super().__init__(cta, OneTile("tensor memory", dtypes.uint32, LANES, COLUMNS), 0)
        self.columns = np.zeros((COLUMNS, LANES), np.uint32)
        self._data = self.columns.T
        self.reset()

    def reset(self) -> None:
        super().reset()
        self.state = PARTIAL
        self.filled = np.zeros((LANES, COLUMNS), np.bool_)
        self.full: set[Rect] = set()
        self.allocations: dict[int, Allocation] = {}
        self.freed: dict[int, tuple[Allocation, Agent, Site]] = {}
        self.calls: list[Call] = []
        self.relinquished: tuple[Agent, Site] | None = None
        self.smallest = COLUMNS

    def written(self, rect: Rect) -> None:
        if rect not in self.full:
            assert self.filled is not None
            r0, r1, c0, c1 = rect
            self.filled[r0:r1, c0:c1] = True
            self.full.add(rect)

    def poisoned(self, rect: Rect) -> int:
        missing = 0 if rect in self.full else super().poisoned(rect)
        if not missing:
            self.full.add(rect)
        return missing

    def empty(self, column: int, columns: int) -> None:
        """Columns that have just been allocated hold nothing."""
        assert self.filled is not None
        self.filled[:, column : column + columns] = False
        self.full = {rect for rect in self.full if rect[3] <= column or column + columns <= rect[2]}

    def words(self, place: Place) -> Array:
        """The words of a matrix by columns, a view: (columns, 128), or (columns, 4, 16) of one of
        64 rows.
        """
        rows, lane, column, columns = place
        part = self.columns[column : column + columns]
        return part if rows == LANES else part.reshape(columns, 4, 32)[:, :, lane : lane + 16]

    def values(self, place: Place, dtype: DType) -> Array:
        """The elements of a matrix, (rows, cols) in storage form."""
        return elements(self.words(place), dtype)

    def put(self, place: Place, values: Array, dtype: DType, warps: list[int]) -> None:
        """Writes the rows of `warps` of a matrix of elements; `values`: (rows, cols), or of the one
        warp alone.
        """
        rows, lane, column, columns = place
        each = rows // 4
        exact = np.ascontiguousarray(rounded(values, dtype).astype(dtype.numpy))
        bits = exact.view(np.uint32).reshape(-1, each, columns)
        for w in warps:
            first = 32 * w + lane
            self.columns[column : column + columns, first : first + each] = bits[
                w if len(bits) == 4 else 0
            ].T

    def check_fences(self, m: Machine, old: Access, new: Access, known: int) -> None:
        if old.agent is new.agent:
            if old.mask == new.mask and PIPELINED.issuperset((old.site.kind, new.site.kind)):
                if not _pipelined(old, new) and not rules.told_before(
                    m, rules.TENSOR_ORDER, old.site, new.site
                ):
                    tmem_words.not_pipelined(m, self, old, new)
                return  # the tensor core executes them in the order of issue
            if old.fenced != old.bit and warp_of(old.mask) == warp_of(new.mask):
                return  # program order, after a wait
        if new.site.kind == "tmem_dealloc":
            return
        before = old.fenced & known
        if before and old.bit & tensor_state(new.agent).after.known(new.mask):
            return
        if not rules.told_before(m, rules.TENSOR_FENCES, old.site, new.site):
            (tmem_words.not_received if before else tmem_words.not_published)(m, self, old, new)


def _pipelined(old: Access, new: Access) -> bool:
    """Whether the PTX ISA promises that an op of the tensor core comes after an earlier one of its
    thread (tcgen05 memory consistency model, pipelined instructions): an MMA behind a copy, or
    behind an MMA of the same accumulator, shape and kind.
    """
    one, two = old.site, new.site
    if two.kind != "tcgen05_mma" or one.kind != "tcgen05_mma":
        return two.kind == "tcgen05_mma"
    return one.shape == two.shape and old.rect == new.rect and old.is_write and new.is_write


def elements(words: Array, dtype: DType) -> Array:
    """What words by columns, (columns, ...), hold: (rows, cols) elements in storage form."""
    by_row = np.ascontiguousarray(words.reshape(len(words), -1).T)
    return by_row.view(dtype.numpy).astype(storage(dtype))


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


def tensor_state(ag: Agent) -> TensorState:
    """The state of an agent, made when first needed."""
    if ag.tensor is None:
        ag.tensor = TensorState(ag.warps)
    return ag.tensor


def memory_of(cta: Cta) -> TensorMemory:
    """The tensor memory of a CTA of a kernel with tcgen05 ops."""
    assert cta.tmem is not None, "Kernel.cta_group is not set"
    return cta.tmem


def warp_of(mask: int) -> int:
    """The warp of an agent that the threads of `mask`, of one warp, belong to."""
    return (mask.bit_length() - 1) // 32


def place_of(ag: Agent, site: Site, tm: TensorMemory, t: Matrix, address: int) -> Place:
    """Where a matrix lies.

    Raises:
        SimFault: not inside one live allocation of this CTA, or at a lane where its rows do not
            fit.
    """
    lane, column = address >> 16, address & 0xFFFF
    inside = any(
        a.column <= column and column + t.columns <= a.column + a.columns
        for a in tm.allocations.values()
    )
    if not inside or lane not in ((0,) if t.rows == LANES else (0, 16)):
        raise SimFault(tmem_words.outside(ag, site, tm, t, address), site.loc)
    return t.rows, lane, column, t.columns


def rects(place: Place) -> list[Rect]:
    """The rectangles of lanes and columns that a matrix covers."""
    rows, lane, column, columns = place
    if rows == LANES:
        return [(0, LANES, column, column + columns)]
    return [(32 * w + lane, 32 * w + lane + 16, column, column + columns) for w in range(4)]


def warp_rect(place: Place, warp: int) -> Rect:
    """The part of a matrix that a warp of a warpgroup reaches (PTX ISA, tcgen05.ld, "Access
    restrictions").
    """
    rows, lane, column, columns = place
    first = 32 * warp + lane
    return first, first + rows // 4, column, column + columns


# -- ops -------------------------------------------------------------------------------


def _note(
    m: Machine, ag: Agent, site: Site, tm: TensorMemory, lanes: int, rect: Rect, is_write: bool
) -> Access:
    """Records what one warp's load or store does."""
    record = Access(ag, site, lanes, rect, is_write, True, m.order.new_bit())
    record.fenced = m.order.new_bit()
    (access if is_write else read)(m, tm, record, ag.known(lanes))
    return record


def tmem_load(m: Machine, ag: Agent, site: Site, mask: int, dst: Frag, address: int) -> None:
    """tcgen05.ld: each warp loads its rows."""
    ag.converge(mask)
    tm, state, t = memory_of(ag.cta), tensor_state(ag), site.place
    assert t is not None
    place = place_of(ag, site, tm, t, address)
    warps = [w for w, _ in touched(mask)]
    for w in warps:
        record = _note(
            m, ag, site, tm, WARP_MASK << (32 * w), warp_rect(place, (ag.first_warp + w) % 4), False
        )
        state.loads.append((dst, w, record))
    values = tm.values(place, t.dtype)
    if mask == ag.full:
        dst.set(ag, site, values, 0, dst.ir.cols)
    else:
        for w in warps:
            dst.set(ag, site, dst.part(values, w), 0, dst.ir.cols, w)
    for w in warps:
        dst.loading |= 1 << w


def tmem_store(
    m: Machine, ag: Agent, site: Site, mask: int, address: int, value: Array | float
) -> None:
    """tcgen05.st: each warp stores its rows."""
    ag.converge(mask)
    tm, state, t = memory_of(ag.cta), tensor_state(ag), site.place
    assert t is not None
    place = place_of(ag, site, tm, t, address)
    warps = [w for w, _ in touched(mask)]
    for w in warps:
        rect = warp_rect(place, (ag.first_warp + w) % 4)
        state.stores.append(_note(m, ag, site, tm, WARP_MASK << (32 * w), rect, True))
        tm.written(rect)
    rows = t.rows if np.ndim(value) < 2 else np.shape(value)[0]
    tm.put(place, np.broadcast_to(np.asarray(value), (rows, t.cols)), t.dtype, warps)


def tmem_wait_load(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """tcgen05.wait::ld, by each warp of `mask`."""
    state = tensor_state(ag)
    left = []
    for load in state.loads:
        frag, w, record = load
        if record.mask & ~mask:
            left.append(load)
            continue
        frag.loading &= ~(1 << w)
        ag.acquire(record.mask, record.bit)
    state.loads = left
    ag.converge(mask)


def tmem_wait_store(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """tcgen05.wait::st, by each warp of `mask`."""
    state = tensor_state(ag)
    for record in state.stores:
        if not record.mask & ~mask:
            ag.acquire(record.mask, record.bit)
    state.stores = [record for record in state.stores if record.mask & ~mask]
    ag.converge(mask)


def tcgen05_fence_before(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """tcgen05.fence::before_thread_sync: publishes the loads and stores that the threads of `mask`
    made and waited for.
    """
    if ag.cta.tmem is None:  # no other tcgen05 op in the kernel: there is nothing to publish
        return
    state = tensor_state(ag)
    for record in memory_of(ag.cta).accesses:
        mine = record.agent is ag and record.fenced != record.bit and not record.mask & ~mask
        if mine and record.bit & ag.known(record.mask) and not record.fenced & state.published:
            state.published |= record.bit | record.fenced
            ag.acquire(record.mask, record.fenced)


def tcgen05_fence_after(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """tcgen05.fence::after_thread_sync: what each thread of `mask` knows now, its later tcgen05 ops
    are ordered after.
    """
    after = tensor_state(ag).after
    for _, lanes in touched(mask):
        after.acquire(lanes, ag.known(lanes))
