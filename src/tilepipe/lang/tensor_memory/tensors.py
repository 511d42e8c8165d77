"""Tensor memory and the tensor core of Blackwell: views, MMAs, copies, commits, fences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, memory, ops
from tilepipe.ir import expressions as exprs
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Expr
from tilepipe.ir.location import caller
from tilepipe.ir.printer import expr
from tilepipe.ir.rules import block_scales, tcgen05, tensor_memory
from tilepipe.ir.rules.operand_tiles import is_multiple
from tilepipe.lang.arguments.annotations import Index
from tilepipe.lang.asynchronous.tma import Mbar, check_mask, require_one_lane
from tilepipe.lang.fragments.fragment import Fragment, FragmentValue
from tilepipe.lang.handles.arrivals import count_arrivals
from tilepipe.lang.handles.linear import note_signal, owner_of
from tilepipe.lang.memory.shared_tiles import SmemTile
from tilepipe.lang.tensor_memory.scales import TmemScales
from tilepipe.lang.tracing.convergence import require_fragment
from tilepipe.lang.tracing.tracer import Scope, Tracer
from tilepipe.lang.values.scalars import Value, binary, require_integer, require_uniform, to_expr

if TYPE_CHECKING:
    from tilepipe.lang.handles.linear import Handle


class TmemTensor:
    """A matrix (rows, cols) in tensor memory: an accumulator, or A of an MMA. 128 rows, or 64.

    `t.cols(start, count)` narrows it; `t.load()` brings it into registers, `t.store(x)` writes it.
    """

    def __init__(
        self,
        tracer: Tracer,
        address: Expr,
        shape: tuple[int, int],
        dtype: object = "float32",
        owner: Handle | None = None,
    ) -> None:
        """At `address`, a uint32: lane << 16 | column (PTX ISA, "Tensor Memory Addressing").

        Raises:
            TraceError: a shape or dtype that tensor memory does not hold.
        """
        kind = dtypes.dtype(dtype)
        if (
            not isinstance(shape, tuple)
            or len(shape) != 2
            or not all(type(x) is int for x in shape)
        ):
            raise TraceError(
                f"the shape of a matrix in tensor memory is (rows, cols), two static integers, got {shape!r}",
                caller(),
            )
        rows, cols = shape
        if not kind.is_float or kind.bits not in (16, 32):
            raise TraceError(
                f"tensor memory holds matrices of float32, bfloat16 and float16 here, not of {kind}",
                caller(),
            )
        if (
            rows not in (64, 128)
            or cols < 8
            or cols % 8
            or cols * kind.nbytes // 4 > tensor_memory.COLUMNS
        ):
            raise TraceError(
                "a matrix in tensor memory has 64 or 128 rows and a multiple of 8 columns, at"
                f" most {tensor_memory.COLUMNS} columns of 32"
                f" bits; got {rows}×{cols} {kind}",
                caller(),
            )
        self._tracer = tracer
        self._tmem = memory.Tmem(address, rows, cols, kind)
        self._owner = owner
        self._scope: Scope = tracer.scope

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols), elements."""
        return self._tmem.rows, self._tmem.cols

    @property
    def columns(self) -> int:
        """Columns of 32 bits that it takes."""
        return self._tmem.columns

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._tmem.dtype

    def _is_dead(self) -> bool:
        return self._scope.closed or (self._owner is not None and self._owner._is_dead())

    def ir(self, use: str) -> memory.Tmem:
        """The operand; raises when the stage it belongs to has been released or its block has
        closed.
        """
        if self._owner is not None:
            self._owner.check_held(use)
        self._tracer.check_alive(self._scope, "view of tensor memory", self)
        return self._tmem

    def offset(self) -> Value:
        """Its address in tensor memory."""
        return self._tracer.value(self.ir("addressed").address)

    def cols(self, start: Index, count: int) -> TmemTensor:
        """Columns [start, start + count), multiples of 8; `start` may be traced.

        Raises:
            TraceError: they leave the matrix.
        """
        t = self.ir("narrowed")
        at = require_integer(to_expr(self._tracer, start), "a column")
        first = int(at.value) if isinstance(at, exprs.Const) else 0
        if (
            type(count) is not int
            or count < 8
            or count % 8
            or first < 0
            or not is_multiple(at, 8)
            or first + count > t.cols
        ):
            raise TraceError(
                f"columns [{expr(at)}, {expr(at)} + {count}) of a matrix of {t.cols}: need"
                " multiples of 8 inside it, and a traced start"
                " that is known to be one, such as `i * 8`",
                caller(),
            )
        moved = self._columns(at)
        return TmemTensor(
            self._tracer, self._sum(t.address, moved), (t.rows, count), t.dtype, self._owner
        )

    def _columns(self, elements: Expr) -> Expr:
        nbytes = self._tmem.dtype.nbytes
        return (
            elements
            if nbytes == 4
            else to_expr(
                self._tracer,
                binary(self._tracer, "floordiv", Value(self._tracer, elements), 4 // nbytes),
            )
        )

    def _sum(self, address: Expr, columns: Expr) -> Expr:
        return to_expr(
            self._tracer,
            binary(self._tracer, "add", Value(self._tracer, address), Value(self._tracer, columns)),
        )

    def load(self) -> Fragment:
        """tcgen05.ld into a new fragment, by the whole warpgroup: of layout "tmem" where it has 128
        rows. It may be read after `ctx.tmem_wait_load()`. Under `per_warp`, the rows of the warp.
        """
        require_fragment(self._tracer, "a load from tensor memory")
        source = self.ir("loaded")
        result = Fragment.define(self._tracer, self.shape, source.dtype, "tmem_part", "tmem")
        result.load_tmem(source)
        return result

    def store(self, value: FragmentValue) -> None:
        """tcgen05.st, by the whole warpgroup. What is written may be used after
        `ctx.tmem_wait_store()`. Under `per_warp`, the rows of the warp.

        Raises:
            TraceError: not a fragment of this shape, or of 128 rows and another layout than "tmem".
        """
        if not isinstance(value, FragmentValue):
            raise TraceError(f"tensor memory is stored from a fragment, got {value!r}", caller())
        require_fragment(self._tracer, "a store to tensor memory")
        if value.shape != self.shape or (value.shape[0] == 128 and value.layout != "tmem"):
            raise TraceError(
                f'a fragment {value.shape[0]}×{value.shape[1]} of layout "{value.layout}" does'
                f" not fit {self!r};"
                ' 128 rows need layout="tmem"',
                caller(),
            )
        self._tracer.emit(ops.TmemStore(caller(), self.ir("stored"), value.to(self.dtype).ir()))

    def __repr__(self) -> str:
        t = self._tmem
        return f"<tensor memory {t.rows}×{t.cols} {t.dtype}>"


def use_group(tracer: Tracer, cta_group: int) -> None:
    """Notes how many CTAs share an MMA in this kernel; the same everywhere (PTX ISA, tcgen05:
    .cta_group).

    Raises:
        TraceError: not 1 or 2, no pairs in the cluster, or not what the kernel has elsewhere.
    """
    broken = tcgen05.broken_group_rule(cta_group, tracer.kernel.cluster_size)
    present = tracer.kernel.cta_group
    if broken is None and present not in (0, cta_group):
        broken = f"all tcgen05 instructions of a kernel have one cta_group; this is {cta_group}, others have {present}"
    if broken is not None:
        raise TraceError(broken, caller())
    tracer.kernel.cta_group = cta_group


def _require_even_cta(tracer: Tracer, what: str) -> None:
    active = tracer.scope.active
    if tracer.kernel.cta_group == 2 and active is not None and active[1::2].any():
        raise TraceError(
            f"{what}: of a pair of CTAs (cta_group 2) the even one issues it for both, but the"
            " odd one comes here too: put it under"
            " `with ctx.when(tp.elect_one_cta(ctx)):`",
            caller(),
        )


def mma(
    tracer: Tracer,
    acc: TmemTensor,
    a: object,
    b: object,
    accumulate: object,
    sfa: object = None,
    sfb: object = None,
) -> None:
    """See `Context.mma`."""
    require_one_lane(tracer, "mma into tensor memory")
    _require_even_cta(tracer, "mma")
    if not isinstance(a, SmemTile | TmemTensor) or not isinstance(b, SmemTile):
        raise TraceError(
            f"mma into tensor memory: A is a tile or in tensor memory, B a tile; got {a!r} and {b!r}",
            caller(),
        )
    if not (sfa is sfb is None or (isinstance(sfa, TmemScales) and isinstance(sfb, TmemScales))):
        raise TraceError(
            f"mma: sfa and sfb are both scale factors in tensor memory, from `tmem.scales`; got {sfa!r} and {sfb!r}",
            caller(),
        )
    group, left = tracer.kernel.cta_group, a._tmem if isinstance(a, TmemTensor) else a._tile
    if isinstance(sfa, TmemScales) and isinstance(sfb, TmemScales):
        broken = block_scales.broken_scaled_mma_rule(
            acc._tmem, left, b._tile, sfa._scales, sfb._scales, group
        )
    else:
        broken = tcgen05.broken_mma_rule(acc._tmem, left, b._tile, group)
    if broken is not None:
        raise TraceError(f"mma: {broken}", caller())
    adds = to_expr(tracer, accumulate)
    if adds.dtype is not dtypes.boolean:
        raise TraceError(
            f"mma: accumulate is True, False or a traced condition such as `k > 0`, got {accumulate!r}; compare it with `!= 0`",
            caller(),
        )
    adds = require_uniform(adds, "mma: accumulate", exprs.Vary.WARP)
    scales = [s for s in (sfa, sfb) if isinstance(s, TmemScales)]
    for x in (acc, a, b, *scales):
        if x._owner is not None:
            x._owner.read_by_mma = True
    source, other, into = (
        a.ir("read by an MMA"),
        b.ir("read by an MMA"),
        acc.ir("written by an MMA"),
    )
    tracer.emit(
        ops.Tcgen05Mma(
            caller(), into, source, other, adds, group, *(s.ir("read by an MMA") for s in scales)
        )
    )


def commit(tracer: Tracer, mbar: Mbar, mask: object) -> None:
    """tcgen05.commit; see `Context.mma_commit`."""
    require_one_lane(tracer, "mma_commit")
    ref = mbar.ref()
    ctas = (
        None
        if mask is None
        else require_uniform(
            require_integer(to_expr(tracer, mask), "a mask of CTAs"), "a mask of CTAs"
        )
    )
    if isinstance(ctas, exprs.Const):
        check_mask(tracer, int(ctas.value))
    if ctas is not None and ref.cta is not None:
        raise TraceError(
            "mma_commit takes a barrier of this CTA with mask=, or one of another CTA without",
            caller(),
        )
    handle = owner_of(tracer, ref.array, ref.index)
    role, active = tracer.role.role, tracer.scope.active
    arrivals = count_arrivals(role, tracer.kernel.cluster_size, active, 1, ref.cta, ctas)
    if handle is None:
        tracer.ledger.loose(ref.array, role, caller(), arrivals)
    else:
        handle.refuse_twice("commits")
        note_signal(tracer, handle, arrivals)
    tracer.emit(ops.Tcgen05Commit(caller(), ref, tracer.kernel.cta_group, ctas))


class TmemMembers:
    """The part of `Context` that is about tensor memory."""

    tracer: Tracer

    def tmem_copy(self, dst: TmemTensor | TmemScales, tile: SmemTile) -> None:
        """tcgen05.cp: copies an unswizzled tile with rows of 16 bytes, 128 of them or 32 (to each
        group of 32 lanes), to tensor memory, in order with the MMAs of the same lane. One lane
        only. In a pair of CTAs the even one issues it, and each copies its own.

        `dst` scale factors: all of them, from a tile of their pieces, 512 bytes for each 128 rows ×
        4 blocks of K (byte 16 (r % 32) + 4 (r // 32) + j is that of row r, block j), one after the
        other along K, then along the rows.
        """
        tracer = self.tracer
        require_one_lane(tracer, "tmem_copy")
        _require_even_cta(tracer, "tmem_copy")
        if not isinstance(dst, TmemTensor | TmemScales) or not isinstance(tile, SmemTile):
            raise TraceError(
                f"tmem_copy copies a shared tile to tensor memory, got {tile!r} to {dst!r}",
                caller(),
            )
        if isinstance(dst, TmemScales):
            broken = block_scales.broken_scales_copy_rule(dst._scales, tile._tile)
        else:
            broken = tcgen05.broken_copy_rule(dst._tmem, tile._tile)
        if broken is not None:
            raise TraceError(f"tmem_copy: {broken}", caller())
        for x in (dst, tile):
            if x._owner is not None:
                x._owner.read_by_mma = True
        into: memory.Tmem | memory.TmemScales = dst.ir("copied to")
        tracer.emit(ops.TmemCopy(caller(), into, tile.ir("copied"), tracer.kernel.cta_group))

    def tmem_wait_load(self) -> None:
        """tcgen05.wait::ld: the warp's loads from tensor memory are done, and their fragments may
        be read.
        """
        require_fragment(self.tracer, "tmem_wait_load")
        self.tracer.emit(ops.TmemWaitLoad(caller()))

    def tmem_wait_store(self) -> None:
        """tcgen05.wait::st: the warp's stores to tensor memory are done."""
        require_fragment(self.tracer, "tmem_wait_store")
        self.tracer.emit(ops.TmemWaitStore(caller()))

    def tcgen05_fence_before(self) -> None:
        """tcgen05.fence::before_thread_sync: orders this thread's finished tensor-memory accesses
        before the arrive that follows.
        """
        _ = self.tracer.role
        self.tracer.emit(ops.Tcgen05FenceBefore(caller()))

    def tcgen05_fence_after(self) -> None:
        """tcgen05.fence::after_thread_sync: orders this thread's tensor-memory accesses after the
        wait before it.
        """
        _ = self.tracer.role
        self.tracer.emit(ops.Tcgen05FenceAfter(caller()))
