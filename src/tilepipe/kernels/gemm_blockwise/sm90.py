"""A GEMM of fp8 operands with a scale for each block, for Hopper: persistent and warp-specialised,
as `gemm.sm90`.

    C[m, n] = Σ_kb a_scales[kb, m] · b_scales[n / 128, kb] · (A_kb[m, :] · B_kb[n, :]ᵀ)

A (m, k) and B (n, k) e4m3, row-major; kb runs over blocks of 128 along K. The tensor cores multiply
one block into partial sums, which the warpgroup then adds, times their scales, to totals in its
float32 registers, while they multiply for the other warpgroup. The scales of A come with its tiles,
by TMA; those of B, one or a few numbers a block, the load warp puts beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import tilepipe as tp
from tilepipe.kernels.common.sm90_gemm import Sm90Gemm, output_tiles, persistent_grid
from tilepipe.kernels.common.tiling import BLOCK_ROWS
from tilepipe.kernels.common.validation import Array, check_config
from tilepipe.kernels.gemm_blockwise.config import BLOCK, BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.validation import NAME, check_arguments, maps


@tp.kernel(grid=persistent_grid, cluster=lambda cfg: cfg.cluster_size)
def gemm_blockwise(
    ctx: tp.Context,
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    a_scales: tp.GlobalTensor,
    b_scales: tp.GlobalTensor,
    c: tp.GlobalTensor,
    *,
    cfg: BlockwiseGemmConfig,
) -> None:
    """C = Σ over blocks of K of a_scales · b_scales · (A · Bᵀ)"""
    payload = tp.BlockwiseFP8TilePayload(
        a_type=a.dtype,
        b_type=b.dtype,
        a_shape=(cfg.bm, BLOCK),
        b_shape=(cfg.bn, BLOCK),
        a_scales_type=tp.float32,
        a_scales_shape=(1, cfg.bm),
    )
    inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=cfg.stages)
    work = output_tiles(ctx, c, cfg)
    scales = BScales(ctx, b_scales, cfg)
    shared = Sm90Gemm.allocate(ctx, cfg, inputs, work, a, c)
    # Where the store slots hold a whole tile, the warpgroups meet less often.
    epilogue = shared.epilogue
    store = epilogue.store_at_once if cfg.store_slots == cfg.slices(c.dtype) else epilogue.store
    shared.declare_roles(
        partial(load, shared, scales, a, b, a_scales),
        partial(multiply, shared, work, scales, store),
    )


def load(
    gemm: Sm90Gemm,
    scales: BScales,
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    a_scales: tp.GlobalTensor,
) -> None:
    """The load role. Beside the copies it puts the scales of B into the stage by ordinary stores:
    they are one or a few numbers, less than TMA copies. They are read one block ahead, so that the
    latency of global memory does not stand between two stages.
    """
    ctx, cfg, inputs = gemm.ctx, gemm.cfg, gemm.inputs
    with inputs.producer() as producer:
        for tile in gemm.work:
            numbers = scales.of_tile(tile.n, gemm.k_steps)
            for block in ctx.range(gemm.k_steps):
                ahead = numbers.ahead(block)
                with producer.acquire() as stage, ctx.elect_one():
                    # Before the stage is armed: its full barrier then orders them, too.
                    scales.put(stage, numbers.now())
                    stage.expect_bytes(inputs.stage_bytes)
                    a_tile, b_tile, scales_tile = stage.tile()
                    row, col, k = tile.m * cfg.bm, tile.n * cfg.bn, block * BLOCK
                    gemm.a_share.load(ctx, a, a_tile, (None, row, k), stage.barrier())
                    gemm.b_share.load(ctx, b, b_tile, (None, col, k), stage.barrier())
                    ctx.tma_load(a_scales, (block, row), scales_tile, stage.barrier())
                numbers.step(ahead)
        ctx.launch_dependents()
        producer.drain()


def multiply(
    gemm: Sm90Gemm, work: tp.StaticScheduler, scales: BScales, store: Callable[..., None]
) -> None:
    """The MMA role. Adding partial sums to totals takes a warpgroup about as long as multiplying
    them takes the tensor cores, so two warpgroups keep them busy: one adds while the other's MMAs
    run.

    `store`: of the epilogue.
    """
    ctx, cfg = gemm.ctx, gemm.cfg
    assert isinstance(cfg, BlockwiseGemmConfig)
    sums = Sums(ctx, cfg, scales, gemm.readers)
    first_row = ctx.warpgroup_rank * cfg.rows
    for tile in work.ahead():
        with gemm.inputs.consumer() as consumer:
            sums.multiply(consumer, gemm.k_steps, tile, first_row)
        store([[total] for total in sums.totals], tile, first_row)
    gemm.epilogue.drain()


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

    def of_tile(self, n: tp.Value, k_blocks: tp.Value) -> TileScales:
        """Those of the tiles with index `n`, for the load warp."""
        return TileScales(
            self._ctx,
            self._tensor,
            self._ctx.let(n * self._cfg.bn // BLOCK, "n_block"),
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
        first_row: tp.Value,
        k_blocks: tp.Value,
        count: int,
    ) -> None:
        self._ctx = ctx
        self._tensor = tensor
        self._last = k_blocks - 1
        self._rows = [
            ctx.let(ctx.min(first_row + i, tensor.shape[0] - 1), "scale_row") for i in range(count)
        ]
        self._now = [ctx.var(ctx.load(tensor[row, 0])) for row in self._rows]

    def now(self) -> list[tp.Value]:
        """Those of the present block."""
        return [now.get() for now in self._now]

    def ahead(self, block: tp.Value) -> list[tp.Value]:
        """Those of the block after `block`: on their way."""
        following = self._ctx.min(block + 1, self._last)
        return [self._ctx.load(self._tensor[row, following]) for row in self._rows]

    def step(self, ahead: list[tp.Value]) -> None:
        """Goes on to the next block."""
        for now, value in zip(self._now, ahead, strict=True):
            now.set(value)


class Sums:
    """The sums of one warpgroup's rows of a tile: `totals`, one (64, bn) a row block, and the
    partial sums of one piece of them, 64 rows and the columns of one wgmma, over one block of K.
    """

    def __init__(
        self, ctx: tp.Context, cfg: BlockwiseGemmConfig, scales: BScales, readers: int | None
    ) -> None:
        self._ctx = ctx
        self._cfg = cfg
        self._scales = scales
        self._readers = readers
        self.totals = [ctx.accumulator((BLOCK_ROWS, cfg.bn)) for _ in range(cfg.rows // BLOCK_ROWS)]
        self._partial = ctx.accumulator((BLOCK_ROWS, cfg.piece_cols))

    def multiply(
        self,
        consumer: tp.InputConsumer,
        k_blocks: tp.Value,
        tile: tp.AheadTile,
        first_row: tp.Value,
    ) -> None:
        """The product over all blocks of K; rows [first_row, first_row + rows) of their A tiles."""
        self._block(consumer, tile, first_row, first=True)
        for _ in self._ctx.range(1, k_blocks):
            self._block(consumer, tile, first_row, first=False)

    def _block(
        self, consumer: tp.InputConsumer, tile: tp.AheadTile, first_row: tp.Value, first: bool
    ) -> None:
        """One block of K. The first takes the totals' place, and the indices of the next tile are
        computed while its MMAs run.

        A slot is left twice: by each warp, which has read its scales, and by the MMAs.
        """
        ctx, cfg = self._ctx, self._cfg
        last = cfg.pieces - 1
        with consumer.acquire() as stage:
            self._issue(0, stage, first_row)
            # The scales are read after the MMAs have been issued, while they run.
            scales_tile = stage.tile()[2]
            rows = [
                self._row_scales(scales_tile, first_row + i * BLOCK_ROWS)
                for i in range(len(self.totals))
            ]
            scales = self._scales.times(rows, stage)
            ctx.syncwarp()
            with ctx.elect_one():
                stage.mbar().arrive()
            if first:
                tile.following()
            for piece in range(last):
                ctx.wgmma_wait(0)
                self._promote(piece, scales, tile, first)
                self._issue(piece + 1, stage, first_row)
        self._promote(last, scales, tile, first)

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
        b_block = b_tile.rows(part * cfg.piece_cols, cfg.piece_cols)
        ctx.mma(self._partial, a_block, b_block, accumulate=False)
        if piece < cfg.pieces - 1:
            ctx.wgmma_commit()
        else:
            ctx.mma_commit(stage.mbar(), mask=self._readers)

    def _promote(
        self, piece: int, scales: list[list[tp.Fragment]], tile: tp.WorkTile, first: bool
    ) -> None:
        """total += partial · scale, or, `first`, total = it, for each group of columns that share a
        scale of B.
        """
        cfg = self._cfg
        i, part = divmod(piece, cfg.splits)
        total = self.totals[i]
        width = cfg.piece_cols if len(scales[i]) == 1 else cfg.scale_cols
        for col in range(0, cfg.piece_cols, width):
            at = part * cfg.piece_cols + col
            scale = self._scales.of_column(scales[i], tile.n, at)
            scaled = self._partial.cols(col, width) * scale
            total.set(scaled if first else total.cols(at, width) + scaled, col=at)


def bind(
    a: Array,
    b: Array,
    a_scales: Array,
    b_scales: Array,
    c: Array,
    cfg: BlockwiseGemmConfig,
    *,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The product for arrays a (m, k), b (n, k) of float8_e4m3 and c (m, n) of bfloat16, float16 or
    float32, all row-major with strides of a multiple of 16 bytes.

    Args:
        a_scales: float32, (k blocks, m) in row order with strides of a multiple of 16 bytes, or (m,
            k blocks) in column order: a scale for each row and each 128 of K.
        b_scales: float32, (n blocks, k blocks): a scale for each 128×128 of B. The last block of an
            extent may be shorter.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    check_config(NAME, cfg, BlockwiseGemmConfig, "a BlockwiseGemmConfig")
    check_arguments(a, b, a_scales, b_scales, c)
    parts = cfg.bm // cfg.cluster_n, cfg.bn // cfg.cluster
    a_map, b_map, scales_map, c_map = maps(a, b, a_scales, c, cfg, parts)
    return gemm_blockwise.bind(a_map, b_map, scales_map, b_scales, c_map, chip=chip, cfg=cfg)
