"""Reductions of rows in layout "rows:T": in each thread, among the lanes of a warp by shuffles, and
among the warps that share a row through shared memory.
"""

from __future__ import annotations

from collections.abc import Callable

from tilepipe.cuda.codegen.addresses import tile
from tilepipe.cuda.codegen.context import Context
from tilepipe.cuda.codegen.expressions import literal, text
from tilepipe.cuda.codegen.names import is_packed
from tilepipe.cuda.codegen.registers import (
    RowLoops,
    group_of_thread,
    groups_of,
    registers,
    registers_of,
)
from tilepipe.cuda.codegen.synchronisation import barrier_name
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.def_use import nodes
from tilepipe.ir.expressions import FragmentRead, const
from tilepipe.ir.fragment import VECTOR, WARP, Fragment, row_threads
from tilepipe.ir.program import walk

_WIDE = 16  # registers of a row in a thread, from which on it is unpacked again
_CHAINS = 4  # sums of a thread that do not depend on each other


def reduce_rows(ctx: Context, op: ops.FragmentReduce, name: str) -> None:
    """Prints a reduction into the array `name`."""
    layout, x = op.dst.layout, ctx.temporary("x")
    loops = RowLoops.over(ctx, op.value.shape, layout)
    start = "0.0f" if op.op == "add" else literal(float("-inf"), dtypes.float32)

    def joined(a: str, b: str) -> str:
        return f"{a} + {b}" if op.op == "add" else f"fmaxf({a}, {b})"

    lanes = ctx.use(f"row_{op.op}_lanes")
    with ctx.out.block(), loops.rows(ctx):
        ctx.out(f"float {x}[{_CHAINS}] = {{{', '.join([start] * _CHAINS)}}};")
        with loops.columns(ctx):
            for low in range(VECTOR):
                chain = f"{x}[{low % _CHAINS}]"
                part = text(ctx, op.value, loops.at(low))
                ctx.out(
                    f"{chain} += {part};"
                    if op.op == "add"
                    else f"{chain} = fmaxf({chain}, {part});"
                )
        whole = joined(*(f"({joined(f'{x}[{i}]', f'{x}[{i + 2}]')})" for i in range(2)))
        ctx.out(f"{name}[{loops.i}][0] = {lanes}({whole}, {min(row_threads(layout), WARP)});")
    if row_threads(layout) > WARP:
        _among_warps(ctx, op, name, joined)
    _unpack_again(ctx, op)


def _unpack_again(ctx: Context, op: ops.FragmentReduce) -> None:
    """Keeps the compiler from holding all that it has unpacked of a wide row until the next
    reduction: twice the registers of the packed row, and so fewer CTAs in an SM.

    Where one reduction alone reads the row, and in loops, whose next rows are loaded meanwhile, it
    costs more than it saves (docs/performance.md, "Layer norm").
    """
    assert ctx.role is not None
    every = list(walk(ctx.role.body))
    if any(isinstance(x, ops.For | ops.While) for x in every):
        return
    reductions = [x for x in every if isinstance(x, ops.FragmentReduce)]
    for f in _read_packed(op):
        each = registers_of(ctx, (f.rows, f.cols), True, f.layout)[1]
        if each >= _WIDE and sum(f in _read_packed(x) for x in reductions) > 1:
            i, r = ctx.temporary("i"), ctx.temporary("r")
            blocks = registers_of(ctx, (f.rows, f.cols), True, f.layout)[0]
            block = "0" if blocks == 1 else i
            with ctx.out.block(), ctx.out.loop(block, blocks), ctx.out.loop(r, each):
                ctx.out(f"{ctx.use('unpack_again')}({registers(ctx, f)}[{block}][{r}]);")


def _read_packed(op: ops.FragmentReduce) -> list[Fragment]:
    """The fragments of 16-bit pairs that a reduction reads."""
    read = dict.fromkeys(x.fragment for x in nodes(op.value) if isinstance(x, FragmentRead))
    return [f for f in read if is_packed(f.dtype, f.cols)]


def _among_warps(
    ctx: Context, op: ops.FragmentReduce, name: str, joined: Callable[[str, str], str]
) -> None:
    """Joins what the warps of a row have. The second barrier keeps the next reduction from
    overwriting values that a warp has yet to read.
    """
    if op.partials is None:
        raise CompileError("a reduction of rows among warps has no shared memory", op.loc)
    layout, buffer, bar = op.dst.layout, op.partials.buffer, op.partials.barrier
    warps, blocks = row_threads(layout) // WARP, registers_of(ctx, op.value.shape, False, layout)[0]
    at, i = ctx.temporary("partials"), ctx.temporary("i")
    warpgroup = ctx.special("warpgroup") if bar.per_warpgroup > 1 else ""
    group = f" + {4 * buffer.cols} * {warpgroup}" if warpgroup else ""
    which = barrier_name(ctx, bar) + (f" + {warpgroup}" if warpgroup else "")
    sync = f"{ctx.use('named_sync')}({which}, {bar.threads});"
    index = "0" if blocks == 1 else i
    warp, lane = ctx.special("warp_in_group"), ctx.special("lane")
    groups = groups_of(ctx, layout)
    mine = "" if groups == 1 else f" + {4 * warps} * ({group_of_thread(ctx, layout)})"
    with ctx.out.block():
        ctx.out(f"const u32 {at} = {tile(ctx, buffer, const(0))}{group};")
        with ctx.out.block(f"if ({lane} == 0)"), ctx.out.loop(index, blocks):
            ctx.out(
                f"{ctx.use('store_float')}({at} + 16 * {index} + 4 * {warp}, {name}[{index}][0]);"
            )
        ctx.out(sync)
        with ctx.out.loop(index, blocks):
            parts = [f"part{w}" for w in range(warps)]
            ctx.out(f"float {', '.join(parts)};")
            for w in range(0, warps, 2):
                ctx.out(
                    f"{ctx.use('load_float2')}({at} + 16 * {index}{mine} + {4 * w},"
                    f" {parts[w]}, {parts[w + 1]});"
                )
            whole = joined(parts[0], parts[1])
            if warps == 4:
                whole = joined(f"({whole})", f"({joined(parts[2], parts[3])})")
            ctx.out(f"{name}[{index}][0] = {whole};")
        ctx.out(sync)
