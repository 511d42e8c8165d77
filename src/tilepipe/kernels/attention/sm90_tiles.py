"""Attention on Hopper: the tiles of queries, in which order CTAs take them, and which keys each of
them sees.
"""

from __future__ import annotations

from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.attention.config import AttentionConfig
from tilepipe.kernels.attention.key_lists import KeyList
from tilepipe.kernels.attention.packed import Sequences, slots
from tilepipe.kernels.attention.sm90_seen import SeenKeys


def grid(
    q: tp.TensorMap, q_bounds: tp.TensorMap | None, cfg: AttentionConfig, chip: tp.Chip
) -> int:
    """A CTA for each tile of queries, or as many as the chip has SMs."""
    *batch, heads, s_q, _ = q.shape
    if q_bounds is None:
        tiles = batch[0] * heads * -(-s_q // cfg.bm)
    else:
        tiles = heads * slots(s_q, q_bounds.shape[0] - 1, cfg.bm)
    return tiles if cfg.schedule == "single" else min(tiles, chip.sms)


@dataclass(frozen=True, eq=False)
class QueryTile:
    """A tile of queries of one head.

    Attributes:
        batch, head, first: its batch, None where sequences are packed, its head and its first
            query, counted within the sequence.
        q_start, k_start: the rows at which queries and keys of a packed sequence begin, otherwise
            None. queries, keys: how many the sequence has.
        place: the key at which the first query stands (`Window`).
        end: the tile of keys after the last one that a query sees. blocks: how many tiles of keys
            are walked.
        key_list: those under a block mask; None: those before `end`.
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
    key_list: KeyList | None

    def key_tile(self, i: tp.Scalar) -> tp.Value:
        """The tile of keys that step `i` takes: the last first."""
        return self.end - 1 - i if self.key_list is None else self.key_list.tile(i)

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

    def keys_from(self, key: tp.Value) -> tp.Value | None:
        """How many keys from `key` on are the sequence's, where others follow it; else None."""
        return None if self.k_start is None else self.keys - key


@dataclass(frozen=True, eq=False)
class QueryTiles:
    """All tiles of queries of a launch, which the scheduler `work` deals out to CTAs.

    Attributes:
        seen: which keys queries see. heads, s_q, s_kv: of the problem.
        sequences: those that are packed; None: a batch, whose sequences have one length.
        q_blocks: how many tiles a head of a batch has.
        key_lists: which tiles of keys each walks under a block mask; see `key_lists`.
    """

    ctx: tp.Context
    cfg: AttentionConfig
    seen: SeenKeys
    heads: tp.Value
    s_q: tp.Value
    s_kv: tp.Value
    sequences: Sequences | None
    q_blocks: tp.Value
    work: tp.StaticScheduler | tp.AtomicScheduler
    key_lists: tp.GlobalTensor | None

    @classmethod
    def schedule(
        cls,
        ctx: tp.Context,
        cfg: AttentionConfig,
        q: tp.GlobalTensor,
        k: tp.GlobalTensor,
        seen: SeenKeys,
        sequences: Sequences | None,
        counter: tp.GlobalTensor | None,
        key_lists: tp.GlobalTensor | None,
    ) -> QueryTiles:
        """The tiles of `q`, dealt out by `counter` or, without one, by a fixed share."""
        heads, s_q = q.shape[-3], q.shape[-2]
        q_blocks = ctx.ceil_div(s_q, cfg.bm)
        count: tuple[tp.Value, tp.Value | int] = (q.shape[0] * heads, q_blocks)
        raster = "grouped"
        if sequences is not None:
            count, raster = (sequences.tiles, 1), "rows"
        work: tp.StaticScheduler | tp.AtomicScheduler
        if counter is None:
            work = tp.StaticScheduler(ctx, count, raster=raster, group=cfg.group)
        else:
            work = tp.AtomicScheduler(ctx, counter, count, raster=raster, group=cfg.group)
        return cls(ctx, cfg, seen, heads, s_q, k.shape[-2], sequences, q_blocks, work, key_lists)

    def of(self, tile: tp.WorkTile) -> QueryTile:
        """The last tiles of queries first: under a causal mask they see the most keys."""
        ctx, seen = self.ctx, self.seen
        packed = None if self.sequences is None else self.sequences.tile(tile.m)
        number = self.q_blocks - 1 - tile.n
        if packed is None:
            first = ctx.let(number * self.cfg.bm, "first")
            queries, keys = self.s_q, self.s_kv
        else:
            first, queries, keys = packed.first, packed.queries, packed.keys
        place = first if seen.from_first else ctx.let(first + (keys - queries), "place")
        end = seen.end(place, keys)
        blocks = seen.blocks(place, end)
        batch, q_start, k_start, key_list = None, None, None, None
        if packed is None:
            batch = ctx.let(tile.m // self.heads, "batch")
            head = ctx.let(tile.m % self.heads, "head")
            if self.key_lists is not None:
                key_list = KeyList.of(ctx, self.key_lists, batch, head, number)
                blocks = key_list.length
        else:
            head, q_start, k_start = packed.head, packed.q_start, packed.k_start
            blocks = ctx.select(first < queries, blocks, 0)
        blocks = ctx.let(blocks, "blocks")
        return QueryTile(
            batch, head, first, q_start, queries, k_start, keys, place, end, blocks, key_list
        )

    def first_clear(self, at: QueryTile) -> tp.Scalar:
        """The first step, after step 0, whose tile of keys the right side of the mask does not
        cut.
        """
        ctx = self.ctx
        if not self.seen.on_right:
            return 1
        if at.key_list is not None:
            return at.key_list.clear
        whole = self.seen.clear(at.place)
        return ctx.let(ctx.min(at.blocks, ctx.max(at.end - whole, 1)), "clear")

    def first_on_left(self, at: QueryTile, clear: tp.Scalar) -> tp.Value:
        """The first step, from `clear` on, whose tile the left side of the mask cuts."""
        ctx = self.ctx
        if not self.seen.on_left:
            return at.blocks
        if at.key_list is not None:
            return at.key_list.on_left
        cut = self.seen.cut(at.place)
        return ctx.let(ctx.max(ctx.min(at.blocks, at.end - cut), clear), "last")
