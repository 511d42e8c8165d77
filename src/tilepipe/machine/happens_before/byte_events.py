"""The record of the accesses to an allocation of global memory, byte by byte.

An access touches runs of consecutive bytes: one for each row of a box that TMA copies, one for each
thread of an ordinary access. Runs are arrays, so that what two accesses have in common is found by
a search in sorted arrays, whatever the number of bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np
import numpy.typing as npt

from tilepipe.machine.actors import Actor
from tilepipe.machine.happens_before.events import Event, GlobalOrder
from tilepipe.machine.sites import Site

Offsets = npt.NDArray[np.int64]
COARSEST = 16  # bytes that share an entry of the maps, until something accesses fewer


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of `size` bytes at some offsets. `lanes`: whose each run is, for ordinary accesses."""

    starts: Offsets
    size: int
    lanes: tuple[int, ...] | None = None

    @cached_property
    def lo(self) -> int:
        return int(self.starts.min())

    @cached_property
    def hi(self) -> int:
        return int(self.starts.max()) + self.size

    @cached_property
    def grain(self) -> int:
        """The largest power of two, up to `COARSEST`, that all runs consist of."""
        return gcd(int(np.bitwise_or.reduce(self.starts)), self.size, COARSEST)

    @cached_property
    def merged(self) -> tuple[Offsets, Offsets]:
        """The first byte, and the end, of each stretch that the runs cover, ascending."""
        return _merged(self.starts, self.starts + self.size)


def _merged(starts: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
    if len(starts) > 1 and not (starts[1:] > starts[:-1]).all():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    ends = np.maximum.accumulate(ends)
    apart = starts[1:] > ends[:-1]
    if apart.all():
        return starts, ends
    return starts[np.r_[True, apart]], ends[np.r_[apart, True]]


class ByteEvent(Event):
    """An `Event` on the bytes of an allocation. `parts`: the accesses it consists of."""

    __slots__ = ("_merged", "hi", "lo", "parts")

    def __init__(
        self, ag: Actor, site: Site, mask: int, is_write: bool, cluster: int, touched: Runs
    ) -> None:
        super().__init__(ag, site, mask, is_write, cluster)
        self.parts = [touched]
        self.lo, self.hi = touched.lo, touched.hi
        self._merged: tuple[Offsets, Offsets] | None = None

    def add(self, touched: Runs) -> None:
        """A further access of the same threads at the same site."""
        last = self.parts[-1]
        if touched.lanes == last.lanes and np.array_equal(touched.starts, last.starts):
            return
        self.parts.append(touched)
        self.lo, self.hi = min(self.lo, touched.lo), max(self.hi, touched.hi)
        self._merged = None

    @property
    def merged(self) -> tuple[Offsets, Offsets]:
        """The first bytes, and the ends, of each stretch that the parts cover, ascending."""
        if self._merged is None:
            pairs = [part.merged for part in self.parts]
            self._merged = (
                pairs[0]
                if len(pairs) == 1
                else _merged(*(np.concatenate(part) for part in zip(*pairs, strict=True)))
            )
        return self._merged

    def elements_in_common(self, other: Event, shape: tuple[int, ...]) -> bool:
        assert isinstance(other, ByteEvent)
        if self.hi <= other.lo or other.hi <= self.lo:
            return False
        starts, ends = self.merged
        mine, theirs = other.merged
        return bool((np.searchsorted(ends, mine, "right") < np.searchsorted(starts, theirs)).any())

    def covers(self, old: Event) -> bool:
        assert isinstance(old, ByteEvent)
        if old.lo < self.lo or self.hi < old.hi:
            return False
        starts, ends = self.merged
        mine, theirs = old.merged
        stretch = np.searchsorted(starts, mine, "right") - 1
        return bool((stretch >= 0).all() and (theirs <= ends[stretch]).all())

    def by_same_lanes(self, old: Event, common: set[int] | bool) -> bool:
        assert isinstance(old, ByteEvent)
        mine, theirs = self.parts[-1], old.parts
        if mine.lanes is None or any(part.lanes is None for part in theirs):
            return False
        if len(mine.lanes) == 1 and all(part.lanes == mine.lanes for part in theirs):
            return True
        owner = old.lanes_of_bytes() or {}
        for lane, start in zip(mine.lanes, mine.starts, strict=True):
            for byte in range(int(start), int(start) + mine.size):
                if owner.get(byte, 1 << lane) != 1 << lane:
                    return False
        return True

    def lanes_at_common(self, old: Event) -> Iterator[tuple[int, int]] | None:
        assert isinstance(old, ByteEvent)
        before, after = old.lanes_of_bytes(), self.lanes_of_bytes()
        if before is None or after is None:
            return None
        return ((before[byte], after[byte]) for byte in before.keys() & after.keys())

    def lanes_of_bytes(self) -> dict[int, int] | None:
        """Byte -> the lanes that touch it; None where it is not by lanes."""
        owner: dict[int, int] = {}
        for part in self.parts:
            if part.lanes is None:
                return None
            for lane, start in zip(part.lanes, part.starts.tolist(), strict=True):
                for byte in range(start, start + part.size):
                    owner[byte] = owner.get(byte, 0) | 1 << lane
        return owner

    @property
    def key(self) -> tuple[object, ...]:
        return tuple(
            (part.starts.tobytes(), part.size, part.lanes)
            for part in sorted(self.parts, key=lambda part: (part.lo, part.size))
        )


class ByteOrder(GlobalOrder):
    """The accesses to each byte of an allocation. The maps have an entry for every few bytes, as
    many as every access so far has taken together.

    Attributes:
        constant, constant_at: the bytes that loads take for read-only, if there are any, and the
            last of these loads.
    """

    __slots__ = ("constant", "constant_at", "grain", "nbytes")

    def __init__(self, name: str, nbytes: int) -> None:
        self.constant: npt.NDArray[np.bool_] | None = None
        self.constant_at: Site | None = None
        self.grain = COARSEST
        self.nbytes = nbytes
        super().__init__(name, (-(-nbytes // COARSEST),), read_too=True, mixed=True)

    def writers_of(self, touched: Runs) -> Iterator[tuple[int, int, int]]:
        """(cluster, agent, site) of the writes to some of the bytes, by the launch so far."""
        begin, end = touched.merged
        for event in self.history:
            assert isinstance(event, ByteEvent)
            if event.is_write and event.lo < touched.hi and touched.lo < event.hi:
                starts, ends = event.merged
                if (np.searchsorted(ends, begin, "right") < np.searchsorted(starts, end)).any():
                    yield event.cluster, event.agent_uid, event.site.id

    def where(self, touched: Runs) -> Offsets:
        """The entries of the maps for what an access touches."""
        if touched.grain < self.grain:
            times, self.grain = self.grain // touched.grain, touched.grain
            self.writers = np.repeat(self.writers, times)
            if self.readers is not None:
                self.readers = np.repeat(self.readers, times)
            self.shape = self.writers.shape
        count = touched.size // self.grain
        first = touched.starts // self.grain
        return (first[:, None] + np.arange(count)).reshape(-1) if count > 1 else first
