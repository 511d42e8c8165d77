"""Settings of the grouped GEMM, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass, field

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

    # There is no choice of what the plain GEMM may set.
    k_group_size: int = field(default=1, init=False, repr=False)
    swap: str = field(default="none", init=False, repr=False)
    split_k: int = field(default=1, init=False, repr=False)
    accumulate: str = field(default="fast", init=False, repr=False)
    activation: str = field(default="none", init=False, repr=False)
