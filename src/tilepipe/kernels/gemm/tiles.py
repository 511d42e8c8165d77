"""The tiles from which the GEMM's configuration is chosen by `times`: those that were among the
fastest for some product that was measured. How the others fare nobody knows, and the fastest of a
thousand guesses is a wrong one too often.
"""

from __future__ import annotations

import functools
from typing import TypeAlias

import tilepipe as tp
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.tiles_data import TILES

Shape: TypeAlias = tuple[str, int, int, int]
"""schedule, consumers, bm, bn"""
Clusters: TypeAlias = tuple[int, int, int, int]
"""cluster, cluster_n, split_k, k_parts"""


@functools.cache
def measured(bk: int) -> tuple[GemmConfig, ...]:
    """Configurations without their stages."""
    return tuple(
        _made((*tile, bn), clusters, swap, bk)
        for tile, shared in TILES.items()
        for clusters, widths in shared.items()
        for swap, every in zip(("none", "ab"), widths, strict=True)
        for bn in every
    )


def worth_a_look(shape: Shape, clusters: Clusters, swap: str, bk: int) -> GemmConfig | None:
    """A configuration without its stages; None where there is none, or where measurements say that
    it is not worth a look.
    """
    schedule, _, bm, bn = shape
    _, _, split_k, k_parts = clusters
    # Other numbers of CTAs that split K have not been measured as they are now; three lost where
    # tiles have more than 64 rows.
    if split_k > 1 and (bm * bn > 128 * 160 or schedule == "pingpong" or bn % (8 * split_k)):
        return None
    if split_k == 3 and bm > 64:
        return None
    if k_parts > 1 and (schedule == "pingpong" or bm > 128 or bn < 32 or bm * bn > 128 * 208):
        return None
    try:
        return _made(shape, clusters, swap, bk)
    except tp.BindError:
        return None


def _made(shape: Shape, clusters: Clusters, swap: str, bk: int) -> GemmConfig:
    schedule, consumers, bm, bn = shape
    cluster, cluster_n, split_k, k_parts = clusters
    return GemmConfig(
        bm=bm,
        bn=bn,
        bk=bk,
        stages=2,
        consumers=consumers,
        schedule=schedule,
        swap=swap,
        cluster=cluster,
        cluster_n=cluster_n,
        split_k=split_k,
        k_parts=k_parts,
    )
