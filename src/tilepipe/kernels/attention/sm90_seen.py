"""Attention on Hopper: which tiles of keys a tile of queries sees, and which a mask cuts."""

from __future__ import annotations

from dataclasses import dataclass

import tilepipe as tp


@dataclass(frozen=True, eq=False)
class SeenKeys:
    """Which keys queries see: a `Window` as a kernel gets it, in tiles of bm queries and bn keys.

    A tile of queries is given by its `place`: the key at which its first query stands.

    Attributes:
        on_left, on_right: whether queries see only some keys on that side, which is static. left,
            right: how many. from_first: as of `Window`.
    """

    ctx: tp.Context
    bm: int
    bn: int
    on_left: bool
    on_right: bool
    from_first: bool
    left: tp.Value
    right: tp.Value

    def end(self, place: tp.Value, keys: tp.Value) -> tp.Value:
        """The tile of keys after the last that a query sees, of a sequence of so many keys."""
        ctx, end = self.ctx, self.ctx.ceil_div(keys, self.bn)
        if self.on_right:
            stop = ctx.max(place + self.bm + self.right, 0)
            end = ctx.min(end, ctx.ceil_div(stop, self.bn))
        return ctx.let(end, "end")

    def blocks(self, place: tp.Value, end: tp.Value) -> tp.Value:
        """How many tiles of keys before `end` a query sees."""
        ctx = self.ctx
        if not self.on_left:
            return end
        return ctx.max(end - ctx.max(place - self.left, 0) // self.bn, 0)

    def clear(self, place: tp.Value) -> tp.Value:
        """How many tiles of keys, from the first key on, the right side does not cut."""
        return self.ctx.max(place + (1 + self.right), 0) // self.bn

    def cut(self, place: tp.Value) -> tp.Value:
        """How many tiles of keys, from the first key on, the left side cuts or hides."""
        ctx = self.ctx
        return ctx.ceil_div(ctx.max(place + (self.bm - 1) - self.left, 0), self.bn)
