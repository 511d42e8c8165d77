"""Shared-memory addresses as C++: of barriers and tiles by name, of elements through panels and the
swizzle (`ir.layout` computes the same in NumPy).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilepipe.cuda.codegen.arithmetic import add, div, index, mod, mul, value
from tilepipe.cuda.codegen.context import Context, Module
from tilepipe.cuda.codegen.expressions import operand, text
from tilepipe.errors import CompileError
from tilepipe.ir import ops
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Expr, Local, Shape, const
from tilepipe.ir.hardware.operand_tiles import is_multiple
from tilepipe.ir.layout import panel_elements
from tilepipe.ir.memory import BarrierArray, BarrierRef, SmemBuffer, TensorParam, Tile


def _accessor(
    module: Module, thing: SmemBuffer | BarrierArray, size: int, stride: int, comment: str
) -> str:
    """The name of the device function that returns the address of one tile or barrier. Its text is
    added to the file on the first use.
    """
    name = module.names.of(thing, thing.name)
    if thing not in module.memory:
        offset = module.names.of((thing, "offset"), f"{name}_offset")
        module.use("shared_address")
        at, argument = (f" + {stride} * i", "int i") if size > 1 else ("", "")
        module.memory[thing] = [
            f"constexpr u32 {offset} = {thing.offset};  // {comment}",
            f"__device__ __forceinline__ u32 {name}({argument})"
            f" {{ return shared_address(smem) + {offset}{at}; }}",
        ]
    return name


def barrier(ctx: Context, ref: BarrierRef) -> str:
    """The address of an mbarrier, such as `inputs_full(stage)`, in the CTA that the reference
    names.
    """
    array = ref.array
    name = _accessor(
        ctx.module, array, array.size, 8, f"{array.size} mbarrier{'s' if array.size > 1 else ''}"
    )
    address = f"{name}({text(ctx, ref.index) if array.size > 1 else ''})"
    return address if ref.cta is None else f"{ctx.use('on_cta')}({address}, {text(ctx, ref.cta)})"


def tile(ctx: Context, buffer: SmemBuffer, index: Expr, cta: Expr | None = None) -> str:
    """The address of tile `index` of a buffer."""
    buffer = buffer.own
    order = "" if buffer.order == "row" else ", column-major"
    swizzle = f", {buffer.swizzle}-byte swizzle" if buffer.swizzle else ""
    comment = f"{buffer.count} × {buffer.rows}×{buffer.cols} {buffer.dtype}{order}{swizzle}"
    _check_alignment(buffer)
    name = _accessor(ctx.module, buffer, buffer.count, buffer.step, comment)
    address = f"{name}({text(ctx, index) if buffer.count > 1 else ''})"
    return address if cta is None else f"{ctx.use('on_cta')}({address}, {text(ctx, cta)})"


def _check_alignment(buffer: SmemBuffer) -> None:
    span = max(8 * buffer.swizzle, 16)
    if buffer.swizzle and (buffer.offset % span or (buffer.count > 1 and buffer.step % span)):
        raise CompileError(
            f"tiles of '{buffer.name}' lie at {buffer.offset} + {buffer.step} · i bytes, but the"
            f" {buffer.swizzle}-byte swizzle repeats every {span} bytes, so each tile must start at"
            f" a multiple of that; make rows × cols × element size a multiple of {span}",
            buffer.loc,
        )


@dataclass(frozen=True, slots=True)
class Place:
    """The geometry of a buffer's tiles.

    Attributes:
        panel: elements of the contiguous dimension in a panel.
        line: bytes of one line of a panel.
        panel_bytes: bytes from one panel to the next.
    """

    buffer: SmemBuffer
    panel: int
    line: int
    panel_bytes: int

    @property
    def swizzled(self) -> bool:
        """True if a line is as long as the swizzle, so that the swizzle permutes each line."""
        return self.buffer.swizzle > 0 and self.line == self.buffer.swizzle

    def split(self, row: Expr, col: Expr) -> tuple[Expr, Expr]:
        """The (index along the contiguous dimension, index of the line) of an element."""
        return (col, row) if self.buffer.order == "row" else (row, col)

    def linear(self, row: Expr, col: Expr) -> Expr:
        """The byte offset of an element in its tile before the swizzle."""
        inner, line = self.split(row, col)
        dtype = self.buffer.dtype
        contiguous = self.buffer.cols if self.buffer.order == "row" else self.buffer.rows
        if contiguous == self.panel:
            return add(mul(line, self.line), in_bytes(inner, dtype))
        within = add(mul(line, self.line), in_bytes(mod(inner, self.panel), dtype))
        return add(mul(div(inner, self.panel), self.panel_bytes), within)


def in_bytes(elements: Expr, dtype: DType) -> Expr:
    """The bytes that elements along the contiguous dimension take. Elements of 4 bits fill whole
    bytes (`ir.hardware`).
    """
    return div(elements, dtype.per_byte) if dtype.per_byte > 1 else mul(elements, dtype.nbytes)


def place(buffer: SmemBuffer) -> Place:
    """The geometry of a buffer's tiles."""
    panel = panel_elements(buffer)
    line = buffer.dtype.bytes_of(panel)
    return Place(
        buffer, panel, line, line * (buffer.rows if buffer.order == "row" else buffer.cols)
    )


def swizzled(ctx: Context, buffer: SmemBuffer, linear: Expr) -> str:
    """The code of a byte offset after the swizzle."""
    return (
        f"{ctx.use(f'swizzle_{buffer.swizzle}')}({text(ctx, linear)})"
        if buffer.swizzle
        else operand(ctx, linear, 12)
    )


def element(ctx: Context, t: Tile, row: Expr, col: Expr) -> str:
    """The address of element (row, col) of a tile's rectangle."""
    linear = place(t.buffer).linear(add(t.row, row), add(t.col, col))
    base = tile(ctx, t.buffer, t.index, t.cta)
    return base if value(linear) == 0 else f"{base} + {swizzled(ctx, t.buffer, linear)}"


def box(ctx: Context, t: Tile) -> str:
    """The address where the box of a TMA copy, or a matrix of wgmma or tcgen05, starts. It is not
    swizzled: the hardware swizzles the addresses that it forms from it.
    """
    linear = place(t.buffer).linear(t.row, t.col)
    base = tile(ctx, t.buffer, t.index, t.cta)
    return base if value(linear) == 0 else f"{base} + {operand(ctx, linear, 12)}"


@dataclass(frozen=True, slots=True)
class Step:
    """One loop over a fragment's registers: each of `trips` iterations moves by `size` rows or
    columns.
    """

    index: Local
    size: int
    trips: int


def counter(ctx: Context, name: str, trips: int = 2) -> Local:
    """The index of a loop that the printer adds, as an expression; 0 where the loop runs once."""
    local = index(ctx.temporary(name) if trips > 1 else "0")
    ctx.names.put(local, local.name)
    return local


def walk_tile(
    ctx: Context,
    t: Tile,
    row: Expr,
    col: Expr,
    rows: Sequence[Step],
    cols: Sequence[Step],
    name: str = "at",
) -> tuple[str, str | None]:
    """The addresses of many elements of a tile, as (code of the part without loop indices, code of
    the address that uses this part under this name). Where the address does not split, the
    first result is the whole address and the second is None.

    (row, col): each lane's first element, counted from the rectangle's corner. Along the contiguous
    dimension the lanes of a warp differ by less than a step.

    The split takes the swizzle out of the unrolled loops. The swizzle XORs bits of the number
    of a line into the number of the 16-byte chunk in it, and repeats every 8 lines. So it commutes
    with a step of a multiple of 8 swizzle lines, or of whole panels: such a step is added to the
    swizzled address. A step of chunks within a line changes only bits that the XOR then flips, and
    XOR is associative: such a step is XORed into the swizzled address, provided that the rectangle
    starts at a panel, and that the step divides the panel, so that adding it would carry nothing
    out of those bits.
    """
    p = place(t.buffer)
    row, col = add(t.row, row), add(t.col, col)
    inner, lines = (cols, rows) if t.buffer.order == "row" else (rows, cols)
    start = t.col if t.buffer.order == "row" else t.row
    added: list[Expr] = []
    flipped: Expr | None = None
    for s in lines:
        if s.trips > 1 and p.buffer.swizzle and s.size * p.line % (8 * p.buffer.swizzle):
            return whole_address(ctx, t, row, col, rows, cols), None
        if s.trips > 1:
            added.append(mul(s.index, s.size * p.line))
    size = t.buffer.dtype.nbytes
    for s in (s for s in inner if s.trips > 1):
        if not p.buffer.swizzle:
            added.append(mul(s.index, s.size * size))
        elif s.size % p.panel == 0:
            added.append(mul(s.index, s.size // p.panel * p.panel_bytes))
        elif (
            p.swizzled and flipped is None and p.panel % s.size == 0 and is_multiple(start, p.panel)
        ):
            flipped = mul(
                s.index if s.trips * s.size <= p.panel else mod(s.index, p.panel // s.size),
                s.size * size,
            )
            if s.trips * s.size > p.panel:
                added.append(mul(div(s.index, p.panel // s.size), p.panel_bytes))
        else:
            return whole_address(ctx, t, row, col, rows, cols), None
    linear = p.linear(row, col)
    base = f"{tile(ctx, t.buffer, t.index, t.cta)} + {swizzled(ctx, t.buffer, linear)}"
    at = ctx.temporary(name)
    code = at if flipped is None else f"{at} ^ {operand(ctx, flipped, 14)}"
    if flipped is not None and added:
        code = f"({code})"
    return base, " + ".join([code, *(operand(ctx, x) for x in added)])


def whole_address(
    ctx: Context, t: Tile, row: Expr, col: Expr, rows: Sequence[Step], cols: Sequence[Step]
) -> str:
    """The address of element (row, col) of a tile's buffer, moved by the steps, with the swizzle
    computed inside the loops.
    """
    for s in rows:
        row = add(row, mul(s.index, s.size) if s.trips > 1 else const(0))
    for s in cols:
        col = add(col, mul(s.index, s.size) if s.trips > 1 else const(0))
    linear = place(t.buffer).linear(row, col)
    return f"{tile(ctx, t.buffer, t.index, t.cta)} + {swizzled(ctx, t.buffer, linear)}"


def inner_axes(tensor: TensorParam, coords: tuple[Expr, ...], shape: Shape, op: ops.Op) -> int:
    """The number of axes of a tensor, the last ones, along which a fragment of `shape` lies.

    Raises:
        CompileError: there is not one coordinate for each axis, or the tensor has fewer axes.
    """
    inner = 1 if 1 in shape else 2
    if len(coords) != tensor.rank or tensor.rank < inner:
        raise CompileError(
            f"a fragment {shape[0]}×{shape[1]} of '{tensor.name}', which is {tensor.rank}-d, at"
            f" {len(coords)} coordinates",
            op.loc,
        )
    return inner


def index_term(ctx: Context, tensor: TensorParam, axis: int, index: str) -> str:
    """The offset of an index in elements; 64-bit, because strides are."""
    if axis == tensor.contiguous_axis:
        return index
    factor = index if index.isidentifier() or index.isdigit() else f"({index})"
    return f"{factor} * {ctx.argument('stride', tensor.name, axis)}"
