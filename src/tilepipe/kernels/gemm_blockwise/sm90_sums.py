"""The sums of the blockwise fp8 GEMMs on Hopper, with groups or without: partial ones of a block of
K from the tensor cores, which their warpgroup adds, times their scales, to totals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import tilepipe as tp
from tilepipe.kernels.common.tiling import BLOCK_ROWS
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.sm90_scales import BScales, TileScales


class Sums(ABC):
    """The sums of one warpgroup's rows of a tile: `totals`, one (64, bn) a row block, and the
    partial sums of one piece of them, 64 rows and the columns of one wgmma, over one block of K.
    What the scales of B are of is a matter of the class.
    """

    # True: `_promote` reads scales of the stage, which is left after the last.
    _reads_late = False

    def __init__(self, ctx: tp.Context, cfg: BlockwiseGemmConfig, readers: int | None) -> None:
        self._ctx = ctx
        self._cfg = cfg
        self._readers = readers
        self.totals = [ctx.accumulator((BLOCK_ROWS, cfg.bn)) for _ in range(cfg.rows // BLOCK_ROWS)]
        self._partial = ctx.accumulator((BLOCK_ROWS, cfg.piece_cols))

    @abstractmethod
    def multiply(
        self,
        consumer: tp.InputConsumer,
        steps: tp.Value,
        tile: tp.WorkTile,
        first_row: tp.Value,
        skipped: tp.Value | int = 0,
    ) -> None:
        """The product over all stages of K; rows [first_row, first_row + rows) of their A tiles.
        `skipped`: scales of A in a stage before that of the tile's first row.
        """

    def _block(
        self,
        consumer: tp.InputConsumer,
        tile: tp.WorkTile,
        first_row: tp.Value,
        skipped: tp.Value | int,
        numbers: list[tp.Value],
        *,
        first: bool,
    ) -> None:
        """One block of K, whose B has the scales `numbers`. The first takes the totals' place; what
        the others need is prepared while its MMAs run.

        A slot is left twice: by each warp, which has read its scales, and by the MMAs.
        """
        ctx, cfg = self._ctx, self._cfg
        last = cfg.pieces - 1
        with consumer.acquire() as stage:
            self._issue(0, stage, first_row)
            # The scales are read after the MMAs have been issued, while they run.
            scales_tile = stage.tile()[2]
            rows = [
                self._row_scales(scales_tile, first_row + i * BLOCK_ROWS + skipped)
                for i in range(len(self.totals))
            ]
            scales = self._products(rows, numbers, stage)
            if not self._reads_late:
                self._leave(stage)
            if first:
                self._prepare(tile)
            for piece in range(last):
                ctx.wgmma_wait(0)
                self._promote(piece, scales, tile, first)
                self._issue(piece + 1, stage, first_row)
            if self._reads_late:
                ctx.wgmma_wait(0)
                self._promote(last, scales, tile, first)
                self._leave(stage)
        if not self._reads_late:
            self._promote(last, scales, tile, first)

    def _prepare(self, tile: tp.WorkTile) -> None:
        """The indices of the next tile are computed, where the schedule knows them."""
        if isinstance(tile, tp.AheadTile):
            tile.following()

    def _leave(self, stage: tp.InputConsumerStage) -> None:
        """Each warp has read the scales of a stage."""
        self._ctx.syncwarp()
        with self._ctx.elect_one():
            stage.mbar().arrive()

    def _row_scales(self, tile: tp.SmemTile, row: tp.Value) -> tp.Fragment:
        scales = self._ctx.fragment(shape=(BLOCK_ROWS, 1))
        scales.load(tile.cols(row, BLOCK_ROWS))
        return scales

    def _issue(self, piece: int, stage: tp.InputConsumerStage, first_row: tp.Value) -> None:
        """Multiplies a piece, in a wgmma group of its own."""
        ctx, cfg = self._ctx, self._cfg
        i, part = divmod(piece, cfg.splits)
        a_tile, b_tile, _ = stage.tile()
        a_block = a_tile.rows(first_row + i * BLOCK_ROWS, BLOCK_ROWS)
        first_col = ctx.warpgroup_rank * cfg.bn if cfg.blocks_of_stage > 1 else 0
        b_block = b_tile.rows(first_col + part * cfg.piece_cols, cfg.piece_cols)
        ctx.mma(self._partial, a_block, b_block, accumulate=False)
        if piece < cfg.pieces - 1:
            ctx.wgmma_commit()
        else:
            ctx.mma_commit(stage.mbar(), mask=self._readers)

    @abstractmethod
    def _products(
        self,
        rows: list[tp.Fragment],
        numbers: list[tp.Value],
        stage: tp.InputConsumerStage,
    ) -> list[list[tp.Fragment]]:
        """What `_promote` takes of a block's scales, for each fragment (64, 1) of A's."""

    @abstractmethod
    def _promote(
        self, piece: int, scales: list[list[tp.Fragment]], tile: tp.WorkTile, first: bool
    ) -> None:
        """total += partial · scales, or, `first`, total = it, for the columns of a piece."""


class BlockSums(Sums):
    """The sums of a product whose B has a scale for each 128×128."""

    def __init__(
        self, ctx: tp.Context, cfg: BlockwiseGemmConfig, scales: BScales, readers: int | None
    ) -> None:
        super().__init__(ctx, cfg, readers)
        self._scales = scales
        self._of_tile: TileScales | None = None

    def multiply(
        self,
        consumer: tp.InputConsumer,
        steps: tp.Value,
        tile: tp.WorkTile,
        first_row: tp.Value,
        skipped: tp.Value | int = 0,
    ) -> None:
        """Those of the tile that was the last to be expected."""
        assert self._of_tile is not None
        self._block(consumer, tile, first_row, skipped, self._of_tile.first(), first=True)
        for numbers in self._of_tile.others(steps):
            self._block(consumer, tile, first_row, skipped, numbers, first=False)

    def expect(self, tile: tp.WorkTile) -> None:
        """Sends for the scales of a tile, which is multiplied next; those that may follow it live
        as long.
        """
        self._of_tile = self._scales.of_tile(tile)

    def expect_another(self, tile: tp.WorkTile) -> None:
        """Sends for the scales of the tile after the one that `expect` was called for."""
        assert self._of_tile is not None
        self._of_tile.go_on(tile)

    def _prepare(self, tile: tp.WorkTile) -> None:
        super()._prepare(tile)
        assert self._of_tile is not None
        self._of_tile.hold(1)

    def _products(
        self,
        rows: list[tp.Fragment],
        numbers: list[tp.Value],
        stage: tp.InputConsumerStage,
    ) -> list[list[tp.Fragment]]:
        return self._scales.times(rows, numbers)

    def _promote(
        self, piece: int, scales: list[list[tp.Fragment]], tile: tp.WorkTile, first: bool
    ) -> None:
        """As of `Sums`, for each group of columns that share a scale of B."""
        cfg = self._cfg
        i, part = divmod(piece, cfg.splits)
        total = self.totals[i]
        width = cfg.piece_cols if len(scales[i]) == 1 else cfg.scale_cols
        for col in range(0, cfg.piece_cols, width):
            at = part * cfg.piece_cols + col
            scale = self._scales.of_column(scales[i], tile.n, at)
            scaled = self._partial.cols(col, width) * scale
            total.set(scaled if first else total.cols(at, width) + scaled, col=at)
