"""Fragments as arrays of registers, and elementwise loops over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.cuda.codegen.expressions import bits_of, text
from tilepipe.cuda.codegen.indices import Index
from tilepipe.cuda.codegen.names import is_packed, register_type, small_float
from tilepipe.cuda.codegen.registers import (
    At,
    Loops,
    element,
    loop_index,
    packed_register,
    registers,
    registers_of,
    split_pair,
)
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, expressions as e, ops
from tilepipe.ir.def_use import nodes
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Expr, Shape
from tilepipe.ir.fragment import FOURS, Fragment, row_threads


def declare_array(
    ctx: Context, name: str, dtype: DType, shape: Shape, layout: str, packed: bool = False
) -> None:
    """Declares the registers of a fragment, or of a fragment-shaped value."""
    if layout == FOURS:
        ctx.out(f"u32 {name}[{shape[0] // 64}][{shape[1] // 8}];")
        return
    blocks, each = registers_of(ctx, shape, packed, layout)
    ctx.out(f"{'u32' if packed else register_type(dtype)} {name}[{blocks}][{each}];")


def assign_array(
    ctx: Context, name: str, shape: e.Shape, value: Expr, layout: str, col: int = 0
) -> None:
    """Prints the elementwise assignment of a value to an array, from column `col`."""
    if threads := row_threads(layout):
        blocks, each = registers_of(ctx, shape, False, layout)
        i, r = loop_index(ctx, "i", blocks), loop_index(ctx, "r", each)
        with ctx.out.loop(str(i), blocks), ctx.out.loop(str(r), each):
            ctx.out(f"{name}[{i}][{r + col // threads}] = {text(ctx, value, At(str(i), r, '0'))};")
        return
    blocks, cols = shape[0] // 64, shape[1]
    if shape[0] == 1:
        loops = Loops.over(ctx, shape)
        with loops.columns(ctx):
            for at in (loops.at(0), loops.at(1)):
                ctx.out(
                    f"{element(name, dtypes.float32, shape, at, layout, col)[0]} ="
                    f" {text(ctx, value, at)};"
                )
        return
    i = loop_index(ctx, "i", blocks)
    if cols == 1:
        h = ctx.temporary("h")
        with ctx.out.loop(str(i), blocks), ctx.out.loop(h, 2):
            ctx.out(f"{name}[{i}][{h}] = {text(ctx, value, At(str(i), Index(), h))};")
        return
    r = loop_index(ctx, "r", cols // 2)
    with ctx.out.loop(str(i), blocks), ctx.out.loop(str(r), cols // 2):
        ctx.out(f"{name}[{i}][{r + col // 2}] = {text(ctx, value, At(str(i), r, f'{r} / 2 % 2'))};")


def packed(
    ctx: Context, dtype: DType, value: Expr, block: str, pair: Index, by_rows: bool = False
) -> str:
    """The code of elements 2 pair and 2 pair + 1 of a value, two neighbouring columns, packed into
    one register as 16-bit floats. `by_rows`: of layout "rows:T".
    """
    while isinstance(value, e.Cast) and value.dtype is dtype:
        value = value.a  # packing rounds anyway
    value = _as_product(value)
    if (
        isinstance(value, e.FragmentRead)
        and value.dtype is dtype
        and is_packed(dtype, value.fragment.cols)
    ):
        f = value.fragment
        return packed_register(
            registers(ctx, f), (f.rows, f.cols), At(block, pair * 2, ""), f.layout, value.col
        )
    if isinstance(value, e.Bitcast) and value.dtype is dtype and value.a.dtype.bits == 32:
        return bits_of(ctx, value.a, split_pair(pair, block))
    if isinstance(value, e.Binary) and value.op in _PACKED and _holds_pairs(value, dtype):
        # rounded once from the exact result, as float32 that is rounded would be
        operands = ", ".join(
            packed(ctx, dtype, x, block, pair, by_rows) for x in (value.a, value.b)
        )
        return f"{ctx.use(f'{value.op}_{small_float(dtype)}x2')}({operands})"
    half = "0" if by_rows else pair.remainder(2)
    low, high = (text(ctx, value, At(block, pair * 2 + i, half)) for i in range(2))
    return f"{ctx.use(f'pack_{small_float(dtype)}')}({low}, {high})"


_PACKED = ("add", "sub", "mul")


def _holds_pairs(x: Expr, dtype: DType) -> bool:
    """True if registers hold pairs of a value, or of what it is computed from in its own dtype."""
    if x.dtype is not dtype or not x.shape:
        return False
    if isinstance(x, e.FragmentRead):
        return is_packed(dtype, x.fragment.cols)
    if isinstance(x, e.Bitcast):
        return x.a.dtype.bits == 32
    x = _as_product(x)
    return (
        isinstance(x, e.Binary)
        and x.op in _PACKED
        and any(_holds_pairs(part, dtype) for part in (x.a, x.b))
    )


def _as_product(x: Expr) -> Expr:
    """A square as the product that it is, which pairs of 16 bits have an instruction for."""
    if isinstance(x, e.Binary) and x.op == "pow" and isinstance(x.b, e.Const) and x.b.value == 2:
        return replace(x, op="mul", b=x.a)
    return x


@contextmanager
def only_first_lanes(ctx: Context, shape: Shape) -> Iterator[None]:
    """Prints a body that writes a fragment to memory. A fragment of one row is complete in four
    lanes of each warp, so only those of the first warp execute the body.
    """
    if shape[0] > 1:
        yield
        return
    with ctx.out.block(f"if ({ctx.special('warp_in_group')} == 0 && {ctx.special('lane')} < 4)"):
        yield


def layout_of(ctx: Context, x: Expr, op: ops.Op) -> str:
    """The layout of a value, which says what rows its registers hold: the layout of the fragments
    that it reads. For values of 64 rows or of one row all layouts are the same.

    Raises:
        CompileError: the value combines fragments of different layouts, so that the same register
            belongs to different rows.
    """
    found: dict[str, str] = {}
    for node in nodes(x):
        if isinstance(node, e.FragmentRead) and _matters(node.fragment.layout, node.fragment.rows):
            found.setdefault(node.fragment.layout, node.fragment.name)
        elif isinstance(node, e.Iota) and _matters(node.layout, node.shape[0]):
            found.setdefault(node.layout, "rows")
        elif (
            isinstance(node, e.Local) and node.shape and _matters(ctx.layouts[node], node.shape[0])
        ):
            found.setdefault(ctx.layouts[node], node.name)
    if len(found) > 1:
        named = ", ".join(f"'{name}' has {layout}" for layout, name in found.items())
        raise CompileError(
            f"fragments of different layouts meet, whose registers hold different rows: {named}",
            op.loc,
        )
    return next(iter(found), "wgmma")


def _matters(layout: str, rows: int) -> bool:
    """True if the layout says which elements a value of so many rows holds: of 64 rows or one, all
    but "rows:T" are the same.
    """
    return rows > 64 or row_threads(layout) > 0


def require_same_layout(ctx: Context, f: Fragment, value: Expr, op: ops.Op) -> None:
    """Raises CompileError where a value has another layout than the fragment that it goes to."""
    if not value.shape or not _matters(f.layout, value.shape[0]):
        return
    layout = layout_of(ctx, value, op)
    if layout != f.layout:
        raise CompileError(
            f"a value of layout {layout} goes to {f.named} of layout {f.layout}, whose registers"
            " hold other rows",
            op.loc,
        )


@emit.register
def _(op: ops.FragmentDefine, ctx: Context) -> None:
    f = op.fragment
    name = ctx.names.of(f, f.name)
    declare_array(ctx, name, f.dtype, (f.rows, f.cols), f.layout, is_packed(f.dtype, f.cols))


@emit.register
def _(op: ops.FragmentSet, ctx: Context) -> None:
    f, value, col = op.fragment, op.value, op.col
    name = registers(ctx, f)
    # A scalar, or a value of one column, fills every column from `col` on.
    cols = value.shape[1] if value.shape and value.shape[1] > 1 else f.cols - col
    if not (
        col >= 0 and col + cols <= f.cols and (f.cols == 1 or (col % 8 == 0 and cols % 8 == 0))
    ):
        raise CompileError(
            f"columns {col} to {col + cols} of {f.named}, which has {f.cols}: both have to be"
            " multiples of 8 inside it",
            op.loc,
        )
    require_same_layout(ctx, f, value, op)
    if not _shifts(f, value, col, cols):
        assign(ctx, f, name, value, col, cols)
        return
    with ctx.out.block():
        old = ctx.temporary("old")
        whole = Fragment(old, f.dtype, f.rows, cols, layout=f.layout)
        ctx.names.put(whole, old)
        declare_array(ctx, old, f.dtype, (f.rows, cols), f.layout, is_packed(f.dtype, cols))
        assign(ctx, whole, old, value, 0, cols)
        assign(
            ctx, f, name, e.FragmentRead(f.dtype, shape=(f.rows, cols), fragment=whole), col, cols
        )


def assign(ctx: Context, f: Fragment, name: str, value: Expr, col: int, cols: int) -> None:
    """Prints the assignment of a value to columns [col, col + cols) of a fragment, whose array is
    `name`.
    """
    if not is_packed(f.dtype, f.cols):
        assign_array(ctx, name, (f.rows, cols), value, f.layout, col)
        return
    if threads := row_threads(f.layout):
        blocks, each = registers_of(ctx, (f.rows, cols), True, f.layout)
        i, q = loop_index(ctx, "i", blocks), loop_index(ctx, "q", each)
        with ctx.out.loop(str(i), blocks), ctx.out.loop(str(q), each):
            pair = packed(ctx, f.dtype, value, str(i), q, by_rows=True)
            ctx.out(f"{name}[{i}][{q + col // (2 * threads)}] = {pair};")
        return
    if f.rows == 1:
        loops = Loops.over(ctx, (1, cols))
        with loops.columns(ctx):
            ctx.out(
                f"{packed_register(name, (1, f.cols), loops.at(), f.layout, col)} ="
                f" {packed(ctx, f.dtype, value, '0', loops.pair)};"
            )
        return
    blocks = f.rows // 64
    i, q = loop_index(ctx, "i", blocks), loop_index(ctx, "q", cols // 4)
    with ctx.out.loop(str(i), blocks), ctx.out.loop(str(q), cols // 4):
        ctx.out(f"{name}[{i}][{q + col // 4}] = {packed(ctx, f.dtype, value, str(i), q)};")


@emit.register
def _(op: ops.FragmentPack, ctx: Context) -> None:
    f, value = op.fragment, op.value
    require_same_layout(ctx, replace(f, layout="wgmma"), value, op)
    while isinstance(value, e.Cast) and value.dtype is f.dtype:
        value = value.a  # packing rounds anyway
    blocks, sixteens = f.rows // 64, op.value.shape[1] // 16
    i, g, h = (loop_index(ctx, *loop) for loop in (("i", blocks), ("g", sixteens), ("h", 2)))
    of_four, of_two = ctx.use("join"), ctx.use(f"pack_{small_float(f.dtype)}")
    with ctx.out.loop(str(i), blocks), ctx.out.loop(str(g), sixteens), ctx.out.loop(str(h), 2):
        places = (At(str(i), g * 8 + h * 2 + k, str(h)) for k in (0, 1, 4, 5))
        a, b, c, d = (text(ctx, value, at) for at in places)
        word = f"{registers(ctx, f)}[{i}][{g * 2 + h + op.col // 8}]"
        ctx.out(f"{word} = {of_four}({of_two}({a}, {b}), {of_two}({c}, {d}));")


def _shifts(f: Fragment, value: Expr, col: int, cols: int) -> bool:
    """True if assigning a value to columns [col, col + cols) of a fragment overwrites columns that
    the value reads for another column. It then needs a copy.
    """
    moved = [x for x in nodes(value) if isinstance(x, e.Bitcast | e.Interleave)]
    if any(
        isinstance(read, e.FragmentRead) and read.fragment is f
        for x in moved
        if e.children(x)[0].shape != x.shape
        for read in nodes(x)
    ):
        return True
    return any(
        isinstance(x, e.FragmentRead)
        and x.fragment is f
        and x.col != col
        and x.col < col + cols
        and col < x.col + x.shape[1]
        for x in nodes(value)
    )


@emit.register
def _(op: ops.FragmentAny, ctx: Context) -> None:
    loops, x = Loops.over(ctx, op.value.shape), ctx.bind(op.result)
    if row_threads(layout_of(ctx, op.value, op)):
        raise CompileError('any() is of no fragment of layout "rows:T"', op.loc)
    ctx.out(f"bool {x} = false;")
    with loops.rows(ctx), loops.columns(ctx):
        elements = (
            (loops.at(0), loops.at(1))
            if op.value.shape[1] > 1
            else (At(str(loops.i), Index(), str(loops.h)),)
        )
        for at in elements:
            ctx.out(f"{x} |= {text(ctx, op.value, at)};")
    ctx.out(f"{x} = __any_sync(0xffffffff, {x});")
