"""What attention on Hopper loads and stores: tiles of queries, keys and values, and results."""

from __future__ import annotations

import tilepipe as tp
from tilepipe.kernels.attention.config import ROWS
from tilepipe.kernels.attention.sm90_shared import Place, Shared


def load_queries(shared: Shared, q: tp.GlobalTensor, at: Place, mbar: tp.MbarPtr) -> None:
    """The queries of a tile; after the last of a packed sequence come those of the next."""
    shared.ctx.tma_load(q, (*at.of_query(at.first), 0), shared.q_tile, mbar)


def load_keys(
    shared: Shared,
    k: tp.GlobalTensor,
    at: Place,
    kv_head: tp.Value,
    key: tp.Value,
    part: int,
    to: tp.TMADestination,
) -> None:
    """A part along d of a tile of keys. Scores of those after the last are taken out later."""
    coords = (*at.of_key(kv_head, key), part * shared.shape.BK0)
    shared.ctx.tma_load(k, coords, to.smem, to.mbar)


def load_values(
    shared: Shared,
    v: tp.GlobalTensor,
    at: Place,
    kv_head: tp.Value,
    key: tp.Value,
    to: tp.TMADestination,
) -> None:
    """The values of a tile of keys, and zeros after the last: 0, the weight there, times the NaN of
    another sequence would be NaN.
    """
    *outer, column = at.of_key(kv_head, key)
    lines = None if at.k_start is None else at.keys - key
    shared.ctx.tma_load(v, (*outer, 0, column), to.smem, to.mbar, lines=lines)


def store(
    shared: Shared, out: tp.GlobalTensor, at: Place, row: tp.Value, value: tp.FragmentValue
) -> None:
    """Writes the rows of a warpgroup: from registers, or through its part of a tile by TMA, which
    is written again when the last store has read it.
    """
    ctx, o_tile = shared.ctx, shared.o_tile
    where, count = (*at.of_query(row), 0), at.rows_from(row)
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
