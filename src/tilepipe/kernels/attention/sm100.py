"""Attention forward for Blackwell: out = softmax(scale · Q · Kᵀ) · V, and the log-sum-exp of its
rows.

A CTA computes two tiles of 128 queries of one head. Scores and outputs of both are in tensor
memory, S0 | S1 | O0 | O1; P, in 16 bits, takes the place of its S, from where the tensor core reads
it as operand A. Roles:

    load        one warp: Q0 with the first K, Q1, then V and K in turn, each through a ring
    mma         one warp, for every block n: S0 = Q0 · Knᵀ; O1 += P1 · V(n-1); S1 = Q1 · Knᵀ; O0 +=
    P0 · Vn. Between S and the
                P that is made of it stand MMAs of the other tile
    softmax0/1  a warpgroup each: S from tensor memory, the exponentials back as P, in two halves,
    of which the MMA takes the first early correction  a warpgroup: multiplies O where the maximum
    of a row has grown; in the end by 1 / sum, and stores it

Not persistent: a CTA for each 256 queries of a head. Simulated, checked and compiled; it has not
been run on a Blackwell GPU.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention.config import SM100_PART as PART
from tilepipe.kernels.attention.config import SM100_ROWS as ROWS
from tilepipe.kernels.attention.config import SM100_TILES as TILES
from tilepipe.kernels.attention.config import Sm100AttentionConfig
from tilepipe.kernels.attention.heuristics import choose_sm100
from tilepipe.kernels.attention.sm100_rows import LAYOUT, Softmax, Work
from tilepipe.kernels.attention.validation import boxed, check_attention

SLICE = 32  # columns of tensor memory that are in registers at once beside others
# of a thread: 128 · (2 · 192 + 88 + 40) are those of an SM
REGISTERS = {"softmax": 192, "correction": 88, "others": 40}


def grid(q: tp.TensorMap) -> int:
    """A CTA for each two tiles of queries of each head."""
    batch, heads, s_q, _ = q.shape
    return batch * heads * -(-s_q // (TILES * ROWS))


@tp.kernel(grid=grid)
def attention(
    ctx: tp.Context,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    scale: Any,
    *,
    cfg: Sm100AttentionConfig,
    causal: bool,
) -> None:
    """out = softmax(scale · q · kᵀ) · v; lse: the log-sum-exp, or None. `scale` is that of the
    scores, times log2(e).
    """
    d, bn = v.box[-2], cfg.bn
    parts = range(d // PART)
    shape = cfg.fa4(q.dtype, d)
    work = Work(ctx, q, k, cfg, causal)
    q_tiles = [
        tp.tile_layout_k_major(q.dtype, ROWS, PART).allocate(ctx, len(parts), f"q{i}")
        for i in range(TILES)
    ]
    k_tiles = tp.tile_layout_k_major(k.dtype, bn, PART).allocate(ctx, cfg.stages * len(parts), "k")
    v_tiles = tp.tile_layout_mn_major(v.dtype, d, bn).allocate(ctx, cfg.stages, "v")
    factors = ctx.smem((ROWS, 1), tp.float32, count=TILES, swizzle=0, name="factors")
    k_load = tp.KProducerPipeline(
        tp.KPipeline.allocate(ctx, cfg.stages, len(parts), name="k"), k_tiles, shape
    )
    v_load = tp.VProducerPipeline(tp.VPipeline.allocate(ctx, cfg.stages, name="v"), v_tiles, shape)
    k_read, v_read = (
        tp.KConsumerPipeline(k_load.pipeline, k_tiles, shape),
        tp.VConsumerPipeline(v_load.pipeline, v_tiles, shape),
    )
    q1_full = tp.SharedMemBarrier.allocate(ctx, name="q1_full")
    # S and O of a tile: MMAs announce them on barriers of their own. P that is ready and O that is
    # corrected are told on the same barrier, the first of the two on which S is given back.
    scores = [
        tp.ProducerPipeline.allocate(ctx, 1, consumer_sub_stages=shape.num_pv_stages, name=f"s{i}")
        for i in range(TILES)
    ]
    outputs = [output_pipeline(ctx, scores[i], f"o{i}") for i in range(TILES)]
    told = [tp.ProducerConsumerPipeline.allocate(ctx, 1, name=f"factors{i}") for i in range(TILES)]
    tmem, dealloc = tp.TmemAllocation(ctx, 512), tp.TmemDeallocBarrier(ctx)
    published = ctx.named_barrier(32 + 3 * 128, "published")

    def s(i: int) -> tp.TmemTensor:
        return tmem.tensor((ROWS, bn), col=i * bn)

    def p(i: int) -> tp.TmemTensor:
        return tmem.tensor((ROWS, bn), q.dtype, col=i * bn)

    def o(i: int) -> tp.TmemTensor:
        return tmem.tensor((ROWS, d), col=TILES * bn + i * d)

    halves = [
        (j, j * bn // shape.num_pv_stages, bn // shape.num_pv_stages)
        for j in range(shape.num_pv_stages)
    ]

    @ctx.role("load", warps=1, registers=REGISTERS["others"])
    def load() -> None:
        def load_k(n: Any, with_q: bool) -> None:
            for part in parts:
                k_load.acquire(qk_stage=part)
                with ctx.elect_one():
                    to = k_load.get_tile(qk_stage=part)
                    to.mbar.expect_bytes(k_load.bytes + (q_tiles[0].tile_bytes if with_q else 0))
                    if with_q:
                        ctx.tma_load(
                            q,
                            (work.batch, work.head, work.row(0), part * PART),
                            q_tiles[0][part],
                            to.mbar,
                        )
                    ctx.tma_load(
                        k, (work.batch, work.kv_head, n * bn, part * PART), to.smem, to.mbar
                    )
            k_load.commit_step()

        def load_v(n: Any) -> None:
            v_load.acquire()
            with ctx.elect_one():
                to = v_load.get_tile(e=1)
                ctx.tma_load(v, (work.batch, work.kv_head, 0, n * bn), to.smem, to.mbar)
            v_load.commit_step()

        load_k(0, with_q=True)
        with ctx.elect_one():
            q1_full.expect_bytes(len(parts) * q_tiles[1].tile_bytes)
            for part in parts:
                ctx.tma_load(
                    q, (work.batch, work.head, work.row(1), part * PART), q_tiles[1][part], q1_full
                )
        load_v(0)
        for n in ctx.range(1, work.blocks):
            load_k(n, with_q=False)
            load_v(n)
        ctx.launch_dependents()
        k_load.drain()
        v_load.drain()

    @ctx.role("mma", warps=1, registers=REGISTERS["others"])
    def mma() -> None:
        def multiply_scores(i: int) -> None:
            for part in parts:
                if i == 0:
                    k_read.wait_k(qk_stage=part)
                with ctx.elect_one():
                    ctx.mma(s(i), q_tiles[i][part], k_read.get(qk_stage=part), accumulate=part > 0)
                if i == TILES - 1:
                    k_read.release_k(qk_stage=part)
            scores[i].commit_mma()
            scores[i].step()

        def multiply_output(i: int, adds: Any) -> None:
            for j, first, count in halves:
                scores[i].acquire(j)
                ctx.tcgen05_fence_after()
                with ctx.elect_one():
                    ctx.mma(
                        o(i),
                        p(i).cols(first, count),
                        v_read.get().cols(first, count),
                        accumulate=True if j else adds,
                    )
            outputs[i].commit_mma()

        with tp.MmaWarpContext(tmem, dealloc, published):
            for n in ctx.range(work.blocks):
                multiply_scores(0)
                with ctx.when(n > 0):
                    multiply_output(1, n > 1)
                    v_read.release_v()
                with ctx.otherwise():
                    q1_full.wait(0)
                multiply_scores(1)
                v_read.wait_v()
                multiply_output(0, n > 0)
            multiply_output(1, work.blocks > 1)
            v_read.release_v()

    def softmax(i: int) -> None:
        given = scores[i].consumer()

        def step(rows: Softmax, n: Any, masked: bool) -> None:
            given.wait()
            ctx.tcgen05_fence_after()
            x = s(i).load()
            ctx.tmem_wait_load()
            if masked:
                work.hide(x, n, i)
            factor, shift = rows.begin(x)
            tell(factor)
            for j, first, count in halves:
                width = math.gcd(count, SLICE)
                for at in range(first, first + count, width):
                    p(i).cols(at, width).store(rows.exponentials(x, at, width, shift).to(q.dtype))
                ctx.tmem_wait_store()
                ctx.tcgen05_fence_before()
                given.release_no_step(j)
            given.step()
            rows.add(x, bn)

        def tell(factor: Any) -> None:
            with told[i].produce() as stage:
                ctx.store(factors[i], factor)
                stage.mbar().arrive()

        with tp.EpilogueWarpContext(tmem, dealloc, published):
            rows = Softmax(ctx, scale, cfg)
            clear = work.clear_blocks(i)
            for n in ctx.range(clear):
                step(rows, n, masked=False)
            for n in ctx.range(clear, work.blocks):
                step(rows, n, masked=True)
            inverse, logarithm = rows.end()
            tell(inverse)
            if lse is not None:
                ctx.store_global(lse, (work.batch, work.head, work.row(i)), logarithm)

    for i in range(TILES):
        ctx.role(f"softmax{i}", warpgroups=1, registers=REGISTERS["softmax"])(partial(softmax, i))

    @ctx.role("correction", warpgroups=1, registers=REGISTERS["correction"])
    def correction() -> None:
        done = [output.consumer() for output in outputs]
        factor = ctx.fragment(shape=(ROWS, 1), layout=LAYOUT)

        def hear(i: int) -> None:
            with told[i].consume():
                factor.load(factors[i])

        def rescale(i: int) -> None:
            # does not block as long as S of this block, which the factor is made of, is committed
            # behind that product
            done[i].wait()
            done[i].step()
            ctx.tcgen05_fence_after()
            with ctx.per_warp(), ctx.when((factor < 1.0).any()):
                for at in range(0, d, SLICE):
                    x = o(i).cols(at, SLICE).load()
                    ctx.tmem_wait_load()
                    o(i).cols(at, SLICE).store(x * factor)
            ctx.tmem_wait_store()
            ctx.tcgen05_fence_before()

        def finish(i: int) -> None:
            done[i].wait()  # and so all MMAs that read Q
            ctx.tcgen05_fence_after()
            for part in parts:
                for at in range(0, PART, SLICE):
                    x = o(i).cols(part * PART + at, SLICE).load()
                    ctx.tmem_wait_load()
                    ctx.store(q_tiles[i][part].cols(at, SLICE), x * factor)
            ctx.fence_proxy_async()
            ctx.sync_warpgroup()
            with ctx.elect_one("warpgroup"):
                for part in parts:
                    ctx.tma_store(
                        out, (work.batch, work.head, work.row(i), part * PART), q_tiles[i][part]
                    )
                ctx.tma_store_commit()

        with tp.EpilogueWarpContext(tmem, dealloc, published):
            for n in ctx.range(work.blocks):
                for i in range(TILES):
                    hear(i)
                    with ctx.when(n > 0):
                        rescale(i)
                    done[i].release_no_step()
            for i in range(TILES):
                hear(i)
                finish(i)
        with ctx.elect_one("warpgroup"):
            ctx.tma_store_wait(0)


def output_pipeline(ctx: tp.Context, scores: tp.ProducerPipeline, name: str) -> tp.ProducerPipeline:
    """O of a tile between the MMA warp and the correction, which gives it back on the first barrier
    on which S is given back.
    """
    full = tp.SMemArray(ctx, tp.SharedMemBarrier, 1, f"{name}.full")
    full[0].init(1)
    return tp.ProducerPipeline([full], scores.consumer_mbars[:1], name=name)


def bind(
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any = None,
    cfg: Sm100AttentionConfig | None = None,
    *,
    causal: bool = False,
    scale: Any = None,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """Attention of q (batch, s_q, heads, d), k and v (batch, s_kv, kv_heads, d), into out, like q;
    see `attention_arguments`.

    Args:
        lse: float32 (batch, heads, s_q), gets the natural logarithm of the sum of exp(score) of
            each query.
        cfg: `choose_sm100(d)` unless given. causal: query i sees keys up to i + s_kv - s_q;
            without any, out is 0 and lse -inf.
        scale: of the scores; 1/sqrt(d) unless given.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, or an array that TMA cannot take.
    """
    if cfg is not None and not isinstance(cfg, Sm100AttentionConfig):
        raise tp.BindError(f"attention: cfg is an Sm100AttentionConfig, got {cfg!r}")
    found = check_attention(q, k, v, out, lse, scale=scale, causal=causal)
    cfg = choose_sm100(found.d) if cfg is None else cfg
    return attention.bind(
        boxed("q", q, (ROWS, PART)), boxed("k", k, (cfg.bn, PART)), boxed("v", v, (found.d, cfg.bn), turned=True),
        boxed("out", out, (ROWS, PART)), lse, found.scale * math.log2(math.e), chip=chip, cfg=cfg, causal=causal,
    )  # fmt: skip
