"""The maximum or minimum of rows, with the first column that has it.

A thread goes through what it holds in order of columns, and keeps a column where an element beats
all before it. Of the threads of a row, those whose best is the best of all give their column, the
others the greatest integer, and the least wins. So a lane sends two words, and compares no pairs.
"""

from __future__ import annotations

from tilepipe.cuda.codegen.combining import Combining
from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.cuda.codegen.expressions import text
from tilepipe.cuda.codegen.fragments import require_same_layout
from tilepipe.cuda.codegen.indices import Index, term
from tilepipe.cuda.codegen.partials import partial_words
from tilepipe.cuda.codegen.registers import (
    Loops,
    RowLoops,
    group_of_thread,
    loop_index,
    registers,
    registers_of,
    thread_of_row,
)
from tilepipe.ir import dtypes, ops
from tilepipe.ir.fragment import VECTOR, WARP, row_threads

_NONE = "0x7fffffff"  # beaten by every column


@emit.register
def _(op: ops.FragmentFind, ctx: Context) -> None:
    require_same_layout(ctx, op.dst, op.value, op)
    require_same_layout(ctx, op.columns, op.value, op)
    how = Combining.of(op.op, op.value.dtype, op.loc)
    least = Combining.of("min", dtypes.int32, op.loc)
    layout, shape = op.dst.layout, op.value.shape
    threads = row_threads(layout)
    loops: Loops | RowLoops
    if threads:
        loops = RowLoops.over(ctx, shape, layout)
        first, half = term(thread_of_row(ctx, layout), VECTOR), "0"
        columns = [loops.v * (VECTOR * threads) + low for low in range(VECTOR)]
    else:
        loops = Loops.over(ctx, shape)
        first, half = term(f"{ctx.special('lane')} % 4", 2), str(loops.h)
        columns = [loops.j * 8 + low for low in range(2)]
    best, column, value = (ctx.temporary(name) for name in ("best", "column", "value"))
    place = f"[{loops.i}][{half}]"
    values, found = (f"{registers(ctx, f)}{place}" for f in (op.dst, op.columns))
    together = min(threads or 4, WARP)
    with ctx.out.block(), loops.rows(ctx):
        ctx.out(f"{how.c_type} {best} = {how.start};")
        ctx.out(f"i32 {column} = 0;")
        with loops.columns(ctx):
            for low, at in enumerate(columns):
                with ctx.out.block():
                    ctx.out(f"const {how.c_type} {value} = {text(ctx, op.value, loops.at(low))};")
                    _keep(ctx, op.op, best, column, value, at)
                    ctx.out(how.into(best, value))
        ctx.out(f"{values} = {how.lanes(ctx, best, 1, together)};")
        mine = f"{best} == {values} ? {term(column) + first} : {_NONE}"
        ctx.out(f"{found} = {least.lanes(ctx, mine, 1, together)};")
    if threads > WARP:
        _among_warps(ctx, op, how, least)


def _keep(ctx: Context, op: str, best: str, column: str, value: str, at: Index) -> None:
    sign = ">" if op == "max" else "<"
    ctx.out(f"{column} = {value} {sign} {best} ? {at} : {column};")


def _among_warps(ctx: Context, op: ops.FragmentFind, how: Combining, least: Combining) -> None:
    """Joins what the warps of a row have: for each row that a thread holds, a value of each warp,
    then a column of each.
    """
    layout = op.dst.layout
    warps, blocks = row_threads(layout) // WARP, registers_of(ctx, op.value.shape, False, layout)[0]
    index = loop_index(ctx, "i", blocks)
    warp, lane = ctx.special("warp_in_group"), ctx.special("lane")
    mine = term(group_of_thread(ctx, layout), 4 * warps)
    values, columns = (f"{registers(ctx, f)}[{index}][0]" for f in (op.dst, op.columns))
    with partial_words(ctx, op.partials, op.loc) as words:
        with ctx.out.block(f"if ({lane} == 0)"), ctx.out.loop(str(index), blocks):
            words.store(ctx, index * 32 + term(warp, 4), how, values)
            words.store(ctx, index * 32 + term(warp, 4) + 16, least, columns)
        ctx.out(words.sync)
        with ctx.out.loop(str(index), blocks):
            pairs = [index * 32 + mine + 4 * w for w in range(0, warps, 2)]
            parts = words.load_pairs(ctx, how, pairs)
            places = [pair + 16 for pair in pairs]
            ats = words.load_pairs(ctx, least, places, "column")
            ctx.out(f"{values} = {how.tree(parts)};")
            ctx.out(
                f"{columns} = "
                + least.tree(
                    [
                        f"{part} == {values} ? {at} : {_NONE}"
                        for part, at in zip(parts, ats, strict=True)
                    ]
                )
                + ";"
            )
