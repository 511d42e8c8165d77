"""A GEMM for Hopper whose CTAs all do the same amount of work, whatever the number of tiles
(stream-K: Osama and others, "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix
Multiplication on the GPU", 2023).

    C[m, n] = activation(A[m, k] · B[n, k]ᵀ)

The K steps of all tiles are one sequence, of which each CTA takes an equal share. Of 6 tiles of 4
steps, 4 CTAs take 6 steps each:

    tile    0       1       2       3       4       5
    step    0123    0123    0123    0123    0123    0123
    share   3333    3322    2222    1111    1100    0000

The share that has a tile's first step stores the tile. The other shares that have steps of it
write their sums to the workspace and raise a flag; it waits for them, adds the sums in the order of
K, and lowers the flags again. So every launch gives the same bits, and leaves the flags at 0.

A share begins with the rest of a tile that another one began, so those sums are early, and the one
that waits for them comes to its own last tile late. The shares are numbered backwards: a CTA waits
for CTAs of lower numbers alone. These start before it, so the launch need not be cooperative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

import tilepipe as tp
from tilepipe.kernels.common.sm90_gemm import (
    Accumulators,
    Sm90Gemm,
    output_tiles,
    resident_ctas,
)
from tilepipe.kernels.common.tiling import BLOCK_ROWS
from tilepipe.kernels.common.validation import Array, check_config, mapped
from tilepipe.kernels.gemm.config import StreamKConfig
from tilepipe.kernels.gemm.validation import Extras, check_arguments, input_maps, output_map

SLICE = 32  # columns of sums that are added at a time: more would take registers


def shares(
    a: Array | tp.TensorMap, c: Array | tp.TensorMap, cfg: StreamKConfig, chip: tp.Chip
) -> int:
    """How many CTAs share the K steps of all tiles: as many as the chip holds at once, or one for
    each step.
    """
    tiles = -(-c.shape[-2] // cfg.bm) * -(-c.shape[-1] // cfg.bn)
    return resident_ctas(tiles * -(-a.shape[-1] // (cfg.bk * cfg.k_group_size)), 1, chip)


def grid(
    a: tp.TensorMap,
    c: tp.TensorMap,
    parts: tp.TensorMap,
    flags: tp.TensorMap,
    cfg: StreamKConfig,
    chip: tp.Chip,
) -> int:
    """`shares`, but no more than the workspace has places for: an exported kernel may be launched
    on larger matrices with the same workspace.
    """
    return min(shares(a, c, cfg, chip), parts.shape[0], flags.shape[0])


@tp.kernel(grid=grid)
def gemm_stream_k(
    ctx: tp.Context,
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    c: tp.GlobalTensor,
    parts: tp.GlobalTensor,
    flags: tp.GlobalTensor,
    *,
    cfg: StreamKConfig,
) -> None:
    """C = activation(A · Bᵀ). parts: (CTAs, bm, bn) float32; flags: (CTAs, consumers) int32, all
    0.
    """
    tiles = tp.StandardTilePayload(
        a_type=a.dtype,
        b_type=b.dtype,
        a_shape=(cfg.bm, cfg.bk),
        b_shape=(cfg.bn, cfg.bk),
        a_order=a.order,
        b_order=b.order,
    )
    inputs = tp.InputTilePipeline.allocate(
        ctx, tiles, num_group_stages=cfg.stages, k_group_size=cfg.k_group_size
    )
    shared = Sm90Gemm.allocate(ctx, cfg, inputs, output_tiles(ctx, c, cfg), a, c)
    share = Share(ctx, cfg, c, shared.k_steps)
    exchange = WorkspaceSums(ctx, cfg, parts, flags, share)
    shared.declare_roles(
        partial(load, shared, share, a, b), partial(multiply_and_store, shared, share, exchange)
    )


@dataclass(frozen=True, eq=False)
class Segment:
    """The steps [first, first + steps) of a tile's K that one share has. `end`: of the tile, as a
    number of steps of the whole sequence.
    """

    tile: tp.WorkTile
    first: tp.Value
    steps: tp.Value
    end: tp.Value


class Share:
    """The steps [begin, end) of the sequence that this CTA takes, made in set-up code."""

    def __init__(
        self, ctx: tp.Context, cfg: StreamKConfig, c: tp.GlobalTensor, k_steps: tp.Value
    ) -> None:
        self._ctx, self._cfg, self._k_steps = ctx, cfg, k_steps
        self._rows = ctx.let(ctx.ceil_div(c.shape[0], cfg.bm), "tile_rows")
        self._columns = ctx.let(ctx.ceil_div(c.shape[1], cfg.bn), "tile_columns")
        self._total = ctx.let(self._rows * self._columns * k_steps, "total_steps")
        self.number = ctx.let(ctx.num_clusters - 1 - ctx.cluster_id, "share")
        self.begin = ctx.let(self.begin_of(self.number), "begin")
        self.end = ctx.let(self.begin_of(self.number + 1), "end")

    def begin_of(self, number: tp.Value) -> tp.Value:
        """Where a share begins; the first ones have a step more, where that must be."""
        count = self._ctx.num_clusters
        return number * (self._total // count) + self._ctx.min(number, self._total % count)

    def segments(self) -> Iterator[Segment]:
        """For each tile of which the share has steps, in their order: one traced loop."""
        ctx, k_steps = self._ctx, self._k_steps
        last = (self.end - 1) // k_steps
        for index in ctx.range(self.begin // k_steps, last + 1):
            start = ctx.let(index * k_steps, "start")
            first = ctx.let(ctx.max(self.begin - start, 0), "first")
            steps = ctx.let(ctx.min(self.end - start, k_steps) - first, "steps")
            yield Segment(self._tile(index), first, steps, start + k_steps)

    def _tile(self, index: tp.Value) -> tp.WorkTile:
        """Along M within bands of `group` rows of tiles, as the "grouped" raster of schedulers."""
        ctx, group = self._ctx, self._cfg.group
        band = ctx.let(self._columns * group, "band")
        top = ctx.let(index // band * group, "top")
        height = ctx.let(ctx.min(self._rows - top, group), "height")
        within = ctx.let(index % band, "within")
        return tp.WorkTile(
            ctx.let(top + within % height, "tile_m"), ctx.let(within // height, "tile_n")
        )


class WorkspaceSums:
    """The sums of tiles that several CTAs work on, by way of the workspace. Each warpgroup hands
    over its own rows, under a flag of its own.
    """

    def __init__(
        self,
        ctx: tp.Context,
        cfg: StreamKConfig,
        parts: tp.GlobalTensor,
        flags: tp.GlobalTensor,
        share: Share,
    ) -> None:
        self._ctx, self._cfg, self._share = ctx, cfg, share
        self._parts, self._flags = parts, flags

    def give(self, sums: Accumulators, first_row: tp.Value) -> None:
        """Writes the sums of this share's first tile to its place, and raises the flag."""
        ctx, number = self._ctx, self._share.number
        for i, row in enumerate(sums.blocks):
            for n, acc in enumerate(row):
                place = (number, first_row + i * BLOCK_ROWS, n * self._cfg.block_cols)
                ctx.store_global(self._parts, place, acc)
        ctx.sync_warpgroup()  # all of its threads have written
        with ctx.elect_one("warpgroup"):
            ctx.store(self._flags[number, ctx.warpgroup_rank], 1, order="release")

    def take(self, sums: Accumulators, first_row: tp.Value, end: tp.Value) -> None:
        """Adds the sums of the shares after this one that have steps before `end`, in their
        order.
        """
        ctx, cfg, share = self._ctx, self._cfg, self._share
        other = ctx.var(share.number + 1)
        more = ctx.var(share.end < end)
        for _ in ctx.loop_while(more):
            number = other.get()
            flag = self._flags[number, ctx.warpgroup_rank]
            with ctx.elect_one("warpgroup"):
                ctx.wait_until(flag, lambda value: value == 1)
            ctx.sync_warpgroup()  # the other threads come after it, too
            for i, row in enumerate(sums.blocks):
                for n, acc in enumerate(row):
                    for x in range(0, cfg.block_cols, width := min(SLICE, cfg.block_cols)):
                        col = n * cfg.block_cols + x
                        width = min(width, cfg.block_cols - x)
                        place = (number, first_row + i * BLOCK_ROWS, col)
                        part = ctx.load_global(self._parts, place, (BLOCK_ROWS, width))
                        acc.set(acc.cols(x, width) + part, col=x)
            with ctx.elect_one("warpgroup"):
                ctx.store(flag, 0, order="relaxed")  # which no other thread has looked at
            other.set(number + 1)
            more.set(share.begin_of(number + 1) < end)


def load(gemm: Sm90Gemm, share: Share, a: tp.GlobalTensor, b: tp.GlobalTensor) -> None:
    """The load role: one lane starts the copies of every K tile of the share."""
    ctx, cfg, inputs = gemm.ctx, gemm.cfg, gemm.inputs
    with inputs.producer() as producer:
        for segment in share.segments():
            tile = segment.tile
            for step in ctx.range(segment.steps):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    for j in range(cfg.k_group_size):
                        a_tile, b_tile = stage.tile(j)
                        k = ((segment.first + step) * cfg.k_group_size + j) * cfg.bk
                        gemm.a_share.load(
                            ctx, a, a_tile, (None, tile.m * cfg.bm, k), stage.barrier()
                        )
                        gemm.b_share.load(
                            ctx, b, b_tile, (None, tile.n * cfg.bn, k), stage.barrier()
                        )
        ctx.launch_dependents()
        producer.drain()


def multiply_and_store(gemm: Sm90Gemm, share: Share, exchange: WorkspaceSums) -> None:
    """The MMA role: the warpgroups split the rows of each tile."""
    ctx, inputs = gemm.ctx, gemm.inputs
    sums = Accumulators(ctx, gemm.cfg, gemm.readers)
    first_row = ctx.warpgroup_rank * gemm.cfg.rows
    for segment in share.segments():
        with inputs.consumer(lag=sums.lag) as consumer:
            sums.multiply(consumer, segment.steps, first_row)
        with ctx.when(segment.first > 0):
            exchange.give(sums, first_row)
        with ctx.otherwise():
            exchange.take(sums, first_row, segment.end)
            gemm.epilogue.store(sums.blocks, segment.tile, first_row)
    gemm.epilogue.drain()


def bind(
    a: Array,
    b: Array,
    c: Array,
    cfg: StreamKConfig,
    *,
    workspace: tuple[Array, Array] | None = None,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The GEMM for matrices a (m, k), b (n, k) and c (m, n), as `sm90.bind` takes them.

    Args:
        workspace: (parts, flags), arrays of the shapes of `workspace_shapes`, float32 and int32,
            with flags of 0; the kernel leaves them at 0. Launches that may run at the same time
            need one each. None: made here, for NumPy arrays.
        chip: whose limits, and as many SMs, hold.

    Raises:
        BindError: shapes or dtypes that do not fit together; no workspace.
    """
    check_config("gemm_stream_k", cfg, StreamKConfig, "a StreamKConfig")
    check_arguments(a, b, c, Extras())
    if len(c.shape) != 2:
        raise tp.BindError(f"gemm_stream_k multiplies matrices; c has shape {tuple(c.shape)}")
    if workspace is None:
        if not isinstance(c, np.ndarray):
            raise tp.BindError(
                "gemm_stream_k: pass workspace=(parts, flags) where the arrays are on a GPU:"
                " zeros of the shapes of workspace_shapes(a, c, cfg, chip), float32 and int32"
            )
        sizes = workspace_shapes(a, c, cfg, chip or tp.H200)
        workspace = np.zeros(sizes[0], np.float32), np.zeros(sizes[1], np.int32)
    parts, flags = workspace
    a_map, b_map = input_maps(a, b, cfg, (cfg.bm, cfg.bn), (1, 1))
    c_map = output_map(c, cfg)
    # a box says that pairs of columns are aligned, so that they go by one access
    parts_map = mapped("gemm_stream_k", "parts", parts, (1, BLOCK_ROWS, 16), swizzle=0)
    return gemm_stream_k.bind(a_map, b_map, c_map, parts_map, flags, chip=chip, cfg=cfg)


def workspace_shapes(
    a: Array, c: Array, cfg: StreamKConfig, chip: tp.Chip
) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """The shapes of a workspace: (CTAs, bm, bn) of float32, (CTAs, consumers) of int32."""
    count = shares(a, c, cfg, chip)
    return (count, cfg.bm, cfg.bn), (count, cfg.consumers)
