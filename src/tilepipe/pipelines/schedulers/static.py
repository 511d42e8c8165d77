"""Tile schedulers: which output tiles a CTA computes, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from tilepipe.errors import TraceError
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import Index
from tilepipe.lang.context.context import Context
from tilepipe.lang.control.loops import loop
from tilepipe.lang.values.scalars import Value

RASTERS = ("rows", "columns", "grouped")
# Rows of cluster tiles in a band of the "grouped" raster: its part of A stays in L2 while the
# raster moves along N.
GROUP = 8


@dataclass(eq=False)
class _Share:
    """Every `of`-th tile of a schedule."""

    _scheduler: StaticScheduler
    _of: int
    _rank: object

    def __iter__(self) -> Iterator[WorkTile]:
        scheduler, ctx = self._scheduler, self._scheduler._ctx
        start, step = ctx.cluster_id, ctx.num_clusters
        if self._of > 1:
            start, step = start + ctx._value(self._rank) * step, step * self._of
        return loop(ctx.tracer, start, scheduler._total, step, scheduler._tile, name="work")


@dataclass(frozen=True, eq=False)
class WorkTile:
    """One output tile: its indices in tiles, for this CTA; `batch` is None unless the scheduler has
    batches.
    """

    m: Value
    n: Value
    batch: Value | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class AheadTile(WorkTile):
    """A tile of `StaticScheduler.ahead`."""

    _compute: Callable[[], WorkTile]

    @cached_property
    def _next(self) -> WorkTile:
        return self._compute()

    def following(self) -> WorkTile:
        """Computes the next tile at this point; where there is none, an arbitrary tile. Call it in
        the body of the loop itself, not in a nested block.
        """
        return self._next


class Ahead:
    """The tiles of a schedule, each computed during the one before.

    Attributes:
        first: this CTA's first tile; where it has none, an arbitrary tile.
    """

    def __init__(self, scheduler: StaticScheduler) -> None:
        ctx = self._ctx = scheduler._ctx
        self._scheduler = scheduler
        self._last = ctx.let(ctx.max(scheduler._total - 1, 0), "last_tile")
        self.first = self._at(ctx.cluster_id)

    def _at(self, index: object) -> WorkTile:
        return self._scheduler._tile(self._ctx.let(self._ctx.min(index, self._last), "index"))

    def __iter__(self) -> Iterator[AheadTile]:
        ctx, scheduler, step = self._ctx, self._scheduler, self._ctx.num_clusters
        places = [
            ctx.var(x) for x in (self.first.m, self.first.n, self.first.batch) if x is not None
        ]
        held: list[AheadTile] = []

        def begin(index: Value) -> AheadTile:
            m, n, *batch = [place.get() for place in places]
            last = batch[0] if batch else None
            held[:] = [AheadTile(m, n, last, _compute=lambda: self._at(index + step))]
            return held[0]

        def end() -> None:
            following = held[0].following()
            for place, x in zip(places, (following.m, following.n, following.batch), strict=False):
                place.set(x)

        return loop(ctx.tracer, ctx.cluster_id, scheduler._total, step, begin, name="work", end=end)


@dataclass(frozen=True, eq=False)
class Raster:
    """The order of the tiles of one matrix; see `TileOrder`."""

    cluster: tuple[int, int]
    order: str
    group: int

    @classmethod
    def checked(
        cls, ctx: Context, cluster: tuple[int, int] | None, order: str, group: int
    ) -> Raster:
        """Raises TraceError for an unknown order, and for a cluster that does not fit into the
        kernel's.
        """
        if order not in RASTERS:
            raise TraceError(f"raster must be one of {', '.join(RASTERS)}, got {order!r}", caller())
        if not isinstance(group, int) or group < 1:
            raise TraceError(f"a raster group has at least 1 tile, got {group!r}", caller())
        shape = (ctx.cluster_size, 1) if cluster is None else cluster
        if min(shape) < 1 or ctx.cluster_size % (shape[0] * shape[1]):
            raise TraceError(
                f"the scheduler's cluster is {shape[0]}×{shape[1]}, the kernel's has"
                f" {ctx.cluster_size} CTAs",
                caller(),
            )
        return cls(shape, order, group)

    def place(self, ctx: Context, index: Value, rows: Value, columns: Value) -> tuple[Value, Value]:
        """This CTA's tile (m, n) in step `index` of a matrix of rows × columns steps."""
        if self.order == "rows":
            m, n = index // columns, index % columns
        elif self.order == "columns":
            m, n = index % rows, index // rows
        else:
            band = columns * self.group
            first = ctx.let(index // band * self.group, "first")
            height = ctx.let(ctx.max(ctx.min(rows - first, self.group), 1), "height")
            within = ctx.let(index % band, "within")
            m, n = first + within % height, within // height
        x, y = self.cluster
        if x > 1:
            m = m * x + (ctx.cta_rank % x if ctx.cluster_size > x else ctx.cta_rank)
        if y > 1:
            n = n * y + (ctx.cta_rank // x % y if ctx.cluster_size > x * y else ctx.cta_rank // x)
        return ctx.let(m, "tile_m"), ctx.let(n, "tile_n")


class TileOrder:
    """The order of a problem's tiles, in steps of one cluster's tiles, which all schedulers follow.

    With a cluster of (x, y), each step gives the cluster x × y neighbouring tiles, CTA r of it tile
    (m + r % x, n + r // x % y); at the edge some tiles are outside the matrix; their CTAs still
    execute everything (loads give zeros, stores are clipped).

    Args:
        tiles: (rows, columns) of output tiles, or (batches, rows, columns); may be traced.
        cluster: tiles of a cluster along (m, n). x · y must divide the kernel's cluster size; where
            it is less, CTAs that are x · y ranks apart compute the same tile.
        raster: "rows" goes along n first, "columns" along m first, "grouped" along m within bands
            of `group` tiles and then along n, so that what neighbouring CTAs read stays in L2.
    """

    def __init__(
        self,
        ctx: Context,
        tiles: tuple[object, ...],
        *,
        cluster: tuple[int, int] | None = None,
        raster: str = "grouped",
        group: int = GROUP,
    ) -> None:
        self._raster = Raster.checked(ctx, cluster, raster, group)
        if not isinstance(tiles, tuple) or len(tiles) not in (2, 3):
            raise TraceError(
                f"tiles= takes (rows, columns) or (batches, rows, columns), got {tiles!r}", caller()
            )
        wrong = [x for x in tiles if isinstance(x, bool) or (isinstance(x, int) and x < 0)]
        if wrong:
            raise TraceError(
                f"tiles= counts tiles along each dimension, got {wrong[0]!r}", caller()
            )
        self._ctx = ctx
        self._cluster = shape = self._raster.cluster
        self._m = ctx._value(ctx.ceil_div(ctx._value(tiles[-2]), shape[0]))
        self._n = ctx._value(ctx.ceil_div(ctx._value(tiles[-1]), shape[1]))
        self._batches = ctx._value(tiles[0]) if len(tiles) == 3 else None
        self._total = (
            self._m * self._n if self._batches is None else self._m * self._n * self._batches
        )

    def _tile(self, index: Value) -> WorkTile:
        ctx = self._ctx
        if ctx.tracer.kernel.cta_group == 2 and self._cluster[0] % 2:
            shape = "×".join(map(str, self._cluster))
            raise TraceError(
                f"the scheduler's cluster is {shape} tiles, but CTAs 2 i and 2 i + 1, which share"
                " an MMA, must be neighbours along M: its first extent must be even",
                caller(),
            )
        batch = None
        if self._batches is not None:
            plane = ctx.let(self._m * self._n, "plane")
            batch = ctx.let(index // plane, "batch")
            index = ctx.let(index % plane, "in_batch")
        m, n = self._raster.place(ctx, index, self._m, self._n)
        return WorkTile(m, n, batch)


class StaticScheduler(TileOrder):
    """A persistent schedule: cluster c of the grid takes tiles c, c + clusters, ... of the order.

    Iterated in a role: `for tile in scheduler:` is a traced loop with `tile.m`, `tile.n`. Every
    role that iterates it sees the same tiles. Arguments: those of `TileOrder`. The members that
    only dynamic schedulers need have no effect here, so that a kernel may take either.
    """

    needs_role = False  # whether a role must run `schedule()`

    def __iter__(self) -> Iterator[WorkTile]:
        return iter(_Share(self, 1, 0))

    def share(self, rank: Index, of: int) -> Iterable[WorkTile]:
        """`for tile in scheduler.share(ctx.warpgroup_rank, 2):` gives every `of`-th of the tiles
        that `for tile in scheduler:` would, from the `rank`-th (0 .. of - 1): for warpgroups that
        take tiles in turn.
        """
        if not isinstance(of, int) or of < 1:
            raise TraceError(f"tiles are shared among at least 1, got of={of!r}", caller())
        return _Share(self, of, rank)

    def ahead(self) -> Ahead:
        """`tiles = scheduler.ahead()`, then `for tile in tiles:` gives what `for tile in
        scheduler:` does. The indices of a tile, some divisions, are computed where the body for the
        tile before calls `tile.following()`, for instance while MMAs run.
        """
        return Ahead(self)

    def throttle_signal(self) -> None:
        """No effect: the tiles are known."""
        self._ctx.tracer.require_running()

    def schedule(self) -> None:
        """No effect; see `ClcScheduler.schedule`."""
        self._ctx.tracer.require_running()
