"""The role that multiplies, takes the softmax and stores, for a cache of 16 bits; `narrow` has what
differs for one of 8 bits. Scores never leave registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention_decode.combine import Results
from tilepipe.kernels.attention_decode.config import ROWS
from tilepipe.kernels.attention_decode.shares import Segment, Sequences
from tilepipe.kernels.attention_decode.statistics import Statistics
from tilepipe.kernels.common.online_softmax import OnlineSoftmax


@dataclass(frozen=True, eq=False)
class Operands:
    """What the role works on.

    Attributes:
        q: (batch, tokens, kv_heads, group, d). tile: where its rows lie for the tensor cores.
        scale: of the scores, log2(e) included.
    """

    ctx: tp.Context
    inputs: tp.InputTilePipeline
    sequences: Sequences
    results: Results
    q: tp.GlobalTensor
    tile: tp.SmemTile
    scale: tp.Value

    def queries(self, at: Segment, width: int) -> tp.Fragment:
        """The rows of q of an item, those of a token after those of the one before; then zeros."""
        ctx, q, results = self.ctx, self.q, self.results
        found = ctx.fragment(shape=(ROWS, width), dtype=q.dtype)
        found.fill(0)
        for token in ctx.range(results.tokens):
            # Rows of other tokens are outside of the tensor, and 0.
            where = (at.batch, token, at.head, -token * results.group, 0)
            found.set(found + ctx.load_global(q, where, (ROWS, width)))
        return found


class Attention:
    """The role, in the registers of a warpgroup: a row for each query."""

    def __init__(self, of: Operands) -> None:
        ctx, width, bn = of.ctx, of.results.width, of.sequences.bn
        self.of, self.ctx = of, ctx
        self.scores = ctx.accumulator((ROWS, bn))
        self.weights = ctx.fragment(shape=(ROWS, bn), dtype=of.tile.dtype)
        self.sums = ctx.accumulator((ROWS, width))
        self.softmax = OnlineSoftmax(ctx, self.scores, self.factor())

    def run(self) -> None:
        """All segments of the CTA's share."""
        ctx, results = self.ctx, self.of.results
        share = self.of.sequences.share()
        for at in share.segments():
            self.load_queries(at)
            self.softmax.reset()
            self.sums.fill(0)
            with self.of.inputs.consumer() as consumer:
                for i in ctx.range(at.tiles):
                    with consumer.acquire() as stage:
                        k_tile, v_tile = stage.tile()
                        self.multiply(at, i, k_tile, v_tile)
            total = ctx.fragment(self.softmax.total())
            found = Statistics(self.softmax.largest, total, self.factor())
            inverse, logarithm = found.result(ctx)
            value = self.sums * self.of_output(at, inverse)
            results.finish(
                share,
                at,
                partial(results.store, at, 0, value, logarithm),
                partial(results.store_part, value, found),
            )

    def factor(self) -> tp.Value | tp.Fragment:
        """What scores are multiplied with: a number, or one for each row."""
        return self.of.scale

    def of_output(self, at: Segment, inverse: tp.Fragment) -> tp.FragmentValue:
        """(rows, 1): what the sums of an item are multiplied with."""
        return inverse

    def load_queries(self, at: Segment) -> None:
        """Puts the queries of an item into shared memory."""
        # Each warp writes the rows that its own products have read.
        self.ctx.store(self.of.tile, self.of.queries(at, self.of.results.width))
        self.ctx.fence_proxy_async()
        self.ctx.sync_warpgroup()

    def multiply(self, at: Segment, i: tp.Value, k_tile: tp.SmemTile, v_tile: tp.SmemTile) -> None:
        """Tile i of a segment: v_tile is (d, keys)."""
        ctx, of = self.ctx, self.of.sequences
        ctx.mma(self.scores, self.of.tile, k_tile, accumulate=False)
        ctx.wgmma_commit()
        ctx.wgmma_wait(0)
        key = ctx.let((at.first + i) * of.bn, "key")
        with ctx.when(of.seen.cuts(key, of.bn, at.keys)):
            self.mask(at, key)
            clear(self.of, at, key, v_tile)
        self.weigh()
        ctx.mma(self.sums, self.weights, v_tile)

    def mask(self, at: Segment, key: tp.Value) -> None:
        """Takes out the scores of keys that a row does not see."""
        ctx, of = self.ctx, self.of.sequences
        place: Any = key + ctx.col_index(of.bn)
        token: Any = ctx.row_index(ROWS) // self.of.results.group
        self.softmax.mask(of.seen.mask(place, token, at.keys))

    def weigh(self) -> None:
        """Scores -> weights; the sums so far are scaled as the weights are."""
        self.softmax.update()
        self.weights.set(self.scores)
        self.sums.set(self.sums * self.softmax.factor)


def clear(operands: Operands, at: Segment, key: tp.Value, v_tile: tp.SmemTile) -> None:
    """Takes out the values of a tile (d, keys) that no query sees, since 0, their weight, times
    what may be NaN would be NaN.
    """
    ctx, of = operands.ctx, operands.sequences
    place: Any = key + ctx.col_index(of.bn)
    for row in range(0, operands.results.width, ROWS):
        rows = v_tile.rows(row, ROWS)
        values = ctx.fragment(shape=(ROWS, of.bn), dtype=v_tile.dtype)
        values.load(rows)
        ctx.store(rows, ctx.select(of.seen.held(place, at.keys), values, 0.0))
    ctx.fence_proxy_async()
    ctx.sync_warpgroup()
