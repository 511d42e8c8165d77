"""The families of the blockwise fp8 GEMM, small enough to be verified at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array
from tilepipe.kernels.gemm_blockwise import reference
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.sm90 import bind
from tilepipe.kernels.gemm_blockwise.validation import blocks_of
from tilepipe.testing import Comparison
from tools.snapshot.families import BLOCKWISE_SM90, tile_families

FAMILIES = tile_families(BLOCKWISE_SM90, BlockwiseGemmConfig) | {
    "tall along n": {"bm": 256, "stages": 3, "store_slots": 1, "cluster_n": 2, "group": 3},
    "halves": {"splits": 2},
    "tall halves": {"bm": 256, "stages": 3, "splits": 2, "cluster": 2},
    "three of three": {"bm": 192, "consumers": 3, "bn": 96, "cluster": 2, "raster": "columns"},
}
OUTPUTS = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}
# Of the tensor cores' own sums, which keep about 14 bits, over one block of K: relative
# (Frobenius).
HARDWARE_ERROR = 1e-3


@dataclass(frozen=True, eq=False)
class Product:
    """A product with random operands; `c` is what it writes."""

    program: tp.Program
    a: Array
    a_scales: Array
    b: Array
    b_scales: Array
    c: Array

    def compare(self) -> Comparison:
        return reference.compare(self.c, self.a, self.a_scales, self.b, self.b_scales)

    def verify(self, hardware: bool = False) -> None:
        """C is right: within the bound of float32 sums, or, on a GPU, what the tensor cores' own
        sums allow as a whole.
        """
        found = self.compare()
        rounding = {4: 0.0, 2: 2.0**-9}[self.c.dtype.itemsize]
        assert found.rel_error <= rounding + HARDWARE_ERROR if hardware else found.ok, found

    def bits(self) -> bytes:
        return self.c.tobytes()


def product(
    shape: tuple[int, int, int] = (400, 424, 656),
    out: str = "bfloat16",
    seed: int = 0,
    **settings: Any,
) -> Product:
    """A product whose rows, and blocks of 128 along K, differ widely in size, so that each scale
    matters.
    """
    (m, n, k), rng = shape, np.random.default_rng(seed)

    def uneven(rows: int) -> Array:
        sizes = np.exp2(rng.integers(-3, 4, (rows, blocks_of(k)))).repeat(128, 1)[:, :k]
        return (rng.standard_normal((rows, k)) * sizes).astype(np.float32)

    (a, a_scales), (b, b_scales) = (
        reference.quantized_rows(uneven(m)),
        reference.quantized_blocks(uneven(n)),
    )
    c = np.full((m, n), np.nan, OUTPUTS[out])
    return Product(
        bind(a, b, a_scales, b_scales, c, BlockwiseGemmConfig(**settings)),
        a,
        a_scales,
        b,
        b_scales,
        c,
    )
