"""The matrix that a GEMM adds to its sums, brought to the epilogue through shared memory: a warp of
its own starts the copies while the tile is multiplied, so that the epilogue does not wait for
global memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.common.tiling import OutputTiling

Place = tuple[tp.Value, tp.Value]  # (row, column) of C


@dataclass(frozen=True)
class Slice:
    """Where a slice begins that the epilogue stores at once: in block (`row`, `block`) of a
    warpgroup's sums, at column `col`.
    """

    row: int
    block: int
    col: int


class SourceTiles:
    """A ring of slices of the source. A stage holds one slice of each warpgroup that works on a
    tile, in the order in which they take them; each arrives for itself when it has read its part.

    Made in set-up code; `load` is a role of one warp, the others are called in the role that holds
    the sums.
    """

    def __init__(
        self, ctx: tp.Context, source: tp.GlobalTensor, cfg: OutputTiling, stages: int
    ) -> None:
        """`source`: a tensor map whose boxes are slices of one warpgroup."""
        assert source.box is not None
        self._ctx, self._source, self._cfg = ctx, source, cfg
        rows, self._width = source.box[-2:]
        self._rows = rows
        tiles = tp.TileOperand(source.dtype, (rows * cfg.sharers, self._width), source.order)
        self._ring = tp.InputTilePipeline.allocate(
            ctx, tp.OperandTilePayload(tiles=tiles), num_group_stages=stages, name="source"
        )
        # warpgroups that do not work on the same tiles take them in turn
        self._consumer = self._ring.consumer(shared=cfg.sharers == cfg.consumers)

    def load(
        self,
        work: Iterable[tp.WorkTile],
        slices: list[Slice],
        place: Callable[[tp.WorkTile, int, Slice], Place],
    ) -> None:
        """The role that loads: one lane starts the copies of every slice of every tile, as far
        ahead of the epilogue as the ring has stages.

        Args:
            slices: of a warpgroup's part of a tile. place: (tile, first row of the part, slice) ->
                where the slice begins in C.
        """
        ctx, cfg, ring = self._ctx, self._cfg, self._ring
        with ring.producer() as producer:
            for tile in work:
                for part in slices:
                    with producer.acquire() as stage, ctx.elect_one():
                        stage.expect_bytes(ring.stage_bytes)
                        (rows,) = stage.tile()
                        for warpgroup in range(cfg.sharers):
                            ctx.tma_load(
                                self._source,
                                self._at(tile, place(tile, warpgroup * cfg.rows, part)),
                                rows.rows(warpgroup * self._rows, self._rows),
                                stage.barrier(),
                            )

    def _at(self, tile: tp.WorkTile, place: Place) -> tuple[tp.Value | None, ...]:
        return (tile.batch, *place)[-self._source.rank :]

    def take(self) -> tuple[tp.Fragment, tp.InputConsumerStage]:
        """This warpgroup's part of the next slice, in registers, and its stage, which is free for
        the next copy when `free` has been called.
        """
        stage = self._consumer.acquire_stage()
        (rows,) = stage.tile()
        first = self._ctx.warpgroup_rank * self._rows if self._cfg.sharers > 1 else 0
        part = self._ctx.fragment(
            shape=(self._rows, self._width),
            dtype=self._source.dtype,
            layout=self._cfg.fragment_layout,
        )
        part.load(rows.rows(first, self._rows))
        return part, stage

    def free(self, stage: tp.InputConsumerStage) -> None:
        """Called where the warpgroup has synchronised since `take`: all of its threads have
        read.
        """
        with self._ctx.elect_one("warpgroup"):
            stage.mbar().arrive()
        stage.release()

    def skip(self, slices: tp.Value | int) -> None:
        """Steps over slices that another warpgroup takes."""
        self._ring.consumer_advance(slices)
