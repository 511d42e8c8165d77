"""Attention for Hopper, forward: out = softmax(scale · Q · Kᵀ) · V for each head, and the logarithm
of what each row is divided by.

One TMA warp feeds 1 to 3 warpgroups. Each has 64 queries, whose scores stay in registers: S = Q ·
Kᵀ of one tile of keys and O += P · V of the tile before are in flight together, and the softmax of
S runs beside O's. Keys are walked from the last to the first, so that tiles with a mask come first.
K and V go through the rings of `TMAProducerPipeline`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tilepipe as tp
from tilepipe.kernels.attention.config import ROWS
from tilepipe.kernels.attention.config import AttentionConfig as AttentionConfig
from tilepipe.kernels.attention.heuristics import choose_sm90 as choose
from tilepipe.kernels.attention.validation import NAME, boxed, check_attention
from tilepipe.kernels.common.online_softmax import OnlineSoftmax


def attention_grid(q: tp.TensorMap, cfg: AttentionConfig, chip: tp.Chip) -> int:
    """A CTA for each tile of queries, or as many as the chip has SMs."""
    batch, heads, s_q, _ = q.shape
    tiles = batch * heads * -(-s_q // cfg.bm)
    return int(tiles if cfg.schedule == "single" else min(tiles, chip.sms))


@tp.kernel(grid=attention_grid)
def attention(
    ctx: tp.Context,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    scale: Any,
    *,
    cfg: AttentionConfig,
    causal: bool,
) -> None:
    """q, out (batch, heads, s_q, d); k (batch, kv_heads, s_kv, d); v (batch, kv_heads, d, s_kv);
    `scale` times log2(e).
    """
    shape = cfg.tiles(q.dtype, q.box[-1])
    heads, s_q, s_kv = q.shape[1], q.shape[2], k.shape[2]
    depth = shape.BK0
    queries = tp.ProducerConsumerPipeline.allocate(ctx, 1, name="queries")
    q_tile = tp.SMemTileArray2D(ctx, q.dtype, cfg.bm, shape.depth, 1, name="q_tile")[0]
    o_tile = None
    if cfg.store == "tile":
        o_tile = tp.SMemTileArray2D(ctx, q.dtype, cfg.bm, shape.depth, 1, name="o_tile")[0]
    keys = tp.StagedPipeline.allocate(ctx, cfg.stages, cfg.qk_stages, name="keys")
    k_tiles = tp.tile_layout_k_major(k.dtype, cfg.bn, depth).allocate(
        ctx, cfg.stages * cfg.qk_stages, "k_tiles"
    )
    values = tp.StagedPipeline.allocate(ctx, cfg.stages, name="values")
    v_tiles = tp.tile_layout_mn_major(v.dtype, shape.depth, cfg.bn).allocate(
        ctx, cfg.stages, "v_tiles"
    )
    q_blocks = ctx.ceil_div(s_q, cfg.bm)
    work = tp.StaticScheduler(
        ctx, tiles=(q.shape[0] * heads, q_blocks), raster="grouped", group=cfg.group
    )
    turns = (
        tp.OrderedBarrier(ctx, cfg.consumers)
        if cfg.order == "turns" and cfg.consumers > 1
        else None
    )

    def place(tile: Any) -> Place:
        """The last tiles of queries first: under a causal mask they see the most keys."""
        first = ctx.let((q_blocks - 1 - tile.n) * cfg.bm, "first")
        blocks = ctx.ceil_div(s_kv, cfg.bn)
        if causal:
            seen = ctx.max(first + cfg.bm + s_kv - s_q, 0)
            blocks = ctx.min(blocks, ctx.ceil_div(seen, cfg.bn))
        return Place(
            ctx.let(tile.m // heads, "batch"),
            ctx.let(tile.m % heads, "head"),
            first,
            ctx.let(blocks, "blocks"),
        )

    @ctx.role("load", warps=1, registers=cfg.registers[0])
    def load() -> None:
        k_ring, v_ring = (
            tp.KProducerPipeline(keys, k_tiles, shape),
            tp.VProducerPipeline(values, v_tiles, shape),
        )
        group = heads // k.shape[1]
        for tile in work:
            at = place(tile)
            kv_head = ctx.let(at.head // group, "kv_head")
            for i in ctx.range(at.blocks):
                key = (at.blocks - 1 - i) * cfg.bn
                for part in range(cfg.qk_stages):
                    k_ring.acquire_k(qk_stage=part)
                    with ctx.elect_one():
                        there = k_ring.get_k(qk_stage=part, e=1)
                        ctx.tma_load(
                            k, (at.batch, kv_head, key, part * depth), there.smem, there.mbar
                        )
                k_ring.commit_step()
                # Behind the first keys: their slots are free before the queries of the tile before
                # have been read.
                with ctx.when(i == 0), queries.produce() as stage, ctx.elect_one():
                    stage.mbar().expect_bytes(q_tile.nbytes)
                    ctx.tma_load(q, (at.batch, at.head, at.first, 0), q_tile, stage.mbar())
                v_ring.acquire_v()
                with ctx.elect_one():
                    there = v_ring.get_v(e=1)
                    ctx.tma_load(v, (at.batch, kv_head, 0, key), there.smem, there.mbar)
                v_ring.commit_step()
        queries.drain_producer()
        k_ring.drain()
        v_ring.drain()

    @ctx.role("attend", warpgroups=cfg.consumers, registers=cfg.registers[1])
    def attend() -> None:
        k_ring, v_ring = (
            tp.KConsumerPipeline(keys, k_tiles, shape),
            tp.VConsumerPipeline(values, v_tiles, shape),
        )
        scores = ctx.accumulator((ROWS, cfg.bn))
        weights = ctx.fragment(shape=(ROWS, cfg.bn), dtype=q.dtype)
        sums = ctx.accumulator((ROWS, shape.depth))
        softmax = OnlineSoftmax(ctx, scores, scale)
        mine = q_tile.rows(ctx.warpgroup_rank * ROWS, ROWS)

        def multiply_keys() -> None:
            for part in range(cfg.qk_stages):
                k_ring.wait_k(qk_stage=part)
                if part == 0 and turns is not None:
                    turns.wait(ctx.warpgroup_rank)
                ctx.mma(
                    scores,
                    mine.cols(part * depth, depth),
                    k_ring.get(qk_stage=part),
                    accumulate=part > 0,
                )
                k_ring.release_k(qk_stage=part)

        def multiply_values() -> None:
            v_ring.wait_v()
            ctx.mma(sums, weights, v_ring.get())
            v_ring.release_v()

        def pass_on() -> None:
            if turns is not None:
                turns.pass_on(ctx.warpgroup_rank)

        def store(at: Place, row: Any, value: Any) -> None:
            where = (at.batch, at.head, row, 0)
            if o_tile is None:
                ctx.store_global(out, where, value)
                return
            rows = o_tile.rows(ctx.warpgroup_rank * ROWS, ROWS)
            with ctx.elect_one("warpgroup"):
                ctx.tma_store_wait(0, read=True)
            ctx.sync_warpgroup()
            ctx.store(rows, value)
            ctx.fence_proxy_async()
            ctx.sync_warpgroup()
            with ctx.elect_one("warpgroup"):
                ctx.tma_store(out, where, rows)
                ctx.tma_store_commit()

        def mask(at: Place, block: Any) -> None:
            """Of the keys of a tile: behind the last, and, causal, those that a query does not
            see.
            """
            last: Any = s_kv
            if causal:
                row = at.first + ctx.warpgroup_rank * ROWS + ctx.row_index(ROWS)
                last = (row + (1 + s_kv - s_q)).minimum(s_kv)
            softmax.mask(block * cfg.bn + ctx.col_index(cfg.bn) < last)

        def steps(at: Place, start: Any, stop: Any, masked: bool) -> None:
            """Scores of tiles [start, stop), and the products with V of the tiles before them."""
            for i in ctx.range(start, stop):
                multiply_keys()
                multiply_values()
                pass_on()
                ctx.wgmma_wait(1)  # the scores
                if masked:
                    mask(at, at.blocks - 1 - i)
                factor = softmax.update()
                ctx.wgmma_wait(0)  # the weights are free, and the sums there
                weights.set(scores)
                sums.set(sums * factor)

        for tile in work:
            at = place(tile)
            softmax.reset()
            sums.fill(0)
            with ctx.when(at.blocks > 0):
                ready = queries.acquire_consumer()
                multiply_keys()
                pass_on()
                ctx.wgmma_wait(0)
                mask(at, at.blocks - 1)
                softmax.update()
                weights.set(scores)
                # Of a causal mask, only tiles that reach beyond the first query's last key need it.
                clear = ctx.let(
                    ctx.min(at.blocks, 1 + (cfg.bm + cfg.bn - 2) // cfg.bn if causal else 1),
                    "clear",
                )
                if causal:
                    steps(at, 1, clear, masked=True)
                steps(at, clear, at.blocks, masked=False)
                ready.release()
                multiply_values()
                ctx.wgmma_wait(0)
            row = at.first + ctx.warpgroup_rank * ROWS
            inverse, logarithm = softmax.finish()
            store(at, row, sums * inverse)
            if lse is not None:
                ctx.store_global(lse, (at.batch, at.head, row), logarithm)
        if o_tile is not None:
            with ctx.elect_one("warpgroup"):
                ctx.tma_store_wait(0)


@dataclass(frozen=True, eq=False)
class Place:
    """A tile of queries: its batch, head and first query, and how many tiles of keys it sees."""

    batch: Any
    head: Any
    first: Any
    blocks: Any


def bind(
    q: Any, k: Any, v: Any, out: Any, lse: Any = None, cfg: AttentionConfig | None = None, *, causal: bool = False,
    scale: float | None = None, chip: tp.Chip | None = None,
) -> tp.Program:  # fmt: skip
    """The program for q (batch, s_q, heads, d), k and v (batch, s_kv, kv_heads, d), out like q, lse
    (batch, heads, s_q) float32.

    Args:
        lse: natural logarithm of Σ exp(scale · score) of each row; -inf, and `out` 0, where a row
            sees no key.
        cfg: chosen for d and the mask unless given.
        causal: query i sees keys j <= i + s_kv - s_q.
        scale: of the scores, positive; 1/sqrt(d) unless given.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, an array that TMA cannot take, a
            configuration that does not fit.
    """
    if cfg is not None and not isinstance(cfg, AttentionConfig):
        raise tp.BindError(f"{NAME}: cfg is an AttentionConfig, got {cfg!r}")
    if out is None:
        raise tp.BindError(
            "attention: out is the array that the kernel writes, of q's shape and dtype; got None"
        )
    found = check_attention(q, k, v, out, lse, scale=scale, causal=causal)
    causal = bool(causal)
    cfg = choose(found.d, causal, found.s_kv) if cfg is None else cfg
    shape = cfg.tiles(found.dtype, found.d)
    return attention.bind(
        boxed("q", q, (cfg.bm, found.d)), boxed("k", k, (cfg.bn, shape.BK0)), boxed("v", v, (found.d, cfg.bn), turned=True),
        boxed("out", out, (ROWS, found.d)), lse, found.scale * math.log2(math.e), chip=chip, cfg=cfg, causal=causal,
    )  # fmt: skip
