"""The role that multiplies, where there are few queries: they are the columns of both products,
whose rows are keys and elements of a head.

A wgmma has 64 rows, and as few as 8 columns. With the queries as rows most of a tile of scores is
padding, of which each thread takes exponentials; as columns there is little of it. The first
operand, which a wgmma also takes from registers, is then the one that comes from the cache: there
one of 8 bits is widened, on its way from shared memory (`pairs`).

    scores (keys, queries) = K · Qᵀ; weights into shared memory; sums (d, queries) += Vᵀ · weights
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention_decode.attend import Operands, clear
from tilepipe.kernels.attention_decode.column_results import ColumnResults
from tilepipe.kernels.attention_decode.config import ROWS
from tilepipe.kernels.attention_decode.narrow import Scaled
from tilepipe.kernels.attention_decode.pairs import loaded, widened
from tilepipe.kernels.attention_decode.shares import Segment
from tilepipe.kernels.attention_decode.statistics import Statistics


class ColumnAttention:
    """The role, in the registers of a warpgroup: a column for each query.

    Attributes:
        weights: (keys, queries) in shared memory.
        factor: what scores are multiplied with, a number or one for each query.
        sums: what `ColumnResults` stores.
    """

    factor: Any

    def __init__(self, of: Operands, results: ColumnResults, weights: tp.SmemTile) -> None:
        ctx, bn, n = of.ctx, of.sequences.bn, results.columns
        self.of, self.ctx, self.results, self.weights, self.n = of, ctx, results, weights, n
        self.queries = of.tile.rows(0, n)
        self.scores = ctx.accumulator((bn, n))
        self.sums = [ctx.accumulator((results.height, n)) for _ in range(results.sides)]
        self.total = ctx.fragment(shape=(bn, n))  # of weights, for each row of scores
        self.largest = ctx.fragment(shape=(1, n))  # score so far

    def run(self) -> None:
        """All segments of the CTA's share."""
        ctx, results = self.ctx, self.results
        share = self.of.sequences.share()
        for at in share.segments():
            self.load_queries(at)
            ctx.fence_proxy_async()
            ctx.sync_warpgroup()
            self.largest.fill(-math.inf)
            for zero in (self.total, *self.sums):
                zero.fill(0)
            with self.of.inputs.consumer() as consumer:
                for i in ctx.range(at.tiles):
                    self.tile(at, ctx.let((at.first + i) * self.of.sequences.bn, "key"), consumer)
            found = Statistics(self.largest, ctx.fragment(self.total.sum(axis=0)), self.factor)
            inverse, logarithm = found.result(ctx)
            inverse = ctx.fragment(inverse * self.value_factor(at))
            values = [x * inverse for x in self.sums]
            results.finish(
                share,
                at,
                partial(results.store_columns, at, values, logarithm),
                partial(results.store_part_columns, values, found),
            )

    def load_queries(self, at: Segment) -> None:
        """Puts the queries of an item into shared memory."""
        raise NotImplementedError

    def tile(self, at: Segment, key: tp.Value, consumer: tp.InputConsumer) -> None:
        """Adds the tile of a segment that begins at `key`."""
        raise NotImplementedError

    def value_factor(self, at: Segment) -> Any:
        """The factor of sums of weights · values."""
        return 1.0

    def mask(self, at: Segment, key: tp.Value) -> None:
        """Takes out the scores of keys that a query does not see."""
        ctx, of = self.ctx, self.of.sequences
        place: Any = key + ctx.row_index(of.bn)
        token: Any = ctx.col_index(self.n) // self.results.group
        seen = of.seen.mask(place, token, at.keys)
        self.scores.set(ctx.select(seen, self.scores, -math.inf))

    def weigh(self) -> None:
        """Scores -> weights in shared memory; the sums so far are scaled as the weights are."""
        ctx, scores, factor = self.ctx, self.scores, self.factor
        before = ctx.fragment(self.largest)
        self.largest.set(before.maximum(scores.max(axis=0)))
        # A query that has seen no key yet has -inf, from which nothing can be subtracted.
        largest = ctx.fragment(ctx.select(self.largest == -math.inf, 0.0, self.largest))
        base = ctx.fragment(largest * factor)
        scores.set((scores * factor - base).apply("exp2"))
        ctx.store(self.weights, scores)
        ctx.fence_proxy_async()
        # Not before * factor - base: see OnlineSoftmax.update.
        shrink = ctx.fragment(((before - largest) * factor).apply("exp2"))
        self.total.set(self.total * shrink + scores)
        for sums in self.sums:
            sums.set(sums * shrink)
        ctx.sync_warpgroup()


class WideColumns(ColumnAttention):
    """The role for a cache of 16 bits, which the tensor cores read from shared memory."""

    def __init__(self, of: Operands, results: ColumnResults, weights: tp.SmemTile) -> None:
        super().__init__(of, results, weights)
        self.factor = of.scale

    def load_queries(self, at: Segment) -> None:
        """Puts the queries of an item into shared memory."""
        self.ctx.store(self.of.tile, self.of.queries(at, self.results.width))

    def tile(self, at: Segment, key: tp.Value, consumer: tp.InputConsumer) -> None:
        """Adds the tile of a segment that begins at `key`."""
        ctx, of = self.ctx, self.of.sequences
        with consumer.acquire() as stage:
            k_tile, v_tile = stage.tile()
            ctx.mma(self.scores, k_tile, self.queries, accumulate=False)
            ctx.wgmma_commit()
            ctx.wgmma_wait(0)
            with ctx.when(of.seen.cuts(key, of.bn, at.keys)):
                self.mask(at, key)
                clear(self.of, at, key, v_tile)
            self.weigh()
            ctx.mma(self.sums[0], v_tile, self.weights.T)  # the release of the stage waits for it


class NarrowColumns(ColumnAttention):
    """The role for a cache of float8_e4m3, which becomes float16 in registers."""

    of: Scaled

    def __init__(self, of: Scaled, results: ColumnResults, weights: tp.SmemTile) -> None:
        super().__init__(of, results, weights)
        self.factor = of.ctx.fragment(shape=(1, self.n))

    def load_queries(self, at: Segment) -> None:
        """Puts the queries of an item into shared memory, and sets their factors."""
        ctx = self.ctx
        factor = ctx.fragment(self.of.scaled_queries(at))
        # Row i becomes column i.
        placed: Any = ctx.select(ctx.row_index(ROWS) == ctx.col_index(self.n), factor, 0.0)
        self.factor.set(ctx.fragment(placed).sum(axis=0))

    def value_factor(self, at: Segment) -> Any:
        """The factor of sums of weights · values."""
        return self.of.value_factor(at)

    def tile(self, at: Segment, key: tp.Value, consumer: tp.InputConsumer) -> None:
        """Adds the tile of a segment that begins at `key`."""
        ctx, of, half = self.ctx, self.of.sequences, self.results.width // 2
        with consumer.acquire() as stage:
            k_tile, v_tile = stage.tile()
            for side, part in enumerate([ctx.fragment(x) for x in widened(loaded(ctx, k_tile))]):
                elements = self.queries.cols(side * half, half)
                ctx.mma(self.scores, part, elements, accumulate=side > 0)
            ctx.wgmma_commit()
            words = loaded(ctx, v_tile)
        values = [ctx.fragment(x) for x in widened(words)]  # while the tensor cores multiply
        ctx.wgmma_wait(0)
        with ctx.when(of.seen.cuts(key, of.bn, at.keys)):
            self.mask(at, key)
        self.weigh()
        for sums, part in zip(self.sums, values, strict=True):
            ctx.mma(sums, part, self.weights.T)
        ctx.wgmma_commit()
        ctx.wgmma_wait(0)
