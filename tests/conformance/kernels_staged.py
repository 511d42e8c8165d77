"""Small kernels that use every member of the staged rings of K and V, and of role pipelines, with
what NumPy says of them. Hopper's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Case, Made, Rng
from tests.support.staged_kernels import bind, operands

CFG = tp.FA4Config(
    qkv_dtype=tp.bfloat16,
    depth=128,
    ov_depth=64,
    BM=64,
    BN=16,
    num_kv_stages=2,
    num_qk_stages=2,
    chip=tp.H200,
)
PARTS = range(2)


@tp.kernel()
def staged_tiles(ctx: tp.Context, q: Any, k: Any, v: Any, out: Any) -> None:
    """O = (Q · Kᵀ) · V, every other tile by the members that are named after K and V, the rest by
    the others.
    """
    cfg = tp.FA4Config(
        qkv_dtype=CFG.qkv_dtype,
        depth=CFG.depth,
        ov_depth=CFG.ov_depth,
        BM=64,
        BN=16,
        num_kv_stages=2,
        num_qk_stages=2,
        chip=tp.H200,
    )
    assert cfg == CFG
    assert cfg.supported()
    assert (cfg.rope_dtype, cfg.scale_dtype) == (None, None)
    storage = tp.SMemArray(ctx, tp.SharedMemBarrier, 8, "k")
    ring = tp.KPipeline(storage, CFG.num_kv_stages, CFG.num_qk_stages, name="k")
    ring.init_mbars(1, 1)
    assert ring.mbar is storage
    assert len(storage) == ring.num_mbars() == 2 * ring.num_stages
    values = tp.VPipeline.allocate(ctx, CFG.num_kv_stages, name="v")
    k_tiles = tp.tile_layout_k_major(
        CFG.qkv_dtype, CFG.k_rows_per_cta(), CFG.BK0, CFG.swizzle_mode
    ).allocate(ctx, 4, "k_tiles")
    v_tiles = tp.tile_layout_mn_major(
        CFG.qkv_dtype, CFG.v_cols_per_cta(), CFG.BK1, CFG.swizzle_mode
    ).allocate(ctx, 2, "v_tiles")
    keys = tp.TMAProducerPipeline(storage, k_tiles[0][0, 0], CFG, is_k=True, dtype=CFG.qkv_dtype)
    columns = tp.TMAProducerPipeline(values, v_tiles, CFG, is_k=False)
    assert (keys.tile_layout.size(), keys.elements_full) == (
        keys.elements,
        keys.elements * keys.num_qk_stages_effective,
    )
    kc, vc = (
        tp.TMAConsumerPipeline(ring, k_tiles, CFG),
        tp.TMAConsumerPipeline(values, v_tiles, CFG, is_k=False),
    )
    assert keys.smem.buffer is k_tiles.buffer
    assert keys.pipeline.mbar is storage
    q_tiles = ctx.smem((CFG.BM, CFG.BK0), q.dtype, count=2, name="q")
    q_full = tp.SharedMemBarrier.allocate(ctx, 1, "q_full")
    tiles = k.shape[0] // CFG.BN

    @ctx.role("load", warps=1)
    def load() -> None:
        with ctx.elect_one():
            q_full.expect_bytes(CFG.bytes_of_q)
            for part in PARTS:
                ctx.tma_load(q, (0, part * CFG.BK0), q_tiles[part], q_full)
        for n in ctx.range(0, tiles, 2):
            for part in PARTS:
                keys.acquire_k(qk_stage=part)
                with ctx.elect_one():
                    pair = keys.get_k(qk_stage=part, e=1)
                    k.async_copy(pair, (n * CFG.BN, part * CFG.BK0))
            keys.commit_step()
            columns.acquire_v()
            with ctx.elect_one():
                v.async_copy(columns.get_v(1), (0, n * CFG.BN))
            columns.commit_step()
            for part in PARTS:
                keys.acquire(qk_stage=part)
                with ctx.elect_one():
                    pair = keys.get_tile(qk_stage=part)
                    pair.mbar.expect_bytes(keys.bytes)
                    smem = keys.get_smem(qk_stage=part) if part else keys.get_k_smem(qk_stage=part)
                    ctx.tma_load(k, ((n + 1) * CFG.BN, part * CFG.BK0), smem, pair.mbar)
            keys.commit_step()
            columns.acquire()
            with ctx.elect_one():
                pair = columns.get_tile()
                pair.mbar.expect_bytes(columns.tile_bytes)
                ctx.tma_load(v, (0, (n + 1) * CFG.BN), columns.get_v_smem(), pair.mbar)
            columns.commit_step()
        keys.drain()
        columns.drain()

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        o, s = ctx.accumulator((64, CFG.ov_depth)), ctx.accumulator((64, CFG.BN))
        o.fill(0)
        q_full.wait(0)
        for _ in ctx.range(0, tiles, 2):
            for named in (True, False):
                for part in PARTS:
                    kc.wait_k(qk_stage=part) if named else kc.wait(qk_stage=part)
                    ctx.mma(s, q_tiles[part], kc.get(qk_stage=part), accumulate=part > 0)
                    kc.release_k(qk_stage=part) if named else kc.release(qk_stage=part)
                ctx.wgmma_wait(0)
                vc.wait_v() if named else vc.wait()
                ctx.mma(o, ctx.fragment(s.to(CFG.qkv_dtype)), vc.get())
                vc.release_v() if named else vc.release()
                ctx.wgmma_wait(0)
        ctx.store_global(out, (0, 0), o)


def made_tiles(rng: Rng) -> Made:
    q, k, v, out, want = operands(CFG, 6, int(rng.integers(100)))
    return bind(staged_tiles, CFG, q, k, v, out), out, want, 0


@tp.kernel()
def staged_roles(ctx: tp.Context, a: Any, b: Any, out: Any) -> None:
    """Blocks of A · Bᵀ: loads to MMAs by a StagedPipeline of one part, MMAs to loads and to stores
    by RolePipelines.
    """
    ring = tp.StagedPipeline.allocate(ctx, 2, name="a")
    a_tiles, b_tile = (
        ctx.smem((64, 16), a.dtype, count=2, name="a_tiles"),
        ctx.smem((32, 16), b.dtype, name="b_tile")[0],
    )
    sums = ctx.smem((64, 32), out.dtype, count=2, name="sums")
    b_full = tp.SharedMemBarrier.allocate(ctx, 1, "b_full")
    read, done = (tp.ProducerPipeline.allocate(ctx, 2, name=name) for name in ("read", "done"))
    blocks = a.shape[0] // 64

    @ctx.role("load", warps=1)
    def load() -> None:
        mine, told = ring.copy(phase=1), read.consumer()
        with ctx.elect_one():
            b_full.expect_bytes(b_tile.nbytes)
            ctx.tma_load(b, (0, 0), b_tile, b_full)
        for i in ctx.range(blocks):
            mine.producer_acquire()
            with ctx.elect_one():
                mbar = mine.producer_mbar()
                mbar.expect_bytes(a_tiles.tile_bytes)
                ctx.tma_load(a, (64 * i, 0), a_tiles[mine.state.index()], mbar)
            mine.state.step()
            told.wait()
            told.release()
        mine.drain_producer()

    @ctx.role("mma", warpgroups=1)
    def mma() -> None:
        acc = ctx.accumulator((64, 32))
        b_full.wait(0)
        for _ in ctx.range(0, blocks, 2):
            for deferred in (False, True):
                ring.consumer_wait()
                ctx.mma(acc, a_tiles[ring.state.index()], b_tile, accumulate=False)
                if deferred:
                    ring.consumer_release_at(ring.state.index())
                    ring.state.step()
                else:
                    ring.consumer_release()
                read.acquire()
                read.commit_mma()
                read.step()
                ctx.wgmma_wait(0)
                done.acquire()
                ctx.store(sums[done.state.index()], acc)
                ctx.fence_proxy_async()
                done.commit()

    @ctx.role("store", warps=1)
    def store() -> None:
        ready = tp.ConsumerPipeline(done.producer_mbars, done.consumer_mbars, name="done")
        for i in ctx.range(0, blocks, 2):
            for half in range(2):
                ready.wait()
                with ctx.elect_one():
                    ctx.tma_store(out, (64 * (i + half), 0), sums[ready.state.index()])
                    ctx.tma_store_commit()
                    ctx.tma_store_wait(0)
                ctx.syncwarp()
                if half:
                    ready.release_no_step()
                    ready.step()
                else:
                    ready.release()


def made_roles(rng: Rng) -> Made:
    a, b = (rng.integers(-3, 4, (rows, 16)).astype(tp.bfloat16.numpy) for rows in (6 * 64, 32))
    out = np.zeros((6 * 64, 32), np.float32)
    maps = (tp.tensor_map(x, box=box) for x, box in ((a, (64, 16)), (b, (32, 16)), (out, (64, 32))))
    return staged_roles.bind(*maps), out, a.astype(np.float32) @ b.astype(np.float32).T, 0


CASES = [Case("staged_tiles", made_tiles), Case("staged_roles", made_roles)]
