"""Parts of K that any CTAs take: how the sums of a tile meet in global memory.

Each part of a tile is an item of its own of the schedule. A warpgroup writes its sums of a part to
a place of their own, and draws a ticket; the one that draws the last ticket of its rows knows that
all others have written, adds up all parts in the order of K, so that every launch gives the same
bits, stores the rows, and puts the ticket back to 0. Nobody waits, so it makes no difference how
many CTAs run at once, and the CTAs of a cluster share operands as without parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

import tilepipe as tp
from tilepipe.host_arguments import shown
from tilepipe.kernels.common.sm90_gemm import Accumulators, Sm90Gemm, tile_clusters
from tilepipe.kernels.common.split_k import share_of_k
from tilepipe.kernels.common.tiling import BLOCK_ROWS
from tilepipe.kernels.common.validation import Array, check_array, mapped
from tilepipe.kernels.gemm.config import GemmConfig

PANEL = 16  # columns that lie beside each other where several warpgroups write at a time
AT_ONCE = 64  # registers of a thread for sums that are on their way
OTHERS = 40  # registers of a thread for all but sums
LEAST = 16  # columns that are loaded at a time


def panel(cfg: GemmConfig) -> int:
    """Columns of a tile that lie beside each other in the workspace, for all rows, before the next
    ones. Few, so that a warp touches few lines at a time, which is what limits several warpgroups;
    one alone is faster with fewer addresses.
    """
    return cfg.block_cols if cfg.consumers == 1 else PANEL


def lines_of(cfg: GemmConfig) -> int:
    """Lines of the workspace that a part of a tile takes, of `panel` sums."""
    return cfg.bm * (cfg.bn // cfg.block_cols) * -(-cfg.block_cols // panel(cfg))


def workspace_shapes(shape: Sequence[int], cfg: GemmConfig) -> tuple[tuple[int, int], tuple[int]]:
    """The shapes of a workspace for a C of that shape: float32, `lines_of` a part for each part of
    each tile; int32, one for each warpgroup of a tile.
    """
    *batches, m, n = shape
    turned = (*batches, *((n, m) if cfg.swap == "ab" else (m, n)))
    tiles = tile_clusters(turned, cfg) * cfg.cluster_size
    return (tiles * cfg.k_parts * lines_of(cfg), panel(cfg)), (tiles * cfg.consumers,)


def bound_workspace(
    c: Array, cfg: GemmConfig, workspace: tuple[Array, Array] | None
) -> tuple[tp.TensorMap | None, Array | None]:
    """What the kernel is bound with for its workspace.

    Raises:
        BindError: none is given for arrays on a GPU, or one that is not needed, or of other shapes.
    """
    if cfg.k_parts == 1:
        if workspace is not None:
            raise tp.BindError("gemm: workspace= is for k_parts above 1; leave it out")
        return None, None
    sizes = workspace_shapes(c.shape, cfg)
    if workspace is None:
        if not isinstance(c, np.ndarray):
            raise tp.BindError(
                f"gemm: with k_parts={cfg.k_parts}, pass workspace=(parts, tickets) where the"
                f" arrays are on a GPU: float32 of shape {sizes[0]}, and int32, zeros, of shape"
                f" {sizes[1]}"
            )
        workspace = np.zeros(sizes[0], np.float32), np.zeros(sizes[1], np.int32)
    if not isinstance(workspace, tuple) or len(workspace) != 2:
        raise tp.BindError(f"gemm: workspace is (parts, tickets), got {shown(workspace)}")
    kinds = ("parts", tp.float32), ("tickets", tp.int32)
    for (name, dtype), x, size in zip(kinds, workspace, sizes, strict=True):
        check_array("gemm", name, x, dtypes=(dtype,))
        if tuple(x.shape) != size:
            raise tp.BindError(
                f"gemm: {name} of the workspace has shape {tuple(x.shape)}; with"
                f" k_parts={cfg.k_parts} and these tiles it must be {size}"
            )
    parts, tickets = workspace
    if isinstance(tickets, np.ndarray) and tickets.any():
        raise tp.BindError("gemm: tickets of the workspace must be 0 before a launch")
    # a box says that pairs of columns are aligned, so that they go by one access
    return mapped("gemm", "parts", parts, (BLOCK_ROWS, 8), swizzle=0), tickets


def check_workspace(
    clusters: int, parts: tp.TensorMap, tickets: tp.TensorMap, cfg: GemmConfig
) -> None:
    """Checks that a workspace is of a C with so many clusters of tiles. Asked in `grid`, which an
    export calls with names for the extents that it leaves to launches: a C that may have other
    tiles is refused there, since no launch compares the two.

    Raises:
        BindError: it is of another C, or may be.
    """
    tiles = clusters * cfg.cluster_size
    lines = tiles * cfg.k_parts * lines_of(cfg)
    if tiles * cfg.consumers != tickets.shape[0] or lines != parts.shape[0]:
        raise tp.BindError(
            f"gemm: with k_parts={cfg.k_parts}, parts and tickets have the size that the tiles of"
            f" one c need, here {parts.shape[0]} lines and {tickets.shape[0]} tickets; a c of other"
            " tiles would write beyond them. For an export leave c, parts and tickets out of"
            " extents=, so that m, n and the batch are fixed (k may be free), or bind with"
            " k_parts=1, where m and n may be free, too"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class PartOfTile(tp.WorkTile):
    """A part of K of an output tile. `number`: of the tile. `part`: which, in the order of K."""

    number: tp.Value
    part: tp.Value


@dataclass(frozen=True, eq=False)
class Piece:
    """Columns [col, col + width) of an accumulator, and where they are in the workspace: at column
    `at` of `line`, counted from the first line of the part and of the warpgroup's rows.
    """

    acc: tp.Fragment
    col: int
    width: int
    line: int
    at: int


class KParts:
    """The parts of tiles that this CTA works on, and the sums of all; made in set-up code."""

    def __init__(
        self,
        ctx: tp.Context,
        cfg: GemmConfig,
        c: tp.GlobalTensor,
        k_steps: tp.Value,
        parts: tp.GlobalTensor,
        tickets: tp.GlobalTensor,
    ) -> None:
        """parts, tickets: of `workspace_shapes`, the tickets 0 before and after."""
        self._ctx, self._cfg, self._k_steps = ctx, cfg, k_steps
        self._parts, self._tickets = parts, tickets
        rows, columns = ctx.ceil_div(c.shape[-2], cfg.bm), ctx.ceil_div(c.shape[-1], cfg.bn)
        self._rows = ctx.let(ctx.ceil_div(rows, cfg.cluster) * cfg.cluster, "tile_rows")
        self._columns = ctx.let(
            ctx.ceil_div(columns, cfg.cluster_n) * cfg.cluster_n, "tile_columns"
        )
        self._batched = c.rank == 3
        matrices = c.shape[0] * cfg.k_parts if self._batched else cfg.k_parts
        self._items = tp.StaticScheduler(
            ctx,
            tiles=(matrices, rows, columns),
            cluster=(cfg.cluster, cfg.cluster_n),
            raster=cfg.raster,
            group=cfg.group,
        )
        self._drawn = ctx.smem((1, 4), tp.int32, swizzle=0, name="drawn")[0]

    def __iter__(self) -> Iterator[PartOfTile]:
        """The items of this CTA: one traced loop."""
        for item in self._items:
            yield self._part(item)

    def first(self) -> PartOfTile:
        """This CTA's first item."""
        return self._part(self._items.ahead().first)

    def _part(self, item: tp.WorkTile) -> PartOfTile:
        ctx, cfg = self._ctx, self._cfg
        assert item.batch is not None
        matrix, part = None, item.batch
        number = item.m * self._columns + item.n
        if self._batched:
            matrix = ctx.let(item.batch // cfg.k_parts, "matrix")
            part = ctx.let(item.batch % cfg.k_parts, "part")
            number = matrix * (self._rows * self._columns) + number
        return PartOfTile(item.m, item.n, matrix, number=ctx.let(number, "tile"), part=part)

    def part_of_k(self, tile: PartOfTile) -> tuple[tp.Value, tp.Value]:
        """(first step, number of steps) of K of a part: one step at least, since the MMA role
        writes only what it has computed of something that was loaded.
        """
        return share_of_k(self._ctx, self._cfg.k_parts, tile.part, self._k_steps, least=1)

    def finish(
        self,
        blocks: Sequence[Sequence[tp.Fragment]],
        tile: PartOfTile,
        first_row: tp.Value | int,
        store: Callable[[], None],
    ) -> None:
        """Writes the sums of this warpgroup's rows of a part. The warpgroup that comes last makes
        of its sums those of all parts, and stores them.
        """
        ctx, cfg = self._ctx, self._cfg
        lines = lines_of(cfg)
        start = ctx.let(tile.number * (cfg.k_parts * lines) + first_row, "first_line")
        own = ctx.let(start + tile.part * lines, "own_line")
        for x in self._pieces(blocks, cfg.block_cols):
            ctx.store_global(self._parts, (own + x.line, x.at), x.acc.cols(x.col, x.width))
        ticket = self._tickets[tile.number * cfg.consumers + ctx.warpgroup_rank]
        drawn = self._drawn[0, ctx.warpgroup_rank]
        ctx.sync_warpgroup()  # all threads have written
        with ctx.elect_one("warpgroup"):
            ctx.store(drawn, ctx.atomic_add(ticket, 1, order="acq_rel"))
        ctx.sync_warpgroup()  # all threads know the ticket, and come after the acquire
        with ctx.when(ctx.load(drawn) == cfg.k_parts - 1):
            self._add_up(blocks, start, tile.part)
            store()
            with ctx.elect_one("warpgroup"):
                ctx.store(ticket, 0)

    def _add_up(
        self, blocks: Sequence[Sequence[tp.Fragment]], start: tp.Value, part: tp.Value
    ) -> None:
        """The sums of all parts, in the order of K, of a few columns at a time. Of two parts this
        one's are in registers: their order makes no difference.
        """
        ctx, cfg, lines = self._ctx, self._cfg, lines_of(self._cfg)
        parts: list[tp.Value | int] = [1 - part] if cfg.k_parts == 2 else [*range(cfg.k_parts)]
        firsts = [ctx.let(start + number * lines, "part_line") for number in parts]
        addresses = 4 * len(parts) if len(parts) > 2 else 0
        room = cfg.registers[1] - cfg.rows * cfg.bn // 128 - OTHERS - addresses
        room = min(AT_ONCE, max(room, LEAST // 2))
        most = max(room * 2 // len(parts) // LEAST * LEAST, LEAST)  # columns
        parts_at_once = max(room * 2 // most, 1)
        pieces = self._pieces(blocks, most)
        several = max(most // pieces[0].width, 1)
        for together in (pieces[i : i + several] for i in range(0, len(pieces), several)):
            totals: list[tp.Fragment] = []
            for at in range(0, len(firsts), parts_at_once):
                loaded = [
                    [
                        ctx.load_global(self._parts, (first + x.line, x.at), (BLOCK_ROWS, x.width))
                        for first in firsts[at : at + parts_at_once]
                    ]
                    for x in together
                ]
                for i, found in enumerate(loaded):
                    if not at:
                        totals.append(found.pop(0))
                    for other in found:
                        totals[i] += other
            for x, total in zip(together, totals, strict=True):
                if cfg.k_parts == 2:
                    own = ctx.fragment(x.acc.cols(x.col, x.width))
                    total += own
                x.acc.set(total, col=x.col)

    def _pieces(self, blocks: Sequence[Sequence[tp.Fragment]], most: int) -> list[Piece]:
        """The sums of a warpgroup, in pieces of a panel, or `most` columns of one."""
        cfg, width = self._cfg, panel(self._cfg)
        panels = -(-cfg.block_cols // width)  # of a block
        return [
            Piece(
                acc,
                left + at,
                min(most, width - at, cfg.block_cols - left - at),
                (n * panels + left // width) * cfg.bm + i * BLOCK_ROWS,
                at,
            )
            for i, row in enumerate(blocks)
            for n, acc in enumerate(row)
            for left in range(0, cfg.block_cols, width)
            for at in range(0, min(width, cfg.block_cols - left), most)
        ]


def multiply_and_store(gemm: Sm90Gemm, parts: KParts) -> None:
    """The MMA role: the warpgroups split the rows of each tile."""
    ctx = gemm.ctx
    sums = Accumulators(ctx, gemm.cfg, gemm.readers)
    first_row = ctx.warpgroup_rank * gemm.cfg.rows
    for tile in parts:
        _, k_steps = parts.part_of_k(tile)
        with gemm.inputs.consumer(lag=sums.lag) as consumer:
            sums.multiply(consumer, k_steps, first_row)
        store = partial(gemm.epilogue.store, sums.blocks, tile, first_row)
        parts.finish(sums.blocks, tile, first_row, store)
    gemm.drain()
