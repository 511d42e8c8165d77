"""Which configuration of the grouped GEMM for which problem: the model of the GEMM, and two limits
more.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.common import limits
from tilepipe.kernels.common.multicast import load_rows
from tilepipe.kernels.common.tunable import Tunable
from tilepipe.kernels.gemm.heuristics import SPAN, Problem, check_room, fitted
from tilepipe.kernels.gemm.model import STEEP, predicted_us
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig

# Measured on an H200 with `tilepipe bench gemm_grouped`. POWER: multiplications times bytes of an
# element, each microsecond, at the power limit: 780 TFLOP/s of 16 bits. DRAM: bytes a microsecond,
# of weights that no cache holds.
POWER, DRAM = 780e6, 4.3e6
# Heights that groups may have, as shares of the average: twelve from 0.4 to 1.6, evenly spread.
SHARES = tuple(0.4 + 1.2 * (i + 0.5) / 12 for i in range(12))


@dataclass(frozen=True)
class GroupedProblem:
    """C (m, n) = rows of A (m, k), in `groups` groups, times the groups' B (n, k)ᵀ.

    Attributes:
        dtype: of A and B. out_dtype: of C. b_order: of each B, "row" (K contiguous) or "col".
            scales: "none" or "row".
    """

    m: int
    n: int
    k: int
    groups: int
    dtype: tp.DType = tp.bfloat16
    out_dtype: tp.DType = tp.bfloat16
    b_order: str = "row"
    scales: str = "none"


@functools.lru_cache(maxsize=4096)
def best(problem: GroupedProblem, chip: tp.Chip = tp.H200) -> GroupedGemmConfig:
    """The configuration that the model expects to be fastest; of the groups the host knows the
    number, and so their average height.

    Raises:
        LimitError: the chip has no room for any.
    """
    found = candidates(problem, chip)
    if not found:
        raise tp.LimitError(
            f"no configuration of the grouped GEMM fits {chip.name}: {chip.smem_per_cta:,} bytes"
            " of shared memory a CTA"
        )
    return found[0]


def candidates(problem: GroupedProblem, chip: tp.Chip = tp.H200) -> list[GroupedGemmConfig]:
    """Configurations that fit the problem and the chip, the fastest by the model first."""
    takes_order = (cfg for cfg in _fitting(problem.dtype, chip) if _takes_order(problem, cfg))
    return sorted(takes_order, key=lambda cfg: expected_us(problem, cfg, chip))


def check(cfg: GroupedGemmConfig, problem: GroupedProblem, chip: tp.Chip) -> None:
    """Raises BindError where a configuration cannot be used for a problem."""
    check_room(cfg, problem.dtype, chip)
    if problem.b_order == "col":
        limits.check_lines("B", cfg.bn, load_rows(cfg.bn // cfg.cluster), "bn and cluster")


def _takes_order(problem: GroupedProblem, cfg: GroupedGemmConfig) -> bool:
    """True if the part of B that a CTA loads is of whole swizzle panels where it is not contiguous
    along K: narrower lines are right, and have not been measured.
    """
    return limits.loads_panels(problem.b_order, cfg.bn // cfg.cluster)


def expected_us(problem: GroupedProblem, cfg: GroupedGemmConfig, chip: tp.Chip = tp.H200) -> float:
    """Time in microseconds, by three limits: the model of the GEMM, for one product with as many
    rows as all tiles of all groups have; the tensor cores at the power limit; and reading every
    group's B. Groups end inside of a tile: their heights are taken for spread evenly around the
    average.
    """
    rows = multiplied_rows(problem.m, problem.groups, cfg.bm * cfg.cluster)
    product = Problem(
        rows,
        problem.n,
        problem.k,
        1,
        problem.dtype,
        problem.out_dtype,
        "row",
        problem.b_order,
        problem.scales,
    )
    operands = (problem.m + problem.n * problem.groups) * problem.k * problem.dtype.nbytes
    limits = (
        predicted_us(product, cfg, chip),
        rows * problem.n * problem.k * problem.dtype.nbytes / POWER,
        (operands + problem.m * problem.n * problem.out_dtype.nbytes) / DRAM,
    )
    return float(sum(x**STEEP for x in limits) ** (1 / STEEP))


def multiplied_rows(m: int, groups: int, step: int) -> int:
    """Rows of the tiles of groups that share m rows, whose heights vary around the average, in
    steps of so many rows.
    """
    average = m / groups
    steps = sum(-(-max(round(average * share), 1) // step) for share in SHARES) / len(SHARES)
    return max(round(groups * steps), 1) * step


@functools.cache
def _fitting(dtype: tp.DType, chip: tp.Chip) -> tuple[GroupedGemmConfig, ...]:
    """Every configuration worth a look that the chip has room for, with as many stages as fit."""
    found = (fitted(cfg, dtype, chip) for cfg in _all(SPAN // dtype.nbytes))
    return tuple(cfg for cfg in found if cfg is not None)


def _all(bk: int) -> Iterator[GroupedGemmConfig]:
    """Every configuration worth a look, without its stages."""
    shapes = [
        *(("cooperative", 2, 128, bn) for bn in (64, 96, 128, 160, 192, 256)),
        *(("cooperative", 2, 256, bn) for bn in (64, 128)),
        *(("cooperative", 3, 192, bn) for bn in (128,)),
        *(("cooperative", 1, 64, bn) for bn in (32, 64, 128, 192, 256)),
        *(("pingpong", 2, 128, bn) for bn in (64, 128, 160, 192)),
        *(("pingpong", 2, 64, bn) for bn in (96, 128, 192, 256)),
    ]
    for schedule, consumers, bm, bn in shapes:
        for cluster, cluster_n in ((1, 1), (2, 1), (1, 2)):
            try:
                yield GroupedGemmConfig(
                    bm=bm,
                    bn=bn,
                    bk=bk,
                    stages=2,
                    consumers=consumers,
                    schedule=schedule,
                    cluster=cluster,
                    cluster_n=cluster_n,
                )
            except tp.BindError:  # an accumulator too large for its warpgroups
                continue


TUNABLE = Tunable("gemm_grouped", GroupedProblem, GroupedGemmConfig, best, candidates, check)
