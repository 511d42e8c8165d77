"""A GEMM of weights of 4 or 8 bits by 16-bit activations, for Hopper: what a layer of a language
model does for few tokens, when reading the weights takes all the time.

    C[m, n] = activation(Σ_g scales[g, n] · (A_g[m, :] · W_g[n, :]ᵀ))

A (m, k) bfloat16 or float16, row-major; W (n, k) integers, packed as `layout` says; g runs over
groups of 32, 64, or a multiple of 128 along K; C bfloat16, float16 or float32, row-major.

It computes Cᵀ = W · Aᵀ, so that 64 weights, however few tokens there are, fill the rows of a wgmma,
whose left operand may be in registers. One TMA warp brings words, activations and scales. A
warpgroup reads words as they lie, makes 16-bit weights of them, exact integers, with three
instructions for two, and multiplies; the sums of a group are multiplied by its scales in float32.
Where there are fewer tiles than SMs, the CTAs of a cluster share K.
"""

from __future__ import annotations

from functools import partial

import tilepipe as tp
from tilepipe.kernels.common.sm90_gemm import Sm90Gemm, output_tiles, persistent_grid
from tilepipe.kernels.common.tiling import BLOCK_ROWS
from tilepipe.kernels.common.validation import Array, check_config
from tilepipe.kernels.gemm_quantised.config import QuantisedGemmConfig
from tilepipe.kernels.gemm_quantised.layout import BLOCK, bits_of
from tilepipe.kernels.gemm_quantised.validation import NAME, check_arguments, maps

# Of a 16-bit float: the bits into whose low end a nibble is set, and the number that they are.
BIASED = {tp.bfloat16: (0x43004300, 128), tp.float16: (0x64006400, 1024)}
NIBBLES = 0x000F000F


@tp.kernel(grid=persistent_grid, cluster=lambda cfg: cfg.cluster_size)
def gemm_quantised(
    ctx: tp.Context,
    a: tp.GlobalTensor,
    words: tp.GlobalTensor,
    scales: tp.GlobalTensor,
    c: tp.GlobalTensor,
    *,
    cfg: QuantisedGemmConfig,
    group: int,
) -> None:
    """Cᵀ = activation(Σ over groups of scales · (W · Aᵀ)); c is Cᵀ already."""
    assert words.box is not None
    tiles = tp.OperandTilePayload(
        words=tp.TileOperand(words.dtype, (cfg.bm, words.box[-1])),
        a=tp.TileOperand(a.dtype, (cfg.bn, BLOCK)),
        scales=tp.TileOperand(scales.dtype, (max(BLOCK // group, 1), cfg.bm), swizzle=0),
    )
    inputs = tp.InputTilePipeline.allocate(
        ctx, tiles, num_group_stages=cfg.stages, k_group_size=cfg.k_group_size
    )
    work = output_tiles(ctx, c, cfg)
    shared = Sm90Gemm.allocate(ctx, cfg, inputs, work, a, c)
    shared.declare_roles(
        partial(load, shared, a, words, scales, group),
        partial(multiply_and_store, shared, a.dtype, group),
    )


def load(
    gemm: Sm90Gemm,
    a: tp.GlobalTensor,
    words: tp.GlobalTensor,
    scales: tp.GlobalTensor,
    group: int,
) -> None:
    """The load role: one lane starts the copies of every K tile of this CTA's part of K."""
    ctx, cfg, inputs = gemm.ctx, gemm.cfg, gemm.inputs
    first, k_steps = gemm.part_of_k()
    with inputs.producer() as producer:
        for tile in gemm.work:
            ctx.grid_dependency_wait()  # at the first tile; then it is over
            for step in ctx.range(k_steps):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    row, barrier = tile.m * cfg.bm, stage.barrier()
                    for j in range(cfg.k_group_size):
                        words_tile, a_tile, scales_tile = stage.tile(j)
                        block = ctx.let((first + step) * cfg.k_group_size + j, "block")
                        gemm.a_share.load(ctx, words, words_tile, (block, row, 0), barrier)
                        where = (None, tile.n * cfg.bn, block * BLOCK)
                        gemm.b_share.load(ctx, a, a_tile, where, barrier)
                        ctx.tma_load(scales, (block * BLOCK // group, row), scales_tile, barrier)
        ctx.launch_dependents()
        producer.drain()


def multiply_and_store(gemm: Sm90Gemm, dtype: tp.DType, group: int) -> None:
    """The MMA role: the warpgroups split the rows of W."""
    ctx, inputs = gemm.ctx, gemm.inputs
    assert isinstance(gemm.cfg, QuantisedGemmConfig)
    sums = Sums(ctx, gemm.cfg, dtype, group)
    first_row = ctx.warpgroup_rank * gemm.cfg.rows
    _, k_steps = gemm.part_of_k()
    for tile in gemm.work:
        with inputs.consumer() as consumer:
            sums.multiply(consumer, k_steps, first_row)
        blocks = [[total] for total in sums.totals]
        gemm.store(blocks, tile, first_row)
    gemm.drain()


class Sums:
    """The sums of one warpgroup's rows of a tile: `totals`, one (64, bn) a row block.

    The work of a stage comes in units: a row block and a group of K, or the K of a tile where a
    group is more. The weights of a unit are made while the tensor cores multiply those of the one
    before, so weights, sums and scales of two units are in registers.
    """

    def __init__(
        self, ctx: tp.Context, cfg: QuantisedGemmConfig, dtype: tp.DType, group: int
    ) -> None:
        self._ctx, self._cfg, self._dtype = ctx, cfg, dtype
        self._width = min(group, BLOCK)  # of K that a unit takes
        rows, blocks = BLOCK_ROWS, range(cfg.rows // BLOCK_ROWS)
        self.totals = [ctx.accumulator((rows, cfg.bn)) for _ in blocks]
        self._partial = [ctx.accumulator((rows, cfg.bn)) for _ in range(2)]
        self._weights = [ctx.fragment(shape=(rows, self._width), dtype=dtype) for _ in range(2)]
        self._scales = [ctx.fragment(shape=(rows, 1)) for _ in range(2)]
        # of a stage: K tile, row block, part of the K tile
        parts = range(BLOCK // self._width)
        self._units = [(j, i, p) for j in range(cfg.k_group_size) for i in blocks for p in parts]

    def multiply(self, consumer: tp.InputConsumer, k_steps: tp.Value, first_row: tp.Value) -> None:
        """The product of `k_steps` stages; rows [first_row, first_row + rows) of their words."""
        ctx = self._ctx
        for total in self.totals:
            total.fill(0)
        for _ in ctx.range(k_steps):
            with consumer.acquire() as stage:
                for number, (j, i, part) in enumerate(self._units):
                    words_tile, a_tile, scales_tile = stage.tile(j)
                    row = first_row + i * BLOCK_ROWS
                    if part == 0:
                        words = ctx.fragment(
                            shape=(BLOCK_ROWS, words_tile.shape[1]), dtype=words_tile.dtype
                        )
                        words.load(words_tile.rows(row, BLOCK_ROWS))
                    self._convert(words, part, self._weights[number % 2])
                    ctx.mma(
                        self._partial[number % 2],
                        self._weights[number % 2],
                        a_tile.cols(part * self._width, self._width),
                        accumulate=False,
                    )
                    ctx.wgmma_commit()
                    self._scales[number % 2].load(scales_tile.part(part, row, 1, BLOCK_ROWS))
                    if number > 0:
                        ctx.wgmma_wait(1)
                        self._add(number - 1)
                ctx.wgmma_wait(0)
                ctx.syncwarp()
                with ctx.elect_one():
                    stage.mbar().arrive()
            self._add(len(self._units) - 1)

    def _add(self, number: int) -> None:
        """Adds the sums of a unit, times its scales, to those of its row block."""
        _, i, _ = self._units[number]
        total = self.totals[i]
        total += self._partial[number % 2] * self._scales[number % 2]

    def _convert(self, words: tp.Fragment, number: int, weights: tp.Fragment) -> None:
        """Columns [number * width, (number + 1) * width) of a row block, as exact integers of 16
        bits.
        """
        bits = bits_of(words.shape[1])
        assert bits is not None
        count = 2 * words.shape[1]  # columns that a part of the words has
        biased, bias = BIASED[self._dtype]

        def nibbles(shift: int, less: int) -> tp.FragmentValue:
            """Those from bit `shift` of each half word on, minus `less`."""
            shifted = words >> shift if shift else words
            return (shifted & NIBBLES | biased).bitcast(self._dtype) - (bias + less)

        first = number * self._width
        for part in range(first // count, -(-(first + self._width) // count)):
            if bits == 4:
                value = nibbles(4 * part, 8)
            else:  # 16 · (high nibble - 8) + low nibble, which 8 bits of mantissa hold
                value = nibbles(8 * part + 4, 8) * 16 + nibbles(8 * part, 0)
            if self._width < count:
                value = self._ctx.fragment(value).cols(first - part * count, self._width)
            weights.set(value, col=max(part * count - first, 0))


def bind(
    a: Array,
    words: Array,
    scales: Array,
    c: Array,
    cfg: QuantisedGemmConfig,
    *,
    group: int = 128,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The product for arrays a (m, k) and c (m, n), with k and n contiguous and the other strides
    multiples of 16 bytes, as TMA has it.

    Args:
        a: bfloat16 or float16.
        words: int32 (⌈k / 128⌉, n, 16) of weights of 4 bits, or (⌈k / 128⌉, n, 32) of 8 bits:
            `layout.pack`.
        scales: float32 (⌈k / group⌉, n), n contiguous.
        c: bfloat16, float16 or float32.
        group: elements of K that share a scale: 32, 64 or a multiple of 128.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    check_config(NAME, cfg, QuantisedGemmConfig, "a QuantisedGemmConfig")
    check_arguments(a, words, scales, c, group)
    return gemm_quantised.bind(
        *maps(a, words, scales, c, cfg, group), chip=chip, cfg=cfg, group=group
    )
