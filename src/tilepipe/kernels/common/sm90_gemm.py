"""What the GEMMs for Hopper have in common: how many CTAs, and the role that multiplies and
stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

import tilepipe as tp
from tilepipe.kernels.common.epilogue import Epilogue, Terms
from tilepipe.kernels.common.multicast import Share
from tilepipe.kernels.common.split_k import RegisterExchange, part_of_k
from tilepipe.kernels.common.tiling import BLOCK_ROWS, Sm90Tiling


def resident_ctas(clusters: int, cluster_size: int, chip: tp.Chip) -> int:
    """CTAs of a persistent kernel: as many clusters as the chip holds at once, at most
    `clusters`.
    """
    # Where none fits, loading the kernel says so.
    return min(clusters, max(chip.resident_clusters(cluster_size), 1)) * cluster_size


def persistent_grid(c: tp.TensorMap, cfg: Sm90Tiling, chip: tp.Chip) -> int:
    """As many clusters as the chip holds at once, or fewer when there are fewer tiles."""
    return resident_ctas(tile_clusters(c.shape, cfg), cfg.cluster_size, chip)


def tile_clusters(shape: Sequence[int], cfg: Sm90Tiling) -> int:
    """How many clusters have a tile each of a C of that shape: with a batch, or without."""
    *batches, m, n = shape
    rows, columns = -(-m // (cfg.bm * cfg.cluster)), -(-n // (cfg.bn * cfg.cluster_n))
    return rows * columns * (batches or [1])[0]


def output_tiles(ctx: tp.Context, c: tp.GlobalTensor, cfg: Sm90Tiling) -> tp.StaticScheduler:
    """Which CTA computes which tile of C, in set-up code."""
    rows, columns = ctx.ceil_div(c.shape[-2], cfg.bm), ctx.ceil_div(c.shape[-1], cfg.bn)
    return tp.StaticScheduler(
        ctx,
        tiles=(c.shape[0], rows, columns) if c.rank == 3 else (rows, columns),
        cluster=(cfg.cluster, cfg.cluster_n),
        raster=cfg.raster,
        group=cfg.group,
    )


@dataclass(frozen=True, eq=False)
class Sm90Gemm:
    """What the roles of a Hopper GEMM share, made in set-up code.

    Attributes:
        inputs: the ring of K tiles between the load warp and the MMA warpgroups.
        work: the output tiles of this CTA.
        k_steps: stages of the ring that a tile takes, over all of K.
        extents: rows and columns of C.
        turns: of the two warpgroups, where they take whole tiles in turn (ping-pong).
        a_share, b_share: the part of the A and B tiles that this CTA loads for its cluster.
        exchange: of sums, where CTAs split K.
    """

    ctx: tp.Context
    cfg: Sm90Tiling
    inputs: tp.InputTilePipeline
    work: tp.StaticScheduler | tp.GroupedScheduler
    k_steps: tp.Value
    extents: tuple[tp.Value, tp.Value]
    turns: tp.OrderedBarrier | None
    a_share: Share
    b_share: Share
    epilogue: Epilogue
    exchange: RegisterExchange | None

    @classmethod
    def allocate(
        cls,
        ctx: tp.Context,
        cfg: Sm90Tiling,
        inputs: tp.InputTilePipeline,
        work: tp.StaticScheduler | tp.GroupedScheduler,
        a: tp.GlobalTensor,
        c: tp.GlobalTensor,
        terms: Terms | None = None,
        epilogue: type[Epilogue] = Epilogue,
    ) -> Sm90Gemm:
        """Called in set-up code, before the roles."""
        return cls(
            ctx,
            cfg,
            inputs,
            work,
            k_steps=ctx.ceil_div(a.shape[-1], cfg.bk * cfg.k_group_size),
            extents=(c.shape[-2], c.shape[-1]),
            turns=tp.OrderedBarrier(ctx, 2, depth=2) if cfg.schedule == "pingpong" else None,
            a_share=Share.of_all(ctx, cfg.cluster_n),
            b_share=Share.of_all(ctx, cfg.cluster),
            epilogue=epilogue(ctx, c, cfg, terms),
            exchange=RegisterExchange(ctx, cfg) if cfg.split_k > 1 else None,
        )

    def declare_roles(
        self,
        load: Callable[[], None],
        multiply: Callable[[], None],
        load_source: Callable[[], None] | None = None,
    ) -> None:
        """The roles, in the order of their warps. The load warps give most of their registers to
        the accumulators. `load_source`: is a role where the source comes through a ring.
        """
        load_registers, mma_registers = self.cfg.registers
        self.ctx.role("load", warps=1, registers=load_registers)(load)
        if self.epilogue.loads_source and load_source is not None:  # in the same warpgroup
            self.ctx.role("source", warps=1, registers=load_registers)(load_source)
        role = self.ctx.role("mma", warpgroups=self.cfg.consumers, registers=mma_registers)
        role(multiply)

    @property
    def readers(self) -> int | None:
        """The CTAs that are to know when a stage has been read, as a mask; None: this one. They are
        those that copy into it: all of a cluster that multicasts, but CTAs that split K do not.
        """
        size = self.cfg.cluster_size
        return (1 << size) - 1 if size > 1 and self.cfg.split_k == 1 else None

    def part_of_k(self) -> tuple[tp.Value | int, tp.Value]:
        """(first step, number of steps) of K that this CTA takes."""
        return part_of_k(self.ctx, self.cfg, self.k_steps)

    def first_row(self, operand: str, tile: tp.WorkTile, rows: int) -> tp.Value:
        """The row of A, "a", or of B, "b", from which it is loaded for a tile of C.

        Where C's tiles are no multiple of the cluster's, some CTAs have a tile outside of C. TMA
        would fill it with zeros, which takes longer than loading rows, and the cluster would wait.
        Such a CTA loads what the first of its cluster does; its sums are not stored.

        Args:
            rows: of C that a tile has; of "b", columns.
        """
        b = operand == "b"
        index = tile.n if b else tile.m
        if (self.cfg.cluster_n if b else self.cfg.cluster) > 1:
            inside = index * rows < self.extents[b]
            index = self.ctx.select(inside, index, index - self.ctx.cta_rank)
        return index * rows

    def store(
        self,
        blocks: Sequence[Sequence[tp.Fragment]],
        tile: tp.WorkTile,
        first_row: tp.Value | int,
    ) -> None:
        """Adds up a tile's sums, where CTAs split K, and stores them."""
        if self.exchange is not None:
            self.exchange.add_up(blocks)
        self.epilogue.store(blocks, tile, first_row)

    def drain(self) -> None:
        """After the last tile: its stores have finished, and its peers have read what this CTA sent
        them.
        """
        if self.exchange is not None:
            self.exchange.drain()
        self.epilogue.drain()


def multiply_and_store(gemm: Sm90Gemm) -> None:
    """The MMA role. Each warpgroup keeps its sums in registers and stores them itself, so the
    tensor cores idle during its epilogue unless another warpgroup multiplies meanwhile.

    Cooperative: the warpgroups split the rows of each tile and run their epilogues at the same
    time; the loads of the next tile go on. Ping-pong: they take whole tiles in turn, so that one
    multiplies while the other stores, at the price of an accumulator for a whole tile in each.
    """
    ctx, inputs = gemm.ctx, gemm.inputs
    _, k_steps = gemm.part_of_k()
    sums = Accumulators(ctx, gemm.cfg, gemm.readers)
    if gemm.turns is None:
        first_row = ctx.warpgroup_rank * gemm.cfg.rows
        for tile in gemm.work:
            with inputs.consumer(lag=sums.lag) as consumer:
                sums.multiply(consumer, k_steps, first_row)
            gemm.store(sums.blocks, tile, first_row)
    else:
        # The ring holds the stages of both warpgroups' tiles, in the order of the tiles: each steps
        # over those of the other.
        inputs.consumer_advance(ctx.warpgroup_rank * k_steps)
        gemm.epilogue.skip_source(ctx.warpgroup_rank)
        for tile in gemm.work.share(ctx.warpgroup_rank, 2):
            with (
                inputs.consumer(lag=sums.lag, shared=False) as consumer,
                gemm.turns.turn(ctx.warpgroup_rank),
            ):
                sums.multiply(consumer, k_steps, 0)
            inputs.consumer_advance(k_steps)
            # Stores take turns too: two epilogues at once would delay the next tile's MMAs.
            with gemm.turns.turn(ctx.warpgroup_rank):
                gemm.epilogue.store(sums.blocks, tile, 0)
            gemm.epilogue.skip_source(1)
    gemm.drain()


class Accumulators:
    """The sums of one warpgroup's rows of a tile, in blocks of 64 rows and the columns of one
    wgmma: `blocks[row][column]`.

    `lag`: stages whose MMAs may still be running when the next is waited for. One keeps the tensor
    cores busy; sums that are read after each stage leave none.
    """

    def __init__(
        self, ctx: tp.Context, cfg: Sm90Tiling, readers: int | None, *, empty: bool = False
    ) -> None:
        """`readers`: see `Sm90Gemm.readers`. `empty`: a tile may have no stage; its sums are 0."""
        self._ctx = ctx
        self._cfg = cfg
        self._readers = readers
        self._promotes = cfg.accumulate == "promote"
        self._from_zero = cfg.split_k > 1 or empty  # there may be no step for this CTA
        self.lag = 0 if self._promotes else 1
        self.blocks = self._new()
        self._partial = self._new() if self._promotes else self.blocks

    def _new(self) -> list[list[tp.Fragment]]:
        cfg, shape = self._cfg, (BLOCK_ROWS, self._cfg.block_cols)
        return [
            [self._ctx.accumulator(shape) for _ in range(cfg.bn // cfg.block_cols)]
            for _ in range(cfg.rows // BLOCK_ROWS)
        ]

    def multiply(
        self, consumer: tp.InputConsumer, k_steps: tp.Value, first_row: tp.Value | int
    ) -> None:
        """The product of `k_steps` stages; rows [first_row, first_row + rows) of their A tiles."""
        ctx, cfg = self._ctx, self._cfg
        if self._promotes or self._from_zero:
            for acc in chain(*self.blocks):
                acc.fill(0)
        for step in ctx.range(k_steps):
            with consumer.acquire() as stage:
                for j in range(cfg.k_group_size):
                    self._multiply_tile(stage, j, first_row, self._adds(j, step))
                ctx.mma_commit(stage.mbar(), mask=self._readers)
            if self._promotes:
                for total, partial in zip(chain(*self.blocks), chain(*self._partial), strict=True):
                    total += partial

    def _adds(self, j: int, step: tp.Value) -> bool | tp.Value:
        """True if the MMAs of K tile `j` of a stage add to what the accumulators hold."""
        if j or (self._from_zero and not self._promotes):
            return True
        return False if self._promotes else step > 0

    def _multiply_tile(
        self, stage: tp.InputConsumerStage, j: int, first_row: tp.Value | int, adds: bool | tp.Value
    ) -> None:
        a_tile, b_tile = stage.tile(j)
        cols = self._cfg.block_cols
        for i, row in enumerate(self._partial):
            for n, acc in enumerate(row):
                a_block = a_tile.rows(first_row + i * BLOCK_ROWS, BLOCK_ROWS)
                self._ctx.mma(acc, a_block, b_tile.rows(n * cols, cols), accumulate=adds)
