"""Attention for Hopper, forward: out = softmax(scale · Q · Kᵀ) · V for each head, and the logarithm
of what each row is divided by.

One TMA warp feeds 1 to 3 warpgroups. Each has 64 queries, whose scores stay in registers. Two
overlaps keep the tensor cores busy. Within a warpgroup S = Q · Kᵀ of one tile of keys and O += P ·
V of the tile before are in flight together, and the softmax of S runs beside O's. Between
warpgroups the order of turns lets one issue its MMAs while another takes its softmax. Time goes to
the right, n counts tiles of keys:

    load          K(n)  V(n)      K(n+1)  V(n+1)     K(n+2)  V(n+2)  ...        one warp
    tensor core   | S_a(n) O_a(n-1) | S_b(n) O_b(n-1) | S_a(n+1) O_a(n) | ...
    warpgroup a   issues            softmax S_a(n)    issues            ...
    warpgroup b   softmax S_b(n-1)  issues            softmax S_b(n)    ...

Within a step a warpgroup waits for S(n) only (`wgmma_wait(1)`); O(n-1) runs on beside its softmax,
and is waited for before P(n) takes the registers of P(n-1).

Keys are walked from the last that the tile's queries see to the first, so that tiles which a mask
cuts come first, and those that a window's left side cuts last. K and V go through the rings of
`TMAProducerPipeline`.
"""

from __future__ import annotations

from functools import partial

import tilepipe as tp
from tilepipe.kernels.attention.config import OCTAVES, ROWS, AttentionConfig
from tilepipe.kernels.attention.packed import Sequences
from tilepipe.kernels.attention.scores import ScoreChanges
from tilepipe.kernels.attention.sm90_memory import Memory
from tilepipe.kernels.attention.sm90_scales import Scales
from tilepipe.kernels.attention.sm90_scores import Scoring
from tilepipe.kernels.attention.sm90_seen import SeenKeys
from tilepipe.kernels.attention.sm90_store import store
from tilepipe.kernels.attention.sm90_sums import Sums
from tilepipe.kernels.attention.sm90_tiles import QueryTile, QueryTiles, grid
from tilepipe.kernels.common.online_softmax import OnlineSoftmax


@tp.kernel(grid=grid)
def attention(
    ctx: tp.Context,
    q: tp.GlobalTensor,
    k: tp.GlobalTensor,
    v: tp.GlobalTensor,
    out: tp.GlobalTensor,
    lse: tp.GlobalTensor | None,
    slopes: tp.GlobalTensor | None,
    sinks: tp.GlobalTensor | None,
    q_bounds: tp.GlobalTensor | None,
    k_bounds: tp.GlobalTensor | None,
    key_lists: tp.GlobalTensor | None,
    counter: tp.GlobalTensor | None,
    q_scales: tp.GlobalTensor | None,
    k_scales: tp.GlobalTensor | None,
    v_scales: tp.GlobalTensor | None,
    out_scale: tp.Value | None,
    inner: tp.Value,
    cap: tp.Value,
    scale: tp.Value,
    steps: tp.Value,
    left: tp.Value,
    right: tp.Value,
    *,
    cfg: AttentionConfig,
    d: int,
    d_v: int,
    sides: tuple[bool, bool],
    from_first: bool,
    changes: ScoreChanges,
) -> None:
    """q (batch, heads, s_q, d); k (batch, kv_heads, s_kv, d); v (batch, kv_heads, d_v, s_kv); out
    (batch, heads, s_q, d_v); lse (batch, heads, s_q); slopes, sinks (heads,); inner, cap, scale:
    `ScoreChanges.factors`. Packed, with bounds of sequences: the same without the batch; see
    `packed`. Under a block mask, which tiles of keys are walked: `key_lists`.
    """
    memory = Memory.allocate(ctx, cfg, cfg.tiles(q.dtype, d, d_v), out.dtype)
    seen = SeenKeys(ctx, cfg.bm, cfg.bn, *sides, from_first, left, right)
    sequences = Sequences.of(ctx, (q_bounds, k_bounds), q, k, steps, cfg)
    tiles = QueryTiles.schedule(ctx, cfg, q, k, seen, sequences, counter, key_lists)
    in_turns = cfg.order == "turns" and cfg.consumers > 1
    turns = tp.OrderedBarrier(ctx, cfg.consumers) if in_turns else None
    scoring = Scoring(ctx, changes, seen, slopes, cap)
    of_heads = (q_scales, k_scales, v_scales)
    scales = Scales(ctx, inner, scale, out_scale, *of_heads, tiles.heads, changes.any)
    load_registers, attend_registers = cfg.registers
    if tiles.work.needs_role:
        ctx.role("schedule", warps=1, registers=load_registers)(tiles.work.schedule)
    ctx.role("load", warps=1, registers=load_registers)(partial(load, memory, tiles, q, k, v))
    ctx.role("attend", warpgroups=cfg.consumers, registers=attend_registers)(
        partial(attend, memory, tiles, turns, scoring, scales, sinks, out, lse)
    )


def load(
    memory: Memory,
    tiles: QueryTiles,
    q: tp.GlobalTensor,
    k: tp.GlobalTensor,
    v: tp.GlobalTensor,
) -> None:
    """The load role: K of a tile of keys and then V, as the products need them. The queries come
    after the first K.
    """
    ctx, cfg = tiles.ctx, tiles.cfg
    k_ring, v_ring = memory.producers()
    group = tiles.heads // k.shape[-3]
    for tile in tiles.work:
        tiles.work.throttle_signal()
        at = tiles.of(tile)
        kv_head = ctx.let(at.head // group, "kv_head")
        for i in ctx.range(at.blocks):
            key = at.key_tile(i) * cfg.bn
            for part in range(cfg.qk_stages):
                k_ring.acquire_k(qk_stage=part)
                with ctx.elect_one():
                    to = k_ring.get_k(qk_stage=part, e=1)
                    depth = part * memory.shape.BK0
                    ctx.tma_load(k, (*at.of_key(kv_head, key), depth), to.smem, to.mbar)
            k_ring.commit_step()
            # After the first keys: their slots are free before the queries of the tile before
            # have been read. After the last queries of a packed sequence come those of the next.
            with ctx.when(i == 0), memory.queries.produce() as stage, ctx.elect_one():
                q_tile = memory.q_tile(stage)
                stage.mbar().expect_bytes(q_tile.nbytes)
                ctx.tma_load(q, (*at.of_query(at.first), 0), q_tile, stage.mbar())
            v_ring.acquire_v()
            with ctx.elect_one():
                to = v_ring.get_v(e=1)
                *outer, row = at.of_key(kv_head, key)
                # Zeros after the last key of a packed sequence: 0, the weight there, times the NaN
                # of another sequence would be NaN.
                lines = at.keys_from(key)
                ctx.tma_load(v, (*outer, 0, row), to.smem, to.mbar, lines=lines)
            v_ring.commit_step()
    memory.queries.drain_producer()
    k_ring.drain()
    v_ring.drain()


def attend(
    memory: Memory,
    tiles: QueryTiles,
    turns: tp.OrderedBarrier | None,
    scoring: Scoring,
    scales: Scales,
    sinks: tp.GlobalTensor | None,
    out: tp.GlobalTensor,
    lse: tp.GlobalTensor | None,
) -> None:
    """The role that multiplies, takes the softmax and stores. Scores never leave the registers of
    the warpgroup: wgmma takes P as operand A from there. The MMAs of V lag by one tile of keys, so
    that they run while the softmax of the next is computed; the first and the last tile are outside
    of the loop.
    """
    ctx, cfg, shape, rank = tiles.ctx, tiles.cfg, memory.shape, tiles.ctx.warpgroup_rank
    k_ring, v_ring = memory.consumers()
    scores = ctx.accumulator((ROWS, cfg.bn))
    scales = scales.started()
    octaves = OCTAVES if shape.qkv_dtype.nbytes == 1 else 0
    softmax = OnlineSoftmax(ctx, scores, scales.scores, octaves)
    sums = Sums(ctx, cfg, shape, softmax.factor)

    def multiply_keys(mine: tp.SmemTile) -> None:
        for part, depth in enumerate(memory.depths()):
            k_ring.wait_k(qk_stage=part)
            if part == 0 and turns is not None:
                turns.wait(rank)
            ctx.mma(
                scores,
                mine.cols(part * shape.BK0, depth),
                k_ring.get(qk_stage=part).cols(0, depth),
                accumulate=part > 0,
            )
            k_ring.release_k(qk_stage=part)

    def multiply_values() -> None:
        # The sums are rescaled here, beside the MMAs of the keys issued before: issuing those of
        # the values, whose weights are in registers, takes until they begin.
        sums.rescale()
        v_ring.wait_v()
        sums.add(v_ring.get())
        v_ring.release_v()

    def pass_on() -> None:
        if turns is not None:
            turns.pass_on(rank)

    def steps(
        at: QueryTile,
        mine: tp.SmemTile,
        start: tp.Scalar,
        stop: tp.Scalar,
        *,
        on_left: bool = False,
        on_right: bool = False,
    ) -> None:
        """Scores of tiles [start, stop), of which the named sides of the mask cut some, and the
        products with V of the tiles before them.
        """
        for i in ctx.range(start, stop):
            key = at.key_tile(i) * cfg.bn  # read early, where it is read from memory
            multiply_keys(mine)
            multiply_values()
            pass_on()
            ctx.wgmma_wait(1)  # the scores
            scoring.change(scores, scales.inner, at, key)
            if on_left or on_right:
                scoring.mask(softmax, at, key, on_left=on_left, on_right=on_right)
            softmax.update()
            ctx.wgmma_wait(0)  # the weights are free, and the sums there
            sums.take(scores)

    on_left, on_right = tiles.seen.on_left, tiles.seen.on_right
    for tile in tiles.work:
        at = tiles.of(tile)
        scales.take(at)
        softmax.reset()
        sums.reset()
        with ctx.when(at.blocks > 0):
            ready = memory.queries.acquire_consumer()
            mine = memory.q_tile(ready).rows(rank * ROWS, ROWS)
            multiply_keys(mine)
            pass_on()
            ctx.wgmma_wait(0)
            key = at.key_tile(0) * cfg.bn
            scoring.change(scores, scales.inner, at, key)
            scoring.mask(softmax, at, key, on_left=on_left, on_right=on_right)
            softmax.update()
            sums.take(scores)
            # Tiles between the edges are seen by every query.
            clear = tiles.first_clear(at)
            if on_right:
                steps(at, mine, 1, clear, on_left=on_left, on_right=True)
            last = tiles.first_on_left(at, clear)
            steps(at, mine, clear, last)
            if on_left:
                steps(at, mine, last, at.blocks, on_left=True)
            ready.release()
            multiply_values()
            ctx.wgmma_wait(0)
        row = at.first + rank * ROWS
        sink = None if sinks is None else ctx.let(ctx.load(sinks[at.head]), "sink")
        inverse, logarithm = softmax.result(sink)
        where, count = at.of_query(row), at.rows_from(row)
        value = sums.result() * scales.of_output(inverse, at)
        store(ctx, out, (*where, 0), value, count, memory.o_tile)
        if lse is not None:
            ctx.store_global(lse, where, logarithm, rows=count)
    if memory.o_tile is not None:
        with ctx.elect_one("warpgroup"):
            ctx.tma_store_wait(0)
