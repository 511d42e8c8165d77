"""Settings of the GEMM whose K is divided among groups, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilepipe.kernels.common.tiling import Sm90Tiling


@dataclass(frozen=True)
class KGroupedGemmConfig(Sm90Tiling):
    """Static settings: those of `GemmConfig` of the same names, for the product of each group.

    Attributes:
        bm, bn, bk: the tile, elements. The K tiles of a group begin at its first row; its last K
            tile is filled up with zeros, so bk should not be much more than the rows of a group.
        stages: K tiles in flight. consumers: MMA warpgroups, 1 to 3, which split the rows of a
            tile.
        cluster, cluster_n: CTAs along M that share B tiles by multicast, and along N that share A
            tiles; one of the two is 1.
        raster: order of a group's tiles ("grouped", "rows", "columns"). group: cluster tiles of a
            "grouped" band.
        store_slots: buffers of 64 rows × 128 bytes for each consumer's stores.
    """

    # There is no choice of what the plain GEMM may set. Ping-pong would have each warpgroup step
    # over the K tiles of the other's group.
    k_group_size: int = field(default=1, init=False, repr=False)
    schedule: str = field(default="cooperative", init=False, repr=False)
    swap: str = field(default="none", init=False, repr=False)
    split_k: int = field(default=1, init=False, repr=False)
    accumulate: str = field(default="fast", init=False, repr=False)
    activation: str = field(default="none", init=False, repr=False)
