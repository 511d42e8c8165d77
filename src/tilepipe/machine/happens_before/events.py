"""The record of the accesses to a tensor in global memory: events, and maps of its elements."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilepipe.machine.actors import Actor
from tilepipe.machine.happens_before.accesses import GLOBAL
from tilepipe.machine.happens_before.live_events import (
    Box,
    Cell,
    LiveEvents,
    boxes_meet,
    cells_of,
)
from tilepipe.machine.happens_before.memory_order import Strong, Value
from tilepipe.machine.sites import Site

LIMIT = 8192  # live events of a cluster on one tensor; beyond it the oldest are let go, with advice
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
        lo, hi: bytes of the allocation between which all of a `ByteEvent`'s lie, for a quick answer
            to whether it is far from another; of other events everything is between them.
        points: flat index of an element -> the lanes that touched it, for accesses of single
            elements.
        epoch: the agent's `released` when it was made.
        fences: the proxy fences that the agent had executed before it.
        strong: how strong it is; None: it is weak.
        asynchronous: made by TMA. release_bit, fenced, reader_fenced, home: as of an
            `accesses.Access`; set where the kernel reaches the tensor both by TMA and by ordinary
            accesses, and `agent` with them.
    """

    __slots__ = (
        "agent",
        "agent_uid",
        "asynchronous",
        "bit",
        "box",
        "cluster",
        "epoch",
        "fenced",
        "fences",
        "home",
        "is_write",
        "layout",
        "mask",
        "number",
        "points",
        "reader_fenced",
        "release_bit",
        "site",
        "strong",
        "who",
    )  # fmt: skip

    lo = 0
    hi = sys.maxsize

    def __init__(self, ag: Actor, site: Site, mask: int, is_write: bool, cluster: int) -> None:
        self.who = str(ag)
        self.agent_uid = ag.uid
        self.epoch = ag.released
        self.fences = ag.fences
        self.cluster = cluster
        self.site = site
        self.mask = mask
        self.is_write = is_write
        self.strong: Strong | None = None
        self.asynchronous = False
        self.agent = ag
        self.bit = 0
        self.fenced = self.reader_fenced = self.release_bit = 0
        self.home = GLOBAL
        self.number = 0
        self.box: Box | None = None
        self.layout: Layout | None = None
        self.points: dict[int, int] = {}

    @property
    def is_strong(self) -> bool:
        """True of a strong access: others of its location are no race with it."""
        return self.strong is not None

    def elements_in_common(self, other: Event, shape: tuple[int, ...]) -> set[int] | bool:
        """The elements that two events share; True or False where one is a box."""
        if self.box is None and other.box is None:
            return self.points.keys() & other.points.keys()
        if self.box is not None and other.box is not None:
            return boxes_meet(self.box, other.box)
        box, points = (self.box, other.points) if self.box is not None else (other.box, self.points)
        assert box is not None
        places = np.unravel_index(np.fromiter(points, np.int64, len(points)), shape)
        inside = [(lo <= at) & (at < hi) for at, (lo, hi) in zip(places, box, strict=True)]
        return bool(np.logical_and.reduce(inside).any())

    def touches(self, element: int, shape: tuple[int, ...]) -> bool:
        """True if it is to an element, by flat index."""
        if self.box is None:
            return element in self.points
        places = np.unravel_index(element, shape)
        return all(low <= at < end for at, (low, end) in zip(places, self.box, strict=True))

    @property
    def key(self) -> tuple[object, ...]:
        """Which elements it touches, as two executions have it in common."""
        return self.box or (), tuple(sorted(self.points.items())), self.layout or ()

    def by_same_lanes(self, old: Event, common: set[int] | bool) -> bool:
        """True if each of the elements in `common` is touched by one and the same lane in both
        events.
        """
        if old.box is not None:
            return False
        if old.mask == self.mask and old.mask.bit_count() == 1:
            return True
        return isinstance(common, set) and all(
            old.points[p] == self.points[p] and old.points[p].bit_count() == 1 for p in common
        )

    def lanes_at_common(self, old: Event) -> Iterator[tuple[int, int]] | None:
        """For the elements that two events share, the lanes that touched them in `old`, and those
        in this one; None where one is not by lanes.
        """
        if self.box is not None or old.box is not None:
            return None
        return ((old.points[p], self.points[p]) for p in old.points.keys() & self.points.keys())

    def covers(self, old: Event) -> bool:
        """True if every element of `old` is one of this event's."""
        if self.box is None:
            return old.box is None and old.points.keys() <= self.points.keys()
        return old.box is not None and all(
            a <= c and d <= b for (a, b), (c, d) in zip(self.box, old.box, strict=True)
        )


@dataclass(eq=False, slots=True)
class Present:
    """The record of one cluster's accesses to a tensor: see `GlobalOrder`. `lo`, `hi`: between
    which all of them lie, as of an `Event`. `rank`: in the order of the clusters' starts.
    """

    live: LiveEvents[Event] = field(default_factory=LiveEvents)
    settled: LiveEvents[Event] = field(default_factory=LiveEvents)
    written: bool = False
    latest: dict[tuple[int, int, int], Event] = field(default_factory=dict)
    sweep_at: int = SWEEP
    rank: int = 0
    lo: int = sys.maxsize
    hi: int = 0

    def widen(self, event: Event) -> None:
        """Takes in what an event touches."""
        self.lo, self.hi = min(self.lo, event.lo), max(self.hi, event.hi)


class GlobalOrder:
    """The accesses to each element of one tensor.

    Attributes:
        history: every event of the launch; the maps hold 1 + the index of one.
        present: of the cluster that runs: `live`, its events that a later access may still conflict
            with; `settled`, those that only an access by another cluster may still conflict with;
            `written`, whether there has been a write; `latest`, by agent, lanes and site;
            `sweep_at`, how many live ones are worth a sweep.
        presents: of all clusters that have started, where one may be ordered after another; else
            None.
        values: what strong writes have left, by flat index, or by offset of bytes.
        mixed: proxy fences matter: the kernel reaches the tensor both by TMA and by ordinary
            writes (or, under the strict rules, ordinary reads, or TMA both reads and writes it).
    """

    __slots__ = (
        "_cells", "_sizes", "_wide", "history", "mixed", "name", "present", "presents", "readers",
        "shape", "values", "writers",
    )  # fmt: skip

    def __init__(
        self, name: str, shape: tuple[int, ...], read_too: bool, mixed: bool = False
    ) -> None:
        self.name = name
        self.mixed = mixed
        self.shape = shape
        self.writers = np.zeros(shape, np.int32)
        self.readers = np.zeros(shape, np.int32) if read_too else None
        self.history: list[Event] = []
        self.presents: list[Present] | None = None
        self.values: dict[int, Value] = {}
        self._sizes: Cell = ()  # of a cell: of the first box
        self._cells: dict[Cell, dict[Present, None]] = {}  # those that have touched it
        self._wide: dict[Present, None] = {}  # those that may have touched any
        self.start()

    def start(self) -> None:
        """A new cluster."""
        self.present = Present()
        if self.presents is not None:
            self.present.rank = len(self.presents)
            self.presents.append(self.present)

    def touched(self, event: Event) -> None:
        """The cluster that runs has made an event."""
        if self.presents is None:
            return
        if event.box is not None and not self._sizes and event.box[0][1]:  # one with elements
            self._sizes = tuple([end - first for first, end in event.box])
        cells = cells_of(event.box, self._sizes)
        if cells is None:
            self._wide[self.present] = None
        else:
            for cell in cells:
                self._cells.setdefault(cell, {})[self.present] = None

    def others(self, new: Event) -> list[Present]:
        """The records of other clusters that may have touched what an event touches, in the order
        of their starts.
        """
        assert self.presents is not None
        cells = cells_of(new.box, self._sizes)
        found = self.presents
        if cells is not None:
            near = set(self._wide).union(*[self._cells.get(cell, ()) for cell in cells])
            found = sorted(near, key=lambda present: present.rank)
        lo, hi = new.lo, new.hi
        return [p for p in found if p is not self.present and p.lo < hi and lo < p.hi]
