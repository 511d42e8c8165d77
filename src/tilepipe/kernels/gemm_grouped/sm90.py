"""A grouped GEMM for Hopper, as a mixture of experts needs it: persistent and warp-specialised, as
`gemm.sm90`.

    C[i, n] = a_scale[i] · b_scale[g, n] · A[i, k] · B[g, n, k]ᵀ    for the rows i of group g

The rows of A (m, k) are sorted by group; offsets[g], an int32 in GPU memory, is the row behind the
last of group g, and is read by the kernel: the host knows the number of groups and no more, so that
one launch, or one CUDA graph, serves all distributions. B (groups, n, k) row- or column-major, C
(m, n) bfloat16, float16 or float32. A tile of C begins at a group's first row, wherever that is.
TMA loads whatever follows the group's last row, and TMA stores leave those rows out
(`tensor_map(..., ragged=True)`), so that there is one way through the kernel for whole and for
ragged tiles.
"""

from __future__ import annotations

from typing import Any

import tilepipe as tp
from tilepipe.kernels.common.epilogue import Epilogue
from tilepipe.kernels.common.multicast import Share, load_rows
from tilepipe.kernels.gemm.config import BLOCK_ROWS, store_width
from tilepipe.kernels.gemm.sm90 import multiply_tiles
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig as GroupedGemmConfig
from tilepipe.kernels.gemm_grouped.config import GroupedProblem as GroupedProblem
from tilepipe.kernels.gemm_grouped.validation import boxed, check_arguments


def grouped_grid(b: tp.TensorMap, c: tp.TensorMap, cfg: GroupedGemmConfig, chip: tp.Chip) -> int:
    """As many clusters as the chip holds at once, or fewer when there cannot be as many tiles: each
    group has at most one ragged.
    """
    m, n = c.shape
    steps = (m // (cfg.bm * cfg.cluster) + b.shape[0]) * -(-n // (cfg.bn * cfg.cluster_n))
    # Where none fits, loading the kernel says so.
    return min(steps, max(chip.resident_clusters(cfg.cluster_size), 1)) * cfg.cluster_size


@tp.kernel(grid=grouped_grid, cluster=lambda cfg: cfg.cluster_size)
def gemm_grouped(
    ctx: tp.Context, a: Any, b: Any, c: Any, offsets: Any, a_scale: Any, b_scale: Any, *, cfg: GroupedGemmConfig
) -> None:  # fmt: skip
    """C = a_scale · b_scale · A · Bᵀ, group by group"""
    tile_cfg = cfg.tile
    tiles = tp.StandardTilePayload(
        a_type=a.dtype,
        b_type=b.dtype,
        a_shape=(cfg.bm, cfg.bk),
        b_shape=(cfg.bn, cfg.bk),
        b_order=b.order,
    )
    inputs = tp.InputTilePipeline.allocate(ctx, tiles, num_group_stages=cfg.stages)
    work = tp.GroupedScheduler(
        ctx, offsets, rows=c.shape[0], tile_rows=cfg.bm, columns=ctx.ceil_div(c.shape[1], cfg.bn), cluster=(cfg.cluster, cfg.cluster_n),
        raster=cfg.raster, group=cfg.group,
    )  # fmt: skip
    k_steps = ctx.ceil_div(a.shape[1], cfg.bk)
    everyone = (1 << cfg.cluster_size) - 1 if cfg.cluster_size > 1 else None
    a_share, b_share = Share.of_all(ctx, cfg.cluster_n), Share.of_all(ctx, cfg.cluster)
    order = tp.OrderedBarrier(ctx, 2, depth=2) if cfg.schedule == "pingpong" else None
    finish = GroupedEpilogue(
        ctx, c, None, a_scale, b_scale, None, None, None, cfg=tile_cfg, scales="none" if a_scale is None else "row"
    )  # fmt: skip

    @ctx.role("load", warps=1, registers=tile_cfg.registers[0])
    def load() -> None:
        with inputs.producer() as producer:
            for tile in work:
                for step in ctx.range(k_steps):
                    with producer.acquire() as stage, ctx.elect_one():
                        stage.expect_bytes(inputs.stage_bytes)
                        a_tile, b_tile = stage.tile()
                        a_share.load(
                            ctx, a, a_tile, (None, tile.row, step * cfg.bk), stage.barrier()
                        )
                        b_share.load(
                            ctx,
                            b,
                            b_tile,
                            (tile.batch, tile.n * cfg.bn, step * cfg.bk),
                            stage.barrier(),
                        )
            ctx.launch_dependents()
            producer.drain()

    @ctx.role("mma", warpgroups=cfg.consumers, registers=tile_cfg.registers[1])
    def mma() -> None:
        multiply_tiles(ctx, inputs, work, k_steps, order, finish, tile_cfg, everyone)


class GroupedEpilogue(Epilogue):
    """Stores tiles that begin anywhere, without the rows that are another group's."""

    def _row(self, tile: Any) -> Any:
        return tile.row

    def _write(self, tile: Any, place: tuple[Any, Any], slot: Any) -> None:
        self._ctx.tma_store(self._c, place, slot, rows=tile.end - place[0])


def bind(
    a: Any, b: Any, c: Any, offsets: Any, cfg: GroupedGemmConfig, *, a_scale: Any = None, b_scale: Any = None,
    chip: tp.Chip | None = None,
) -> tp.Program:  # fmt: skip
    """The grouped GEMM for arrays a (m, k), b (groups, n, k), c (m, n) and offsets (groups,), which
    must satisfy TMA's rules (16-byte strides, one contiguous dimension).

    Group g has rows [start, end) of a and c: end is offsets[g], but at most m and at least start,
    which is the end of the group before, 0 for the first. Rows of c that are in no group are not
    written.

    Args:
        a, b: both bfloat16, both float16, or fp8. a row-major; each b row- or column-major, of fp8
            row-major.
        c: bfloat16, float16 or float32, row-major. offsets: int32.
        a_scale, b_scale: float32 (m,) and (groups, n), of fp8 or any other a and b; both or
            neither.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    if not isinstance(cfg, GroupedGemmConfig):
        raise tp.BindError(f"gemm_grouped: cfg is a GroupedGemmConfig, got {cfg!r}")
    check_arguments(a, b, c, offsets, a_scale, b_scale, cfg)
    out = tp.tensor_map(c).dtype
    return gemm_grouped.bind(
        boxed("a", a, (load_rows(cfg.bm // cfg.cluster_n), cfg.bk), order="row"),
        boxed("b", b, (1, load_rows(cfg.bn // cfg.cluster), cfg.bk)),
        boxed("c", c, (BLOCK_ROWS, store_width(out, cfg.tile)), order="row", ragged=True),
        offsets, a_scale, b_scale, chip=chip, cfg=cfg,
    )  # fmt: skip
