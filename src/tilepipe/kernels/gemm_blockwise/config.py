"""Settings of the blockwise fp8 GEMM, the rules that they obey, and which of them for which
product.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import gcd

import tilepipe as tp
from tilepipe.kernels.common.settings import Settings
from tilepipe.kernels.gemm.config import BLOCK_ROWS, GemmConfig, Tile, store_width

BLOCK = 128  # elements of K, and of N, that a scale is of
MAX_BN = 256  # columns of one wgmma
BARRIER_PAIR = 16  # bytes of a stage's two mbarriers
ALIGNMENT = 128  # bytes that the scales of B may be padded by
MAX_STAGES = 8
# registers of a thread for totals and partial sums, by MMA warpgroups
MAX_SUMS = {1: 200, 2: 200, 3: 128}


@dataclass(frozen=True)
class BlockwiseGemmConfig(Settings):
    """Static settings of the blockwise fp8 GEMM. A tile of K is one block of 128: the scales change
    from one to the next.

    Attributes:
        bm, bn: the tile, elements: 64 or 128 rows for each MMA warpgroup, bn a multiple of 16 up to
            256.
        stages: K tiles in flight.
        consumers: MMA warpgroups, 1 to 3, which split the rows of a tile.
        splits: wgmma of bn / splits columns, one after the other, which take fewer registers for
            partial sums.
        cluster, cluster_n: CTAs along M that share B tiles by multicast, and along N that share A
            tiles; one of them 1.
        raster: order of the output tiles ("grouped", "rows", "columns"). group: cluster tiles of a
            "grouped" band.
        store_slots: buffers of 64 rows × 128 bytes for each consumer's stores.
    """

    bm: int = 128
    bn: int = 128
    stages: int = 5
    consumers: int = 2
    splits: int = 1
    cluster: int = 1
    cluster_n: int = 1
    raster: str = "grouped"
    group: int = 8
    store_slots: int = 2

    def _rules(self) -> dict[str, bool]:
        if self.bn % 16 or self.bn > MAX_BN:
            return {f"bn must be a multiple of 16 up to {MAX_BN}": False}
        self.tile.check(self)
        registers, limit = self.sums, MAX_SUMS[self.consumers]
        return {
            "bn / splits must be a multiple of 16": self.bn % (16 * self.splits) == 0,
            f"totals of {self.rows}×{self.bn} and partial sums of {BLOCK_ROWS}×{self.piece_cols}"
            f" take {registers}"
            f" registers of each thread; at most {limit} leave room for the rest": registers
            <= limit,
        }

    @property
    def tile(self) -> Tile:
        """Tiles, stages, clusters, raster, stores."""
        names = {f.name for f in fields(GemmConfig)} & {f.name for f in fields(self)}
        return Tile(bk=BLOCK, **{name: getattr(self, name) for name in names})

    @property
    def rows(self) -> int:
        """Rows of the output tile of one warpgroup."""
        return self.bm // self.consumers

    @property
    def piece_cols(self) -> int:
        """Columns of one wgmma."""
        return self.bn // self.splits

    @property
    def pieces(self) -> int:
        """Parts of 64 rows and `piece_cols` columns that a warpgroup's tile has."""
        return self.rows // BLOCK_ROWS * self.splits

    @property
    def sums(self) -> int:
        """Registers of a thread for totals and partial sums."""
        return (self.rows * self.bn + BLOCK_ROWS * self.piece_cols) // 128

    @property
    def scale_cols(self) -> int:
        """Columns of a piece that surely share a scale of B, wherever the tile begins."""
        return gcd(self.piece_cols, BLOCK)

    @property
    def scale_blocks(self) -> int:
        """Blocks of B's scales that the columns of a tile may lie in."""
        return -(-(BLOCK - gcd(self.bn, BLOCK) + self.bn) // BLOCK)

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster * self.cluster_n


def slices(cfg: BlockwiseGemmConfig, out_dtype: tp.DType) -> int:
    """Slots that a warpgroup's part of a tile fills."""
    return cfg.rows // BLOCK_ROWS * (cfg.bn // store_width(out_dtype, cfg.tile))


def smem_bytes(cfg: BlockwiseGemmConfig, out_dtype: tp.DType) -> int:
    """Shared memory that a configuration takes, bytes."""
    stage = (
        (cfg.bm + cfg.bn) * BLOCK + (cfg.bm + cfg.scale_blocks) * tp.float32.nbytes + BARRIER_PAIR
    )
    slot = BLOCK_ROWS * store_width(out_dtype, cfg.tile) * out_dtype.nbytes
    return cfg.stages * stage + cfg.store_slots * cfg.consumers * slot + ALIGNMENT


def filled(
    cfg: BlockwiseGemmConfig, out_dtype: tp.DType, chip: tp.Chip = tp.H200
) -> BlockwiseGemmConfig:
    """The configuration with as many stages as fit, up to 8.

    Raises:
        LimitError: not even two fit.
    """
    least = smem_bytes(replace(cfg, stages=2), out_dtype)
    each = smem_bytes(replace(cfg, stages=3), out_dtype) - least
    room = chip.smem_per_cta - least
    if room < 0:
        raise tp.LimitError(
            f"two stages take {least:,} bytes of shared memory; a CTA of {chip.name} has"
            f" {chip.smem_per_cta:,} ({cfg})"
        )
    return replace(cfg, stages=min(2 + room // each, MAX_STAGES))
