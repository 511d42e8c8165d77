"""The scales of 128×128 of B on Hopper, with groups or without: from global memory to where the
warpgroup that needs them reads them, many blocks of K at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tilepipe as tp
from tilepipe.kernels.gemm_blockwise.config import BLOCK, WINDOW, BlockwiseGemmConfig


class BScales:
    """The scales of B that the columns of a tile have: one or a few numbers a block of K. Each
    warpgroup that multiplies reads its own, so that nothing stands between the copies of the load
    role, and keeps them in shared memory, so that its loop does not wait for global memory.
    """

    def __init__(self, ctx: tp.Context, tensor: tp.GlobalTensor, cfg: BlockwiseGemmConfig) -> None:
        """Called in set-up code, before the roles."""
        self._ctx = ctx
        self._cfg = cfg
        self._tensor = tensor
        self._slots = tp.SMemArray(ctx, tp.float32, cfg.held_scales, name="b_scales_slots")
        self._anywhere = BLOCK % cfg.bn != 0 and cfg.bn % BLOCK != 0  # tiles begin inside a block

    def of_tile(self, tile: tp.WorkTile) -> TileScales:
        """Those of a tile, for this warpgroup: on their way."""
        return TileScales(self._ctx, self._tensor, self._slots, self._cfg, tile)

    def times(
        self, rows: list[tp.Fragment], numbers: Sequence[tp.Value]
    ) -> list[list[tp.Fragment]]:
        """Each fragment (64, 1) of A's scales times each of B's."""
        return [[self._ctx.fragment(scales * number) for number in numbers] for scales in rows]

    def of_column(self, products: list[tp.Fragment], n: tp.Value, col: int) -> tp.FragmentValue:
        """That of `products` which column `col` of the tiles with index `n` has."""
        block = col // BLOCK
        if not self._anywhere or block + 1 == len(products):
            return products[block]
        return self._ctx.select(
            n * self._cfg.bn % BLOCK + col < (block + 1) * BLOCK,
            products[block],
            products[block + 1],
        )


class TileScales:
    """The numbers of a tile's columns for the blocks of K that a warpgroup multiplies, one in each
    stage. Those of the first stage are in registers. The others come in windows: while one is read
    from shared memory, the next is on its way in the registers of the warpgroup's threads.
    """

    def __init__(
        self,
        ctx: tp.Context,
        tensor: tp.GlobalTensor,
        slots: tp.SMemArray[tp.ElementRef],
        cfg: BlockwiseGemmConfig,
        tile: tp.WorkTile,
    ) -> None:
        self._ctx, self._cfg = ctx, cfg
        self._tensor, self._slots = tensor, slots
        self._thread = ctx.let(ctx.thread % WINDOW, "thread")
        self._batch = tile.batch
        self._rows = [ctx.var(row) for row in self._rows_of(tile)]
        self._first = [ctx.var(x) for x in self._read(0)]
        self._next = [ctx.var(x) for x in self._read(1 + self._thread)]

    def go_on(self, tile: tp.WorkTile) -> None:
        """Those of another tile are on their way."""
        for row, other in zip(self._rows, self._rows_of(tile), strict=True):
            row.set(other)
        self._set(self._first, 0)
        self._set(self._next, 1 + self._thread)

    def first(self) -> list[tp.Value]:
        """The numbers of the first stage."""
        return [x.get() for x in self._first]

    def hold(self, start: tp.Value | int) -> None:
        """Puts the window that begins with a stage into shared memory, and sends for the next. The
        warpgroup must have met since it read the window before.
        """
        for i, value in enumerate(self._next):
            self._ctx.store(self._slot(i, self._thread), value.get())
        self._ctx.sync_warpgroup()
        self._set(self._next, start + WINDOW + self._thread)

    def others(self, stages: tp.Value) -> Iterator[list[tp.Value]]:
        """For each stage but the first its numbers, where the first window is held; traced
        loops.
        """
        ctx = self._ctx
        for window in ctx.range(ctx.ceil_div(stages - 1, WINDOW)):
            start = ctx.let(1 + window * WINDOW, "start")
            with ctx.when(window > 0):
                ctx.sync_warpgroup()
                self.hold(start)
            end = ctx.min(start + WINDOW, stages)
            for stage in ctx.range(start, end, unroll=self._cfg.unroll):
                place = stage - start
                yield [ctx.load(self._slot(i, place)) for i in range(self._cfg.scale_blocks)]

    def _rows_of(self, tile: tp.WorkTile) -> list[tp.Value]:
        ctx, cfg = self._ctx, self._cfg
        first = ctx.let(tile.n * cfg.bn // BLOCK, "n_block")
        last = self._tensor.shape[-2] - 1
        return [ctx.let(ctx.min(first + i, last), "scale_row") for i in range(cfg.scale_blocks)]

    def _set(self, numbers: list[tp.Var], stage: tp.Value | int) -> None:
        for number, value in zip(numbers, self._read(stage), strict=True):
            number.set(value)

    def _read(self, stage: tp.Value | int) -> list[tp.Value]:
        """The numbers of a stage, or, after the last block, of that one."""
        ctx, every = self._ctx, self._cfg.blocks_of_stage
        block = stage * every + ctx.warpgroup_rank if every > 1 else stage
        at = ctx.min(block, self._tensor.shape[-1] - 1)
        return [
            ctx.load(self._tensor[(self._batch, row.get(), at)[-self._tensor.rank :]])
            for row in self._rows
        ]

    def _slot(self, i: int, place: tp.Value) -> tp.ElementRef:
        """That of the i-th of a stage's numbers, at `place` in this warpgroup's window."""
        first = (i * self._cfg.consumers + self._ctx.warpgroup_rank) * WINDOW
        return self._slots[first + place]
