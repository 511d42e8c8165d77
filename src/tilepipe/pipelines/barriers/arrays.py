"""SMemArray: arrays of barriers or scalars in shared memory, and pointers into them."""

from __future__ import annotations

from typing import Generic, TypeVar, cast, overload

from tilepipe.errors import TraceError
from tilepipe.ir import expressions as exprs, memory
from tilepipe.ir.dtypes import DType
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import (
    Name,
)
from tilepipe.lang.context.context import Context
from tilepipe.lang.memory.elements import ElementRef
from tilepipe.lang.memory.shared_tiles import SmemTileArray
from tilepipe.lang.values.scalars import require_integer, require_uniform, to_expr
from tilepipe.pipelines.barriers.mbarriers import BARRIER_BYTES, SharedMemBarrier, pointer
from tilepipe.pipelines.barriers.storage import BarrierStorage

SMemPtr = ElementRef  # what `tile[r, c]` gives; an element of a global tensor is the same type


E = TypeVar("E", SharedMemBarrier, ElementRef)


class SMemArray(Generic[E]):
    """`size` elements of one type in shared memory; `array[i]` is a pointer to element i.

    `len(array)` counts elements and `storage_size` bytes (the API page's original counted bytes in
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
        self._tracer = ctx.tracer
        self.size = size
        self.barriers: BarrierStorage | None = None
        self._scalars: SmemTileArray | None = None
        if type is SharedMemBarrier:
            self.barriers = BarrierStorage(ctx.tracer, name, size)
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

    @property
    def segments(self) -> list[memory.BarrierArray]:
        """The arrays into which pipelines have divided its barriers; none of scalars."""
        return [] if self.barriers is None else self.barriers.segments

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
        if self._scalars is not None:
            element: object = self._scalars[0][0, index]
        else:
            assert self.barriers is not None
            element = self._barrier(self.barriers, index)
        return cast(E, element)

    def _barrier(self, barriers: BarrierStorage, index: object) -> SharedMemBarrier:
        i = require_integer(to_expr(self._tracer, index), "the index of a barrier")
        i = require_uniform(i, "the index of a barrier", exprs.Vary.WARP)
        if isinstance(i, exprs.Const):
            return pointer(barriers, int(i.value))
        if len(barriers.segments) > 1:
            raise TraceError(
                "an array that a pipeline has split into full and empty takes constant indices; use"
                " the pipeline's methods",
                caller(),
            )
        barriers.note_use()
        return SharedMemBarrier(self._tracer, barriers.segments[0], i)

    def __repr__(self) -> str:
        what = "barriers" if self._scalars is None else self._scalars.buffer.dtype
        return f"<array of {self.size} {what} in shared memory>"


Barriers = SMemArray[SharedMemBarrier] | SharedMemBarrier


def array_of(ptr: object, count: int | None, what: str) -> tuple[BarrierStorage, int, int]:
    """A pipeline's barriers: what holds them, the index of the first, and their number.

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
        storage, start = ptr._home
        have = storage.size - start
        if count is not None and count > have:
            raise TraceError(
                f"{what} needs {count} barriers; from {ptr!r} on, the array has {have}", caller()
            )
        return storage, start, have if count is None else count
    if not isinstance(ptr, SMemArray) or ptr.barriers is None:
        raise TraceError(
            f"{what} takes an array of barriers, SMemArray(ctx, SharedMemBarrier, n), or a pointer"
            f" into one; got {ptr!r}",
            caller(),
        )
    return ptr.barriers, 0, ptr.size
