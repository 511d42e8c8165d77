"""A GEMM of fp8 operands whose K is divided among groups, for Hopper: the weight gradients of a
mixture of experts, with a scale for each 1×128 of both operands.

    C[g, m, n] = Σ_kb a_scales[kb, m] · b_scales[kb, n] · (A_kb[m, :] · B_kb[n, :]ᵀ)

over the blocks kb of 128 along K that group g has. offsets[g], an int32 in GPU memory, is the
element of K after the last of group g: a multiple of 128, since a block has one scale, or the end
of K. The main loop is that of `gemm_blockwise.sm90`, but that the scales of B are one a column and
come by TMA, too.
"""

from __future__ import annotations

from functools import partial

import tilepipe as tp
from tilepipe.kernels.common.groups_of_k import Groups
from tilepipe.kernels.common.sm90_gemm import Sm90Gemm, output_tiles, persistent_grid
from tilepipe.kernels.common.validation import Array, check_config
from tilepipe.kernels.gemm_blockwise.config import BLOCK
from tilepipe.kernels.gemm_blockwise.sm90_sums import Sums
from tilepipe.kernels.gemm_k_grouped_blockwise.config import UNIT, KGroupedBlockwiseGemmConfig
from tilepipe.kernels.gemm_k_grouped_blockwise.validation import NAME, check_arguments, maps


@tp.kernel(grid=persistent_grid, cluster=lambda cfg: cfg.cluster_size)
def gemm_k_grouped_blockwise(
    ctx: tp.Context,
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    a_scales: tp.GlobalTensor,
    b_scales: tp.GlobalTensor,
    c: tp.GlobalTensor,
    offsets: tp.GlobalTensor,
    *,
    cfg: KGroupedBlockwiseGemmConfig,
) -> None:
    """C[group] = Σ over the group's blocks of K of a_scales · b_scales · (A · Bᵀ)"""
    payload = tp.BlockwiseFP8TilePayload(
        a_type=a.dtype,
        b_type=b.dtype,
        a_shape=(cfg.bm, BLOCK),
        b_shape=(cfg.bn, BLOCK),
        a_scales_type=tp.float32,
        a_scales_shape=(1, cfg.bm),
    )
    inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=cfg.stages)
    columns = ctx.smem(
        (1, cfg.staged_scales), tp.float32, count=cfg.stages, swizzle=0, name="inputs_b_scales"
    )
    work = output_tiles(ctx, c, cfg)
    shared = Sm90Gemm.allocate(ctx, cfg, inputs, work, a, c)
    groups = Groups(ctx, offsets, a.shape[1], BLOCK, aligned=True)
    shared.declare_roles(
        partial(load, shared, groups, columns, a, b, a_scales, b_scales),
        partial(multiply, shared, groups, columns),
    )


def load(
    gemm: Sm90Gemm,
    groups: Groups,
    columns: tp.SmemTileArray,
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    a_scales: tp.GlobalTensor,
    b_scales: tp.GlobalTensor,
) -> None:
    """The load role: the K tiles of a group are whole blocks. `columns`: the scales of B, a tile a
    stage.
    """
    ctx, cfg, inputs = gemm.ctx, gemm.cfg, gemm.inputs
    stage_bytes = inputs.stage_bytes + cfg.bn * tp.float32.nbytes
    walk = groups.walk()
    with inputs.producer() as producer:
        for tile in gemm.work:
            assert tile.batch is not None
            span = walk.to(tile.batch)
            for step in ctx.range(span.steps):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(stage_bytes)
                    a_tile, b_tile, scales_tile = stage.tile()
                    row, col = gemm.first_row("a", tile, cfg.bm), gemm.first_row("b", tile, cfg.bn)
                    full = stage.barrier()
                    block = ctx.let(span.first // BLOCK + step, "block")
                    gemm.a_share.load(ctx, a, a_tile, (None, row, block * BLOCK), full)
                    gemm.b_share.load(ctx, b, b_tile, (None, col, block * BLOCK), full)
                    ctx.tma_load(a_scales, (block, row), scales_tile, full)
                    columns_tile = columns.tile(stage.stage()).cols(0, cfg.bn)
                    ctx.tma_load(b_scales, (block, col), columns_tile, full)
        ctx.launch_dependents()
        producer.drain()


def multiply(gemm: Sm90Gemm, groups: Groups, columns: tp.SmemTileArray) -> None:
    """The MMA role. The sums of a group without blocks are 0, and are stored as any others."""
    ctx, cfg = gemm.ctx, gemm.cfg
    assert isinstance(cfg, KGroupedBlockwiseGemmConfig)
    sums = ColumnSums(ctx, cfg, columns, gemm.readers)
    first_row = ctx.warpgroup_rank * cfg.rows
    walk = groups.walk()
    for tile in gemm.work:
        assert tile.batch is not None
        span = walk.to(tile.batch)
        with gemm.inputs.consumer() as consumer:
            sums.multiply(consumer, span.steps, tile, first_row)
        gemm.store([[total] for total in sums.totals], tile, first_row)
    gemm.drain()


class ColumnSums(Sums):
    """The sums of a product whose B has a scale for each row of it, a column of C, and block of
    K: `scales` has those of a tile's columns, stage by stage.

    A thread has a quarter of the columns, and reads as many of their scales as it has registers for
    while the tensor cores multiply, the others as it adds.
    """

    def __init__(
        self,
        ctx: tp.Context,
        cfg: KGroupedBlockwiseGemmConfig,
        scales: tp.SmemTileArray,
        readers: int | None,
    ) -> None:
        super().__init__(ctx, cfg, readers)
        self._scales = scales
        self._early = cfg.early_cols
        self._reads_late = cfg.early_cols < cfg.bn

    def multiply(
        self,
        consumer: tp.InputConsumer,
        steps: tp.Value,
        tile: tp.WorkTile,
        first_row: tp.Value,
        skipped: tp.Value | int = 0,
    ) -> None:
        """The product over all blocks of K, which may be none."""
        for total in self.totals:
            total.fill(0)
        for _ in self._ctx.range(steps, unroll=self._cfg.unroll):
            self._block(consumer, tile, first_row, skipped, [], first=False)

    def _products(
        self,
        rows: list[tp.Fragment],
        numbers: list[tp.Value],
        stage: tp.InputConsumerStage,
    ) -> list[list[tp.Fragment]]:
        """Those of the rows, and what is read early of those of the columns."""
        self._columns = self._scales.tile(stage.stage())
        early = [self._read(col) for col in range(0, self._early, UNIT)]
        return [[scales, *early] for scales in rows]

    def _read(self, col: int) -> tp.Fragment:
        columns = self._ctx.fragment(shape=(1, UNIT))
        columns.load(self._columns.cols(col, UNIT))
        return columns

    def _promote(
        self, piece: int, scales: list[list[tp.Fragment]], tile: tp.WorkTile, first: bool
    ) -> None:
        (rows, *early), total = scales[piece], self.totals[piece]
        for col in range(0, self._cfg.bn, UNIT):
            columns = early[col // UNIT] if col < self._early else self._read(col)
            scaled = self._partial.cols(col, UNIT) * (columns * rows)
            total.set(total.cols(col, UNIT) + scaled, col=col)


def bind(
    a: Array,
    b: Array,
    a_scales: Array,
    b_scales: Array,
    c: Array,
    offsets: Array,
    cfg: KGroupedBlockwiseGemmConfig,
    *,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The product for arrays a (m, k), b (n, k) of float8_e4m3, c (groups, m, n) of bfloat16,
    float16 or float32, all row-major with strides of a multiple of 16 bytes, and offsets (groups,)
    of int32.

    Group g has the elements [start, end) of k: end is offsets[g], rounded down to a multiple of 128
    unless it is k or more, which counts as k; and at least start, which is the end of the group
    before, 0 for the first. Every element of c is written: that of a group without elements is 0.

    Args:
        a_scales, b_scales: float32, (k blocks, m) and (k blocks, n) in row order with strides of a
            multiple of 16 bytes, or their transposed views: a scale for each row and each 128 of K.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    check_config(NAME, cfg, KGroupedBlockwiseGemmConfig, "a KGroupedBlockwiseGemmConfig")
    check_arguments(a, b, a_scales, b_scales, c, offsets)
    a_map, b_map, scales_map, columns, c_map = maps(a, b, a_scales, b_scales, c, cfg)
    return gemm_k_grouped_blockwise.bind(
        a_map, b_map, scales_map, columns, c_map, offsets, chip=chip, cfg=cfg
    )
