"""The tensor cores: wgmma, its groups per warpgroup in order, and the fragments in registers that it reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import PoisonError, RaceError
from tilepipe.sim import cost
from tilepipe.sim.agents import BLOCKED, Agent, Blocked
from tilepipe.sim.memory import Access, Slot, read, rounded, storage

if TYPE_CHECKING:
    from tilepipe.ir.memory import Fragment
    from tilepipe.sim.machine import Machine
    from tilepipe.sim.ordering import Rect
    from tilepipe.sim.sites import Site

Array = npt.NDArray[Any]


class Frag:
    """A fragment of one warpgroup: (rows, cols), kept as float32 where the dtype allows.

    Attributes:
        defined: bit c set where column c has been set.
        zero: known to be all zeros, so that the first wgmma can overwrite instead of adding.
        writers, readers: wgmma issued and not yet waited for that write, or read, these registers.
        dirty: the site of a register write with no wgmma.fence after it.
    """

    __slots__ = ("all_columns", "data", "defined", "dirty", "ir", "readers", "scratch", "writers", "zero")

    def __init__(self, ir: Fragment) -> None:
        self.ir = ir
        self.data: Array = np.zeros((ir.rows, ir.cols), storage(ir.dtype))
        self.scratch: Array | None = None
        self.all_columns = (1 << ir.cols) - 1
        self.defined = 0
        self.zero = False
        self.writers = 0
        self.readers = 0
        self.dirty: Site | None = None

    def _rows(self, warp: int | None) -> Array:
        """The rows that one warp holds (16 of each 64), or all of them."""
        if warp is None:
            return self.data
        rows, cols = self.data.shape
        return self.data.reshape(rows // 64, 4, 16, cols)[:, warp].reshape(rows // 4, cols)

    def get(self, ag: Agent, site: Site, col: int, width: int, warp: int | None = None) -> Array:
        """Columns [col, col + width).

        Raises:
            RaceError: a wgmma that writes the registers has not been waited for.
            PoisonError: a column has never been set.
        """
        if self.writers:
            raise RaceError(
                f"{site.what}: {ag} reads fragment '{self.ir.name}' while {self.writers} wgmma that write it are in flight."
                " Wait for them first: ctx.wgmma_wait(0).",
                site.loc,
            )
        wanted = ((1 << width) - 1) << col
        if wanted & ~self.defined:
            raise PoisonError(
                f"{site.what}: {ag} reads fragment '{self.ir.name}', of which {(wanted & ~self.defined).bit_count()} of {width} columns"
                " were never set. Set it first, for instance with .fill(0).",
                site.loc,
            )
        data = self._rows(warp)
        return data if width == data.shape[1] else data[:, col : col + width]

    def set(self, ag: Agent, site: Site, value: Array | float, col: int, width: int, warp: int | None = None) -> None:
        """Columns [col, col + width) := value, rounded to the fragment's dtype.

        Raises:
            RaceError: a wgmma that reads or writes the registers has not been waited for.
        """
        if self.writers or self.readers:
            raise RaceError(
                f"{site.what}: {ag} writes fragment '{self.ir.name}' while {self.writers + self.readers} wgmma that use it are in"
                " flight. Wait for them first: ctx.wgmma_wait(0).",
                site.loc,
            )
        if self.dirty is None:
            ag.dirty.append(self)
        self.dirty = site
        self.defined |= ((1 << width) - 1) << col
        if isinstance(value, np.ndarray) and value.ndim:
            self.zero = False
            value = rounded(value, self.ir.dtype)
        else:
            self.zero = value == 0 and warp is None and width == self.ir.cols
            value = rounded(np.asarray(value, np.float32), self.ir.dtype)
        if warp is None:
            self.data[:, col : col + width] = value
            return
        rows, cols = self.data.shape
        self.data.reshape(rows // 64, 4, 16, cols)[:, warp, :, col : col + width] = np.broadcast_to(
            value, (rows // 4, width)
        ).reshape(rows // 64, 16, width)


class WgmmaUnit:
    """acc += A · Bᵀ. `bits`: what whoever waits for it learns: its reads, and what they were ordered after."""

    __slots__ = ("a", "acc", "b", "bits", "end", "rect_a", "rect_b", "site")

    def __init__(
        self, site: Site, acc: Frag, a: Frag | Slot, rect_a: Rect | None, b: Slot, rect_b: Rect, bits: int, end: float
    ) -> None:
        self.site = site
        self.acc = acc
        self.a = a
        self.rect_a = rect_a
        self.b = b
        self.rect_b = rect_b
        self.bits = bits
        self.end = end

    def run(self) -> None:
        r0, r1, c0, c1 = self.rect_b
        b = self.b.data[r0:r1, c0:c1]
        if self.rect_a is None:
            a = self.a.data
        else:
            r0, r1, c0, c1 = self.rect_a
            a = self.a.data[r0:r1, c0:c1]
        if self.b.buffer.dtype.name == "float32":
            a, b = _truncated(a), _truncated(b)
        acc = self.acc
        if acc.zero:
            np.matmul(a, b.T, out=acc.data)
            acc.zero = False
            return
        if acc.scratch is None:
            acc.scratch = np.empty_like(acc.data)
        np.matmul(a, b.T, out=acc.scratch)
        acc.data += acc.scratch

    def forget(self, dead: int) -> None:
        self.bits &= ~dead


def _truncated(x: Array) -> Array:
    """tf32: the low 13 bits of the significand are not read."""
    return (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


class WgmmaGroup:
    """A committed group, an asynchronous unit: the groups of a warpgroup finish in order."""

    __slots__ = ("agent", "done", "units")

    def __init__(self, agent: Agent, units: list[WgmmaUnit]) -> None:
        self.agent = agent
        self.units = units
        self.done = False

    def run(self, m: Machine) -> None:
        for unit in self.units:
            unit.run()
        self.done = True
        agent = self.agent
        if agent.parked and agent.request is not None and agent.request[0] is wgmma_wait:
            agent.parked = False
            m.ready.append(agent)

    def forget(self, dead: int) -> None:
        for unit in self.units:
            unit.forget(dead)


def wgmma_fence(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """wgmma.fence: register writes before it are ordered before the wgmma after it."""
    if ag.pend:
        ag.converge(mask)
    for frag in ag.dirty:
        frag.dirty = None
    ag.dirty = []


def wgmma(
    m: Machine, ag: Agent, site: Site, mask: int, acc: Frag, a: Frag | int, rect_a: Rect | None, b: int, rect_b: Rect
) -> None:
    """Issues acc += A · Bᵀ into the warpgroup's open group."""
    if ag.pend:
        ag.converge(mask)
    if acc.dirty is not None:
        _unfenced(ag, site, acc)
    if acc.defined != acc.all_columns:
        raise PoisonError(
            f"{site.what}: {ag} adds to accumulator '{acc.ir.name}', of which {(acc.all_columns & ~acc.defined).bit_count()} columns"
            " were never set. Set it first, for instance with .fill(0).",
            site.loc,
        )
    known = ag.known(mask) if ag.split else ag.k
    order = m.order
    bits = 0
    source: Frag | Slot
    if isinstance(a, Frag):
        source = a
        a.get(ag, site, 0, a.ir.cols)
        if a.dirty is not None:
            _unfenced(ag, site, a)
        a.readers += 1
    else:
        source = ag.cta.slots[a]
        assert rect_a is not None
        record = Access(ag, site, mask, rect_a, False, True, order.new_bit())
        bits = record.bit | read(m, source, record, known)
    tile_b = ag.cta.slots[b]
    record = Access(ag, site, mask, rect_b, False, True, order.new_bit())
    bits |= record.bit | read(m, tile_b, record, known)
    acc.writers += 1
    start = max(ag.time, ag.cta.tensor_free)
    end = ag.cta.tensor_free = start + site.flops / cost.FLOPS_PER_CYCLE[tile_b.buffer.dtype.bits]
    ag.wgmma_open.append(WgmmaUnit(site, acc, source, rect_a, tile_b, rect_b, bits, end))
    if m.world.on_event is not None:
        m.world.on_event(ag, site, start, end)


def _unfenced(ag: Agent, site: Site, frag: Frag) -> None:
    assert frag.dirty is not None
    raise RaceError(
        f"{site.what}: {ag} wrote the registers of fragment '{frag.ir.name}' at {frag.dirty.loc.short} and no wgmma.fence stands between"
        " that write and this wgmma, which may read the old values. Add ctx.wgmma_fence() before it.",
        site.loc,
    )


def wgmma_commit(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """wgmma.commit_group: the open wgmma become a group, which may finish from now on."""
    group = WgmmaGroup(ag, ag.wgmma_open)
    ag.wgmma_open = []
    ag.wgmma_groups.append(group)
    m.pending.append(group)


def wgmma_wait(m: Machine, ag: Agent, site: Site, mask: int, pending: int) -> Blocked | None:
    """wgmma.wait_group: until at most `pending` groups are unfinished; the reads of the others are over."""
    groups = ag.wgmma_groups
    late = len(groups) - pending
    if late > 0:
        if not groups[late - 1].done:
            return BLOCKED
        bits = 0
        for _ in range(late):
            for unit in groups.popleft().units:
                bits |= unit.bits
                unit.acc.writers -= 1
                if isinstance(unit.a, Frag):
                    unit.a.readers -= 1
                if unit.end > ag.time:
                    ag.time = unit.end
        ag.k |= bits
        ag.retired |= bits
    if ag.pend:
        ag.converge(mask)
    return None
