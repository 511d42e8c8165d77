"""The gradients of attention for Hopper: of out = softmax(scale · Q · Kᵀ) · V, given dO,

    S = scale · Q · Kᵀ      P = exp(S - lse)        dV = Pᵀ · dO
    dP = dO · Vᵀ            dS = P · (dP - delta)   dK = scale · dSᵀ · Q      dQ = scale · dS · K

with lse, the logarithm that the forward pass kept, and delta, the sum of dO · O of each row.

A CTA has a tile of 128 keys, of which each of two warpgroups has 64, and walks over the tiles of
queries that see them, of all heads that share these keys. K and V stay in shared memory, dK and dV
in registers. Scores are computed as their transpose, keys by queries: then Pᵀ and dSᵀ are in the
registers from which wgmma takes operand A. dSᵀ goes through shared memory as well, since dQ needs
that of both warpgroups; each of them computes a part of dQ, which TMA adds to float32 in global
memory. Time goes to the right, i counts tiles of queries:

    load          Q(i+1)  dO(i+1)  ...                                              one warp
    tensor core   dP(i)      | dV(i)       | dQ(i) dK(i) S(i+1)  | dP(i+1) ...
    warpgroup     P(i)       | dS(i)       | store dQ(i)         | P(i+1)

S of the next tile is issued behind dK of this one, so that the tensor core has work while dQ is
stored and while the exponentials of the next P are computed.

With `turns` parts of dQ are added in a fixed order: that of the keys, and so of the CTAs of a head.
A CTA then waits for CTAs of smaller numbers, in a grid that need not fit on the GPU. This ends
because CTAs start in the order of their numbers, which GPUs do and CUDA does not promise
(docs/verification-gaps.md, "The order in which clusters start").
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

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

OF_DO, OF_Q = 0, 1  # parts of a stage of the ring, in the order in which they are freed


def grid(k: tp.TensorMap) -> int:
    """A CTA for each tile of keys."""
    batch, kv_heads, s_kv, _ = k.shape
    return batch * kv_heads * -(-s_kv // KEYS)


@dataclass(frozen=True, eq=False)
class Shared:
    """What the roles share, made in set-up code.

    Attributes:
        batch, kv_head, key: the tile of keys: its batch, its head and its first key.
        group: heads of Q that share a head of K and V.
        first: the first query of the first tile that sees the keys. clear: from this query on all
            of them do. steps: how many tiles of queries see keys, of all heads of the group.
        shift: query i sees keys up to i + shift.
    """

    ctx: tp.Context
    bm: int
    depth: int
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
    batch: tp.Value
    kv_head: tp.Value
    key: tp.Value
    group: tp.Value
    first: tp.Value
    clear: tp.Value
    steps: tp.Value
    shift: tp.Value

    @classmethod
    def allocate(
        cls,
        ctx: tp.Context,
        q: tp.GlobalTensor,
        k: tp.GlobalTensor,
        shift: tp.Value,
        *,
        cfg: BackwardConfig,
        bm: int,
        depth: int,
        causal: bool,
    ) -> Shared:
        """Allocates shared memory and barriers; arguments as of the kernel."""
        kind = q.dtype
        (heads, s_q), (kv_heads, s_kv) = q.shape[1:3], k.shape[1:3]
        tiles = ctx.ceil_div(s_kv, KEYS)
        # All heads of a band, of the tile of keys that most queries see first.
        band = ctx.let(ctx.block_id // (tiles * cfg.group), "band")
        within = ctx.block_id % (tiles * cfg.group)
        wide = ctx.let(ctx.min(k.shape[0] * kv_heads - band * cfg.group, cfg.group), "wide")
        head = ctx.let(band * cfg.group + within % wide, "head")
        key = ctx.let(within // wide * KEYS, "key")
        first: Any = ctx.max(key - shift, 0) // bm * bm if causal else ctx.let(0)
        first = ctx.let(first, "first")
        clear: Any = ctx.max(key + (KEYS - 1) - shift, 0) if causal else 0
        clear = ctx.let(ctx.select(key + KEYS > s_kv, s_q, clear), "clear")
        group = ctx.let(heads // kv_heads, "group")
        steps = ctx.let(group * ctx.max(ctx.ceil_div(s_q - first, bm), 0), "steps")

        def rows(count: int, height: int, name: str) -> tp.SmemTileArray:
            return tp.tile_layout_k_major(kind, height, depth).allocate(ctx, count, name)

        def vectors(name: str) -> tp.SmemTileArray:
            return ctx.smem((1, bm), "float32", count=STAGES, swizzle=0, name=name)

        return cls(
            ctx, bm, depth,
            rows(1, KEYS, "k_tile")[0], rows(1, KEYS, "v_tile")[0],
            tp.SharedMemBarrier.allocate(ctx, 1, "keys_full"),
            tp.StagedPipeline.allocate(ctx, STAGES, 2, name="queries"),
            rows(STAGES, bm, "q_tiles"), vectors("lse_tiles"),
            rows(STAGES, bm, "do_tiles"), vectors("delta_tiles"),
            ctx.smem((KEYS, bm), kind, count=STAGES, name="ds_tiles"),
            tp.ProducerConsumerPipeline.allocate(ctx, 1, name="dq_ring"),
            ctx.smem((bm, depth), "float32", name="dq_tile")[0],
            ctx.let(head // kv_heads, "batch"), ctx.let(head % kv_heads, "kv_head"), key,
            group, first, clear, steps, shift,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Queries:
    """The tile of queries that a role is at: its head and its first query. They are walked from the
    last, which sees the most keys, to `Shared.first`, and so for each head: all CTAs of a head
    begin with the same queries, and read them from L2.
    """

    shared: Shared
    last: tp.Value
    head: tp.Var
    row: tp.Var

    @classmethod
    def begin(cls, shared: Shared, s_q: tp.Value) -> Queries:
        """The last tile of the first head."""
        ctx, bm = shared.ctx, shared.bm
        last = ctx.let((s_q - 1) // bm * bm, "last")
        return cls(shared, last, ctx.var(shared.kv_head * shared.group), ctx.var(last))

    def step(self) -> None:
        """The next tile."""
        ctx, shared = self.shared.ctx, self.shared
        ends = ctx.let(self.row.get() <= shared.first)
        self.head.set(self.head.get() + ctx.select(ends, 1, 0))
        self.row.set(ctx.select(ends, self.last, self.row.get() - shared.bm))


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
    d_v); lse_2 and delta (batch, heads, s_q), sums (batch, heads, s_q, d) float32, to which dQ
    is added, where `turns` (batch, heads, tiles of queries) are given in the order of the keys.
    """
    shared = Shared.allocate(ctx, q, k, shift, cfg=cfg, bm=bm, depth=depth, causal=causal)
    load_registers, registers = REGISTERS
    ctx.role("load", warps=1, registers=load_registers)(
        partial(load, shared, q, k, v, dout, lse_2, delta)
    )
    ctx.role("add", warps=1, registers=load_registers)(partial(add, shared, sums, turns))
    ctx.role("differentiate", warpgroups=CONSUMERS, registers=registers)(
        partial(differentiate, shared, dk, dv, q.shape[2], scale, causal)
    )


def load(
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
    of_keys = shared.batch, shared.kv_head, shared.key, 0
    with ctx.elect_one():
        shared.there.expect_bytes(shared.k_tile.nbytes + shared.v_tile.nbytes)
        ctx.tma_load(k, of_keys, shared.k_tile, shared.there)
        ctx.tma_load(v, of_keys, shared.v_tile, shared.there)
    at = Queries.begin(shared, q.shape[2])
    for _ in ctx.range(shared.steps):
        place, stage = (shared.batch, at.head.get(), at.row.get()), ring.state.index()
        for part, matrix, tiles, vector, numbers in (
            (OF_Q, q, shared.q_tiles, lse_2, shared.lse_tiles),
            (OF_DO, dout, shared.do_tiles, delta, shared.delta_tiles),
        ):
            ring.producer_acquire(qk_stage=part)
            full = ring.producer_mbar(qk_stage=part)
            with ctx.elect_one():
                full.expect_bytes(tiles.tile_bytes + numbers.tile_bytes)
                ctx.tma_load(matrix, (*place, 0), tiles[stage], full)
                ctx.tma_load(vector, place, numbers[stage], full)
        ring.state.step()
        at.step()
    ring.drain_producer()


def add(shared: Shared, sums: tp.GlobalTensor, turns: tp.GlobalTensor | None) -> None:
    """The role that adds tiles of dQ to those of other CTAs, as the warpgroups compute them. With
    `turns`, which count the tiles of keys that have added theirs, it waits for those before, so
    that a sum of floats has the same bits each time.
    """
    ctx, bm = shared.ctx, shared.bm
    at, number = Queries.begin(shared, sums.shape[2]), shared.key // KEYS
    head, row = ctx.var(0), ctx.var(-1)  # of the tile before, which has not been counted

    def count() -> None:
        if turns is not None:
            slot = turns[shared.batch, head.get(), row.get() // bm]
            with ctx.when(row.get() >= 0):
                ctx.store(slot, number + 1, order="release")

    for _ in ctx.range(shared.steps):
        with shared.dq_ring.consume_explicit() as stage, ctx.elect_one():
            place = shared.batch, at.head.get(), at.row.get()
            if turns is not None:
                slot = turns[(*place[:2], place[2] // bm)]
                ctx.wait_until(slot, lambda value: value >= number)
            ctx.tma_store(sums, (*place, 0), shared.dq_tile, reduce="add")
            ctx.tma_store_commit()
            if turns is not None:
                ctx.tma_store_wait(1)
                count()
            ctx.tma_store_wait(0, read=True)
            stage.mbar().arrive()
        if turns is not None:
            head.set(at.head.get())
            row.set(at.row.get())
        at.step()
    with ctx.elect_one():
        ctx.tma_store_wait(0)
        count()


def differentiate(
    shared: Shared,
    dk: tp.GlobalTensor,
    dv: tp.GlobalTensor,
    s_q: tp.Value,
    scale: tp.Value,
    causal: bool,
) -> None:
    """The role that multiplies. A warpgroup has 64 keys: of the tile's scores, dV and dK their
    rows, of dQ a part of 64 by 64.
    """
    ctx, bm, kind = shared.ctx, shared.bm, shared.q_tiles.buffer.dtype
    ring, me = shared.ring, ctx.warpgroup_rank
    dk_sum, dv_sum = ctx.accumulator((ROWS, shared.depth)), ctx.accumulator((ROWS, shared.depth))
    ds = ctx.fragment(shape=(ROWS, bm), dtype=kind)
    keys, values = shared.k_tile.rows(me * ROWS, ROWS), shared.v_tile.rows(me * ROWS, ROWS)
    scale_2 = ctx.let(scale * math.log2(math.e), "scale_2")
    # The part of dQ: of one block of 64 queries half of the columns, of two blocks one.
    width = shared.depth * bm // KEYS
    first_row, first_col = (0, me * width) if bm == ROWS else (me * ROWS, 0)
    part_of_dq = shared.dq_tile.part(first_row, first_col, ROWS, width)
    # Beside scores of 128 queries there are no registers for P in float32 while dV is computed.
    rounded = bm > ROWS
    key: Any = shared.key + me * ROWS + ctx.row_index(ROWS)

    # Fragments that live for a part of a step are made in it, and share registers.
    def statistics(tile: tp.SmemTile) -> Iterator[tuple[int, tp.Fragment]]:
        """One value of each query, a few columns of the scores at a time."""
        for col in range(0, bm, COLUMNS):
            found = ctx.fragment(shape=(1, COLUMNS))
            found.load(tile.cols(col, COLUMNS))
            yield col, found

    def issue_scores() -> tp.Fragment:
        scores, stage = ctx.accumulator((ROWS, bm)), ring.state.index()
        ring.consumer_wait(qk_stage=OF_Q)
        ctx.mma(scores, keys, shared.q_tiles[stage], accumulate=False)
        ctx.wgmma_commit()
        return scores

    def weigh(at: Queries, scores: tp.Fragment) -> None:
        """P of a tile of queries, whose scores have been issued, dV += Pᵀ · dO, and dS."""
        dp, stage = ctx.accumulator((ROWS, bm)), ring.state.index()
        ring.consumer_wait(qk_stage=OF_DO)
        ctx.mma(dp, values, shared.do_tiles[stage], accumulate=False)
        ctx.wgmma_commit()
        ctx.wgmma_wait(1)  # the scores
        with ctx.when(at.row.get() < shared.clear):
            seen = key < dk.shape[2]
            if causal:
                query: Any = at.row.get() + shared.shift + ctx.col_index(bm)
                seen = (key <= query) & seen
            scores.set(ctx.select(seen, scores, -math.inf))
        for col, lse in statistics(shared.lse_tiles[stage]):
            part = scores.cols(col, COLUMNS)
            scores.set((part * scale_2 - lse).apply("exp2"), col)
        p = ctx.fragment(scores.to(kind))
        ctx.mma(dv_sum, p, shared.do_tiles[stage].T)
        ring.consumer_release(qk_stage=OF_DO)
        ctx.wgmma_wait(1 if rounded else 0)  # dP
        for col, delta in statistics(shared.delta_tiles[stage]):
            weights = (p if rounded else scores).cols(col, COLUMNS).to("float32")
            part = dp.cols(col, COLUMNS)
            ds.set(weights * (part - delta), col)
        ctx.store(shared.ds_tiles[stage].rows(me * ROWS, ROWS), ds)
        ctx.fence_proxy_async()
        if rounded:
            ctx.wgmma_wait(0)  # dV

    def issue_products() -> tp.Fragment:
        """A part of dQ, and dK += dSᵀ · Q, of the tile whose dS has been stored."""
        dq_part, stage = ctx.accumulator(part_of_dq.shape), ring.state.index()
        ctx.sync_role()  # by both warpgroups
        of_rows = shared.ds_tiles[stage].T.rows(first_row, ROWS)
        ctx.mma(dq_part, of_rows, shared.k_tile.T.rows(first_col, width), accumulate=False)
        ctx.wgmma_commit()
        ctx.mma(dk_sum, ds, shared.q_tiles[stage].T)
        ring.consumer_release(qk_stage=OF_Q)
        return dq_part

    def hand_on(dq_part: tp.Fragment) -> None:
        """Stores a part of dQ, while dK is computed."""
        ctx.wgmma_wait(1)
        with shared.dq_ring.produce() as stage:
            ctx.store(part_of_dq, dq_part)
            ctx.fence_proxy_async()
            ctx.syncwarp()
            with ctx.elect_one():
                stage.mbar().arrive()

    dk_sum.fill(0)
    dv_sum.fill(0)
    shared.there.wait(0)
    with ctx.when(shared.steps > 0):
        at = Queries.begin(shared, s_q)
        weigh(at, issue_scores())
        for _ in ctx.range(shared.steps - 1):
            hand_on(issue_products())
            scores = issue_scores()
            ctx.wgmma_wait(1)  # dK
            at.step()
            weigh(at, scores)
        hand_on(issue_products())
        ctx.wgmma_wait(0)
    at_keys = shared.batch, shared.kv_head, shared.key + me * ROWS, 0
    ctx.store_global(dv, at_keys, dv_sum)
    ctx.store_global(dk, at_keys, dk_sum * scale)
