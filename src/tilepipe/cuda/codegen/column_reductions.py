"""Reductions of columns: in each thread over its rows, by shuffles among the lanes of a warp that
share a column, and through shared memory among the warps that hold other rows.

Lanes that share columns halve them in each step of a butterfly: with the other lane of the step,
each takes what both have of half of the columns. So n columns of a lane take fewer than n shuffles
instead of n for each step, and lanes write different columns to shared memory, in an order without
bank conflicts.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.cuda.codegen.combining import Combining
from tilepipe.cuda.codegen.context import Context, emit
from tilepipe.cuda.codegen.expressions import text
from tilepipe.cuda.codegen.fragments import assign, declare_array, layout_of
from tilepipe.cuda.codegen.indices import Index, term
from tilepipe.cuda.codegen.partials import PartialWords, partial_words
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
_QUAD = 4  # lanes that have a row of an accumulator
_PAIR_BYTES = 8  # of two words, which are loaded together


@dataclass(frozen=True, slots=True)
class Columns:
    """The results of a reduction in the registers of a thread.

    Attributes:
        array: C++ of the array of registers.
        count: registers of a thread.
        threads: threads with different columns, among which those of a row are divided.
        thread: C++ of a thread's number among these.
    """

    array: str
    count: int
    threads: int
    thread: str

    @classmethod
    def of(cls, ctx: Context, op: ops.FragmentReduceColumns, array: str) -> Columns:
        """The columns of a value of the layout of the op."""
        count = registers_of(ctx, (1, op.dst.cols), False, op.dst.layout)[1]
        if threads := row_threads(op.layout):
            return cls(array, count, threads, thread_of_row(ctx, op.layout))
        return cls(array, count, _QUAD, f"{ctx.special('lane')} % {_QUAD}")

    @property
    def first(self) -> int:
        """The lowest bit of the numbers of lanes that share columns; the others are above."""
        return min(self.threads, WARP)

    def place(self, pair: Index) -> Index:
        """The bytes from the beginning of a line to a pair of columns of this thread. The pairs of
        one number of all threads are beside each other, so that lanes reach different banks.
        """
        return pair * (_PAIR_BYTES * self.threads) + term(self.thread, _PAIR_BYTES)


@dataclass(frozen=True, slots=True)
class Halves:
    """What a lane has after the steps among the lanes that share its columns.

    Attributes:
        count: columns of a lane, in its registers from 0 on.
        parts: lanes that have different ones: part p those of registers p · `count` and so on.
        writers: the condition of lanes that no other repeats; "" for all.
    """

    count: int
    parts: int
    writers: str

    def part(self, code: str, unit: int = 1) -> Index:
        """Which part the lane has whose number among those with different ones is `code` / `unit`:
        its lowest bit chooses between the halves of all columns.
        """
        found = Index()
        for n in range(self.parts.bit_length() - 1):
            bit = unit << n
            found += term(f"{code}{f' / {bit}' if bit > 1 else ''} % 2", self.parts >> n + 1)
        return found


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
    mine = term(warp if each == 1 else f"{warp} / {each}", line)
    halves = _halved(ctx, how, held)
    with partial_words(ctx, op.partials, op.loc) as words:
        with ctx.out.block(halves.writers):
            if halves.count % 2 == 0:
                _store_pairs(ctx, how, held, halves, words, mine)
            else:
                _store_words(ctx, how, held, halves, words, mine)
        ctx.out(words.sync)
        # lanes have written pairs of one number together; of an odd number of columns, singly
        lanes = halves.parts if halves.count % 2 == 0 else 1
        pairs = held.count // 2 // lanes
        of, pair = loop_index(ctx, "p", lanes), loop_index(ctx, "k", pairs)
        with ctx.out.loop(str(of), lanes), ctx.out.loop(str(pair), pairs):
            place = held.place(pair * lanes + of)
            got = words.load_pairs(ctx, how, [place + line * w for w in range(apart)])
            first = pair * 2 if lanes == 1 else halves.part(str(of)) * (2 * pairs) + pair * 2
            for low in range(2):
                ctx.out(f"{held.array}[{first + low}] = {how.tree(got[low::2])};")


def _store_pairs(
    ctx: Context, how: Combining, held: Columns, halves: Halves, words: PartialWords, mine: Index
) -> None:
    """Prints the stores of an even number of columns, two at once, into the line `mine`. Lane after
    lane of the warp writes 8 bytes.
    """
    first, pairs = ctx.temporary("first"), halves.count // 2
    thread = ctx.special("lane") if held.threads <= WARP else held.thread
    ctx.out(f"const u32 {first} = {mine + term(thread, _PAIR_BYTES)};")
    pair = loop_index(ctx, "k", pairs)
    with ctx.out.loop(str(pair), pairs):
        values = (f"{held.array}[{pair * 2 + low}]" for low in range(2))
        place = term(first) + pair * (_PAIR_BYTES * held.threads * halves.parts)
        words.store(ctx, place, how, *values)


def _store_words(
    ctx: Context, how: Combining, held: Columns, halves: Halves, words: PartialWords, mine: Index
) -> None:
    """Prints the stores of an odd number of columns, one by one, into the line `mine`. Where n is
    odd, n · p differs for all p modulo a power of two, and so does the bank of part p.
    """
    first, column = ctx.temporary("first"), loop_index(ctx, "k", halves.count)
    part = halves.part(ctx.special("lane"), held.first)
    ctx.out(f"const u32 {first} = {part * halves.count};")
    with ctx.out.loop(str(column), halves.count):
        register = term(first) + column
        pair, low = term(register.divided(2)), term(register.remainder(2), 4)
        words.store(ctx, mine + held.place(pair) + low, how, f"{held.array}[{column}]")


def _halved(ctx: Context, how: Combining, held: Columns) -> Halves:
    """Prints the steps among lanes."""
    lane, count = ctx.special("lane"), held.count
    parts, repeated, bit = 1, 0, held.first
    while bit < WARP:
        halves = count % 2 == 0
        count = count // 2 if halves else count
        index = str(loop_index(ctx, "k", count))
        with ctx.out.loop(index, count):
            place = f"{held.array}[{index}]"
            if halves:
                other = f"{held.array}[{term(index) + count}]"
                joined = f"{ctx.use(f'{how.op}_halves')}({place}, {other}, {lane}, {bit})"
            else:
                joined = how.lanes(ctx, place, bit, 2 * bit)
            ctx.out(f"{place} = {joined};")
        if halves:
            parts *= 2
        else:
            repeated |= bit
        bit *= 2
    writers = f"if (({lane} & {repeated}) == 0)" if repeated else ""
    return Halves(count, parts, writers)
