"""Where the keys and values of a sequence lie: beside each other, or in pages."""

from __future__ import annotations

from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.attention_decode.shares import Segment

ONCE = "evict_first"  # how long L2 keeps what one CTA reads, once


@dataclass(frozen=True, eq=False)
class Box:
    """A box of K and of V: `place`, its batch or page, `key`, its first key there, and `row`, the
    row of the tile at which it begins.
    """

    place: tp.Value
    key: tp.Value | int
    row: int


@dataclass(frozen=True, eq=False)
class Cache:
    """The arrays of K and V.

    Attributes:
        table: the pages of each sequence; None: the cache has none. page: keys of a page.
        bn: keys of a tile, which several pages make up, or which is a part of one.
        turned: whether V is (..., d, s) and not (..., s, d), as K is.
    """

    ctx: tp.Context
    k: tp.GlobalTensor
    v: tp.GlobalTensor
    table: tp.GlobalTensor | None
    page: int
    bn: int
    turned: bool

    def boxes(self, at: Segment, key: tp.Value) -> list[Box]:
        """The boxes of the tile of a sequence that begins at `key`. After the last page of a
        sequence comes that page again: something must arrive, which nobody sees.
        """
        ctx = self.ctx
        if self.table is None:
            return [Box(at.batch, key, 0)]
        last = ctx.max(ctx.ceil_div(at.keys, self.page) - 1, 0)
        found = []
        for row in range(0, self.bn, min(self.bn, self.page)):
            number = ctx.min((key + row) // self.page, last)
            place = ctx.let(ctx.load(self.table[at.batch, number]), "page")
            found.append(Box(place, key % self.page if self.page > self.bn else 0, row))
        return found

    def load(
        self,
        at: Segment,
        boxes: list[Box],
        k_tile: tp.SmemTile,
        v_tile: tp.SmemTile,
        barrier: tp.MbarPtr,
    ) -> None:
        """Starts the copies of a tile. One lane."""
        rows = self.bn // len(boxes)
        for box in boxes:
            where: tuple[tp.Value | int, ...] = box.place, at.head, box.key, 0
            self.ctx.tma_load(self.k, where, k_tile.rows(box.row, rows), barrier, l2=ONCE)
            if self.turned:
                where = box.place, at.head, 0, box.key
            part = (v_tile.cols if self.turned else v_tile.rows)(box.row, rows)
            self.ctx.tma_load(self.v, where, part, barrier, l2=ONCE)
