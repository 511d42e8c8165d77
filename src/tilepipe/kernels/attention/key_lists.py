"""Which tiles of keys each tile of queries walks under a block mask: lists in GPU memory, which a
kernel of its own writes before attention reads them.

A block mask is boolean, (batch or 1, heads or 1, blocks of queries, blocks of keys), true where a
block is computed. The list of a tile of queries is a row of int32 in (batch or 1, heads or 1, tiles
of queries, `HEAD` + tiles of keys):

    0           how many tiles of keys are walked
    1           the first step, after step 0, whose tile the mask's right side does not cut
    2           the first step from there on whose tile the left side cuts
    HEAD + i    the tile of keys that step i takes, the last first

Tiles that causal masks and windows hide are not in it. So the roles of attention read what they
would compute without a block mask, and blocks that are false cost nothing there.
"""

from __future__ import annotations

from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.attention.sm90_seen import SeenKeys

HEAD = 3  # numbers before the tiles
LANES = 32


@dataclass(frozen=True, eq=False)
class KeyList:
    """The list of one tile of queries: row `index` of `lists`."""

    ctx: tp.Context
    lists: tp.GlobalTensor
    index: tuple[tp.Value, ...]

    @classmethod
    def of(
        cls,
        ctx: tp.Context,
        lists: tp.GlobalTensor,
        batch: tp.Value,
        head: tp.Value,
        tile: tp.Value,
    ) -> KeyList:
        """The list of a tile of queries; a mask of one batch, or one head, is that of all."""
        outer = (ctx.min(x, n - 1) for x, n in zip((batch, head), lists.shape, strict=False))
        return cls(ctx, lists, (*outer, tile))

    def _number(self, i: tp.Scalar, name: str) -> tp.Value:
        return self.ctx.let(self.ctx.load(self.lists[(*self.index, i)]), name)

    @property
    def length(self) -> tp.Value:
        """The number of tiles of keys that are walked."""
        return self._number(0, "length")

    @property
    def clear(self) -> tp.Value:
        """The first step, after step 0, whose tile the right side of the mask does not cut."""
        return self._number(1, "clear")

    @property
    def on_left(self) -> tp.Value:
        """The first step, from `clear` on, whose tile the left side of the mask cuts."""
        return self._number(2, "last")

    def tile(self, i: tp.Scalar) -> tp.Value:
        """The tile of keys that step `i` takes."""
        return self._number(HEAD + i, "key_tile")


def grid(lists: tp.TensorMap) -> int:
    """A warp for each list."""
    batch, heads, tiles, _ = lists.shape
    return batch * heads * tiles


@tp.kernel(grid=grid)
def list_keys(
    ctx: tp.Context,
    mask: tp.GlobalTensor,
    lists: tp.GlobalTensor,
    s_q: tp.Value,
    s_kv: tp.Value,
    left: tp.Value,
    right: tp.Value,
    *,
    bm: int,
    bn: int,
    block: tuple[int, int],
    sides: tuple[bool, bool],
    from_first: bool,
) -> None:
    """Writes `lists` for a `mask` of blocks of (queries, keys): 32 tiles of keys at once, one for
    each lane.
    """
    seen = SeenKeys(ctx, bm, bn, *sides, from_first, left, right)
    block_q, block_k = block

    @ctx.role("list", warps=1)
    def write() -> None:
        _, heads, tiles, _ = lists.shape
        tile = ctx.let(ctx.block_id % tiles, "tile")
        head = ctx.let(ctx.block_id // tiles % heads, "head")
        batch = ctx.let(ctx.block_id // (tiles * heads), "batch")
        place = tile * bm if from_first else tile * bm + (s_kv - s_q)
        place = ctx.let(place, "place")
        end = seen.end(place, s_kv)
        blocks = ctx.let(seen.blocks(place, end), "blocks")
        length, clear, last = (ctx.var(ctx.warp * 0) for _ in range(3))  # of the warp
        for chunk in ctx.range(ctx.ceil_div(blocks, LANES)):
            i = chunk * LANES + ctx.lane
            key_tile = ctx.let(ctx.max(end - 1 - i, 0), "key_tile")
            there = mask[batch, head, tile * bm // block_q, key_tile * bn // block_k]
            walked = ctx.let((i < blocks) & (ctx.load(there) != 0), "walked")
            # how many lanes up to this one have a tile that is walked
            upto = ctx.var(ctx.select(walked, 1, 0))
            for step in (1, 2, 4, 8, 16):
                other = ctx.shuffle(upto.get(), ctx.max(ctx.lane - step, 0))
                upto.set(upto.get() + ctx.select(ctx.lane >= step, other, 0))
            with ctx.when(walked):
                ctx.store(lists[batch, head, tile, HEAD - 1 + length.get() + upto.get()], key_tile)

            def count(of: tp.Var, cond: tp.Value) -> None:
                of.set(of.get() + ctx.reduce_lanes("add", ctx.select(cond, 1, 0)))

            count(length, walked)
            if seen.on_right:
                count(clear, walked & (key_tile >= seen.clear(place)))
            if seen.on_left:
                count(last, walked & (key_tile >= seen.cut(place)))
        first_clear = ctx.let(ctx.min(length.get(), ctx.max(clear.get(), 1)), "first_clear")
        with ctx.elect_one():
            ctx.store(lists[batch, head, tile, 0], length.get())
            ctx.store(lists[batch, head, tile, 1], first_clear)
            ctx.store(lists[batch, head, tile, 2], ctx.max(first_clear, last.get()))
