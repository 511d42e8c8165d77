"""The functions of rows in NumPy, in float64, and how far results may be from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp

Array = npt.NDArray[Any]
# a result, what it should be, and the size of the terms that it is made of
Result = tuple[Array, Array, Array]

# Of float32: the relative error of sums of some thousand terms, of functions and products.
_ERROR = 4e-6


def compare(results: Iterable[Result]) -> tp.testing.Comparison:
    """Results beside the reference: each element within its own rounding and the error of float32
    in its terms.
    """
    worst, relative, at = 0.0, 0.0, (0, 0)
    for got, want, terms in results:
        unit = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float16): 2.0**-11}.get(
            got.dtype, 2.0**-8
        )
        tiny = {np.dtype(np.float16): 2.0**-24}.get(got.dtype, 2.0**-126)  # below: denormals
        apart = np.abs(got.astype(np.float64) - want)
        share = apart / (unit * np.abs(want) + _ERROR * np.abs(terms) + tiny)
        share = np.where(np.isnan(share), np.inf, share).reshape(-1, got.shape[-1])
        row, col = np.unravel_index(int(share.argmax()), share.shape)
        relative = max(relative, float(np.linalg.norm(apart) / (np.linalg.norm(want) or 1.0)))
        if share[row, col] > worst:
            worst, at = float(share[row, col]), (int(row), int(col))
    return tp.testing.Comparison(worst <= 1, relative, worst, at)


def _wide(*arrays: Array) -> list[Array]:
    return [x.astype(np.float64) for x in arrays]


def rms_norm(y: Array, x: Array, weight: Array | None, eps: float) -> list[Result]:
    """The norm `y`."""
    (wide,) = _wide(x)
    want = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + eps)
    want = want if weight is None else want * weight.astype(np.float64)
    return [(y, want, want)]


def layer_norm(
    y: Array, x: Array, weight: Array | None, bias: Array | None, eps: float
) -> list[Result]:
    """The norm `y`."""
    (wide,) = _wide(x)
    mean = wide.mean(-1, keepdims=True)
    r = 1 / np.sqrt(wide.var(-1, keepdims=True) + eps)
    w = np.ones(x.shape[-1]) if weight is None else weight.astype(np.float64)
    b = np.zeros(x.shape[-1]) if bias is None else bias.astype(np.float64)
    terms = (np.abs(wide) + np.abs(wide).mean(-1, keepdims=True)) * r * np.abs(w) + np.abs(b)
    return [(y, (wide - mean) * r * w + b, terms)]


def norm_backward(
    dx: Array,
    parts: Array | None,
    x: Array,
    weight: Array | None,
    dy: Array,
    eps: float,
    *,
    centred: bool,
) -> list[Result]:
    """The gradients of a norm: `dx`, and the sums of `parts` over their rows. `centred`: of the
    layer norm.
    """
    wide, d = _wide(x, dy)
    mean = wide.mean(-1, keepdims=True) if centred else 0.0
    r = 1 / np.sqrt(((wide - mean) ** 2).mean(-1, keepdims=True) + eps)
    n, size = (wide - mean) * r, (np.abs(wide) + np.abs(mean)) * r
    g = d if weight is None else d * weight.astype(np.float64)
    product, across = (g * n).mean(-1, keepdims=True), np.abs(g * size).mean(-1, keepdims=True)
    want = (g - n * product - (g.mean(-1, keepdims=True) if centred else 0.0)) * r
    terms = (np.abs(g) + np.abs(g).mean(-1, keepdims=True) + size * across) * r
    found = [(dx, want, terms)]
    if parts is not None:
        sums = [((d * n).sum(0), np.abs(d * size).sum(0)), (d.sum(0), np.abs(d).sum(0))]
        added = parts.astype(np.float64).sum(1).astype(np.float32)
        found += [(a[None], s[None], t[None]) for a, (s, t) in zip(added, sums, strict=False)]
    return found


def softmax(y: Array, x: Array) -> list[Result]:
    """The softmax `y`."""
    (wide,) = _wide(x)
    apart = wide - wide.max(-1, keepdims=True)
    e = np.exp(apart)
    want = e / e.sum(-1, keepdims=True)
    return [(y, want, want * (1 - apart))]


def softmax_backward(dx: Array, y: Array, dy: Array) -> list[Result]:
    """The gradient `dx`."""
    p, d = _wide(y, dy)
    want = p * (d - (p * d).sum(-1, keepdims=True))
    return [(dx, want, p * (np.abs(d) + np.abs(p * d).sum(-1, keepdims=True)))]


def cross_entropy(
    loss: Array, lse: Array, x: Array, labels: Array, ignore_index: int = -100
) -> list[Result]:
    """`loss` and `lse`."""
    (wide,) = _wide(x)
    most = wide.max(-1)
    of_total = np.log(np.exp(wide - most[:, None]).sum(-1))
    kept = labels != ignore_index
    apart = most - wide[np.arange(len(x)), np.where(kept, labels, 0)]
    return [
        (lse, most + of_total, np.abs(most) + of_total + 1),
        (loss, np.where(kept, apart + of_total, 0.0), apart + of_total + 1),
    ]


def cross_entropy_backward(
    dx: Array, x: Array, labels: Array, dloss: Array, ignore_index: int = -100
) -> list[Result]:
    """The gradient `dx`; `x`: the logits before they were overwritten."""
    (wide, d) = _wide(x, dloss)
    most = wide.max(-1, keepdims=True)
    apart = wide - (np.log(np.exp(wide - most).sum(-1, keepdims=True)) + most)
    kept = labels != ignore_index
    d = (d * kept)[:, None]
    hot = np.zeros_like(wide)
    hot[np.arange(len(x)), np.where(kept, labels, 0)] = 1
    p = np.exp(apart)
    return [(dx, (p - hot) * d, (p * (1 + np.abs(apart) + np.abs(most)) + hot) * np.abs(d))]
