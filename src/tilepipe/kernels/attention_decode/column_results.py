"""Where results go that have a query in each column, and elements of a head in rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention_decode.combine import THREADS, VECTOR, Merged, Results
from tilepipe.kernels.attention_decode.config import columns
from tilepipe.kernels.attention_decode.pairs import paired
from tilepipe.kernels.attention_decode.shares import Segment, Share
from tilepipe.kernels.attention_decode.statistics import Statistics


@dataclass(frozen=True, eq=False)
class ColumnResults(Results):
    """Where results go.

    Attributes:
        out: (batch, tokens, kv_heads, d, group); with `pairs` (..., d / 2, group), words.
        parts: (2 · CTAs, width, columns); with `pairs` even elements of heads, then odd ones.
    """

    @property
    def columns(self) -> int:
        """Columns, of which the queries are the first."""
        return columns(self.rows)

    @property
    def sides(self) -> int:
        """Fragments of values: all elements of heads, or the even and the odd ones."""
        return 1 if self.pairs is None else 2

    @property
    def height(self) -> int:
        """Rows of one of them."""
        return self.width // self.sides

    def store_columns(self, at: Segment, values: list[Any], logarithm: Any) -> None:
        """Writes an item, whose columns are its tokens' queries one after the other."""
        ctx = self.ctx
        value = values[0]
        if self.pairs is not None:
            value = paired(ctx, value, values[1], self.pairs)
        for token in ctx.range(self.tokens):
            # Columns of other tokens are outside of the tensor, and dropped.
            column = -token * self.group
            ctx.store_global(self.out, (at.batch, token, at.head, 0, column), value)
            if self.lse is not None:
                ctx.store_global(self.lse, (at.batch, at.head, token, column), logarithm)

    def store_part_columns(self, values: list[Any], found: Statistics, part: tp.Value) -> None:
        """Writes the columns of a part."""
        for side, value in enumerate(values):
            self.ctx.store_global(self.parts, (part, side * self.height, 0), value)
        self._store_statistics(found, part)

    def _combine(self, share: Share, at: Segment, first: tp.Value, last: tp.Value) -> None:
        ctx, n = self.ctx, self.columns
        threads = (n & -n) // VECTOR  # of a row of a part, whose elements are columns
        layout, beside = f"rows:{threads}", THREADS // threads
        shape = -(-self.height // beside) * beside, n  # what is beyond `height` is dropped
        largest, total = (ctx.fragment(shape=(1, n), layout=layout) for _ in range(2))
        sums = [ctx.fragment(shape=shape, layout=layout) for _ in range(self.sides)]

        def statistic(i: int, part: tp.Value) -> tp.Fragment:
            return ctx.load_global(self.part_stats, (part, i, 0), (1, n), layout=layout)

        def values(part: tp.Value) -> list[tp.Fragment]:
            rows = [side * self.height for side in range(self.sides)]
            return [
                ctx.load_global(self.parts, (part, row, 0), shape, layout=layout) for row in rows
            ]

        factor = self._factor(share.part(first, at.start), statistic)
        merged = Merged(Statistics(largest, total, factor), sums)
        # numbers of a part that a thread has: of each row, and two statistics
        numbers = n // threads * (self.sides * shape[0] // beside + 2)
        at_once = max(self.held // numbers, 1)
        merged.take(share, at, first, last, at_once, statistic, values)
        inverse, logarithm = merged.found.result(ctx)
        self.store_columns(at, [x * inverse for x in sums], logarithm)
