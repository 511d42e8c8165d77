"""Happens-before on a tensor in global memory that the kernel writes.

Within a cluster the bits of `ordering` decide, element by element. Nothing in the language orders
CTAs of different clusters within a launch, so two of them at one element, one writing, is always a
race: for that, maps hold for each element its last write and, where the kernel also reads, its last
read.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilepipe.machine.faults import messages as faults
from tilepipe.machine.happens_before.accesses import GLOBAL, WARP_MASK
from tilepipe.machine.units import grid

if TYPE_CHECKING:
    from tilepipe.machine.agents import Agent
    from tilepipe.machine.machine import Machine
    from tilepipe.machine.sites import Site

LIMIT = 4096  # live events of a cluster on one tensor; beyond it the oldest are let go, with advice
SWEEP = 64  # live events from which it is worth asking what every agent knows
# in a map: clusters other than the last one's have read the element too, or have added to it
# atomically
MANY = -2

Index = tuple[Any, ...]
Layout = tuple[str, int, int]


class Event:
    """Accesses of one site to global memory, by some threads of a warp, with nothing released
    between them.

    Attributes:
        bit: its bit while it is live, then 0: whatever comes is ordered after it.
        box: (first, end) in each dimension, for TMA and fragments; None for accesses of single
            elements.
        layout: where an (m, n) fragment begins, in rows modulo 64 and columns modulo 8, which
            decides the lane of each element.
        points: flat index of an element -> the lanes that touched it, for accesses of single
            elements.
        epoch: the agent's `released` when it was made.
        fences: the proxy fences that the agent had executed before it.
        atomic: an atomic add, which does not race with other atomic ones.
        asynchronous: made by TMA. sure, fenced, reader_fenced, home: as of an `ordering.Access`;
            set where the kernel reaches the tensor both by TMA and by ordinary accesses, and
            `agent` with them.
    """

    __slots__ = (
        "agent", "agent_uid", "asynchronous", "atomic", "bit", "box", "cluster", "epoch", "fenced", "fences", "home", "is_write", "layout",
        "mask", "number", "points", "reader_fenced", "site", "sure", "who",
    )  # fmt: skip

    def __init__(self, ag: Agent, site: Site, mask: int, is_write: bool, cluster: int) -> None:
        self.who = str(ag)
        self.agent_uid = ag.uid
        self.epoch = ag.released
        self.fences = ag.fences
        self.cluster = cluster
        self.site = site
        self.mask = mask
        self.is_write = is_write
        self.atomic = False
        self.asynchronous = False
        self.agent = ag
        self.bit = 0
        self.fenced = self.reader_fenced = self.sure = 0
        self.home = GLOBAL
        self.number = 0
        self.box: tuple[tuple[int, int], ...] | None = None
        self.layout: Layout | None = None
        self.points: dict[int, int] = {}

    def elements_in_common(self, other: Event, shape: tuple[int, ...]) -> set[int] | bool:
        """The elements that two events share; True or False where one is a box."""
        if self.box is None and other.box is None:
            return self.points.keys() & other.points.keys()
        if self.box is not None and other.box is not None:
            return all(a < d and c < b for (a, b), (c, d) in zip(self.box, other.box, strict=True))
        box, points = (self.box, other.points) if self.box is not None else (other.box, self.points)
        assert box is not None
        places = np.unravel_index(np.fromiter(points, np.int64, len(points)), shape)
        inside = [(lo <= at) & (at < hi) for at, (lo, hi) in zip(places, box, strict=True)]
        return bool(np.logical_and.reduce(inside).any())

    def covers(self, old: Event) -> bool:
        """Whether every element of `old` is one of this event's."""
        if self.box is None:
            return old.box is None and old.points.keys() <= self.points.keys()
        return old.box is not None and all(
            a <= c and d <= b for (a, b), (c, d) in zip(self.box, old.box, strict=True)
        )


class Present:
    """What a tensor's order keeps of one running cluster: see `GlobalOrder`."""

    __slots__ = ("latest", "live", "sweep_at")

    def __init__(self) -> None:
        self.live: list[Event] = []
        self.latest: dict[tuple[int, int, int], Event] = {}
        self.sweep_at = SWEEP


class GlobalOrder:
    """Who touched which element of one tensor.

    Attributes:
        history: every event of the launch; the maps hold 1 + the index of one.
        present: of the cluster that runs: `live`, its events that a later access may still conflict
            with; `latest`, by agent, lanes and site; `sweep_at`, how many live ones are worth a
            sweep.
        mixed: the kernel reaches the tensor both by TMA and by ordinary writes (or, under the
            strict rules, reads), so that proxy fences matter.
    """

    __slots__ = ("history", "mixed", "name", "present", "readers", "shape", "writers")

    def __init__(
        self, name: str, shape: tuple[int, ...], read_too: bool, mixed: bool = False
    ) -> None:
        self.name = name
        self.mixed = mixed
        self.shape = shape
        self.writers = np.zeros(shape, np.int32)
        self.readers = np.zeros(shape, np.int32) if read_too else None
        self.history: list[Event] = []
        self.start()

    def start(self) -> None:
        """A new cluster."""
        self.present = Present()

    def box(
        self, m: Machine, ag: Agent, site: Site, mask: int, where: Index, is_write: bool, layout: Layout | None = None,
        asynchronous: bool = False,
    ) -> Event:  # fmt: skip
        """An access to a box within bounds, by TMA (`asynchronous`) or by a warp's part of a
        fragment.
        """
        if is_write and m.world.compiled.waits_itself:
            grid.check_waited(m, ag, site, mask, self.name)
        event = Event(ag, site, mask, is_write, m.cluster_id)
        event.layout = layout
        event.asynchronous = asynchronous
        spans = tuple((s.start, s.stop) for s in where)
        some = prod(b - a for a, b in spans) > 0
        event.box = spans if some else ((0, 0),) * len(spans)  # meets no other, wherever it lies
        known = ag.known(mask)
        self._across_clusters(m, ag, site, where, is_write)
        if some:
            self._within_cluster(m, ag, event, known)
        self._record(m, event, where)
        return event

    def points(
        self,
        m: Machine,
        ag: Agent,
        site: Site,
        mask: int,
        where: tuple[list[int], ...],
        is_write: bool,
        atomic: bool = False,
    ) -> None:
        """An ordinary access, or an atomic one, by each thread of `mask`; `where`: their indices in
        each dimension.
        """
        if is_write and m.world.compiled.waits_itself:
            grid.check_waited(m, ag, site, mask, self.name)
        self._across_clusters(m, ag, site, where, is_write, atomic)
        flat = np.ravel_multi_index(where, self.shape).tolist()
        lanes = [i for i in range(mask.bit_length()) if mask >> i & 1]
        for w in range(ag.warps):
            part = mask & (WARP_MASK << (32 * w))
            mine = [i for i, lane in enumerate(lanes) if lane // 32 == w]
            if not mine:
                continue
            event = Event(ag, site, part, is_write, m.cluster_id)
            event.atomic = atomic
            for i in mine:
                event.points[flat[i]] = event.points.get(flat[i], 0) | 1 << lanes[i]
            self._within_cluster(m, ag, event, ag.known(part))
            here = tuple([at[i] for i in mine] for at in where)
            before = self.present.latest.get((ag.uid, part, site.id))
            same = before is not None and before.bit and before.epoch == ag.released
            if before is not None and same and (not self.mixed or before.fences == ag.fences):
                for point, by in event.points.items():
                    before.points[point] = before.points.get(point, 0) | by
                self._mark(before, here)
                continue
            self._record(m, event, here)
            self.present.latest[ag.uid, part, site.id] = event
            ag.made(part, event.bit | event.sure)

    # -- checks ------------------------------------------------------------------------

    def _across_clusters(
        self, m: Machine, ag: Agent, site: Site, where: Index, is_write: bool, atomic: bool = False
    ) -> None:
        """Raises RaceError: another cluster wrote an element, or read one that is now written."""
        maps = [(self.writers, "written")]
        if is_write and self.readers is not None:
            maps.append((self.readers, "read"))
        for kept, verb in maps:
            seen = kept[where]
            if not seen.any():
                continue
            for number in np.unique(seen).tolist():
                event = self.history[number - 1] if number > 0 else None
                if atomic and kept is self.writers and (event is None or event.atomic):
                    continue
                if number == MANY or (event is not None and event.cluster != m.cluster_id):
                    faults.global_race(m, self.name, event, verb, ag, site)

    def _within_cluster(self, m: Machine, ag: Agent, new: Event, known: int) -> None:
        """Orders an event against the live ones and retires those it covers.

        Raises:
            RaceError: one that conflicts is not known to the threads that make it.
        """
        keep = []
        for old in self.present.live:
            atomics = new.atomic and old.atomic
            common: set[int] | bool = (
                (new.is_write or old.is_write)
                and not atomics
                and new.elements_in_common(old, self.shape)
            )
            if common and not (old.bit & known or _same_lanes(old, new, common)):
                faults.global_race(
                    m, self.name, old, "written" if old.is_write else "read", ag, new.site
                )
            elif common and old.sure and not (old.sure & known or _same_lanes(old, new, common)):
                faults.told_by_a_commit(m, f"tensor '{self.name}'", old, old.who, str(ag), new.site)
            if common and new.asynchronous and old.fenced:
                faults.check_global_proxy(m, self.name, old, ag, new.site, known)
            alike = new.is_write == old.is_write and new.asynchronous == old.asynchronous
            over = (new.is_write and not atomics) or (alike and bool(old.bit & known))
            if over and isinstance(common, set) and not new.covers(old):
                for point in common:
                    del old.points[point]
            if over and new.covers(old):
                self._retire(m, old)
            else:
                keep.append(old)
        self.present.live = keep

    def _retire(self, m: Machine, event: Event) -> None:
        m.order.retire(event)
        event.bit = event.fenced = event.reader_fenced = event.sure = 0
        event.points = {}

    def _record(self, m: Machine, event: Event, where: Index) -> None:
        present = self.present
        if len(present.live) >= present.sweep_at:
            self._sweep(m)
        event.bit = m.order.new_bit()
        if self.mixed and not event.asynchronous and (event.is_write or m.world.strict):
            m.order.add_fences(event, GLOBAL)
        if m.world.compiled.commits and not event.asynchronous:
            m.order.add_sure(event)
        present.live.append(event)
        self.history.append(event)
        event.number = len(self.history)
        self._mark(event, where)

    def _mark(self, event: Event, where: Index) -> None:
        """Puts an event into the map of the elements it touches."""
        if event.atomic:
            self.writers[where] = self._merged(self.writers[where], event)
        elif event.is_write:
            self.writers[where] = event.number
        elif self.readers is not None:
            self.readers[where] = self._merged(self.readers[where], event)

    def _merged(self, seen: npt.NDArray[np.int32], event: Event) -> npt.NDArray[np.int32] | int:
        """A map after a read, or an atomic write: MANY where another cluster has made one to the
        element as well.
        """
        before = [int(i) for i in np.unique(seen) if i]
        others = [i for i in before if i == MANY or self.history[i - 1].cluster != event.cluster]
        return (
            np.where(np.isin(seen, others), MANY, event.number).astype(np.int32)
            if others
            else event.number
        )

    def _sweep(self, m: Machine) -> None:
        """Lets go of what every agent that is still running knows of, and of the oldest where too
        many are left.
        """
        common = -1
        for agent in m.agents:
            if not agent.done:
                common &= agent.k
        keep = []
        for event in self.present.live:
            if event.bit & common and not (event.fenced | event.sure) & ~common:
                self._retire(m, event)
            else:
                keep.append(event)
        if len(keep) >= LIMIT:
            for event in keep[: LIMIT // 2]:
                self._retire(m, event)
            keep = keep[LIMIT // 2 :]
            m.world.incomplete = f"{LIMIT:,} live accesses of a cluster to tensor '{self.name}'"
            m.world.advise(
                f"tensor '{self.name}': a cluster has more than {LIMIT:,} accesses to it that not"
                " every role knows of;"
                " the oldest are no longer compared with later ones, so a race with them would"
                " not be seen"
            )
        self.present.live = keep
        self.present.sweep_at = max(SWEEP, min(2 * len(keep), LIMIT))


def _same_lanes(old: Event, new: Event, common: set[int] | bool) -> bool:
    """Whether program order settles it: one agent, and each common element is touched by one and
    the same lane.
    """
    if old.agent_uid != new.agent_uid:
        return False
    if old.layout is not None and old.layout == new.layout and old.mask == new.mask:
        return True
    if old.box is not None:
        return False
    if old.mask == new.mask and old.mask.bit_count() == 1:
        return True
    return isinstance(common, set) and all(
        old.points[p] == new.points[p] and old.points[p].bit_count() == 1 for p in common
    )
