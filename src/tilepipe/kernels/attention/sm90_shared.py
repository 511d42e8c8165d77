"""Attention on Hopper: the tiles of queries, which keys each of them sees, and what the roles of a
CTA share.
"""

from __future__ import annotations

from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.attention.config import ROWS, AttentionConfig


def grid(q: tp.TensorMap, cfg: AttentionConfig, chip: tp.Chip) -> int:
    """A CTA for each tile of queries, or as many as the chip has SMs."""
    batch, heads, s_q, _ = q.shape
    tiles = batch * heads * -(-s_q // cfg.bm)
    return int(tiles if cfg.schedule == "single" else min(tiles, chip.sms))


@dataclass(frozen=True, eq=False)
class Place:
    """A tile of queries.

    Attributes:
        batch, head, first: its batch, its head and its first query.
        place: that query's place among the keys (`Window`).
        end: the tile of keys after the last one that a query sees. blocks: how many they see.
    """

    batch: tp.Value
    head: tp.Value
    first: tp.Value
    place: tp.Value
    end: tp.Value
    blocks: tp.Value


@dataclass(frozen=True, eq=False)
class Shared:
    """What the roles share, made in set-up code.

    Attributes:
        sides: whether queries see only some keys on the left, and on the right; left, right: how
            many.
        shape: extents of the tiles. heads, s_q, s_kv: of the problem. q_blocks: tiles of queries.
        queries: the ring of one tile of queries, `q_tile`. keys, values: the rings of K and V.
        o_tile: of the output, where it is stored through shared memory.
        turns: of the warpgroups that issue their MMAs one after the other.
    """

    ctx: tp.Context
    cfg: AttentionConfig
    sides: tuple[bool, bool]
    left: tp.Value
    right: tp.Value
    shape: tp.FA4Config
    heads: tp.Value
    s_q: tp.Value
    s_kv: tp.Value
    q_blocks: tp.Value
    queries: tp.ProducerConsumerPipeline
    q_tile: tp.SmemTile
    o_tile: tp.SmemTile | None
    keys: tp.StagedPipeline
    k_tiles: tp.SmemTileArray
    values: tp.StagedPipeline
    v_tiles: tp.SmemTileArray
    work: tp.StaticScheduler
    turns: tp.OrderedBarrier | None

    @classmethod
    def allocate(
        cls,
        ctx: tp.Context,
        q: tp.GlobalTensor,
        k: tp.GlobalTensor,
        v: tp.GlobalTensor,
        left: tp.Value,
        right: tp.Value,
        *,
        cfg: AttentionConfig,
        d: int,
        d_v: int,
        sides: tuple[bool, bool],
    ) -> Shared:
        """Allocates shared memory and barriers; arguments as of the kernel."""
        shape = cfg.tiles(q.dtype, d, d_v)
        heads, s_q, s_kv = q.shape[1], q.shape[2], k.shape[2]
        depth = shape.BK0
        queries = tp.ProducerConsumerPipeline.allocate(ctx, 1, name="queries")

        def rows(name: str, width: int) -> tp.SmemTile:
            return tp.SMemTileArray2D(ctx, q.dtype, cfg.bm, width, 1, name=name)[0]

        q_tile = rows("q_tile", shape.padded_qk_depth)
        o_tile = rows("o_tile", shape.padded_ov_depth) if cfg.store == "tile" else None
        keys = tp.StagedPipeline.allocate(ctx, cfg.stages, cfg.qk_stages, name="keys")
        k_tiles = tp.tile_layout_k_major(k.dtype, cfg.bn, depth).allocate(
            ctx, cfg.stages * cfg.qk_stages, "k_tiles"
        )
        values = tp.StagedPipeline.allocate(ctx, cfg.stages, name="values")
        v_tiles = tp.tile_layout_mn_major(v.dtype, shape.padded_ov_depth, cfg.bn).allocate(
            ctx, cfg.stages, "v_tiles"
        )
        q_blocks = ctx.ceil_div(s_q, cfg.bm)
        work = tp.StaticScheduler(
            ctx, tiles=(q.shape[0] * heads, q_blocks), raster="grouped", group=cfg.group
        )
        in_turns = cfg.order == "turns" and cfg.consumers > 1
        turns = tp.OrderedBarrier(ctx, cfg.consumers) if in_turns else None
        return cls(
            ctx, cfg, sides, left, right, shape, heads, s_q, s_kv, q_blocks, queries, q_tile,
            o_tile, keys, k_tiles, values, v_tiles, work, turns,
        )  # fmt: skip

    def place(self, tile: tp.WorkTile) -> Place:
        """The last tiles of queries first: under a causal mask they see the most keys."""
        ctx, cfg, (on_left, on_right) = self.ctx, self.cfg, self.sides
        first = ctx.let((self.q_blocks - 1 - tile.n) * cfg.bm, "first")
        place = ctx.let(first + (self.s_kv - self.s_q), "place")
        end: tp.Value = ctx.ceil_div(self.s_kv, cfg.bn)
        if on_right:
            stop = ctx.max(place + cfg.bm + self.right, 0)
            end = ctx.min(end, ctx.ceil_div(stop, cfg.bn))
        end = ctx.let(end, "end")
        blocks: tp.Value = end
        if on_left:
            blocks = ctx.max(end - ctx.max(place - self.left, 0) // cfg.bn, 0)
        return Place(
            ctx.let(tile.m // self.heads, "batch"),
            ctx.let(tile.m % self.heads, "head"),
            first,
            place,
            end,
            ctx.let(blocks, "blocks"),
        )


def store(
    shared: Shared, out: tp.GlobalTensor, at: Place, row: tp.Value, value: tp.FragmentValue
) -> None:
    """Writes the rows of a warpgroup: from registers, or through its part of a tile by TMA, which
    is written again when the last store has read it.
    """
    ctx, o_tile = shared.ctx, shared.o_tile
    where = (at.batch, at.head, row, 0)
    if o_tile is None:
        ctx.store_global(out, where, value)
        return
    rows = o_tile.rows(ctx.warpgroup_rank * ROWS, ROWS)
    with ctx.elect_one("warpgroup"):
        ctx.tma_store_wait(0, read=True)
    ctx.sync_warpgroup()
    ctx.store(rows, value)
    ctx.fence_proxy_async()
    ctx.sync_warpgroup()
    with ctx.elect_one("warpgroup"):
        ctx.tma_store(out, where, rows)
        ctx.tma_store_commit()
