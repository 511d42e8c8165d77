"""The families of the GEMM with groups along K, and offsets that are easy to get wrong, small
enough to be verified at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array
from tests.kernels.gemm_grouped.families import OFFSETS, OUTPUTS, M
from tilepipe.kernels.gemm_grouped.reference import bounds
from tilepipe.kernels.gemm_k_grouped import reference
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped.sm90 import bind
from tilepipe.testing import Comparison
from tools.snapshot.families import K_GROUPED, tile_families

FAMILIES = tile_families(K_GROUPED, KGroupedGemmConfig)


@dataclass(frozen=True, eq=False)
class Product:
    """A product with groups along K and random operands; rows of no group are infinite."""

    program: tp.Program
    a: Array
    b: Array
    c: Array
    offsets: Array

    def compare(self) -> Comparison:
        return reference.compare(self.c, self.a, self.b, self.offsets)


def product(
    offsets: list[int] | str = "ragged",
    m: int = 136,
    n: int = 72,
    k: int = M,
    *,
    dtype: str = "bfloat16",
    out: str = "bfloat16",
    seed: int = 0,
    **settings: Any,
) -> Product:
    """A product whose C is full of NaN, which the kernel must overwrite."""
    rng, t = np.random.default_rng(seed), tp.dtype(dtype).numpy
    ends = np.array(OFFSETS[offsets] if isinstance(offsets, str) else offsets, np.int32)
    a, b = (rng.standard_normal((k, x)).astype(t).T for x in (m, n))
    a[:, bounds(ends, k)[-1][1] :] = np.inf
    c = np.full((len(ends), m, n), np.nan, OUTPUTS[out])
    return Product(bind(a, b, c, ends, KGroupedGemmConfig(**settings)), a, b, c, ends)
