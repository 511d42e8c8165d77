"""Which configuration of the blockwise fp8 GEMM with groups along K for which problem: the model of
the blockwise GEMM, for groups of the average part of K, and what reading the scales of B from
shared memory adds.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import tilepipe as tp
from tilepipe.kernels.common.tunable import Tunable
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise.heuristics import (
    ENOUGH_STAGES,
    check_room,
    expected_cycles,
    filled,
)
from tilepipe.kernels.gemm_k_grouped_blockwise.config import KGroupedBlockwiseGemmConfig

WARPS = 4  # of a warpgroup
OF_A_READ = 8  # columns whose scales a warp reads at once, in a cycle of shared memory


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
    return sorted(fitting, key=lambda cfg: expected_cycles(product, cfg, chip, reading_scales(cfg)))


def reading_scales(cfg: KGroupedBlockwiseGemmConfig) -> int:
    """Cycles of shared memory that the scales of B take for a block of K: those that are read early
    serve all rows of a warpgroup, the others are read for each 64 rows.
    """
    columns = cfg.early_cols + (cfg.bn - cfg.early_cols) * cfg.pieces
    return cfg.consumers * WARPS * columns // OF_A_READ


def _fitting(out_dtype: tp.DType, chip: tp.Chip) -> Iterator[KGroupedBlockwiseGemmConfig]:
    """Every configuration worth a look that the chip has room for, with two store slots where four
    stages are left.
    """
    # with more blocks of K one after the other, or more columns, ptxas spills
    shapes = (
        (2, 256, 112, 2),
        (2, 256, 96, 4),
        (2, 128, 160, 2),
        (2, 128, 128, 4),
        (2, 128, 96, 4),
        (2, 128, 64, 4),
        (1, 64, 128, 4),
        (1, 64, 64, 4),
    )
    for consumers, bm, bn, unroll in shapes:
        for x, y in ((1, 1), (2, 1), (1, 2)):
            cfg = KGroupedBlockwiseGemmConfig(
                bm=bm, bn=bn, stages=2, consumers=consumers, cluster=x, cluster_n=y, unroll=unroll
            )
            if not chip.resident_clusters(cfg.cluster_size):
                continue
            slots = [_filled(replace(cfg, store_slots=count), out_dtype, chip) for count in (2, 1)]
            yield from [x for x in slots if x is not None and x.stages > ENOUGH_STAGES][:1]


def _filled(
    cfg: KGroupedBlockwiseGemmConfig, out_dtype: tp.DType, chip: tp.Chip
) -> KGroupedBlockwiseGemmConfig | None:
    try:
        return filled(cfg, out_dtype, chip)
    except tp.LimitError:
        return None


TUNABLE = Tunable(
    "gemm_k_grouped_blockwise",
    KGroupedBlockwiseProblem,
    KGroupedBlockwiseGemmConfig,
    best,
    candidates,
    lambda cfg, problem, chip: check_room(cfg, problem.out_dtype, chip),
    ("activation",),
)
