"""Fragments, matrices in the registers of a warpgroup or a warp, and what each warp holds of
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tilepipe.ir.dtypes import DType
from tilepipe.ir.location import Loc

WARP = 32  # threads
BLOCK = 16  # rows of a warp that its registers hold together: 8 h + lane // 4
FOURS = "fours"  # the layout of an operand A of 8 bits
# Of each 16 columns, those of layout "wgmma" that a thread holds, in order: its 4 t + {0..3} of
# layout "fours" are what it holds as 2 t, 2 t + 1, 8 + 2 t, 9 + 2 t.
FOURS_ORDER = tuple(8 * j + 2 * t + i for t in range(4) for j in range(2) for i in range(2))
# layout -> rows of which warp w holds the w-th quarter
SPAN = {"wgmma": 64, "tmem": 128, FOURS: 64}
VECTOR = (
    8  # consecutive columns that a thread holds in layout "rows:T": 16 bytes of 16-bit elements
)


@dataclass(eq=False, slots=True)
class Fragment:
    """A matrix in the registers of one warpgroup, laid out as a wgmma accumulator (PTX ISA,
    "Register fragments for wgmma"); of one warp too with layout "rows:T".

    `rows` is a multiple of 64, `cols` of 8. Row 64 i + 16 w + 8 h + l // 4 of warp w holds, in lane
    l, columns 8 j + 2 (l % 4) + {0, 1}. With a 16-bit dtype, pairs are packed in one register: the
    layout of wgmma's A operand.

    `layout` "tmem", of 128 rows: row 32 w + 16 i + 8 h + l // 4 instead, so that each warp holds 32
    consecutive rows: the lanes of tensor memory that tcgen05.ld gives it (PTX ISA, "Access
    restrictions" of tcgen05.ld, shapes .16x256b and .16x128b).

    `layout` "fours", of 8-bit floats: the rows of "wgmma", but of each 16 columns lane l has the
    neighbours 4 (l % 4) + {0..3}, packed in one register: the layout of wgmma's operand A of 8
    bits. `cols` is a multiple of 16. `ops.FragmentPack` and `ops.FragmentLoad` write
    it, and only wgmma reads it.

    `cols` is 1 for one value a row, held by the four lanes that share the row. `rows` is 1 for one
    value a column: lane l of every warp holds columns 8 j + 2 (l % 4) + {0, 1}, so the eight lanes
    of a column in each warp hold copies.

    `layout` "rows:T", for memory-bound work: T consecutive threads share a row, T a power of
    two up to the threads of the warpgroup or warp. Of these, the g-th group of T threads holds rows
    G i + g, where G is the number of groups; the t-th thread of a group holds columns 8 (T j + t) +
    {0..7}, so that a warp reads and writes consecutive vectors. `rows` is a multiple of G, `cols`
    of 8 T. The threads of a row all hold the value of a fragment (m, 1); every group holds all of a
    fragment (1, n).
    """

    name: str
    dtype: DType
    rows: int
    cols: int
    loc: Loc | None = None
    layout: str = "wgmma"
    variable: str = ""  # of the user's function, where it is known

    @property
    def named(self) -> str:
        """The fragment in messages: its variable, else its name in the program, and where it was
        made.
        """
        made = f" (made at {self.loc.short})" if self.loc is not None else ""
        return f"'{self.variable or self.name}'{made}"


def first_row(layout: str, block: int, warp: int) -> int:
    """The first row of block `block` of warp `warp`, 0..3."""
    span = SPAN[layout]
    each = span // 4 // BLOCK  # blocks of a warp in one span
    return block // each * span + warp * (span // 4) + block % each * BLOCK


@cache
def warp_parts(layout: str, warp: int, start: int, stop: int) -> tuple[tuple[int, int], ...]:
    """The rows that a warp holds of a fragment with rows `start` to `stop`, as (first, one past the
    last) of each consecutive range.
    """
    span = SPAN[layout]
    return tuple((row, row + span // 4) for row in range(start + warp * (span // 4), stop, span))


@cache
def row_threads(layout: str) -> int:
    """T of layout "rows:T"; 0 for the other layouts."""
    kind, _, threads = layout.partition(":")
    return int(threads) if kind == "rows" and threads.isdecimal() else 0


@cache
def warps_apart(layout: str, warps: int, rows: int, cols: int) -> range:
    """Of `warps` that hold a value, those that hold different elements: the first of each that hold
    the same. Of one row in layout "rows:T", among the warps of one group of T threads.
    """
    threads = row_threads(layout)
    if not threads:
        return range(warps if rows > 1 else 1)
    of_row = max(threads // WARP, 1)
    if rows == 1:
        return range(of_row if cols > 1 else 1)
    return range(0, warps, 1 if cols > 1 else of_row)


@cache
def warp_boxes(
    layout: str, warps: int, warp: int, rows: int, cols: int
) -> tuple[tuple[int, int, int, int], ...]:
    """What warp `warp` of `warps` holds of a fragment of layout "rows:T", as (first row, one past
    the last, first column, one past the last) of each rectangle.
    """
    threads = row_threads(layout)
    if threads <= WARP:
        each = WARP // threads  # rows of a warp beside each other
        if rows == 1:
            return ((0, 1, 0, cols),)
        return tuple((r, r + each, 0, cols) for r in range(warp * each, rows, warps * each))
    width = threads // WARP  # warps that share a row
    first, step = (0, 1) if rows == 1 else (warp // width, warps // width)
    if cols == 1:
        return tuple((r, r + 1, 0, 1) for r in range(first, rows, step))
    chunk = VECTOR * WARP
    return tuple(
        (r, r + 1, c, c + chunk)
        for r in range(first, rows, step)
        for c in range(warp % width * chunk, cols, VECTOR * threads)
    )
