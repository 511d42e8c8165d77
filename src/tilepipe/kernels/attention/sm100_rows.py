"""Attention on Blackwell: which queries and keys a CTA works on, what of them is masked, and the
softmax of a tile's rows.
"""

from __future__ import annotations

import math

import tilepipe as tp
from tilepipe.kernels.attention.config import (
    SM100_ROWS as ROWS,
    SM100_TILES as TILES,
    Sm100AttentionConfig,
)

LAYOUT = "tmem"


class Work:
    """The work of a CTA: two tiles of queries of one head, against its first `blocks` blocks of
    keys.

    CTAs with neighbouring numbers have the same queries of neighbouring heads, which share keys.
    The last queries come first: with a causal mask they see the most keys.

    Attributes:
        batch, head, kv_head: which head of Q, and of K and V. blocks: at least 1, so that rows that
            see no key are rows with nothing but masked scores.
    """

    def __init__(
        self,
        ctx: tp.Context,
        q: tp.GlobalTensor,
        k: tp.GlobalTensor,
        cfg: Sm100AttentionConfig,
        causal: bool,
    ) -> None:
        self._ctx, self._bn, self._causal = ctx, cfg.bn, causal
        heads, s_q, self._s_kv = q.shape[1], q.shape[2], k.shape[2]
        each = q.shape[0] * heads
        self.batch = ctx.let(ctx.block_id % each // heads, "batch")
        self.head = ctx.let(ctx.block_id % heads, "head")
        self.kv_head = ctx.let(self.head // (heads // k.shape[1]), "kv_head")
        self._first = ctx.let(
            (ctx.ceil_div(s_q, TILES * ROWS) - 1 - ctx.block_id // each) * (TILES * ROWS), "first"
        )
        self._diagonal = self._s_kv - s_q  # query i sees keys up to i + diagonal
        seen = (
            ctx.max(ctx.min(self._first + TILES * ROWS, s_q) + self._diagonal, 1)
            if causal
            else self._s_kv
        )
        self.blocks = ctx.let(ctx.ceil_div(seen, cfg.bn), "blocks")

    def row(self, i: int) -> tp.Value:
        """The first query of tile i."""
        return self._first + i * ROWS

    def clear_blocks(self, i: int) -> tp.Value:
        """How many blocks tile i sees whole: all its queries see all their keys."""
        ctx, keys = self._ctx, self._s_kv
        if self._causal:
            keys = ctx.min(keys, ctx.max(self.row(i) + 1 + self._diagonal, 0))
        return ctx.let(ctx.min(keys // self._bn, self.blocks), "clear")

    def hide(self, scores: tp.Fragment, n: tp.Value, i: int) -> None:
        """Scores (128, bn) of tile i and block n: -inf where there is no key, or the query does not
        see it.
        """
        ctx = self._ctx
        limit: tp.Value | tp.Fragment = self._s_kv - n * self._bn
        if self._causal:
            row = ctx.row_index(ROWS, layout=LAYOUT)
            limit = ctx.fragment(
                (row + (self.row(i) + 1 + self._diagonal - n * self._bn)).minimum(limit)
            )
        scores.set(ctx.select(ctx.col_index(self._bn) < limit, scores, -math.inf))


class Softmax:
    """The softmax of a tile's rows over blocks of keys, by one warpgroup: largest scores and sums
    of exponentials so far.

    `scale`: of the scores, times log2(e). A largest score that has grown by no more than
    `rescale_above` powers of 2 is kept, and with it the output so far.
    """

    def __init__(self, ctx: tp.Context, scale: tp.Value, cfg: Sm100AttentionConfig) -> None:
        self._ctx, self._scale, self._above = ctx, scale, float(cfg.rescale_above)
        self._largest = ctx.fragment(shape=(ROWS, 1), layout=LAYOUT)
        # of every eighth key: added up at the end
        self._sums = ctx.fragment(shape=(ROWS, 8), layout=LAYOUT)
        self._largest.fill(-math.inf)
        self._sums.fill(0)

    def begin(self, scores: tp.Fragment) -> tuple[tp.Fragment, tp.Fragment]:
        """(factor, shift), both (128, 1): what the output so far is to be multiplied by, and what
        `exponentials` subtracts.
        """
        ctx, scale = self._ctx, self._scale
        top = scores.max()
        largest = ctx.fragment(
            ctx.select((top - self._largest) * scale > self._above, top, self._largest)
        )
        factor = ctx.fragment(
            ctx.select(
                largest == self._largest, 1.0, ((self._largest - largest) * scale).apply("exp2")
            )
        )
        self._largest.set(largest)
        self._sums *= factor
        return factor, ctx.fragment(ctx.select(largest == -math.inf, 0.0, largest * scale))

    def exponentials(
        self, scores: tp.Fragment, col: int, width: int, shift: tp.Fragment
    ) -> tp.FragmentValue:
        """Columns [col, col + width) of the scores, in place, become P; gives them."""
        scores.set((scores.cols(col, width) * self._scale - shift).apply("exp2"), col=col)
        return scores.cols(col, width)

    def add(self, exponentials: tp.Fragment, bn: int) -> None:
        """Adds the exponentials of a block to the sums."""
        parts = [exponentials.cols(at, 8) for at in range(0, bn, 8)]
        self._sums += sum(parts[1:], parts[0])

    def end(self) -> tuple[tp.FragmentValue, tp.FragmentValue]:
        """(1 / sum, natural logarithm of the sum of exp(score)), both (128, 1); (0, -inf) of rows
        that see no key.
        """
        ctx, total = self._ctx, self._sums.sum()
        logarithm = (self._largest * self._scale + total.apply("log2")) * math.log(2)
        none = total == 0.0
        return ctx.select(none, 0.0, 1.0 / total), ctx.select(none, -math.inf, logarithm)
