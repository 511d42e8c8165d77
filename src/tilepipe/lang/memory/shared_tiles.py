"""Views of memory: shared-memory tiles and arrays of them, global tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, Protocol

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, memory, ops
from tilepipe.ir import expressions as exprs
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Const, Expr
from tilepipe.ir.location import caller
from tilepipe.ir.printer import expr as expr_text
from tilepipe.ir.rules.operand_tiles import is_multiple
from tilepipe.lang.arguments.annotations import (
    CtaRank,
    Index,
    MatrixOrder,
    MulticastMask,
    Name,
    Swizzle,
)
from tilepipe.lang.arguments.tensor_map import SWIZZLES, default_swizzle
from tilepipe.lang.tracing.tracer import Scope, Tracer
from tilepipe.lang.values.scalars import (
    Value,
    binary,
    require_fits,
    require_integer,
    require_uniform,
    to_expr,
)

if TYPE_CHECKING:
    from tilepipe.lang.asynchronous.tma import Mbar
    from tilepipe.lang.handles.linear import Handle


class SmemTile:
    """A rectangle of shared memory, (rows, cols) elements: the destination of a TMA load, an
    operand of an MMA, the source of a store.

    `tile.part(row, col, rows, cols)`, `tile.rows(...)` and `tile.cols(...)` narrow it; `tile[r, c]`
    addresses one element for `ctx.load` / `ctx.store`.
    """

    def __init__(self, tracer: Tracer, tile: memory.Tile, owner: Handle | None = None) -> None:
        self._tracer = tracer
        self._tile = tile
        self._owner = owner
        self._scope: Scope = tracer.scope

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, cols), elements."""
        return (self._tile.rows, self._tile.cols)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._tile.buffer.dtype

    @property
    def order(self) -> str:
        """Either "row", when cols are contiguous, or "col", when rows are."""
        return self._tile.buffer.order

    @property
    def nbytes(self) -> int:
        """Bytes of the rectangle: what a TMA copy into it credits."""
        return self._tile.nbytes

    def _is_dead(self) -> bool:
        return self._scope.closed or (self._owner is not None and self._owner._is_dead())

    def ir(self, use: str) -> memory.Tile:
        """The operand; raises when the stage it belongs to has been released or its block has
        closed.
        """
        if self._owner is not None:
            self._owner.check_held(use)
        self._tracer.check_alive(self._scope, "tile", self)
        return self._tile

    def part(
        self, row: Index = 0, col: Index = 0, rows: int | None = None, cols: int | None = None
    ) -> SmemTile:
        """The rectangle of (rows, cols) from (row, col). Offsets may be traced; extents are static.

        Raises:
            TraceError: a constant rectangle leaves the tile, or an extent is not positive.
        """
        t = self.ir("narrowed")
        height, width = t.rows if rows is None else rows, t.cols if cols is None else cols
        r, c = to_expr(self._tracer, row), to_expr(self._tracer, col)
        offset, extent, what = (
            (c, width, "column") if t.buffer.order == "row" else (r, height, "row")
        )
        if t.buffer.dtype.per_byte > 1 and (
            extent % t.buffer.dtype.per_byte or not is_multiple(offset, t.buffer.dtype.per_byte)
        ):
            raise TraceError(
                f"two {t.buffer.dtype} share a byte: a part of '{t.buffer.name}' starts at an"
                f" even {what}, known to be one, and has an even"
                f" number of them; got {extent} from {expr_text(offset)}",
                caller(),
            )
        for what, offset, extent, limit in (
            ("rows", r, height, t.rows),
            ("cols", c, width, t.cols),
        ):
            start = offset.value if isinstance(offset, Const) else 0
            if extent < 1 or start < 0 or start + extent > limit:
                raise TraceError(
                    f"{what} [{start}, {start + extent}) leave a tile of {t.rows}×{t.cols}",
                    caller(),
                )
        part = memory.Tile(
            t.buffer, t.index, self._sum(t.row, r), self._sum(t.col, c), height, width, t.cta
        )  # fmt: skip
        return SmemTile(self._tracer, part, self._owner)

    def rows(self, start: Index, count: int) -> SmemTile:
        """Rows [start, start + count)."""
        return self.part(row=start, rows=count)

    def cols(self, start: Index, count: int) -> SmemTile:
        """Columns [start, start + count)."""
        return self.part(col=start, cols=count)

    def on(self, cta: CtaRank) -> SmemTile:
        """The same rectangle in the shared memory of another CTA of the cluster, for ordinary loads
        and stores of elements and of fragments.

        They are published as other ordinary accesses are: by an arrive on a barrier of that CTA, or
        by the cluster's barrier.
        """
        t = self.ir("addressed")
        c = to_expr(self._tracer, cta)
        return SmemTile(
            self._tracer,
            memory.Tile(t.buffer, t.index, t.row, t.col, t.rows, t.cols, c),
            self._owner,
        )

    def fragment_operand(self, use: str) -> memory.Tile:
        """The operand of an op that moves a fragment, by the ordinary accesses of a whole
        warpgroup.

        Raises:
            TraceError: `ir`'s reasons, or threads of the warpgroup would mean the tiles of
                different CTAs.
        """
        t = self.ir(use)
        if t.cta is not None:
            require_uniform(
                require_integer(t.cta, "the rank of a CTA"),
                "the CTA whose tile a fragment moves to or from",
            )
        if self._owner is not None:
            self._owner.touched = True
        return t

    def _sum(self, a: Expr, b: Expr) -> Expr:
        return to_expr(
            self._tracer,
            binary(self._tracer, "add", Value(self._tracer, a), Value(self._tracer, b)),
        )

    def __getitem__(self, index: object) -> ElementRef:
        return element(self._tracer, self, index)

    def __repr__(self) -> str:
        t = self._tile
        return f"<tile of '{t.buffer.name}' {t.rows}×{t.cols} {t.buffer.dtype}>"


def require_place(what: str, broken: str | None) -> None:
    """Raises TraceError with the rule of `ir.geometry` that a tile breaks, if it breaks one."""
    if broken is not None:
        raise TraceError(f"{what}: {broken}", caller())


class ElementRef:
    """One element, to be read by `ctx.load` or written by `ctx.store`."""

    def __init__(
        self, tracer: Tracer, ir: memory.Element, dtype: DType, owner: Handle | None
    ) -> None:
        self._tracer = tracer
        self._scope: Scope = tracer.scope
        self._ir = ir
        self.dtype = dtype
        self.owner = owner

    @property
    def ir(self) -> memory.Element:
        """The operand.

        Raises:
            TraceError: the block or role in which it was made has closed, or it belongs to another
                trace.
        """
        self._tracer.check_alive(self._scope, "element", self)
        return self._ir

    def _is_dead(self) -> bool:
        return self._scope.closed


def element(tracer: Tracer, base: SmemTile | GlobalTensor, index: object) -> ElementRef:
    """`base[i, j]`."""
    broken = dtypes.broken_register_rule(base.dtype)
    if broken is not None:
        raise TraceError(f"an element of {base!r}: {broken}", caller())
    parts = index if isinstance(index, tuple) else (index,)
    rank = 2 if isinstance(base, SmemTile) else base.rank
    if len(parts) != rank:
        raise TraceError(f"{base!r} takes {rank} indices, got {len(parts)}", caller())
    xs = tuple(to_expr(tracer, p) for p in parts)
    for x in xs:
        if not x.dtype.is_integer:
            raise TraceError(f"an index must be an integer, got {x.dtype}", caller())
    if isinstance(base, GlobalTensor):
        return ElementRef(tracer, memory.Element(base.param, xs), base.dtype, None)
    for x, extent in zip(xs, base.shape, strict=True):
        if isinstance(x, Const) and not 0 <= x.value < extent:
            raise TraceError(
                f"index {x.value} is outside a tile of {base.shape[0]}×{base.shape[1]}", caller()
            )
    return ElementRef(tracer, memory.Element(base.ir("addressed"), xs), base.dtype, base._owner)


class SmemTileArray:
    """`len(self)` tiles of (rows, cols) in shared memory, one after the other; `self[i]` is tile i
    (i may be traced).
    """

    def __init__(self, tracer: Tracer, buffer: memory.SmemBuffer) -> None:
        self._tracer = tracer
        self.buffer = buffer

    def __len__(self) -> int:
        return self.buffer.count

    @property
    def tile_bytes(self) -> int:
        """Bytes of one tile."""
        return self.buffer.tile_bytes

    def view(
        self,
        shape: tuple[int, int],
        *,
        order: MatrixOrder = "row",
        swizzle: Swizzle = 0,
        name: Name = "view",
    ) -> SmemTileArray:
        """The same slots as tiles of another shape or order: tile i of the view begins where tile i
        of this array does.

        A slot holds what was last written, as a tile of the view through which it was written: the
        simulator takes a read through another view for one of memory that nothing has written, and
        any two accesses through different views for accesses to common bytes. In set-up code.

        Raises:
            TraceError: tiles larger than the slots, or the reasons of `Context.smem`.
        """
        b = self.buffer
        made = allocate(self._tracer, name, b.count, shape, b.dtype, order, swizzle, b.step)
        base = b if b.shares is None else b.shares
        if made.buffer.tile_bytes > base.step or made.buffer.align > base.align:
            raise TraceError(
                f"a view of '{base.name}': a tile {shape[0]}×{shape[1]} {b.dtype} has"
                f" {made.buffer.tile_bytes:,} bytes, aligned to"
                f" {made.buffer.align}; the slots have {base.step:,}, aligned to {base.align}",
                caller(),
            )
        made.buffer.shares = base
        return made

    def __getitem__(self, index: object) -> SmemTile:
        return self.tile(index)

    def tile(self, index: Index, owner: Handle | None = None) -> SmemTile:
        """Tile `index`; `owner`: the stage handle with whose release the view ends."""
        i = require_integer(to_expr(self._tracer, index), "the index of a tile")
        i = require_uniform(i, "the index of a tile", exprs.Vary.WARP)
        if isinstance(i, Const) and not 0 <= i.value < self.buffer.count:
            raise TraceError(
                f"tile {i.value} of '{self.buffer.name}', which has {self.buffer.count}", caller()
            )
        zero = exprs.const(0)
        return SmemTile(
            self._tracer,
            memory.Tile(self.buffer, i, zero, zero, self.buffer.rows, self.buffer.cols),
            owner,
        )

    def __repr__(self) -> str:
        b = self.buffer
        return f"<{b.count} tiles '{b.name}' {b.rows}×{b.cols} {b.dtype}>"


def allocate(
    tracer: Tracer,
    name: str,
    count: int,
    shape: tuple[int, int],
    dtype: object,
    order: str,
    swizzle: int | None,
    stride: int = 0,
) -> SmemTileArray:
    """Allocates `count` tiles in shared memory, `stride` bytes from one to the next (0: a tile's).
    See `Context.smem`.
    """
    if tracer.scope.role is not None:
        raise TraceError(
            "shared memory is allocated in set-up code, outside roles: the layout is fixed before roles start",
            caller(),
        )
    t = dtypes.dtype(dtype)
    if len(shape) != 2 or any(not isinstance(x, int) or x < 1 for x in (*shape, count)):
        raise TraceError(
            f"a shared tile needs a static shape (rows, cols) >= 1 and a count >= 1, got {shape} × {count}",
            caller(),
        )
    if order not in ("row", "col"):
        raise TraceError(f'order must be "row" or "col", got {order!r}', caller())
    lines, contiguous = shape if order == "row" else shape[::-1]
    if contiguous % t.per_byte:
        raise TraceError(
            f"two {t} share a byte: the contiguous extent of a tile is even, got {shape[0]}×{shape[1]}, {order} order",
            caller(),
        )
    if swizzle is None:
        swizzle = default_swizzle(contiguous, lines, t)
    if swizzle not in SWIZZLES or (swizzle and t.bytes_of(contiguous) % swizzle):
        raise TraceError(
            f"swizzle {swizzle}: must be one of {SWIZZLES} and divide a row of {t.bytes_of(contiguous)} bytes",
            caller(),
        )
    if swizzle and lines % 8:
        raise TraceError(
            f"a swizzled tile repeats every 8 lines; {lines} lines are not a multiple of 8. Pass swizzle=0.",
            caller(),
        )
    align = 8 * swizzle if swizzle else 128
    buffer = memory.SmemBuffer(
        tracer.name(name), t, count, *shape, order, swizzle, align, loc=caller(), stride=stride
    )
    if count > 1 and buffer.step % align:
        raise TraceError(
            f"each of several tiles must be a multiple of {align} bytes"
            f" ({'8 lines of the swizzle' if swizzle else 'what TMA aligns to'}), one of"
            f" {shape[0]}×{shape[1]} {t}"
            f" has {buffer.tile_bytes}. For a few scalars use SMemArray.",
            caller(),
        )
    tracer.kernel.buffers.append(buffer)
    return SmemTileArray(tracer, buffer)


class Destination(Protocol):
    """Where a TMA load writes, and which barrier gets its bytes."""

    @property
    def smem(self) -> SmemTile:
        """The tile."""

    @property
    def mbar(self) -> Mbar:
        """The barrier."""


class GlobalTensor:
    """A tensor argument inside a kernel: `a.shape[i]` is traced; `a.dtype`, `a.rank`, `a.order`,
    `a.box` are static.

    `a[i, j]` addresses one element for `ctx.load` and `ctx.store`.
    """

    def __init__(self, tracer: Tracer, param: memory.TensorParam) -> None:
        self._tracer = tracer
        self._param = param
        self.dtype = param.dtype
        self.rank = param.rank
        self.order = param.order
        self.box = param.box
        self.swizzle = param.swizzle
        root = tracer.scope
        self.shape = tuple(
            Value(tracer, exprs.Param(dtypes.int32, nonneg=True, name=param.name, axis=i), root)
            for i in range(param.rank)
        )

    @property
    def param(self) -> memory.TensorParam:
        """The operand.

        Raises:
            TraceError: it belongs to another trace.
        """
        self._tracer.require_running()
        return self._param

    def __iter__(self) -> NoReturn:
        raise TraceError(
            f"{self!r} is not iterated: loop over `ctx.range({self.param.name}.shape[0])` and index it",
            caller(),
        )

    def __len__(self) -> NoReturn:
        raise TraceError(
            f"len() of {self!r} is not known while tracing: `{self.param.name}.shape[0]` is, when the kernel runs",
            caller(),
        )

    def async_copy(
        self, dst: Destination, coords: Sequence[object], multicast: MulticastMask | None = None
    ) -> None:
        """`ctx.tma_load(tensor, coords, dst.smem, dst.mbar, multicast)`: starts a TMA copy of the
        box at `coords` (elements, outermost first) to where `dst`, a `TMADestination`, says.
        """
        from tilepipe.lang.asynchronous.tma import tma_load

        if not hasattr(dst, "smem") or not hasattr(dst, "mbar"):
            raise TraceError(
                f"async_copy goes to a TMADestination, as get_k(...) and get_v(...) give; got {dst!r}",
                caller(),
            )
        tma_load(self._tracer, self, coords, dst.smem, dst.mbar, multicast)

    def __getitem__(self, index: object) -> ElementRef:
        return element(self._tracer, self, index)

    def __repr__(self) -> str:
        return f"<tensor '{self._param.name}' {self.rank}-d {self.dtype}>"


def load(tracer: Tracer, ref: ElementRef) -> Value:
    """Ordinary load of one element."""
    if not isinstance(ref, ElementRef):
        raise TraceError(
            f"ctx.load reads one element, `tile[r, c]` or `tensor[i, j]`, not {ref!r}; a fragment reads a tile: `f.load(tile)`",
            caller(),
        )
    if ref.owner is not None:
        ref.owner.check_held()
        ref.owner.touched = True
    base = ref.ir.base
    places = (
        ()
        if isinstance(base, memory.TensorParam)
        else (base.index, base.row, base.col, *([base.cta] if base.cta is not None else []))
    )
    vary = max((i.vary for i in (*ref.ir.index, *places)), default=exprs.Vary.UNIFORM)
    local = tracer.local("v", ref.dtype, vary)
    tracer.emit(ops.Load(caller(), local, ref.ir))
    return tracer.value(local)


def store(tracer: Tracer, ref: ElementRef, value: object) -> None:
    """Ordinary store of one element, converted to the element's dtype."""
    if ref.owner is not None:
        ref.owner.check_held()
        ref.owner.touched = True
    x = to_expr(tracer, tracer.value(require_fits(to_expr(tracer, value), ref.dtype)).to(ref.dtype))
    tracer.emit(ops.Store(caller(), ref.ir, x))
