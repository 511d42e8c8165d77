"""Settings of the grouped GEMM, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.kernels.common.tiling import Sm90Tiling


@dataclass(frozen=True)
class GroupedGemmConfig(Sm90Tiling):
    """Static settings of the grouped GEMM: those of `GemmConfig` of the same names, for each group.

    Attributes:
        bm, bn, bk: the tile, elements. Tiles begin at a group's first row, so bm should not be much
            more than the rows of a group.
        stages: K tiles in flight. consumers: MMA warpgroups, 1 to 3. schedule: "cooperative" or
            "pingpong".
        cluster: CTAs along M, of one group, that share B tiles by multicast; what a group has too
            few rows for multiplies for nothing.
        cluster_n: CTAs along N that share A tiles; one of the two is 1.
        raster: order of a group's tiles ("grouped", "rows", "columns"). group: cluster tiles of a
            "grouped" band.
        store_slots: buffers of 64 rows × 128 bytes for each consumer's stores.
    """

    bm: int = 128
    bn: int = 128
    bk: int = 64
    stages: int = 4
    consumers: int = 2
    schedule: str = "cooperative"
    cluster: int = 1
    cluster_n: int = 1
    raster: str = "grouped"
    group: int = 8
    store_slots: int = 2
    # There is no choice of what the plain GEMM may set.
    k_group_size = 1
    swap = "none"
    split_k = 1
    accumulate = "fast"
    activation = "none"
