"""The blockwise fp8 product with groups along K in NumPy: quantised operands, and the float64
result of each group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import tilepipe as tp
from tilepipe.kernels.gemm_blockwise import reference
from tilepipe.kernels.gemm_blockwise.config import BLOCK
from tilepipe.kernels.gemm_blockwise.reference import Array
from tilepipe.kernels.gemm_grouped.reference import bounds
from tilepipe.kernels.gemm_k_grouped.reference import compare as compare_groups


@dataclass(frozen=True, eq=False)
class Operands:
    """a (m, k), b (n, k), a_scales (k blocks, m), b_scales (k blocks, n), as the kernel takes
    them.
    """

    a: Array
    b: Array
    a_scales: Array
    b_scales: Array

    @classmethod
    def random(cls, rng: np.random.Generator, m: int, n: int, k: int) -> Operands:
        """Normal values, quantised. Rows are padded to 16 bytes in memory."""
        (a, a_scales), (b, b_scales) = (
            reference.quantized_rows(rng.standard_normal((rows, k), dtype=np.float32))
            for rows in (m, n)
        )
        return cls(reference.padded(a), reference.padded(b), a_scales, b_scales)


def ends_of(offsets: Array, k: int) -> Array:
    """The ends that the kernel gives the groups: an offset below k is rounded down to a block."""
    return np.where(offsets < k, np.maximum(offsets, 0) // BLOCK * BLOCK, k).astype(np.int32)


def compare(c: Array, x: Operands, offsets: Array) -> tp.testing.Comparison:
    """C (groups, m, n) beside the float64 products of the groups; those of groups without blocks
    must be 0.
    """
    k = x.a.shape[1]
    ends = ends_of(offsets, k)
    a, b = reference.scaled_rows(x.a, x.a_scales), reference.scaled_rows(x.b, x.b_scales)
    found = compare_groups(c, a, b, ends)
    empty = [group for group, (start, end) in enumerate(bounds(ends, k)) if start == end]
    if c[empty].any() or not np.isfinite(found.rel_error):
        return found
    return tp.testing.numerics.judged_by_the_whole(found, min(k, BLOCK), c.dtype.name)
