"""Attention without a softmax through one ring that K and V share, K0 V0 K1 V1 ...: in ring order,
with V let go late, and with two tiles of Q, in the order of a Blackwell kernel.
"""

from __future__ import annotations

from typing import Any

import tilepipe as tp
from tests.support.staged_kernels import Rings, load_all, multiply_k, multiply_v

SHARED = {
    "qkv_dtype": tp.bfloat16,
    "depth": 128,
    "BN": 32,
    "num_kv_stages": 3,
    "num_qk_stages": 1,
    "use_fused_kv": True,
}
HOPPER = tp.FA4Config(**SHARED, BM=64, chip=tp.H200)  # type: ignore[arg-type]
BLACKWELL = tp.FA4Config(**SHARED, BM=128)  # type: ignore[arg-type]
DEFAULT = tp.FA4Config(qkv_dtype=tp.bfloat16, depth=128)  # 5 slots, two tiles of Q


def in_ring_order(r: Rings, o: Any, q: Any, tiles: Any) -> None:
    """S, then O, of one tile after the other."""
    s = r.ctx.accumulator((64, r.cfg.BN))
    for _ in r.ctx.range(tiles):
        multiply_k(r, s, q)
        r.ctx.wgmma_wait(0)
        p = r.ctx.fragment(s.to(r.cfg.qkv_dtype))
        multiply_v(r, o, p)
        r.ctx.wgmma_wait(0)


def late_v(r: Rings, o: Any, q: Any, tiles: Any) -> None:
    """V of a tile is let go behind S of the next, by its number; the place steps when it has been
    waited for.
    """
    ctx, cfg = r.ctx, r.cfg
    s = ctx.accumulator((64, cfg.BN))
    before = ctx.var(0)
    for n in ctx.range(tiles):
        multiply_k(r, s, q)
        ctx.wgmma_wait(0)
        with ctx.when(n > 0):
            r.vc.release_at(before.get())
            ctx.wgmma_wait(0)
        r.vc.wait_v()
        ctx.mma(o, ctx.fragment(s.to(cfg.qkv_dtype)), r.vc.get())
        ctx.wgmma_commit()
        before.set(r.vc.pipeline.state.index())
        r.vc.pipeline.state.step()
        ctx.wgmma_wait(0)
    r.vc.release_at(before.get())
    ctx.wgmma_wait(0)


@tp.kernel()
def two_tiles_of_q(ctx: tp.Context, q: Any, k: Any, v: Any, out: Any) -> None:
    """Blackwell, 256 rows of Q: S0 | S1 | O0 | O1 in tensor memory; P1 · V(n-1) stands between Q0 ·
    Kn and Q1 · Kn, so that V(n-1) is let go after Kn has been waited for. No softmax: P is S in 16
    bits.
    """
    cfg = DEFAULT
    r = Rings(ctx, cfg)
    q_tiles = ctx.smem((128, cfg.BK0), cfg.qkv_dtype, count=2, name="q")
    q_full, done = (tp.SharedMemBarrier.allocate(ctx, 1, name) for name in ("q_full", "done"))
    scores = [tp.ProducerPipeline.allocate(ctx, 1, name=f"s{i}") for i in range(2)]
    taken = [x.consumer() for x in scores]
    tmem, over = tp.TmemAllocation(ctx, 512), tp.TmemDeallocBarrier(ctx)
    placed = ctx.named_barrier(32 + 256, "placed")
    tiles = ctx.ceil_div(k.shape[0], cfg.BN)

    def s(i: int) -> tp.TmemTensor:
        return tmem.tensor((128, cfg.BN), col=i * cfg.BN)

    def p(i: int) -> tp.TmemTensor:
        return tmem.tensor((128, cfg.BN), cfg.qkv_dtype, col=i * cfg.BN)

    def o(i: int) -> tp.TmemTensor:
        return tmem.tensor((128, cfg.padded_ov_depth), col=2 * cfg.BN + i * cfg.padded_ov_depth)

    @ctx.role("load", warps=1)
    def load() -> None:
        with ctx.elect_one():
            q_full.expect_bytes(cfg.bytes_of_q)
            for i in range(2):
                ctx.tma_load(q, (128 * i, 0), q_tiles[i], q_full)
        load_all(r, k, v, tiles)

    @ctx.role("mma", warps=1)
    def mma() -> None:
        tmem.allocate()
        placed.arrive()
        previous = ctx.var(0)

        def score(i: int) -> None:
            """Si = Qi · K of the present slot."""
            with ctx.elect_one():
                ctx.mma(s(i), q_tiles[i], r.kc.get(), accumulate=False)
            scores[i].commit_mma()
            scores[i].step()

        def output(i: int, tile: Any, first: Any) -> None:
            """Oi += Pi · V of a slot, when the softmax has put Pi in the place of Si."""
            scores[i].acquire()
            ctx.tcgen05_fence_after()
            with ctx.elect_one():
                ctx.mma(
                    o(i),
                    p(i),
                    tile,
                    accumulate=~first if isinstance(first, type(tiles > 0)) else not first,
                )

        q_full.wait(0)
        for n in ctx.range(tiles):
            r.kc.wait_k()
            score(0)
            with ctx.when(n > 0):
                output(1, r.vc.smem.tile(previous.get()), n == 1)
                r.vc.release_at(previous.get())
            score(1)
            r.kc.release_k()
            r.vc.wait_v()
            output(0, r.vc.get(), n == 0)
            previous.set(r.vc.pipeline.state.index())
            r.vc.pipeline.state.step()
        output(1, r.vc.smem.tile(previous.get()), tiles == 1)
        r.vc.release_at(previous.get())
        with ctx.elect_one():
            ctx.mma_commit(done)
        over.complete_dealloc(tmem)

    @ctx.role("softmax", warpgroups=2)
    def softmax() -> None:
        placed.sync()
        tmem.from_shared()
        for i in range(2):
            with ctx.when(ctx.warpgroup_rank == i):
                for _ in ctx.range(tiles):
                    taken[i].wait()
                    ctx.tcgen05_fence_after()
                    for half in range(0, cfg.BN, 64):
                        x = s(i).cols(half, 64).load()
                        ctx.tmem_wait_load()
                        p(i).cols(half, 64).store(x)
                        ctx.tmem_wait_store()
                    ctx.tcgen05_fence_before()
                    taken[i].release()
                done.wait(0)
                ctx.tcgen05_fence_after()
                for half in range(0, cfg.padded_ov_depth, 64):
                    y = o(i).cols(half, 64).load()
                    ctx.tmem_wait_load()
                    ctx.store_global(out, (128 * i, half), y)
        over.signal_complete()
