"""Settings of the GEMM on each architecture, and the rules that they obey."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.kernels.common.tiling import Sm90Tiling, Sm100Tiling


@dataclass(frozen=True)
class GemmConfig(Sm90Tiling):
    """Static settings of the GEMM on Hopper.

    Attributes:
        bm, bn, bk: the tile, elements: bm of 64 or 128 rows for each warpgroup that works on it, bn
            a multiple of 16 up to 256 (of 32 up to 512), bk of 32 up to 256; 128 bytes' worth fills
            a swizzle span.
        stages: pairs of barriers, each for k_group_size K tiles.
        k_group_size: K tiles that share a barrier pair.
        consumers: MMA warpgroups, 1 to 3.
        schedule: "cooperative": the consumers split the rows of each tile. "pingpong": two
            consumers take whole tiles in turn, so that the epilogue of one runs beside the MMAs of
            the other.
        swap: "ab": computes Cᵀ = B · Aᵀ. bm then runs along N and bn along M, which wants fewer
            rows of padding where M is small.
        cluster, cluster_n: CTAs along M that share B tiles by multicast, and along N that share A
            tiles; one of them 1.
        split_k: CTAs that each take a part of K of the same tile; they exchange sums through
            distributed shared memory and add them in one fixed order. Not with ping-pong.
        raster: order of the output tiles ("grouped", "rows", "columns"). group: cluster tiles of a
            "grouped" band.
        store_slots: buffers of 64 rows × 128 bytes for each consumer's stores.
        accumulate: "fast": in the tensor core's registers over all of K. "promote": each stage's
            sum is added to float32 registers, for fp8, whose tensor-core sums keep about 14 bits.
        activation: of the output: "none", "relu", "gelu" (tanh form) or "silu".
    """

    bm: int = 128
    bn: int = 128
    bk: int = 64
    stages: int = 4
    k_group_size: int = 1
    consumers: int = 2
    schedule: str = "cooperative"
    swap: str = "none"
    cluster: int = 1
    cluster_n: int = 1
    split_k: int = 1
    raster: str = "grouped"
    group: int = 8
    store_slots: int = 2
    accumulate: str = "fast"
    activation: str = "none"


@dataclass(frozen=True)
class Sm100GemmConfig(Sm100Tiling):
    """Static settings of the GEMM on Blackwell: those of `Sm100Tiling`."""
