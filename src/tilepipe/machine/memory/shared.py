"""Shared memory of a CTA: tiles, what has been written, and the accesses still to be ordered
against.

A tile holds its elements in logical order. Layout and swizzle map the elements of a tile one to one
on its bytes (`ir.layout.byte_offsets`), and buffers do not overlap, so two accesses touch a common
byte exactly when they touch a common element. Views of one buffer's slots (`SmemBuffer.shares`)
keep contents of their own: a write through one of them leaves the others unwritten, and any two
accesses through different views count as accesses to common bytes.

Floating-point elements up to 32 bits are kept as float32, which holds all of them exactly; rounding
happens where the kernel converts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilepipe.machine.faults import messages as faults
from tilepipe.machine.happens_before.accesses import Access, Rect

if TYPE_CHECKING:
    from tilepipe.ir.dtypes import DType
    from tilepipe.ir.memory import SmemBuffer
    from tilepipe.machine.agents import Agent
    from tilepipe.machine.barriers.mbarrier import Mbarrier
    from tilepipe.machine.barriers.rendezvous import NamedState
    from tilepipe.machine.machine import Machine
    from tilepipe.machine.memory.tensor_memory import TensorMemory
    from tilepipe.sim.sites import Site

EMPTY, PARTIAL, WHOLE = 0, 1, 2
PIPELINED = frozenset({"tcgen05_mma", "tmem_copy"})  # of one thread, executed in the order of issue


def storage(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype that the simulator keeps values of `dtype` in."""
    return np.dtype(np.float32) if dtype.is_float and dtype.bits <= 32 else dtype.numpy


def rounded(values: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """`values` rounded to `dtype` (nearest even; fp8 saturates, as the hardware's cvt), in storage
    form.
    """
    if not dtype.is_float:
        return values.astype(dtype.numpy)
    if dtype.bits >= 32:
        return values.astype(dtype.numpy, copy=False)
    if dtype.bits == 8:
        limit = 448.0 if dtype.name == "float8_e4m3" else 57344.0
        values = np.clip(values, -limit, limit)
    return values.astype(dtype.numpy).astype(np.float32)


class Slot:
    """Tile `index` of a buffer in one CTA.

    Attributes:
        data: (rows, cols) in storage form. whole: the rectangle that is all of it.
        state: EMPTY, PARTIAL (see `filled`) or WHOLE: what has been written; the rest is poison.
        accesses: the live accesses.
        axes: what its two dimensions are called, in messages.
        views: the slots of other views of the same bytes (`SmemBuffer.shares`).
    """

    axes = ("row", "column")
    __slots__ = ("accesses", "buffer", "cta", "data", "filled", "index", "state", "views", "whole")

    def __init__(self, cta: Cta, buffer: SmemBuffer, index: int) -> None:
        self.cta = cta
        self.buffer = buffer
        self.index = index
        self.data: npt.NDArray[Any] = np.zeros((buffer.rows, buffer.cols), storage(buffer.dtype))
        self.whole: Rect = (0, buffer.rows, 0, buffer.cols)
        self.filled: npt.NDArray[np.bool_] | None = None
        self.state = EMPTY
        self.accesses: list[Access] = []
        self.views: tuple[Slot, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.buffer.name}[{self.index}]" if self.buffer.count > 1 else self.buffer.name

    def reset(self) -> None:
        """A new CTA: its memory is poison."""
        self.state = EMPTY
        self.filled = None
        self.accesses = []

    def written(self, rect: Rect) -> None:
        """Marks a rectangle as written."""
        if self.state == WHOLE:
            return
        if rect == self.whole:
            self.state = WHOLE
            return
        r0, r1, c0, c1 = rect
        if self.filled is None:
            self.filled = np.zeros(self.data.shape, np.bool_)
        self.filled[r0:r1, c0:c1] = True
        self.state = WHOLE if self.filled.all() else PARTIAL

    def check_fences(self, m: Machine, old: Access, new: Access, known: int) -> None:
        """Raises RaceError: `new` is ordered after `old`, with which it conflicts, but not by the
        fences it takes as well.
        """
        faults.check_proxy(m, self, old, new, known)

    def poisoned(self, rect: Rect) -> int:
        """How many elements of a rectangle nothing has written."""
        if self.state == WHOLE:
            return 0
        r0, r1, c0, c1 = rect
        if self.filled is None:
            return (r1 - r0) * (c1 - c0)
        return int((~self.filled[r0:r1, c0:c1]).sum())


class Cta:
    """One CTA: its shared memory, barriers and agents.

    Attributes:
        rank: in its cluster. block_id: in the grid. grid: CTAs of the grid.
        arrivals: (agent, barrier) -> the bit of that agent's last remote arrive here; a CTA may
        exit only knowing of all of them. tmem: the last of its slots, where the kernel has tcgen05
        ops.
        tma_free, tensor_free: virtual time (cycles) from which the TMA unit and the tensor cores
            are free.
    """

    __slots__ = (
        "agents",
        "arrivals",
        "bars",
        "block_id",
        "grid",
        "named",
        "rank",
        "slots",
        "tensor_free",
        "tma_free",
        "tmem",
    )

    def __init__(self, rank: int, grid: int) -> None:
        self.rank = rank
        self.grid = grid
        self.block_id = rank
        self.slots: list[Slot] = []
        self.tmem: TensorMemory | None = None
        self.bars: list[Mbarrier] = []
        self.named: list[NamedState] = []
        self.agents: list[Agent] = []
        self.arrivals: dict[tuple[int, int], tuple[int, Agent, Site]] = {}
        self.tma_free = 0.0
        self.tensor_free = 0.0


def _points_meet(a: Access, b: Access) -> bool:
    """Whether two accesses touch a common element; at least one is of single elements."""
    if a.points is not None and b.points is not None:
        return not a.points.keys().isdisjoint(b.points)
    points, rect = (a.points, b.rect) if a.points is not None else (b.points, a.rect)
    assert points is not None
    r0, r1, c0, c1 = rect
    return any(r0 <= p >> 32 < r1 and c0 <= p & 0xFFFFFFFF < c1 for p in points)


def _check_order(
    m: Machine, slot: Slot, old: Access, new: Access, known: int, view: Slot | None = None
) -> None:
    """Whether all is there that a conflicting access is ordered by. `view`: the slot of the earlier
    one, where that was through another view of the same bytes.

    Raises:
        RaceError: the threads that make `new` do not know of `old`; they know of it by a
            tcgen05.commit alone, and the rules are strict; or no proxy fence stands between.
    """
    place = slot if view is None else view
    if not old.bit & known:
        if not _same_lanes(old, new, view is not None):
            faults.race(m, slot, old, new, view)
    elif old.sure and not (old.sure & known or _same_lanes(old, new, view is not None)):
        faults.told_by_a_commit(m, place.name, old, str(old.agent), str(new.agent), new.site)
    if old.fenced and new.asynchronous:
        place.check_fences(m, old, new, known)


def _same_lanes(a: Access, b: Access, across: bool) -> bool:
    """Whether program order settles it: one agent, and each common element is touched by one and
    the same lane. `across`: through different views, where it is not known which elements have
    common bytes.
    """
    if a.agent is not b.agent:
        return False
    if a.mask == b.mask and a.mask.bit_count() == 1 and not a.asynchronous:
        return True
    if across or a.points is None or b.points is None:
        return False
    common = a.points.keys() & b.points.keys()
    return all(a.points[p] == b.points[p] and a.points[p].bit_count() == 1 for p in common)


def _covers(new: Access, old: Access) -> bool:
    if new.points is not None:
        return old.points is not None and old.points.keys() <= new.points.keys()
    r0, r1, c0, c1 = new.rect
    o0, o1, p0, p1 = old.rect
    return r0 <= o0 and o1 <= r1 and c0 <= p0 and p1 <= c1


def access(m: Machine, slot: Slot, new: Access, known: int) -> int:
    """Orders a new access to a tile against the live ones, retires those it covers, and adds it.

    `known`: what the threads that make it know. Returns the bits of the accesses it is ordered
    after.

    Raises:
        RaceError: a conflicting access is not in `known`, or no proxy fence stands between.
    """
    need = _across_views(m, slot, new, known) if slot.views else 0
    if new.is_write and new.rect == slot.whole and new.points is None:
        return need | _overwrite(m, slot, new, known)
    keep: list[Access] = []
    is_write = new.is_write
    r0, r1, c0, c1 = new.rect
    for old in slot.accesses:
        o0, o1, p0, p1 = old.rect
        if r0 < o1 and o0 < r1 and c0 < p1 and p0 < c1:
            single = new.points is not None or old.points is not None
            if (is_write or old.is_write) and not (single and not _points_meet(new, old)):
                if old.sure or old.fenced or not old.bit & known:
                    _check_order(m, slot, old, new, known)
                need |= old.bit
                if is_write and _covers(new, old):
                    m.order.retire(old)
                    continue
            elif (
                not is_write
                and not old.is_write
                and _succeeds(new, old, known)
                and _covers(new, old)
            ):
                m.order.retire(old)
                continue
        keep.append(old)
    keep.append(new)
    slot.accesses = keep
    return need


def _across_views(m: Machine, slot: Slot, new: Access, known: int) -> int:
    """`access` against the live accesses to the same bytes through other views. Where the tiles of
    two views overlap is not asked: any two accesses are taken to touch a common byte. A write
    leaves nothing that another view could read.
    """
    need = 0
    for view in slot.views:
        keep = []
        for old in view.accesses:
            if not (new.is_write or old.is_write):
                keep.append(old)
                continue
            if old.sure or old.fenced or not old.bit & known:
                _check_order(m, slot, old, new, known, view)
            need |= old.bit
            if new.is_write and new.rect == slot.whole and new.points is None:
                m.order.retire(old)
            else:
                keep.append(old)
        view.accesses = keep
        if new.is_write:
            view.state = EMPTY
            view.filled = None
    return need


def _overwrite(m: Machine, slot: Slot, new: Access, known: int) -> int:
    """`access` for a write of a whole tile, which conflicts with every live access and covers them
    all.
    """
    need = 0
    for old in slot.accesses:
        if old.sure or old.fenced or not old.bit & known:
            _check_order(m, slot, old, new, known)
        need |= old.bit
        m.order.retire(old)
    slot.accesses = [new]
    return need


def _succeeds(new: Access, old: Access, known: int) -> bool:
    """Whether whoever knows of the read `new` knows of the read `old`: same agent and proxy, and
    one after the other.
    """
    if new.agent is not old.agent or new.asynchronous != old.asynchronous:
        return False
    if old.bit & known:
        return True
    kind = new.site.kind
    if kind == "wgmma":
        return old.site.kind == "wgmma"
    return kind in PIPELINED and old.site.kind in PIPELINED and old.mask == new.mask


def read(m: Machine, slot: Slot, new: Access, known: int) -> int:
    """`access` for a read, which must not see poison."""
    need = access(m, slot, new, known)
    if slot.state != WHOLE and new.points is None and slot.poisoned(new.rect):
        faults.poison(m, slot, new, slot.poisoned(new.rect))
    return need
