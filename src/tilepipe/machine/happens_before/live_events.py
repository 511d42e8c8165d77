"""The events on a tensor that later ones may conflict with, found by where they lie.

A kernel that stores fragments to a workspace makes thousands of events that stay live, and each is
near few others. So where there are many, those of boxes are kept by the cells of a grid as well,
and an event is compared with those in its own cells alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from statistics import median_low
from typing import Generic, Protocol, TypeVar

Box = tuple[tuple[int, int], ...]  # (first, end) in each dimension
Cell = tuple[int, ...]

FEW = 16  # events that are as well looked through one by one
MOST_CELLS = 32  # of one box


class Located(Protocol):
    """What an event says of its place: see `events.Event`. `number`: in the order of coming."""

    @property
    def box(self) -> Box | None: ...
    @property
    def lo(self) -> int: ...
    @property
    def hi(self) -> int: ...
    @property
    def number(self) -> int: ...


E = TypeVar("E", bound=Located)


class LiveEvents(Generic[E]):
    """Events, in the order in which they came."""

    __slots__ = ("_cells", "_events", "_laid_at", "_sizes", "_wide")

    def __init__(self, events: Iterable[E] = ()) -> None:
        self._events: dict[E, None] = dict.fromkeys(events)
        self._sizes: Cell = ()  # of a cell; (): there is no grid yet
        self._cells: dict[Cell, dict[E, None]] = {}
        self._wide: dict[E, None] = {}  # those that are in no cells: near any
        self._laid_at = 0  # how many events there were when the grid was laid

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[E]:
        return iter(self._events)

    def add(self, event: E) -> None:
        """A further one, after all others."""
        self._events[event] = None
        if self._sizes:
            self._place(event)

    def drop(self, gone: Iterable[E]) -> None:
        """Some are live no longer."""
        for event in gone:
            del self._events[event]
            if not self._sizes:
                continue
            cells = cells_of(event.box, self._sizes)
            if cells is None:
                del self._wide[event]
            else:
                for cell in cells:
                    del self._cells[cell][event]

    def near(self, new: E) -> list[E]:
        """Those that may touch what another event touches; of boxes, those that meet its own."""
        box, lo, hi = new.box, new.lo, new.hi
        if box is None:
            return [old for old in self._events if old.lo < hi and lo < old.hi]
        return [
            old
            for old in self._around(box)
            if (boxes_meet(box, old.box) if old.box is not None else old.lo < hi and lo < old.hi)
        ]

    def _around(self, box: Box) -> Iterable[E]:
        """Those in the cells of a box, in order."""
        count = len(self._events)
        if count <= FEW:
            return self._events
        if count > 2 * self._laid_at:
            self._lay()
        cells = cells_of(box, self._sizes)
        if cells is None:
            return self._events
        found = [held for cell in cells if (held := self._cells.get(cell))]
        if self._wide:
            found.append(self._wide)
        if len(found) == 1:
            return found[0]
        return sorted({event for held in found for event in held}, key=_number)

    def _lay(self) -> None:
        """Lays the grid anew. Its cells are as large as most boxes, so that few are in several."""
        boxes = [event.box for event in self._events if event.box is not None]
        self._laid_at = len(self._events)
        self._cells, self._wide = {}, {}
        self._sizes = tuple(
            max(median_low(end - first for first, end in spans), 1)
            for spans in zip(*boxes, strict=True)
        )
        if self._sizes:
            for event in self._events:
                self._place(event)

    def _place(self, event: E) -> None:
        cells = cells_of(event.box, self._sizes)
        if cells is None:
            self._wide[event] = None
        else:
            for cell in cells:
                self._cells.setdefault(cell, {})[event] = None


def cells_of(box: Box | None, sizes: Cell) -> list[Cell] | None:
    """The cells of a box, in a grid of cells of these sizes; None where there are too many, and
    without a box or a grid.
    """
    if box is None or not sizes:
        return None
    spans, count = [], 1
    for (first, end), size in zip(box, sizes, strict=True):
        span = range(first // size, (end - 1) // size + 1)
        spans.append(span)
        count *= len(span)
    return list(product(*spans)) if count <= MOST_CELLS else None


def boxes_meet(one: Box, other: Box) -> bool:
    """True if two boxes have an element in common; one without elements may count as meeting
    another that lies around it.
    """
    for (a, b), (c, d) in zip(one, other, strict=True):
        if a >= d or c >= b:
            break
    else:
        return True
    return False


def _number(event: Located) -> int:
    return event.number
