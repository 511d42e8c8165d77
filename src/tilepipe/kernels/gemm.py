"""A persistent, warp-specialised GEMM for Hopper: one TMA warp feeds 1-2 warpgroups of wgmma, which store through
shared memory.

    C[m, n] = A[m, k] · B[n, k]ᵀ

A and B bfloat16 or float16, each row- or column-major; float32 accumulation; C bfloat16, float16 or float32,
row-major. The CTAs of a cluster work on the same columns (or the same rows): each loads a part of the B (or A) tile and
multicasts it.
"""

from __future__ import annotations

from typing import Any

import tilepipe as tp
from tilepipe.kernels.gemm_config import BLOCK_ROWS, MAX_BLOCK_COLS
from tilepipe.kernels.gemm_config import GemmConfig as GemmConfig

LINE = 128  # bytes of a row of a store slot, where the columns of a block allow


def store_width(dtype: tp.DType, cols: int) -> int:
    """Columns of one TMA store of a block of `cols` columns: a 128-byte line, or half or a quarter of one."""
    return next(width for width in (LINE // dtype.nbytes, 32 // dtype.nbytes * 2, 32 // dtype.nbytes) if cols % width == 0)


def load_rows(rows: int) -> int:
    """Rows of one TMA copy of a tile of `rows`: all of them, or an equal part that a box can have."""
    return rows // -(-rows // MAX_BLOCK_COLS)


def persistent_grid(c: tp.TensorMap, cfg: GemmConfig, chip: tp.Chip) -> int:
    """One CTA for each SM, or fewer when there are fewer tiles."""
    m, n = c.shape
    tiles = -(-m // (cfg.bm * cfg.cluster)) * -(-n // (cfg.bn * cfg.cluster_n))
    return min(tiles, chip.sms // cfg.cluster_size) * cfg.cluster_size


@tp.kernel(grid=persistent_grid, cluster=lambda cfg: cfg.cluster_size)
def gemm(ctx: tp.Context, a: Any, b: Any, c: Any, *, cfg: GemmConfig) -> None:
    """C[m, n] = A[m, k] · B[n, k]ᵀ"""
    tiles = tp.StandardTilePayload(
        a_type=a.dtype, b_type=b.dtype, a_shape=(cfg.bm, cfg.bk), b_shape=(cfg.bn, cfg.bk), a_order=a.order, b_order=b.order
    )
    inputs = tp.InputTilePipeline.allocate(ctx, tiles, num_group_stages=cfg.stages, k_group_size=cfg.k_group_size)
    slot_shape = BLOCK_ROWS, store_width(c.dtype, cfg.block_cols)
    output = ctx.smem(slot_shape, c.dtype, count=cfg.store_slots * cfg.consumers, name="output")
    work = tp.StaticScheduler(
        ctx,
        tiles=(ctx.ceil_div(c.shape[0], cfg.bm), ctx.ceil_div(c.shape[1], cfg.bn)),
        cluster=(cfg.cluster, cfg.cluster_n),
        raster=cfg.raster,
        group=cfg.group,
    )
    k_steps = ctx.ceil_div(a.shape[1], cfg.bk * cfg.k_group_size)
    everyone = (1 << cfg.cluster_size) - 1 if cfg.cluster_size > 1 else None
    pingpong = cfg.schedule == "pingpong"
    order = tp.OrderedBarrier(ctx, 2, depth=2) if pingpong else None

    @ctx.role("load", warps=1, registers=24 if pingpong else 40)
    def load() -> None:
        with inputs.producer() as producer:
            for tile in work:
                for k in ctx.range(k_steps):
                    with producer.acquire() as stage, ctx.elect_one():
                        stage.expect_bytes(inputs.stage_bytes)
                        for j in range(cfg.k_group_size):
                            a_tile, b_tile = stage.tile(j)
                            k0 = (k * cfg.k_group_size + j) * cfg.bk
                            load_shared(ctx, a, a_tile, (tile.m * cfg.bm, k0), stage.barrier(), cfg.cluster_n, everyone)
                            load_shared(ctx, b, b_tile, (tile.n * cfg.bn, k0), stage.barrier(), cfg.cluster, everyone)
            producer.drain()

    @ctx.role("mma", warpgroups=cfg.consumers, registers=240 if pingpong else 232)
    def mma() -> None:
        blocks = [
            [ctx.accumulator((BLOCK_ROWS, cfg.block_cols)) for _ in range(cfg.bn // cfg.block_cols)] for _ in range(cfg.rows // BLOCK_ROWS)
        ]
        if order is None:
            first = ctx.warpgroup_rank * cfg.rows
            for tile in work:
                with inputs.consumer(lag=1) as consumer:
                    multiply(ctx, blocks, consumer, k_steps, first, everyone, cfg)
                store_tile(ctx, blocks, c, output, tile, first, cfg)
        else:
            inputs.consumer_advance(ctx.warpgroup_rank * k_steps)
            for tile in work.share(ctx.warpgroup_rank, 2):
                with inputs.consumer(lag=1, shared=False) as consumer, order.turn(ctx.warpgroup_rank):
                    multiply(ctx, blocks, consumer, k_steps, 0, everyone, cfg)
                inputs.consumer_advance(k_steps)  # those are the other warpgroup's
                with order.turn(ctx.warpgroup_rank):
                    store_tile(ctx, blocks, c, output, tile, 0, cfg)
        with ctx.elect_one("warpgroup"):
            ctx.tma_store_wait(0)


def load_shared(ctx: tp.Context, tensor: Any, tile: Any, at: tuple[Any, Any], barrier: Any, sharers: int, everyone: int | None) -> None:
    """Loads a tile that `sharers` CTAs of the cluster need: each loads its part of the rows, for all of them."""
    share = tile.shape[0] // sharers
    part = ctx.cta_rank * share if sharers > 1 else 0
    rows = load_rows(share)
    for i in range(0, share, rows):
        ctx.tma_load(tensor, (at[0] + part + i, at[1]), tile.rows(part + i, rows), barrier, multicast=everyone if sharers > 1 else None)


def multiply(ctx: tp.Context, blocks: Any, consumer: Any, k_steps: Any, first: Any, everyone: int | None, cfg: GemmConfig) -> None:
    """blocks = the product of rows [first, first + rows) of the A tiles, and the B tiles, of `k_steps` stages."""
    for k in ctx.range(k_steps):
        with consumer.acquire() as stage:
            for j in range(cfg.k_group_size):
                a_tile, b_tile = stage.tile(j)
                for i, row in enumerate(blocks):
                    for n, acc in enumerate(row):
                        a_block = a_tile.rows(first + i * BLOCK_ROWS, BLOCK_ROWS)
                        b_block = b_tile.rows(n * cfg.block_cols, cfg.block_cols)
                        ctx.mma(acc, a_block, b_block, accumulate=k > 0 if j == 0 else True)
            ctx.mma_commit(stage.mbar(), mask=everyone)


def store_tile(ctx: tp.Context, blocks: Any, c: Any, output: Any, tile: tp.WorkTile, first: Any, cfg: GemmConfig) -> None:
    """Stores accumulators in slices of a 128-byte line, through a ring of slots of shared memory for each warpgroup."""
    width = output[0].shape[1]
    slices = [(i, n, x) for i, row in enumerate(blocks) for n in range(len(row)) for x in range(0, cfg.block_cols, width)]
    for number, (i, n, x) in enumerate(slices):
        slot = output[ctx.warpgroup_rank * cfg.store_slots + number % cfg.store_slots]
        # The slot's last store was `store_slots` ago, and must have read it. A tile begins with the first slot again: where the tile
        # before did not end with the last, which store was the first slot's differs.
        unread = 0 if number == 0 and len(slices) % cfg.store_slots else cfg.store_slots - 1
        with ctx.elect_one("warpgroup"):
            ctx.tma_store_wait(unread, read=True)
        ctx.sync_warpgroup()
        ctx.store(slot, blocks[i][n].cols(x, width))
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        with ctx.elect_one("warpgroup"):
            ctx.tma_store(c, (tile.m * cfg.bm + first + i * BLOCK_ROWS, tile.n * cfg.bn + n * cfg.block_cols + x), slot)
            ctx.tma_store_commit()


def bind(a: Any, b: Any, c: Any, cfg: GemmConfig) -> tp.Program:
    """The GEMM for arrays a (m, k), b (n, k) and c (m, n), which must satisfy TMA's rules (16-byte strides, one
    contiguous dimension).

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    for name, array in (("a", a), ("b", b), ("c", c)):
        if len(array.shape) != 2:
            raise tp.BindError(f"gemm multiplies matrices; {name} has shape {tuple(array.shape)}")
    (m, k), (n, kb), out = a.shape, b.shape, tuple(c.shape)
    if kb != k or out != (m, n):
        raise tp.BindError(f"gemm: A is {m}×{k} and B {n}×{kb} (n, k); C must be {m}×{n} and both k equal, C is {'×'.join(map(str, out))}")
    a_map = tp.tensor_map(a, box=(load_rows(cfg.bm // cfg.cluster_n), cfg.bk))
    b_map = tp.tensor_map(b, box=(load_rows(cfg.bn // cfg.cluster), cfg.bk))
    if a_map.dtype is not b_map.dtype or a_map.dtype not in (tp.bfloat16, tp.float16):
        raise tp.BindError(f"gemm takes bfloat16 or float16, the same for A and B; got {a_map.dtype} and {b_map.dtype}")
    c_map = tp.tensor_map(c, box=(BLOCK_ROWS, store_width(tp.tensor_map(c).dtype, cfg.block_cols)), order="row")
    if c_map.dtype not in (tp.bfloat16, tp.float16, tp.float32):
        raise tp.BindError(f"gemm writes bfloat16, float16 or float32; C is {c_map.dtype}")
    return gemm.bind(a_map, b_map, c_map, cfg=cfg)
