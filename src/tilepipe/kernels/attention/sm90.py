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

from dataclasses import replace
from functools import partial
from typing import Any

import tilepipe as tp
from tilepipe.host_arguments import shown
from tilepipe.kernels.attention.config import ROWS, AttentionConfig
from tilepipe.kernels.attention.heuristics import choose_sm90
from tilepipe.kernels.attention.packed import check_bounds, search_steps
from tilepipe.kernels.attention.scores import (
    ScoreFunction,
    Terms,
    Window,
    check_of_heads,
    check_softcap,
)
from tilepipe.kernels.attention.sm90_copies import (
    load_keys,
    load_queries,
    load_values,
    store,
)
from tilepipe.kernels.attention.sm90_rows import Rows
from tilepipe.kernels.attention.sm90_shared import Place, Shared, grid
from tilepipe.kernels.attention.validation import NAME, boxed, check_attention, check_counter
from tilepipe.kernels.common.online_softmax import OnlineSoftmax
from tilepipe.kernels.common.validation import Array, check_config


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
    counter: tp.GlobalTensor | None,
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
    terms: Terms,
) -> None:
    """q (batch, heads, s_q, d); k (batch, kv_heads, s_kv, d); v (batch, kv_heads, d_v, s_kv); out
    (batch, heads, s_q, d_v); lse (batch, heads, s_q); slopes, sinks (heads,); inner, cap, scale:
    `Terms.factors`. Packed, with bounds of sequences: the same without the batch; see `packed`.
    """
    bounds = None if q_bounds is None or k_bounds is None else (q_bounds, k_bounds)
    shared = Shared.allocate(
        ctx,
        q,
        k,
        v,
        bounds,
        counter,
        steps,
        left,
        right,
        cfg=cfg,
        d=d,
        d_v=d_v,
        sides=sides,
        from_first=from_first,
    )
    load_registers, attend_registers = cfg.registers
    if shared.work.needs_role:
        ctx.role("schedule", warps=1, registers=load_registers)(shared.work.schedule)
    ctx.role("load", warps=1, registers=load_registers)(partial(load, shared, q, k, v))
    ctx.role("attend", warpgroups=cfg.consumers, registers=attend_registers)(
        partial(attend, shared, Rows(terms, slopes, sinks, inner, cap, scale), out, lse)
    )


def load(shared: Shared, q: tp.GlobalTensor, k: tp.GlobalTensor, v: tp.GlobalTensor) -> None:
    """The load role: K of a tile of keys and then V, as the products need them. The queries come
    after the first K.
    """
    ctx, cfg = shared.ctx, shared.cfg
    k_ring, v_ring = (
        tp.KProducerPipeline(shared.keys, shared.k_tiles, shared.shape),
        tp.VProducerPipeline(shared.values, shared.v_tiles, shared.shape),
    )
    group = shared.heads // k.shape[-3]
    for tile in shared.work:
        shared.work.throttle_signal()
        at = shared.place(tile)
        kv_head = ctx.let(at.head // group, "kv_head")
        for i in ctx.range(at.blocks):
            key = (at.end - 1 - i) * cfg.bn
            for part in range(cfg.qk_stages):
                k_ring.acquire_k(qk_stage=part)
                with ctx.elect_one():
                    there = k_ring.get_k(qk_stage=part, e=1)
                    load_keys(shared, k, at, kv_head, key, part, there)
            k_ring.commit_step()
            # After the first keys: their slots are free before the queries of the tile before
            # have been read.
            with ctx.when(i == 0), shared.queries.produce() as stage, ctx.elect_one():
                stage.mbar().expect_bytes(shared.q_tile.nbytes)
                load_queries(shared, q, at, stage.mbar())
            v_ring.acquire_v()
            with ctx.elect_one():
                there = v_ring.get_v(e=1)
                load_values(shared, v, at, kv_head, key, there)
            v_ring.commit_step()
    shared.queries.drain_producer()
    k_ring.drain()
    v_ring.drain()


def attend(
    shared: Shared,
    rows: Rows,
    out: tp.GlobalTensor,
    lse: tp.GlobalTensor | None,
) -> None:
    """The role that multiplies, takes the softmax and stores. Scores never leave the registers of
    the warpgroup: wgmma takes P as operand A from there. The MMAs of V lag by one tile of keys, so
    that they run while the softmax of the next is computed; the first and the last tile are outside
    of the loop.
    """
    ctx, cfg, depth = shared.ctx, shared.cfg, shared.shape.BK0
    k_ring, v_ring = (
        tp.KConsumerPipeline(shared.keys, shared.k_tiles, shared.shape),
        tp.VConsumerPipeline(shared.values, shared.v_tiles, shared.shape),
    )
    scores = ctx.accumulator((ROWS, cfg.bn))
    weights = ctx.fragment(shape=(ROWS, cfg.bn), dtype=shared.q_tile.dtype)
    sums = ctx.accumulator((ROWS, shared.shape.ov_depth))
    softmax = OnlineSoftmax(ctx, scores, rows.scale)
    mine = shared.q_tile.rows(ctx.warpgroup_rank * ROWS, ROWS)
    # Of a head padded to whole spans of the swizzle only the part that has elements is multiplied.
    steps_of_k = -(-shared.shape.depth // shared.shape.MMA_K) * shared.shape.MMA_K
    depths = [min(depth, steps_of_k - part * depth) for part in range(cfg.qk_stages)]

    def multiply_keys() -> None:
        for part in range(cfg.qk_stages):
            k_ring.wait_k(qk_stage=part)
            if part == 0 and shared.turns is not None:
                shared.turns.wait(ctx.warpgroup_rank)
            ctx.mma(
                scores,
                mine.cols(part * depth, depths[part]),
                k_ring.get(qk_stage=part).cols(0, depths[part]),
                accumulate=part > 0,
            )
            k_ring.release_k(qk_stage=part)

    def multiply_values() -> None:
        # The sums are rescaled here, beside the MMAs of the keys issued before: issuing those of
        # the values, whose weights are in registers, takes until they begin.
        sums.set(sums * softmax.factor)
        v_ring.wait_v()
        ctx.mma(sums, weights, v_ring.get().rows(0, shared.shape.ov_depth))
        v_ring.release_v()

    def pass_on() -> None:
        if shared.turns is not None:
            shared.turns.pass_on(ctx.warpgroup_rank)

    def query(start: tp.Value) -> Any:
        """(64, 1): `start` and the numbers after it, one for each query of this warpgroup."""
        return start + ctx.warpgroup_rank * ROWS + ctx.row_index(ROWS)

    def change(at: Place, block: tp.Value) -> None:
        """Applies what the call asks for to the scores of a tile of keys."""
        if rows.terms.any:
            key: Any = block * cfg.bn + ctx.col_index(cfg.bn)
            scores.set(rows.changed(ctx, scores, at, query, key))

    def mask(at: Place, block: tp.Value, *, on_left: bool, on_right: bool) -> None:
        """Leaves out the keys of a tile that a query does not see, and those after the last."""
        key: Any = block * cfg.bn + ctx.col_index(cfg.bn)
        if on_right:
            softmax.mask(key < (query(at.place) + (1 + shared.right)).minimum(at.keys))
        else:
            softmax.mask(key < at.keys)
        if on_left:
            softmax.mask(key >= query(at.place) - shared.left)

    on_left, on_right = shared.sides

    def steps(at: Place, start: tp.Scalar, stop: tp.Scalar, *cut: str) -> None:
        """Scores of tiles [start, stop), and the products with V of the tiles before them."""
        for i in ctx.range(start, stop):
            multiply_keys()
            multiply_values()
            pass_on()
            ctx.wgmma_wait(1)  # the scores
            change(at, at.end - 1 - i)
            if cut:
                mask(at, at.end - 1 - i, on_left="left" in cut, on_right="right" in cut)
            softmax.update()
            ctx.wgmma_wait(0)  # the weights are free, and the sums there
            weights.set(scores)

    for tile in shared.work:
        at = shared.place(tile)
        softmax.reset()
        sums.fill(0)
        with ctx.when(at.blocks > 0):
            ready = shared.queries.acquire_consumer()
            multiply_keys()
            pass_on()
            ctx.wgmma_wait(0)
            change(at, at.end - 1)
            mask(at, at.end - 1, on_left=on_left, on_right=on_right)
            softmax.update()
            weights.set(scores)
            # Tiles between the edges are seen by every query.
            clear: tp.Scalar = 1
            if on_right:
                whole = ctx.max(at.place + (1 + shared.right), 0) // cfg.bn
                clear = ctx.let(ctx.min(at.blocks, ctx.max(at.end - whole, 1)), "clear")
                steps(at, 1, clear, "right", *(("left",) if on_left else ()))
            last = at.blocks
            if on_left:
                cut = ctx.ceil_div(ctx.max(at.place + (cfg.bm - 1) - shared.left, 0), cfg.bn)
                last = ctx.let(ctx.max(ctx.min(at.blocks, at.end - cut), clear), "last")
            steps(at, clear, last)
            if on_left:
                steps(at, last, at.blocks, "left")
            ready.release()
            multiply_values()
            ctx.wgmma_wait(0)
        row = at.first + ctx.warpgroup_rank * ROWS
        sink = None if rows.sinks is None else ctx.let(ctx.load(rows.sinks[at.head]), "sink")
        inverse, logarithm = softmax.result(sink)
        store(shared, out, at, row, sums * inverse)
        if lse is not None:
            ctx.store_global(lse, at.of_query(row), logarithm, rows=at.rows_from(row))
    if shared.o_tile is not None:
        with ctx.elect_one("warpgroup"):
            ctx.tma_store_wait(0)


def bind(
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array | None = None,
    cfg: AttentionConfig | None = None,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    slopes: Array | None = None,
    sinks: Array | None = None,
    score: ScoreFunction | None = None,
    align: str = "last",
    cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None,
    longest: int | None = None,
    counter: Array | None = None,
    chip: tp.Chip | None = None,
) -> tp.Program:
    """The program for q (batch, s_q, heads, d), k (batch, s_kv, kv_heads, d), v (batch, s_kv,
    kv_heads, d_v), out (batch, s_q, heads, d_v), lse (batch, heads, s_q) float32; or for sequences
    of different lengths that lie one after the other, q (total_q, heads, d), k (total_k, kv_heads,
    d), v (total_k, kv_heads, d_v), out (total_q, heads, d_v), lse (heads, total_q).

    Args:
        lse: natural logarithm of Σ exp(score) of each row; -inf, and `out` 0, where a row sees no
            key.
        cfg: chosen for d and the mask unless given.
        causal: query i sees keys j <= i + s_kv - s_q.
        window: (left, right): of the keys around i + s_kv - s_q, query i sees so many before and
            after; None or -1: all. `causal` is a right side of 0.
        scale: of the scores, positive; 1/sqrt(d) unless given.
        softcap: scores x become softcap · tanh(x / softcap); 0: they do not.
        slopes: float32 (heads,): scores lose the slope of their head times |j - i - s_kv + s_q|
            (ALiBi).
        sinks: float32 (heads,): the score of one more key for every query of a head, whose value is
            0.
        score: called while the kernel is traced, as score(ctx, x, query, key, head), with scaled
            scores x (rows, keys) after `softcap` and `slopes`; gives the scores that the softmax
            takes. A new function is a new kernel.
        align: "last", as above; "first": query i stands at the key i, and not at i + s_kv - s_q.
        cu_seqlens_q, cu_seqlens_k: int32 (sequences + 1,): sequence i has the queries
            cu_seqlens_q[i] to cu_seqlens_q[i + 1] - 1, and so for keys; s_q and s_kv above are its
            lengths. The kernel reads them; the host only those that are NumPy arrays, to check
            them. Rows of `out` and `lse` that are in no sequence are not written.
        longest: of these, the most keys that a sequence has, if known: for choosing `cfg`.
        counter: int32 (1,), a 0 from which the "dynamic" schedule draws tiles, of this kernel alone
            while it runs, which leaves it at 0. Without one, another schedule is chosen; where
            `cfg` says "dynamic", NumPy arrays get a new one.
        chip: whose limits, and as many SMs, hold; that of the arrays unless given, as for
            `KernelFunction.bind`.

    Raises:
        BindError: shapes or dtypes that do not fit together, an array that TMA cannot take, a
            configuration that does not fit.
    """
    if cfg is not None:
        check_config(NAME, cfg, AttentionConfig, "an AttentionConfig")
    if out is None:
        raise tp.BindError(
            "attention: out is the array that the kernel writes, of q's shape and dtype; got None"
        )
    bounds = check_bounds(cu_seqlens_q, cu_seqlens_k, q, k)
    found = check_attention(q, k, v, out, lse, scale=scale, sequences=bounds)
    seen, cap = Window.of(causal, window, align), check_softcap(softcap)
    check_of_heads("slopes", slopes, found.heads)
    check_of_heads("sinks", sinks, found.heads)
    if score is not None and not callable(score):
        raise tp.BindError(
            f"{NAME}: score is a function of (ctx, scores, query, key, head); got {shown(score)}"
        )
    terms = Terms(cap > 0, slopes is not None, score)
    if cfg is None:
        cfg = choose_sm90(found, seen.sides, longest, changed=terms.any)
        if cfg.schedule == "dynamic" and counter is None:
            cfg = replace(cfg, schedule="single")
    shape = cfg.tiles(found.dtype, found.d, found.d_v)
    counter = check_counter(counter, cfg.schedule == "dynamic", q)
    return attention.bind(
        boxed("q", q, (cfg.bm, shape.padded_qk_depth)),
        boxed("k", k, (cfg.bn, shape.BK0)),
        boxed("v", v, (shape.padded_ov_depth, cfg.bn), turned=True, ragged=bounds > 0),
        boxed("out", out, (ROWS, shape.padded_ov_depth), ragged=bounds > 0),
        lse,
        slopes,
        sinks,
        cu_seqlens_q,
        cu_seqlens_k,
        counter,
        *terms.factors(found.scale, cap),
        search_steps(bounds),
        *seen.bounds,
        chip=chip,
        cfg=cfg,
        d=found.d,
        d_v=found.d_v,
        sides=seen.sides,
        from_first=seen.from_first,
        terms=terms,
    )
