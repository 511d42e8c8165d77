"""The RMS norm in NumPy, in float64, and how far a result may be from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp

Array = npt.NDArray[Any]

# Relative errors of float32: of a sum of 16384 squares in any order, of rsqrt, of two products.
_ERROR = 2e-6


def rms_norm(x: Array, weight: Array | None, eps: float) -> Array:
    """x / √(mean x² + eps) · weight of each row, in float64."""
    wide = x.astype(np.float64)
    y = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + eps)
    result: Array = y if weight is None else y * weight.astype(np.float64)
    return result


def compare(y: Array, x: Array, weight: Array | None, eps: float) -> tp.testing.Comparison:
    """A result beside the reference: each element within its rounding and that of float32."""
    want = rms_norm(x, weight, eps)
    unit = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float16): 2.0**-11}.get(y.dtype, 2.0**-8)
    tiny = {np.dtype(np.float16): 2.0**-24}.get(y.dtype, 2.0**-126)  # below: denormals
    apart = np.abs(y.astype(np.float64) - want)
    share = apart / ((_ERROR + unit) * np.abs(want) + tiny)
    share = np.where(np.isnan(share), np.inf, share).reshape(-1, y.shape[-1])
    row, col = np.unravel_index(int(share.argmax()), share.shape)
    norm = float(np.linalg.norm(want)) or 1.0
    worst = float(share[row, col])
    relative = float(np.linalg.norm(apart) / norm)
    return tp.testing.Comparison(worst <= 1, relative, worst, (int(row), int(col)))
