"""GroupedScheduler: the output tiles of many products whose numbers of rows only the GPU knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tilepipe.errors import TraceError
from tilepipe.ir import dtypes, ops
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import Extent, Index
from tilepipe.lang.arguments.member_checks import require_positive
from tilepipe.lang.context.context import Context
from tilepipe.lang.control.loops import while_loop
from tilepipe.lang.memory.global_tensors import GlobalTensor
from tilepipe.lang.values.scalars import Value, traced_value
from tilepipe.lang.values.variables import Var
from tilepipe.pipelines.schedulers.static import GROUP, Raster, WorkTile


@dataclass(frozen=True, eq=False, kw_only=True)
class GroupedTile(WorkTile):
    """One output tile of a `GroupedScheduler`: `m` and `n` count tiles within the group, `batch` is
    the group.

    Attributes:
        row: the tile's first row among those of all groups; of a padded schedule, of its group's.
        end: the row after the group's last. Rows of the tile from there on belong to another group
            and must not be written. At or below `row` where a CTA of a cluster has no tile.
    """

    row: Value
    end: Value


class GroupedScheduler:
    """A persistent schedule of the tiles of `offsets.shape[0]` products of different heights, whose
    rows follow each other.

    Group g has the rows from the end of group g - 1 (0 for the first) up to offsets[g], which the
    kernel reads while it runs: the host need not know them. An offset below the one before it makes
    an empty group; one above `rows` counts as `rows`. Rows beyond the last group belong to none.

    `padded`: each group has a matrix of its own, of `rows` rows, and offsets[g] says how many of
    them are used: none where it is below 0, all where it is above `rows`. `row` and `end` of its
    tiles count within that matrix.

    The tiles of a group begin at its first row, wherever that is. Its steps follow each other in
    the order of `TileOrder`, followed by those of the next group; cluster c takes steps c, c +
    clusters, ... Each role reads the offsets itself, once, and finds the same tiles.

    Args:
        offsets: int32, one for each group.
        rows: rows of the tensor: those of all groups, and perhaps more; if `padded`, of each group.
        tile_rows: rows of a tile.
        columns: tiles along N, the same for all groups.
        cluster, raster, group: as of `TileOrder`.

    Raises:
        TraceError: offsets is no such tensor, or the raster or cluster is impossible.
    """

    def __init__(
        self,
        ctx: Context,
        offsets: GlobalTensor,
        *,
        rows: Extent | None,
        tile_rows: int,
        columns: Extent,
        cluster: tuple[int, int] | None = None,
        raster: str = "grouped",
        group: int = GROUP,
        padded: bool = False,
    ) -> None:
        if (
            not isinstance(offsets, GlobalTensor)
            or offsets.dtype is not dtypes.int32
            or offsets.rank != 1
        ):
            raise TraceError(
                "the offsets of a GroupedScheduler are an int32 tensor with one element a group,"
                f" got {offsets!r}",
                caller(),
            )
        require_positive(" of a GroupedScheduler", tile_rows=tile_rows)
        self._ctx = ctx
        self._offsets = offsets
        self._rows = ctx._value(rows)
        self._tile_rows = tile_rows
        self._padded = padded
        self._raster = Raster.checked(ctx, cluster, raster, group)
        self._columns = ctx._value(ctx.ceil_div(ctx._value(columns), self._raster.cluster[1]))

    def __iter__(self) -> Iterator[GroupedTile]:
        return iter(_Walk(self, 0, 1))

    def share(self, rank: Index, of: int) -> Iterable[GroupedTile]:
        """Every `of`-th of the tiles, from the `rank`-th: as `StaticScheduler.share`."""
        if not isinstance(of, int) or of < 1:
            raise TraceError(f"tiles are shared among at least 1, got of={of!r}", caller())
        self._ctx._value(rank)  # raises if it belongs to another kernel, even where of=1
        return _Walk(self, rank, of)


@dataclass(eq=False)
class _Walk:
    """The tiles of all groups in one role."""

    _scheduler: GroupedScheduler
    _rank: object
    _of: int

    def __iter__(self) -> Iterator[GroupedTile]:
        scheduler, ctx, t = self._scheduler, self._scheduler._ctx, self._scheduler._ctx.tracer
        count = scheduler._offsets.shape[0]
        start = (
            ctx.cluster_id
            if self._of == 1
            else ctx.cluster_id + ctx._value(self._rank) * ctx.num_clusters
        )

        def var(init: object, name: str) -> Var:
            return Var(t, init, dtypes.int32, name)

        index = var(start, "step")
        group, steps, before = var(-1, "group"), var(0, "steps"), var(0, "steps_before")
        first, end = var(0, "group_start"), var(0, "group_end")
        ahead = var(ctx.load(scheduler._offsets[0]), "offset")  # offset of the group after this one
        more = Var(t, True, None, "more_work")

        def seek() -> None:
            """Moves on to the group that contains step `index`; after the last group there is
            none.
            """
            searching = Var(t, index.get() >= before + steps, None, "searching")
            for _ in ctx.loop_while(searching):
                group.set(group + 1)
                before.set(before + steps)
                if not scheduler._padded:
                    first.set(end.get())
                end.set(ctx.max(ctx.min(ahead.get(), scheduler._rows), first))
                ahead.set(ctx.load(scheduler._offsets[ctx.min(group + 1, count - 1)]))
                height = scheduler._tile_rows * scheduler._raster.cluster[0]
                steps.set(ctx.ceil_div(ctx.max(end - first, 0), height) * scheduler._columns)
                searching.set((index.get() >= before + steps) & (group < count))
            more.set(group < count)

        def begin() -> GroupedTile:
            now = _read(ctx, index)
            height = scheduler._tile_rows * scheduler._raster.cluster[0]
            a, z = _read(ctx, first), _read(ctx, end)
            rows = ctx.let(ctx.ceil_div(ctx.max(z - a, 0), height), "group_rows")
            within = ctx.let(ctx.max(now - before, 0), "in_group")
            m, n = scheduler._raster.place(ctx, within, rows, scheduler._columns)
            return GroupedTile(
                m, n, _read(ctx, group), row=ctx.let(a + m * scheduler._tile_rows, "row"), end=z
            )

        def step() -> None:
            index.set(index + ctx.num_clusters * self._of)
            seek()

        seek()
        return while_loop(t, more, begin, step)


def _read(ctx: Context, variable: Var) -> Value:
    """The present value of a variable that is never negative where it is used."""
    t = ctx.tracer
    now = t.local(f"{variable.variable.name}_now", dtypes.int32, nonneg=True)
    t.emit(ops.Read(caller(), now, variable.variable))
    return traced_value(t, now)
