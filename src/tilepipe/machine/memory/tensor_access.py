"""Loads, stores, waits and fences of tensor memory, and what orders its accesses.

All accesses are asynchronous. A warp's own loads and stores are complete when it has executed
tcgen05.wait; MMAs and copies are complete for a thread that has waited for the arrival of a commit.
Between threads a barrier orders accesses only together with two fences (PTX ISA, "Memory
Consistency Model for 5th generation of TensorCore operations"): tcgen05.fence::before_thread_sync
by the thread that made the first access, after its wait; and tcgen05.fence::after_thread_sync by
the thread that makes the second, after it has synchronised with the first.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from tilepipe.errors import SimFault
from tilepipe.ir.facts import Unit
from tilepipe.ir.hardware.tensor_memory import LANES, SCALE_LANES, Matrix, Scales, pieces
from tilepipe.machine.agents import Agent, tensor_state
from tilepipe.machine.cta import memory_of
from tilepipe.machine.faults import tensor_memory as tensor_faults
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.conflicts import access, read
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.fragment_access import write_registers
from tilepipe.machine.memory.fragments import Frag
from tilepipe.machine.memory.storage import Array
from tilepipe.machine.memory.tensor_memory import Place, ScalePlace, TensorMemory, warp_rect
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import WARP_MASK, warps_of


def place_of(ag: Agent, site: Site, tm: TensorMemory, t: Matrix, address: int) -> Place:
    """Where a matrix lies.

    Raises:
        SimFault: not inside one live allocation of this CTA, or at a lane where its rows do not
            fit.
    """
    lane, column = address >> 16, address & 0xFFFF
    fits = lane in ((0,) if t.rows == LANES else (0, 16))
    if not (fits and tm.allocated(column, column + t.columns)):
        raise SimFault(tensor_faults.outside(ag, site, tm, t, address), site.loc)
    return t.rows, lane, column, t.columns


def scale_place(
    ag: Agent,
    site: Site,
    tm: TensorMemory,
    s: Scales,
    address: int,
    first: int = 0,
    *,
    whole: bool = False,
) -> ScalePlace:
    """Where scale factors at an address lie, from row `first` of theirs on; `whole`: their last
    piece too.

    Raises:
        SimFault: not inside one live allocation of this CTA, or not at lane 0.
    """
    lane, column = address >> 16, address & 0xFFFF
    at = column + first // SCALE_LANES
    end = at + (len(pieces(s)) * 4 if whole else s.columns)
    if lane or not tm.allocated(at, end):
        raise SimFault(
            tensor_faults.outside(ag, site, tm, s, address + first // SCALE_LANES), site.loc
        )
    return ScalePlace(s, tuple(range(at, at + s.columns, s.stride)), s.used)


# -- ops -------------------------------------------------------------------------------


def _note(
    m: Machine, ag: Agent, site: Site, tm: TensorMemory, lanes: int, rect: Rect, is_write: bool
) -> Access:
    """Records what one warp's load or store does."""
    record = Access(ag, site, lanes, rect, is_write, True, m.order.new_bit())
    record.fenced = m.order.new_bit()
    (access if is_write else read)(m, tm, record, ag.known(lanes))
    return record


def _begin(
    ag: Agent, site: Site, mask: int, address: int
) -> tuple[TensorMemory, Matrix, Place, list[int]]:
    """The tensor memory, the matrix and where it lies, and the warps that load or store it."""
    ag.converge(mask)
    tm, t = memory_of(ag.cta), site.place
    assert t is not None
    return tm, t, place_of(ag, site, tm, t, address), [w for w, _ in warps_of(mask)]


def tmem_load(m: Machine, ag: Agent, site: Site, mask: int, dst: Frag, address: int) -> None:
    """tcgen05.ld: each warp loads its rows."""
    tm, t, place, warps = _begin(ag, site, mask, address)
    state = tensor_state(ag)
    for w in warps:
        record = _note(
            m, ag, site, tm, WARP_MASK << (32 * w), warp_rect(place, (ag.first_warp + w) % 4), False
        )
        state.loads.append((dst, w, record))
    values = tm.values(place, t.dtype)
    if mask == ag.full:
        write_registers(dst, ag, site, values, 0, dst.ir.cols)
    else:
        for w in warps:
            write_registers(dst, ag, site, dst.part(values, w), 0, dst.ir.cols, w)
    for w in warps:
        dst.loading |= 1 << w


def tmem_store(
    m: Machine, ag: Agent, site: Site, mask: int, address: int, value: Array | float
) -> None:
    """tcgen05.st: each warp stores its rows."""
    tm, t, place, warps = _begin(ag, site, mask, address)
    state = tensor_state(ag)
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


def tmem_loads_used(ag: Agent, sites: Container[int], mask: int) -> None:
    """The code uses registers that loads of `sites` load, without tcgen05.wait::ld: it waits until
    they are there.
    """
    if ag.tensor is None or not ag.tensor.loads:
        return
    left = []
    for load in ag.tensor.loads:
        frag, w, record = load
        if record.site.id in sites and not record.mask & ~mask:
            frag.loading &= ~(1 << w)
            ag.acquire(record.mask, record.bit)
        else:
            left.append(load)
    ag.tensor.loads = left


def tmem_wait_store(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """tcgen05.wait::st, by each warp of `mask`."""
    state = tensor_state(ag)
    for record in state.stores:
        if not record.mask & ~mask:
            ag.acquire(record.mask, record.bit)
    state.stores = [record for record in state.stores if record.mask & ~mask]
    ag.converge(mask)


def registers_moved(tm: TensorMemory) -> int:
    """The bits of the loads and stores of tensor memory; threads know those that are over."""
    bits = 0
    for record in tm.accesses:
        if record.site.facts.unit is Unit.TENSOR_MEMORY:
            bits |= record.bit
    return bits


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
    """tcgen05.fence::after_thread_sync: the later tcgen05 ops of each thread of `mask` are ordered
    after everything that it knows now.
    """
    after = tensor_state(ag).after
    for _, lanes in warps_of(mask):
        after.acquire(lanes, ag.known(lanes))
