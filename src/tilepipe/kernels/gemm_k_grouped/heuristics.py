"""Which configuration of the GEMM with groups along K for which problem: the model of the GEMM, for
groups of the average number of rows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.common.tunable import Tunable
from tilepipe.kernels.gemm.heuristics import SPAN, Problem, check_room, fitted
from tilepipe.kernels.gemm.model import predicted_us
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig


@dataclass(frozen=True)
class KGroupedProblem:
    """C (groups, m, n) = A (m, k) · B (n, k)ᵀ over each group's part of k.

    Attributes:
        dtype: of A and B. out_dtype: of C.
    """

    m: int
    n: int
    k: int
    groups: int
    dtype: tp.DType = tp.bfloat16
    out_dtype: tp.DType = tp.bfloat16


@functools.lru_cache(maxsize=4096)
def best(problem: KGroupedProblem, chip: tp.Chip = tp.H200) -> KGroupedGemmConfig:
    """The configuration that the model expects to be fastest; of the groups the host knows the
    number, and so their average part of k.

    Raises:
        LimitError: the chip has no room for any.
    """
    found = candidates(problem, chip)
    if not found:
        raise tp.LimitError(
            f"no configuration of the GEMM with groups along K fits {chip.name}:"
            f" {chip.smem_per_cta:,} bytes of shared memory a CTA"
        )
    return found[0]


def candidates(problem: KGroupedProblem, chip: tp.Chip = tp.H200) -> list[KGroupedGemmConfig]:
    """Configurations that fit the problem and the chip, the fastest by the model first."""
    average = Problem(
        problem.m,
        problem.n,
        -(-problem.k // problem.groups),
        problem.groups,
        problem.dtype,
        problem.out_dtype,
        "col",
        "col",
    )
    return sorted(_fitting(problem.dtype, chip), key=lambda cfg: predicted_us(average, cfg, chip))


@functools.cache
def _fitting(dtype: tp.DType, chip: tp.Chip) -> tuple[KGroupedGemmConfig, ...]:
    """Every configuration worth a look that the chip has room for, with as many stages as fit."""
    found = (fitted(cfg, dtype, chip) for cfg in _all(SPAN // dtype.nbytes))
    return tuple(cfg for cfg in found if cfg is not None)


def _all(bk: int) -> Iterator[KGroupedGemmConfig]:
    """Every configuration worth a look, without its stages: what each CTA loads is whole swizzle
    panels along m and n.
    """
    shapes = [
        *((2, 128, bn) for bn in (64, 128, 192, 256)),
        *((2, 256, bn) for bn in (64, 128)),
        (3, 192, 128),
        *((1, 64, bn) for bn in (64, 128, 192, 256)),
    ]
    for consumers, bm, bn in shapes:
        for x, y in ((1, 1), (2, 1), (1, 2)):
            if bm // y % 64 == 0 and bn // x % 64 == 0:
                yield KGroupedGemmConfig(
                    bm=bm, bn=bn, bk=bk, stages=2, consumers=consumers, cluster=x, cluster_n=y
                )


def check(cfg: KGroupedGemmConfig, problem: KGroupedProblem, chip: tp.Chip) -> None:
    """Raises BindError where a configuration cannot be used for a problem."""
    check_room(cfg, problem.dtype, chip)


TUNABLE = Tunable("gemm_k_grouped", KGroupedProblem, KGroupedGemmConfig, best, candidates, check)
