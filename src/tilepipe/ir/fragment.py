"""Fragments: matrices in the registers of a warpgroup. Operands of ops, and read by expressions."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.ir.dtypes import DType
from tilepipe.ir.location import Loc


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
