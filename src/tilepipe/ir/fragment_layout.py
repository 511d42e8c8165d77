"""The rows of a fragment that each warp of its warpgroup holds (`ir.fragment.Fragment` describes the
lanes).
"""

from __future__ import annotations

from functools import cache

BLOCK = 16  # rows of a warp that its registers hold together: 8 h + lane // 4
SPAN = {"wgmma": 64, "tmem": 128}  # layout -> rows of which warp w holds the w-th quarter


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
