"""The gradients of attention in NumPy: float64 results, and how far a kernel's may be from them.

The kernels compute P = exp(S - lse) in float32 and dS = P · (dP - delta), and round both to the 16
bits of the operands before they multiply them; delta is the sum of dO · O, of an O that has been
rounded. What that costs, with u the unit roundoff of the 16 bits: of a sum of many products whose
errors are random, four times the root of the sum of their squares is seven deviations, as in
`kernels.attention.reference`. Each result is rounded once more.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.attention.reference import LOST
from tilepipe.kernels.attention.scores import Window

Array = npt.NDArray[Any]
Doubles = npt.NDArray[np.float64]
EXACT = 2.0**-17  # relative: exponentials, and sums of products in float32


class Gradients(NamedTuple):
    """dq (batch, s_q, heads, d), dk and dv (batch, s_kv, kv_heads, d or d_v)."""

    dq: Doubles
    dk: Doubles
    dv: Doubles


def attention_backward(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    scale: float | None = None,
    align: str = "last",
    dlse: Array | None = None,
) -> Gradients:
    """The gradients of softmax(scale · q · kᵀ) · v in float64, of q (batch, s_q, heads, d), k
    (batch, s_kv, kv_heads, d), v (batch, s_kv, kv_heads, d_v), and dout (batch, s_q, heads, d_v);
    `dlse` (batch, heads, s_q): of the logarithms.
    """
    return _computed(dout, q, k, v, causal, scale, align, dlse)[0]


def compare(
    got: tuple[Array, Array, Array],
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    scale: float | None = None,
    align: str = "last",
    dlse: Array | None = None,
) -> tuple[tp.testing.Comparison, ...]:
    """How far each of (dq, dk, dv) is from float64; other arguments as of `attention_backward`."""
    want, bounds = _computed(dout, q, k, v, causal, scale, align, dlse)
    return tuple(_against(*x) for x in zip(got, want, bounds, strict=True))


def _against(got: Array, want: Doubles, bound: Doubles) -> tp.testing.Comparison:
    error = np.abs(got.astype(np.float64) - want)
    ratio = np.where(np.isfinite(error), error / np.maximum(bound, 1e-300), np.inf)
    at = np.unravel_index(int(ratio.argmax()), ratio.shape)
    size = float(np.linalg.norm(want))
    return tp.testing.Comparison(
        float(ratio[at]) <= 1.0,
        float(np.linalg.norm(error)) / (size or 1.0),
        float(ratio[at]),
        tuple(int(i) for i in at),
    )


def _computed(
    dout: Array,
    q: Array,
    k: Array,
    v: Array,
    causal: bool,
    scale: float | None,
    align: str,
    dlse: Array | None,
) -> tuple[Gradients, Gradients]:
    """The gradients, and bounds of errors."""
    (batch, s_q, heads, d), s_kv, group = q.shape, k.shape[1], q.shape[2] // k.shape[2]
    factor = 1 / float(np.sqrt(d)) if scale is None else scale
    u = tp.testing.numerics.OUTPUT_EPS[tp.dtype(q.dtype).name]
    lost = LOST[tp.dtype(q.dtype).name] / u
    first, stop = Window.of(causal, None, align).seen(s_q, s_kv)
    key = np.arange(s_kv)
    seen = (key >= first[:, None]) & (key < stop[:, None])
    found, squares = (Gradients(*(np.zeros(x.shape) for x in (q, k, v))) for _ in range(2))
    for b in range(batch):
        for h in range(heads):
            mine, theirs = (b, slice(None), h), (b, slice(None), h // group)
            x, do, keys, values = (
                y.astype(np.float64) for y in (q[mine], dout[mine], k[theirs], v[theirs])
            )
            scores = np.where(seen, factor * x @ keys.T, -np.inf)
            top = np.maximum(scores.max(axis=1, initial=-np.inf, keepdims=True), -1e300)
            p = np.exp(scores - top)
            p /= np.maximum(p.sum(axis=1, keepdims=True), 1e-300)
            dp, out = do @ values.T, p @ values
            delta = (do * out).sum(axis=1, keepdims=True)
            if dlse is not None:
                delta = delta - dlse[b, h].astype(np.float64)[:, None]
            ds = factor * p * (dp - delta)
            # P and dS are rounded, and delta is off by the rounding of P and of O, at random.
            of_delta = np.sqrt(((do * out) ** 2).sum(axis=1) + ((p * dp) ** 2).sum(axis=1))
            sizes = factor * p * np.hypot(np.abs(dp - delta), of_delta[:, None])
            found.dq[mine] = ds @ keys
            found.dk[theirs] += ds.T @ x
            found.dv[theirs] += p.T @ do
            of_ds, of_p = 2 * sizes**2 + (factor * lost) ** 2, p**2 + lost**2
            squares.dq[mine] = of_ds @ keys**2
            squares.dk[theirs] += of_ds.T @ x**2
            squares.dv[theirs] += of_p.T @ do**2
    bounds = Gradients(
        *(
            4 * (u + EXACT) * np.sqrt(square) + 1.01 * u * np.abs(exact) + 1e-30
            for square, exact in zip(squares, found, strict=True)
        )
    )
    return found, bounds
