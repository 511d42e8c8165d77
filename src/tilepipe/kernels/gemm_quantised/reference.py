"""The product of quantised weights in NumPy, and operands for it."""

from __future__ import annotations

import functools

import numpy as np

import tilepipe as tp
from tilepipe.kernels.gemm.reference import Array, activated
from tilepipe.kernels.gemm_quantised.layout import unpack


def dequantised(words: Array, scales: Array, k: int, group: int) -> Array:
    """The weights (n, k) times their scales, float64. `words`, `scales`: as the kernel has them."""
    return unpack(words, k) * np.repeat(scales.astype(np.float64), group, axis=0)[:k].T


def compare(
    c: Array, a: Array, words: Array, scales: Array, group: int, activation: str = "none"
) -> tp.testing.Comparison:
    """C (m, n) beside activation(A · (scales · W)ᵀ) in float64: the bound of float32 sums."""
    w = dequantised(words, scales, a.shape[1], group)
    then = functools.partial(activated, name=activation)
    return tp.testing.compare_matmul(c, a, w.T, then=then)


def random_weights(
    rng: np.random.Generator, n: int, k: int, bits: int, group: int
) -> tuple[Array, Array]:
    """Weights (n, k), int8, of all values that so many bits have, and scales (⌈k / group⌉, n),
    float32, about 1.
    """
    half = 1 << (bits - 1)
    weights = rng.integers(-half, half, (n, k)).astype(np.int8)
    return weights, rng.uniform(0.5, 1.5, (-(-k // group), n)).astype(np.float32)
