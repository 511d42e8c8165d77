"""Blockwise products with groups along K and random operands, small enough to be verified at
once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array
from tests.kernels.gemm_grouped.families import OUTPUTS
from tilepipe.kernels.gemm_k_grouped_blockwise import reference
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig
from tilepipe.kernels.gemm_k_grouped_blockwise.sm90 import bind
from tilepipe.testing import Comparison
from tools.snapshot.families import K_GROUPED_BLOCKWISE, tile_families

FAMILIES = tile_families(K_GROUPED_BLOCKWISE, KGroupedBlockwiseGemmConfig)
K = 1008  # the last block has 112 elements
OFFSETS: dict[str, list[int]] = {
    "blocks": [128, 128, 384, 896, K],
    "one": [K],
    "all empty": [0, 0, 0],
    "blocks left over": [256, 640],
    "inside blocks": [127, 129, 400, 1000],
    "beyond the end": [128, 5000, 6000],
    "falling": [640, 128, 256, 768],
    "extreme": [-(2**31), 2**31 - 1, 0, 2**31 - 1],
}


@dataclass(frozen=True, eq=False)
class Product:
    """A product whose C is full of NaN, which the kernel must overwrite."""

    program: tp.Program
    x: reference.Operands
    c: Array
    offsets: Array

    def compare(self) -> Comparison:
        return reference.compare(self.c, self.x, self.offsets)


def product(
    offsets: str = "blocks",
    m: int = 136,
    n: int = 72,
    *,
    out: str = "bfloat16",
    seed: int = 0,
    **settings: Any,
) -> Product:
    x = reference.Operands.random(np.random.default_rng(seed), m, n, K)
    ends = np.array(OFFSETS[offsets], np.int32)
    c = np.full((len(ends), m, n), np.nan, OUTPUTS[out])
    cfg = KGroupedBlockwiseGemmConfig(**settings)
    return Product(bind(x.a, x.b, x.a_scales, x.b_scales, c, ends, cfg), x, c, ends)
