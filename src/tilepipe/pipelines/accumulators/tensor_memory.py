"""Tensor memory between the MMA warp and the epilogue: its allocation, its stages, and the barrier
that precedes its release.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.errors import TraceError
from tilepipe.ir import expressions as exprs, memory, ops
from tilepipe.ir.hardware import tensor_memory
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import CtaGroup, Index, Name
from tilepipe.lang.context.context import Context
from tilepipe.lang.fragments.fragment import Fragment
from tilepipe.lang.handles.arrivals import count_arrivals
from tilepipe.lang.handles.linear import Handle
from tilepipe.lang.tensor_memory.addresses import LOWER_LANES
from tilepipe.lang.tensor_memory.tcgen05 import use_group
from tilepipe.lang.tensor_memory.tensors import TmemScales, TmemTensor
from tilepipe.lang.tracing.scopes import RoleState
from tilepipe.lang.tracing.tracer import require_rule
from tilepipe.lang.values.scalars import Value, to_expr
from tilepipe.pipelines.barriers.arrays import SMemArray
from tilepipe.pipelines.barriers.mbarriers import SharedMemBarrier, init_barriers

COLUMN_BITS = 0xFFFF  # of an address; the lane is above them


class TmemAllocation:
    """Columns of tensor memory that a kernel reserves: allocate, release_lock, use, wait for the
    epilogue, deallocate.

    Made in set-up code, where it takes one word of shared memory. The MMA warp calls `allocate()`;
    the other roles call `from_shared()` after a barrier that follows it. Each role that uses it
    calls one of the two (API page OutputTilePipeline, comptime member Tmem).
    """

    def __init__(
        self,
        ctx: Context,
        columns: int = tensor_memory.COLUMNS,
        *,
        cta_group: CtaGroup = 1,
        name: Name = "tmem",
    ) -> None:
        """`columns` of 32 bits, a power of two in 32..512; `cta_group` 2: the same columns in both
        CTAs of a pair.

        Raises:
            TraceError: in a role, or a number of columns that cannot be allocated.
        """
        require_rule(tensor_memory.broken_columns_rule(columns))
        use_group(ctx.tracer, cta_group)
        self._ctx = ctx
        self._tracer = ctx.tracer
        # what each role has allocated, and the address that it has read
        self._held: dict[RoleState, TmemColumns] = {}
        self._addresses: dict[RoleState, Value] = {}
        self.columns = columns
        self.cta_group = cta_group
        self.name = name
        self._word = SMemArray(ctx, "uint32", 1, f"{name}_address")

    def allocate(self) -> None:
        """tcgen05.alloc by one whole warp: reserves the columns and writes their address to shared
        memory, where this role reads it. Waits while the columns are taken. In a pair, a warp of
        each CTA calls it.
        """
        t = self._tracer
        self._require_warp("allocate")
        self._held[t.role] = TmemColumns(self)
        t.emit(ops.TmemAlloc(caller(), self._slot(), self.columns, self.cta_group))
        self._ctx.syncwarp()
        self.from_shared()

    def from_shared(self) -> None:
        """Reads the address that `allocate` has written; a barrier must order the two."""
        self._addresses[self._tracer.role] = self._ctx.load(self._word[0])

    def _slot(self) -> memory.Tile:
        base = self._word[0].ir.base
        assert isinstance(base, memory.Tile)
        return base

    def _require_warp(self, what: str) -> None:
        active = self._tracer.scope.active
        threads = None if active is None else active.reshape(active.shape[0], -1, 32).sum(axis=2)
        if (
            threads is None
            or ((threads != 0).sum(axis=1) > 1).any()
            or not ((threads == 0) | (threads == 32)).all()
        ):
            raise TraceError(
                f"tcgen05: {what} of '{self.name}' is executed by one whole warp; role"
                f" '{self._tracer.role.name}' executes it with another number of threads. Give the"
                " role one warp, or write `with ctx.when(ctx.warp == 0):`.",
                caller(),
            )

    @property
    def addr(self) -> Value:
        """The address of the first column, a uint32.

        Raises:
            TraceError: this role has neither allocated it nor read its address.
        """
        address = self._addresses.get(self._tracer.role)
        if address is None:
            raise TraceError(
                f"role '{self._tracer.role.name}' does not know where '{self.name}' is: call"
                f" {self.name}.allocate() in the role that owns it, and in the others, after a"
                " barrier, from_shared() (`with outputs.epilogue_warp():` does both)",
                caller(),
            )
        columns = self._held.get(self._tracer.role)
        if columns is not None:
            columns.check_held()
        return address

    def tensor(
        self, shape: tuple[int, int], dtype: object = "float32", col: Index = 0
    ) -> TmemTensor:
        """A matrix (rows, cols) from 32-bit column `col` on; `col + (16 << 16)`: in the lower lanes
        of each warp, for 64 rows.

        Raises:
            TraceError: it leaves the columns that are allocated.
        """
        address = self.addr + self._ctx._value(col)
        made = TmemTensor(self._tracer, to_expr(self._tracer, address), shape, dtype)
        first = (col & COLUMN_BITS if col > 0 else col) if isinstance(col, int) else 0
        self._check_inside(first, made.columns)
        return made

    def scales(
        self, shape: tuple[int, int], dtype: object = "float8_e8m0", col: Index = 0
    ) -> TmemScales:
        """Scale factors (rows, blocks of K) from 32-bit column `col` on: 4 columns for each 128
        rows × 4 blocks.

        Raises:
            TraceError: they leave the columns that are allocated; a dtype or shape that scale
                factors do not have.
        """
        made = TmemScales(
            self._tracer, to_expr(self._tracer, self.addr + self._ctx._value(col)), shape, dtype
        )
        first = col if isinstance(col, int) else 0
        self._check_inside(first, made.columns)
        return made

    def _check_inside(self, first: int, columns: int) -> None:
        if first < 0 or first + columns > self.columns:
            raise TraceError(
                f"columns [{first}, {first + columns}) of '{self.name}', which has {self.columns}"
                " columns of 32 bits",
                caller(),
            )

    def release_lock(self) -> None:
        """tcgen05.relinquish_alloc_permit: this CTA allocates no more; CTAs that wait for columns
        may. Call it right after the last `allocate()`: until then another CTA on the SM waits in
        its own allocation, even where columns are free.
        """
        self._require_warp("release_lock")
        columns = self._held.get(self._tracer.role)
        if columns is not None:
            columns.relinquished = True
        self._tracer.emit(ops.TmemRelinquish(caller(), self.cta_group))

    def deallocate(self) -> None:
        """tcgen05.dealloc by the warp that allocated, when the columns are no longer used.

        Raises:
            HandleError: not allocated in this role, or freed already.
        """
        self._require_warp("deallocate")
        columns = self._held.get(self._tracer.role)
        if columns is None:
            raise TraceError(
                f"'{self.name}' is freed in role '{self._tracer.role.name}', which has not"
                " allocated it",
                caller(),
            )
        columns.check_releasable()
        address = to_expr(self._tracer, self.addr)
        columns.mark_released()
        self._tracer.emit(ops.TmemDealloc(caller(), address, self.columns, self.cta_group))


class TmemColumns(Handle):
    """The columns that `TmemAllocation.allocate` has acquired: to be freed once, in the block that
    allocated them.
    """

    how_to_release = (
        "Free it: deallocate() when the epilogue has finished, or use `with outputs.mma_warp():`,"
        " which does."
    )

    def __init__(self, allocation: TmemAllocation) -> None:
        super().__init__(allocation._tracer, f"tensor memory '{allocation.name}'")
        self.relinquished = False


class TmemStage:
    """One stage of an accumulator ring: `stage_stride_cols` columns from `base + index ·
    stage_stride_cols`.
    """

    def __init__(
        self, base: TmemAllocation | Value, index: Index, stride: int, owner: Handle | None = None
    ) -> None:
        self._base = base
        self._tracer = base._tracer
        self.index = index
        self._stride = stride
        self._owner = owner

    @classmethod
    def from_offset(cls, offset: Value, index: Index = 0) -> TmemStage:
        """The stage at an address."""
        Context(offset._tracer)._value(index)  # raises if it belongs to another kernel
        return cls(offset, index, 0)

    def offset(self) -> Value:
        """Its address in tensor memory, a uint32."""
        base = self._base.addr if isinstance(self._base, TmemAllocation) else self._base
        if not self._stride:
            return base
        return base + Context(self._tracer)._value(self.index) * self._stride

    def tensor(self, shape: tuple[int, int], dtype: object = "float32") -> TmemTensor:
        """The matrix (rows, cols) at the start of the stage.

        Raises:
            TraceError: it is wider than the stage.
        """
        made = TmemTensor(
            self._tracer, to_expr(self._tracer, self.offset()), shape, dtype, self._owner
        )
        self._check_width(0, made)
        return made

    def _check_width(self, col: int, t: TmemTensor) -> None:
        end = col + t.columns
        if self._stride and end > self._stride:
            raise TraceError(
                f"{t!r} ends at column {end} of a stage of {self._stride} columns"
                " (stage_stride_cols), in the next stage: make stage_stride_cols at least as large"
                " as an accumulator",
                caller(),
            )

    def load_upper(self, cols: int, col: int = 0) -> Fragment:
        """tcgen05.ld.16x256b of lanes 0..15 of each warp: a fragment (64, cols) whose row 16 w + r
        is lane 32 w + r.
        """
        return self._half(cols, col, 0)

    def load_lower(self, cols: int, col: int = 0) -> Fragment:
        """`load_upper` of lanes 16..31: row 16 w + r is lane 32 w + 16 + r."""
        return self._half(cols, col, LOWER_LANES)

    def _half(self, cols: int, col: int, lanes: int) -> Fragment:
        if col < 0:
            raise TraceError(
                f"a load of {cols} columns begins at column {col} of a stage", caller()
            )
        address = to_expr(self._tracer, self.offset() + (lanes + col))
        half = TmemTensor(self._tracer, address, (64, cols), "float32", self._owner)
        self._check_width(col, half)
        return half.load()


@dataclass(frozen=True, eq=False)
class TmemFragments:
    """The registers of a slice of an accumulator, by halves of each warp's lanes; `lower` is
    None for an accumulator of 64 rows.

    `TmemTensor.load()` gives both in one fragment of layout "tmem".
    """

    upper: Fragment
    lower: Fragment | None

    @classmethod
    def load(cls, stage: TmemStage, rows: int, cols: int, col: int = 0) -> TmemFragments:
        """Columns [col, col + cols) of the accumulator of `rows` rows at a stage; to be read after
        `ctx.tmem_wait_load()`.
        """
        if rows not in (64, 128):
            raise TraceError(f"an accumulator has 64 or 128 rows, got {rows!r}", caller())
        return cls(
            stage.load_upper(cols, col), stage.load_lower(cols, col) if rows == 128 else None
        )


class TmemDeallocBarrier:
    """The mbarrier on which the epilogue's threads, in a pair those of both CTAs, signal that they
    have finished with tensor memory. Single use.
    """

    def __init__(
        self, ctx: Context, cta_group: CtaGroup = 1, *, name: Name = "tmem_dealloc"
    ) -> None:
        """Made in set-up code; the count, `cta_group` times the threads that signal, is derived."""
        self._ctx = ctx
        self._tracer = ctx.tracer
        self.cta_group = cta_group
        self._barrier = SMemArray(ctx, SharedMemBarrier, 1, name=name)[0]
        self._array = self._barrier.ref().array
        self._tracer.ledger.open(self._array, "epilogue", None)
        init_barriers(self._tracer, self._barrier.ref(), None, 1)

    def signal_complete(self) -> None:
        """Arrives on the barrier of the peer CTA, if there is one, and of this CTA. Every epilogue
        thread calls it after it has waited for its last load.
        """
        t, ctx = self._tracer, self._ctx
        ctx.tcgen05_fence_before()
        ctas = [to_expr(t, ctx.cta_rank ^ 1), None] if self.cta_group == 2 else [None]
        role, size, active = t.role.role, t.kernel.cluster_size, t.scope.active
        first, *others = [count_arrivals(role, size, active, 1, cta) for cta in ctas]
        t.ledger.record(self._array, role, caller(), sum(others, first))
        for cta in ctas:
            ref = memory.BarrierRef(self._array, exprs.const(0), cta)
            t.emit(ops.MbarArrive(caller(), ref, exprs.const(1)))

    def complete_dealloc(self, tmem: TmemAllocation) -> None:
        """Gives up the permit to allocate, where that has not been done, waits for the epilogue,
        and frees the columns. The MMA warp calls it.
        """
        columns = tmem._held.get(self._tracer.role)
        if columns is None or not columns.relinquished:
            tmem.release_lock()
        self._barrier.wait(0)
        self._ctx.tcgen05_fence_after()
        tmem.deallocate()
