"""Tile schedulers: which output tiles a CTA computes, in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilepipe.errors import TraceError
from tilepipe.ir.location import caller
from tilepipe.lang.context import Context
from tilepipe.lang.control import loop
from tilepipe.lang.values import Value

RASTERS = ("rows", "columns", "grouped")
GROUP = 8  # cluster tiles; a group's A panel stays in L2 while its columns are walked


@dataclass(frozen=True, eq=False)
class WorkTile:
    """One output tile: its indices in tiles, for this CTA."""

    m: Value
    n: Value


class StaticScheduler:
    """A persistent schedule: cluster c of the grid takes tiles c, c + clusters, ... of one fixed order.

    Iterated in a role: `for tile in work:` is a traced loop with `tile.m`, `tile.n`. Every role that iterates it sees
    the same tiles. With a cluster of (x, y), each step gives the cluster x × y neighbouring tiles, CTA r of it tile
    (m + r % x, n + r // x); at the edge some lie outside the matrix, and must still take part (loads give zeros,
    stores are clipped).

    Args:
        tiles: (rows, columns) of output tiles; may be traced.
        cluster: tiles of a cluster along (m, n); x · y must be the kernel's cluster size.
        raster: "rows" walks along n first, "columns" along m first, "grouped" walks m within bands of `group` and
            then n, so that what neighbouring CTAs read stays in L2.
    """

    def __init__(
        self,
        ctx: Context,
        tiles: tuple[object, object],
        *,
        cluster: tuple[int, int] | None = None,
        raster: str = "grouped",
        group: int = GROUP,
    ) -> None:
        if raster not in RASTERS:
            raise TraceError(f"raster must be one of {', '.join(RASTERS)}, got {raster!r}", caller())
        if not isinstance(group, int) or group < 1:
            raise TraceError(f"a raster group has at least 1 tile, got {group!r}", caller())
        shape = (ctx.cluster_size, 1) if cluster is None else cluster
        if shape[0] * shape[1] != ctx.cluster_size:
            raise TraceError(f"the scheduler's cluster is {shape[0]}×{shape[1]}, the kernel's has {ctx.cluster_size} CTAs", caller())
        self._ctx = ctx
        self._cluster = shape
        self._raster = raster
        self._group = group
        self._m = ctx._value(ctx.ceil_div(tiles[0], shape[0]))
        self._n = ctx._value(ctx.ceil_div(tiles[1], shape[1]))

    def __iter__(self) -> Iterator[WorkTile]:
        ctx = self._ctx
        return loop(ctx.tracer, ctx.cluster_id, self._m * self._n, ctx.num_clusters, self._tile, name="work")

    def _tile(self, index: Value) -> WorkTile:
        ctx = self._ctx
        if self._raster == "rows":
            m, n = index // self._n, index % self._n
        elif self._raster == "columns":
            m, n = index % self._m, index // self._m
        else:
            band = self._n * self._group
            first = ctx.let(index // band * self._group, "first")
            height = ctx.let(ctx.max(ctx.min(self._m - first, self._group), 1), "height")
            within = ctx.let(index % band, "within")
            m, n = first + within % height, within // height
        x, y = self._cluster
        if x > 1:
            m = m * x + (ctx.cta_rank % x if y > 1 else ctx.cta_rank)
        if y > 1:
            n = n * y + ctx.cta_rank // x
        return WorkTile(ctx.let(m, "tile_m"), ctx.let(n, "tile_n"))
