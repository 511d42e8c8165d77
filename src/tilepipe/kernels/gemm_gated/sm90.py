"""A gated GEMM for Hopper, the first half of a SwiGLU or GeGLU layer in one kernel: persistent and
warp-specialised, as `gemm.sm90`.

    C[m, n] = activation(A[m, k] · gate[n, k]ᵀ) * (A[m, k] · up[n, k]ᵀ)

A, gate and up all bfloat16 or all float16, each row- or column-major, gate and up alike; float32
accumulation; C bfloat16, float16 or float32, row-major. Neither product is written to memory: each
tile of A is read once for both. A stage of the ring has a tile of A and one of which the upper rows
are of gate and the lower of up, so that one wgmma multiplies with both. Of its sums, the left half
of the columns gates the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import tilepipe as tp
from tilepipe.kernels.common.epilogue import GELU_CUBE, GELU_SCALE, Epilogue, Sums, activate
from tilepipe.kernels.common.sm90_gemm import (
    Sm90Gemm,
    multiply_and_store,
    output_tiles,
    persistent_grid,
)
from tilepipe.kernels.common.validation import Array, check_config
from tilepipe.kernels.gemm_gated.config import GatedGemmConfig
from tilepipe.kernels.gemm_gated.validation import NAME, check_arguments, maps

LOG2_E = 1.4426950408889634


def gated_grid(c: tp.TensorMap, cfg: GatedGemmConfig, chip: tp.Chip) -> int:
    """As many clusters as the chip holds at once, or fewer when there are fewer tiles."""
    return persistent_grid(c, cfg.output, chip)


@tp.kernel(grid=gated_grid, cluster=lambda cfg: cfg.cluster_size)
def gemm_gated(
    ctx: tp.Context,
    a: tp.GlobalTensor,
    gate: tp.GlobalTensor,
    up: tp.GlobalTensor,
    c: tp.GlobalTensor,
    *,
    cfg: GatedGemmConfig,
) -> None:
    """C = activation(A · gateᵀ) * (A · upᵀ)"""
    tiles = tp.StandardTilePayload(
        a_type=a.dtype,
        b_type=gate.dtype,
        a_shape=(cfg.bm, cfg.bk),
        b_shape=(cfg.bn, cfg.bk),  # the rows of gate, then those of up
        a_order=a.order,
        b_order=gate.order,
    )
    inputs = tp.InputTilePipeline.allocate(
        ctx, tiles, num_group_stages=cfg.stages, k_group_size=cfg.k_group_size
    )
    work = output_tiles(ctx, c, cfg.output)
    shared = Sm90Gemm.allocate(ctx, cfg, inputs, work, a, c, epilogue=GatedEpilogue)
    shared.declare_roles(partial(load, shared, a, gate, up), partial(multiply_and_store, shared))


def load(gemm: Sm90Gemm, a: tp.GlobalTensor, gate: tp.GlobalTensor, up: tp.GlobalTensor) -> None:
    """The load role: as that of `gemm.sm90`, with the rows of gate and of up beside each other."""
    ctx, cfg, inputs = gemm.ctx, gemm.cfg, gemm.inputs
    half = cfg.bn // 2
    with inputs.producer() as producer:
        for tile in gemm.work:
            ctx.grid_dependency_wait()  # at the first tile; then it is over
            for step in ctx.range(gemm.k_steps):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    for j in range(cfg.k_group_size):
                        a_tile, b_tile = stage.tile(j)
                        k = (step * cfg.k_group_size + j) * cfg.bk
                        row = gemm.first_row("a", tile, cfg.bm)
                        gemm.a_share.load(ctx, a, a_tile, (None, row, k), stage.barrier())
                        for i, tensor in enumerate((gate, up)):
                            rows = b_tile.rows(i * half, half)
                            place = (None, gemm.first_row("b", tile, half), k)
                            gemm.b_share.load(ctx, tensor, rows, place, stage.barrier())
        ctx.launch_dependents()
        producer.drain()


@dataclass(frozen=True, eq=False)
class GatedSums:
    """activation(left half) * right half of a block of sums, by slices of columns."""

    ctx: tp.Context
    sums: Sums
    half: int
    activation: str

    def cols(self, start: int, count: int) -> tp.FragmentValue:
        """Columns [start, start + count) of the result."""
        gate = self.ctx.fragment(self.sums.cols(start, count))
        right = self.sums.cols(self.half + start, count)
        return gated(self.ctx, self.activation, gate, right)


def gated(ctx: tp.Context, name: str, x: tp.Fragment, y: tp.FragmentValue) -> tp.FragmentValue:
    """activation(x) * y, without a division, which is two dozen instructions: silu is x times the
    logistic function of x, gelu (tanh form) x times that of z, and 1 / (1 + e^-z) is the square of
    a reciprocal square root, for which there is an instruction. Where e^-z overflows it is 0.
    """
    if name not in ("silu", "gelu"):
        return activate(name, x) * y
    z = x if name == "silu" else 2 * GELU_SCALE * (x + GELU_CUBE * x * x * x)
    root = ctx.fragment((1 + (-LOG2_E * z).apply("exp2")).apply("rsqrt"))
    return x * root * root * y


class GatedEpilogue(Epilogue):
    """Stores half as many columns as a tile has sums."""

    def __init__(
        self, ctx: tp.Context, c: tp.GlobalTensor, cfg: GatedGemmConfig, terms: object = None
    ) -> None:
        super().__init__(ctx, c, cfg.output)
        self._activation = cfg.activation

    def store(
        self, blocks: Sequence[Sequence[Sums]], tile: tp.WorkTile, first_row: tp.Value | int
    ) -> None:
        """As `Epilogue.store`, of the gated sums."""
        half = self._cfg.bn
        gated = [[GatedSums(self._ctx, x, half, self._activation) for x in row] for row in blocks]
        super().store(gated, tile, first_row)


def bind(
    a: Array,
    gate: Array,
    up: Array,
    c: Array,
    cfg: GatedGemmConfig,
    *,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The gated GEMM for arrays a (m, k), gate and up (n, k) and c (m, n), which must satisfy TMA's
    rules (16-byte strides, one contiguous dimension).

    Args:
        a, gate, up: all bfloat16 or all float16; gate and up of one memory order.
        c: bfloat16, float16 or float32, row-major.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    check_config(NAME, cfg, GatedGemmConfig, "a GatedGemmConfig")
    check_arguments(a, gate, up, c)
    return gemm_gated.bind(*maps(a, gate, up, c, cfg), chip=chip, cfg=cfg)
