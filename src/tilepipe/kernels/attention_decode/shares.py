"""How the CTAs of a launch share the keys of all sequences, whose lengths only the GPU knows.

The keys of a sequence are cut into tiles. One after the other, the tiles of each *item*, a sequence
and a head of K and V, are one row of tiles, of which each CTA takes an equal share. Of 2 sequences
of 5 and 2 tiles, 2 heads and 4 CTAs:

    sequence  0 0 0 0 0 0 0 0 0 0 1 1 1 1
    head      0 0 0 0 0 1 1 1 1 1 0 0 1 1
    share     0 0 0 0 1 1 1 1 2 2 2 2 3 3

An item that lies in one share is that CTA's alone. Of another one several CTAs have a *segment*
each, whose sums are brought together. A role finds the share by itself, from the lengths of all
sequences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention_decode.seen import Seen

LANES = 8  # over which the lengths of a chunk are spread, 8 beside each other
CHUNK = 64  # sequences whose lengths are loaded at once
LARGEST = 8  # power of two of which a share may be made a multiple
ROUNDED = 16  # a share is larger by one in so many, at most, where that cuts fewer sequences


def share_size(total: int, ctas: int) -> int:
    """The tiles of a share, of so many in all: as the kernel finds it."""
    step = max(-(-total // ctas), 1)
    granule = 1 << min(max((step // ROUNDED).bit_length() - 1, 0), LARGEST)
    return -(-step // granule) * granule


@dataclass(frozen=True, eq=False)
class Segment:
    """The tiles [first, first + tiles) of a sequence that one share has, of a head of K and V.

    Attributes:
        batch, head: the sequence, and the head of K and V. keys: of the sequence.
        start, end: where the item's tiles begin and end in the row of all.
    """

    batch: tp.Value
    head: tp.Value
    keys: tp.Value
    start: tp.Value
    end: tp.Value
    first: tp.Value
    tiles: tp.Value


@dataclass(frozen=True, eq=False)
class Sequences:
    """The sequences of a launch.

    Attributes:
        lengths: int32 (batch,), how many keys each has; None: as many as the cache.
        capacity: keys that the cache has room for; greater lengths count as this one.
        heads: of K and V. bn: keys of a tile. seen: which keys the queries see; only tiles of these
            are shared.
    """

    ctx: tp.Context
    lengths: tp.GlobalTensor | None
    capacity: tp.Value
    batch: tp.Value
    heads: tp.Value
    bn: int
    seen: Seen

    def share(self) -> Share:
        """The share of this CTA. By each role that needs it."""
        ctx = self.ctx
        chunks = ctx.let(ctx.ceil_div(self.batch, CHUNK), "chunks")
        counts = self._counts(0)
        here = ctx.let(counts.sum(axis=None), "tiles_of_chunk")
        every = ctx.var(here)
        for chunk in ctx.range(1, chunks):
            every += self._counts(chunk).sum(axis=None)
        total = ctx.let(every.get() * self.heads, "total")
        step = self._rounded(ctx.let(ctx.ceil_div(total, ctx.num_clusters), "equal_share"))
        begin = ctx.let(ctx.min(ctx.cluster_id * step, total), "begin")

        def passed(counts: tp.Fragment, earlier: Any) -> tuple[tp.Value, tp.Value]:
            """Of the sequences of a chunk, after `earlier` tiles, those that end before the share
            begins: how many they are, and their tiles.
            """
            ends: Any = counts.cumsum() + earlier
            ended = ctx.fragment(ctx.select(ends * self.heads <= begin, 1, 0))
            return ended.sum(axis=None), ctx.fragment(ended * counts).sum(axis=None)

        batch, tiles = map(ctx.var, passed(counts, 0))
        earlier = ctx.var(here)
        for chunk in ctx.range(1, chunks):
            others = self._counts(chunk)
            number, theirs = passed(others, earlier.get())
            batch += number
            tiles += theirs
            earlier += others.sum(axis=None)
        return Share(
            self,
            step,
            begin,
            ctx.let(ctx.min(begin + step, total), "end"),
            # past the last where the share is empty
            ctx.let(ctx.min(batch.get(), self.batch - 1), "first_batch"),
            ctx.let(tiles.get() * self.heads, "passed"),
        )

    def _rounded(self, step: tp.Value) -> tp.Value:
        """A share, up to a sixteenth more: a multiple of the largest power of two up to that, which
        cuts fewer sequences where their lengths are powers of two, or have large ones as factors.
        """
        ctx, granule = self.ctx, self.ctx.select(step >= 2 * ROUNDED, 2, 1)
        for i in range(2, LARGEST + 1):
            granule = ctx.select(step >= ROUNDED << i, 1 << i, granule)
        granule = ctx.let(granule, "granule")
        return ctx.let(ctx.max(ctx.ceil_div(step, granule), 1) * granule, "step")

    def _counts(self, chunk: tp.Value | int) -> tp.Fragment:
        """The tiles of a head of CHUNK sequences, 0 of those that there are not."""
        ctx, layout = self.ctx, f"rows:{LANES}"
        first: Any = chunk * CHUNK
        number: Any = first + ctx.col_index(CHUNK, layout=layout)
        tiles: Any = self.tiles(self.capacity)
        if self.lengths is not None:
            found = ctx.load_global(self.lengths, (first,), (1, CHUNK), layout=layout)
            keys: Any = found.maximum(1).minimum(self.capacity)
            tiles = (keys + (self.bn - 1)) // self.bn - self.seen.skipped(keys, self.bn)
        return ctx.fragment(ctx.select(number < self.batch, tiles, 0))

    def keys(self, batch: tp.Value) -> tp.Value:
        """The number of keys of a sequence."""
        ctx = self.ctx
        if self.lengths is None:
            return self.capacity
        found = ctx.max(ctx.load(self.lengths[batch]), 0)
        return ctx.let(ctx.min(found, self.capacity), "keys")

    def tiles(self, keys: tp.Value) -> tp.Value:
        """How many tiles an item has: one at least, so that some share writes its result."""
        ctx = self.ctx
        end = ctx.max(ctx.ceil_div(keys, self.bn), 1)
        return ctx.let(end - self.seen.skipped(keys, self.bn), "tiles")


@dataclass(frozen=True, eq=False)
class Share:
    """The tiles [begin, end) of the row that a CTA takes; all shares but the last have `step`.

    Attributes:
        batch: the sequence of the first tile. passed: the tiles of the sequences before it.
    """

    sequences: Sequences
    step: tp.Value
    begin: tp.Value
    end: tp.Value
    batch: tp.Value
    passed: tp.Value

    def segments(self) -> Iterator[Segment]:
        """For each item of which the share has tiles, in their order: one traced loop."""
        of = self.sequences
        ctx = of.ctx
        place, batch_now, passed = ctx.var(self.begin), ctx.var(self.batch), ctx.var(self.passed)
        more = ctx.var(self.begin < self.end)
        for _ in ctx.loop_while(more):
            at, batch = ctx.let(place.get(), "place"), ctx.let(batch_now.get(), "batch")
            before = ctx.let(passed.get(), "before")
            keys = of.keys(batch)
            tiles = of.tiles(keys)
            head = ctx.let((at - before) // tiles, "head")
            start = ctx.let(before + head * tiles, "start")
            stop = ctx.let(ctx.min(self.end, start + tiles), "stop")
            first = at - start + of.seen.skipped(keys, of.bn)
            yield Segment(batch, head, keys, start, start + tiles, first, stop - at)
            place.set(stop)
            with ctx.when(stop == before + of.heads * tiles):
                batch_now.set(batch + 1)
                passed.set(stop)
            more.set(stop < self.end)

    def of_tile(self, tile: tp.Value) -> tp.Value:
        """The number of the share that has a tile of the row."""
        return tile // self.step

    def part(self, number: tp.Value, start: tp.Value) -> tp.Value:
        """The place of a share's sums of the item that begins at `start`. A share has two: of the
        item that it begins with, and of the one that it ends with.
        """
        return number * 2 + self.sequences.ctx.select(number * self.step < start, 1, 0)
