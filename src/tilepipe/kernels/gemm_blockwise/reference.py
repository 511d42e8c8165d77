"""The blockwise fp8 product in NumPy: quantised operands, and the product in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.kernels.gemm_blockwise.config import BLOCK
from tilepipe.kernels.gemm_blockwise.validation import blocks_of

Array = npt.NDArray[Any]
LARGEST = 448.0  # of float8_e4m3
ROW_UNIT = 4  # float32 of 16 bytes: what TMA asks of the distance between rows


def quantized_rows(x: npt.NDArray[np.float32]) -> tuple[Array, Array]:
    """x (m, k) as e4m3 with a scale for each 1×128 block: values (m, k), and scales (k blocks, m),
    M contiguous, each line padded to 16 bytes. The largest number of a block becomes 448.
    """
    m, k = x.shape
    blocks = blocks_of(k)
    whole = np.zeros((m, blocks * BLOCK), np.float32)
    whole[:, :k] = x
    scales = _scales(np.abs(whole.reshape(m, blocks, BLOCK)).max(2))
    values = (whole / np.repeat(scales, BLOCK, axis=1))[:, :k].astype(tp.float8_e4m3.numpy)
    return values, padded(scales.T)


def padded(x: Array) -> Array:
    """A copy of x (..., rows, columns) whose rows are a multiple of 16 bytes apart, as TMA asks."""
    columns, unit = x.shape[-1], 16 // x.itemsize
    copy = np.zeros((*x.shape[:-1], -(-columns // unit) * unit), x.dtype)[..., :columns]
    copy[...] = x
    return copy


def quantized_blocks(x: npt.NDArray[np.float32]) -> tuple[Array, Array]:
    """x (n, k) as e4m3 with a scale for each 128×128 block: values (n, k), and scales (n blocks, k
    blocks).
    """
    n, k = x.shape
    whole = np.zeros((blocks_of(n) * BLOCK, blocks_of(k) * BLOCK), np.float32)
    whole[:n, :k] = x
    tiles = whole.reshape(blocks_of(n), BLOCK, blocks_of(k), BLOCK)
    scales = _scales(np.abs(tiles).max((1, 3)))
    return (tiles / scales[:, None, :, None]).reshape(whole.shape)[:n, :k].astype(
        tp.float8_e4m3.numpy
    ), scales


def _scales(largest: Array) -> Array:
    return np.where(largest > 0, largest / np.float32(LARGEST), np.float32(1)).astype(np.float32)


def scaled_rows(a: Array, a_scales: Array) -> npt.NDArray[np.float64]:
    """A (m, k) times its scales (k blocks, m)."""
    return (
        a.astype(np.float64)
        * np.repeat(a_scales.T.astype(np.float64), BLOCK, axis=1)[:, : a.shape[1]]
    )


def scaled_blocks(b: Array, b_scales: Array) -> npt.NDArray[np.float64]:
    """B (n, k) times its scales (n blocks, k blocks)."""
    n, k = b.shape
    return (
        b.astype(np.float64)
        * np.repeat(np.repeat(b_scales.astype(np.float64), BLOCK, 0), BLOCK, 1)[:n, :k]
    )


def compare(
    c: Array, a: Array, a_scales: Array, b: Array, b_scales: Array
) -> tp.testing.Comparison:
    """C (m, n) beside the float64 product of the operands times their scales: the bound of float32
    sums.
    """
    return tp.testing.compare_matmul(c, scaled_rows(a, a_scales), scaled_blocks(b, b_scales).T)
