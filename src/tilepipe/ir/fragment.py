"""Fragments, matrices in the registers of a warpgroup, and the rows that each warp holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tilepipe.ir.dtypes import DType
from tilepipe.ir.location import Loc

BLOCK = 16  # rows of a warp that its registers hold together: 8 h + lane // 4
SPAN = {"wgmma": 64, "tmem": 128}  # layout -> rows of which warp w holds the w-th quarter


@dataclass(eq=False, slots=True)
class Fragment:
    """A matrix in the registers of one warpgroup, laid out as a wgmma accumulator (PTX ISA,
    "Register fragments for wgmma").

    `rows` is a multiple of 64, `cols` of 8. Row 64 i + 16 w + 8 h + l // 4 of warp w holds, in lane
    l, columns 8 j + 2 (l % 4) + {0, 1}. With a 16-bit dtype, pairs are packed in one register: the
    layout of wgmma's A operand.

    `layout` "tmem", of 128 rows: row 32 w + 16 i + 8 h + l // 4 instead, so that each warp holds 32
    consecutive rows: the lanes of tensor memory that tcgen05.ld gives it (PTX ISA, "Access
    restrictions" of tcgen05.ld, shapes .16x256b and .16x128b).

    `cols` is 1 for one value a row, held by the four lanes that share the row. `rows` is 1 for one
    value a column: lane l of every warp holds columns 8 j + 2 (l % 4) + {0, 1}, so the eight lanes
    of a column in each warp hold copies.
    """

    name: str
    dtype: DType
    rows: int
    cols: int
    loc: Loc | None = None
    layout: str = "wgmma"


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
