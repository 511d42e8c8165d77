"""A persistent, warp-specialised GEMM for Blackwell: one TMA warp feeds one warp that issues
tcgen05.mma, which fills accumulators in tensor memory; four warps take them from there and store
through shared memory. A fourth role fetches tiles.

    C[m, n] = activation(
        alpha · a_scale · b_scale · A[m, k] · B[n, k]ᵀ + bias[n] + beta · source[m, n])

A and B both bfloat16 or both float16, each row- or column-major, or fp8, row-major; float32
accumulation; C bfloat16, float16 or float32, row-major. With cta_group 2, pairs of CTAs share each
MMA. CTAs of a cluster load a part of the tiles that they share each, and multicast it. Simulated,
checked and compiled; it has not been run on a Blackwell GPU.
"""

from __future__ import annotations

from functools import partial

import tilepipe as tp
from tilepipe.kernels.common.epilogue import Terms
from tilepipe.kernels.common.sm100_gemm import KTile, Sm100Gemm, grid, load, multiply, store
from tilepipe.kernels.common.validation import Array, check_config
from tilepipe.kernels.gemm.config import Sm100GemmConfig
from tilepipe.kernels.gemm.validation import Extras, check_arguments, input_maps, output_map


@tp.kernel(grid=grid, cluster=lambda cfg: cfg.cluster_size)
def gemm(
    ctx: tp.Context,
    a: tp.GlobalTensor,
    b: tp.GlobalTensor,
    c: tp.GlobalTensor,
    bias: tp.GlobalTensor | None,
    a_scale: tp.GlobalTensor | None,
    b_scale: tp.GlobalTensor | None,
    source: tp.GlobalTensor | None,
    alpha: tp.Value | None,
    beta: tp.Value | None,
    *,
    cfg: Sm100GemmConfig,
    scales: str,
) -> None:
    """C = activation(alpha · a_scale · b_scale · A · Bᵀ + bias + beta · source)"""
    tiles = tp.StandardTilePayload(
        a_type=a.dtype,
        b_type=b.dtype,
        a_shape=(cfg.bm, cfg.bk),
        b_shape=(cfg.b_rows, cfg.bk),
        a_order=a.order,
        b_order=b.order,
    )
    terms = Terms(bias, a_scale, b_scale, source, alpha, beta, scales)
    shared = Sm100Gemm.allocate(ctx, tiles, a, c, cfg, terms)
    shared.declare_roles(
        partial(load, shared, partial(copy, a, b)),
        partial(multiply, shared, issue),
        partial(store, shared),
    )


def copy(a: tp.GlobalTensor, b: tp.GlobalTensor, gemm: Sm100Gemm, k_tile: KTile) -> None:
    """Starts the copies of this CTA's parts of a K tile."""
    ctx, cfg, barrier = gemm.ctx, gemm.cfg, k_tile.stage.barrier()
    a_tile, b_tile = k_tile.tiles
    k = k_tile.number * cfg.bk
    gemm.shares.a.load(ctx, a, a_tile, (None, k_tile.output.m * cfg.bm, k), barrier)
    gemm.shares.b.load(ctx, b, b_tile, (None, k_tile.first_of_b, k), barrier)


def issue(
    gemm: Sm100Gemm,
    stage: tp.InputConsumerStage,
    slot: int,
    acc: tp.TmemTensor,
    tile: tp.WorkTile,
    adds: bool | tp.Value,
) -> None:
    """Multiplies a K tile."""
    a_tile, b_tile = stage.tile(slot)
    gemm.ctx.mma(acc, a_tile, b_tile, accumulate=adds)


def bind(
    a: Array,
    b: Array,
    c: Array,
    cfg: Sm100GemmConfig,
    *,
    bias: Array | None = None,
    a_scale: Array | None = None,
    b_scale: Array | None = None,
    source: Array | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The GEMM for arrays a (m, k), b (n, k) and c (m, n), which must satisfy TMA's rules (16-byte
    strides, one contiguous dimension). NumPy arrays are for the simulator: the limits are then
    those of a B200.

    Args:
        bias: (n,), added to every row, or (m, 1), added to every column. source: like c, added
            times beta.
        a_scale, b_scale: float32, both of one element, for the whole tensor, or (m,) and (n,), for
            each row.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    check_config("gemm", cfg, Sm100GemmConfig, "an Sm100GemmConfig")
    extras = Extras(bias, a_scale, b_scale, source, alpha, beta)
    scales = extras.scales(*check_arguments(a, b, c, extras))
    if len(c.shape) != 2:
        raise tp.BindError("gemm multiplies matrices on sm_100, without a batch dimension")
    parts = cfg.cluster_n, cfg.cluster // cfg.cta_group
    a_map, b_map = input_maps(a, b, cfg, (cfg.bm, cfg.b_rows), parts)
    c_map = output_map(c, cfg)
    return gemm.bind(a_map, b_map, c_map, *extras.operands(), chip=chip, cfg=cfg, scales=scales)
