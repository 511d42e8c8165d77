"""Which configuration of the GEMM of quantised weights for which product. Figures in
docs/performance.md.
"""

from __future__ import annotations

import functools

import tilepipe as tp
from tilepipe.kernels.gemm.model import BARRIERS, SLOT_BYTES
from tilepipe.kernels.gemm_quantised.config import QuantisedGemmConfig
from tilepipe.kernels.gemm_quantised.layout import BLOCK

MAX_ROWS = 64  # of A in a tile
MAX_STAGES = 12
# (MMA warpgroups, rows of W in a tile), CTAs that share K
_TILES, _SPLITS = ((2, 128), (1, 64)), (1, 2, 4, 8)


@functools.lru_cache(maxsize=4096)
def best(m: int, n: int, k: int, bits: int, chip: tp.Chip = tp.H200) -> QuantisedGemmConfig:
    """The configuration that gives each SM the least work; of equals, the one of larger tiles: of
    two warpgroups, one makes weights while the other multiplies; then the one of fewer CTAs that
    share K. Stages are of as many K tiles as find room twice.

    Raises:
        LimitError: the chip has no room for any.
    """
    found = [
        (_work(cfg, m, n, k, chip), -cfg.bm, cfg.split_k, cfg)
        for consumers, bm in _TILES
        for split_k in _SPLITS
        if (cfg := _fitted(m, k, consumers, bm, split_k, bits, chip)) is not None
    ]
    if not found:
        raise tp.LimitError(
            f"no configuration of gemm_quantised fits {chip.name}, whose CTAs have"
            f" {chip.smem_per_cta:,} bytes of shared memory"
        )
    return min(found, key=lambda item: item[:3])[-1]


def _work(cfg: QuantisedGemmConfig, m: int, n: int, k: int, chip: tp.Chip) -> int:
    """Rows of W times K tiles that the busiest CTA takes."""
    tiles = -(-n // cfg.bm) * -(-m // cfg.bn)
    waves = -(-tiles // chip.resident_clusters(cfg.cluster_size))
    return waves * cfg.bm * -(-k // (BLOCK * cfg.split_k))


def _fitted(
    m: int, k: int, consumers: int, bm: int, split_k: int, bits: int, chip: tp.Chip
) -> QuantisedGemmConfig | None:
    """The configuration with as many K tiles in flight as the chip has room for; None where there
    is no cluster, or no room.
    """
    if not chip.resident_clusters(split_k):
        return None
    bn = min(max(-(-m // 16) * 16, 8 * split_k, 16), MAX_ROWS)
    wanted = -(-k // (BLOCK * split_k))
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
            return found
    return None


def filled(cfg: QuantisedGemmConfig, bits: int, chip: tp.Chip) -> QuantisedGemmConfig | None:
    """`cfg` with as many stages as the chip has room for; None where that is not two."""
    # scales of 32 elements at most
    each = cfg.bm * BLOCK * bits // 8 + cfg.bn * BLOCK * 2 + cfg.bm * 4 * 4
    fixed = cfg.consumers * cfg.store_slots * SLOT_BYTES + BARRIERS
    fixed += cfg.bm * cfg.bn * 4 if cfg.split_k > 1 else 0
    stages = (chip.smem_per_cta - fixed) // (each * cfg.k_group_size)
    return cfg.changed(stages=min(stages, MAX_STAGES)) if stages >= 2 else None
