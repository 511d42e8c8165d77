"""What reaches beyond a cluster: atomic adds, cluster launch control, the kernels before this one.

An atomic add and a try_cancel depend on what other clusters have done before. So an agent that
comes to one asks first, and performs it when the grid lets it (`clusters`): then all clusters have
come as far as that moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilepipe.errors import RaceError, SimFault
from tilepipe.machine import cost
from tilepipe.machine.agents import BLOCKED, Agent, Blocked
from tilepipe.machine.barriers.mbarrier import Mbarrier, remote
from tilepipe.machine.happens_before.accesses import WARP_MASK, Access
from tilepipe.machine.happens_before.conflicts import read
from tilepipe.machine.memory.elements import Scalar, indices, value_of
from tilepipe.machine.memory.tiles import Slot
from tilepipe.machine.units.tma import TmaLoadUnit, depart, one_lane

if TYPE_CHECKING:
    from tilepipe.machine.happens_before.accesses import Rect
    from tilepipe.machine.machine import Machine
    from tilepipe.machine.sites import Site

ASKS = ("atomic_add", "clc_try_cancel")  # kinds of ops that are performed when the grid lets them
LATENCY = cost.TMA_LATENCY  # of either: there and back
_REFUSES = 1 / 8  # how often a try_cancel says no although clusters are left, where a seed picks


class Clusters:
    """The clusters of a launch that have neither started nor been cancelled, in the order in which
    they would start.

    `random`: None for seed 0, which never refuses. `decide`: whether a request that could be
    granted is, where someone chooses; then agents also perform what they ask for as soon as they
    are picked. `resident`: how many run at once, where that is known.
    """

    def __init__(self, order: list[int], random: Random | None) -> None:
        self.waiting = deque(order)
        self.random = random
        self.cancelled = 0
        self.resident = 0
        self.decide: Callable[[], bool] | None = None

    def cancel(self) -> int | None:
        """A cluster that now never starts; None: the request is refused, as it is when all have
        started.
        """
        if not self.waiting or (self.random is not None and self.random.random() < _REFUSES):
            return None
        if self.decide is not None and not self.decide():
            return None
        self.cancelled += 1
        return self.waiting.popleft()


class Reach:
    """What one running cluster has to do with the grid.

    Attributes:
        asking: agents that wait until the grid lets them perform an op. granted: the one that now
            may.
        haste: how likely an agent performs it without asking.
        refused: a bit that whoever has learnt of a response "no" knows; 0 before the first.
            refused_at: who asked then.
        waited: a bit that whoever comes after a grid_dependency_wait knows; 0 before the first.
    """

    __slots__ = ("asking", "granted", "haste", "refused", "refused_at", "waited")

    def __init__(self) -> None:
        self.asking: list[Agent] = []
        self.granted: Agent | None = None
        self.haste = 0.0
        self.refused = self.waited = 0
        self.refused_at: Site | None = None


def _may_act(m: Machine, ag: Agent) -> bool:
    reach, clusters = m.reach, m.world.clusters
    if reach.granted is ag:
        reach.granted = None
        return True
    if clusters is not None and clusters.decide is not None:
        return True
    if (
        clusters is not None
        and clusters.random is not None
        and clusters.random.random() < reach.haste
    ):
        return True
    reach.asking.append(ag)
    return False


# -- atomic adds -----------------------------------------------------------------------


def atomic_add(
    m: Machine, ag: Agent, site: Site, mask: int, value: Scalar, *index: Scalar
) -> int | Blocked:
    """atom.relaxed.gpu.global.add: adds, and gives what was there."""
    one_lane(ag, site, mask, "sums are made")
    if not _may_act(m, ag):
        return BLOCKED
    tensor = m.world.tensors[site.tensor]
    at = indices(m, ag, site, mask, *index)
    added = value_of(ag, mask, value)
    assert tensor.order is not None
    if m.journal is not None:
        # who adds 0 only looks
        m.journal.in_turn((site.tensor, *(i[0] for i in at)), mask, added != 0)
    tensor.order.points(m, ag, site, mask, at, is_write=True, atomic=True)
    old = int(tensor.array[at][0])
    total = old + added
    signed = tensor.param.dtype.kind == "int"
    tensor.array[at] = (total + (1 << 31)) % (1 << 32) - (1 << 31) if signed else total % (1 << 32)
    ag.time += LATENCY
    return old


# -- cluster launch control ------------------------------------------------------------


class ResponseUnit(TmaLoadUnit):
    """The response to a try_cancel on its way to one CTA. `refuses`: it says no."""

    __slots__ = ("refuses", "words")

    def __init__(
        self,
        agent: Agent,
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

    def values(self, m: Machine) -> npt.NDArray[Any]:
        return self.words

    def run(self, m: Machine) -> None:
        if self.refuses:
            self.bar.acc |= m.reach.refused
        super().run(m)


def clc_try_cancel(
    m: Machine, ag: Agent, site: Site, mask: int, multicast: bool, slot: int, rect: Rect, bar: int
) -> Blocked | None:
    """clusterlaunchcontrol.try_cancel.async."""
    one_lane(ag, site, mask, "requests are made")
    reach, known = m.reach, ag.known(mask)
    if reach.refused & known:
        first = reach.refused_at.loc.short if reach.refused_at is not None else ""
        raise SimFault(
            f"{site.what}: {ag} asks for another cluster although it has seen a request (made at"
            f" {first}) refused; what then happens is"
            " undefined (PTX ISA, clusterlaunchcontrol.try_cancel). The role that asks must read"
            " each response, and stop at the first"
            " that is not valid.",
            site.loc,
        )
    if not _may_act(m, ag):
        return BLOCKED
    assert m.world.clusters is not None
    clusters = m.world.clusters
    left = bool(clusters.waiting)
    cluster = clusters.cancel()
    if m.journal is not None and (cluster is not None or not left):
        m.journal.in_turn(clusters, mask, cluster is not None)
    if cluster is None and not reach.refused:
        reach.refused, reach.refused_at = m.order.new_bit(), site
    for cta in m.ctas if multicast else [ag.cta]:
        b = remote(m, ag, site, cta.rank, bar)
        write = Access(ag, site, mask, rect, True, True, m.order.new_bit())
        depart(
            m, ResponseUnit(ag, site, cta.slots[slot], b, write, ag.time + LATENCY, cluster), known
        )
    return None


def clc_query(
    m: Machine, ag: Agent, site: Site, mask: int, slot: int, rect: Rect
) -> tuple[bool, int]:
    """clusterlaunchcontrol.query_cancel: (whether a cluster was cancelled, which), read by every
    thread of `mask`.

    The response is a write of the async proxy, and so is the next one: unlike other reads, this one
    needs a proxy fence behind it.
    """
    tile = ag.cta.slots[slot]
    for w in range(ag.warps):
        lanes = mask & (WARP_MASK << (32 * w))
        if lanes:
            record = Access(ag, site, lanes, rect, False, False, m.order.new_bit())
            m.order.add_fences(record, ag.cta.rank)
            if m.world.compiled.commits:
                m.order.add_sure(record)
            record.after = read(m, tile, record, ag.known(lanes))
            ag.made(lanes, record.bit | record.sure)
    cluster, _, _, valid = tile.data[rect[0]].tolist()
    return bool(valid), cluster


# -- the kernels before ----------------------------------------------------------------


def grid_dependency_wait(m: Machine, ag: Agent, site: Site, mask: int) -> None:
    """griddepcontrol.wait: there is no kernel before, but it matters who comes after this."""
    m.reach.waited = m.reach.waited or m.order.new_bit()
    ag.acquire(mask, m.reach.waited)


def check_waited(m: Machine, ag: Agent, site: Site, mask: int, tensor: str) -> None:
    """Raises RaceError for a write to global memory by threads that do not know of a
    grid_dependency_wait, in a kernel that has one.
    """
    if not m.reach.waited & ag.known(mask):
        raise RaceError(
            f"{site.what}: {ag} writes tensor '{tensor}' while the kernel before this one may"
            " still use it: no ctx.grid_dependency_wait()"
            " is ordered before this write.\n"
            "  A kernel that calls it somewhere does not wait at the end of set-up. Call it in"
            " the role that writes, before its first"
            " write, or let that role hear of the call by a barrier.",
            site.loc,
        )
