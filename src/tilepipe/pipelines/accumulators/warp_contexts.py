"""Allocation and release of tensor memory in the two roles that share it: the MMA warp owns it, the
epilogue reads it.
"""

from __future__ import annotations

from typing import Self

from tilepipe.errors import TraceError
from tilepipe.ir.location import caller
from tilepipe.ir.program import WARP
from tilepipe.lang.context.synchronisation import NamedBarrier
from tilepipe.lang.handles.linear import Entered
from tilepipe.pipelines.accumulators.tensor_memory import TmemAllocation, TmemDeallocBarrier


class _WarpContext(Entered):
    view = ""  # the call that makes one, for messages

    def __init__(
        self,
        tmem: TmemAllocation,
        dealloc: TmemDeallocBarrier,
        published: NamedBarrier,
        what: str = "",
    ) -> None:
        super().__init__(tmem._tracer, f"{what or self.view} of '{tmem.name}'")
        self._tmem = tmem
        self._dealloc = dealloc
        self._published = published

    def __enter__(self) -> Self:
        self._begin()
        return self

    @classmethod
    def create(
        cls, tmem: TmemAllocation, dealloc: TmemDeallocBarrier, published: NamedBarrier
    ) -> Self:
        """Begins it outside a with statement; `release()` ends it, in the same block."""
        made = cls(tmem, dealloc, published, cls.__name__)
        made._begin()
        return made

    def _begin(self) -> None:
        raise NotImplementedError


class MmaWarpContext(_WarpContext):
    """The MMA warp's use of tensor memory: entering allocates it, gives up the permit to allocate
    more and publishes the address; leaving waits for the epilogue and frees it.

    `published`: a named barrier of this warp and the epilogue's threads, at which this warp only
    arrives.
    """

    view = "mma_warp()"
    how_to_release = "Use it as `with outputs.mma_warp():`, or call release()."

    def _begin(self) -> None:
        self._tmem.allocate()
        # Here, not at the end: until the permit is given up a second CTA on the SM waits in its
        # alloc.
        self._tmem.release_lock()
        self._published.arrive()

    def release(self) -> None:
        """Waits until the epilogue has signalled, and frees the columns."""
        self.mark_released()
        self._dealloc.complete_dealloc(self._tmem)


class EpilogueWarpContext(_WarpContext):
    """The epilogue's use of tensor memory: entering waits for the address; leaving signals that
    every thread has finished with it.
    """

    view = "epilogue_warp()"
    how_to_release = "Use it as `with outputs.epilogue_warp():`, or call release()."

    def _begin(self) -> None:
        active, expected = self._tmem._tracer.scope.active, self._published.threads - WARP
        threads = 0 if active is None else int(active.sum(axis=(1, 2)).max())
        if threads > expected:
            raise TraceError(
                f"epilogue_warp: {threads} threads of role '{self._tmem._tracer.role.name}'"
                f" synchronise with the MMA warp, but the barrier is for {expected}: give the role"
                f" {expected}, or OutputTilePipeline.allocate epilogue_threads={threads}",
                caller(),
            )
        self._published.sync()
        self._tmem.from_shared()

    def release(self) -> None:
        """Every thread arrives on the barrier that the MMA warp waits on before it frees the
        columns, of both CTAs of a pair.
        """
        self.mark_released()
        self._dealloc.signal_complete()


MmaWarp = MmaWarpContext
EpilogueWarp = EpilogueWarpContext
