"""The gradients of attention for Hopper: of out = softmax(scale · Q · Kᵀ) · V, given dO,

    S = scale · Q · Kᵀ      P = exp(S - lse)        dV = Pᵀ · dO
    dP = dO · Vᵀ            dS = P · (dP - delta)   dK = scale · dSᵀ · Q      dQ = scale · dS · K

with lse, the logarithm that the forward pass kept, and delta, the sum of dO · O of each row, less
the gradient of lse where there is one.

A CTA has a tile of 128 keys, of which each of two warpgroups has 64, and walks over the tiles of
queries that see them, of all heads that share these keys. K and V stay in shared memory, dK and dV
in registers. Scores are computed as their transpose, keys by queries: then Pᵀ and dSᵀ are in the
registers from which wgmma takes operand A. dSᵀ goes through shared memory as well, since dQᵀ = Kᵀ ·
dSᵀ needs that of both warpgroups; each of them computes half of dQᵀ, which TMA adds to float32 in
global memory. Time goes to the right, i counts tiles of queries:

    load          Q(i+1)  dO(i+1)  ...                                              one warp
    tensor core   S(i)  dP(i)    |             | dV(i)  dQ(i)  dK(i) | S(i+1)  ...
    warpgroup              P(i)  | dS(i)       |         store dQ(i) |
    add           dQ(i-1) ...                                  dQ(i) ...            one warp

While one warpgroup computes dS, or waits for that of the other, the tensor cores work for the
other.

With `turns` parts of dQ are added in a fixed order. A CTA then waits for CTAs of smaller numbers,
in a grid that need not fit on the GPU. This ends because CTAs start in the order of their numbers,
which GPUs do and CUDA does not promise (docs/verification-gaps.md, "The order in which clusters
start"). How long it waits depends on the order in which CTAs walk over the queries: `sm90_walk`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import tilepipe as tp
from tilepipe.kernels.attention_backward.config import (
    COLUMNS,
    CONSUMERS,
    KEYS,
    REGISTERS,
    ROWS,
    STAGES,
    BackwardConfig,
)
from tilepipe.kernels.attention_backward.sm90_walk import Keys, grid

OF_DO, OF_Q = 0, 1  # parts of a stage of the ring, in the order in which they are freed
LINE = 32  # float32 of 128 bytes, at which a tile in shared memory begins


@tp.kernel(grid=grid)
def attention_backward(
    ctx: tp.Context,
    q: tp.GlobalTensor,
    k: tp.GlobalTensor,
    v: tp.GlobalTensor,
    dout: tp.GlobalTensor,
    lse_2: tp.GlobalTensor,
    delta: tp.GlobalTensor,
    sums: tp.GlobalTensor,
    dk: tp.GlobalTensor,
    dv: tp.GlobalTensor,
    turns: tp.GlobalTensor | None,
    scale: tp.Value,
    shift: tp.Value,
    *,
    cfg: BackwardConfig,
    bm: int,
    depth: int,
    causal: bool,
) -> None:
    """q (batch, heads, s_q, d), dout (.., d_v); k and dk (batch, kv_heads, s_kv, d), v and dv (..,
    d_v); lse_2 and delta (batch, heads, s_q), sums (batch, heads, d, s_q) float32, to which dQᵀ is
    added; in a fixed order where `turns` (batch, heads, tiles of queries) are given, int32 and 0.
    """
    keys = Keys.of(ctx, q, k, shift, cfg, bm=bm, causal=causal)
    shared = Shared.allocate(ctx, q.dtype, bm, depth)
    load_registers, registers = REGISTERS
    ctx.role("load", warps=1, registers=load_registers)(
        partial(load, keys, shared, q, k, v, dout, lse_2, delta)
    )
    ctx.role("add", warps=1, registers=load_registers)(partial(add, keys, shared, sums, turns))
    ctx.role("differentiate", warpgroups=CONSUMERS, registers=registers)(
        partial(differentiate, keys, shared, dk, dv, scale)
    )


@dataclass(frozen=True, eq=False)
class Shared:
    """Shared memory and barriers, made in set-up code. `there`: K and V have landed."""

    ctx: tp.Context
    k_tile: tp.SmemTile
    v_tile: tp.SmemTile
    there: tp.SharedMemBarrier
    ring: tp.StagedPipeline
    q_tiles: tp.SmemTileArray
    lse_tiles: tp.SmemTileArray
    do_tiles: tp.SmemTileArray
    delta_tiles: tp.SmemTileArray
    ds_tiles: tp.SmemTileArray
    dq_ring: tp.ProducerConsumerPipeline
    dq_tile: tp.SmemTile

    @classmethod
    def allocate(cls, ctx: tp.Context, kind: tp.DType, bm: int, depth: int) -> Shared:
        """For tiles of `bm` queries, and `depth` elements of a head. Keys are contiguous in dSᵀ,
        elements of a head in dQᵀ: then no two lanes of a store meet in a bank.
        """

        def rows(count: int, height: int, name: str) -> tp.SmemTileArray:
            return tp.tile_layout_k_major(kind, height, depth).allocate(ctx, count, name)

        def vectors(name: str) -> tp.SmemTileArray:
            width = -(-bm // LINE) * LINE
            return ctx.smem((1, width), "float32", count=STAGES, swizzle=0, name=name)

        return cls(
            ctx,
            rows(1, KEYS, "k_tile")[0], rows(1, KEYS, "v_tile")[0],
            tp.SharedMemBarrier.allocate(ctx, 1, "keys_full"),
            tp.StagedPipeline.allocate(ctx, STAGES, 2, name="queries"),
            rows(STAGES, bm, "q_tiles"), vectors("lse_tiles"),
            rows(STAGES, bm, "do_tiles"), vectors("delta_tiles"),
            ctx.smem((KEYS, bm), kind, count=STAGES, order="col", name="ds_tiles"),
            tp.ProducerConsumerPipeline.allocate(ctx, 1, name="dq_ring"),
            ctx.smem((depth, bm), "float32", order="col", name="dq_tile")[0],
        )  # fmt: skip


def load(
    keys: Keys,
    shared: Shared,
    q: tp.GlobalTensor,
    k: tp.GlobalTensor,
    v: tp.GlobalTensor,
    dout: tp.GlobalTensor,
    lse_2: tp.GlobalTensor,
    delta: tp.GlobalTensor,
) -> None:
    """The load role: K, V, and then the tiles of queries with dO and the statistics of rows."""
    ctx, ring = shared.ctx, shared.ring.copy(phase=1)
    of_keys = keys.batch, keys.kv_head, keys.first, 0
    with ctx.elect_one():
        shared.there.expect_bytes(shared.k_tile.nbytes + shared.v_tile.nbytes)
        ctx.tma_load(k, of_keys, shared.k_tile, shared.there)
        ctx.tma_load(v, of_keys, shared.v_tile, shared.there)
    at = keys.queries()
    for _ in ctx.range(keys.steps):
        place, stage = at.place(), ring.state.index()
        for part, matrix, tiles, vector, numbers in (
            (OF_Q, q, shared.q_tiles, lse_2, shared.lse_tiles),
            (OF_DO, dout, shared.do_tiles, delta, shared.delta_tiles),
        ):
            ring.producer_acquire(qk_stage=part)
            full, given = ring.producer_mbar(qk_stage=part), numbers[stage].cols(0, keys.bm)
            with ctx.elect_one():
                full.expect_bytes(tiles.tile_bytes + given.nbytes)
                ctx.tma_load(matrix, (*place, 0), tiles[stage], full)
                ctx.tma_load(vector, place, given, full)
        ring.state.step()
        at.step()
    ring.drain_producer()


def add(keys: Keys, shared: Shared, sums: tp.GlobalTensor, turns: tp.GlobalTensor | None) -> None:
    """The role that adds tiles of dQᵀ to those of other CTAs, as the warpgroups compute them. With
    `turns`, which count the tiles of keys that have added theirs, it waits for its turn, so that a
    sum of floats has the same bits each time.
    """
    ctx, at = shared.ctx, keys.queries()
    for _ in ctx.range(keys.steps):
        batch, head, row = at.place()
        with shared.dq_ring.consume_explicit() as stage, ctx.elect_one():
            if turns is not None:
                slot, turn = turns[batch, head, row // keys.bm], ctx.let(keys.turn(row), "turn")
                ctx.wait_until(slot, partial(operator.le, turn))
            ctx.tma_store(sums, (batch, head, 0, row), shared.dq_tile, reduce="add")
            ctx.tma_store_commit()
            ctx.tma_store_wait(0, read=True)
            stage.mbar().arrive()
            if turns is not None:
                ctx.tma_store_wait(0)
                ctx.store(slot, turn + 1, order="release")
        at.step()
    with ctx.elect_one():
        ctx.tma_store_wait(0)


def differentiate(
    keys: Keys, shared: Shared, dk: tp.GlobalTensor, dv: tp.GlobalTensor, scale: tp.Value
) -> None:
    """The role that multiplies. A warpgroup has 64 keys: of the tile's scores, dV and dK their
    rows; of dQᵀ half.
    """
    ctx, bm, ring, me = shared.ctx, keys.bm, shared.ring, shared.ctx.warpgroup_rank
    (depth, _), kind = shared.dq_tile.shape, shared.q_tiles.buffer.dtype
    k_rows, v_rows = (x.rows(me * ROWS, ROWS) for x in (shared.k_tile, shared.v_tile))
    dk_sum, dv_sum = ctx.accumulator((ROWS, depth)), ctx.accumulator((ROWS, depth))
    scale_2 = ctx.let(scale * math.log2(math.e), "scale_2")
    # With 128 elements of a head half of dQᵀ is 64 of them, with 64 half of the queries.
    across = depth == KEYS
    dq_row, dq_col, dq_width = (me * ROWS, 0, bm) if across else (0, me * (bm // 2), bm // 2)

    def statistics(tile: tp.SmemTile) -> Iterator[tuple[int, tp.Fragment]]:
        """One value of each query, a few columns of the scores at a time."""
        for col in range(0, bm, COLUMNS):
            found = ctx.fragment(shape=(1, COLUMNS))
            found.load(tile.cols(col, COLUMNS))
            yield col, found

    dk_sum.fill(0)
    dv_sum.fill(0)
    shared.there.wait(0)
    at = keys.queries()
    for _ in ctx.range(keys.steps):
        stage, row = ring.state.index(), at.row.get()
        # Fragments that live for a part of a step are made in it, and share registers.
        scores, dp = ctx.accumulator((ROWS, bm)), ctx.accumulator((ROWS, bm))
        ring.consumer_wait(qk_stage=OF_Q)
        ctx.mma(scores, k_rows, shared.q_tiles[stage], accumulate=False)
        ctx.wgmma_commit()
        ring.consumer_wait(qk_stage=OF_DO)
        ctx.mma(dp, v_rows, shared.do_tiles[stage], accumulate=False)
        ctx.wgmma_commit()

        ctx.wgmma_wait(1)  # the scores
        with ctx.when(row < keys.clear):
            seen = keys.seen(row, keys.first + me * ROWS, ROWS)
            scores.set(ctx.select(seen, scores, -math.inf))
        for col, lse in statistics(shared.lse_tiles[stage]):
            part = scores.cols(col, COLUMNS)
            scores.set((part * scale_2 - lse).apply("exp2"), col)

        ctx.wgmma_wait(0)  # dP
        ds = ctx.fragment(shape=(ROWS, bm), dtype=kind)
        for col, delta in statistics(shared.delta_tiles[stage]):
            part = dp.cols(col, COLUMNS)
            ds.set(scores.cols(col, COLUMNS).to("float32") * (part - delta), col)
        ctx.store(shared.ds_tiles[stage].rows(me * ROWS, ROWS), ds)
        p = ctx.fragment(scores.to(kind))

        ctx.mma(dv_sum, p, shared.do_tiles[stage].T)
        ring.consumer_release(qk_stage=OF_DO)
        ctx.fence_proxy_async()
        ctx.sync_role()  # dSᵀ of both warpgroups is there
        dq = ctx.accumulator((ROWS, dq_width))
        of_queries = shared.ds_tiles[stage].T.rows(dq_col, dq_width)
        ctx.mma(dq, shared.k_tile.T.rows(dq_row, ROWS), of_queries, accumulate=False)
        ctx.wgmma_commit()
        ctx.wgmma_wait(1)  # dV
        ctx.mma(dk_sum, ds, shared.q_tiles[stage].T)
        ring.consumer_release(qk_stage=OF_Q)

        ctx.wgmma_wait(1)  # dQ
        with shared.dq_ring.produce() as handed:
            ctx.store(shared.dq_tile.part(dq_row, dq_col, ROWS, dq_width), dq)
            ctx.fence_proxy_async()
            ctx.syncwarp()
            with ctx.elect_one():
                handed.mbar().arrive()
        ctx.wgmma_wait(0)  # dK
        at.step()
    ctx.sync_role()  # both warpgroups have read K and V, whose tiles dK and dV take on their way
    ctx.store(k_rows, (dk_sum * scale).to(kind))
    ctx.store(v_rows, dv_sum.to(kind))
    ctx.fence_proxy_async()
    ctx.sync_role()
    at_keys = keys.batch, keys.kv_head, keys.first + me * ROWS, 0
    with ctx.elect_one("warpgroup"):
        ctx.tma_store(dk, at_keys, k_rows)
        ctx.tma_store(dv, at_keys, v_rows)
        ctx.tma_store_commit()
        ctx.tma_store_wait(0)
