"""Reductions of columns: in each thread over its rows, by shuffles among the lanes of a warp that
share a column, and through shared memory among the warps that hold other rows.
"""

from __future__ import annotations

from tilepipe.cuda.codegen.combining import Combining
from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.cuda.codegen.expressions import text
from tilepipe.cuda.codegen.fragments import assign, declare_array, layout_of
from tilepipe.cuda.codegen.partials import Exchange, exchange
from tilepipe.cuda.codegen.registers import (
    Index,
    Loops,
    RowLoops,
    registers,
    registers_of,
    thread_of_row,
)
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import FragmentRead
from tilepipe.ir.fragment import VECTOR, WARP, Fragment, row_threads, warps_apart


@emit.register
def _(op: ops.FragmentReduceColumns, ctx: Context) -> None:
    assert ctx.role is not None
    rows, cols = op.value.shape
    if layout_of(ctx, op.value, op) != op.layout and (rows > 64 or row_threads(op.layout)):
        raise CompileError(f"a value of another layout than {op.layout} is reduced", op.loc)
    how = Combining.of(op.op, op.value.dtype, op.loc)
    warps = ctx.role.agent_threads // WARP
    apart = len(warps_apart(op.layout, warps, rows, 1)) if rows > 1 else 1
    # in whole registers, since dst may hold pairs of 16 bits
    wide = dtypes.float32 if how.c_type == "float" else op.value.dtype
    total = Fragment(ctx.temporary("total"), wide, 1, cols, layout=op.dst.layout)
    ctx.names.put(total, total.name)
    with ctx.out.block():
        declare_array(ctx, total.name, wide, (1, cols), op.dst.layout)
        _in_warp(ctx, op, how, total)
        if apart > 1:
            with exchange(ctx, op.partials, op.loc) as words:
                _among_warps(ctx, op, how, total, words, warps // apart, apart)
        whole = FragmentRead(wide, shape=(1, cols), fragment=total)
        assign(ctx, op.dst, registers(ctx, op.dst), whole, 0, cols)


def _in_warp(ctx: Context, op: ops.FragmentReduceColumns, how: Combining, total: Fragment) -> None:
    """Prints what the lanes of a warp make of each column."""
    x, threads = ctx.temporary("x"), row_threads(op.layout)
    if threads:
        rows = RowLoops.over(ctx, op.value.shape, op.layout)
        with rows.columns(ctx):
            for low in range(VECTOR):
                with ctx.out.block():
                    ctx.out(f"{how.c_type} {x} = {how.start};")
                    with rows.rows(ctx):
                        ctx.out(how.into(x, text(ctx, op.value, rows.at(low))))
                    together = how.lanes(ctx, x, min(threads, WARP), WARP)
                    ctx.out(f"{total.name}[0][{rows.v * VECTOR + low}] = {together};")
        return
    loops = Loops.over(ctx, op.value.shape)
    with loops.columns(ctx):
        for low in range(2):
            with ctx.out.block():
                ctx.out(f"{how.c_type} {x} = {how.start};")
                with loops.rows(ctx):
                    ctx.out(how.into(x, text(ctx, op.value, loops.at(low))))
                together = how.lanes(ctx, x, 4, WARP)
                ctx.out(f"{total.name}[0][{loops.j * 2 + low}] = {together};")


def _among_warps(
    ctx: Context,
    op: ops.FragmentReduceColumns,
    how: Combining,
    total: Fragment,
    words: Exchange,
    each: int,
    apart: int,
) -> None:
    """Prints how `apart` warps, or groups of `each` warps that share rows, join what they have: a
    word of each for every column. Of the lanes that hold a column, the first writes it.
    """
    cols, threads = total.cols, row_threads(op.layout)
    warp, lane = ctx.special("warp_in_group"), ctx.special("lane")
    holder = warp if each == 1 else f"{warp} / {each}"
    if threads:
        first, step, pairs = f"{4 * VECTOR} * ({thread_of_row(ctx, op.layout)})", threads, VECTOR
    else:
        first, step, pairs = f"8 * ({lane} % 4)", 1, 2
    count = registers_of(ctx, (1, cols), False, total.layout)[1] // pairs
    index = ctx.temporary("j") if count > 1 else "0"
    # of each vector, or of each eight columns, by pairs
    places = [
        (
            Index(low, ((index, pairs),) if count > 1 else ()),
            f"{first} + {32 * step} * {index} + {4 * low}",
        )
        for low in range(0, pairs, 2)
    ]
    lanes = min(threads or 4, WARP)
    pair = "float2" if how.c_type == "float" else "u32x2"
    writes = f"if ({lane} < {lanes})" if lanes < WARP else ""
    with ctx.out.block(writes), ctx.out.loop(index, count):
        for register, at in places:
            low, high = (f"{total.name}[0][{register + i}]" for i in range(2))
            to = f"{words.base} + {4 * cols} * ({holder}) + {at}"
            ctx.out(f"{ctx.use(f'store_{pair}')}({to}, {low}, {high});")
    ctx.out(words.sync)
    with ctx.out.loop(index, count):
        for register, at in places:
            with ctx.out.block():
                parts = words.load_pairs(ctx, how, [f"{4 * cols * w} + {at}" for w in range(apart)])
                for i in range(2):
                    ctx.out(f"{total.name}[0][{register + i}] = {how.tree(parts[i::2])};")
