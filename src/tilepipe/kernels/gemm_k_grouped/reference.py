"""The product with groups along K in NumPy: the float64 result of each group."""

from __future__ import annotations

import numpy as np

import tilepipe as tp
from tilepipe.kernels.gemm_grouped.reference import Array, bounds


def compare(c: Array, a: Array, b: Array, offsets: Array) -> tp.testing.Comparison:
    """C (groups, m, n) beside the float64 products of the groups, each held to the bound of float32
    sums; those of groups without rows must be 0.

    Args:
        a: (m, k). b: (n, k). offsets: as of `gemm_grouped`, along k.
    """
    worst = tp.testing.Comparison(True, 0.0, 0.0, (0, 0))
    for group, (start, end) in enumerate(bounds(offsets, a.shape[1])):
        left, right = (x[:, start:end].astype(np.float64) for x in (a, b))
        if start == end:
            zero = not c[group].any()
            found = tp.testing.Comparison(zero, 0.0, 0.0 if zero else np.inf, (0, 0))
        else:
            found = tp.testing.compare_matmul(c[group], left, right.T)
        row, col = found.worst_at
        worst = tp.testing.Comparison(
            worst.ok and found.ok,
            max(worst.rel_error, found.rel_error),
            max(worst.worst, found.worst),
            (group * c.shape[1] + row, col) if found.worst > worst.worst else worst.worst_at,
        )
    return worst
