"""Sequences of different lengths that lie one after the other: which of them a tile of queries
belongs to.

cu_seqlens, int32 of n + 1 numbers in GPU memory, says where sequence i lies: rows cu_seqlens[i] to
cu_seqlens[i + 1] - 1. The host does not read it, so it knows neither how many tiles of queries a
sequence has nor where they begin. It does know a bound: with bm queries to a tile, sequence i is
given the slots from cu_seqlens[i] // bm + i to those of the next one, which are as many as its
tiles, or one more. So the slots of all heads are a grid of heads · (total_q // bm + n) tiles, and a
CTA finds the sequence of its slot by searching cu_seqlens: eight parts a step, so that up to 8, 64,
512 sequences take 1, 2, 3 steps, of loads that do not wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.attention.config import AttentionConfig

PARTS = 8  # into which a step of the search divides the sequences that are left


def slots(total: int, sequences: int, bm: int) -> int:
    """How many tiles of queries a head has at most."""
    return total // bm + sequences


def search_steps(sequences: int) -> int:
    """How many steps find one of so many sequences."""
    return next(steps for steps in range(1, 32) if PARTS**steps >= sequences)


@dataclass(frozen=True, eq=False)
class PackedTile:
    """A tile of queries of one head of a packed sequence.

    Attributes:
        head: the head. first: the tile's first query, counted within the sequence.
        q_start, queries: the row of q at which the sequence's queries begin, and how many it has; 0
            where the slot is empty. k_start, keys: the same of its keys.
    """

    head: tp.Value
    first: tp.Value
    q_start: tp.Value
    queries: tp.Value
    k_start: tp.Value
    keys: tp.Value


@dataclass(frozen=True, eq=False)
class Sequences:
    """The sequences of a launch.

    Attributes:
        q_bounds, k_bounds: cu_seqlens of queries and of keys.
        q_total, k_total: rows that the tensors have. What lies beyond them, as wrong numbers say,
            is neither read nor written.
        steps: of the search.
    """

    ctx: tp.Context
    q_bounds: tp.GlobalTensor
    k_bounds: tp.GlobalTensor
    q_total: tp.Value
    k_total: tp.Value
    steps: tp.Value
    heads: tp.Value
    bm: int
    group: int

    @classmethod
    def of(
        cls,
        ctx: tp.Context,
        bounds: tuple[tp.GlobalTensor | None, tp.GlobalTensor | None],
        q: tp.GlobalTensor,
        k: tp.GlobalTensor,
        steps: tp.Value,
        cfg: AttentionConfig,
    ) -> Sequences | None:
        """Those that `bounds`, of queries and of keys, state; None without."""
        of_q, of_k = bounds
        if of_q is None or of_k is None:
            return None
        heads, q_total, k_total = q.shape[-3], q.shape[-2], k.shape[-2]
        return cls(ctx, of_q, of_k, q_total, k_total, steps, heads, cfg.bm, cfg.group)

    @property
    def tiles(self) -> tp.Value:
        """Tiles of all heads, with those that turn out to be empty."""
        return (self.q_total // self.bm + self._count) * self.heads

    @property
    def _count(self) -> tp.Value:
        return self.q_bounds.shape[0] - 1

    def _bound(self, bounds: tp.GlobalTensor, i: tp.Value, total: tp.Value) -> tp.Value:
        ctx = self.ctx
        return ctx.min(ctx.max(ctx.load(bounds[i]), 0), total)

    def _first_slot(self, i: tp.Value) -> tp.Value:
        return self._bound(self.q_bounds, i, self.q_total) // self.bm + i

    def _find(self, slot: tp.Value) -> tp.Value:
        """The last sequence whose first slot is not after this one."""
        ctx, last = self.ctx, self._count - 1
        low, part = ctx.var(0), ctx.var(1)
        for _ in ctx.range(self.steps - 1):
            part.set(part * PARTS)
        for _ in ctx.range(self.steps):
            start, step = ctx.let(low.get(), "low"), ctx.let(part.get(), "part")
            passed: tp.Value | int = 0
            for j in range(1, PARTS):
                i = ctx.let(start + step * j, "probe")
                first = self._first_slot(ctx.min(i, last))
                passed = passed + ctx.select((i <= last) & (first <= slot), 1, 0)
            low.set(start + step * passed)
            part.set(step // PARTS)
        return ctx.let(ctx.max(ctx.min(low.get(), last), 0), "sequence")

    def tile(self, index: tp.Value) -> PackedTile:
        """The tile of this number. `group` heads of a sequence take turns, so that their keys stay
        in L2, and the last queries come first: under a causal mask they see the most keys.
        """
        ctx = self.ctx
        number = ctx.let(index // self.heads, "slot")
        i = self._find(number)
        start = ctx.let(self._bound(self.q_bounds, i, self.q_total), "q_start")
        end = ctx.max(self._bound(self.q_bounds, i + 1, self.q_total), start)
        before = ctx.let(start // self.bm + i, "slots_before")
        blocks = ctx.let(end // self.bm + 1 - start // self.bm, "slots")
        inside = (number >= before) & (number < before + blocks)
        within = ctx.let(ctx.max(index - before * self.heads, 0), "within")
        band = ctx.let(within // (blocks * self.group), "band")
        width = ctx.let(ctx.max(ctx.min(self.heads - band * self.group, self.group), 1), "width")
        rest = ctx.let(within - band * (blocks * self.group), "rest")
        head = ctx.min(band * self.group + rest % width, self.heads - 1)
        k_start = ctx.let(self._bound(self.k_bounds, i, self.k_total), "k_start")
        k_end = self._bound(self.k_bounds, i + 1, self.k_total)
        return PackedTile(
            ctx.let(head, "head"),
            ctx.let(ctx.max(blocks - 1 - rest // width, 0) * self.bm, "first"),
            start,
            ctx.let(ctx.select(inside, end - start, 0), "queries"),
            k_start,
            ctx.let(ctx.max(k_end - k_start, 0), "keys"),
        )
