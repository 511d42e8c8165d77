"""Settings of the Blackwell GEMM, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilepipe.kernels.common.settings import Settings
from tilepipe.kernels.gemm.config import ACTIVATIONS, RASTERS

TMEM_COLUMNS = 512
SCHEDULERS = ("clc", "static")


@dataclass(frozen=True)
class Sm100GemmConfig(Settings):
    """Static settings of the Blackwell GEMM.

    Attributes:
        bm, bn, bk: the tile of one CTA, elements: bm 64 or 128, bn a multiple of 16, of pairs 32,
            up to 256, bk of 32 up to 256.
        stages: pairs of barriers, each for k_group_size K tiles. k_group_size: K tiles that share a
            barrier pair.
        cta_group: 2: pairs of CTAs along M share an MMA of 2 bm rows: each loads its rows of A and
            half of B.
        cluster, cluster_n: CTAs of a cluster along M and N: those beside each other along M share B
            tiles by multicast, along N A tiles.
        accumulators: tiles in tensor memory: with 2, one is stored while the next is multiplied.
        scheduler: "clc": clusters that are done take the work of clusters that have not begun
            (cluster launch control); "static": each cluster has a fixed share.
        raster: order of the output tiles ("grouped", "rows", "columns"). group: cluster tiles of a
            "grouped" band.
        store_slots: buffers of bm rows × 128 bytes for stores.
        activation: of the output: "none", "relu", "gelu" (tanh form) or "silu".
    """

    bm: int = 128
    bn: int = 128
    bk: int = 64
    stages: int = 4
    k_group_size: int = 1
    cta_group: int = 1
    cluster: int = 1
    cluster_n: int = 1
    accumulators: int = 2
    scheduler: str = "clc"
    raster: str = "grouped"
    group: int = 8
    store_slots: int = 2
    activation: str = "none"

    def _rules(self) -> dict[str, bool]:
        step = 32 if self.cta_group == 2 else 16
        columns = self.accumulators * self.bn
        return {
            "cta_group must be 1 or 2": self.cta_group in (1, 2),
            "bm must be 64 or 128, and 128 where cta_group is 2": self.bm == 128
            or (self.bm == 64 and self.cta_group != 2),
            f"bn must be a multiple of {step} in {step}..256": self.bn % step == 0
            and self.bn <= 256,
            "bk must be a multiple of 32 in 32..256": self.bk % 32 == 0 and self.bk <= 256,
            "stages must be at least 2: one is held by the MMAs in flight": self.stages >= 2,
            "cluster · cluster_n must be 1, 2, 4 or 8": self.cluster_size in (1, 2, 4, 8),
            "cta_group 2 takes an even cluster, cluster=2 at least": self.cta_group == 1
            or self.cluster % 2 == 0,
            "bm / cluster_n must be a multiple of 8, and bn / cluster, too": self.bm
            % (8 * self.cluster_n)
            == 0
            and self.bn % (8 * self.cluster) == 0,
            f"{self.accumulators} accumulators of {self.bn} columns are {columns}; tensor memory has {TMEM_COLUMNS}": columns
            <= TMEM_COLUMNS,
            f"scheduler must be one of {', '.join(SCHEDULERS)}": self.scheduler in SCHEDULERS,
            f"raster must be one of {', '.join(RASTERS)}": self.raster in RASTERS,
            f"activation must be one of {', '.join(ACTIVATIONS)}": self.activation in ACTIVATIONS,
        }

    @property
    def cluster_size(self) -> int:
        """CTAs of a cluster."""
        return self.cluster * self.cluster_n

    @property
    def b_rows(self) -> int:
        """Rows of B that one CTA holds: a pair shares a tile."""
        return self.bn // self.cta_group

    # What the epilogue asks (`gemm_config.OutputTiling`): a tile is one block, which one warpgroup
    # stores.

    @property
    def block_rows(self) -> int:
        """Rows of the accumulator."""
        return self.bm

    @property
    def block_cols(self) -> int:
        """Columns of the accumulator."""
        return self.bn

    @property
    def fragment_layout(self) -> str:
        """Of what comes from tensor memory."""
        return "tmem"

    consumers: ClassVar[int] = 1
    split_k: ClassVar[int] = 1
    swap: ClassVar[str] = "none"
