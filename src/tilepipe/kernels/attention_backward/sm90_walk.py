"""Which keys a CTA of the gradients of attention has, and in which order it walks over the queries
that see them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention_backward.config import KEYS, BackwardConfig


def grid(k: tp.TensorMap) -> int:
    """A CTA for each tile of keys."""
    batch, kv_heads, s_kv, _ = k.shape
    return batch * kv_heads * -(-s_kv // KEYS)


@dataclass(frozen=True, eq=False)
class Keys:
    """The tile of keys of a CTA, and the tiles of queries that see them.

    Attributes:
        bm: queries of a tile.
        upwards: whether queries are walked from the first to the last, a truth value of the CTA;
            tiles of keys are then dealt out from the last to the first. None: of no CTA.
        by_head: whether all queries of one head are walked before those of the next.
        batch, kv_head, first: its batch, its head of K and V, its first key. count: of all keys.
        group: heads of Q that share a head of K and V.
        from_query: the first query of the first tile that sees the keys. to_query: of the last.
        clear: from this query on all of them see all of the tile's keys.
        steps: how many tiles of queries see keys, of all heads of the group.
        shift: query i sees keys up to i + shift.
    """

    ctx: tp.Context
    bm: int
    causal: bool
    upwards: tp.Value | None
    by_head: bool
    batch: tp.Value
    kv_head: tp.Value
    first: tp.Value
    count: tp.Value
    group: tp.Value
    from_query: tp.Value
    to_query: tp.Value
    clear: tp.Value
    steps: tp.Value
    shift: tp.Value

    @classmethod
    def of(
        cls,
        ctx: tp.Context,
        q: tp.GlobalTensor,
        k: tp.GlobalTensor,
        shift: tp.Value,
        cfg: BackwardConfig,
        *,
        bm: int,
        causal: bool,
    ) -> Keys:
        """In set-up code. q and k (batch, heads, s, d). A band has `cfg.group` heads of K and V;
        CTAs take the first tile of each of them, then the second of each.
        """
        (heads, s_q), (kv_heads, s_kv) = q.shape[1:3], k.shape[1:3]
        tiles, of_band = ctx.ceil_div(s_kv, KEYS), cfg.group
        band = ctx.let(ctx.block_id // (tiles * of_band), "band")
        within = ctx.block_id % (tiles * of_band)
        bands_heads = ctx.min(k.shape[0] * kv_heads - band * of_band, of_band)
        wide = ctx.let(bands_heads, "wide")
        head = ctx.let(band * of_band + within % wide, "head")
        number, upwards = within // wide, None
        if cfg.walk == "alternate":  # downwards in the last band, where the longest walks go first
            bands = ctx.ceil_div(k.shape[0] * kv_heads, of_band)
            upwards = ctx.let((bands - band) % 2 == 0, "upwards")
            number = ctx.select(upwards, tiles - 1 - number, number)
        key = ctx.let(number * KEYS, "key")
        first: Any = ctx.max(key - shift, 0) // bm * bm if causal else ctx.let(0)
        first = ctx.let(first, "first")
        clear: Any = ctx.max(key + (KEYS - 1) - shift, 0) if causal else 0
        clear = ctx.let(ctx.select(key + KEYS > s_kv, s_q, clear), "clear")
        group = ctx.let(heads // kv_heads, "group")
        steps = ctx.let(group * ctx.max(ctx.ceil_div(s_q - first, bm), 0), "steps")
        last = ctx.let((s_q - 1) // bm * bm, "last")
        return cls(
            ctx, bm, causal, upwards, cfg.walk == "heads",
            ctx.let(head // kv_heads, "batch"), ctx.let(head % kv_heads, "kv_head"), key, s_kv,
            group, first, last, clear, steps, shift,
        )  # fmt: skip

    def queries(self) -> Queries:
        """The tile of queries with which a role begins."""
        ctx, begin = self.ctx, self.to_query
        if self.upwards is not None:
            begin = ctx.select(self.upwards, self.from_query, begin)
        return Queries(self, ctx.var(self.kv_head * self.group), ctx.var(begin))

    def seen(self, row: tp.Value, first: tp.Value, rows: int) -> Any:
        """Which of the `rows` keys from `first` on each query of the tile at `row` sees."""
        ctx = self.ctx
        key: Any = first + ctx.row_index(rows)
        there = key < self.count
        if not self.causal:
            return there
        query: Any = row + self.shift + ctx.col_index(self.bm)
        return (key <= query) & there

    def turn(self, row: tp.Value) -> tp.Value:
        """How many tiles of keys add to dQ of the tile of queries at `row` before this one: those
        before it or, upwards, those behind it that the tile sees.
        """
        ctx, number = self.ctx, self.first // KEYS
        if self.upwards is None:
            return number
        last: Any = ctx.ceil_div(self.count, KEYS) - 1
        if self.causal:
            last = ctx.min(ctx.max(row + (self.bm - 1) + self.shift, 0) // KEYS, last)
        behind: Any = last - number
        return ctx.let(ctx.select(self.upwards, behind, number))


@dataclass(frozen=True, eq=False)
class Queries:
    """The tile of queries that a role is at: its head and its first query.

    Downwards, from the last query, which sees the most keys, all CTAs of a head begin with the same
    queries, and read them from L2. In a fixed order of sums each adds after those of the keys
    before its own, so it is late by one hand-over for each; with shared heads all CTAs must come to
    a head at the same time, or one waits for another's walk over the head before.

    Upwards, under a causal mask, each begins with the first tile that sees its keys. A tile of
    queries comes to the CTA of the last keys that it sees first, and to that of the keys before a
    step later: parts of dQ are there in the order in which they are added. But the shortest walks
    must begin first, and the longest are left alone at the end. So bands alternate: the long walks
    of a band upwards begin last, those of the next, downwards, first, and all end together.
    """

    keys: Keys
    head: tp.Var
    row: tp.Var

    def place(self) -> tuple[tp.Value, tp.Value, tp.Value]:
        """Its (batch, head, first query)."""
        return self.keys.batch, self.head.get(), self.row.get()

    def step(self) -> None:
        """The next tile."""
        keys, head, row = self.keys, self.head.get(), self.row.get()
        ctx = keys.ctx
        if keys.by_head:
            ends = ctx.let(row <= keys.from_query)
            self.head.set(head + ctx.select(ends, 1, 0))
            self.row.set(ctx.select(ends, keys.to_query, row - keys.bm))
            return
        first_head = keys.kv_head * keys.group
        ends = ctx.let(head - first_head == keys.group - 1)
        onward: Any = -keys.bm
        if keys.upwards is not None:
            onward = ctx.select(keys.upwards, keys.bm, onward)
        self.head.set(ctx.select(ends, first_head, head + 1))
        self.row.set(row + ctx.select(ends, onward, 0))
