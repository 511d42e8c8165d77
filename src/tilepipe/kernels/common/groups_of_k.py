"""Groups that share K: the part of each, which only the GPU knows, for the roles of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

import tilepipe as tp


@dataclass(frozen=True, eq=False)
class Span:
    """The part of K of a group, and the K tiles that it takes."""

    first: tp.Value
    end: tp.Value
    steps: tp.Value


@dataclass(frozen=True, eq=False)
class Groups:
    """How K is divided: `offsets`, `extent` of K, `bk` of a K tile. `aligned`: groups end at
    multiples of bk, to which offsets are rounded down, or with K.
    """

    ctx: tp.Context
    offsets: tp.GlobalTensor
    extent: tp.Value
    bk: int
    aligned: bool = False

    def walk(self) -> Walk:
        """In a role, before its first tile."""
        return Walk(self)


class Walk:
    """The groups in one role, which comes to them in ascending order: it reads each offset once.
    An offset below the one before it makes an empty group, one beyond K counts as the end of K.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        ctx = groups.ctx
        self._group, self._first, self._end = ctx.var(-1), ctx.var(0), ctx.var(0)

    def to(self, group: tp.Value) -> Span:
        """Goes on to `group`."""
        ctx, groups = self._groups.ctx, self._groups
        behind = ctx.var(self._group.get() < group)
        for _ in ctx.loop_while(behind):
            self._group.set(self._group + 1)
            self._first.set(self._end.get())
            offset = ctx.load(groups.offsets[self._group.get()])
            if groups.aligned:
                down = ctx.max(offset, 0) // groups.bk * groups.bk
                offset = ctx.select(offset < groups.extent, down, offset)
            self._end.set(ctx.max(ctx.min(offset, groups.extent), self._end.get()))
            behind.set(self._group.get() < group)
        first = ctx.let(ctx.max(self._first.get(), 0), "first")
        end = ctx.let(ctx.max(self._end.get(), first), "end")
        return Span(first, end, ctx.let(ctx.ceil_div(end - first, groups.bk), "k_steps"))
