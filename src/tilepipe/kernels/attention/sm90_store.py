"""Attention on Hopper: the store of its output."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.attention.config import ROWS


def store(
    ctx: tp.Context,
    out: tp.GlobalTensor,
    where: tuple[tp.Value | int, ...],
    value: tp.FragmentValue,
    count: tp.Value | None,
    o_tile: tp.SmemTile | None,
) -> None:
    """Writes the rows of a warpgroup, or the first `count` of them, from `where` on: from
    registers, or through its part of a tile by TMA, which is written again when the last store has
    read it.
    """
    if o_tile is None:
        ctx.store_global(out, where, value, rows=count)
        return
    rows = o_tile.rows(ctx.warpgroup_rank * ROWS, ROWS)
    with ctx.elect_one("warpgroup"):
        ctx.tma_store_wait(0, read=True)
    ctx.sync_warpgroup()
    ctx.store(rows, value)
    ctx.fence_proxy_async()
    ctx.sync_warpgroup()
    with ctx.elect_one("warpgroup"):
        ctx.tma_store(out, where, rows, rows=count)
        ctx.tma_store_commit()
