"""Attention of packed sequences in NumPy: each as a batch of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.attention.reference import Array, Doubles, attention, compare_attention


def bounds_of(lengths: list[int]) -> npt.NDArray[np.int32]:
    """cu_seqlens of sequences that follow each other."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def packed_attention(
    q: Array, k: Array, v: Array, cu_seqlens_q: Array, cu_seqlens_k: Array, **options: Any
) -> tuple[Doubles, Doubles]:
    """out (total_q, heads, d_v) and lse (heads, total_q) in float64; rows in no sequence are 0.
    Options: as of `attention`.
    """
    out, lse = np.zeros((*q.shape[:2], v.shape[2])), np.zeros((q.shape[1], q.shape[0]))
    for i in range(len(cu_seqlens_q) - 1):
        rows, keys = (slice(x[i], x[i + 1]) for x in (cu_seqlens_q, cu_seqlens_k))
        if rows.start < rows.stop:
            found = attention(q[None, rows], k[None, keys], v[None, keys], **options)
            out[rows], lse[:, rows] = found[0][0], found[1][0]
    return out, lse


def compare_packed(
    out: Array,
    q: Array,
    k: Array,
    v: Array,
    cu_seqlens_q: Array,
    cu_seqlens_k: Array,
    *,
    lse: Array | None = None,
    **options: Any,
) -> tp.testing.Comparison:
    """How far `out` (total_q, heads, d_v) and `lse` (heads, total_q) are from those of float64.

    Args:
        options: as of `compare_attention`.

    Returns:
        Of the sequence that is worst by its bounds: `worst_at` is within it.
    """
    found = tp.testing.Comparison(True, 0.0, 0.0, ())
    for i in range(len(cu_seqlens_q) - 1):
        rows, keys = (slice(x[i], x[i + 1]) for x in (cu_seqlens_q, cu_seqlens_k))
        if rows.start == rows.stop:
            continue
        part = compare_attention(
            out[None, rows],
            q[None, rows],
            k[None, keys],
            v[None, keys],
            lse=None if lse is None else lse[None, :, rows],
            **options,
        )
        error = max(found.rel_error, part.rel_error)
        worst = part if part.worst >= found.worst else found
        found = tp.testing.Comparison(found.ok and part.ok, error, worst.worst, worst.worst_at)
    return found
