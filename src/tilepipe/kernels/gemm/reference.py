"""The GEMM in NumPy: how far a result is from the float64 product."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.common.epilogue import GELU_CUBE, GELU_SCALE

Array = npt.NDArray[Any]
_erf = np.frompyfunc(math.erf, 1, 1)


def compare(
    c: Array,
    a: Array,
    b: Array,
    activation: str = "none",
    *,
    added: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]] = np.asarray,
    rough: bool = False,
) -> tp.testing.Comparison:
    """C (m, n) beside activation(added(A · Bᵀ)) in float64: the bound of float32 sums.

    Args:
        added: gives the sums with what is added to them.
        rough: fp8 that the tensor cores add up in fewer bits than float32 has; it is judged by the
            error of the whole matrix.
    """
    found = tp.testing.compare_matmul(c, a, b.T, then=lambda z: activated(added(z), activation))
    if rough:
        return tp.testing.numerics.judged_by_the_whole(found, a.shape[1], c.dtype.name)
    return found


def activated(z: npt.NDArray[Any], name: str | None) -> npt.NDArray[Any]:
    """An activation of each element, as `common.epilogue.activate` computes it."""
    result = z
    if name == "relu":
        result = np.maximum(z, 0)
    elif name == "silu":
        result = z * 0.5 * (1 + np.tanh(0.5 * z))
    elif name == "gelu":
        result = z * 0.5 * (1 + np.tanh(GELU_SCALE * (z + GELU_CUBE * z**3)))
    elif name == "gelu_erf":
        result = z * 0.5 * (1 + np.asarray(_erf(z * math.sqrt(0.5)), np.float64))
    return result
