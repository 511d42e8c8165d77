"""Indices into the register arrays that hold fragments.

Register r of row block i of an (m, n) fragment is row 64 i + 16 w + 8 (r / 2 % 2) + l / 4 and
column 8 (r / 4) + 2 (l % 4) + r % 2 for lane l of warp w of the warpgroup (PTX ISA, "Register
Fragments and Shared Memory Matrix Layouts" of wgmma, matrix D). In layout "tmem" it is row 32 w +
16 i + 8 (r / 2 % 2) + l / 4 (`ROWS`).

Loops go over these r for values of every shape: a fragment (m, 1) has a register for each of the
two rows of a block, a fragment (1, n) the registers of one row, 2 (r / 4) + r % 2. So every index
is a constant once the loops are unrolled.

In layout "rows:T" row block i holds row G i + g of the g-th of G groups of T threads, and its
register r column 8 (T (r / 8) + t) + r % 8 of the t-th thread of the group: `RowLoops` goes over
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilepipe.cuda.codegen.context import Context
from tilepipe.cuda.codegen.indices import Index, term
from tilepipe.cuda.codegen.names import is_packed
from tilepipe.errors import CompileError
from tilepipe.ir.dtypes import DType
from tilepipe.ir.expressions import Shape
from tilepipe.ir.fragment import SPAN, VECTOR, WARP, Fragment, first_row, row_threads


@dataclass(frozen=True, slots=True)
class Rows:
    """The distances in rows from one warp to the next, and from one row block of a warp to the
    next.
    """

    warp: int
    block: int


# by the layout of the fragment
ROWS = {layout: Rows(first_row(layout, 0, 1), first_row(layout, 1, 0)) for layout in SPAN}


def loop_index(ctx: Context, name: str, trips: int) -> Index:
    """The variable of an unrolled loop, or 0 where the loop runs once."""
    return Index() if trips == 1 else Index(0, ((ctx.temporary(name), 1),))


@dataclass(frozen=True, slots=True)
class At:
    """The place of an element in fragment-shaped values.

    Attributes:
        block: C++ index of the row block, which is 16 rows of each warp.
        register: index of the register in the row block.
        half: C++ index of its row in the block, 0 for the upper and 1 for the lower.
    """

    block: str
    register: Index
    half: str


def registers(ctx: Context, f: Fragment) -> str:
    """The identifier of the array of a fragment."""
    if (name := ctx.names.find(f)) is None:
        raise CompileError(f"fragment {f.named} is used in a role that did not create it", f.loc)
    return name


def groups_of(ctx: Context, layout: str) -> int:
    """The groups of T threads in the warp or warpgroup that holds a fragment of layout "rows:T"."""
    assert ctx.role is not None
    return ctx.role.agent_threads // row_threads(layout)


def registers_of(ctx: Context, shape: Shape, packed: bool, layout: str) -> tuple[int, int]:
    """The (row blocks, registers of a block) of the array that holds a fragment of a shape."""
    rows, cols = shape
    if threads := row_threads(layout):
        each = max(cols // threads, 1)
        return max(rows // groups_of(ctx, layout), 1), each // 2 if packed else each
    per_row = cols // (8 if packed else 4)
    return max(rows // 64, 1), 2 if cols == 1 else per_row if rows == 1 else 2 * per_row


def element(
    array: str, dtype: DType, shape: Shape, at: At, layout: str, col: int = 0
) -> tuple[str, str | None]:
    """The (C++ of the register that holds an element, C++ of the half of it that does, or None
    where the register holds one element). Columns count from `col`.
    """
    rows, cols = shape
    if cols == 1:
        return f"{array}[{_block(shape, at)}][{at.half}]", None
    register = _register(at, layout, col)
    if not is_packed(dtype, cols):
        if row_threads(layout):
            return f"{array}[{_block(shape, at)}][{register}]", None
        return (
            f"{array}[0][{register.in_row()}]" if rows == 1 else f"{array}[{at.block}][{register}]",
            None,
        )
    return packed_register(array, shape, at, layout, col), register.remainder(2)


def _block(shape: Shape, at: At) -> str:
    return "0" if shape[0] == 1 else at.block


def _register(at: At, layout: str, col: int) -> Index:
    """The register of an element, in its row block, of a fragment that is read from column `col`
    on.
    """
    return at.register + col // (row_threads(layout) or 2)


def thread_of_row(ctx: Context, layout: str) -> str:
    """The C++ of a thread's number among the T that hold its row."""
    if (threads := row_threads(layout)) == 1:
        return "0"
    lane = ctx.special("lane")
    if threads <= WARP:
        return lane if threads == WARP else f"{lane} % {threads}"
    warp = ctx.special("warp_in_group")
    warps = threads // WARP
    return f"({warp if warps == 4 else f'{warp} % {warps}'}) * {WARP} + {lane}"


def group_of_thread(ctx: Context, layout: str) -> str:
    """The C++ of the number of a thread's group, which is its first row."""
    threads, groups = row_threads(layout), groups_of(ctx, layout)
    if groups == 1:
        return "0"
    assert ctx.role is not None
    within = "0"
    if threads < WARP:
        within = ctx.special("lane") + (f" / {threads}" if threads > 1 else "")
    if not ctx.role.is_warpgroup:
        return within
    warp = ctx.special("warp_in_group")
    if threads > WARP:
        return f"{warp} / {threads // WARP}"
    return warp if threads == WARP else f"{warp} * {WARP // threads} + {within}"


def split(at: At, parts: int) -> tuple[str, At]:
    """Where an element is, in a value whose elements were split in parts (`Bitcast` of
    `ir.expressions`): C++ of (its number among the parts, the place of what was split).
    """
    group, low = at.register.divided(4), at.register.remainder(2)
    if parts == 2:
        part, column = low, _constant(group, "%", 2)
    else:
        number = f"({_constant(group, '%', 4)}) * 2 + {low}"
        part, column = f"({number}) % {parts}", f"({number}) / {parts}"
    eight = _constant(group, "/", parts)
    terms = ((f"({eight})", 4), (f"({at.half})", 2), (f"({column})", 1))
    return part, At(at.block, _index(terms), at.half)


def joined(at: At) -> At:
    """The place of the first of two 16-bit columns that were joined to the 32 bits at a place."""
    eight, column = at.register.divided(4), at.register.remainder(2)
    terms = ((f"({eight})", 8), (f"({column})", 4), (f"({at.half})", 2))
    return At(at.block, _index(terms), at.half)


def split_pair(pair: Index, block: str) -> At:
    """The place of the 32 bits that were split into elements 2 pair and 2 pair + 1 of 16 bits."""
    group, half = pair.divided(2), pair.remainder(2)
    eight, column = _constant(group, "/", 2), _constant(group, "%", 2)
    return At(block, _index(((f"({eight})", 4), (f"({half})", 2), (f"({column})", 1))), half)


def _constant(code: str, sign: str, n: int) -> str:
    """`code / n` or `code % n`, computed where the code is a number."""
    if code.isdigit():
        return str(int(code) // n if sign == "/" else int(code) % n)
    return f"({code}) {sign} {n}"


def _index(terms: tuple[tuple[str, int], ...]) -> Index:
    """A sum of terms, of which those that are numbers are added up."""
    bare = [(code[1:-1], factor) for code, factor in terms]
    offset = sum(int(code) * factor for code, factor in bare if code.isdigit())
    return Index(
        offset, tuple(t for t, (code, _) in zip(terms, bare, strict=True) if not code.isdigit())
    )


def row_number(ctx: Context, layout: str, at: At) -> str:
    """The C++ of the row of an element."""
    if row_threads(layout):
        group = term(group_of_thread(ctx, layout))
        return str(group + term(at.block, groups_of(ctx, layout)))
    rows = ROWS[layout]
    upper = term(ctx.special("warp_in_group"), rows.warp) + term(f"{ctx.special('lane')} / 4")
    return str(upper + term(at.block, rows.block) + term(at.half, 8))


def column_number(ctx: Context, layout: str, at: At) -> str:
    """The C++ of the column of an element."""
    if threads := row_threads(layout):
        vector, low = at.register.divided(VECTOR), at.register.remainder(VECTOR)
        first = term(thread_of_row(ctx, layout), VECTOR)
        return str(first + term(vector, VECTOR * threads) + term(low))
    first = term(f"{ctx.special('lane')} % 4", 2)
    return str(first + term(at.register.divided(4), 8) + term(at.register.remainder(2)))


def packed_register(array: str, shape: Shape, at: At, layout: str, col: int = 0) -> str:
    """The C++ of the register that holds a pair of 16-bit columns."""
    register = _register(at, layout, col)
    if row_threads(layout):
        return f"{array}[{_block(shape, at)}][{register.divided(2)}]"
    return (
        f"{array}[0][{register.divided(4)}]"
        if shape[0] == 1
        else f"{array}[{at.block}][{register.divided(2)}]"
    )


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops over a thread's part of a fragment-shaped value: row blocks, upper and lower rows,
    pairs of columns.

    Attributes:
        blocks, halves, pairs: the trips of each loop.
        i, h, j: the loop variables, 0 where a loop runs once.
    """

    blocks: int
    halves: int
    pairs: int
    i: Index
    h: Index
    j: Index

    @classmethod
    def over(cls, ctx: Context, shape: Shape) -> Loops:
        """The loops over a value of a shape."""
        blocks, halves, pairs = (
            max(shape[0] // 64, 1),
            1 if shape[0] == 1 else 2,
            max(shape[1] // 8, 1),
        )
        return cls(
            blocks,
            halves,
            pairs,
            loop_index(ctx, "i", blocks),
            loop_index(ctx, "h", halves),
            loop_index(ctx, "j", pairs),
        )

    @property
    def pair(self) -> Index:
        """The index of the pair of columns: half that of its first register."""
        return self.j * 2 + self.h

    def at(self, low: int = 0) -> At:
        """The element in the first (`low` = 0) or second (1) column of the pair."""
        return At(str(self.i), self.j * 4 + self.h * 2 + low, str(self.h))

    @contextmanager
    def rows(self, ctx: Context) -> Iterator[None]:
        """Prints the loops over rows around a body."""
        with ctx.out.loop(str(self.i), self.blocks), ctx.out.loop(str(self.h), self.halves):
            yield

    @contextmanager
    def columns(self, ctx: Context) -> Iterator[None]:
        """Prints the loop over pairs of columns around a body."""
        with ctx.out.loop(str(self.j), self.pairs):
            yield


@dataclass(frozen=True, slots=True)
class RowLoops:
    """The loops over a thread's part of a value of layout "rows:T": its rows, and the vectors of
    each.

    Attributes:
        blocks, vectors: the trips of each loop.
        width: columns of a vector; 1 for a value of one column.
        i, v: the loop variables, 0 where a loop runs once.
    """

    blocks: int
    vectors: int
    width: int
    i: Index
    v: Index

    @classmethod
    def over(cls, ctx: Context, shape: Shape, layout: str) -> RowLoops:
        """The loops over a value of a shape."""
        blocks, each = registers_of(ctx, shape, False, layout)
        vectors = max(each // VECTOR, 1)
        width = min(each, VECTOR)
        return cls(
            blocks, vectors, width, loop_index(ctx, "i", blocks), loop_index(ctx, "v", vectors)
        )

    def at(self, low: int | Index = 0) -> At:
        """The element in column `low` of the vector."""
        return At(str(self.i), self.v * VECTOR + low, "0")

    @contextmanager
    def rows(self, ctx: Context) -> Iterator[None]:
        """Prints the loop over rows around a body."""
        with ctx.out.loop(str(self.i), self.blocks):
            yield

    @contextmanager
    def columns(self, ctx: Context) -> Iterator[None]:
        """Prints the loop over vectors around a body."""
        with ctx.out.loop(str(self.v), self.vectors):
            yield
