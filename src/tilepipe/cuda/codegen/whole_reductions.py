"""Reductions of all elements to a scalar: in each thread, by shuffles (of integers of a whole warp
by redux.sync) among lanes, and through shared memory among warps.
"""

from __future__ import annotations

from tilepipe.cuda.codegen.combining import CHAINS, Combining
from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.cuda.codegen.expressions import text
from tilepipe.cuda.codegen.fragments import layout_of
from tilepipe.cuda.codegen.indices import Index, term
from tilepipe.cuda.codegen.partials import partial_words
from tilepipe.cuda.codegen.registers import At, Loops, RowLoops
from tilepipe.errors import CompileError
from tilepipe.ir import ops
from tilepipe.ir.fragment import VECTOR, WARP, row_threads, warps_apart


@emit.register
def _(op: ops.FragmentReduceAll, ctx: Context) -> None:
    assert ctx.role is not None
    rows, cols = op.value.shape
    threads = row_threads(op.layout)
    if layout_of(ctx, op.value, op) != op.layout and (rows > 64 or threads):
        raise CompileError(f"a value of another layout than {op.layout} is reduced", op.loc)
    how = Combining.of(op.op, op.value.dtype, op.loc)
    result = ctx.bind(op.result)
    ctx.out(f"{how.c_type} {result};")
    with ctx.out.block():
        mine = _in_thread(ctx, op, how)
        first, end = _lanes(threads, rows, cols)
        ctx.out(f"{result} = {how.lanes(ctx, mine, first, end)};")
        warps = ctx.role.agent_threads // WARP
        apart = warps_apart(op.layout, warps, rows, cols)
        if len(apart) > 1:
            with partial_words(ctx, op.partials, op.loc) as words:
                warp, lane = ctx.special("warp_in_group"), ctx.special("lane")
                who = [f"{lane} == 0"]
                who += [f"{warp} < {apart.stop}"] if apart.stop < warps else []
                who += [f"{warp} % {apart.step} == 0"] if apart.step > 1 else []
                with ctx.out.block(f"if ({' && '.join(who)})"):
                    at = warp if apart.step == 1 else f"{warp} / {apart.step}"
                    words.store(ctx, term(at, 4), how, result)
                ctx.out(words.sync)
                places = [Index(4 * w) for w in range(0, len(apart), 2)]
                ctx.out(f"{result} = {how.tree(words.load_pairs(ctx, how, places))};")
        if (whole := how.rounded(ctx, result)) != result:
            ctx.out(f"{result} = {whole};")


def _lanes(threads: int, rows: int, cols: int) -> tuple[int, int]:
    """The bits, from and up to, of the numbers of lanes that hold different elements."""
    of_row = min(threads or 4, WARP)
    first = 1 if cols > 1 else of_row
    return first, max(first, WARP if rows > 1 else of_row)


def _in_thread(ctx: Context, op: ops.FragmentReduceAll, how: Combining) -> str:
    """Prints what a thread makes of its elements; gives its C++."""
    (rows, cols), threads, x = op.value.shape, row_threads(op.layout), ctx.temporary("x")

    def into(chain: str, at: At) -> None:
        ctx.out(how.into(chain, text(ctx, op.value, at)))

    if cols == 1 or (rows == 1 and not threads):
        ctx.out(f"{how.c_type} {x} = {how.start};")
        loops = Loops.over(ctx, op.value.shape)
        if cols > 1:
            with loops.columns(ctx):
                for low in range(2):
                    into(x, loops.at(low))
        elif threads:
            only = RowLoops.over(ctx, op.value.shape, op.layout)
            with only.rows(ctx):
                into(x, only.at(0))
        else:
            with loops.rows(ctx):
                into(x, At(str(loops.i), Index(), str(loops.h)))
        return x
    ctx.out(f"{how.c_type} {x}[{CHAINS}] = {{{', '.join([how.start] * CHAINS)}}};")
    if threads:
        vectors = RowLoops.over(ctx, op.value.shape, op.layout)
        with vectors.rows(ctx), vectors.columns(ctx):
            for low in range(VECTOR):
                into(f"{x}[{low % CHAINS}]", vectors.at(low))
    else:
        loops = Loops.over(ctx, op.value.shape)
        with loops.rows(ctx), loops.columns(ctx):
            for low in range(2):
                into(f"{x}[{loops.h * 2 + low}]", loops.at(low))
    return how.of_chains(x)
