"""Base classes of pipelines: the full and empty barriers of a ring, and copies with cursors of
their own.
"""

from __future__ import annotations

import copy
from typing import Generic, Self, TypeVar

from tilepipe.ir import expressions as exprs, memory, ops
from tilepipe.ir.location import caller
from tilepipe.lang.tracing.convergence import require_whole_warpgroup_waits
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import Value, to_expr
from tilepipe.pipelines.barriers.mbarriers import MbarPtr, SharedMemBarrier
from tilepipe.pipelines.barriers.storage import BarrierStorage


def wait_for(tracer: Tracer, array: memory.BarrierArray, index: Value, phase: Value) -> None:
    """Waits until a phase of one barrier is complete: warps of a warpgroup together."""
    require_whole_warpgroup_waits(tracer, "a wait")
    ref = memory.BarrierRef(array, to_expr(tracer, index))
    tracer.emit(ops.MbarWait(caller(), ref, to_expr(tracer, phase)))


class BarrierRing:
    """`num_stages` full barriers, which the producer signals, then as many empty ones, which the
    consumer signals.
    """

    num_stages: int

    def _take(self, storage: BarrierStorage, start: int, num_stages: int, name: str) -> None:
        """Takes the barriers of `storage` from number `start` on."""
        self._tracer: Tracer = storage.tracer
        self.name = name
        self._full, self._empty = storage.carve(
            start, (num_stages, num_stages), (f"{name}.full", f"{name}.empty")
        )

    @property
    def full(self) -> MbarPtr:
        """A pointer to the first full barrier: `full[s]` is that of stage s; where stages have
        parts, `full[num_qk_stages · s + q]` that of part q.
        """
        return SharedMemBarrier(self._tracer, self._full, exprs.const(0))

    @property
    def empty(self) -> MbarPtr:
        """A pointer to the first empty barrier, as `full`."""
        return SharedMemBarrier(self._tracer, self._empty, exprs.const(0))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} '{self.name}' of {self.num_stages} stages>"

    def copy(self) -> Self:
        """The same barriers with separate cursors, at the present positions of this pipeline's in
        this role.
        """
        raise NotImplementedError


R = TypeVar("R", bound=BarrierRing)


class OverRing(Generic[R]):
    """Base of what is built on a ring, `pipeline`: tiles in shared memory, accumulators."""

    pipeline: R

    def copy(self) -> Self:
        """The same barriers and memory with separate cursors, at the positions of this
        pipeline's.
        """
        other = copy.copy(self)
        other.pipeline = self.pipeline.copy()
        return other
