"""Attention forward for Blackwell: out = softmax(scale · Q · Kᵀ) · V, and the log-sum-exp of its
rows.

A CTA computes two tiles of 128 queries of one head. Scores and outputs of both are in tensor
memory, S0 | S1 | O0 | O1; P, in 16 bits, takes the place of its S, from where the tensor core reads
it as operand A. While the softmax of one tile runs, the tensor core works on the other. Time goes
to the right, the columns are those of block n of keys:

    load         K(n+1)        V(n+1)       K(n+2)        V(n+2)                 one warp
    mma          S0 = Q0·Kn  | O1 += P1·V(n-1) | S1 = Q1·Kn  | O0 += P0·Vn       one warp
    softmax0                   exp(S0) -> P0, in two halves                      a warpgroup
    softmax1                                     exp(S1) -> P1, in two halves    a warpgroup
    correction                 O0 · factor       O1 · factor                     a warpgroup

O0 of a block waits for two things that are made of S0: P0, and the factor by which O0 is rescaled
where the maximum of a row has grown. O1 of the last block comes after the loop; then the correction
multiplies by 1 / sum, and stores.

Not persistent: a CTA for each 256 queries of a head. Simulated, checked and compiled; it has not
been run on a Blackwell GPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import tilepipe as tp
from tilepipe.host_arguments import plain_bool, shown
from tilepipe.kernels.attention.config import (
    SM100_PART as PART,
    SM100_ROWS as ROWS,
    SM100_TILES as TILES,
    Sm100AttentionConfig,
)
from tilepipe.kernels.attention.heuristics import choose_sm100
from tilepipe.kernels.attention.sm100_rows import LAYOUT, Softmax, Work
from tilepipe.kernels.attention.validation import NAME, boxed, check_attention
from tilepipe.kernels.common.validation import Array, check_config

HEAD_DIMS = (64, 128)

SLICE = 32  # columns of tensor memory that are in registers at once beside others
# of a thread: 128 · (2 · 192 + 88 + 40) are those of an SM
REGISTERS = {"softmax": 192, "correction": 88, "others": 40}


def grid(q: tp.TensorMap) -> int:
    """A CTA for each two tiles of queries of each head."""
    batch, heads, s_q, _ = q.shape
    return batch * heads * -(-s_q // (TILES * ROWS))


@dataclass(frozen=True, eq=False)
class Shared:
    """What the roles share, made in set-up code.

    Attributes:
        depth: elements of a head. shape: the tiles' extents.
        q_tiles: of each tile of queries, a tile for each part of the depth. factors: of the rows of
            each tile, from its softmax to the correction.
        k_load, k_read, v_load, v_read: the two sides of the rings of K and V.
        scores, outputs: S and O of each tile; MMAs complete them on barriers of their own. P that
            is ready and O that is corrected arrive on the same barrier, the first of the two on
            which S is given back.
        factor_rings: of the factors of each tile.
        published: when the address of tensor memory is known to all.
    """

    ctx: tp.Context
    cfg: Sm100AttentionConfig
    work: Work
    dtype: tp.DType
    depth: int
    shape: tp.FA4Config
    q_tiles: Sequence[tp.SmemTileArray]
    factors: tp.SmemTileArray
    k_load: tp.KProducerPipeline
    v_load: tp.VProducerPipeline
    k_read: tp.KConsumerPipeline
    v_read: tp.VConsumerPipeline
    q1_full: tp.SharedMemBarrier
    scores: Sequence[tp.ProducerPipeline]
    outputs: Sequence[tp.ProducerPipeline]
    factor_rings: Sequence[tp.ProducerConsumerPipeline]
    tmem: tp.TmemAllocation
    dealloc: tp.TmemDeallocBarrier
    published: tp.NamedBarrier

    def s(self, i: int) -> tp.TmemTensor:
        """The scores of tile `i`."""
        return self.tmem.tensor((ROWS, self.cfg.bn), col=i * self.cfg.bn)

    def p(self, i: int) -> tp.TmemTensor:
        """The exponentials of tile `i`, in the columns of its scores."""
        return self.tmem.tensor((ROWS, self.cfg.bn), self.dtype, col=i * self.cfg.bn)

    def o(self, i: int) -> tp.TmemTensor:
        """The output of tile `i`."""
        return self.tmem.tensor((ROWS, self.depth), col=TILES * self.cfg.bn + i * self.depth)

    @property
    def parts(self) -> range:
        """The parts of the depth that have barriers of their own."""
        return range(self.depth // PART)

    @property
    def halves(self) -> list[tuple[int, int, int]]:
        """(number, first column, columns) of the parts in which P is given back."""
        count = self.shape.num_pv_stages
        width = self.cfg.bn // count
        return [(j, j * self.cfg.bn // count, width) for j in range(count)]


@tp.kernel(grid=grid)
def attention(
    ctx: tp.Context,
    q: tp.GlobalTensor,
    k: tp.GlobalTensor,
    v: tp.GlobalTensor,
    out: tp.GlobalTensor,
    lse: tp.GlobalTensor | None,
    scale: tp.Value,
    *,
    cfg: Sm100AttentionConfig,
    causal: bool,
) -> None:
    """out = softmax(scale · q · kᵀ) · v; lse: the log-sum-exp, or None. `scale` is that of the
    scores, times log2(e).
    """
    assert v.box is not None
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
    scores = [
        tp.ProducerPipeline.allocate(ctx, 1, consumer_sub_stages=shape.num_pv_stages, name=f"s{i}")
        for i in range(TILES)
    ]
    outputs = [output_pipeline(ctx, scores[i], f"o{i}") for i in range(TILES)]
    factor_rings = [
        tp.ProducerConsumerPipeline.allocate(ctx, 1, name=f"factors{i}") for i in range(TILES)
    ]
    tmem, dealloc = tp.TmemAllocation(ctx, 512), tp.TmemDeallocBarrier(ctx)
    published = ctx.named_barrier(32 + 3 * 128, "published")
    shared = Shared(
        ctx,
        cfg,
        work,
        q.dtype,
        d,
        shape,
        q_tiles,
        factors,
        k_load,
        v_load,
        k_read,
        v_read,
        q1_full,
        scores,
        outputs,
        factor_rings,
        tmem,
        dealloc,
        published,
    )
    others = REGISTERS["others"]
    ctx.role("load", warps=1, registers=others)(partial(load, shared, q, k, v))
    ctx.role("mma", warps=1, registers=others)(partial(multiply, shared))
    for i in range(TILES):
        ctx.role(f"softmax{i}", warpgroups=1, registers=REGISTERS["softmax"])(
            partial(softmax, shared, i, scale, lse)
        )
    ctx.role("correction", warpgroups=1, registers=REGISTERS["correction"])(
        partial(correct, shared, out)
    )


def load(shared: Shared, q: tp.GlobalTensor, k: tp.GlobalTensor, v: tp.GlobalTensor) -> None:
    """The load role. Q0 comes with the first K, on the same barriers, and Q1 on one of its own: S0
    begins when 128 queries are there, not 256. Then V and K in turn, in the order in which
    the MMAs read them.
    """
    ctx, work, bn, parts = shared.ctx, shared.work, shared.cfg.bn, shared.parts
    q_tiles, k_load, v_load = shared.q_tiles, shared.k_load, shared.v_load

    def load_k(n: tp.Value | int, with_q: bool) -> None:
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
                ctx.tma_load(k, (work.batch, work.kv_head, n * bn, part * PART), to.smem, to.mbar)
        k_load.commit_step()

    def load_v(n: tp.Value | int) -> None:
        v_load.acquire()
        with ctx.elect_one():
            to = v_load.get_tile(e=1)
            ctx.tma_load(v, (work.batch, work.kv_head, 0, n * bn), to.smem, to.mbar)
        v_load.commit_step()

    load_k(0, with_q=True)
    with ctx.elect_one():
        shared.q1_full.expect_bytes(len(parts) * q_tiles[1].tile_bytes)
        for part in parts:
            ctx.tma_load(
                q,
                (work.batch, work.head, work.row(1), part * PART),
                q_tiles[1][part],
                shared.q1_full,
            )
    load_v(0)
    for n in ctx.range(1, work.blocks):
        load_k(n, with_q=False)
        load_v(n)
    ctx.launch_dependents()
    k_load.drain()
    v_load.drain()


def multiply(shared: Shared) -> None:
    """The MMA role: issues S0, O1, S1, O0 of each block in this order. Between S of a tile and the
    P that is made of it stand the MMAs of the other tile, so that the tensor core has work while
    the softmax runs. P of a block is waited for in halves: the first is multiplied while the second
    is computed.
    """
    ctx, work, s, p, o = shared.ctx, shared.work, shared.s, shared.p, shared.o
    q_tiles, k_read, v_read = shared.q_tiles, shared.k_read, shared.v_read
    scores, outputs = shared.scores, shared.outputs

    def multiply_scores(i: int) -> None:
        for part in shared.parts:
            if i == 0:
                k_read.wait_k(qk_stage=part)
            with ctx.elect_one():
                ctx.mma(s(i), q_tiles[i][part], k_read.get(qk_stage=part), accumulate=part > 0)
            if i == TILES - 1:
                k_read.release_k(qk_stage=part)
        scores[i].commit_mma()
        scores[i].step()

    def multiply_output(i: int, adds: bool | tp.Value) -> None:
        for j, first, count in shared.halves:
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

    with tp.MmaWarpContext(shared.tmem, shared.dealloc, shared.published):
        for n in ctx.range(work.blocks):
            multiply_scores(0)
            with ctx.when(n > 0):
                multiply_output(1, n > 1)
                v_read.release_v()
            with ctx.otherwise():
                shared.q1_full.wait(0)
            multiply_scores(1)
            v_read.wait_v()
            multiply_output(0, n > 0)
        multiply_output(1, work.blocks > 1)
        v_read.release_v()


def softmax(shared: Shared, i: int, scale: tp.Value, lse: tp.GlobalTensor | None) -> None:
    """The softmax role of tile `i`: a thread has a whole row, so that no row is reduced over
    threads. It gives P back in halves, and each block's factor to the correction before P, since
    the next O waits for both. Blocks that need no mask come first, in a loop without one.
    """
    ctx, work, cfg = shared.ctx, shared.work, shared.cfg
    s, p, factors = shared.s, shared.p, shared.factors
    given = shared.scores[i].consumer()

    def step(rows: Softmax, n: tp.Value, masked: bool) -> None:
        given.wait()
        ctx.tcgen05_fence_after()
        x = s(i).load()
        ctx.tmem_wait_load()
        if masked:
            work.hide(x, n, i)
        factor, shift = rows.begin(x)
        pass_on(factor)
        for j, first, count in shared.halves:
            width = math.gcd(count, SLICE)
            for at in range(first, first + count, width):
                p(i).cols(at, width).store(rows.exponentials(x, at, width, shift).to(shared.dtype))
            ctx.tmem_wait_store()
            ctx.tcgen05_fence_before()
            given.release_no_step(j)
        given.step()
        rows.add(x, cfg.bn)

    def pass_on(factor: tp.FragmentValue) -> None:
        with shared.factor_rings[i].produce() as stage:
            ctx.store(factors[i], factor)
            stage.mbar().arrive()

    with tp.EpilogueWarpContext(shared.tmem, shared.dealloc, shared.published):
        rows = Softmax(ctx, scale, cfg)
        clear = work.clear_blocks(i)
        for n in ctx.range(clear):
            step(rows, n, masked=False)
        for n in ctx.range(clear, work.blocks):
            step(rows, n, masked=True)
        inverse, logarithm = rows.end()
        pass_on(inverse)
        if lse is not None:
            ctx.store_global(lse, (work.batch, work.head, work.row(i)), logarithm)


def correct(shared: Shared, out: tp.GlobalTensor) -> None:
    """The correction role: multiplies O by a factor where a row's maximum has grown, because the
    softmax warpgroups have no time to. It skips factors of 1, which most are (`rescale_above`). At
    the end it scales O by 1 / sum, and stores it through the tiles of Q, which no MMA reads any
    more.
    """
    ctx, work, o = shared.ctx, shared.work, shared.o
    q_tiles, factors, factor_rings = shared.q_tiles, shared.factors, shared.factor_rings
    done = [output.consumer() for output in shared.outputs]
    factor = ctx.fragment(shape=(ROWS, 1), layout=LAYOUT)

    def load_factor(i: int) -> None:
        with factor_rings[i].consume():
            factor.load(factors[i])

    def rescale(i: int) -> None:
        # Does not block as long as S of this block, which the factor is made of, is committed after
        # that product.
        done[i].wait()
        done[i].step()
        ctx.tcgen05_fence_after()
        with ctx.per_warp(), ctx.when((factor < 1.0).any()):
            for at in range(0, shared.depth, SLICE):
                x = o(i).cols(at, SLICE).load()
                ctx.tmem_wait_load()
                o(i).cols(at, SLICE).store(x * factor)
        ctx.tmem_wait_store()
        ctx.tcgen05_fence_before()

    def store(i: int) -> None:
        done[i].wait()  # and so all MMAs that read Q, whose tiles are written below
        ctx.tcgen05_fence_after()
        for part in shared.parts:
            for at in range(0, PART, SLICE):
                x = o(i).cols(part * PART + at, SLICE).load()
                ctx.tmem_wait_load()
                ctx.store(q_tiles[i][part].cols(at, SLICE), x * factor)
        ctx.fence_proxy_async()
        ctx.sync_warpgroup()
        with ctx.elect_one("warpgroup"):
            for part in shared.parts:
                ctx.tma_store(
                    out, (work.batch, work.head, work.row(i), part * PART), q_tiles[i][part]
                )
            ctx.tma_store_commit()

    with tp.EpilogueWarpContext(shared.tmem, shared.dealloc, shared.published):
        for n in ctx.range(work.blocks):
            for i in range(TILES):
                load_factor(i)
                with ctx.when(n > 0):
                    rescale(i)
                done[i].release_no_step()
        for i in range(TILES):
            load_factor(i)
            store(i)
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
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array | None = None,
    cfg: Sm100AttentionConfig | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
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
    if cfg is not None:
        check_config(NAME, cfg, Sm100AttentionConfig, "an Sm100AttentionConfig")
    found = check_attention(q, k, v, out, lse, scale=scale)
    if found.d not in HEAD_DIMS or found.d_v != found.d:
        raise tp.BindError(
            f"{NAME}: on Blackwell heads of q, k and v have {' or '.join(map(str, HEAD_DIMS))}"
            f" elements, all the same; here q and k have {found.d}, v has {found.d_v}"
        )
    if plain_bool(causal) is None:
        raise tp.BindError(f"{NAME}: causal is True or False, got {shown(causal)}")
    cfg = choose_sm100(found.d) if cfg is None else cfg
    return attention.bind(
        boxed("q", q, (ROWS, PART)),
        boxed("k", k, (cfg.bn, PART)),
        boxed("v", v, (found.d, cfg.bn), turned=True),
        boxed("out", out, (ROWS, PART)),
        lse,
        found.scale * math.log2(math.e),
        chip=chip,
        cfg=cfg,
        causal=causal,
    )
