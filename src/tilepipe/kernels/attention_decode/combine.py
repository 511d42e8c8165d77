"""What the CTAs that share an item have found becomes its result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention_decode.pairs import joined
from tilepipe.kernels.attention_decode.shares import Segment, Share

THREADS = 128  # of a warpgroup
VECTOR = 8  # columns of a row that a thread holds beside each other


@dataclass(frozen=True, eq=False)
class Results:
    """Where results go.

    Attributes:
        out: (batch, tokens, kv_heads, group, d). lse: (batch, kv_heads, tokens, group) or None.
        parts: float32 (2 · CTAs, rows, d), or as a subclass has it, part_lse: float32 (2 · CTAs,
            rows): of the segments of items that several CTAs share, O and the logarithm of the sum
            of exponentials.
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
    part_lse: tp.GlobalTensor
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

    def store_part(self, value: Any, logarithm: Any, part: tp.Value) -> None:
        """Writes the rows of a part."""
        self.ctx.store_global(self.parts, (part, 0, 0), value)
        self.ctx.store_global(self.part_lse, (part, 0), logarithm)

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
        merged = Merged(largest, total, [ctx.fragment(shape=shape, layout=layout)])
        for block in ctx.range(-(-self.rows // height)):
            row = ctx.let(block * height, "row")

            def load(part: tp.Value, row: tp.Value = row) -> tuple[tp.Fragment, list[tp.Fragment]]:
                return (
                    ctx.load_global(self.part_lse, (part, row), top, layout=layout),
                    [ctx.load_global(self.parts, (part, row, 0), shape, layout=layout)],
                )

            inverse, logarithm = merged.take(share, at, first, last, at_once, load)
            self.store(at, row, merged.sums[0] * inverse, logarithm)


@dataclass(frozen=True, eq=False)
class Merged:
    """What several parts become.

    Attributes:
        largest, total: of the logarithms, and of the exponentials below it. sums: of O.
    """

    largest: tp.Fragment
    total: tp.Fragment
    sums: list[tp.Fragment]

    def take(
        self,
        share: Share,
        at: Segment,
        first: tp.Value,
        last: tp.Value,
        at_once: int,
        load: Callable[[tp.Value], tuple[tp.Fragment, list[tp.Fragment]]],
    ) -> tuple[tp.FragmentValue, tp.FragmentValue]:
        """Takes the parts of the shares `first` to `last`, which `load` gives, `at_once` together.

        Returns:
            What the sums are multiplied with, and the logarithm.
        """
        ctx, largest, total = share.sequences.ctx, self.largest, self.total
        largest.fill(-math.inf)
        for zero in (total, *self.sums):
            zero.fill(0)
        for step in ctx.range(ctx.ceil_div(last - first + 1, at_once)):
            shares = [first + step * at_once + i for i in range(at_once)]
            found = [load(share.part(ctx.min(x, last), at.start)) for x in shares]
            for number, (top, _) in zip(shares, found, strict=True):
                top.set(ctx.select(number <= last, top, -math.inf))
            before = ctx.fragment(largest)
            for top, _ in found:
                largest.set(largest.maximum(top))
            base = ctx.fragment(ctx.select(largest == -math.inf, 0.0, largest))
            shrink = ctx.fragment(_exp(before - base))
            total.set(total * shrink)
            for sums in self.sums:
                sums.set(sums * shrink)
            for top, values in found:
                weight = ctx.fragment(_exp(top - base))
                total += weight
                for sums, value in zip(self.sums, values, strict=True):
                    sums += value * weight
        nothing: Any = total == 0.0
        inverse = ctx.fragment(ctx.select(nothing, 0.0, 1.0 / total))
        logarithm = largest + total.apply("log2") * math.log(2)
        return inverse, ctx.select(nothing, -math.inf, logarithm)


def _exp(x: Any) -> Any:
    return (x * math.log2(math.e)).apply("exp2")
