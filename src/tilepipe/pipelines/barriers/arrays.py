"""SMemArray: arrays of barriers or scalars in shared memory, and pointers into them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Generic, TypeVar, cast, overload

from tilepipe.errors import TraceError
from tilepipe.ir import expressions as exprs
from tilepipe.ir import memory
from tilepipe.ir.dtypes import DType
from tilepipe.ir.location import Loc, caller
from tilepipe.lang.arguments.annotations import (
    Name,
)
from tilepipe.lang.context.context import Context
from tilepipe.lang.memory.elements import ElementRef
from tilepipe.lang.memory.shared_tiles import SmemTileArray
from tilepipe.lang.values.scalars import require_integer, require_uniform, to_expr
from tilepipe.pipelines.barriers.mbarriers import BARRIER_BYTES, SharedMemBarrier

SMemPtr = ElementRef  # what `tile[r, c]` gives; an element of a global tensor is the same type


E = TypeVar("E", SharedMemBarrier, ElementRef)


class SMemArray(Generic[E]):
    """`size` elements of one type in shared memory; `array[i]` is a pointer to element i.

    `len(array)` counts elements and `storage_size` bytes (the page's original counted bytes in
    both). For `SharedMemBarrier` the elements are barriers; for a dtype, scalars for `ctx.load` and
    `ctx.store`.
    """

    @overload
    def __init__(
        self: SMemArray[SharedMemBarrier],
        ctx: Context,
        type: type[SharedMemBarrier],
        size: int,
        name: str = "array",
    ) -> None: ...

    @overload
    def __init__(
        self: SMemArray[ElementRef], ctx: Context, type: DType | str, size: int, name: str = "array"
    ) -> None: ...

    def __init__(
        self,
        ctx: Context,
        type: type[SharedMemBarrier] | DType | str,
        size: int,
        name: Name = "array",
    ) -> None:
        if not isinstance(size, int) or size < 1:
            raise TraceError(
                f"an array in shared memory has at least one element, got {size!r}", caller()
            )
        tracer = ctx.tracer
        if tracer.scope.role is not None:
            raise TraceError("shared memory is allocated in set-up code, outside roles", caller())
        self._tracer = tracer
        self.size = size
        self.segments: list[memory.BarrierArray] = []
        self._taken: Loc | None = None  # the line of the first op that names a barrier
        self._scalars: SmemTileArray | None = None
        if type is SharedMemBarrier:
            self._add(name, size)
        else:
            self._scalars = ctx.smem((1, size), type, swizzle=0, name=name)

    @overload
    @staticmethod
    def stack_allocation(
        ctx: Context, type: type[SharedMemBarrier], size: int, name: str = "array"
    ) -> SMemArray[SharedMemBarrier]: ...

    @overload
    @staticmethod
    def stack_allocation(
        ctx: Context, type: DType | str, size: int, name: str = "array"
    ) -> SMemArray[ElementRef]: ...

    @staticmethod
    def stack_allocation(
        ctx: Context, type: type[SharedMemBarrier] | DType | str, size: int, name: Name = "array"
    ) -> SMemArray[SharedMemBarrier] | SMemArray[ElementRef]:
        """Allocates the array."""
        return SMemArray(ctx, type, size, name)

    def _add(self, name: str, size: int) -> memory.BarrierArray:
        array = memory.BarrierArray(self._tracer.name(name), size, loc=caller())
        self._tracer.kernel.barriers.append(array)
        self.segments.append(array)
        return array

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
        self._tracer.require_running()
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
                " divides the array into full and empty:"
                " use it afterwards",
                caller(),
            )
        base, whole = around
        cuts = sorted({base, *bounds, base + whole.size})
        made = []
        at = self.segments.index(whole)
        position = self._tracer.kernel.barriers.index(whole)
        for low, high in pairwise(cuts):
            named = low in bounds[:-1] and low >= start
            name = (
                self._tracer.name(names[bounds.index(low)])
                if named
                else self._tracer.name(whole.name)
            )
            made.append(memory.BarrierArray(name, high - low, loc=whole.loc))
        self.segments[at : at + 1] = made
        self._tracer.kernel.barriers[position : position + 1] = made
        return [
            x for low, x in zip(cuts, made, strict=False) if low in bounds[:-1] and low >= start
        ]

    def _places(self) -> list[tuple[int, memory.BarrierArray]]:
        """The arrays that it is divided into, each with the index of its first barrier."""
        starts = [0]
        for array in self.segments[:-1]:
            starts.append(starts[-1] + array.size)
        return list(zip(starts, self.segments, strict=True))

    def find(self, position: int) -> tuple[memory.BarrierArray, int]:
        """The array that holds barrier `position`, and its index there."""
        self._tracer.require_running()
        return next(
            (array, position - at)
            for at, array in self._places()
            if at <= position < at + array.size
        )

    def pointer(self, position: int) -> SharedMemBarrier:
        """A pointer to barrier `position`, which stays valid when a pipeline divides the array.

        Raises:
            TraceError: there is no such barrier.
        """
        if not 0 <= position < self.size:
            raise TraceError(f"barrier {position} of an array of {self.size}", caller())
        array, index = self.find(position)
        at, home = exprs.const(index), (self, position)
        return SharedMemBarrier(self._tracer, array, at, home=home)  # type: ignore[arg-type]

    def note_use(self) -> None:
        """Records that an op names a barrier of this array, which may not be divided afterwards."""
        self._tracer.require_running()
        self._taken = self._taken or caller()

    @property
    def ptr(self) -> E:
        """A pointer to the first element."""
        return self[0]

    @property
    def storage_size(self) -> int:
        """Its size in bytes."""
        return self.size * (
            BARRIER_BYTES if self._scalars is None else self._scalars.buffer.dtype.nbytes
        )

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: object) -> E:
        element = self._scalars[0][0, index] if self._scalars is not None else self._barrier(index)
        return cast(E, element)

    def _barrier(self, index: object) -> SharedMemBarrier:
        i = require_integer(to_expr(self._tracer, index), "the index of a barrier")
        i = require_uniform(i, "the index of a barrier", exprs.Vary.WARP)
        if isinstance(i, exprs.Const):
            return self.pointer(int(i.value))
        if len(self.segments) > 1:
            raise TraceError(
                "an array that a pipeline has split into full and empty takes constant indices;"
                " use the pipeline's methods",
                caller(),
            )
        self.note_use()
        return SharedMemBarrier(self._tracer, self.segments[0], i)

    def __repr__(self) -> str:
        return f"<{self.size} in shared memory>"


Barriers = SMemArray[SharedMemBarrier] | SharedMemBarrier


def array_of(
    ptr: object, count: int | None, what: str
) -> tuple[SMemArray[SharedMemBarrier], int, int]:
    """A pipeline's barriers: the array, the index of the first, and their number.

    `ptr`: an array, or a pointer into one, meaning the barriers from there on: `count` of them, or
    all.

    Raises:
        TraceError: neither of them, a pointer with a traced index, or fewer than `count` barriers
            from there on.
    """
    if isinstance(ptr, SharedMemBarrier):
        if ptr._home is None:
            raise TraceError(
                f"{what} takes an array of barriers or a pointer into one, such as `storage[4]`;"
                f" got {ptr!r}",
                caller(),
            )
        array, start = ptr._home
        have = array.size - start
        if count is not None and count > have:
            raise TraceError(
                f"{what} needs {count} barriers; from {ptr!r} on, the array has {have}", caller()
            )
        return array, start, have if count is None else count
    if not isinstance(ptr, SMemArray) or not ptr.segments:
        raise TraceError(
            f"{what} takes an array of barriers, SMemArray(ctx, SharedMemBarrier, n), or a"
            f" pointer into one; got {ptr!r}",
            caller(),
        )
    return ptr, 0, ptr.size
