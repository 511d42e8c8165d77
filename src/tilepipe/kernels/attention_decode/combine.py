"""What the CTAs that share an item have found becomes its result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention_decode.pairs import joined
from tilepipe.kernels.attention_decode.shares import Segment, Share
from tilepipe.kernels.attention_decode.statistics import Statistics

THREADS = 128  # of a warpgroup
VECTOR = 8  # columns of a row that a thread holds beside each other


@dataclass(frozen=True, eq=False)
class Results:
    """Where results go.

    Attributes:
        out: (batch, tokens, kv_heads, group, d). lse: (batch, kv_heads, tokens, group) or None.
        parts: float32 (2 · CTAs, rows, d), or as a subclass has it: O of the segments of items that
            several CTAs share.
        part_stats: float32 (2 · CTAs, 2 or 3, rows): of each segment the largest scores and the
            totals of exponentials, then, where `scale` is None, the factors of scores.
        scale: the factor of all scores.
        tickets: int32 (batch · kv_heads,), 0 before and after.
        drawn: a number in shared memory.
        held: numbers of parts that a thread loads together.
        rows: queries of an item, `group` for each of `tokens`. width: of O, d and padding.
        pairs: what `out` has pairs of, as words, of a cache of 8 bits (`narrow`); None: it has its
            elements.
    """

    ctx: tp.Context
    out: tp.GlobalTensor
    lse: tp.GlobalTensor | None
    parts: tp.GlobalTensor
    part_stats: tp.GlobalTensor
    scale: tp.Value | None
    tickets: tp.GlobalTensor
    drawn: tp.SmemTile
    held: int
    group: int
    tokens: int
    width: int
    pairs: tp.DType | None = None

    @property
    def rows(self) -> int:
        """Queries of an item."""
        return self.group * self.tokens

    def finish(
        self,
        share: Share,
        at: Segment,
        store: Callable[[], None],
        store_part: Callable[[tp.Value], None],
    ) -> None:
        """Stores the result of an item that is this CTA's alone. Of another one writes the part
        that this CTA has to a place, and brings all together if the others have written theirs.
        """
        ctx = self.ctx
        with ctx.when(at.tiles == at.end - at.start):
            store()
        with ctx.otherwise():
            first, last = (
                ctx.let(share.of_tile(tile), name)
                for tile, name in ((at.start, "first_share"), (at.end - 1, "last_share"))
            )
            store_part(share.part(ctx.cluster_id, at.start))
            ticket = self.tickets[at.batch * share.sequences.heads + at.head]
            ctx.sync_warpgroup()  # all threads have written
            with ctx.elect_one("warpgroup"):
                ctx.store(self.drawn[0, 0], ctx.atomic_add(ticket, 1, order="acq_rel"))
            ctx.sync_warpgroup()  # all threads know the ticket, and come after the acquire
            with ctx.when(ctx.load(self.drawn[0, 0]) == last - first):
                self._combine(share, at, first, last)
                with ctx.elect_one("warpgroup"):
                    ctx.store(ticket, 0)

    def store(self, at: Segment, first: tp.Value | int, value: Any, logarithm: Any) -> None:
        """Writes rows of an item from `first` on, which are its tokens' one after the other."""
        ctx = self.ctx
        if self.pairs is not None:
            value = joined(ctx, value, self.pairs)
        for token in ctx.range(self.tokens):
            # Rows of other tokens are outside of the tensor, and dropped.
            row = first - token * self.group
            ctx.store_global(self.out, (at.batch, token, at.head, row, 0), value)
            if self.lse is not None:
                ctx.store_global(self.lse, (at.batch, at.head, token, row), logarithm)

    def store_part(self, value: Any, found: Statistics, part: tp.Value) -> None:
        """Writes the rows of a part."""
        self.ctx.store_global(self.parts, (part, 0, 0), value)
        self._store_statistics(found, part)

    def _store_statistics(self, found: Statistics, part: tp.Value) -> None:
        numbers = [found.largest, found.total] + [found.factor] * (self.scale is None)
        for i, x in enumerate(numbers):
            self.ctx.store_global(self.part_stats, (part, i, 0), x)

    def _combine(self, share: Share, at: Segment, first: tp.Value, last: tp.Value) -> None:
        """The result of an item, of the parts of the shares `first` to `last`, in their order."""
        ctx = self.ctx
        # that have whole vectors of a row, or of each of its halves: a power of two
        part = self.width if self.pairs is None else self.width // 2
        threads = (part & -part) // VECTOR
        layout, height = f"rows:{threads}", THREADS // threads
        at_once = max(self.held * threads // self.width, 1)  # parts
        top, shape = ((height, n) for n in (1, self.width))
        largest, total = (ctx.fragment(shape=top, layout=layout) for _ in range(2))
        sums = [ctx.fragment(shape=shape, layout=layout)]
        for block in ctx.range(-(-self.rows // height)):
            row = ctx.let(block * height, "row")

            def statistic(i: int, part: tp.Value, row: tp.Value = row) -> tp.Fragment:
                return ctx.load_global(self.part_stats, (part, i, row), top, layout=layout)

            def values(part: tp.Value, row: tp.Value = row) -> list[tp.Fragment]:
                return [ctx.load_global(self.parts, (part, row, 0), shape, layout=layout)]

            factor = self._factor(share.part(first, at.start), statistic)
            merged = Merged(Statistics(largest, total, factor), sums)
            merged.take(share, at, first, last, at_once, statistic, values)
            inverse, logarithm = merged.found.result(ctx)
            self.store(at, row, sums[0] * inverse, logarithm)

    def _factor(
        self, part: tp.Value, statistic: Callable[[int, tp.Value], tp.Fragment]
    ) -> tp.Value | tp.Fragment:
        """What scores are multiplied with: all parts of an item have the same."""
        return statistic(2, part) if self.scale is None else self.scale


@dataclass(frozen=True, eq=False)
class Merged:
    """What several parts become.

    Attributes:
        found: of all of them. sums: of O.
    """

    found: Statistics
    sums: list[tp.Fragment]

    def take(
        self,
        share: Share,
        at: Segment,
        first: tp.Value,
        last: tp.Value,
        at_once: int,
        statistic: Callable[[int, tp.Value], tp.Fragment],
        values: Callable[[tp.Value], list[tp.Fragment]],
    ) -> None:
        """Takes the parts of the shares `first` to `last`, `at_once` together.

        Args:
            statistic: number i of those of a part, as `Results.part_stats` has them. values: its O.
        """
        ctx, largest, total = share.sequences.ctx, self.found.largest, self.found.total
        largest.fill(-math.inf)
        for zero in (total, *self.sums):
            zero.fill(0)
        for step in ctx.range(ctx.ceil_div(last - first + 1, at_once)):
            shares = [first + step * at_once + i for i in range(at_once)]
            parts = [share.part(ctx.min(x, last), at.start) for x in shares]
            found = [(statistic(0, x), statistic(1, x), values(x)) for x in parts]
            for number, (top, _, _) in zip(shares, found, strict=True):
                top.set(ctx.select(number <= last, top, -math.inf))
            before = ctx.fragment(largest)
            for top, _, _ in found:
                largest.set(largest.maximum(top))
            base = ctx.fragment(ctx.select(largest == -math.inf, 0.0, largest))
            shrink = ctx.fragment(self._exp(before - base))
            total.set(total * shrink)
            for sums in self.sums:
                sums.set(sums * shrink)
            for top, theirs, part in found:
                weight = ctx.fragment(theirs * self._exp(top - base))
                total += weight
                for sums, value in zip(self.sums, part, strict=True):
                    sums += value * weight

    def _exp(self, below: Any) -> Any:
        """The exponential of a difference of scores, which is exact where they are near."""
        return (below * self.found.factor).apply("exp2")
