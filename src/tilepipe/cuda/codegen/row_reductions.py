"""Reductions of rows: in each thread, by shuffles among the lanes of a warp that share a row, and
in layout "rows:T" through shared memory among the warps that share one.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilepipe.cuda.codegen.combining import CHAINS, Combining
from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.cuda.codegen.expressions import text
from tilepipe.cuda.codegen.fragments import assign_array, require_same_layout
from tilepipe.cuda.codegen.indices import term
from tilepipe.cuda.codegen.names import is_packed, small_float
from tilepipe.cuda.codegen.partials import partial_words
from tilepipe.cuda.codegen.registers import (
    Loops,
    RowLoops,
    group_of_thread,
    loop_index,
    packed_register,
    registers,
    registers_of,
)
from tilepipe.ir import ops
from tilepipe.ir.def_use import leaves
from tilepipe.ir.expressions import FragmentRead
from tilepipe.ir.fragment import VECTOR, WARP, Fragment, row_threads
from tilepipe.ir.program import walk

_WIDE = 16  # registers of a row in a thread, from which on it is unpacked again
_MANY = 32  # columns of an accumulator, of which a thread has a fourth, from which on chains pay


@emit.register
def _(op: ops.FragmentReduce, ctx: Context) -> None:
    name = registers(ctx, op.dst)
    rows, cols = op.value.shape
    require_same_layout(ctx, op.dst, op.value, op)
    how = Combining.of(op.op, op.value.dtype, op.loc)
    if cols == 1:
        assign_array(ctx, name, (rows, 1), op.value, op.dst.layout)
        return
    if row_threads(op.dst.layout):
        _reduce_vectors(ctx, op, name, how)
        return
    loops, x = Loops.over(ctx, op.value.shape), ctx.temporary("x")
    # Of extremes, which are exact in any order, four at once: one after the other, each would wait
    # for the one before.
    chains = CHAINS if op.op != "add" and cols >= _MANY else 1
    with loops.rows(ctx):
        ctx.out(
            f"{how.c_type} {x}[{chains}];" if chains > 1 else f"{how.c_type} {x} = {how.start};"
        )
        with loops.columns(ctx):
            for low in range(2):
                element = text(ctx, op.value, loops.at(low))
                if chains == 1:
                    ctx.out(how.into(x, element))
                else:
                    chain = f"{x}[{loops.j} % 2 * 2{' + 1' if low else ''}]"
                    ctx.out(f"{chain} = {loops.j} < 2 ? {element} : {how.joined(chain, element)};")
        whole = x if chains == 1 else how.of_chains(x)
        if chains > 1 and how.c_type == "float":
            # NaNs alone give the infinity that a chain would begin with.
            whole = how.joined(how.start, whole)
        whole = how.rounded(ctx, how.lanes(ctx, whole, 1, 4))
        ctx.out(f"{name}[{loops.i}][{loops.h}] = {whole};")


def _reduce_vectors(ctx: Context, op: ops.FragmentReduce, name: str, how: Combining) -> None:
    """Prints a reduction in layout "rows:T" into the array `name`."""
    layout, x = op.dst.layout, ctx.temporary("x")
    loops = RowLoops.over(ctx, op.value.shape, layout)
    threads = row_threads(layout)
    with ctx.out.block(), loops.rows(ctx):
        if extreme := _packed_extreme(ctx, op, loops, x):
            whole = extreme
        else:
            whole = _chains(ctx, op, loops, x, how)
        mine = how.lanes(ctx, whole, 1, min(threads, WARP))
        ctx.out(f"{name}[{loops.i}][0] = {mine if threads > WARP else how.rounded(ctx, mine)};")
    if threads > WARP:
        _among_warps(ctx, op, name, how)
    _unpack_again(ctx, op)


def _chains(ctx: Context, op: ops.FragmentReduce, loops: RowLoops, x: str, how: Combining) -> str:
    """Prints the reduction of what a thread has of a row; gives the C++ of its value."""
    ctx.out(f"{how.c_type} {x}[{CHAINS}] = {{{', '.join([how.start] * CHAINS)}}};")
    with loops.columns(ctx):
        for low in range(VECTOR):
            ctx.out(how.into(f"{x}[{low % CHAINS}]", text(ctx, op.value, loops.at(low))))
    return how.of_chains(x)


def _takes_pairs(op: ops.FragmentReduce) -> bool:
    """True of a maximum or minimum of a fragment of 16-bit pairs as it stands."""
    x = op.value
    return (
        op.op != "add"
        and isinstance(x, FragmentRead)
        and is_packed(x.fragment.dtype, x.fragment.cols)
    )


def _packed_extreme(ctx: Context, op: ops.FragmentReduce, loops: RowLoops, x: str) -> str:
    """The same of the maximum or minimum of a fragment of 16-bit pairs, which one instruction takes
    of two pairs as they stand; "" of any other reduction.
    """
    read = op.value
    if not _takes_pairs(op) or not isinstance(read, FragmentRead):
        return ""
    f = read.fragment
    small, array = small_float(f.dtype), registers(ctx, f)
    best, unpack = ctx.use(f"{op.op}_{small}x2"), ctx.use(f"unpack_{small}")
    start = {"bf16": 0xFF80FF80, "f16": 0xFC00FC00}[str(small)]
    if op.op == "min":
        start ^= 0x80008000
    ctx.out(f"u32 {x}[{CHAINS}] = {{{', '.join([f'{start:#x}u'] * CHAINS)}}};")
    with loops.columns(ctx):
        for i in range(VECTOR // 2):
            pair = packed_register(array, (f.rows, f.cols), loops.at(2 * i), f.layout, read.col)
            ctx.out(f"{x}[{i}] = {best}({x}[{i}], {pair});")
    ctx.out(f"{x}[0] = {best}({best}({x}[0], {x}[2]), {best}({x}[1], {x}[3]));")
    return f"f{op.op}f({unpack}({x}[0], 0), {unpack}({x}[0], 1))"


def _unpack_again(ctx: Context, op: ops.FragmentReduce) -> None:
    """Keeps the compiler, where several CTAs must fit in an SM, from holding all that it has
    unpacked of a wide row before a reduction for what reads it after: twice the registers of the
    packed row (docs/performance/rows.md, "Norms, softmax and cross entropy").

    In loops, whose next rows are loaded meanwhile, it costs more than it saves.
    """
    assert ctx.role is not None
    every = list(walk(ctx.role.body))
    if ctx.kernel.ctas_per_sm == 1 or any(isinstance(x, ops.For | ops.While) for x in every):
        return
    here = next(i for i, x in enumerate(every) if x is op)
    before, after = _unpacked(every[: here + 1]), _unpacked(every[here + 1 :])
    for f in before:
        blocks, each = registers_of(ctx, (f.rows, f.cols), True, f.layout)
        if each >= _WIDE and f in after:
            i, r = ctx.temporary("i"), ctx.temporary("r")
            block = "0" if blocks == 1 else i
            with ctx.out.block(), ctx.out.loop(block, blocks), ctx.out.loop(r, each):
                ctx.out(f"{ctx.use('unpack_again')}({registers(ctx, f)}[{block}][{r}]);")


def _unpacked(every: Iterable[ops.Op]) -> dict[Fragment, None]:
    """The fragments of 16-bit pairs whose elements these ops read one by one."""
    read = (
        leaf.fragment
        for op in every
        if not (isinstance(op, ops.FragmentReduce) and _takes_pairs(op))
        for leaf in leaves(op)
        if isinstance(leaf, FragmentRead)
    )
    return {f: None for f in read if is_packed(f.dtype, f.cols)}


def _among_warps(ctx: Context, op: ops.FragmentReduce, name: str, how: Combining) -> None:
    """Joins what the warps of a row have: for each row that a thread holds, a word of each warp."""
    layout = op.dst.layout
    warps, blocks = row_threads(layout) // WARP, registers_of(ctx, op.value.shape, False, layout)[0]
    index = loop_index(ctx, "i", blocks)
    warp, lane = ctx.special("warp_in_group"), ctx.special("lane")
    mine = term(group_of_thread(ctx, layout), 4 * warps)
    with partial_words(ctx, op.partials, op.loc) as words:
        with ctx.out.block(f"if ({lane} == 0)"), ctx.out.loop(str(index), blocks):
            words.store(ctx, index * 16 + term(warp, 4), how, f"{name}[{index}][0]")
        ctx.out(words.sync)
        with ctx.out.loop(str(index), blocks):
            places = [index * 16 + mine + 4 * w for w in range(0, warps, 2)]
            whole = how.tree(words.load_pairs(ctx, how, places))
            ctx.out(f"{name}[{index}][0] = {how.rounded(ctx, whole)};")
