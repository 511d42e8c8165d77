"""Which configuration of the blockwise fp8 GEMM with groups along K for which problem: the model of
the blockwise GEMM, for groups of the average part of K. It does not know what the scales of B cost
here, which all configurations read alike.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.common.tunable import Tunable
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise.heuristics import check_room, expected_cycles, filled
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig


@dataclass(frozen=True)
class KGroupedBlockwiseProblem:
    """C (groups, m, n) = A (m, k) · B (n, k)ᵀ over each group's part of k, of fp8 with a scale for
    each 1×128 of both.
    """

    m: int
    n: int
    k: int
    groups: int
    out_dtype: tp.DType = tp.bfloat16


@functools.lru_cache(maxsize=4096)
def best(problem: KGroupedBlockwiseProblem, chip: tp.Chip = tp.H200) -> KGroupedBlockwiseGemmConfig:
    """The configuration that the model expects to be fastest; of the groups the host knows the
    number, and so their average part of k.

    Raises:
        LimitError: the chip has no room for any.
    """
    found = candidates(problem, chip)
    if not found:
        raise tp.LimitError(
            "no configuration of the blockwise fp8 GEMM with groups along K fits"
            f" {chip.name}: {chip.smem_per_cta:,} bytes of shared memory"
        )
    return found[0]


def candidates(
    problem: KGroupedBlockwiseProblem, chip: tp.Chip = tp.H200
) -> list[KGroupedBlockwiseGemmConfig]:
    """Configurations that fit the problem and the chip, the fastest by the model first."""
    # the tiles of all groups are those of as many rows
    product = Problem(
        problem.m * problem.groups,
        problem.n,
        -(-problem.k // problem.groups),
        dtype=tp.float8_e4m3,
        out_dtype=problem.out_dtype,
        scales="block",
    )
    fitting = _fitting(problem.out_dtype, chip)
    return sorted(fitting, key=lambda cfg: expected_cycles(product, cfg, chip))


def _fitting(out_dtype: tp.DType, chip: tp.Chip) -> Iterator[KGroupedBlockwiseGemmConfig]:
    """Every configuration worth a look that the chip has room for."""
    for consumers, bm, bn in ((2, 128, 128), (2, 128, 96), (2, 128, 64), (1, 64, 128), (1, 64, 64)):
        for x, y in ((1, 1), (2, 1), (1, 2)):
            cfg = KGroupedBlockwiseGemmConfig(
                bm=bm, bn=bn, stages=2, consumers=consumers, cluster=x, cluster_n=y
            )
            if not chip.resident_clusters(cfg.cluster_size):
                continue
            try:
                yield filled(cfg, out_dtype, chip)
            except tp.LimitError:
                continue


TUNABLE = Tunable(
    "gemm_k_grouped_blockwise",
    KGroupedBlockwiseProblem,
    KGroupedBlockwiseGemmConfig,
    best,
    candidates,
    lambda cfg, problem, chip: check_room(cfg, problem.out_dtype, chip),
    ("activation",),
)
