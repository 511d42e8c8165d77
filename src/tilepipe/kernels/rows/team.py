"""The warps or warpgroups that hold a row together, and how they exchange what each has made of its
part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.rows.config import VECTOR, WARP, RowConfig


def grid(x: tp.TensorMap, cfg: RowConfig) -> int:
    """CTAs that take a few rows each, and end."""
    return -(-x.shape[0] // cfg.cta_rows) * cfg.cluster


def part_rows(rows: int, cfg: RowConfig, sms: int) -> int:
    """Rows of the partial sums that CTAs leave which take one row after another: of as many as run
    at once, or as there are rows for.
    """
    return min(-(-rows // cfg.cta_rows), max(sms * cfg.ctas // cfg.cluster, 1)) * cfg.cta_rows


def standing_grid(
    x: tp.TensorMap, parts: tp.TensorMap | None, cfg: RowConfig, chip: tp.Chip
) -> int:
    """CTAs that take one row after another: those whose sums `parts` has room for."""
    rows = part_rows(x.shape[0], cfg, chip.sms) if parts is None else parts.shape[1]
    return rows // cfg.cta_rows * cfg.cluster


@dataclass(frozen=True, eq=False)
class RowTeam:
    """The groups, warps or warpgroups, of a CTA or of a cluster that hold rows together, in the
    order of their columns.

    Attributes:
        width: columns of each. slots: a value for each row, member, value and turn; None where a
            group has its rows for itself. values: that the members exchange at once. ragged:
            the last columns of the fragments lie outside the tensor.
    """

    ctx: tp.Context
    cfg: RowConfig
    width: int
    values: int
    ragged: bool
    slots: tp.SmemTile | None

    @classmethod
    def allocate(
        cls, ctx: tp.Context, cfg: RowConfig, columns: int, *, values: int = 1, turns: int = 1
    ) -> RowTeam:
        """In set-up code. `turns`: 2 where the members exchange values again and again: with one
        barrier an exchange, the values of the last but one have been read.
        """
        width, slots = cfg.width(columns), None
        if cfg.members > 1:
            count = turns * values * cfg.teams * cfg.members * cfg.rows
            slots = ctx.smem((count, 1), "float32", swizzle=0, name="parts_of_rows")[0]
        return cls(ctx, cfg, width, values, width * cfg.members != columns, slots)

    @property
    def layout(self) -> str:
        """The layout of the fragments."""
        return f"rows:{self.cfg.threads}"

    @property
    def group(self) -> tp.Value:
        """The number of this group in its CTA."""
        return self.ctx.warp if self.cfg.group == WARP else self.ctx.warpgroup_rank

    @property
    def member(self) -> tp.Value:
        """The number of this group in its team."""
        ctx, parts = self.ctx, self.cfg.parts
        part = self.group if self.cfg.teams == 1 else self.group % parts
        return part if self.cfg.cluster == 1 else ctx.cta_rank * parts + part

    @property
    def column(self) -> tp.Scalar:
        """The first column of this group."""
        return 0 if self.cfg.members == 1 else self.member * self.width

    def row(self, turn: tp.Scalar = 0) -> tp.Value:
        """The first row of this group in a turn of its cluster."""
        ctx, cfg = self.ctx, self.cfg
        team = self.group // cfg.parts
        return (ctx.cluster_id + turn * ctx.num_clusters) * cfg.cta_rows + team * cfg.rows

    def load(self, x: tp.GlobalTensor, row: tp.Scalar) -> tp.Fragment:
        """This group's part of rows of a matrix; zero outside."""
        shape = self.cfg.rows, self.width
        return self.ctx.load_global(x, (row, self.column), shape, layout=self.layout)

    def store(
        self, y: tp.GlobalTensor, row: tp.Scalar, value: tp.FragmentValue, start: int = 0
    ) -> None:
        """Writes it, or what begins at column `start` of it."""
        self.ctx.store_global(y, (row, self.column + start), value)

    def load_columns(
        self, weight: tp.GlobalTensor, start: int = 0, count: int | None = None
    ) -> tp.Fragment:
        """This group's part of a vector with a value for each column, or `count` columns of it."""
        shape = 1, count or self.width
        return self.ctx.load_global(weight, (self.column + start,), shape, layout=self.layout)

    def pieces(self) -> list[tuple[int, int]]:
        """(first column, columns) of pieces of this group's part, of up to four vectors of a
        thread, and at least two pieces where there are two vectors: what is loaded for one after
        the other takes few registers.
        """
        step = VECTOR * self.cfg.threads
        vectors = self.width // step
        each = min(4, max(vectors // 2, 1))
        return [(i * step, min(each, vectors - i) * step) for i in range(0, vectors, each)]

    def fragment(self, dtype: object = "float32", cols: int = 0) -> tp.Fragment:
        """A fragment of this group's rows, of zeros; `cols`: its columns, unless all."""
        made = self.ctx.fragment(
            shape=(self.cfg.rows, cols or self.width), dtype=dtype, layout=self.layout
        )
        made.fill(0)
        return made

    def columns(self) -> tp.FragmentValue:
        """The number of each column, (1, width)."""
        index = self.ctx.col_index(self.width, layout=self.layout)
        return index if self.cfg.members == 1 else index + self.column

    def inside(
        self, x: tp.GlobalTensor, value: tp.FragmentValue, outside: float
    ) -> tp.FragmentValue:
        """`value`, and `outside` beyond the last column of `x`."""
        if not self.ragged:
            return value
        return self.ctx.select(self.columns() < x.shape[1], value, outside)

    def exchange(self, *values: tp.Fragment, turn: tp.Scalar = 0) -> list[tp.Fragment]:
        """What each member has of each of these (1, 1), as (members, 1): the lanes of each warp
        hold them all.
        """
        ctx, cfg, members = self.ctx, self.cfg, self.cfg.members
        assert self.slots is not None
        slots, team, found = self.slots, self.group // cfg.parts, []
        for i, x in enumerate(values):
            first = ((turn * self.values + i) * cfg.teams + team) * members
            mine = slots.rows(first + self.member, 1)
            for cta in range(cfg.cluster):
                ctx.store(mine if cfg.cluster == 1 else mine.on(cta), x)
        if cfg.cluster == 1:
            ctx.sync_role()
        else:
            ctx.cluster_arrive()
            ctx.cluster_wait()
        for i, _ in enumerate(values):
            first = ((turn * self.values + i) * cfg.teams + team) * members
            layout = f"rows:{max(WARP // members, 1)}"
            theirs = ctx.fragment(shape=(members, 1), dtype="float32", layout=layout)
            theirs.load(slots.rows(first, members))
            found.append(theirs)
        return found

    def joined(self, value: tp.Value) -> tp.Fragment:
        """What a warp has made of all members' values, for its row."""
        whole = self.fragment(cols=1)
        whole.fill(value)
        return whole

    def sums(self, *values: tp.FragmentValue, turn: tp.Scalar = 0) -> list[tp.Fragment]:
        """The sums over the columns of all members, always added in the same order."""
        mine = [x.sum() for x in values]
        if self.cfg.members == 1:
            return mine
        theirs = self.exchange(*mine, turn=turn)
        return [self.joined(x.sum(axis=None)) for x in theirs]

    def each(
        self, rows: tp.Scalar, *tensors: tp.GlobalTensor
    ) -> Iterator[tuple[tp.Value, tp.Value, list[tp.Fragment]]]:
        """(turn, first row, the rows of each tensor) of one turn after another of a CTA that stays.
        With `ahead`, the next rows are loaded before those of a turn are computed.
        """
        ctx, cfg = self.ctx, self.cfg
        step = ctx.num_clusters * cfg.cta_rows
        turns = ctx.ceil_div(rows - ctx.cluster_id * cfg.cta_rows, step)
        if cfg.ahead == 1:
            for turn in ctx.range(turns):
                row = ctx.let(self.row(turn), "row")
                yield turn, row, [self.load(x, row) for x in tensors]
            return
        coming = [self.load(x, self.row()) for x in tensors]
        for turn in ctx.range(turns):
            row = ctx.let(self.row(turn), "row")
            here = [ctx.fragment(x) for x in coming]
            for x, tensor in zip(coming, tensors, strict=True):
                x.set(self.load(tensor, row + step))
            yield turn, row, here
