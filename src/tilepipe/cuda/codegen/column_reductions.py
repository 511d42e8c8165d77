"""Reductions of columns: in each thread over its rows, by shuffles among the lanes of a warp that
share a column, and through shared memory among the warps that hold other rows.

Lanes that share columns halve them in each step of a butterfly: with the other lane of the step,
each takes what both have of half of the columns. So n columns of a lane take fewer than n shuffles
instead of n for each step, and lanes write different columns to shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.cuda.codegen.combining import Combining
from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.cuda.codegen.expressions import text
from tilepipe.cuda.codegen.fragments import assign, declare_array, layout_of
from tilepipe.cuda.codegen.partials import partial_words
from tilepipe.cuda.codegen.registers import (
    Loops,
    RowLoops,
    loop_index,
    registers,
    registers_of,
    thread_of_row,
)
from tilepipe.errors import CompileError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.expressions import FragmentRead
from tilepipe.ir.fragment import VECTOR, WARP, Fragment, row_threads, warps_apart

_PAIR = 2  # columns of a lane among eight of an accumulator


@dataclass(frozen=True, slots=True)
class Columns:
    """The results of a reduction in the registers of a thread.

    Attributes:
        array: C++ of the array of registers.
        count: registers of a thread.
        first: the lowest bit of the numbers of lanes that share its columns; the others are above.
        run, stride, start: registers of consecutive columns, the distance from one run of columns
            to the next, and C++ of the first column.
    """

    array: str
    count: int
    first: int
    run: int
    stride: int
    start: str

    @classmethod
    def of(cls, ctx: Context, op: ops.FragmentReduceColumns, array: str) -> Columns:
        """The columns of a value of the layout of the op."""
        threads = row_threads(op.layout)
        count = registers_of(ctx, (1, op.dst.cols), False, op.dst.layout)[1]
        if threads:
            start = f"{VECTOR} * ({thread_of_row(ctx, op.layout)})"
            return cls(array, count, min(threads, WARP), VECTOR, VECTOR * threads, start)
        return cls(array, count, 4, _PAIR, 8, f"{_PAIR} * ({ctx.special('lane')} % 4)")

    def column(self, register: str) -> str:
        """The C++ of the column of a register."""
        run, low = f"({register}) / {self.run}", f"({register}) % {self.run}"
        return f"{self.start} + {self.stride} * ({run}) + {low}"


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
        held = Columns.of(ctx, op, f"{total.name}[0]")
        _in_thread(ctx, op, how, held.array)
        if apart > 1:
            _among_warps(ctx, op, how, held, warps // apart, apart)
        elif held.first < WARP:
            index = str(loop_index(ctx, "k", held.count))
            with ctx.out.loop(index, held.count):
                place = f"{held.array}[{index}]"
                ctx.out(f"{place} = {how.lanes(ctx, place, held.first, WARP)};")
        whole = FragmentRead(wide, shape=(1, cols), fragment=total)
        assign(ctx, op.dst, registers(ctx, op.dst), whole, 0, cols)


def _in_thread(ctx: Context, op: ops.FragmentReduceColumns, how: Combining, array: str) -> None:
    """Prints what a thread makes of its rows of each column."""
    loops: Loops | RowLoops
    if row_threads(op.layout):
        loops = RowLoops.over(ctx, op.value.shape, op.layout)
        places = [loops.v * VECTOR + low for low in range(VECTOR)]
    else:
        loops = Loops.over(ctx, op.value.shape)
        places = [loops.j * _PAIR + low for low in range(_PAIR)]
    with loops.columns(ctx):
        for place in places:
            ctx.out(f"{array}[{place}] = {how.start};")
    with loops.rows(ctx), loops.columns(ctx):
        for low, place in enumerate(places):
            ctx.out(how.into(f"{array}[{place}]", text(ctx, op.value, loops.at(low))))


def _among_warps(
    ctx: Context,
    op: ops.FragmentReduceColumns,
    how: Combining,
    held: Columns,
    each: int,
    apart: int,
) -> None:
    """Prints how lanes, and then `apart` warps, or groups of `each` warps that share rows, join
    what they have of each column. Memory holds a line of all columns for each group of warps.
    """
    line = 4 * op.dst.cols
    warp = ctx.special("warp_in_group")
    mine = f"{line} * ({warp if each == 1 else f'{warp} / {each}'})"
    pair = "float2" if how.c_type == "float" else "u32x2"
    offset, count, writers = _halved(ctx, how, held)
    with partial_words(ctx, op.partials, op.loc) as words:
        with ctx.out.block(writers):
            first = ctx.temporary("first")
            ctx.out(f"const u32 {first} = {offset};")
            together = 2 if count % 2 == 0 else 1
            index = str(loop_index(ctx, "k", count // together))
            with ctx.out.loop(index, count // together):
                at = index if together == 1 else f"2 * {index}"
                place = f"{mine} + 4 * ({held.column(f'{first} + {at}')})"
                if together == 1:
                    words.store(ctx, place, how, f"{held.array}[{at}]")
                else:
                    values = f"{held.array}[{at}], {held.array}[{at} + 1]"
                    ctx.out(f"{ctx.use(f'store_{pair}')}({words.base} + {place}, {values});")
        ctx.out(words.sync)
        index = str(loop_index(ctx, "k", held.count // 2))
        with ctx.out.loop(index, held.count // 2):
            at = f"2 * {index}"
            place = f"4 * ({held.column(at)})"
            parts = words.load_pairs(ctx, how, [f"{line * w} + {place}" for w in range(apart)])
            for low in range(2):
                ctx.out(f"{held.array}[{at} + {low}] = {how.tree(parts[low::2])};")


def _halved(ctx: Context, how: Combining, held: Columns) -> tuple[str, int, str]:
    """Prints the steps among lanes; gives the C++ of the first register whose column a lane then
    has in the first register, how many it has, and the condition of lanes that no other repeats.
    """
    lane, count = ctx.special("lane"), held.count
    offset, repeated, bit = ["0"], 0, held.first
    while bit < WARP:
        halves = count % 2 == 0
        count = count // 2 if halves else count
        index = str(loop_index(ctx, "k", count))
        with ctx.out.loop(index, count):
            place = f"{held.array}[{index}]"
            if halves:
                other = f"{held.array}[{index} + {count}]"
                joined = f"{ctx.use(f'{how.op}_halves')}({place}, {other}, {lane}, {bit})"
            else:
                joined = how.lanes(ctx, place, bit, 2 * bit)
            ctx.out(f"{place} = {joined};")
        if halves:
            offset.append(f"({lane} / {bit} % 2) * {count}")
        else:
            repeated |= bit
        bit *= 2
    return " + ".join(offset), count, f"if (({lane} & {repeated}) == 0)" if repeated else ""
