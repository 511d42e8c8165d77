"""The gated product in NumPy: how far a result is from the one in float64."""

from __future__ import annotations

import numpy as np

import tilepipe as tp
from tilepipe.kernels.gemm.reference import Array, activated

# of float32 sums, relative to the sum of the absolute products, and of exp and tanh
SUM_EPS = 2.0**-20


def compare(
    c: Array, a: Array, gate: Array, up: Array, activation: str = "silu"
) -> tp.testing.Comparison:
    """C (m, n) beside activation(A · gateᵀ) * (A · upᵀ) in float64. Each element is held to the
    error that float32 sums and one rounding of the result may have.
    """
    x, g, u = (t.astype(np.float64) for t in (a, gate, up))
    left, right = x @ g.T, x @ u.T
    gated = activated(left, activation)
    want = gated * right
    # Float32 sums of n products are off by at most eps · n times the sum of their magnitudes, and
    # far less on the average; no activation here is steeper than 1.13.
    scale = np.sqrt(a.shape[1])
    errors = [SUM_EPS * scale * (np.abs(x) @ np.abs(t).T) for t in (g, u)]
    bound = (
        1.13 * errors[0] * np.abs(right)
        + errors[1] * np.abs(gated)
        + errors[0] * errors[1]
        + tp.testing.numerics.rounding(c.dtype.name, want)
    )
    error = np.abs(c.astype(np.float64) - want)
    shares = np.nan_to_num(error / bound, nan=np.inf)
    row, col = np.unravel_index(int(np.argmax(shares)), shares.shape) if c.size else (0, 0)
    worst = float(shares.max(initial=0.0))
    norm = float(np.linalg.norm(want)) or 1.0
    return tp.testing.Comparison(
        worst <= 1.0,
        float(np.linalg.norm(error)) / norm,
        worst,
        (int(row), int(col)),
        int((shares > 1.0).sum()),
    )
