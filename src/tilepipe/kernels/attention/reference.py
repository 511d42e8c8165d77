"""Attention in NumPy: the float64 result, its log-sum-exp, and how far a kernel's may be from them.

The kernels compute, for each query, x = scale · q · kᵀ in float32, P = exp(x - max x), l = sum P in
float32, and O = round(P) · V / l, where round is to the dtype of the operands. What that costs,
with u the unit roundoff of that dtype, eps of float32:

    x       is off by e <= C · eps · (sqrt(d) + 2) · scale · |q| · max |k|: d products added up in
    float32, then scaled. The exponential
            and the sums of n keys add EXP and C · eps · sqrt(n). All of it is t, relative, of each
            P and of l, and absolute of log l.
    P       is rounded: u · sum(p |v|) in the worst case. Of many roundings with random signs the
    sum has the deviation
            u / sqrt(3) · sqrt(sum(p² v²)); 4 · u · sqrt(sum(p² v²)) is seven of them, and is taken
            where it is less.
    float16 also loses what is below its smallest normal number: 2^-25 of each key, against l;
    float8_e4m3, of weights that are 2^8 times as large, 2^-18.
    O       is rounded once more, to its own dtype: u · |O|.

Tensor cores of Hopper cut what they add of products of float8_e4m3 at CUT = 2^-13 of the running
sum, or of the largest product (`testing.numerics.FP8_CUT`). With random signs

    x       is off by CUT · scale · |q| · max |k| more: sqrt(d) cuts, at |q| |k| / sqrt(d);
    O       by 2 · CUT · sqrt(n) · A: seven deviations of n cuts, at most CUT / sqrt(12) · A each, A
            the largest running sum, taken as |O| + 4 · sqrt(sum(p² v²)). In the worst case by CUT ·
            n · sum(p |v|).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.attention.block_mask import BLOCK_SIZE
from tilepipe.kernels.attention.scores import Window

Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]
NumpyScore = Callable[[Doubles, Array, Array, int], Doubles]  # scores, query, key, head
EXP = 2.0**-21  # ex2.approx is within 2 ulp (PTX ISA, ex2); lg2.approx within 2^-22
# What a weight can lose, of one that is the largest: by rounding below float16's normal numbers; by
# ex2.approx.ftz, which gives 0 below float32's.
LOST = {"float16": 2.0**-25, "bfloat16": 2.0**-126, "float8_e4m3": 2.0**-18}
# Unit roundoff of weights, by the dtype of the operands.
UNIT = {**tp.testing.numerics.OUTPUT_EPS, "float8_e4m3": 2.0**-4}
BLOCK = 512  # queries that are worked on at once


@dataclass(frozen=True)
class HeadRows:
    """Some queries of one head: `out` (rows, d) and `lse` (rows,), natural logarithm, and what a
    kernel's may be off by.
    """

    out: Doubles
    lse: Doubles
    out_bound: Doubles
    lse_bound: Doubles


@dataclass(frozen=True)
class AttentionOptions:
    """The options of an attention, as `sm90_bind.bind` has them. `score` is of NumPy arrays: of
    scaled scores (rows, n), query (rows, 1), key (1, n) and the head.
    """

    causal: bool = False
    window: tuple[int | None, int | None] | None = None
    scale: float | None = None
    softcap: float = 0.0
    slopes: Array | None = None
    sinks: Array | None = None
    score: NumpyScore | None = None
    align: str = "last"
    block_mask: Array | None = None
    block_size: tuple[int, int] = BLOCK_SIZE

    def computed(self, b: int, h: int, query: Array, keys: int) -> Array:
        """(queries, keys): true where the block mask has a block that is computed."""
        if self.block_mask is None:
            return np.ones((len(query), keys), np.bool_)
        batches, heads = self.block_mask.shape[:2]
        mask: Array = self.block_mask[min(b, batches - 1), min(h, heads - 1)]
        block_q, block_k = self.block_size
        of_each: Array = mask[query[:, None] // block_q, np.arange(keys)[None] // block_k]
        return of_each

    q_scales: Array | None = None
    k_scales: Array | None = None
    v_scales: Array | None = None

    def scaled(
        self, b: int, kv_head: int, q: Array, k: Array, v: Array
    ) -> tuple[Array, Array, Array]:
        """q, k and v of a head times what they are multiplied with, where that is given."""

        def times(x: Array, scale: Array | None) -> Array:
            return x if scale is None else x.astype(np.float64) * float(scale[b, kv_head])

        return times(q, self.q_scales), times(k, self.k_scales), times(v, self.v_scales)

    @property
    def seen(self) -> Window:
        """The keys that queries see."""
        return Window.of(self.causal, self.window, self.align)

    @property
    def changes(self) -> bool:
        """True if more than the scaled product makes a score, or its weight."""
        others = self.slopes, self.sinks, self.score
        return self.softcap != 0 or any(x is not None for x in others)

    def factor(self, d: int) -> float:
        """The factor of products of heads of d elements."""
        return 1 / float(np.sqrt(d)) if self.scale is None else self.scale

    def scores(self, x: Doubles, query: Array, place: Array, h: int) -> Doubles:
        """The scores of head h that the softmax takes, of scaled products x (rows, n).

        Args:
            query, place: (rows, 1): the number of each query, and its place among the keys.
        """
        key = np.arange(x.shape[1])[None]
        if self.softcap:
            x = self.softcap * np.tanh(x / self.softcap)
        if self.slopes is not None:
            x = x - float(self.slopes[h]) * np.abs(key - place)
        return x if self.score is None else self.score(x, query, key, h)


def head(
    q: Array,
    k: Array,
    v: Array,
    query: npt.NDArray[np.int64],
    s_q: int,
    h: int,
    options: AttentionOptions,
    dtype: tp.DType,
    *,
    b: int = 0,
    rounded_to: str | None = None,
    worst: bool = False,
) -> HeadRows:
    """Queries q (rows, d) against the keys k (n, d) and values v (n, d_v) of their head.

    Args:
        query: (rows,), the number of each query, of s_q.
        h, b: numbers of the head and the batch.
        dtype: of the operands of the kernel. rounded_to: of its output, unless the same. worst:
            bounds that hold whatever the values, not only for random ones.

    Returns:
        The results; of a query that sees no key out is 0 and lse the sink or -inf, exactly.
    """
    c, eps = tp.testing.numerics.ACCUMULATION["float32"]
    u, u_out = UNIT[dtype.name], UNIT[rounded_to or dtype.name]
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scale, place = options.factor(q.shape[1]), options.seen.place(query, s_q, len(k))
    first, stop = (ends[query] for ends in options.seen.seen(s_q, len(k)))
    sink = -np.inf if options.sinks is None else float(options.sinks[h])
    x = options.scores(scale * (q @ k.T), query[:, None], place[:, None], h)
    changing = np.zeros((len(x), 1))  # the error of what changes scores
    if options.changes:
        sizes = np.abs(x, where=np.isfinite(x), out=np.zeros_like(x))
        changing = 4 * eps * (options.softcap + sizes.max(1, initial=0, keepdims=True))
    key = np.arange(len(k))
    shown = (key >= first[:, None]) & (key < stop[:, None])
    shown &= options.computed(b, h, query, len(k))
    seen = shown.sum(1)
    x[~shown] = -np.inf
    top = np.maximum(x.max(1, initial=-np.inf, keepdims=True), sink)
    some = np.isfinite(top)
    top = np.where(some, top, 0.0)
    p = np.exp(x - top)
    total = np.where(some, p.sum(1, keepdims=True) + np.exp(sink - top), 1.0)
    p /= total
    out = p @ v
    with np.errstate(divide="ignore"):
        lse = np.where(some, top + np.log(total), -np.inf)[:, 0]
    each = c * eps * (np.sqrt(q.shape[1]) + 2) * scale * np.linalg.norm(q, axis=1, keepdims=True)
    cut = tp.testing.numerics.FP8_CUT if dtype.nbytes == 1 else 0.0
    each += cut * scale * np.linalg.norm(q, axis=1, keepdims=True)
    t = (
        each * np.linalg.norm(k, axis=1).max(initial=0.0)
        + EXP
        + changing
        + c * eps * np.sqrt(np.maximum(seen, 1))[:, None]
    )
    sizes = p @ np.abs(v)
    spread = np.sqrt((p * p) @ (v * v))
    rounding = u * (sizes if worst else np.minimum(sizes, 4 * spread))
    number = np.maximum(seen, 1)[:, None]
    walk = 2 * np.sqrt(number) * (np.abs(out) + 4 * spread)
    rounding += cut * (number * sizes if worst else np.minimum(number * sizes, walk))
    lost = LOST[dtype.name] * seen[:, None] * np.abs(v).max(initial=0.0) / total
    lse_bound = t[:, 0] + 4 * eps * np.abs(np.where(some[:, 0], lse, 0.0))
    return HeadRows(
        out, lse, rounding + 2 * t * sizes + lost + 1.01 * u_out * np.abs(out), lse_bound
    )


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    slopes: Array | None = None,
    sinks: Array | None = None,
    score: NumpyScore | None = None,
    align: str = "last",
    block_mask: Array | None = None,
    block_size: tuple[int, int] = BLOCK_SIZE,
    q_scales: Array | None = None,
    k_scales: Array | None = None,
    v_scales: Array | None = None,
) -> tuple[Doubles, Doubles]:
    """softmax(scale · q · kᵀ) · v in float64: out (batch, s_q, heads, d_v) and lse (batch, heads,
    s_q), of q (batch, s_q, heads, d), k (batch, s_kv, kv_heads, d), v (batch, s_kv, kv_heads, d_v).
    Options: see `AttentionOptions`.
    """
    options = AttentionOptions(
        causal,
        window,
        scale,
        softcap,
        slopes,
        sinks,
        score,
        align,
        block_mask,
        block_size,
        q_scales,
        k_scales,
        v_scales,
    )
    batch, s_q, heads, _ = q.shape
    out, lse = np.zeros((*q.shape[:3], v.shape[3])), np.zeros((batch, heads, s_q))
    for b, h, rows, found in _parts(q, k, v, options, tp.bfloat16, None, worst=False):
        out[b, rows, h], lse[b, h, rows] = found.out, found.lse
    return out, lse


def compare_attention(
    out: Array,
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float = 0.0,
    slopes: Array | None = None,
    sinks: Array | None = None,
    score: NumpyScore | None = None,
    align: str = "last",
    block_mask: Array | None = None,
    block_size: tuple[int, int] = BLOCK_SIZE,
    q_scales: Array | None = None,
    k_scales: Array | None = None,
    v_scales: Array | None = None,
    lse: Array | None = None,
    worst: bool = False,
) -> tp.testing.Comparison:
    """How far `out` (batch, s_q, heads, d_v) and `lse` (batch, heads, s_q) are from those of
    float64; other arguments as of `attention`.

    Args:
        worst: the bounds that hold whatever the values: for operands that are not random.

    Returns:
        `rel_error` of out; `worst` and `worst_at` (batch, query, head, d) of out, or (batch, head,
        query) of lse where that is further off.
    """
    options = AttentionOptions(
        causal,
        window,
        scale,
        softcap,
        slopes,
        sinks,
        score,
        align,
        block_mask,
        block_size,
        q_scales,
        k_scales,
        v_scales,
    )
    error_sum = want_sum = 0.0
    top: tuple[float, tuple[int, ...]] = (0.0, ())
    dtypes = tp.dtype(q.dtype), tp.dtype(out.dtype).name
    for b, h, rows, found in _parts(q, k, v, options, *dtypes, worst=worst):
        error, at, largest = _against(out[b, rows, h], found.out, found.out_bound)
        error_sum, want_sum = error_sum + error, want_sum + float(np.sum(found.out**2))
        top = max(top, (largest, (b, rows.start + at[0], h, at[1])))
        if lse is not None:
            _, at, largest = _against(lse[b, h, rows], found.lse, found.lse_bound)
            top = max(top, (largest, (b, h, rows.start + at[0])))
    return tp.testing.Comparison(
        top[0] <= 1.0,
        float(np.sqrt(error_sum / want_sum)) if want_sum else float(np.sqrt(error_sum)),
        *top,
    )


def _parts(
    q: Array,
    k: Array,
    v: Array,
    options: AttentionOptions,
    dtype: tp.DType,
    rounded_to: str | None,
    *,
    worst: bool,
) -> Iterator[tuple[int, int, slice, HeadRows]]:
    """(batch, head, rows, `head` of them), block by block."""
    batch, s_q, heads, _ = q.shape
    group = heads // max(k.shape[2], 1)
    query: npt.NDArray[np.int64] = np.arange(s_q, dtype=np.int64)
    for b in range(batch):
        for h in range(heads):
            kv = b, slice(None), h // group
            for start in range(0, s_q, BLOCK):
                rows = slice(start, min(start + BLOCK, s_q))
                of_head = options.scaled(b, h // group, q[b, rows, h], k[kv], v[kv])
                found = head(
                    *of_head, query[rows], s_q, h, options, dtype, b=b, rounded_to=rounded_to,
                    worst=worst,
                )  # fmt: skip
                yield b, h, rows, found


def _against(got: Array, want: Doubles, bound: Doubles) -> tuple[float, tuple[int, ...], float]:
    """The sum of squared errors, and where the largest error over its bound is, and that.
    Infinities must be equal; NaN never passes.
    """
    with np.errstate(invalid="ignore"):
        error = np.where(got == want, 0.0, np.abs(got.astype(np.float64) - want))
    ratio = np.where(
        np.isfinite(error), error / np.maximum(bound, np.finfo(np.float64).tiny), np.inf
    )
    at = np.unravel_index(int(ratio.argmax()), ratio.shape)
    return (
        float(np.sum(np.where(np.isfinite(error), error, np.inf) ** 2)),
        tuple(int(i) for i in at),
        float(ratio[at]),
    )
