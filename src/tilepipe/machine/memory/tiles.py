"""Typed tiles of shared memory: elements in logical order, and which of them have been written.

Layout and swizzle map the elements of a tile one to one on its bytes (`ir.layout.byte_offsets`), so
two accesses to one tile touch a common byte exactly when they touch a common element. Views of one
buffer's slots (`SmemBuffer.shares`) keep contents of their own: a write through one of them leaves
the others unwritten, and any two accesses through different views count as accesses to common
bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilepipe.machine.faults import messages as faults
from tilepipe.machine.happens_before.accesses import Access, Rect
from tilepipe.machine.memory.values import storage

if TYPE_CHECKING:
    from tilepipe.ir.memory import SmemBuffer
    from tilepipe.machine.cta import Cta
    from tilepipe.machine.machine import Machine

EMPTY, PARTIAL, WHOLE = 0, 1, 2


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
