"""Ops that reach beyond a cluster: atomic operations by address, cluster launch control, and the
wait for the kernel before this one.

The result of an atomic operation or a try_cancel depends on what other clusters have done before.
So an agent requests it first, and performs it when the grid grants the request (`clusters`): every
cluster has then been simulated up to that moment.
"""

from __future__ import annotations

import numpy as np

from tilepipe.errors import SimFault
from tilepipe.machine import cost
from tilepipe.machine.actors import BLOCKED, Blocked
from tilepipe.machine.agents import Agent
from tilepipe.machine.barriers.mbarrier import remote
from tilepipe.machine.grid_state import REPEATED
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.happens_before.conflicts import read
from tilepipe.machine.happens_before.memory_order import RELAXED, Strong
from tilepipe.machine.machine import Machine
from tilepipe.machine.memory.byte_access import Addresses, Combine, asynchronous
from tilepipe.machine.memory.byte_sets import Bytes, ByteSet
from tilepipe.machine.memory.device_memory import DeviceMemory, atomic_global
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.sites import Site
from tilepipe.machine.thread_masks import WARP_MASK
from tilepipe.machine.units.in_flight import ResponseUnit
from tilepipe.machine.units.tma import credit_copy, depart, one_lane

LATENCY = cost.TMA_LATENCY  # of either: there and back


def may_act(m: Machine, ag: Agent) -> bool:
    """True if an agent performs an op now that depends on other clusters; else it asks the grid."""
    requests, clusters = m.requests, m.world.clusters
    if requests.granted is ag:
        requests.granted = None
        return True
    if clusters is not None and clusters.decide is not None:
        return True
    if (
        clusters is not None
        and clusters.random is not None
        and clusters.random.random() < requests.haste
    ):
        return True
    requests.asking.append(ag)
    return False


# -- atomic operations by address -----------------------------------------------------


def atomic_in_turn(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    memory: DeviceMemory,
    addresses: Addresses,
    operands: Bytes,
    nbytes: int,
    combine: Combine,
    strong: Strong = RELAXED,
) -> Bytes | Blocked:
    """atom.global by address, whose results depend on what other clusters have done before."""
    if m.world.clusters is not None and not may_act(m, ag):
        return BLOCKED
    found = atomic_global(m, ag, site, mask, memory, addresses, operands, nbytes, combine, strong)
    if m.world.recorder is not None:
        m.world.recorder.awaited(ag, site, [(site, ag.time + LATENCY)])
    ag.time += LATENCY
    return found


# -- cluster launch control ------------------------------------------------------------


def respond(m: Machine, unit: ResponseUnit) -> None:
    """The response to a try_cancel arrives."""
    if unit.refuses:
        unit.bar.acc |= m.requests.refused
    unit.slot.write(unit.write.rect, unit.words.view(unit.slot.data.dtype))
    credit_copy(m, unit)


def clc_try_cancel(
    m: Machine,
    ag: Agent,
    site: Site,
    mask: int,
    multicast: bool,
    slot: int | None,
    rect: Rect,
    bar: int,
) -> Blocked | None:
    """clusterlaunchcontrol.try_cancel.async. `slot`, `rect`: the tile of the response; None and a
    rectangle of the bytes of shared memory where programs name it by address.
    """
    one_lane(ag, site, mask, "requests are made")
    requests, known = m.requests, ag.known(mask)
    if requests.refused & known:
        first = requests.refused_at.loc.short if requests.refused_at is not None else ""
        raise SimFault(
            f"{site.what}: {ag} asks for another cluster although it has seen a request (made at"
            f" {first}) refused; what then happens is undefined (PTX ISA,"
            f" clusterlaunchcontrol.try_cancel). The {ag.cta.words['warp']} that asks must read"
            " each response, and stop at the first that is not valid.",
            site.loc,
        )
    if not may_act(m, ag):
        return BLOCKED
    assert m.world.clusters is not None
    clusters = m.world.clusters
    left = bool(clusters.waiting)
    cluster = clusters.cancel()
    if cluster is not None or not left:
        m.in_turn(clusters, mask, cluster is not None)
    if cluster is None and not requests.refused:
        requests.refused, requests.refused_at = m.order.new_bit(), site
    words = np.array([[cluster or 0, 0, 0, cluster is not None]], np.int32)
    for cta in m.ctas if multicast else [ag.cta]:
        b = remote(m, ag, site, cta.rank, bar)
        if slot is None:
            tile: Slot = cta.bytes()
            response = ByteSet.span(rect[2], rect[3] - rect[2])
            write = asynchronous(m, ag, site, mask, cta.bytes(), response, is_write=True)
        else:
            tile = cta.slots[slot]
            write = Access(ag, site, mask, rect, True, True, m.order.new_bit())
        end = ag.time + LATENCY
        unit = ResponseUnit(ag, site, (), tile, write, site.nbytes, b, None, end, words=words)
        depart(m, unit, known)
    return None


def clc_query(
    m: Machine, ag: Agent, site: Site, mask: int, slot: int, rect: Rect
) -> tuple[bool, int]:
    """clusterlaunchcontrol.query_cancel: (whether a cluster was cancelled, which), read by every
    thread of `mask`.

    The response is a write of the async proxy, and so is the next one: unlike other reads, this one
    needs a proxy fence after it.
    """
    tile = ag.cta.slots[slot]
    for w in range(ag.warps):
        lanes = mask & (WARP_MASK << (32 * w))
        if lanes:
            record = Access(ag, site, lanes, rect, False, False, m.order.new_bit())
            m.order.add_fences(record, ag.cta.rank)
            if m.world.program.commits:
                m.order.add_release_bit(record)
            record.after = read(m, tile, record, ag.known(lanes))
            ag.made(lanes, record.bit | record.release_bit)
    cluster, _, _, valid = tile.data[rect[0]].tolist()
    return bool(valid), cluster


# -- the kernels before ----------------------------------------------------------------


def grid_dependency_wait(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """griddepcontrol.wait: no kernel runs before this one, so it never blocks; what matters is
    which later accesses are ordered after it.
    """
    m.requests.waited = m.requests.waited or m.order.new_bit()
    ag.acquire(mask, m.requests.waited)


def grid_dependency_wait_again(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """The wait in a cluster that repeats another, whose writes came after theirs."""
    m.requests.waited = REPEATED
