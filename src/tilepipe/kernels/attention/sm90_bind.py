"""`bind` of attention on Hopper: what it takes and asks of that, and the configuration that is
chosen where none is given.
"""

from __future__ import annotations

from dataclasses import replace

import tilepipe as tp
from tilepipe.host_arguments import shown
from tilepipe.kernels.attention.block_mask import check_lists
from tilepipe.kernels.attention.config import OCTAVES, ROWS, AttentionConfig
from tilepipe.kernels.attention.heuristics import choose_sm90
from tilepipe.kernels.attention.packed import search_steps
from tilepipe.kernels.attention.packed_validation import check_bounds
from tilepipe.kernels.attention.scores import (
    ScoreChanges,
    ScoreFunction,
    Window,
    check_of_heads,
    check_softcap,
)
from tilepipe.kernels.attention.sm90 import attention
from tilepipe.kernels.attention.validation import (
    NAME,
    NARROW,
    Extents,
    boxed,
    check_attention,
    check_counter,
    check_descale,
    check_factor,
)
from tilepipe.kernels.common.validation import Array, check_config, mapped, unboxed


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
    key_lists: Array | None = None,
    counter: Array | None = None,
    q_scales: Array | None = None,
    k_scales: Array | None = None,
    v_scales: Array | None = None,
    v_scale: float = 1.0,
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
        key_lists: int32, which tiles of keys each tile of queries walks: what the program of
            `block_mask.bind_lists` has written for a block mask, the same mask and `cfg`, which is
            then to be given.
        counter: int32 (1,), a 0 from which the "dynamic" schedule draws tiles, of this kernel alone
            while it runs, which leaves it at 0. Without one, another schedule is chosen; where
            `cfg` says "dynamic", NumPy arrays get a new one.
        q_scales, k_scales, v_scales: of operands of float8_e4m3: float32 (batch, kv_heads), what q,
            k and v of a head of K and V, and of the heads of q that share it, stand for is them
            times that. v_scale: the same for all of v. With such operands `out` is bfloat16 or
            float16, and v is as `values.turned` or `values.bind_turn` gives it.
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
    found = check_attention(
        q, k, v, out, lse, scale=scale, sequences=bounds, narrow=True, turned=True
    )
    seen, cap = Window.of(causal, window, align), check_softcap(softcap)
    check_of_heads("slopes", slopes, found.heads)
    check_of_heads("sinks", sinks, found.heads)
    of_heads = {"q_scales": q_scales, "k_scales": k_scales, "v_scales": v_scales}
    for name, x in of_heads.items():
        check_descale(name, x, found)
    check_factor(q_scales, k_scales, found.scale, "scales")
    if not found.narrow and (v_scale != 1 or any(x is not None for x in of_heads.values())):
        raise tp.BindError(
            f"{NAME}: {', '.join(of_heads)} and v_scale say what {NARROW} stands for; q, k and v"
            f" are {found.dtype}: leave them out"
        )
    if score is not None and not callable(score):
        raise tp.BindError(
            f"{NAME}: score is a function of (ctx, scores, query, key, head); got {shown(score)}"
        )
    changes = ScoreChanges(cap > 0, slopes is not None, score)
    if key_lists is not None and cfg is None:
        raise tp.BindError(f"{NAME}: key_lists are of one configuration: pass it as cfg=")
    if cfg is None:
        cfg = choose_sm90(found, seen.sides, longest, changes=changes.count)
        if cfg.schedule == "dynamic" and counter is None:
            cfg = replace(cfg, schedule="single")
    check_lists(key_lists, found, cfg)
    shape = cfg.tiles(found.dtype, found.d, found.d_v)
    counter = check_counter(counter, cfg.schedule == "dynamic", q)
    return attention.bind(
        boxed("q", q, (cfg.bm, shape.padded_qk_depth)),
        boxed("k", k, (cfg.bn, shape.BK0), swizzle=shape.swizzle_mode),
        boxed_values(v, (shape.padded_ov_depth, cfg.bn), found, ragged=bounds > 0),
        boxed("out", out, (ROWS, shape.padded_ov_depth), ragged=bounds > 0),
        lse,
        slopes,
        sinks,
        unboxed(NAME, "cu_seqlens_q", cu_seqlens_q),
        unboxed(NAME, "cu_seqlens_k", cu_seqlens_k),
        key_lists,
        counter,
        unboxed(NAME, "q_descale", q_scales),
        unboxed(NAME, "k_descale", k_scales),
        unboxed(NAME, "v_descale", v_scales),
        v_scale * 2.0**-OCTAVES if found.narrow else None,
        *changes.factors(found.scale, cap),
        search_steps(bounds),
        *seen.bounds,
        chip=chip,
        cfg=cfg,
        d=found.d,
        d_v=found.d_v,
        sides=seen.sides,
        from_first=seen.from_first,
        changes=changes,
    )


def boxed_values(v: Array, box: tuple[int, int], found: Extents, *, ragged: bool) -> tp.TensorMap:
    """The tensor map of V as (batch, kv_heads, d_v, keys)."""
    if found.narrow:
        return mapped(NAME, "v", v, (1, 1, *box), order="row")
    return boxed("v", v, box, turned=True, ragged=ragged)
