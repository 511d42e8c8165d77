"""Which configuration of the GEMM of quantised weights for which product. Figures in
docs/performance/gemm-variants.md.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import tilepipe as tp
from tilepipe.kernels.common.limits import check_room
from tilepipe.kernels.common.tunable import Tunable
from tilepipe.kernels.gemm.model import BARRIERS, SLOT_BYTES
from tilepipe.kernels.gemm_quantised.config import QuantisedGemmConfig
from tilepipe.kernels.gemm_quantised.layout import BLOCK

MAX_ROWS = 64  # of A in a tile
MAX_STAGES = 12
# (MMA warpgroups, rows of W in a tile), CTAs that share K
_TILES, _SPLITS = ((2, 128), (1, 64)), (1, 2, 4, 8)


@dataclass(frozen=True)
class QuantisedProblem:
    """C (m, n) = A (m, k) times weights (n, k) of so many bits."""

    m: int
    n: int
    k: int
    bits: int = 4


@functools.lru_cache(maxsize=4096)
def best(problem: QuantisedProblem, chip: tp.Chip = tp.H200) -> QuantisedGemmConfig:
    """The first of `candidates`.

    Raises:
        LimitError: the chip has no room for any.
    """
    found = candidates(problem, chip)
    if not found:
        raise tp.LimitError(
            f"no configuration of gemm_quantised fits {chip.name}, whose CTAs have"
            f" {chip.smem_per_cta:,} bytes of shared memory"
        )
    return found[0]


def candidates(problem: QuantisedProblem, chip: tp.Chip = tp.H200) -> list[QuantisedGemmConfig]:
    """Configurations that fit the problem and the chip: first the one that gives each SM the least
    work; of equals, the one of larger tiles: of two warpgroups, one makes weights while the other
    multiplies; then the one of fewer CTAs that share K. Stages are of as many K tiles as find room
    twice. Behind these the same with fewer K tiles in a stage.
    """
    m, k, bits = problem.m, problem.k, problem.bits
    found = [
        (skipped, _work(cfg, problem, chip), -cfg.bm, cfg.split_k, cfg)
        for consumers, bm in _TILES
        for split_k in _SPLITS
        for skipped, cfg in enumerate(_fitted(m, k, consumers, bm, split_k, bits, chip))
    ]
    return [item[-1] for item in sorted(found, key=lambda item: item[:4])]


def _work(cfg: QuantisedGemmConfig, problem: QuantisedProblem, chip: tp.Chip) -> int:
    """Rows of W times K tiles that the busiest CTA takes."""
    tiles = -(-problem.n // cfg.bm) * -(-problem.m // cfg.bn)
    waves = -(-tiles // chip.resident_clusters(cfg.cluster_size))
    return waves * cfg.bm * -(-problem.k // (BLOCK * cfg.split_k))


def _fitted(
    m: int, k: int, consumers: int, bm: int, split_k: int, bits: int, chip: tp.Chip
) -> list[QuantisedGemmConfig]:
    """The configurations with as many K tiles in flight as the chip has room for, those with the
    most in a stage first; none where there is no cluster, or no room.
    """
    if not chip.resident_clusters(split_k):
        return []
    bn = min(max(-(-m // 16) * 16, 8 * split_k, 16), MAX_ROWS)
    wanted = -(-k // (BLOCK * split_k))
    fitting = []
    for group in (4, 2, 1):
        cfg = QuantisedGemmConfig(
            bm=bm,
            bn=bn,
            consumers=consumers,
            split_k=split_k,
            k_group_size=group,
            store_slots=1,
        )
        if group <= wanted and (found := filled(cfg, bits, chip)) is not None:
            fitting.append(found)
    return fitting


def filled(cfg: QuantisedGemmConfig, bits: int, chip: tp.Chip) -> QuantisedGemmConfig | None:
    """`cfg` with as many stages as the chip has room for; None where that is not two."""
    stages = _room(cfg, bits, chip)
    return cfg.changed(stages=min(stages, MAX_STAGES)) if stages >= 2 else None


def _room(cfg: QuantisedGemmConfig, bits: int, chip: tp.Chip) -> int:
    """The number of stages that the chip has room for."""
    fixed, each = _smem_bytes(cfg, bits)
    return (chip.smem_per_cta - fixed) // each


def _smem_bytes(cfg: QuantisedGemmConfig, bits: int) -> tuple[int, int]:
    """Bytes of shared memory without any stage, and those of a stage."""
    # scales of 32 elements at most
    each = cfg.bm * BLOCK * bits // 8 + cfg.bn * BLOCK * 2 + cfg.bm * 4 * 4
    fixed = cfg.consumers * cfg.store_slots * SLOT_BYTES + BARRIERS
    fixed += cfg.bm * cfg.bn * 4 if cfg.split_k > 1 else 0
    return fixed, each * cfg.k_group_size


def check(cfg: QuantisedGemmConfig, problem: QuantisedProblem, chip: tp.Chip) -> None:
    """Raises BindError where a configuration cannot be used for a product."""
    fixed, each = _smem_bytes(cfg, problem.bits)
    check_room(fixed + cfg.stages * each, chip)


TUNABLE = Tunable(
    "gemm_quantised",
    QuantisedProblem,
    QuantisedGemmConfig,
    best,
    candidates,
    check,
    ("activation",),
)
