"""A persistent, warp-specialised GEMM for Hopper: one TMA warp feeds 1-2 warpgroups of wgmma, which store through
shared memory.

    C[m, n] = A[m, k] · B[n, k]ᵀ

A and B bfloat16 or float16, each row- or column-major; float32 accumulation; C bfloat16, float16 or float32,
row-major. In a cluster of 2, both
CTAs work on the same columns: each loads half of the B tile and multicasts it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import tilepipe as tp

MAX_ACCUMULATOR = 192  # registers of a thread for the accumulator, of the 232 that an MMA role has
RASTERS = ("grouped", "rows", "columns")
_KINDS = {int: "an integer", str: "a string"}


@dataclass(frozen=True)
class GemmConfig:
    """Static settings of the GEMM.

    Attributes:
        bm, bn, bk: the tile of a CTA, elements; bm a multiple of 64 · consumers, bn of 16 up to 256, bk of 16.
        stages: pairs of barriers, each for k_group_size K tiles.
        k_group_size: K tiles that share a barrier pair.
        consumers: warpgroups that split the rows of a tile, 1 or 2.
        cluster: CTAs along M that share B tiles by multicast, 1 or 2.
        raster: order of the output tiles ("grouped", "rows", "columns").
    """

    bm: int = 128
    bn: int = 128
    bk: int = 64
    stages: int = 4
    k_group_size: int = 1
    consumers: int = 2
    cluster: int = 1
    raster: str = "grouped"

    def __post_init__(self) -> None:
        for field in fields(self):
            kind, value = type(field.default), getattr(self, field.name)
            if type(value) is not kind:
                raise tp.BindError(f"{field.name} must be {_KINDS[kind]}, got {value!r}")
        registers = self.rows * self.bn // 128
        rules = {
            "consumers must be 1 or 2": self.consumers in (1, 2),
            "cluster must be 1 or 2": self.cluster in (1, 2),
            f"bm must be 64 or 128 rows for each of {self.consumers} consumers": self.bm in (64 * self.consumers, 128 * self.consumers),
            "bn must be a multiple of 64 in 64..256": self.bn % 64 == 0 and 64 <= self.bn <= 256,
            "bn / cluster must be a multiple of 64": self.bn % (64 * max(self.cluster, 1)) == 0,
            "bk must be a multiple of 64 in 64..256": self.bk % 64 == 0 and 64 <= self.bk <= 256,
            "stages must be at least 2: one is held by the MMAs in flight": self.stages >= 2,
            "k_group_size must be at least 1": self.k_group_size >= 1,
            f"raster must be one of {', '.join(RASTERS)}": self.raster in RASTERS,
            f"an accumulator of {self.rows}×{self.bn} float32 takes {self.rows} * {self.bn} / 128 = {registers} registers of each thread;"
            f" at most {MAX_ACCUMULATOR} leave room for the rest": registers <= MAX_ACCUMULATOR,
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise tp.BindError(f"{'; '.join(broken)} ({self})")

    @property
    def rows(self) -> int:
        """Rows of the output tile of one consumer warpgroup."""
        return self.bm // max(self.consumers, 1)


def store_width(dtype: tp.DType) -> int:
    """Columns of one TMA store: a 128-byte line."""
    return 128 // dtype.nbytes


def persistent_grid(c: tp.TensorMap, cfg: GemmConfig, chip: tp.Chip) -> int:
    """One CTA for each SM, or fewer when there are fewer tiles."""
    m, n = c.shape
    tiles = -(-m // (cfg.bm * cfg.cluster)) * -(-n // cfg.bn)
    return min(tiles, chip.sms // cfg.cluster) * cfg.cluster


@tp.kernel(grid=persistent_grid, cluster=lambda cfg: cfg.cluster)
def gemm(ctx: tp.Context, a: Any, b: Any, c: Any, *, cfg: GemmConfig) -> None:
    """C[m, n] = A[m, k] · B[n, k]ᵀ"""
    tiles = tp.StandardTilePayload(
        a_type=a.dtype, b_type=b.dtype, a_shape=(cfg.bm, cfg.bk), b_shape=(cfg.bn, cfg.bk), a_order=a.order, b_order=b.order
    )
    inputs = tp.InputTilePipeline.allocate(ctx, tiles, num_group_stages=cfg.stages, k_group_size=cfg.k_group_size)
    output = ctx.smem((cfg.rows, store_width(c.dtype)), c.dtype, count=2 * cfg.consumers, name="output")
    work = tp.StaticScheduler(ctx, tiles=(ctx.ceil_div(c.shape[0], cfg.bm), ctx.ceil_div(c.shape[1], cfg.bn)), raster=cfg.raster)
    k_steps = ctx.ceil_div(a.shape[1], cfg.bk * cfg.k_group_size)
    everyone = (1 << cfg.cluster) - 1 if cfg.cluster > 1 else None
    share = cfg.bn // cfg.cluster  # rows of the B tile that each CTA loads for all

    @ctx.role("load", warps=1, registers=40)
    def load() -> None:
        with inputs.producer() as producer:
            for tile in work:
                for k in ctx.range(k_steps):
                    with producer.acquire() as stage, ctx.elect_one():
                        stage.expect_bytes(inputs.stage_bytes)
                        for j in range(cfg.k_group_size):
                            a_tile, b_tile = stage.tile(j)
                            k0 = (k * cfg.k_group_size + j) * cfg.bk
                            part = ctx.cta_rank * share if everyone else 0
                            ctx.tma_load(a, (tile.m * cfg.bm, k0), a_tile, stage.barrier())
                            ctx.tma_load(b, (tile.n * cfg.bn + part, k0), b_tile.rows(part, share), stage.barrier(), multicast=everyone)
            producer.drain()

    @ctx.role("mma", warpgroups=cfg.consumers, registers=232)
    def mma() -> None:
        acc = ctx.accumulator((cfg.rows, cfg.bn))
        for tile in work:
            acc.fill(0)
            with inputs.consumer(lag=1) as consumer:
                for _ in ctx.range(k_steps):
                    with consumer.acquire() as stage:
                        for j in range(cfg.k_group_size):
                            a_tile, b_tile = stage.tile(j)
                            ctx.mma(acc, a_tile.rows(ctx.warpgroup_rank * cfg.rows, cfg.rows), b_tile)
                        ctx.mma_commit(stage.mbar(), mask=everyone)
            store_tile(ctx, acc, c, output, tile, cfg)
        with ctx.elect_one("warpgroup"):
            ctx.tma_store_wait(0)


def store_tile(ctx: tp.Context, acc: Any, c: Any, output: Any, tile: tp.WorkTile, cfg: GemmConfig) -> None:
    """Stores an accumulator in slices of one 128-byte line, through two slots of shared memory for each warpgroup."""
    width = store_width(c.dtype)
    slices = cfg.bn // width
    row = tile.m * cfg.bm + ctx.warpgroup_rank * cfg.rows
    for j in range(slices):
        slot = output[ctx.warpgroup_rank * 2 + j % 2]
        # Slots alternate, so the store before the last must have read this one; where the number of slices is odd, a tile
        # begins with the slot that the last store of the tile before used.
        unread = 0 if j == 0 and slices % 2 else 1
        with ctx.elect_one("warpgroup"):
            ctx.tma_store_wait(unread, read=True)
        ctx.sync_warpgroup()
        ctx.store(slot, acc.cols(j * width, width))
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        with ctx.elect_one("warpgroup"):
            ctx.tma_store(c, (row, tile.n * cfg.bn + j * width), slot)
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
    a_map = tp.tensor_map(a, box=(cfg.bm, cfg.bk))
    b_map = tp.tensor_map(b, box=(cfg.bn // cfg.cluster, cfg.bk))
    if a_map.dtype is not b_map.dtype or a_map.dtype not in (tp.bfloat16, tp.float16):
        raise tp.BindError(f"gemm takes bfloat16 or float16, the same for A and B; got {a_map.dtype} and {b_map.dtype}")
    c_map = tp.tensor_map(c, box=(cfg.rows, store_width(tp.tensor_map(c).dtype)), order="row")
    if c_map.dtype not in (tp.bfloat16, tp.float16, tp.float32):
        raise tp.BindError(f"gemm writes bfloat16, float16 or float32; C is {c_map.dtype}")
    return gemm.bind(a_map, b_map, c_map, cfg=cfg)
