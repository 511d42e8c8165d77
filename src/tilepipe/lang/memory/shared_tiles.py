"""Shared memory: tiles and arrays of tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, expressions as exprs, memory
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Const
from tilepipe.ir.hardware.operand_tiles import is_multiple
from tilepipe.ir.hardware.tma import default_swizzle
from tilepipe.ir.layout import SWIZZLES
from tilepipe.ir.location import caller
from tilepipe.ir.printer import expr as expr_text
from tilepipe.lang.arguments.annotations import (
    CtaRank,
    Index,
    MatrixOrder,
    Name,
    Swizzle,
)
from tilepipe.lang.handles.linear import Handle, View
from tilepipe.lang.memory.elements import ElementRef, element_indices
from tilepipe.lang.memory.places import Place
from tilepipe.lang.tracing import other_names
from tilepipe.lang.tracing.missing_members import missing
from tilepipe.lang.tracing.tracer import Tracer
from tilepipe.lang.values.scalars import (
    combined,
    require_integer,
    require_uniform,
    to_expr,
)

# what an operand of wgmma is used for
BY_WGMMA = "read by wgmma"


class SmemTile(View, Place):
    """A rectangle of shared memory, (rows, cols) elements: the destination of a TMA load, an
    operand of an MMA, the source of a store.

    `tile.part(row, col, rows, cols)`, `tile.rows(...)` and `tile.cols(...)` narrow it; `tile[r, c]`
    addresses one element for `ctx.load` / `ctx.store`. `tile.T` is an operand of an MMA.
    """

    _kind = "tile"

    def __init__(self, tracer: Tracer, tile: memory.Tile, owner: Handle | None = None) -> None:
        super().__init__(tracer, owner)
        self._tile = tile

    if not TYPE_CHECKING:  # a type checker knows the members
        __getattr__ = missing("a tile of shared memory", "tile", other_names.TILE)

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

    def ir(self, use: str) -> memory.Tile:
        """The tile as an operand.

        Raises:
            HandleError: the stage it belongs to has been released.
            TraceError: the block that it was made in has closed.
        """
        self._check_usable(use)
        if self._tile.buffer.turned_from is not None and use not in ("narrowed", BY_WGMMA):
            raise TraceError(
                f"{self!r} is {use}: a transpose is read by ctx.mma on Hopper alone; elsewhere take"
                " the tile itself, without .T",
                caller(),
            )
        return self._tile

    @property
    def T(self) -> SmemTile:
        """The transpose, (cols, rows), as an operand of `ctx.mma` on Hopper: the same bytes, of
        which wgmma reads elements of 16 bits with either dimension contiguous. So one tile is A or
        B of one product, and its transpose of another.
        """
        return SmemTile(self._tracer, self.ir("narrowed").transpose, self._owner)

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
                f"two {t.buffer.dtype} share a byte: a part of '{t.buffer.name}' starts at an even"
                f" {what}, known to be one, and has an even number of them; got {extent} from"
                f" {expr_text(offset)}",
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
        down = combined(self._tracer, "add", t.row, r)
        right = combined(self._tracer, "add", t.col, c)
        part = memory.Tile(t.buffer, t.index, down, right, height, width, t.cta)
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

        Like other ordinary accesses they are published by an arrive on a barrier of that CTA, or by
        the cluster barrier.
        """
        t = self.ir("addressed")
        c = to_expr(self._tracer, cta)
        return SmemTile(
            self._tracer,
            memory.Tile(t.buffer, t.index, t.row, t.col, t.rows, t.cols, c),
            self._owner,
        )

    def fragment_operand(self, use: str) -> memory.Tile:
        """The tile as an operand of an op that moves a fragment by the ordinary accesses of a whole
        warpgroup.

        Raises:
            TraceError: as `ir`, or the rank of the CTA differs between threads of the warpgroup.
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

    @property
    def _reading(self) -> str:
        return "`f.load(tile)` of a fragment reads it, `ctx.load(tile[r, c])` one element"

    @property
    def _writing(self) -> str:
        return (
            "`ctx.store(tile, f)` writes a fragment to it, `ctx.store(tile[r, c], x)` one element"
        )

    def __getitem__(self, index: object) -> ElementRef:
        indices = element_indices(self._tracer, self, self.dtype, 2, index)
        for x, extent in zip(indices, self.shape, strict=True):
            if isinstance(x, Const) and not 0 <= x.value < extent:
                raise TraceError(
                    f"index {x.value} is outside a tile of {self.shape[0]}×{self.shape[1]}",
                    caller(),
                )
        element = memory.Element(self.ir("addressed"), indices)
        return ElementRef(self._tracer, element, self.dtype, self._owner)

    def __repr__(self) -> str:
        t = self._tile
        return f"<tile of '{t.buffer.name}' {t.rows}×{t.cols} {t.buffer.dtype}>"


class SmemTileArray(Place):
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
        dtype: object = None,
        *,
        order: MatrixOrder = "row",
        swizzle: Swizzle | None = 0,
        name: Name = "view",
    ) -> SmemTileArray:
        """The same slots as tiles of another shape, dtype or order: tile i of the view begins where
        tile i of this array does.

        A slot holds what was written last, in the layout of the view through which it was written.
        In the simulator a read through another view is a read of uninitialised memory, and any two
        accesses through different views touch common bytes. In set-up code.

        Raises:
            TraceError: the tiles are larger than the slots; or as `Context.smem`.
        """
        b = self.buffer
        t = b.dtype if dtype is None else dtype
        made = allocate(self._tracer, name, b.count, shape, t, order, swizzle, b.step)
        base = b if b.shares is None else b.shares
        if made.buffer.tile_bytes > base.step or made.buffer.align > base.align:
            raise TraceError(
                f"a view of '{base.name}': a tile {shape[0]}×{shape[1]} {made.buffer.dtype} has"
                f" {made.buffer.tile_bytes:,} bytes, aligned to {made.buffer.align}; the slots have"
                f" {base.step:,}, aligned to {base.align}",
                caller(),
            )
        made.buffer.shares = base
        return made

    @property
    def _reading(self) -> str:
        return "`f.load(tiles[i])` of a fragment reads tile i"

    @property
    def _writing(self) -> str:
        return "`ctx.store(tiles[i], f)` writes a fragment to tile i"

    def __getitem__(self, index: object) -> SmemTile:
        return self.tile(index)

    def tile(self, index: Index, owner: Handle | None = None) -> SmemTile:
        """Tile `index`. `owner`: the stage handle whose release ends the view."""
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
            "shared memory is allocated in set-up code, outside roles: the layout is fixed before"
            " roles start",
            caller(),
        )
    t = dtypes.dtype(dtype)
    if len(shape) != 2 or any(not isinstance(x, int) or x < 1 for x in (*shape, count)):
        raise TraceError(
            f"a shared tile needs a static shape (rows, cols) >= 1 and a count >= 1, got {shape} ×"
            f" {count}",
            caller(),
        )
    if order not in ("row", "col"):
        raise TraceError(f'order must be "row" or "col", got {order!r}', caller())
    lines, contiguous = shape if order == "row" else shape[::-1]
    if contiguous % t.per_byte:
        raise TraceError(
            f"two {t} share a byte: the contiguous extent of a tile is even, got"
            f" {shape[0]}×{shape[1]}, {order} order",
            caller(),
        )
    if swizzle is None:
        swizzle = default_swizzle(contiguous, lines, t)
    if swizzle not in SWIZZLES or (swizzle and t.bytes_of(contiguous) % swizzle):
        raise TraceError(
            f"swizzle={swizzle!r}: must be one of the ints {', '.join(map(str, SWIZZLES))}, and"
            f" divide a row of {t.bytes_of(contiguous)} bytes",
            caller(),
        )
    if swizzle and lines % 8:
        raise TraceError(
            f"a swizzled tile repeats every 8 lines; {lines} lines are not a multiple of 8. Pass"
            " swizzle=0.",
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
            f" {shape[0]}×{shape[1]} {t} has {buffer.tile_bytes}. For a few scalars use SMemArray.",
            caller(),
        )
    tracer.kernel.buffers.append(buffer)
    return SmemTileArray(tracer, buffer)
