"""Barriers one after the other in shared memory, divided among the pipelines that take them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from tilepipe.errors import TraceError
from tilepipe.ir import memory
from tilepipe.ir.location import Loc, caller
from tilepipe.lang.tracing.tracer import Tracer


class BarrierStorage:
    """`size` barriers in shared memory; `segments`: the arrays that they are divided into."""

    def __init__(self, tracer: Tracer, name: str, size: int) -> None:
        if tracer.scope.role is not None:
            raise TraceError("shared memory is allocated in set-up code, outside roles", caller())
        self.tracer = tracer
        self.size = size
        self.segments = [memory.BarrierArray(tracer.name(name), size, loc=caller())]
        tracer.kernel.barriers += self.segments
        self._taken: Loc | None = None  # the line of the first op that names a barrier

    def carve(
        self, start: int, sizes: Sequence[int], names: Sequence[str]
    ) -> list[memory.BarrierArray]:
        """Divides consecutive ranges of the array, from `start` on, into named arrays. The same
        division again returns the same arrays: `init_barriers` and the constructor of a pipeline
        take the same pointer.

        Raises:
            TraceError: the ranges leave the array, its barriers have been used, or another pipeline
                has some of them.
        """
        self.tracer.require_running()
        bounds: list[int] = [start, *(start + total for total in accumulate(sizes))]
        places = self._places()
        present = [array for at, array in places if bounds[0] <= at < bounds[-1]]
        if [at for at, _ in places if bounds[0] <= at < bounds[-1]] == bounds[:-1] and [
            x.size for x in present
        ] == list(sizes):
            return present
        around = next(
            (
                (at, array)
                for at, array in places
                if at <= bounds[0] and bounds[-1] <= at + array.size
            ),
            None,
        )
        if around is None:
            raise TraceError(
                f"barriers {bounds[0]} to {bounds[-1] - 1} of an array of {self.size}, which is"
                " divided into"
                f" {', '.join(f'{x.name!r}: {at} to {at + x.size - 1}' for at, x in places)}: a"
                " pipeline takes barriers that no other has",
                caller(),
            )
        if self._taken is not None:
            raise TraceError(
                f"a barrier of this array was used at {self._taken.short}, before a pipeline"
                " divides the array into full and empty: use it afterwards",
                caller(),
            )
        base, whole = around
        cuts = sorted({base, *bounds, base + whole.size})
        made = []
        at = self.segments.index(whole)
        position = self.tracer.kernel.barriers.index(whole)
        for low, high in pairwise(cuts):
            named = low in bounds[:-1] and low >= start
            name = (
                self.tracer.name(names[bounds.index(low)])
                if named
                else self.tracer.name(whole.name)
            )
            made.append(memory.BarrierArray(name, high - low, loc=whole.loc))
        self.segments[at : at + 1] = made
        self.tracer.kernel.barriers[position : position + 1] = made
        return [
            x for low, x in zip(cuts, made, strict=False) if low in bounds[:-1] and low >= start
        ]

    def _places(self) -> list[tuple[int, memory.BarrierArray]]:
        """The arrays that it is divided into, each with the index of its first barrier."""
        starts = accumulate((array.size for array in self.segments), initial=0)
        return list(zip(starts, self.segments, strict=False))  # the last start is the end

    def find(self, position: int) -> tuple[memory.BarrierArray, int]:
        """The array that holds barrier `position`, and its index there."""
        self.tracer.require_running()
        return next(
            (array, position - at)
            for at, array in self._places()
            if at <= position < at + array.size
        )

    def note_use(self) -> None:
        """Records that an op names a barrier here, which may not be divided afterwards."""
        self.tracer.require_running()
        self._taken = self._taken or caller()
