"""Attention without a softmax, O = (Q · Kᵀ) · V, through rings of K and V tiles: for Hopper, and
for Blackwell.

The operands are small integers, so that every sum is exact, and the rings are what is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import tilepipe as tp

HOPPER = tp.FA4Config(
    qkv_dtype=tp.bfloat16, depth=128, BM=128, BN=32, num_kv_stages=2, num_qk_stages=2, chip=tp.H200
)
BLACKWELL = tp.FA4Config(
    qkv_dtype=tp.bfloat16,
    depth=128,
    BM=128,
    BN=32,
    num_kv_stages=2,
    num_qk_stages=2,
    use_fused_kv=False,
)

Array = npt.NDArray[Any]


class Rings:
    """The rings of K and V of a kernel, and their sides."""

    def __init__(self, ctx: tp.Context, cfg: tp.FA4Config, **counts: Any) -> None:
        self.ctx, self.cfg = ctx, cfg
        self.parts = range(cfg.num_qk_stages)
        if cfg.use_fused_kv:
            ring, tiles = (
                tp.KVPipeline.allocate(ctx, cfg.num_kv_stages, name="kv", **counts),
                tp.KVTiles.allocate(ctx, cfg),
            )
            self.k, self.v = (
                tp.KProducerPipeline(ring, tiles, cfg),
                tp.VProducerPipeline(ring, tiles, cfg),
            )
            self.kc, self.vc = (
                tp.KConsumerPipeline(ring, tiles, cfg),
                tp.VConsumerPipeline(ring, tiles, cfg),
            )
            return
        k_ring = tp.StagedPipeline.allocate(
            ctx, cfg.num_kv_stages, cfg.num_qk_stages, name="k", **counts
        )
        v_ring = tp.StagedPipeline.allocate(ctx, cfg.num_kv_stages, name="v", **counts)
        k_layout = tp.tile_layout_k_major(
            cfg.qkv_dtype, cfg.k_rows_per_cta(), cfg.BK0, cfg.swizzle_mode
        )
        v_layout = tp.tile_layout_mn_major(
            cfg.qkv_dtype, cfg.v_cols_per_cta(), cfg.BK1, cfg.swizzle_mode
        )
        k_tiles = k_layout.allocate(ctx, cfg.num_kv_stages * cfg.num_qk_stages, "k_tiles")
        v_tiles = v_layout.allocate(ctx, cfg.num_kv_stages, "v_tiles")
        self.k, self.v = (
            tp.KProducerPipeline(k_ring, k_tiles, cfg),
            tp.VProducerPipeline(v_ring, v_tiles, cfg),
        )
        self.kc, self.vc = (
            tp.KConsumerPipeline(k_ring, k_tiles, cfg),
            tp.VConsumerPipeline(v_ring, v_tiles, cfg),
        )
        self.k_ring, self.v_ring, self.k_tiles, self.v_tiles = k_ring, v_ring, k_tiles, v_tiles


def load_tile(r: Rings, k: Any, v: Any, n: Any) -> None:
    """K tile n, part by part, then V tile n."""
    for q in r.parts:
        r.k.acquire(qk_stage=q)
        with r.ctx.elect_one():
            k.async_copy(r.k.get_tile(qk_stage=q, e=1), (n * r.cfg.BN, q * r.cfg.BK0))
    r.k.commit_step()
    r.v.acquire()
    with r.ctx.elect_one():
        dst = r.v.get_tile(e=1)
        r.ctx.tma_load(v, (0, n * r.cfg.BN), dst.smem, dst.mbar)
    r.v.commit_step()


def load_all(r: Rings, k: Any, v: Any, tiles: Any) -> None:
    """Every tile, and a drain: one of each ring."""
    for n in r.ctx.range(tiles):
        load_tile(r, k, v, n)
    r.k.drain()
    if r.v.pipeline is not r.k.pipeline:
        r.v.drain()


def multiply_k(r: Rings, s: Any, q: Any) -> None:
    """S = Q · Kᵀ, part by part; frees each part."""
    for part in r.parts:
        r.kc.wait_k(qk_stage=part)
        r.ctx.mma(s, q[part], r.kc.get(qk_stage=part), accumulate=part > 0)
        r.kc.release_k(qk_stage=part)


def multiply_v(r: Rings, o: Any, p: Any) -> None:
    """O += P · V; frees the tile."""
    r.vc.wait_v()
    r.ctx.mma(o, p, r.vc.get())
    r.vc.release_v()


def attend(r: Rings, o: Any, q: Any, tiles: Any) -> None:
    """S of the next tile and O of this one are in flight together."""
    ctx, cfg = r.ctx, r.cfg
    s, p = ctx.accumulator((64, cfg.BN)), ctx.fragment(shape=(64, cfg.BN), dtype=cfg.qkv_dtype)
    multiply_k(r, s, q)
    ctx.wgmma_wait(0)
    p.set(s.to(cfg.qkv_dtype))
    for _ in ctx.range(tiles - 1):
        multiply_k(r, s, q)
        multiply_v(r, o, p)
        ctx.wgmma_wait(1)  # S is there, and K is free
        ctx.wgmma_wait(0)  # O is there, and V is free
        p.set(s.to(cfg.qkv_dtype))
    multiply_v(r, o, p)
    ctx.wgmma_wait(0)


Load = Callable[[Rings, Any, Any, Any], None]
Attend = Callable[[Rings, Any, Any, Any], None]


def hopper(
    cfg: tp.FA4Config = HOPPER, load: Load = load_all, use: Attend = attend, **counts: Any
) -> tp.KernelFunction:
    """Each warpgroup has 64 rows of Q; all read every tile of K and V."""

    @tp.kernel()
    def attention(ctx: tp.Context, q: Any, k: Any, v: Any, out: Any) -> None:
        r = Rings(ctx, cfg, **counts)
        q_tiles = ctx.smem((cfg.BM, cfg.BK0), cfg.qkv_dtype, count=cfg.num_qk_stages, name="q")
        q_full = tp.SharedMemBarrier.allocate(ctx, 1, "q_full")
        tiles = ctx.ceil_div(k.shape[0], cfg.BN)

        @ctx.role("load", warps=1)
        def load_role() -> None:
            with ctx.elect_one():
                q_full.expect_bytes(cfg.bytes_of_q)
                for part in r.parts:
                    ctx.tma_load(q, (0, part * cfg.BK0), q_tiles[part], q_full)
            load(r, k, v, tiles)

        @ctx.role("mma", warpgroups=cfg.BM // 64)
        def mma_role() -> None:
            row = ctx.warpgroup_rank * 64
            o = ctx.accumulator((64, cfg.padded_ov_depth))
            o.fill(0)
            q_full.wait(0)
            use(r, o, [q_tiles[part].rows(row, 64) for part in r.parts], tiles)
            ctx.store_global(out, (row, 0), o)

    return attention


def issue(
    r: Rings, o: Any, s: Any, p: Any, q: Any, scores: tp.ProducerPipeline, tiles: Any
) -> None:
    """The MMA warp of Blackwell: S, and behind the softmax's release, which says that P has taken
    its place, O.
    """
    ctx = r.ctx
    for n in ctx.range(tiles):
        for part in r.parts:
            r.kc.wait_k(qk_stage=part)
            with ctx.elect_one():
                ctx.mma(s, q[part], r.kc.get(qk_stage=part), accumulate=part > 0)
            r.kc.release_k(qk_stage=part)
        scores.commit_mma()
        scores.step()
        scores.acquire()
        r.vc.wait_v()
        ctx.tcgen05_fence_after()
        with ctx.elect_one():
            ctx.mma(o, p, r.vc.get(), accumulate=n > 0)
        r.vc.release_v()


def blackwell(
    cfg: tp.FA4Config = BLACKWELL, load: Load = load_all, use: Callable[..., None] = issue
) -> tp.KernelFunction:
    """128 rows of Q: a warp issues, S and O are in tensor memory, a warpgroup turns S into P."""

    @tp.kernel()
    def attention(ctx: tp.Context, q: Any, k: Any, v: Any, out: Any) -> None:
        r = Rings(ctx, cfg)
        q_tiles = ctx.smem((cfg.BM, cfg.BK0), cfg.qkv_dtype, count=cfg.num_qk_stages, name="q")
        q_full, done = (tp.SharedMemBarrier.allocate(ctx, 1, name) for name in ("q_full", "done"))
        scores = tp.ProducerPipeline.allocate(ctx, 1, name="s")
        taken = scores.consumer()
        tmem, over = tp.TmemAllocation(ctx, 256), tp.TmemDeallocBarrier(ctx)
        placed = ctx.named_barrier(32 + 128, "placed")
        tiles = ctx.ceil_div(k.shape[0], cfg.BN)

        def parts() -> tuple[Any, Any, Any]:
            """O, S, and P in the place of S."""
            bn, at = cfg.BN, cfg.padded_ov_depth
            return (
                tmem.tensor((128, at)),
                tmem.tensor((128, bn), col=at),
                tmem.tensor((128, bn), cfg.qkv_dtype, col=at),
            )

        @ctx.role("load", warps=1)
        def load_role() -> None:
            with ctx.elect_one():
                q_full.expect_bytes(cfg.bytes_of_q)
                for part in r.parts:
                    ctx.tma_load(q, (0, part * cfg.BK0), q_tiles[part], q_full)
            load(r, k, v, tiles)

        @ctx.role("mma", warps=1)
        def mma_role() -> None:
            tmem.allocate()
            placed.arrive()
            o, s, p = parts()
            q_full.wait(0)
            use(r, o, s, p, q_tiles, scores, tiles)
            with ctx.elect_one():
                ctx.mma_commit(done)
            over.complete_dealloc(tmem)

        @ctx.role("softmax", warpgroups=1)
        def softmax_role() -> None:
            placed.sync()
            tmem.from_shared()
            o, s, p = parts()
            for _ in ctx.range(tiles):
                taken.wait()
                ctx.tcgen05_fence_after()
                x = s.load()
                ctx.tmem_wait_load()
                p.store(x)
                ctx.tmem_wait_store()
                ctx.tcgen05_fence_before()
                taken.release()
            done.wait(0)
            ctx.tcgen05_fence_after()
            x = o.load()
            ctx.tmem_wait_load()
            over.signal_complete()
            ctx.store_global(out, (0, 0), x)

    return attention


def operands(
    cfg: tp.FA4Config, tiles: int, seed: int = 0
) -> tuple[Array, Array, Array, Array, Array]:
    """Q, K, V of small integers, an output, and what it must be."""
    rng = np.random.default_rng(seed)
    q = (rng.random((cfg.BM, cfg.depth)) < 0.05).astype(ml_dtypes.bfloat16)
    k, v = (
        rng.integers(-1, 2, (tiles * cfg.BN, d)).astype(ml_dtypes.bfloat16)
        for d in (cfg.depth, cfg.ov_depth)
    )
    want = q.astype(np.float32) @ k.astype(np.float32).T @ v.astype(np.float32)
    return q, k, v, np.zeros(want.shape, np.float32), want


def bind(
    kernel: tp.KernelFunction, cfg: tp.FA4Config, q: Array, k: Array, v: Array, out: Array
) -> tp.Program:
    """The maps of a kernel of this page."""
    boxes = (cfg.BM, cfg.BK0), (cfg.k_rows_per_cta(), cfg.BK0), (cfg.v_cols_per_cta(), cfg.BK1)
    arrays = q, k, v.swapaxes(0, 1)
    return kernel.bind(
        *(tp.tensor_map(x, box=box) for x, box in zip(arrays, boxes, strict=True)), out
    )
