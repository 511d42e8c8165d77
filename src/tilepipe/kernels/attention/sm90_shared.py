"""Attention on Hopper: the tiles of queries, which keys each of them sees, and what the roles of a
CTA share.
"""

from __future__ import annotations

from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.packed import Sequences, slots


def grid(
    q: tp.TensorMap, q_bounds: tp.TensorMap | None, cfg: AttentionConfig, chip: tp.Chip
) -> int:
    """A CTA for each tile of queries, or as many as the chip has SMs."""
    *batch, heads, s_q, _ = q.shape
    if q_bounds is None:
        tiles = batch[0] * heads * -(-s_q // cfg.bm)
    else:
        tiles = heads * slots(s_q, q_bounds.shape[0] - 1, cfg.bm)
    return int(tiles if cfg.schedule == "single" else min(tiles, chip.sms))


@dataclass(frozen=True, eq=False)
class Place:
    """A tile of queries.

    Attributes:
        batch, head, first: its batch, None where sequences are packed, its head and its first
            query, counted within the sequence.
        q_start, k_start: where queries and keys of a packed sequence begin, otherwise None.
            queries, keys: how many the sequence has.
        place: the place of the first query among the keys (`Window`).
        end: the tile of keys after the last one that a query sees. blocks: how many they see.
    """

    batch: tp.Value | None
    head: tp.Value
    first: tp.Value
    q_start: tp.Value | None
    queries: tp.Value
    k_start: tp.Value | None
    keys: tp.Value
    place: tp.Value
    end: tp.Value
    blocks: tp.Value

    def of_query(self, row: tp.Value) -> tuple[tp.Value, ...]:
        """The coordinates of a query, `row` of the sequence, in q, out and lse."""
        if self.batch is not None:
            return self.batch, self.head, row
        return self.head, row + self.q_start

    def rows_from(self, row: tp.Value) -> tp.Value | None:
        """How many rows from `row` on are the sequence's, where others follow it; else None."""
        return None if self.q_start is None else self.queries - row

    def of_key(self, kv_head: tp.Value, key: tp.Value) -> tuple[tp.Value, ...]:
        """The coordinates of a key of the sequence in k."""
        if self.batch is not None:
            return self.batch, kv_head, key
        return kv_head, key + self.k_start


@dataclass(frozen=True, eq=False)
class Shared:
    """What the roles share, made in set-up code.

    Attributes:
        sides: whether queries see only some keys on the left, and on the right; left, right: how
            many. from_first: as of `Window`.
        shape: extents of the tiles. heads, s_q, s_kv: of the problem. q_blocks: tiles of queries.
        sequences: those that are packed; None: a batch, whose sequences have one length.
        queries: the ring of one tile of queries, `q_tile`. keys, values: the rings of K and V.
        o_tile: of the output, where it is stored through shared memory.
        turns: of the warpgroups that issue their MMAs one after the other.
    """

    ctx: tp.Context
    cfg: AttentionConfig
    sides: tuple[bool, bool]
    from_first: bool
    left: tp.Value
    right: tp.Value
    shape: tp.FA4Config
    heads: tp.Value
    s_q: tp.Value
    s_kv: tp.Value
    q_blocks: tp.Value
    sequences: Sequences | None
    queries: tp.ProducerConsumerPipeline
    q_tile: tp.SmemTile
    o_tile: tp.SmemTile | None
    keys: tp.StagedPipeline
    k_tiles: tp.SmemTileArray
    values: tp.StagedPipeline
    v_tiles: tp.SmemTileArray
    work: tp.StaticScheduler | tp.AtomicScheduler
    turns: tp.OrderedBarrier | None

    @classmethod
    def allocate(
        cls,
        ctx: tp.Context,
        q: tp.GlobalTensor,
        k: tp.GlobalTensor,
        v: tp.GlobalTensor,
        bounds: tuple[tp.GlobalTensor, tp.GlobalTensor] | None,
        counter: tp.GlobalTensor | None,
        steps: tp.Value,
        left: tp.Value,
        right: tp.Value,
        *,
        cfg: AttentionConfig,
        d: int,
        d_v: int,
        sides: tuple[bool, bool],
        from_first: bool,
    ) -> Shared:
        """Allocates shared memory and barriers; arguments as of the kernel."""
        shape = cfg.tiles(q.dtype, d, d_v)
        heads, s_q, s_kv = q.shape[-3], q.shape[-2], k.shape[-2]
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
        sequences = None
        tiles: tuple[tp.Value, tp.Value | int] = (q.shape[0] * heads, q_blocks)
        if bounds is not None:
            sequences = Sequences(ctx, *bounds, s_q, s_kv, steps, heads, cfg.bm, cfg.group)
            tiles = sequences.tiles, 1
        raster = "grouped" if bounds is None else "rows"
        work: tp.StaticScheduler | tp.AtomicScheduler
        if counter is None:
            work = tp.StaticScheduler(ctx, tiles, raster=raster, group=cfg.group)
        else:
            work = tp.AtomicScheduler(ctx, counter, tiles, raster=raster, group=cfg.group)
        in_turns = cfg.order == "turns" and cfg.consumers > 1
        turns = tp.OrderedBarrier(ctx, cfg.consumers) if in_turns else None
        return cls(
            ctx, cfg, sides, from_first, left, right, shape, heads, s_q, s_kv, q_blocks, sequences,
            queries, q_tile, o_tile, keys, k_tiles, values, v_tiles, work, turns,
        )  # fmt: skip

    def place(self, tile: tp.WorkTile) -> Place:
        """The last tiles of queries first: under a causal mask they see the most keys."""
        ctx, cfg, (on_left, on_right) = self.ctx, self.cfg, self.sides
        slot = None if self.sequences is None else self.sequences.slot(tile.m)
        if slot is None:
            first = ctx.let((self.q_blocks - 1 - tile.n) * cfg.bm, "first")
            queries, keys = self.s_q, self.s_kv
        else:
            first, queries, keys = slot.first, slot.queries, slot.keys
        place = first if self.from_first else ctx.let(first + (keys - queries), "place")
        end: tp.Value = ctx.ceil_div(keys, cfg.bn)
        if on_right:
            stop = ctx.max(place + cfg.bm + self.right, 0)
            end = ctx.min(end, ctx.ceil_div(stop, cfg.bn))
        end = ctx.let(end, "end")
        blocks: tp.Value = end
        if on_left:
            blocks = ctx.max(end - ctx.max(place - self.left, 0) // cfg.bn, 0)
        batch, q_start, k_start = None, None, None
        if slot is None:
            batch, head = (
                ctx.let(tile.m // self.heads, "batch"),
                ctx.let(tile.m % self.heads, "head"),
            )
        else:
            head, q_start, k_start = slot.head, slot.q_start, slot.k_start
            blocks = ctx.select(first < queries, blocks, 0)
        blocks = ctx.let(blocks, "blocks")
        return Place(batch, head, first, q_start, queries, k_start, keys, place, end, blocks)
