"""Fragments: arrays of registers, elementwise loops over them, row reductions."""

from __future__ import annotations

from tilepipe.cuda.analysis import nodes
from tilepipe.cuda.c_types import is_packed, register_type, small_float
from tilepipe.cuda.context import Context
from tilepipe.cuda.emit import emit
from tilepipe.cuda.expressions import literal, text
from tilepipe.cuda.registers import At, Index, loop_index
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir import exprs as e
from tilepipe.ir.dtypes import DType
from tilepipe.ir.exprs import Expr
from tilepipe.ir.memory import Fragment


def declare_array(ctx: Context, name: str, dtype: DType, rows: int, cols: int, packed: bool = False) -> None:
    """Declares the registers of a fragment, or of a fragment-shaped value."""
    c_type = "u32" if packed else register_type(dtype)
    per_block = 2 if cols == 1 else cols // (4 if packed else 2)
    ctx.out(f"{c_type} {name}[{rows // 64}][{per_block}];")


def assign_array(ctx: Context, name: str, shape: e.Shape, value: Expr, col: int = 0) -> None:
    """array[...] = value, elementwise, from column `col`."""
    blocks, cols = shape[0] // 64, shape[1]
    i = loop_index(ctx, "i", blocks)
    if cols == 1:
        h = ctx.temporary("h")
        with ctx.out.loop(str(i), blocks), ctx.out.loop(h, 2):
            ctx.out(f"{name}[{i}][{h}] = {text(ctx, value, At(str(i), Index(), h))};")
        return
    r = loop_index(ctx, "r", cols // 2)
    with ctx.out.loop(str(i), blocks), ctx.out.loop(str(r), cols // 2):
        ctx.out(f"{name}[{i}][{r + col // 2}] = {text(ctx, value, At(str(i), r, f'{r} / 2 % 2'))};")


def packed(ctx: Context, dtype: DType, value: Expr, block: str, pair: Index) -> str:
    """Registers 2 pair and 2 pair + 1 of a value, as one register of two 16-bit floats."""
    while isinstance(value, e.Cast) and value.dtype is dtype:
        value = value.a  # packing rounds
    if isinstance(value, e.FragmentRead) and value.dtype is dtype and is_packed(dtype, value.fragment.cols):
        return f"{registers(ctx, value.fragment)}[{block}][{pair + value.col // 4}]"
    low, high = (text(ctx, value, At(block, pair * 2 + i, pair.remainder(2))) for i in range(2))
    return f"{ctx.use(f'pack_{small_float(dtype)}')}({low}, {high})"


def registers(ctx: Context, f: Fragment) -> str:
    """The identifier of a fragment's array."""
    name = ctx.names.find(f)
    if name is None:
        raise CompileError(f"fragment '{f.name}' is used in a role that did not create it", f.loc)
    return name


@emit.register
def _(op: ops.FragmentDefine, ctx: Context) -> None:
    f = op.fragment
    declare_array(ctx, ctx.names.of(f, f.name), f.dtype, f.rows, f.cols, is_packed(f.dtype, f.cols))


@emit.register
def _(op: ops.FragmentSet, ctx: Context) -> None:
    f, value, col = op.fragment, op.value, op.col
    name = registers(ctx, f)
    # A scalar, or one value a row, fills every column from `col` on.
    cols = value.shape[1] if value.shape and value.shape[1] > 1 else f.cols - col
    if not (col >= 0 and col + cols <= f.cols and (f.cols == 1 or (col % 8 == 0 and cols % 8 == 0))):
        raise CompileError(f"columns {col} to {col + cols} of '{f.name}', which has {f.cols}: they go by 8 and inside it", op.loc)
    if not _shifts(f, value, col, cols):
        _assign(ctx, f, name, value, col, cols)
        return
    with ctx.out.block():
        old = ctx.temporary("old")
        whole = Fragment(old, f.dtype, f.rows, cols)
        ctx.names.put(whole, old)
        declare_array(ctx, old, f.dtype, f.rows, cols, is_packed(f.dtype, cols))
        _assign(ctx, whole, old, value, 0, cols)
        _assign(ctx, f, name, e.FragmentRead(f.dtype, shape=(f.rows, cols), fragment=whole), col, cols)


def _assign(ctx: Context, f: Fragment, name: str, value: Expr, col: int, cols: int) -> None:
    if not is_packed(f.dtype, f.cols):
        assign_array(ctx, name, (f.rows, cols), value, col)
        return
    blocks = f.rows // 64
    i, q = loop_index(ctx, "i", blocks), loop_index(ctx, "q", cols // 4)
    with ctx.out.loop(str(i), blocks), ctx.out.loop(str(q), cols // 4):
        ctx.out(f"{name}[{i}][{q + col // 4}] = {packed(ctx, f.dtype, value, str(i), q)};")


def _shifts(f: Fragment, value: Expr, col: int, cols: int) -> bool:
    """Whether a value reads, at other columns, what assigning it to columns [col, col + cols) of a fragment overwrites."""
    return any(
        isinstance(x, e.FragmentRead) and x.fragment is f and x.col != col and x.col < col + cols and col < x.col + x.shape[1]
        for x in nodes(value)
    )


@emit.register
def _(op: ops.FragmentReduce, ctx: Context) -> None:
    name = registers(ctx, op.dst)
    rows, cols = op.value.shape
    if register_type(op.value.dtype) != "float" or op.op not in ("add", "max"):
        raise CompileError(f"a row reduction is add or max of floats, not {op.op} of {op.value.dtype}", op.loc)
    if cols == 1:
        assign_array(ctx, name, (rows, 1), op.value)
        return
    blocks = rows // 64
    i, j, h, x = loop_index(ctx, "i", blocks), loop_index(ctx, "j", cols // 8), ctx.temporary("h"), ctx.temporary("x")
    start = "0.0f" if op.op == "add" else literal(float("-inf"), dtypes.float32)
    with ctx.out.loop(str(i), blocks), ctx.out.loop(h, 2):
        ctx.out(f"float {x} = {start};")
        with ctx.out.loop(str(j), cols // 8):
            for low in range(2):
                element = text(ctx, op.value, At(str(i), element_register(j, h) + low, h))
                ctx.out(f"{x} += {element};" if op.op == "add" else f"{x} = fmaxf({x}, {element});")
        ctx.out(f"{name}[{i}][{h}] = {ctx.use(f'row_{op.op}')}({x});")


def element_register(j: Index, half: str) -> Index:
    """The first register of this lane's pair in columns 8 j .. 8 j + 7 of its upper or lower row."""
    return j * 4 + Index(0, ((half, 2),))
