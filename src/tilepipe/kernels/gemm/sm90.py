"""A persistent, warp-specialised GEMM for Hopper: one TMA warp feeds 1-3 warpgroups of wgmma, which
store through shared memory.

    C[m, n] = activation(
        alpha · a_scale · b_scale · A[m, k] · B[n, k]ᵀ + bias[n] + beta · source[m, n])

A and B both bfloat16, both float16, each row- or column-major, or float32 (multiplied in tf32) or
fp8, row-major; float32 accumulation; C bfloat16, float16 or float32, row-major; all of them with a
leading batch dimension if C has one. The CTAs of a cluster work on the same columns, or the same
rows, and load a part of the B, or A, tile each and multicast it; or on parts of K of the same tile.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import tilepipe as tp
from tilepipe.kernels.common.epilogue import Terms
from tilepipe.kernels.common.sm90_gemm import (
    Sm90Gemm,
    multiply_and_store,
    output_tiles,
    persistent_grid,
    resident_ctas,
    tile_clusters,
)
from tilepipe.kernels.common.validation import Array, check_config
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.k_parts import (
    KParts,
    PartOfTile,
    bound_workspace,
    check_workspace,
    multiply_and_store as multiply_parts,
)
from tilepipe.kernels.gemm.validation import Extras, check_arguments, input_maps, output_map


def grid(
    c: tp.TensorMap,
    parts: tp.TensorMap | None,
    tickets: tp.TensorMap | None,
    cfg: GemmConfig,
    chip: tp.Chip,
) -> int:
    """As many clusters as the chip holds at once, or fewer when there are fewer tiles, or parts of
    tiles.

    Raises:
        BindError: as `check_workspace`.
    """
    if parts is None or tickets is None:
        return persistent_grid(c, cfg, chip)
    clusters = tile_clusters(c.shape, cfg)
    check_workspace(clusters, parts, tickets, cfg)
    return resident_ctas(clusters * cfg.k_parts, cfg.cluster_size, chip)


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
    parts: tp.GlobalTensor | None,
    tickets: tp.GlobalTensor | None,
    *,
    cfg: GemmConfig,
    scales: str,
) -> None:
    """C = activation(alpha · a_scale · b_scale · A · Bᵀ + bias + beta · source)

    parts, tickets: with k_parts above 1, of `k_parts.workspace_shapes`.
    """
    if cfg.swap == "ab":  # C is Cᵀ already
        a, b, a_scale, b_scale = b, a, b_scale, a_scale
    tiles = tp.StandardTilePayload(
        a_type=a.dtype,
        b_type=b.dtype,
        a_shape=(cfg.bm, cfg.bk),
        b_shape=(cfg.bn, cfg.bk),
        a_order=a.order,
        b_order=b.order,
    )
    inputs = tp.InputTilePipeline.allocate(
        ctx, tiles, num_group_stages=cfg.stages, k_group_size=cfg.k_group_size
    )
    work = output_tiles(ctx, c, cfg)
    terms = Terms(bias, a_scale, b_scale, source, alpha, beta, scales, cfg.source_slots)
    shared = Sm90Gemm.allocate(ctx, cfg, inputs, work, a, c, terms)
    copies = Copies(shared, a, b)
    if parts is None or tickets is None:
        shared.declare_roles(
            partial(load, shared, copies, cfg.early_operand, None),
            partial(multiply_and_store, shared),
            partial(load_source, shared),
        )
        return
    k_parts = KParts(ctx, cfg, c, shared.k_steps, parts, tickets)
    shared.declare_roles(
        partial(load, shared, copies, cfg.early_operand, k_parts),
        partial(multiply_parts, shared, k_parts),
    )


@dataclass(frozen=True, eq=False)
class Copies:
    """Copies of this CTA's parts of the tiles of A and B."""

    gemm: Sm90Gemm
    a: tp.GlobalTensor
    b: tp.GlobalTensor

    def start(
        self, operand: str, stage: tp.InputProducerStage, j: int, tile: tp.WorkTile, step: tp.Value
    ) -> None:
        """Starts those of one operand for K tile `j` of a stage; `step`: of all of K."""
        ctx, cfg = self.gemm.ctx, self.gemm.cfg
        k = (step * cfg.k_group_size + j) * cfg.bk
        a_tile, b_tile = stage.tile(j)
        if operand == "a":
            place = (tile.batch, self.gemm.first_row("a", tile, cfg.bm), k)
            self.gemm.a_share.load(ctx, self.a, a_tile, place, stage.barrier(), number=j)
        else:
            place = (tile.batch, self.gemm.first_row("b", tile, cfg.bn), k)
            self.gemm.b_share.load(ctx, self.b, b_tile, place, stage.barrier(), number=j)


def load(gemm: Sm90Gemm, copies: Copies, early: str | None, parts: KParts | None) -> None:
    """The load role: one lane starts the copies of every K tile, as far ahead of the MMAs as the
    ring has stages. It goes on to the next output tile while the MMA role stores this one, and
    gives most of its registers to that role.

    It alone waits for the kernel before this one in the stream, when it knows its tile: the MMA
    role, which reads and writes global memory only with sums of what was loaded, need not.

    `early`: the operand of which the first stages are loaded before that wait. `parts`: of tiles,
    where they are what CTAs take.
    """
    ctx, cfg, inputs = gemm.ctx, gemm.cfg, gemm.inputs
    first, k_steps = gemm.part_of_k()
    loaded = None if early is None else load_early(gemm, copies, early, first, k_steps, parts)
    with inputs.producer() as producer:
        for tile in gemm.work if parts is None else parts:
            if isinstance(tile, PartOfTile) and parts is not None:
                first, k_steps = parts.part_of_k(tile)
            if early is None:
                ctx.grid_dependency_wait()  # at the first tile; then it is over
            for step in ctx.range(k_steps):
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    for j in range(cfg.k_group_size):
                        for operand in "ab":
                            with (
                                ctx.when(loaded.get() == 0)
                                if loaded is not None and operand == early
                                else nullcontext()
                            ):
                                copies.start(operand, stage, j, tile, first + step)
                if loaded is not None:
                    loaded.set(ctx.max(loaded.get() - 1, 0))
        # All inputs are on their way: the next kernel may begin while this one multiplies.
        ctx.launch_dependents()
        # Peers still arrive on this CTA's barriers for the last stages: leave only after they have.
        producer.drain()


def load_early(
    gemm: Sm90Gemm,
    copies: Copies,
    operand: str,
    first: tp.Value | int,
    k_steps: tp.Value,
    parts: KParts | None,
) -> tp.Var:
    """Loads one operand of the first stages of this CTA's first tile, and waits for the kernel
    before this one; how many stages these are. Every CTA has a tile.
    """
    ctx, cfg = gemm.ctx, gemm.cfg
    tile: tp.WorkTile
    if parts is None:
        assert isinstance(gemm.work, tp.StaticScheduler)
        tile = gemm.work.ahead().first
    else:
        tile = part = parts.first()
        first, k_steps = parts.part_of_k(part)
    ahead = tp.ProducerAhead(gemm.inputs)
    stages = ctx.let(ctx.min(k_steps, cfg.stages), "early")
    for step in ctx.range(stages):
        with ahead.acquire() as stage, ctx.elect_one():
            for j in range(cfg.k_group_size):
                copies.start(operand, stage, j, tile, first + step)
    ctx.grid_dependency_wait()
    return ctx.var(stages)


def load_source(gemm: Sm90Gemm) -> None:
    """The role that brings the source."""
    gemm.ctx.grid_dependency_wait()
    gemm.epilogue.load_source(gemm.work)


def bind(
    a: Array,
    b: Array,
    c: Array,
    cfg: GemmConfig,
    *,
    bias: Array | None = None,
    a_scale: Array | None = None,
    b_scale: Array | None = None,
    source: Array | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    workspace: tuple[Array, Array] | None = None,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The GEMM for arrays a (m, k), b (n, k) and c (m, n), which must satisfy TMA's rules (16-byte
    strides, one contiguous dimension). With c (batch, m, n), a and b may have a batch dimension
    each.

    Args:
        cfg: with swap "ab", of the product Cᵀ = B · Aᵀ.
        bias: (n,), added to every row, or (m, 1), added to every column. source: like c, added
            times beta.
        a_scale, b_scale: float32, both of one element, for the whole tensor, or (m,) and (n,), for
            each row.
        workspace: with k_parts above 1, (parts, tickets), arrays of the shapes of
            `k_parts.workspace_shapes`, float32 and int32, the tickets 0; the kernel leaves them at
            0. Launches that may run at the same time need one each. It is of the tiles of C, so an
            export leaves m and n fixed. None: made here, for NumPy arrays.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, an array that TMA cannot take, or no
            workspace.
    """
    check_config("gemm", cfg, GemmConfig, "a GemmConfig")
    extras = Extras(bias, a_scale, b_scale, source, alpha, beta)
    scales = extras.scales(*check_arguments(a, b, c, extras))
    meeting = bound_workspace(c, cfg, workspace)
    rows, parts, order = (cfg.bm, cfg.bn), (cfg.cluster_n, cfg.cluster), "row"
    if cfg.swap == "ab":  # Cᵀ = B · Aᵀ
        rows, parts, order = rows[::-1], parts[::-1], "col"
        c = c.swapaxes(-1, -2)
        if source is not None:
            extras = replace(extras, source=source.swapaxes(-1, -2))
    a_map, b_map = input_maps(a, b, cfg, rows, parts)
    c_map = output_map(c, cfg, order)
    operands = extras.operands(c_map if cfg.source_slots else None)
    return gemm.bind(a_map, b_map, c_map, *operands, *meeting, chip=chip, cfg=cfg, scales=scales)
