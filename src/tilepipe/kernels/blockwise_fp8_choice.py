"""Which configuration of the blockwise fp8 GEMM for which product."""

from __future__ import annotations

import functools

import tilepipe as tp
from tilepipe.kernels.blockwise_fp8_config import BlockwiseFP8Config, filled
from tilepipe.kernels.gemm_choice import Problem

WAVE_COLUMNS = 24  # columns' worth of time that a tile takes beside its products: its first loads, its epilogue


@functools.lru_cache(maxsize=4096)
def best(problem: Problem, chip: tp.Chip = tp.H200) -> BlockwiseFP8Config:
    """The configuration that is expected to be fastest.

    Raises:
        LimitError: the chip has no room for any.
    """
    return candidates(problem, chip, 1)[0]


def candidates(problem: Problem, chip: tp.Chip = tp.H200, limit: int | None = None) -> list[BlockwiseFP8Config]:
    """Configurations worth a try, those that leave the fewest SMs idle first.

    Raises:
        LimitError: the chip has no room for one of them.
    """
    fitting = [filled(cfg, problem.out_dtype, chip) for cfg in _all() if cfg.cluster_size == 1 or chip.resident_clusters(cfg.cluster_size)]
    return sorted(fitting, key=lambda cfg: expected_time(problem, cfg, chip))[:limit]


@functools.cache
def _all() -> tuple[BlockwiseFP8Config, ...]:
    return tuple(
        BlockwiseFP8Config(bn=bn, cluster=cluster, cluster_n=cluster_n)
        for cluster, cluster_n in ((2, 1), (1, 2), (1, 1))
        for bn in (128, 160, 112, 144, 176, 192, 96, 64)
    )


def expected_time(problem: Problem, cfg: BlockwiseFP8Config, chip: tp.Chip = tp.H200) -> float:
    """Waves of tiles times the work of a tile, in products of one row of a tile: good for an order only."""
    rows, cols = -(-problem.m // (cfg.bm * cfg.cluster)), -(-problem.n // (cfg.bn * cfg.cluster_n))
    waves = -(-rows * cols // max(chip.resident_clusters(cfg.cluster_size), 1))
    return float(waves * cfg.bm * (cfg.bn + WAVE_COLUMNS))
