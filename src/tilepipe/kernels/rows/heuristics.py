"""Which configuration of a kernel of rows for which rows.

Measured on an H200: what counts is that a CTA has its loads in flight at once and that many CTAs
share an SM. A row longer than the registers of a warpgroup hold well is shared by warpgroups, then
by the CTAs of a cluster.
"""

from __future__ import annotations

from tilepipe.kernels.rows.config import VECTOR, WARPGROUP, RowConfig

WARP = 32  # threads
MOST_PARTS = 4  # warpgroups of a CTA that share a row: their threads have 128 registers each


def _shared(halves: int, most: int) -> RowConfig:
    """A row for as many members as leave each of their threads `most` elements of 16 bits."""
    members = 1
    while members * most * WARPGROUP < halves:
        members *= 2
    parts = min(members, MOST_PARTS)
    return RowConfig(warpgroups=max(parts, 4), parts=parts, cluster=members // parts)


def _narrow(halves: int) -> RowConfig:
    """A row of two vectors a thread, or fewer, for a part of a warp."""
    threads = 1
    while 2 * VECTOR * threads < halves:
        threads *= 2
    return RowConfig(threads=threads, warpgroups=1)


def forward(columns: int, nbytes: int) -> RowConfig:
    """The configuration for rows of so many columns; `nbytes`: of the widest element that stands in
    registers.
    """
    halves = columns * max(nbytes, 2) // 2
    if halves <= 2 * VECTOR * WARP:
        return _narrow(halves)
    if halves <= 1024:
        return RowConfig(threads=64, warpgroups=1)
    return _shared(halves, 64)


def backward(columns: int, nbytes: int) -> RowConfig:
    """The configuration of a backward pass, whose threads hold two rows, and sums of columns."""
    halves = columns * max(nbytes, 2) // 2
    if halves <= 2 * VECTOR * WARP:
        return _narrow(halves).changed(warpgroups=4, ctas=2)
    if halves <= 1024:
        return RowConfig(threads=64, warpgroups=4, ctas=2)
    return _shared(halves, 32)
