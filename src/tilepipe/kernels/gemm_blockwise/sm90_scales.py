"""The scales of 128×128 of B on Hopper, with groups or without: from global memory, by the load
warp, to where the warpgroups that multiply read them.
"""

from __future__ import annotations

from collections.abc import Sequence

import tilepipe as tp
from tilepipe.kernels.gemm_blockwise.config import BLOCK, BlockwiseGemmConfig


class BScales:
    """The scales of B that the columns of a tile have: one or a few numbers a block of K, which the
    load warp puts beside the stage's tiles.
    """

    def __init__(self, ctx: tp.Context, tensor: tp.GlobalTensor, cfg: BlockwiseGemmConfig) -> None:
        """Called in set-up code, before the roles."""
        self._ctx = ctx
        self._cfg = cfg
        self._tensor = tensor
        self._slots = tp.SMemArray(
            ctx, tp.float32, cfg.stages * cfg.scale_blocks, name="b_scales_slots"
        )
        self._anywhere = BLOCK % cfg.bn != 0 and cfg.bn % BLOCK != 0  # tiles begin inside a block

    def _slot(self, stage: tp.InputProducerStage | tp.InputConsumerStage, i: int) -> tp.ElementRef:
        return self._slots[stage.stage() * self._cfg.scale_blocks + i]

    def of_tile(self, tile: tp.WorkTile, k_blocks: tp.Value) -> TileScales:
        """Those of a tile, for the load warp."""
        return TileScales(
            self._ctx,
            self._tensor,
            tile.batch,
            self._ctx.let(tile.n * self._cfg.bn // BLOCK, "n_block"),
            k_blocks,
            self._cfg.scale_blocks,
        )

    def put(self, stage: tp.InputProducerStage, numbers: Sequence[tp.Value]) -> None:
        """Those of one block of K, by one lane of the load warp, before it arms the stage."""
        for i, number in enumerate(numbers):
            self._ctx.store(self._slot(stage, i), number)

    def times(
        self, rows: list[tp.Fragment], stage: tp.InputConsumerStage
    ) -> list[list[tp.Fragment]]:
        """Each fragment (64, 1) of A's scales times each of B's."""
        numbers = [self._ctx.load(self._slot(stage, i)) for i in range(self._cfg.scale_blocks)]
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
    """The numbers of a tile's columns, for one block of K after the other, read one block ahead."""

    def __init__(
        self,
        ctx: tp.Context,
        tensor: tp.GlobalTensor,
        batch: tp.Value | None,
        first_row: tp.Value,
        k_blocks: tp.Value,
        count: int,
    ) -> None:
        """`batch`: of a tensor with three dimensions."""
        self._ctx = ctx
        self._tensor = tensor
        self._batch = batch
        self._last = k_blocks - 1
        self._rows = [
            ctx.let(ctx.min(first_row + i, tensor.shape[-2] - 1), "scale_row") for i in range(count)
        ]
        self._now = [ctx.var(ctx.load(self._at(row, 0))) for row in self._rows]

    def _at(self, row: tp.Value, block: tp.Value | int) -> tp.ElementRef:
        return self._tensor[(self._batch, row, block)[-self._tensor.rank :]]

    def now(self) -> list[tp.Value]:
        """Those of the present block."""
        return [now.get() for now in self._now]

    def ahead(self, block: tp.Value) -> list[tp.Value]:
        """Those of the block after `block`: on their way."""
        following = self._ctx.min(block + 1, self._last)
        return [self._ctx.load(self._at(row, following)) for row in self._rows]

    def step(self, ahead: list[tp.Value]) -> None:
        """Goes on to the next block."""
        for now, value in zip(self._now, ahead, strict=True):
            now.set(value)
