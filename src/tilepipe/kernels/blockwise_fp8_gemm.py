"""A GEMM of fp8 operands with a scale for each block, for Hopper: persistent and warp-specialised, as `kernels.gemm`.

    C[m, n] = Σ_kb a_scales[kb, m] · b_scales[n / 128, kb] · (A_kb[m, :] · B_kb[n, :]ᵀ)

A (m, k) and B (n, k) e4m3, row-major; kb runs over blocks of 128 along K. The tensor cores multiply one block into partial
sums, which the warpgroup then adds, times their scales, to totals in its float32 registers, while they multiply for the
other warpgroup. The scales of A come with its tiles, by TMA; those of B, one or two numbers a block, by ordinary loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import tilepipe as tp
from tilepipe.kernels.blockwise_fp8_arguments import boxed, check_arguments, scales_by_rows
from tilepipe.kernels.blockwise_fp8_config import BLOCK
from tilepipe.kernels.blockwise_fp8_config import BlockwiseFP8Config as BlockwiseFP8Config
from tilepipe.kernels.gemm import load_rows, load_shared, persistent_grid
from tilepipe.kernels.gemm_config import BLOCK_ROWS, store_width
from tilepipe.kernels.gemm_epilogue import Epilogue


@tp.kernel(grid=persistent_grid, cluster=lambda cfg: cfg.cluster_size)
def blockwise_fp8_gemm(ctx: tp.Context, a: Any, b: Any, a_scales: Any, b_scales: Any, c: Any, *, cfg: BlockwiseFP8Config) -> None:
    """C = Σ over blocks of K of a_scales · b_scales · (A · Bᵀ)"""
    tile_cfg = cfg.tile
    tiles = tp.BlockwiseFP8TilePayload(
        a_type=a.dtype, b_type=b.dtype, a_shape=(cfg.bm, BLOCK), b_shape=(cfg.bn, BLOCK), a_scales_type=tp.float32,
        a_scales_shape=(1, cfg.bm),
    )  # fmt: skip
    inputs = tp.InputTilePipeline.allocate(ctx, tiles, num_group_stages=cfg.stages)
    work = tp.StaticScheduler(
        ctx, tiles=(ctx.ceil_div(c.shape[0], cfg.bm), ctx.ceil_div(c.shape[1], cfg.bn)), cluster=(cfg.cluster, cfg.cluster_n),
        raster=cfg.raster, group=cfg.group,
    )  # fmt: skip
    k_blocks = ctx.ceil_div(a.shape[1], BLOCK)
    everyone = (1 << cfg.cluster_size) - 1 if cfg.cluster_size > 1 else None
    turns = Turns(ctx, cfg.consumers) if cfg.turns else None
    output = Epilogue(ctx, c, None, None, None, None, None, None, cfg=tile_cfg, scales="none")

    @ctx.role("load", warps=1, registers=tile_cfg.registers[0])
    def load() -> None:
        with inputs.producer() as producer:
            for tile in work:
                for block in ctx.range(k_blocks):
                    with producer.acquire() as stage, ctx.elect_one():
                        stage.expect_bytes(inputs.stage_bytes)
                        a_tile, b_tile, scales_tile = stage.tile()
                        row, col, k = tile.m * cfg.bm, tile.n * cfg.bn, block * BLOCK
                        load_shared(ctx, a, a_tile, (None, row, k), stage.barrier(), cfg.cluster_n, everyone)
                        ctx.tma_load(a_scales, (block, row), scales_tile, stage.barrier())
                        load_shared(ctx, b, b_tile, (None, col, k), stage.barrier(), cfg.cluster, everyone)
            ctx.launch_dependents()
            producer.drain()

    @ctx.role("mma", warpgroups=cfg.consumers, registers=tile_cfg.registers[1])
    def mma() -> None:
        sums = Sums(ctx, cfg, turns)
        if turns is not None:
            turns.begin()
        first_row = ctx.warpgroup_rank * cfg.rows
        for tile in work:
            with inputs.consumer() as consumer:
                sums.multiply(consumer, k_blocks, first_row, BScales(ctx, b_scales, tile.n * cfg.bn, k_blocks, cfg), everyone)
            output.store([[total] for total in sums.totals], tile, first_row)
        if turns is not None:
            turns.end()
        output.drain()


class BScales:
    """The scales of B that the columns [col, col + bn) of a tile have, one block of K after the other, read one block ahead."""

    def __init__(self, ctx: tp.Context, b_scales: Any, col: Any, k_blocks: Any, cfg: BlockwiseFP8Config) -> None:
        self._ctx = ctx
        self._tensor = b_scales
        self._last = ctx.let(k_blocks - 1, "last_block")
        self._offset = None if BLOCK % cfg.bn == 0 or cfg.bn % BLOCK == 0 else ctx.let(col % BLOCK, "offset")
        first, end = ctx.let(col // BLOCK, "n_block"), b_scales.shape[0] - 1
        self._rows = [ctx.let(ctx.min(first + i, end), "scale_row") for i in range(cfg.scale_blocks)]
        self._now = [ctx.var(ctx.load(b_scales[row, 0])) for row in self._rows]

    def ahead(self, block: Any) -> list[Any]:
        """Those of the block after `block`: on their way."""
        following = self._ctx.min(block + 1, self._last)
        return [self._ctx.load(self._tensor[row, following]) for row in self._rows]

    def step(self, ahead: list[Any]) -> None:
        """Goes on to the next block."""
        for now, value in zip(self._now, ahead, strict=True):
            now.set(value)

    def times(self, rows: Any) -> list[Any]:
        """A's scales (64, 1) times each of B's."""
        return [self._ctx.fragment(rows * now.get()) for now in self._now]

    def of(self, products: list[Any], col: int) -> Any:
        """That of `products` which column `col` of the tile has."""
        block = col // BLOCK
        if self._offset is None or block + 1 == len(products):
            return products[block]
        return self._ctx.select(self._offset + col < (block + 1) * BLOCK, products[block], products[block + 1])


class Turns:
    """The MMA warpgroups issue their wgmma one after the other, a piece each, so that one adds to its totals while the tensor cores
    work for the others; without, they tend to do the same at the same time. Barrier i: what warpgroup i waits for.
    """

    def __init__(self, ctx: tp.Context, groups: int) -> None:
        """In set-up code."""
        self._ctx = ctx
        self._barriers = [ctx.named_barrier(2 * 128, f"turn_{i}") for i in range(groups)]

    def begin(self) -> None:
        """The first turn is warpgroup 0's."""
        with self._ctx.when(self._ctx.warpgroup_rank == len(self._barriers) - 1):
            self._barriers[0].arrive()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits for the turn of this warpgroup, and gives it to the next."""
        for i, barrier in enumerate(self._barriers):
            with self._ctx.when(self._ctx.warpgroup_rank == i):
                barrier.sync()
        yield
        for i in range(len(self._barriers)):
            with self._ctx.when(self._ctx.warpgroup_rank == i):
                self._barriers[(i + 1) % len(self._barriers)].arrive()

    def end(self) -> None:
        """Takes the turn that is left over."""
        with self._ctx.when(self._ctx.warpgroup_rank == 0):
            self._barriers[0].sync()


class Sums:
    """The sums of one warpgroup's rows of a tile: `totals`, one (64, bn) a row block, and partial sums of one block of K."""

    def __init__(self, ctx: tp.Context, cfg: BlockwiseFP8Config, turns: Turns | None) -> None:
        self._ctx = ctx
        self._cfg = cfg
        self._turns = turns
        self.totals = [ctx.accumulator((BLOCK_ROWS, cfg.bn)) for _ in range(cfg.rows // BLOCK_ROWS)]
        self._partials = [ctx.accumulator((BLOCK_ROWS, cfg.piece_cols)) for _ in range(cfg.partials)]

    def multiply(self, consumer: Any, k_blocks: Any, first_row: Any, b_scales: BScales, everyone: int | None) -> None:
        """The product over all blocks of K; rows [first_row, first_row + rows) of their A tiles.

        A slot is left twice: by each warp, which has read its scales, and by the MMAs.
        """
        ctx, cfg = self._ctx, self._cfg
        last = cfg.pieces - 1
        for total in self.totals:
            total.fill(0)
        for block in ctx.range(k_blocks):
            ahead = b_scales.ahead(block)
            with consumer.acquire() as stage:
                for piece in range(cfg.partials):
                    self._issue(piece, stage, first_row, everyone)
                # Behind the MMAs, which need not wait for what is read meanwhile.
                scales_tile = stage.tile()[2]
                scales = [b_scales.times(self._row_scales(scales_tile, first_row + i * BLOCK_ROWS)) for i in range(len(self.totals))]
                ctx.syncwarp()
                with ctx.elect_one():
                    stage.mbar().arrive()
                for piece in range(last):
                    ctx.wgmma_wait(min(cfg.partials, cfg.pieces - piece) - 1)
                    self._promote(piece, scales, b_scales)
                    if piece + cfg.partials <= last:
                        self._issue(piece + cfg.partials, stage, first_row, everyone)
            self._promote(last, scales, b_scales)
            b_scales.step(ahead)

    def _row_scales(self, tile: Any, row: Any) -> Any:
        scales = self._ctx.fragment(shape=(BLOCK_ROWS, 1))
        scales.load(tile.cols(row, BLOCK_ROWS))
        return scales

    def _issue(self, piece: int, stage: Any, first_row: Any, everyone: int | None) -> None:
        """Multiplies a piece, in a group of its own."""
        ctx, cfg = self._ctx, self._cfg
        i, part = divmod(piece, cfg.splits)
        a_tile, b_tile, _ = stage.tile()
        a_block = a_tile.rows(first_row + i * BLOCK_ROWS, BLOCK_ROWS)
        b_block = b_tile.rows(part * cfg.piece_cols, cfg.piece_cols)
        with self._turns.turn() if self._turns is not None else nullcontext():
            ctx.mma(self._partials[piece % cfg.partials], a_block, b_block, accumulate=False)
        if piece < cfg.pieces - 1:
            ctx.wgmma_commit()
        else:
            ctx.mma_commit(stage.mbar(), mask=everyone)

    def _promote(self, piece: int, scales: list[list[Any]], b_scales: BScales) -> None:
        """total += partial · scale, for each group of columns that share a scale of B."""
        cfg = self._cfg
        i, part = divmod(piece, cfg.splits)
        total, partial = self.totals[i], self._partials[piece % cfg.partials]
        width = cfg.piece_cols if len(scales[i]) == 1 else cfg.scale_cols
        for col in range(0, cfg.piece_cols, width):
            at = part * cfg.piece_cols + col
            scale = b_scales.of(scales[i], at)
            total.set(total.cols(at, width) + partial.cols(col, width) * scale, col=at)


def bind(a: Any, b: Any, a_scales: Any, b_scales: Any, c: Any, cfg: BlockwiseFP8Config) -> tp.Program:
    """The product for arrays a (m, k), b (n, k) of float8_e4m3 and c (m, n) of bfloat16, float16 or float32, all row-major with
    strides of a multiple of 16 bytes.

    Args:
        a_scales: float32, (k blocks, m) in row order with strides of a multiple of 16 bytes, or (m, k blocks) in column order: a
            scale for each row and each 128 of K.
        b_scales: float32, (n blocks, k blocks): a scale for each 128×128 of B. The last block of an extent may be shorter.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    if not isinstance(cfg, BlockwiseFP8Config):
        raise tp.BindError(f"blockwise_fp8_gemm: cfg is a BlockwiseFP8Config, got {cfg!r}")
    m, _, k = check_arguments(a, b, a_scales, b_scales, c)
    a_map = boxed("a", a, (load_rows(cfg.bm // cfg.cluster_n), BLOCK))
    b_map = boxed("b", b, (load_rows(cfg.bn // cfg.cluster), BLOCK))
    scales_map = boxed("a_scales", scales_by_rows(a_scales, m, k), (1, cfg.bm))
    c_map = boxed("c", c, (BLOCK_ROWS, store_width(tp.tensor_map(c).dtype, cfg.tile)))
    return blockwise_fp8_gemm.bind(a_map, b_map, scales_map, b_scales, c_map, cfg=cfg)
