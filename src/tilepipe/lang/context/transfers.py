"""Members of `ctx` that allocate shared memory and move data: ordinary loads and stores, fragments,
TMA copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tilepipe.errors import TraceError
from tilepipe.ir import expressions as exprs, memory, ops
from tilepipe.ir.hardware.tma import broken_reduction_rule
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import (
    Eviction,
    Extent,
    FragmentReduction,
    GlobalScope,
    LoadOrder,
    MatrixOrder,
    MulticastMask,
    Name,
    Reduction,
    StoreOrder,
    Swizzle,
)
from tilepipe.lang.asynchronous.commits import Mbar, check_mask
from tilepipe.lang.fragments import memory as fragment_memory
from tilepipe.lang.fragments.fragment import Fragment, FragmentValue
from tilepipe.lang.memory import strong_memory
from tilepipe.lang.memory.elements import ElementRef
from tilepipe.lang.memory.global_tensors import GlobalTensor
from tilepipe.lang.memory.shared_tiles import SmemTile, SmemTileArray, allocate
from tilepipe.lang.memory.tma_operands import (
    check_box,
    check_rank_of_loads,
    coordinates,
    needs_ragged,
)
from tilepipe.lang.tracing.convergence import require_one_lane
from tilepipe.lang.tracing.tracer import Tracer, require_rule
from tilepipe.lang.values.scalars import (
    Value,
    converted,
    require_integer,
    require_uniform,
    to_expr,
    traced_value,
)


class TransferMembers:
    """The part of `Context` that concerns shared and global memory."""

    tracer: Tracer

    def smem(
        self,
        shape: tuple[int, int],
        dtype: object,
        *,
        count: int = 1,
        order: MatrixOrder = "row",
        swizzle: Swizzle | None = None,
        name: Name = "smem",
    ) -> SmemTileArray:
        """Allocates `count` tiles of (rows, cols) in shared memory, in set-up code.

        Args:
            order: "row": cols contiguous; "col": rows contiguous.
            swizzle: 0, 32, 64 or 128 bytes; the widest that divides the contiguous extent unless
                given.

        Raises:
            TraceError: in a role; a shape, order or swizzle that no TMA copy or MMA could use.
        """
        return allocate(self.tracer, name, count, shape, dtype, order, swizzle)

    def load(
        self, ref: ElementRef, *, order: LoadOrder | None = None, scope: GlobalScope = "gpu"
    ) -> Value:
        """Load of `tile[r, c]` or `tensor[i, j]`, by every active lane.

        Args:
            order: None: an ordinary load. "relaxed", "acquire": a strong load of an element of
                global memory, which may meet the strong stores and atomic operations of other CTAs;
                "acquire" comes after what the release that it observes has published (PTX ISA,
                Memory Consistency Model).
            scope: of a strong load: the threads with which it synchronises.
        """
        if not isinstance(ref, ElementRef):
            raise TraceError(
                f"ctx.load reads one element, `tile[r, c]` or `tensor[i, j]`, not {ref!r}; a"
                " fragment reads a tile: `f.load(tile)`",
                caller(),
            )
        if order is not None:
            return strong_memory.load(self.tracer, ref, order, scope)
        element = ref._touch()
        base = element.base
        places = (
            ()
            if isinstance(base, memory.TensorParam)
            else (base.index, base.row, base.col, *([base.cta] if base.cta is not None else []))
        )
        vary = max((i.vary for i in (*element.index, *places)), default=exprs.Vary.UNIFORM)
        local = self.tracer.local("v", ref.dtype, vary)
        self.tracer.emit(ops.Load(caller(), local, element))
        return traced_value(self.tracer, local)

    def store(
        self,
        ref: ElementRef | SmemTile,
        value: object,
        *,
        order: StoreOrder | None = None,
        scope: GlobalScope = "gpu",
    ) -> None:
        """Store of a scalar to `tile[r, c]` or `tensor[i, j]`, or of a fragment to a tile of its
        shape (stmatrix, or ordinary stores where the tile is a peer's).

        Args:
            order: None: an ordinary store. "relaxed", "release": a strong store of an element of
                global memory; "release" publishes what its thread has done and learned to threads
                that acquire the value. scope: as of `load`.

        Under `per_warp`, a fragment's tile has the 16 rows for each 64 that belong to the warp.
        """
        if order is not None:
            return strong_memory.store(self.tracer, ref, value, order, scope)
        if not isinstance(ref, ElementRef):
            return fragment_memory.store(self.tracer, ref, value)
        element = ref._touch()
        self.tracer.emit(ops.Store(caller(), element, converted(self.tracer, value, ref.dtype)))

    def load_global(
        self,
        tensor: GlobalTensor,
        coords: Sequence[object],
        shape: tuple[int, int],
        *,
        layout: str = "wgmma",
    ) -> Fragment:
        """A new fragment from global memory, by ordinary loads of the whole warpgroup; zero outside
        the tensor.

        Args:
            coords: one a dimension, outermost first. The last two are the first row and column of a
                fragment (m, n), the last is the first row of one (m, 1), or the first column of one
                (1, n); the others are indices.
            shape: (m, n), (m, 1) or (1, n). The dtype is the tensor's; float32 where that has 8
                bits.
            layout: "tmem" for 128 rows that are combined with a fragment from tensor memory.

        Raises:
            TraceError: not a tensor of floats, a coordinate too few, one that varies within the
                warpgroup, no such shape.
        """
        return fragment_memory.load_global(self.tracer, tensor, coords, shape, layout)

    def store_global(
        self,
        tensor: GlobalTensor,
        coords: Sequence[object],
        value: FragmentValue,
        *,
        rows: Extent | None = None,
        reduce: FragmentReduction | None = None,
    ) -> None:
        """Writes a fragment to global memory in the tensor's dtype, by ordinary stores; elements
        outside the tensor are dropped. For outputs that TMA cannot write. `coords` and errors: as
        in `load_global`.

        Args:
            rows: only the first so many rows of a fragment (m, n) or (m, 1) are written, none where
                it is 0 or less: for tensors whose rows belong to groups that begin anywhere.
            reduce: "add": adds each element to what the tensor holds, as `atomic_add` does, of
                int32, uint32, float32, float16 and bfloat16. Relaxed, at gpu scope. The
                last bits of a sum of floats depend on the order of the CTAs, which is not fixed.
        """
        fragment_memory.store_global(self.tracer, tensor, coords, value, rows, reduce)

    def tma_load(
        self,
        tensor: GlobalTensor,
        coords: Sequence[object],
        tile: SmemTile,
        mbar: Mbar,
        multicast: MulticastMask | None = None,
        *,
        lines: Extent | None = None,
        l2: Eviction | None = None,
    ) -> None:
        """Starts a TMA copy of the tensor's box at `coords` (elements, outermost first) into
        `tile`; its bytes are credited to `mbar`.

        Elements outside the tensor arrive as zeros, and are credited too. One lane only.

        Args:
            multicast: a mask of CTA ranks; the box lands in each, and each one's `mbar` is
                credited.
            lines: only the first so many rows of the tile, or columns of a column-major one, are
                read, none where it is 0 or less; the others arrive as zeros, and are credited: for
                tensors whose rows belong to groups that begin anywhere. The map is
                `tensor_map(..., ragged=True)`.
            l2: how soon the L2 cache may drop what was read: "evict_first" for what is read once,
                "evict_last" for what all CTAs read again and again; a hint, on which no result
                depends. None: neither.

        Raises:
            TraceError: lines of a map that is not ragged; tile and map do not fit together.
        """
        require_one_lane(self.tracer, "tma_load")
        check_box(tensor, tile, "tma_load")
        if lines is not None and not tensor.param.ragged:
            raise TraceError(needs_ragged("tma_load: lines=", tensor), caller())
        if tensor.param.ragged:
            check_rank_of_loads(tensor)
            tensor.param.loaded = True
        count = (
            None
            if lines is None
            else require_integer(to_expr(self.tracer, lines), "lines= of tma_load")
        )
        mask = (
            None
            if multicast is None
            else require_uniform(to_expr(self.tracer, multicast), "a multicast mask")
        )
        if isinstance(mask, exprs.Const):
            check_mask(self.tracer, int(mask.value))
        dst, ref = tile.ir("loaded into"), mbar.ref()
        self.tracer.emit(
            ops.TmaLoad(
                caller(),
                tensor.param,
                coordinates(self.tracer, tensor, coords, store=False),
                dst,
                ref,
                mask,
                count,
                cast("ops.Eviction | None", l2),
            )
        )

    def tma_store(
        self,
        tensor: GlobalTensor,
        coords: Sequence[object],
        tile: SmemTile,
        *,
        rows: Extent | None = None,
        reduce: Reduction | None = None,
    ) -> None:
        """Starts a TMA copy of `tile` to the tensor at `coords`; elements outside it are
        dropped. One lane only; see tma_store_commit.

        Args:
            rows: only the first so many rows of the tile are written, none where it is 0 or less:
                for tensors whose rows belong to groups that begin anywhere. The map is
                `tensor_map(..., ragged=True)`.
            reduce: each element of the tensor becomes what the operation makes of it and of the
                tile's, atomically among all CTAs, relaxed at gpu scope. "add": int32, uint32,
                uint64, float32, float16, bfloat16; "min", "max": int32, uint32, int64, uint64,
                float16, bfloat16; "and", "or", "xor": int32, uint32, uint64. The last bits of a sum
                of floats depend on the order of the CTAs, which is not fixed.

        Raises:
            TraceError: rows of a map that is not ragged; tile and map do not fit together; a dtype
                that TMA does not reduce.
        """
        require_one_lane(self.tracer, "tma_store")
        check_box(tensor, tile, "tma_store")
        if rows is not None and not tensor.param.ragged:
            raise TraceError(needs_ragged("tma_store: rows=", tensor), caller())
        if rows is not None and tensor.order == "col":
            raise TraceError(
                "tma_store: rows= leaves out rows of a row-major tile, and"
                f" '{tensor.param.name}' is column-major: transpose the array and the tile",
                caller(),
            )
        count = (
            None
            if rows is None
            else require_integer(to_expr(self.tracer, rows), "rows= of tma_store")
        )
        where = coordinates(self.tracer, tensor, coords, store=True)
        source = tile.ir("stored")
        if reduce is None:
            self.tracer.emit(ops.TmaStore(caller(), tensor.param, where, source, count))
            return
        operation = cast(ops.Reduction, reduce)
        require_rule(broken_reduction_rule(operation, tensor.dtype), repr(tensor))
        self.tracer.emit(ops.TmaReduce(caller(), tensor.param, where, source, operation, count))

    def tma_store_commit(self) -> None:
        """Closes the thread's group of TMA stores."""
        require_one_lane(self.tracer, "tma_store_commit")
        self.tracer.emit(ops.TmaStoreCommit(caller()))

    def tma_store_wait(self, pending: int = 0, *, read: bool = False) -> None:
        """Waits until at most `pending` of this thread's store groups are unfinished; `read`:
        until at most so many have still to read shared memory.

        Groups belong to the thread that committed them: the same elected lane must wait.
        """
        require_one_lane(self.tracer, "tma_store_wait")
        if not isinstance(pending, int) or pending < 0:
            raise TraceError(
                f"tma_store_wait takes a static number of groups >= 0, got {pending!r}", caller()
            )
        self.tracer.emit(ops.TmaStoreWait(caller(), pending, read))
