"""Grouped blockwise products with random operands, small enough to be verified at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tilepipe as tp
from tests.cases.fragments import Array
from tests.kernels.gemm_grouped.families import OFFSETS, OUTPUTS, M
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_grouped_blockwise import reference
from tilepipe.kernels.gemm_grouped_blockwise.sm90 import bind
from tilepipe.testing import Comparison
from tools.snapshot.families import BLOCKWISE_SM90, tile_families

FAMILIES = tile_families(BLOCKWISE_SM90, BlockwiseGemmConfig)


@dataclass(frozen=True, eq=False)
class Product:
    """A product whose C is full of marks that its rows must overwrite, and others keep."""

    program: tp.Program
    x: reference.Operands
    c: Array
    before: Array
    offsets: Array

    def compare(self) -> Comparison:
        return reference.compare(self.c, self.before, self.x, self.offsets)


def product(
    offsets: list[int] | str = "ragged",
    n: int = 136,
    k: int = 208,
    m: int = M,
    *,
    padded: bool = False,
    out: str = "bfloat16",
    seed: int = 0,
    **settings: Any,
) -> Product:
    """`padded`: the offsets are the rows of each group, of m."""
    rng = np.random.default_rng(seed)
    ends = np.array(OFFSETS[offsets] if isinstance(offsets, str) else offsets, np.int32)
    x = reference.Operands.random(rng, m, n, k, len(ends), padded=padded)
    shape = (len(ends),) * padded + (m, n)
    before = (rng.standard_normal(shape) + 100).astype(OUTPUTS[out])
    c = before.copy()
    cfg = BlockwiseGemmConfig(**settings)
    return Product(bind(x.a, x.b, x.a_scales, x.b_scales, c, ends, cfg), x, c, before, ends)
