"""Products of fp8 and scales of each recipe, in NumPy: for the simulator, emulated launches and the
GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilepipe.kernels.gemm_blockwise import reference as blockwise
from tilepipe.kernels.gemm_blockwise.validation import blocks_of
from tilepipe.testing import Comparison, compare_matmul

Array = npt.NDArray[Any]
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
RECIPES = ("tensor", "row", "block")
SHAPES = [
    (1, 1, 1),
    (1, 8, 128),
    (128, 128, 128),
    (129, 65, 63),
    (200, 1, 300),
    (40, 300, 272),
    (300, 130, 500),
    (1, 1, 130),
]


@dataclass(frozen=True, eq=False)
class Operands:
    """a (m, k), b (k, n) with k contiguous, and their scales in the shapes that `scaled_matmul`
    takes.
    """

    a: Array
    b: Array
    scale_a: Array
    scale_b: Array

    @property
    def all(self) -> tuple[Array, Array, Array, Array]:
        return self.a, self.b, self.scale_a, self.scale_b

    def wide(self) -> tuple[Array, Array]:
        """Both operands times their scales, float64."""
        k, n = self.b.shape
        if self.scale_a.shape == (self.a.shape[0], blocks_of(k)) and self.scale_b.shape == (
            blocks_of(k),
            blocks_of(n),
        ):
            return blockwise.scaled_rows(self.a, self.scale_a.T), blockwise.scaled_blocks(
                self.b.T, self.scale_b.T
            ).T
        a, b = self.a.astype(np.float64), self.b.astype(np.float64)
        if self.scale_a.size == 1 and self.scale_b.size == 1:
            return a * self.scale_a.astype(np.float64).reshape(()), b * self.scale_b.astype(
                np.float64
            ).reshape(())
        return a * self.scale_a.astype(np.float64).reshape(-1, 1), b * self.scale_b.astype(
            np.float64
        ).reshape(1, -1)

    def compare(self, c: Array, bias: Array | None = None) -> Comparison:
        """C beside the float64 product."""
        return compare_matmul(
            c, *self.wide(), then=None if bias is None else lambda z: z + bias.astype(np.float64)
        )


def operands(
    recipe: str, shape: tuple[int, int, int], dtypes: tuple[Any, Any] = (E4M3, E4M3), seed: int = 0
) -> Operands:
    """Random ones, whose scales are of very different size."""
    (m, n, k), rng = shape, np.random.default_rng(seed)
    a, b = (rng.standard_normal((rows, k)).astype(np.float32) * 8 for rows in (m, n))

    def scales(*extents: int) -> Array:
        return (np.exp2(rng.integers(-7, 1, extents)) * rng.uniform(1, 2, extents)).astype(
            np.float32
        )

    of = {
        "tensor": ((1, 1), (1, 1)),
        "row": ((m, 1), (1, n)),
        "block": ((m, blocks_of(k)), (blocks_of(k), blocks_of(n))),
    }[recipe]
    return Operands(a.astype(dtypes[0]), b.astype(dtypes[1]).T, scales(*of[0]), scales(*of[1]))
