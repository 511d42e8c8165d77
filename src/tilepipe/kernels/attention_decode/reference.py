"""Attention over a cache in NumPy: each sequence as a batch of its own, and operands for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.attention.reference import Array, compare_attention

Lengths = npt.NDArray[np.int32]


SIZE = 64.0  # of the values of a cache of 8 bits, which scales divide


@dataclass(frozen=True, eq=False)
class CacheArrays:
    """A cache of K and V, (batch, s, kv_heads, d), or in pages.

    Attributes:
        table: of pages, or None. k_scales, v_scales: float32 (batch, kv_heads), what K and V are
            multiplied with, or None.
    """

    k: Array
    v: Array
    table: Lengths | None = None
    k_scales: Array | None = None
    v_scales: Array | None = None

    def sequence(self, i: int, length: int) -> tuple[Array, Array]:
        """The keys and values of a sequence, (1, length, kv_heads, d), without their scales."""
        if self.table is None:
            return self.k[i : i + 1, :length], self.v[i : i + 1, :length]
        page = self.k.shape[1]
        pages = self.table[i, : -(-length // page)]
        k, v = (x[pages].reshape(1, -1, *x.shape[2:])[:, :length] for x in (self.k, self.v))
        return k, v

    def scales(self, i: int) -> tuple[Array | None, Array | None]:
        """Those of a sequence, of K and of V, as of `compare_attention`."""
        k, v = (None if x is None else x[i : i + 1] for x in (self.k_scales, self.v_scales))
        return k, v


def random_cache(
    rng: np.random.Generator,
    lengths: Lengths,
    s: int,
    kv_heads: int,
    d: int,
    dtype: tp.DType,
    page: int = 0,
) -> CacheArrays:
    """Normal keys and values, NaN after the last of each sequence, with room for s; of 8 bits
    larger ones, with scales.

    Args:
        page: keys of a page; the pages of all sequences are in random order, and those that none
            needs are -1 in the table. 0: no pages.
    """
    outer = len(lengths)
    shape = (outer, s, kv_heads, d)
    narrow = dtype.nbytes == 1
    k, v = (
        np.where(
            np.arange(s)[:, None, None] < lengths[:, None, None, None],
            rng.standard_normal(shape, dtype=np.float32) * (SIZE if narrow else 1),
            np.nan,
        ).astype(dtype.numpy)
        for _ in range(2)
    )
    scales: tuple[Array | None, ...] = (None, None)
    if narrow:
        scales = tuple(
            (rng.uniform(0.5, 1.5, (outer, kv_heads)) / SIZE).astype(np.float32) for _ in range(2)
        )
    if not page:
        return CacheArrays(k, v, None, *scales)
    most = -(-s // page)
    order = rng.permutation(outer * most).astype(np.int32)
    table = np.where(
        np.arange(most) * page < lengths[:, None], order.reshape(outer, most), np.int32(-1)
    ).astype(np.int32)
    pages = []
    for x in (k, v):
        padded = np.full((outer, most * page, kv_heads, d), np.nan, x.dtype)
        padded[:, :s] = x
        made = np.empty((outer * most, page, kv_heads, d), x.dtype)
        made[order] = padded.reshape(made.shape)
        pages.append(made)
    return CacheArrays(pages[0], pages[1], table, *scales)


def compare_decode(
    out: Array,
    q: Array,
    cache: CacheArrays,
    lengths: Lengths,
    *,
    causal: bool = True,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    lse: Array | None = None,
) -> tp.testing.Comparison:
    """How far `out` (batch, tokens, heads, d) and `lse` (batch, heads, tokens) are from those of
    float64.

    Returns:
        Of the sequence that is worst by its bounds: `worst_at` has its number in place of the
        batch.
    """
    found = tp.testing.Comparison(True, 0.0, 0.0, ())
    for i, length in enumerate(lengths):
        (k, v), (k_scales, v_scales) = cache.sequence(i, int(length)), cache.scales(i)
        part = compare_attention(
            out[i : i + 1],
            q[i : i + 1],
            k,
            v,
            causal=causal,
            window=window,
            scale=scale,
            lse=None if lse is None else lse[i : i + 1],
            k_scales=k_scales,
            v_scales=v_scales,
        )
        worst, at = (
            (part.worst, (i, *part.worst_at[1:]))
            if part.worst >= found.worst
            else (found.worst, found.worst_at)
        )
        error = max(found.rel_error, part.rel_error)
        found = tp.testing.Comparison(found.ok and part.ok, error, worst, at)
    return found
