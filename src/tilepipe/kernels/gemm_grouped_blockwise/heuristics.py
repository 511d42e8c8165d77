"""Which configuration of the grouped blockwise fp8 GEMM for which problem: the model of the
blockwise GEMM for the rows of all tiles, and the time that reading the weights takes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import tilepipe as tp
from tilepipe.kernels.common.tunable import Tunable
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm.model import STEEP
from tilepipe.kernels.gemm_blockwise import heuristics as blockwise
from tilepipe.kernels.gemm_blockwise.config import BLOCK, BlockwiseGemmConfig
from tilepipe.kernels.gemm_blockwise.heuristics import MAX_STAGES, expected_cycles
from tilepipe.kernels.gemm_grouped.heuristics import DRAM, multiplied_rows
from tilepipe.kernels.gemm_grouped_blockwise.validation import UNIT

CYCLES = 1700  # of an SM in a microsecond, about


@dataclass(frozen=True)
class GroupedBlockwiseProblem:
    """C (m, n) = rows of A (m, k), in `groups` groups, times the groups' B (n, k)ᵀ, of fp8 with a
    scale for each block. Padded: each group has a matrix of so many rows that all together are m.
    """

    m: int
    n: int
    k: int
    groups: int
    out_dtype: tp.DType = tp.bfloat16


@functools.lru_cache(maxsize=4096)
def best(problem: GroupedBlockwiseProblem, chip: tp.Chip = tp.H200) -> BlockwiseGemmConfig:
    """The configuration that the model expects to be fastest; of the groups the host knows the
    number, and so their average height.

    Raises:
        LimitError: the chip has no room for any.
    """
    return candidates(problem, chip)[0]


def candidates(
    problem: GroupedBlockwiseProblem, chip: tp.Chip = tp.H200
) -> list[BlockwiseGemmConfig]:
    """Configurations that fit the problem and the chip, the fastest by the model first."""
    smaller = _smaller(chip)
    product = Problem(
        problem.m,
        problem.n,
        problem.k,
        dtype=tp.float8_e4m3,
        out_dtype=problem.out_dtype,
        scales="block",
    )
    return sorted(
        blockwise.by_cycles(product, smaller),
        key=lambda cfg: expected_us(problem, product, cfg, chip),
    )


def _smaller(chip: tp.Chip) -> tp.Chip:
    """The chip with less shared memory: a stage has room for more scales of A than that of the
    plain product.
    """
    return replace(chip, smem_per_cta=chip.smem_per_cta - MAX_STAGES * UNIT * tp.float32.nbytes)


def expected_us(
    problem: GroupedBlockwiseProblem, product: Problem, cfg: BlockwiseGemmConfig, chip: tp.Chip
) -> float:
    """Time by the model, microseconds, for groups a third of which are of one height, as a router
    balances them, and the others of heights around the average. `product`: that of all rows with
    one B.
    """
    step = cfg.bm * cfg.cluster
    even = problem.groups * -(-problem.m // (problem.groups * step)) * step
    rows = (even + 2 * multiplied_rows(problem.m, problem.groups, step)) // 3
    blocks = -(-problem.k // BLOCK)
    weights = problem.n * problem.k * problem.groups
    scales = problem.m * blocks * tp.float32.nbytes
    written = problem.m * problem.n * problem.out_dtype.nbytes
    limits = (
        expected_cycles(replace(product, m=rows), cfg, chip) / CYCLES,
        (problem.m * problem.k + weights + scales + written) / DRAM,
    )
    return float(sum(x**STEEP for x in limits) ** (1 / STEEP))


TUNABLE = Tunable(
    "gemm_grouped_blockwise",
    GroupedBlockwiseProblem,
    BlockwiseGemmConfig,
    best,
    candidates,
    lambda cfg, problem, chip: blockwise.check_room(cfg, problem.out_dtype, _smaller(chip)),
    ("activation",),
)
