"""Operands of grouped products as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilepipe.kernels.gemm_grouped_blockwise.reference import Operands
from tilepipe.kernels.gemm_k_grouped_blockwise.reference import Operands as OperandsOfK

ENDS = [5, 5, 40, 90]


def operands(
    m: int = 100, k: int = 40, n: int = 24, ends: list[int] | None = None, seed: int = 0
) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    offsets = np.array(ENDS if ends is None else ends, np.int32)
    return (
        rng.standard_normal((m, k)).astype(np.float16),
        rng.standard_normal((len(offsets), k, n)).astype(np.float16),
        offsets,
    )


def fp8_operands(
    padded: bool, k: int = 272, n: int = 160, m: int = 100, seed: int = 0
) -> tuple[Any, Any, Any, Any]:
    """a, b, scale_a and scale_b of four groups, as `ops.grouped_matmul` takes them."""
    x = Operands.random(np.random.default_rng(seed), m, n, k, len(ENDS), padded=padded)
    return x.a, x.b.swapaxes(1, 2), x.a_scales.swapaxes(-1, -2), x.b_scales.swapaxes(1, 2)


def fp8_operands_of_k(
    k: int = 400, m: int = 72, n: int = 160, seed: int = 0
) -> tuple[Any, Any, Any, Any]:
    """a, b, scale_a and scale_b whose groups are of k, as `ops.grouped_matmul` takes them."""
    x = OperandsOfK.random(np.random.default_rng(seed), m, n, k)
    return x.a, x.b.T, x.a_scales.T, x.b_scales


def dequantised(a: Any, b: Any, scale_a: Any, scale_b: Any) -> tuple[Any, Any]:
    """a and b times their scales, in float64."""
    rows = np.repeat(scale_a.astype(np.float64), 128, -1)[..., : a.shape[-1]]
    if b.ndim == 2:
        columns = np.repeat(scale_b.astype(np.float64), 128, 0)[: len(b)]
        return a.astype(np.float64) * rows, b.astype(np.float64) * columns
    blocks = np.repeat(np.repeat(scale_b.astype(np.float64), 128, 1), 128, 2)
    scaled = b.astype(np.float64) * blocks[:, : b.shape[1], : b.shape[2]]
    return a.astype(np.float64) * rows, scaled
