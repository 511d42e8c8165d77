"""Attention of a few query tokens over a cache of keys and values, for Hopper: out = softmax(scale
· Q · Kᵀ) · V, which takes as long as reading K and V does.

The query heads that share a head of K and V, of all tokens, are the columns of one wgmma, or its
rows where they are many, so that the cache is read once. One TMA warp brings tiles of K and V, a
warpgroup multiplies:

    load      K, V (n)     K, V (n + 1)            K, V (n + 2)   ...     one warp
    attend    S = K · Qᵀ, softmax, O += Vᵀ · P (n)  |  (n + 1)     ...    one warpgroup

All CTAs share the tiles of all sequences equally (`shares`): as many as are resident, or, where
there are several times as many sequences and heads, about one for each. Where an item lies in
several shares, each CTA writes its O, its largest score and its sum of exponentials to a place of
its own and draws a ticket; the one that draws the last brings them together, and puts the ticket
back (`combine`). Nobody waits, and every launch gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

import tilepipe as tp
from tilepipe.kernels.attention_decode.attend import Attention, Operands
from tilepipe.kernels.attention_decode.cache import Cache
from tilepipe.kernels.attention_decode.column_results import ColumnResults
from tilepipe.kernels.attention_decode.columns import ColumnAttention, NarrowColumns, WideColumns
from tilepipe.kernels.attention_decode.combine import Results
from tilepipe.kernels.attention_decode.config import ROWS, DecodeConfig, Form, columns
from tilepipe.kernels.attention_decode.fits import check_fits
from tilepipe.kernels.attention_decode.heuristics import choose_sm90
from tilepipe.kernels.attention_decode.narrow import NarrowAttention, NarrowOperands, Scaled
from tilepipe.kernels.attention_decode.pairs import HALF
from tilepipe.kernels.attention_decode.seen import Seen
from tilepipe.kernels.attention_decode.shares import Sequences
from tilepipe.kernels.attention_decode.validation import (
    NAME,
    Extents,
    check_decode,
    of_cache,
    of_descale,
    of_lse,
    of_output,
    of_queries,
)
from tilepipe.kernels.common.validation import Array, check_config, mapped, unboxed


def grid(q: tp.TensorMap, parts: tp.TensorMap, tickets: tp.TensorMap) -> int:
    """A CTA for each two places of sums.

    Raises:
        BindError: there are fewer tickets than sequences and heads, or, in an export, than some of
            its launches may have.
    """
    if q.shape[0] * q.shape[2] > tickets.shape[0]:
        raise tp.BindError(
            f"{NAME}: tickets has shape ({tickets.shape[0]},), and is drawn from for each sequence"
            f" and head of the cache: batch {q.shape[0]} times kv_heads {q.shape[2]}. In an export"
            " where the batch is free, tickets follows it, and there is one head of the cache:"
            ' extents={"tickets": ("batch",), ...}; otherwise leave the batch fixed'
        )
    return parts.shape[0] // 2


@tp.kernel(grid=grid, ctas_per_sm=lambda cfg: cfg.ctas)
def attention_decode(
    ctx: tp.Context,
    q: tp.GlobalTensor,
    k: tp.GlobalTensor,
    v: tp.GlobalTensor,
    out: tp.GlobalTensor,
    lse: tp.GlobalTensor | None,
    lengths: tp.GlobalTensor | None,
    table: tp.GlobalTensor | None,
    parts: tp.GlobalTensor,
    part_stats: tp.GlobalTensor,
    tickets: tp.GlobalTensor,
    k_scale: tp.GlobalTensor | None,
    v_scale: tp.GlobalTensor | None,
    scale: tp.Value,
    v_factor: tp.Value,
    left: tp.Value,
    *,
    cfg: DecodeConfig,
    group: int,
    tokens: int,
    d: int,
    page: int,
    causal: bool,
    windowed: bool,
    narrow: tp.DType | None,
) -> None:
    """q, out (batch, tokens, kv_heads, group, d); k (batch, kv_heads, s, d); v (batch, kv_heads, d,
    s), with a table (pages, ..., page, ...) of both; lse (batch, kv_heads, tokens, group); lengths
    (batch,); table (batch, pages of a sequence); the others as of `Results`. scale: log2(e)
    included. left: of a window, if `windowed`.

    narrow: the dtype of q and out, where the cache is of 8 bits. Then these two have words of two
    elements, k and v pairs; k_scale, v_scale are (batch, kv_heads), and v_factor a number for all
    values.

    Where queries are columns (`Form`) the last two dimensions of out come the other way round; with
    a narrow cache those of v do only there.
    """
    form = Form.of(group * tokens, d, narrow is not None, cfg)
    width = form.width
    line = width if narrow is None else width // 2
    turned = narrow is None or form.columns
    payload = tp.StandardTilePayload(
        a_type=k.dtype,
        b_type=v.dtype,
        a_shape=(cfg.bn, line),
        b_shape=(line, cfg.bn) if turned else (cfg.bn, line),
        b_order="col" if turned else "row",
    )
    inputs = tp.InputTilePipeline.allocate(ctx, payload, num_group_stages=cfg.stages)
    q_dtype = q.dtype if narrow is None else HALF
    q_tile = tp.SMemTileArray2D(ctx, q_dtype, ROWS, width, 1, name="q_tile")[0]
    drawn = ctx.smem((1, 4), tp.int32, swizzle=0, name="drawn")[0]
    capacity = k.shape[2] if table is None else ctx.let(table.shape[1] * page, "capacity")
    seen = Seen(ctx, tokens, causal, left if windowed else None)
    sequences = Sequences(ctx, lengths, capacity, q.shape[0], q.shape[2], cfg.bn, seen)
    stats = part_stats, scale if narrow is None else None
    held = cfg.held[form.columns]
    places = ctx, out, lse, parts, *stats, tickets, drawn, held, group, tokens, width, narrow
    results = ColumnResults(*places) if form.columns else Results(*places)
    load_registers, attend_registers = cfg.registers
    cache = Cache(ctx, k, v, table, page, cfg.bn, turned)
    ctx.role("load", warps=1, registers=load_registers)(partial(load, inputs, sequences, cache))
    given = ctx, inputs, sequences, results, q, q_tile, scale
    scales = k_scale, v_scale, v_factor
    attention: Callable[[], Attention | ColumnAttention]
    if isinstance(results, ColumnResults):
        shape = cfg.bn, results.columns
        weights = tp.SMemTileArray2D(ctx, q_dtype, *shape, 1, order="col", name="weights")[0]
        if narrow is None:
            attention = partial(WideColumns, Operands(*given), results, weights)
        else:
            attention = partial(NarrowColumns, Scaled(*given, narrow, *scales), results, weights)
    elif narrow is None:
        attention = partial(Attention, Operands(*given))
    else:
        k_tile, v_tile = (
            tp.SMemTileArray2D(ctx, HALF, cfg.bn, width, 1, name=name)[0]
            for name in ("k_tile", "v_tile")
        )
        widened = NarrowOperands(*given, narrow, *scales, k_tile, v_tile)
        attention = partial(NarrowAttention, widened)
    ctx.role("attend", warpgroups=1, registers=attend_registers)(lambda: attention().run())


def load(inputs: tp.InputTilePipeline, sequences: Sequences, cache: Cache) -> None:
    """The load role: one lane starts the copies of each tile of keys of the share."""
    ctx = sequences.ctx
    ctx.launch_dependents()  # once the last CTAs run
    with inputs.producer() as producer:
        for at in sequences.share().segments():
            for i in ctx.range(at.tiles):
                key = ctx.let((at.first + i) * sequences.bn, "key")
                boxes = cache.boxes(at, key)  # asks the table before the stage is free
                with producer.acquire() as stage, ctx.elect_one():
                    stage.expect_bytes(inputs.stage_bytes)
                    k_tile, v_tile = stage.tile()
                    cache.load(at, boxes, k_tile, v_tile, stage.barrier())
        producer.drain()


def bind(
    q: Array,
    k_cache: Array,
    v_cache: Array,
    out: Array,
    lse: Array | None = None,
    cfg: DecodeConfig | None = None,
    *,
    cache_seqlens: Array | None = None,
    block_table: Array | None = None,
    causal: bool = True,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    k_descale: Array | float | None = None,
    v_descale: Array | float | None = None,
    workspace: tuple[Array, Array, Array] | None = None,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The program for q, out (batch, tokens, heads, d), k_cache, v_cache (batch, s, kv_heads, d),
    lse (batch, heads, tokens) float32. Head h of q reads head h // (heads // kv_heads) of the
    cache, which has the dtype of q or float8_e4m3.

    Args:
        lse: natural logarithm of Σ exp(score) of each query; -inf, and `out` 0, where it sees no
            key.
        cfg: chosen for d unless given.
        cache_seqlens: int32 (batch,): how many keys each sequence has, with those of the query
            tokens; all of the cache unless given. The kernel reads them. What is below 0 counts as
            0, what is beyond the cache as all of it; what the cache holds after a sequence's keys,
            be it NaN, has no effect.
        block_table: int32 (batch, most): the cache has pages, (pages, page_size, kv_heads, d);
            block_table[b, i] is the one with the keys i · page_size to (i + 1) · page_size - 1 of
            sequence b. Numbers of pages that it does not need are not used.
        causal: query token i sees the keys j <= i + length - tokens; otherwise all.
        window: (left, right): it sees the keys j >= i + length - tokens - left only. None or -1 is
            no bound; right has none, or 0, which is `causal`.
        scale: of the scores, positive; 1/sqrt(d) unless given.
        k_descale, v_descale: float32 (batch, kv_heads), not negative, or a number, of a cache of
            float8_e4m3: what its keys and values are multiplied with; 1 unless given.
        workspace: (parts, part_stats, tickets), arrays of the shapes of `workspace_shapes`,
            float32, float32 and int32, the tickets 0; the kernel leaves them at 0. Launches that
            may run at the same time need one each. None: made here, for NumPy arrays.
        chip: whose limits, and as many SMs, hold.

    Raises:
        BindError: shapes or dtypes that do not fit together, an array that TMA cannot take, a
            configuration that does not fit, no workspace.
    """
    if cfg is not None:
        check_config(NAME, cfg, DecodeConfig, "a DecodeConfig")
    if out is None:
        raise tp.BindError(f"{NAME}: out is the array that the kernel writes; got None")
    found = check_decode(
        q,
        k_cache,
        v_cache,
        out,
        lse,
        cache_seqlens=cache_seqlens,
        block_table=block_table,
        causal=causal,
        window=window,
        scale=scale,
        k_descale=k_descale,
        v_descale=v_descale,
    )
    cfg = choose_sm90(found, chip or tp.H200) if cfg is None else cfg
    check_fits(cfg, found, chip or tp.H200)
    if workspace is None:
        if not isinstance(q, np.ndarray):
            raise tp.BindError(
                f"{NAME}: pass workspace=(parts, part_stats, tickets) where the arrays are on a"
                " GPU: of the shapes of workspace_shapes(found, cfg, chip), the tickets zeros"
            )
        sums, stats, counts = workspace_shapes(found, cfg, chip or tp.H200)
        workspace = (
            np.zeros(sums, np.float32),
            np.zeros(stats, np.float32),
            np.zeros(counts, np.int32),
        )
    parts, part_stats, tickets = workspace
    k_scales, k_factor = of_descale("k_descale", k_descale)
    v_scales, v_factor = of_descale("v_descale", v_descale)
    return attention_decode.bind(
        of_queries("q", q, found),
        of_cache("k_cache", k_cache, found, cfg),
        of_cache("v_cache", v_cache, found, cfg),
        of_output(out, found, cfg),
        None if lse is None else of_lse(lse, found),
        unboxed(NAME, "cache_seqlens", cache_seqlens),
        unboxed(NAME, "block_table", block_table),
        mapped(NAME, "parts", parts, (1, 1, 8), swizzle=0),
        mapped(NAME, "part_stats", part_stats, (1, 1, 8), swizzle=0),
        tickets,
        k_scales,
        v_scales,
        found.scale * math.log2(math.e) * k_factor,
        v_factor,
        found.window.bounds[0],
        chip=chip,
        cfg=cfg,
        group=found.group,
        tokens=found.tokens,
        d=found.d,
        page=found.page,
        causal=found.window.right == 0,
        windowed=found.window.left is not None,
        narrow=found.dtype if found.narrow else None,
    )


def workspace_shapes(
    found: Extents, cfg: DecodeConfig, chip: tp.Chip
) -> tuple[tuple[int, int, int], tuple[int, int, int], tuple[int]]:
    """The shapes of a workspace: two places for the sums and the statistics of each CTA, a ticket
    for each item.
    """
    items = found.batch * found.kv_heads
    ctas = min(items * -(-found.capacity // cfg.bn), cfg.ctas * cfg.waves * chip.sms)
    form = Form.of(found.rows, found.d, found.narrow, cfg)
    part = found.rows, found.d
    if form.columns:
        part = form.width, columns(found.rows)
    elif found.narrow:  # of which halves of a head are padded, each for itself
        part = found.rows, form.width
    # of whole vectors: `Results.part_stats`
    stats = 3 if found.narrow else 2, columns(found.rows)
    return (2 * ctas, *part), (2 * ctas, *stats), (items,)
