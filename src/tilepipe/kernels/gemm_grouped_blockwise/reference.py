"""The grouped blockwise fp8 product in NumPy: quantised operands, and the float64 result of each
group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import tilepipe as tp
from tilepipe.kernels.gemm_blockwise import reference
from tilepipe.kernels.gemm_blockwise.config import BLOCK
from tilepipe.kernels.gemm_blockwise.reference import Array
from tilepipe.kernels.gemm_grouped.reference import rows_of


@dataclass(frozen=True, eq=False)
class Operands:
    """a (m, k) or (groups, m, k), b (groups, n, k), a_scales (k blocks, m) or (groups, k blocks,
    m), b_scales (groups, n blocks, k blocks), as the kernel takes them.
    """

    a: Array
    b: Array
    a_scales: Array
    b_scales: Array

    @classmethod
    def random(
        cls, rng: np.random.Generator, m: int, n: int, k: int, groups: int, *, padded: bool = False
    ) -> Operands:
        """Normal values, quantised. Rows are padded to 16 bytes in memory."""
        left = [
            reference.quantized_rows(rng.standard_normal((m, k), dtype=np.float32))
            for _ in range(groups if padded else 1)
        ]
        right = [
            reference.quantized_blocks(rng.standard_normal((n, k), dtype=np.float32))
            for _ in range(groups)
        ]
        a, a_scales, b, b_scales = (
            np.stack([x[i] for x in pairs]) for pairs in (left, right) for i in range(2)
        )
        a, a_scales, b = (reference.padded(x) for x in (a, a_scales, b))
        return cls(a if padded else a[0], b, a_scales if padded else a_scales[0], b_scales)


def compare(c: Array, before: Array, x: Operands, offsets: Array) -> tp.testing.Comparison:
    """C beside the float64 products of the groups; rows of no group must be what they were.

    Args:
        before: C before the kernel ran.
    """
    worst = tp.testing.Comparison(True, 0.0, 0.0, (0, 0))
    rest = np.ones(c.shape[:-1], bool)
    for group, start, end in rows_of(c, offsets):
        of = group if c.ndim == 3 else ...
        rest[of][start:end] = False
        found = tp.testing.numerics.judged_by_the_whole(
            reference.compare(
                c[of][start:end],
                x.a[of][start:end],
                x.a_scales[of][:, start:end],
                x.b[group],
                x.b_scales[group],
            ),
            min(x.a.shape[-1], BLOCK),
            c.dtype.name,
        )
        row, col = found.worst_at
        worst = tp.testing.Comparison(
            worst.ok and found.ok,
            max(worst.rel_error, found.rel_error),
            max(worst.worst, found.worst),
            (start + row, col) if found.worst > worst.worst else worst.worst_at,
        )
    same = (c == before) | (np.isnan(c) & np.isnan(before))
    if (rest[..., None] & ~same).any():
        row, col = np.argwhere(rest[..., None] & ~same)[0][-2:].tolist()
        return tp.testing.Comparison(False, worst.rel_error, np.inf, (row, col))
    return worst
