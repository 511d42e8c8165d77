"""Attention in NumPy: the float64 result, its log-sum-exp, and how far a kernel's may be from them.

The kernels compute, for each query, x = scale · q · kᵀ in float32, P = exp(x - max x), l = sum P in
float32, and O = round(P) · V / l, where round is to the 16 bits of the operands. What that costs,
with u the unit roundoff of the 16 bits, eps of float32:

    x       is off by e <= C · eps · (sqrt(d) + 2) · scale · |q| · max |k|: d products added up in
    float32, then scaled. The exponential
            and the sums of n keys add EXP and C · eps · sqrt(n). All of it is t, relative, of each
            P and of l, and absolute of log l.
    P       is rounded: u · sum(p |v|) in the worst case. Of many roundings with random signs the
    sum has the deviation
            u / sqrt(3) · sqrt(sum(p² v²)); 4 · u · sqrt(sum(p² v²)) is seven of them, and is taken
            where it is less.
    float16 also loses what is below its smallest normal number: 2^-25 of each key, against l.
    O       is rounded once more: u · |O|.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp

Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]
EXP = 2.0**-21  # ex2.approx is within 2 ulp (PTX ISA, ex2); lg2.approx within 2^-22
LOST = {"float16": 2.0**-25, "bfloat16": 0.0}
BLOCK = 512  # queries that are worked on at once


@dataclass(frozen=True)
class Rows:
    """Some queries of one head: `out` (rows, d) and `lse` (rows,), natural logarithm, and what a
    kernel's may be off by.
    """

    out: Doubles
    lse: Doubles
    out_bound: Doubles
    lse_bound: Doubles


def visible(s_q: int, s_kv: int, causal: bool) -> npt.NDArray[np.int64]:
    """How many keys each query sees, the first ones: all, or with a causal mask those at or before
    its place, counted from the end.
    """
    return np.clip(np.arange(s_q) + 1 + s_kv - s_q, 0, s_kv) if causal else np.full(s_q, s_kv)


def head(
    q: Array,
    k: Array,
    v: Array,
    seen: npt.NDArray[np.int64],
    scale: float,
    dtype: tp.DType,
    *,
    worst: bool = False,
) -> Rows:
    """Queries q (rows, d) against the keys k and values v (n, d) of their head.

    Args:
        seen: (rows,), how many of the keys, from the first, each query sees; 0: out is 0 and lse
            -inf, exactly.
        dtype: of the operands of the kernel. worst: bounds that hold whatever the values, not only
            for random ones.
    """
    c, eps = tp.testing.numerics.ACCUMULATION["float32"]
    u = tp.testing.numerics.OUTPUT_EPS[dtype.name]
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    x = scale * (q @ k.T)
    x[np.arange(len(k)) >= seen[:, None]] = -np.inf
    some = (seen > 0)[:, None]
    top = np.where(some, x.max(1, initial=-np.inf, keepdims=True), 0.0)
    p = np.exp(x - top)
    total = np.where(some, p.sum(1, keepdims=True), 1.0)
    p /= total
    out = p @ v
    with np.errstate(divide="ignore"):
        lse = np.where(some, top + np.log(total), -np.inf)[:, 0]
    each = c * eps * (np.sqrt(q.shape[1]) + 2) * scale * np.linalg.norm(q, axis=1, keepdims=True)
    t = (
        each * np.linalg.norm(k, axis=1).max(initial=0.0)
        + EXP
        + c * eps * np.sqrt(np.maximum(seen, 1))[:, None]
    )
    sizes = p @ np.abs(v)
    rounding = sizes if worst else np.minimum(sizes, 4 * np.sqrt((p * p) @ (v * v)))
    lost = LOST[dtype.name] * seen[:, None] * np.abs(v).max(initial=0.0) / total
    lse_bound = t[:, 0] + 4 * eps * np.abs(np.where(some[:, 0], lse, 0.0))
    return Rows(out, lse, u * rounding + 2 * t * sizes + lost + 1.01 * u * np.abs(out), lse_bound)


def attention(
    q: Array, k: Array, v: Array, *, causal: bool = False, scale: float | None = None
) -> tuple[Doubles, Doubles]:
    """softmax(scale · q · kᵀ) · v in float64: out (batch, s_q, heads, d) and lse (batch, heads,
    s_q).

    Args:
        q: (batch, s_q, heads, d). k, v: (batch, s_kv, kv_heads, d); kv_heads divides heads. scale:
            1/sqrt(d) unless given.
        causal: query i sees the keys j <= i + s_kv - s_q.
    """
    batch, s_q, heads, d = q.shape
    out, lse = np.zeros(q.shape), np.zeros((batch, heads, s_q))
    for b, h, rows, found in _parts(
        q, k, v, causal, 1 / np.sqrt(d) if scale is None else scale, tp.bfloat16, worst=False
    ):
        out[b, rows, h], lse[b, h, rows] = found.out, found.lse
    return out, lse


def compare_attention(
    out: Array,
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    scale: float | None = None,
    lse: Array | None = None,
    worst: bool = False,
) -> tp.testing.Comparison:
    """How far `out` (batch, s_q, heads, d) and `lse` (batch, heads, s_q) are from those of float64;
    arguments as of `attention`.

    Args:
        worst: the bounds that hold whatever the values: for operands that are not random.

    Returns:
        `rel_error` of out; `worst` and `worst_at` (batch, query, head, d) of out, or (batch, head,
        query) of lse where that is further off.
    """
    dtype = tp.dtype(q.dtype)
    error_sum = want_sum = 0.0
    top: tuple[float, tuple[int, ...]] = (0.0, ())
    for b, h, rows, found in _parts(
        q, k, v, causal, 1 / np.sqrt(q.shape[3]) if scale is None else scale, dtype, worst=worst
    ):
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
    q: Array, k: Array, v: Array, causal: bool, scale: float, dtype: tp.DType, *, worst: bool
) -> Iterator[tuple[int, int, slice, Rows]]:
    """(batch, head, rows, `head` of them), block by block."""
    seen, group = visible(q.shape[1], k.shape[1], causal), q.shape[2] // max(k.shape[2], 1)
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):
            for start in range(0, q.shape[1], BLOCK):
                rows = slice(start, min(start + BLOCK, q.shape[1]))
                yield (
                    b,
                    h,
                    rows,
                    head(
                        q[b, rows, h],
                        k[b, :, h // group],
                        v[b, :, h // group],
                        seen[rows],
                        scale,
                        dtype,
                        worst=worst,
                    ),
                )


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
