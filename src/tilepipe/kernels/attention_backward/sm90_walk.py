"""Which keys a CTA of the gradients of attention has, and in which order it walks over the queries
that see them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention_backward.config import KEYS


def grid(k: tp.TensorMap) -> int:
    """A CTA for each tile of keys."""
    batch, kv_heads, s_kv, _ = k.shape
    return batch * kv_heads * -(-s_kv // KEYS)


@dataclass(frozen=True, eq=False)
class Keys:
    """The tile of keys of a CTA, and the tiles of queries that see them.

    Attributes:
        bm: queries of a tile.
        batch, kv_head, first: its batch, its head of K and V, its first key. count: of all keys.
        group: heads of Q that share a head of K and V.
        from_query: the first query of the first tile that sees the keys. to_query: of the last.
        clear: from this query on all of them see all of the tile's keys.
        steps: how many tiles of queries see keys, of all heads of the group.
        shift: query i sees keys up to i + shift.
        upwards: queries are walked from `from_query`, and tiles of keys dealt out from the last.
    """

    ctx: tp.Context
    bm: int
    causal: bool
    upwards: bool
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
        *,
        together: int,
        bm: int,
        causal: bool,
        in_turns: bool,
    ) -> Keys:
        """In set-up code. q and k (batch, heads, s, d). The tiles of `together` heads are dealt out
        together: one of each head, and then the next of each.
        """
        (heads, s_q), (kv_heads, s_kv) = q.shape[1:3], k.shape[1:3]
        tiles = ctx.ceil_div(s_kv, KEYS)
        band = ctx.let(ctx.block_id // (tiles * together), "band")
        within = ctx.block_id % (tiles * together)
        wide = ctx.let(ctx.min(k.shape[0] * kv_heads - band * together, together), "wide")
        head = ctx.let(band * together + within % wide, "head")
        upwards, number = in_turns and causal, within // wide
        key = ctx.let((tiles - 1 - number if upwards else number) * KEYS, "key")
        first: Any = ctx.max(key - shift, 0) // bm * bm if causal else ctx.let(0)
        first = ctx.let(first, "first")
        clear: Any = ctx.max(key + (KEYS - 1) - shift, 0) if causal else 0
        clear = ctx.let(ctx.select(key + KEYS > s_kv, s_q, clear), "clear")
        group = ctx.let(heads // kv_heads, "group")
        steps = ctx.let(group * ctx.max(ctx.ceil_div(s_q - first, bm), 0), "steps")
        last = ctx.let((s_q - 1) // bm * bm, "last")
        return cls(
            ctx, bm, causal, upwards,
            ctx.let(head // kv_heads, "batch"), ctx.let(head % kv_heads, "kv_head"), key, s_kv,
            group, first, last, clear, steps, shift,
        )  # fmt: skip

    def queries(self) -> Queries:
        """The tile of queries with which a role begins."""
        ctx = self.ctx
        begin = self.from_query if self.upwards else self.to_query
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
        if not self.upwards:
            return number
        last_seen: Any = ctx.max(row + (self.bm - 1) + self.shift, 0) // KEYS
        return ctx.min(last_seen, ctx.ceil_div(self.count, KEYS) - 1) - number


@dataclass(frozen=True, eq=False)
class Queries:
    """The tile of queries that a role is at: its head and its first query. All that see the keys
    are walked for one head, and then for the next.

    Downwards, from the last query, which sees the most keys: all CTAs of a head begin with the same
    queries, and read them from L2. Upwards, under a causal mask, each begins with the first tile
    that sees its keys. A tile of queries then comes to the CTA of the last keys that it sees first,
    and to that of the keys before one step later: parts of dQ should be there in the order in which
    they are added, where downwards all would come at once.
    """

    keys: Keys
    head: tp.Var
    row: tp.Var

    def place(self) -> tuple[tp.Value, tp.Value, tp.Value]:
        """Its (batch, head, first query)."""
        return self.keys.batch, self.head.get(), self.row.get()

    def step(self) -> None:
        """The next tile."""
        keys, row = self.keys, self.row.get()
        ctx, low, high = keys.ctx, keys.from_query, keys.to_query
        begin, ends, after = (
            (low, row >= high, row + keys.bm) if keys.upwards else (high, row <= low, row - keys.bm)
        )
        ends = ctx.let(ends)
        self.head.set(self.head.get() + ctx.select(ends, 1, 0))
        self.row.set(ctx.select(ends, begin, after))
