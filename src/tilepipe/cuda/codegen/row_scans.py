"""Sums of each row up to each of its columns.

The threads of a row hold vectors of neighbouring columns in turn. Of each round of vectors, a
thread adds up its own, the lanes scan these sums, and a thread adds what lies before: the sum of
all rounds before, and of the lanes before it. Only the addition to the former waits for another
round, so the shuffles of several rounds are in flight together.
"""

from __future__ import annotations

from tilepipe.cuda.codegen.combining import Combining
from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.cuda.codegen.expressions import text
from tilepipe.cuda.codegen.fragments import require_same_layout
from tilepipe.cuda.codegen.names import is_packed, small_float
from tilepipe.cuda.codegen.registers import (
    Loops,
    RowLoops,
    element,
    packed_register,
    registers,
)
from tilepipe.ir import ops
from tilepipe.ir.fragment import VECTOR, WARP, row_threads


@emit.register
def _(op: ops.FragmentScan, ctx: Context) -> None:
    # PTX ISA, shfl.sync
    require_same_layout(ctx, op.dst, op.value, op)
    how = Combining.of("add", op.value.dtype, op.loc)
    threads = row_threads(op.dst.layout)
    loops: Loops | RowLoops
    if threads:
        loops, lanes, width = RowLoops.over(ctx, op.value.shape, op.dst.layout), threads, VECTOR
    else:
        loops, lanes, width = Loops.over(ctx, op.value.shape), 4, 2
    total, mine, upto, before = (
        ctx.temporary(name) for name in ("total", "mine", "upto", "before")
    )
    kind = how.c_type
    with ctx.out.block(), loops.rows(ctx):
        ctx.out(f"{kind} {total} = {how.start};")
        with loops.columns(ctx), ctx.out.block():
            ctx.out(f"{kind} {mine}[{width}];")
            for low in range(width):
                part = text(ctx, op.value, loops.at(low))
                ctx.out(f"{mine}[{low}] = {f'{mine}[{low - 1}] + ' if low else ''}{part};")
            last = f"{mine}[{width - 1}]"
            if lanes == 1:
                ctx.out(f"const {kind} {before} = {total};")
                ctx.out(f"{total} += {last};")
            else:
                step, shift = ctx.use(f"scan_step_{kind}"), ctx.use(f"lane_before_{kind}")
                bounds = f"{(WARP - lanes) << 8:#x}"  # PTX ISA, shfl.sync: operand c
                ctx.out(f"{kind} {upto} = {last};")
                for distance in (1 << i for i in range(lanes.bit_length() - 1)):
                    ctx.out(f"{upto} = {step}({upto}, {distance}, {bounds});")
                ctx.out(f"const {kind} {before} = {total} + {shift}({upto}, {bounds});")
                ctx.out(f"{total} += __shfl_sync(0xffffffff, {upto}, {lanes - 1}, {lanes});")
            _write(ctx, op, how, loops, [f"{before} + {mine}[{low}]" for low in range(width)])


def _write(
    ctx: Context, op: ops.FragmentScan, how: Combining, loops: Loops | RowLoops, sums: list[str]
) -> None:
    """Gives neighbouring columns of the result their values."""
    f = op.dst
    name, shape = registers(ctx, f), (f.rows, f.cols)
    if not is_packed(f.dtype, f.cols):
        for low, code in enumerate(sums):
            register, _ = element(name, f.dtype, shape, loops.at(low), f.layout)
            ctx.out(f"{register} = {how.rounded(ctx, code)};")
        return
    pack = ctx.use(f"pack_{small_float(f.dtype)}")
    for low in range(0, len(sums), 2):
        register = packed_register(name, shape, loops.at(low), f.layout, 0)
        ctx.out(f"{register} = {pack}({sums[low]}, {sums[low + 1]});")
